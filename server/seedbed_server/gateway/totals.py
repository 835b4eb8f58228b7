"""The rewards of episodes, from the rows that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedbed_server.learner import Aggregation, total_reward
from seedbed_server.learner.rewards import completion_reward
from seedbed_server.store import episodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import sqlalchemy as sa

    from seedbed_server.store.rows import RewardRow

__all__ = ["totals"]


def totals(
    connection: sa.Connection, rows: Iterable[RewardRow], aggregation: Aggregation
) -> dict[str, float]:
    """The rewards of episodes, by their ids. Rules to which the order matters take the order in which the
    completions of an episode were asked for, every one of which has its place.
    """
    by_target: dict[str, dict[str | None, dict[int | None, float]]] = {}
    for row in rows:
        by_target.setdefault(row.episode_id, {}).setdefault(row.completion_id, {})[row.choice] = row.reward
    order: dict[str, list[str]] = {}
    if aggregation.rule in ("last", "discounted-sum"):
        order = episodes.completion_order(connection, sorted(by_target))
    found: dict[str, float] = {}
    for episode_id, by_completion in by_target.items():
        values = {name: completion_reward(choices) for name, choices in by_completion.items()}
        whole = values.pop(None, None)
        places = order.get(episode_id) or sorted(name for name in values if name is not None)
        total = total_reward(whole, [values.get(name) for name in places], aggregation)
        if total is not None:
            found[episode_id] = total
    return found
