"""Fixtures that more than one folder of tests uses."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.toys import Architecture, make_toy

# Idle OpenMP threads that spin take the cores away from the engine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`toy_folder("qwen2", dtype="bfloat16", ...)`: the folder of a toy model, made once for each set of
    arguments."""
    made: dict[tuple[object, ...], Path] = {}

    def folder(architecture: Architecture, **options: object) -> Path:
        key = (architecture, *sorted(options.items()))
        if key not in made:
            target = tmp_path_factory.mktemp(f"toy-{architecture}-") / f"toy-{architecture}"
            made[key] = make_toy(architecture, target, **options)  # type: ignore[arg-type]
        return made[key]

    return folder


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The folder of SmolLM2-135M-Instruct in the user's cache, fetched when it is missing."""
    from seedbed_server.models import resolve_model

    return Path(resolve_model("smollm2").path)


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL server; each test takes a database of its own from it."""
    with postgres.cluster(postgres.needed()) as cluster:
        yield cluster
