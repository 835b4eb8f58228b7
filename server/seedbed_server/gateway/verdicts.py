"""What becomes of a posted reward: a job that judges it and keeps it, inside the store's transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seedbed_server.gateway import guards
from seedbed_server.gateway.reward_rows import RewardRows
from seedbed_server.gateway.totals import totals
from seedbed_server.learner import Given, Known, Target, Verdict, judge, staleness
from seedbed_server.store import episodes, populations, rewards
from seedbed_server.store.lineage import rolled_back_within
from seedbed_server.store.rows import EpisodeRow, PopulationRow, RewardRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from seedbed_server.gateway.guards import Pause
    from seedbed_server.gateway.plan import RewardRules

__all__ = ["Counted", "Decided", "Posted", "any_known", "decide", "end_episode"]


@dataclass(frozen=True)
class Posted:
    """A reward as it came in, within its bounds."""

    given: Given
    feedback_text: str | None = None
    final: bool | None = None
    """False: more will follow for its episode, which does not count before. True: none will; it ends."""


@dataclass(frozen=True)
class Counted:
    """What a population in memory has to be told of an episode whose rewards have changed."""

    population: int
    episode: EpisodeRow
    total: float | None
    """None: it does not count any more, or not yet."""
    behind: int | None = None
    """Versions, for an episode of an earlier population."""
    weight: float = 1.0
    had_ended: bool = False
    """Before this: without a reward its member was free for another."""


@dataclass(frozen=True)
class Decided:
    """The answer to a reward, and what follows from it."""

    verdict: Verdict
    episode: EpisodeRow | None
    version: int | None
    """The version that the episode's population explores around."""
    counted: Counted | None = None
    pause: Pause | None = None
    """What the guard over the controls has decided."""
    ended: bool = False
    """Whether the episode ended with it."""


@dataclass(frozen=True)
class _Place:
    """Where the rewards of an episode count."""

    population: int | None
    """None: nowhere any more."""
    behind: int | None = None
    weight: float | None = None
    message: str | None = None
    """For the agent: why not, or how much."""


def decide(
    connection: sa.Connection,
    posted: Sequence[Posted],
    rules: RewardRules,
    now: float,
    within: str | None = None,
) -> list[Decided]:
    """Judges rewards one after the other and keeps what has to be kept of them. What lies outside `within` is
    unknown.
    """
    rows = RewardRows(connection, [one.given for one in posted])
    decided = [_decide(rows, one, rules, now, within) for one in posted]
    rows.flush()
    return decided


def any_known(connection: sa.Connection, posted: Sequence[Posted]) -> bool:
    """Whether the target of one of some rewards is on record."""
    rows = RewardRows(connection, [one.given for one in posted])
    return any(rows.target(one.given) is not None for one in posted)


def _decide(rows: RewardRows, posted: Posted, rules: RewardRules, now: float, within: str | None) -> Decided:
    given = posted.given
    episode = rows.target(given)
    if episode is None or within not in (None, episode.id):
        return Decided(judge(given, None, None, None), None, None)
    connection, before, origin = rows.connection, rows.counting(episode.id), rows.origin(episode)
    place = _place(connection, episode, origin, rows.opened, before, rules)
    current = next((row for row in before if _aim(row) == (given.completion_id, given.choice)), None)
    is_open = place.population is not None
    target = Target(episode.id, given.completion_id, episode.population, is_open, given.choice)
    verdict = judge(given, target, _known(rows.by_id(given.reward_id)), _known(current))
    if verdict.store and place.message is not None:
        late = verdict.result == "late"
        verdict = replace(verdict, message=place.message if late else f"{verdict.message}; {place.message}")
    version = None if origin is None else origin.version
    if not verdict.store:
        # Told again: who waits for a commit that is never answered posts once more, and finds it there.
        again = (
            verdict.result == "duplicate" and place.population is not None and episode.population is not None
        )
        if not again or not before or _waits(episode, before):
            return Decided(verdict, episode, version)
        ended = episode.status != "open"
        counted = _counted(connection, episode, place, before, rules, had_ended=ended)
        return Decided(verdict, episode, version, counted)
    had_ended = episode.status != "open"
    if posted.final:
        episode = rows.end(episode, now)
    ended = episode.status != "open" and not had_ended
    row = RewardRow(
        reward_id=given.reward_id,
        episode_id=episode.id,
        completion_id=given.completion_id,
        reward=given.reward,
        feedback_text=posted.feedback_text,
        result=verdict.result,
        counts=verdict.counts,
        created_at=now,
        choice=given.choice,
        final=posted.final,
    )
    placed = {item.population for item in before} - {None}
    if not verdict.counts:
        rows.add(row, None)
        if ended and not placed:
            # What waited for this one comes too late as well.
            rows.discount(episode.id)
        return Decided(verdict, episode, version, ended=ended)
    waits = _waits(episode, [*(item for item in before if item is not current), row])
    if not waits:
        row = replace(row, population=place.population, weight=place.weight)
    rows.add(row, current)
    if waits == bool(placed) and before:
        # What waited counts from now on, or what counted waits for more.
        rows.place(episode.id, row.population, row.weight)
    if waits:
        return Decided(verdict, episode, version, _withdrawn(episode, placed))
    after = rows.counting(episode.id)
    counted = _counted(connection, episode, place, after, rules, had_ended=had_ended)
    pause = None
    if episode.population is None and not placed and counted.total is not None:
        pause = guards.observe(connection, rules, counted.total, episode.version or 0, now)
    told = counted if episode.population is not None else None
    return Decided(verdict, episode, version, told, pause, ended)


