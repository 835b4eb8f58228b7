"""`test_store_orders` on PostgreSQL, with fewer orders: rewards, deaths, and the population in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed_server.store import place_of
from tests.postgres import Cluster
from tests.unit import test_store_orders as orders
from tests.unit.store_desk import Event, StoreDesk
from tests.unit.test_store_orders import another_order, run, run_with_a_death, scenarios


@pytest.fixture(scope="module")
def desk(postgres_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreDesk]:
    place = place_of(postgres_cluster.database(), Path(tmp_path_factory.mktemp("beside")))
    made = StoreDesk(place, orders.PLANS["discounted"])
    yield made
    made.close()


@settings(max_examples=15, deadline=None)
@given(scenarios(), st.integers(0, 2**32))
def test_every_order_that_the_rules_call_equal_ends_the_same_in_the_database(
    desk: StoreDesk, events: list[Event], seed: int
) -> None:
    expected = run(desk, events)
    generator = random.Random(seed)
    for together in (1, 64):
        assert run(desk, another_order(events, generator), together) == expected
    assert run_with_a_death(desk, another_order(events, generator), generator) == expected
