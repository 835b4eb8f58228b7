"""One server for all end-to-end tests: four engine starts (start, after each of two kills, replay)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.served import Served


@pytest.fixture(scope="session")
def served(toy_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`seedbed serve` on a toy Llama, population of 4."""
    server = Served(
        toy_folder("llama"), tmp_path_factory.mktemp("served"), population_size=4, sigma=0.02, alpha=0.05
    )
    try:
        server.start()
        yield server
    finally:
        server.end()