def end_episode(
    connection: sa.Connection, episode_id: str, status: str, rules: RewardRules, now: float
) -> tuple[bool, Counted | None]:
    """Ends an open episode; what its rewards waited for will not come, so that they count as they are.

    Returns whether it was open, and what a population has to be told.
    """
    if not episodes.end(connection, episode_id, status, now):
        return False, None
    rows = rewards.of_episode(connection, episode_id)
    if not rows or any(row.population is not None for row in rows):
        return True, None
    episode = episodes.find(connection, episode_id)
    assert episode is not None
    opened = populations.find_open(connection)
    origin = None if episode.population is None else populations.find(connection, episode.population)
    place = _place(connection, episode, origin, opened, rows, rules)
    if place.population is None:
        rewards.discount(connection, episode_id)
        return True, None
    rewards.place(connection, episode_id, place.population, place.weight)
    if episode.population is None:
        return True, None
    return True, _counted(connection, episode, place, rows, rules, had_ended=False)


def _place(
    connection: sa.Connection,
    episode: EpisodeRow,
    origin: PopulationRow | None,
    opened: PopulationRow | None,
    rows: Sequence[RewardRow],
    rules: RewardRules,
) -> _Place:
    """An episode counts in one population: the one that is open when its first reward counts."""
    bound = next((row for row in rows if row.population is not None), None)
    if episode.population is None:
        # A control: beside the population that is open at its first reward.
        return _Place(bound.population if bound else opened.number if opened else None)
    assert origin is not None
    if bound is not None and (opened is None or bound.population != opened.number):
        return _Place(
            None,
            message=f"population {bound.population} has counted the episode and is closed: the reward is on "
            "record and is not used",
        )
    if opened is None:
        return _Place(None)
    if origin.number == opened.number:
        return _Place(origin.number)
    behind = opened.version - origin.version
    if bound is not None:
        return _Place(opened.number, behind, bound.weight)
    if behind and rolled_back_within(connection, origin.version, opened.version):
        return _Place(
            None,
            message=f"the model was rolled back since version {origin.version}: the reward is on record and "
            "is not used",
        )
    stale = staleness(origin.version, opened.version, rules.stale)
    if stale.weight is None:
        return _Place(None, behind, message=stale.message)
    message = f"{stale.message} in population {opened.number}"
    return _Place(opened.number, behind, None if stale.weight == 1 else stale.weight, message)


def _counted(
    connection: sa.Connection,
    episode: EpisodeRow,
    place: _Place,
    rows: Sequence[RewardRow],
    rules: RewardRules,
    *,
    had_ended: bool,
) -> Counted:
    total = totals(connection, rows, rules.aggregation)[episode.id]
    assert place.population is not None
    weight = 1.0 if place.weight is None else place.weight
    return Counted(place.population, episode, total, place.behind, weight, had_ended)


def _withdrawn(episode: EpisodeRow, placed: set[int | None]) -> Counted | None:
    for population in placed:
        if population is not None and episode.population is not None:
            return Counted(population, episode, None)
    return None


def _waits(episode: EpisodeRow, rows: Sequence[RewardRow]) -> bool:
    """Whether more rewards are announced for an episode that has not ended."""
    return episode.status == "open" and any(row.final is False for row in rows)


def _aim(row: RewardRow) -> tuple[str | None, int | None]:
    return row.completion_id, row.choice


def _known(row: RewardRow | None) -> Known | None:
    return None if row is None else Known(row.episode_id, row.completion_id, row.reward, row.choice)
