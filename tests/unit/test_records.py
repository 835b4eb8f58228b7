"""Beginnings and ends of completions: written together, kept apart when one of them cannot be written."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from seedbed_server.gateway.records import Records
from seedbed_server.store import Store, StoreError, tables
from seedbed_server.store.rows import CompletionEnd, CompletionRow, EpisodeRow


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with Store(tmp_path / "store.sqlite") as it:
        yield it


def rows(number: int) -> tuple[CompletionRow, EpisodeRow]:
    episode = EpisodeRow(f"ep{number}", None, None, None, None, None, "open", 1.0)
    return CompletionRow(f"c{number}", episode.id, "/v1", None, "running", 1.0, 1), episode


async def statuses(store: Store, table: sa.Table) -> dict[str, str]:
    found: list[Any] = await store.read(lambda c: list(c.execute(sa.select(table.c.id, table.c.status))))
    return {row[0]: row[1] for row in found}


async def test_a_burst_is_two_writes_and_all_of_it_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Any] = []
    submit = store.submit

    def counted(job: Any) -> Any:
        submitted.append(job)
        return submit(job)

    monkeypatch.setattr(store, "submit", counted)
    records = Records(store)
    completion, episode = rows(0)
    first = records.begin(completion, opened=episode)
    await asyncio.sleep(0)
    stored = []
    for number in range(1, 40):
        completion, episode = rows(number)
        stored.append(records.begin(completion, opened=episode))
        if number % 2:
            records.end(completion.id, CompletionEnd("finished", 2.0))
    await asyncio.gather(first, *stored)
    await records.settled()
    assert len(submitted) == 2
    found = await statuses(store, tables.completions)
    assert found == {f"c{n}": "finished" if n % 2 else "running" for n in range(40)}


async def test_one_that_cannot_be_written_leaves_the_others_alone(store: Store) -> None:
    records = Records(store)
    completion, episode = rows(0)
    await records.begin(completion, opened=episode)
    same = records.begin(completion)
    completion, episode = rows(1)
    other = records.begin(completion, opened=episode)
    records.end("c0", CompletionEnd("failed", 2.0))
    with pytest.raises(sa.exc.IntegrityError):
        await same
    await other
    await records.settled()
    assert await statuses(store, tables.completions) == {"c0": "failed", "c1": "running"}


async def test_an_episode_is_dropped_after_it_was_opened_and_described_before_its_completion_counts(
    store: Store,
) -> None:
    records = Records(store)
    completion, episode = rows(0)
    stored = records.begin(completion, opened=episode)
    records.drop(episode.id)
    await stored
    again = replace(completion, id="c1")
    await records.begin(again, described=replace(episode, metadata={"a": "b"}))
    await records.settled()
    assert await statuses(store, tables.episodes) == {"ep0": "dropped"}
    metadata = await store.read(lambda c: c.execute(sa.select(tables.episodes.c.metadata)).scalar_one())
    assert metadata == {"a": "b"}


async def test_a_store_that_is_closed_says_so_to_those_who_wait(tmp_path: Path) -> None:
    store = Store(tmp_path / "other.sqlite")
    store.close()
    records = Records(store)
    completion, episode = rows(0)
    with pytest.raises(StoreError, match="is closed"):
        await records.begin(completion, opened=episode)
    records.end("c0", CompletionEnd("failed", 2.0))
    await records.settled()
