"""Two servers for all clients, one with SmolLM2 and one with a toy: two engine starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.accept.clients.crowd import readable_toy
from tests.accept.clients.program import Programs
from tests.e2e.served import Served

MEMBERS = 8
MODEL = "smollm2"


def serve_smollm2(model: Path, folder: Path) -> Iterator[Served]:
    """`seedbed serve` on SmolLM2, whose population stays open however many rewards come."""
    server = Served(
        model,
        folder,
        served_name=MODEL,
        population_size=MEMBERS,
        episodes_per_member=1000,
        sigma=0.002,
        sigma_schedule="constant",
    )
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture(scope="package")
def smollm2(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all clients."""
    yield from serve_smollm2(smollm2_folder, tmp_path_factory.mktemp("smollm2-served"))


@pytest.fixture(scope="package")
def ran(smollm2: Served) -> Programs:
    """`ran("use_openai", asynchronous=True)`: what the program found."""
    return Programs(smollm2.url, MODEL)


@pytest.fixture(scope="package")
def rows(smollm2: Served) -> Callable[..., list[Any]]:
    """`rows(query, *values)`: what the server's store has on disk."""

    def select(query: str, *values: object) -> list[Any]:
        with sqlite3.connect(f"file:{smollm2.store}?mode=ro", uri=True) as store:
            return store.execute(query, values).fetchall()

    return select


@pytest.fixture(scope="package")
def toy(toy_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`seedbed serve` on a toy Llama for what takes thousands of requests, whatever they say."""
    folder = tmp_path_factory.mktemp("toy-served")
    server = Served(
        readable_toy(toy_folder("llama"), folder / "toy"),
        folder,
        population_size=16,
        episodes_per_member=1000,
        sigma=0.02,
        sigma_schedule="constant",
    )
    try:
        server.start()
        yield server
    finally:
        server.end()
