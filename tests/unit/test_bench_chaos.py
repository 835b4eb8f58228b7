"""What `./run bench chaos` kills; the rest of it is the server's."""

import random

import pytest

from bench.chaos import plan


@pytest.mark.parametrize("database", [False, True])
def test_fifty_kills_are_fifty_and_at_least_fifteen_of_the_engine(database: bool) -> None:
    kills = plan(50, random.Random(1), database=database)
    assert len(kills) == 50
    assert kills.count("engine") >= 15
    assert kills.count("gateway") >= 15
    assert (kills.count("database") >= 5) == database


def test_a_seed_says_what_is_killed() -> None:
    first, again, other = (plan(30, random.Random(seed), database=True) for seed in (1, 1, 2))
    assert first == again
    assert first != other
