"""Schemathesis for ten minutes: `./run accept document`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.accept.clients.document import check_document
from tests.e2e.served import Served

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def served(toy_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(
        toy_folder("llama"), tmp_path_factory.mktemp("served"), population_size=16, episodes_per_member=1000
    )
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.mark.parametrize("seed", [1, 2])
def test_schemathesis_finds_no_server_error_and_nothing_undocumented(
    served: Served, tmp_path: Path, seed: int
) -> None:
    verdict = check_document(served.url, tmp_path, seconds=300, seed=seed)
    print(verdict.output[-4000:])
    assert not verdict.server_errors
    assert verdict.code == 0
    assert len(verdict.answers) > 1000
    assert httpx.get(f"{served.url}/readyz").status_code == 200
