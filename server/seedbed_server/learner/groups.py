"""Comparison within groups: members see different tasks, and a plain z-score would mostly measure those."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from seedbed_server.learner.estimators import (
    EpisodeReward,
    Estimate,
    compare,
    member_values,
    weighted_mean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["group_means", "group_relative", "relative_to", "residuals"]


def group_relative(rewards: Sequence[EpisodeReward]) -> Estimate:
    """w_i = c_i a_i / rms(a),  a_i = mean over the episodes of i of (r - m(group of the episode)).

    m(g) is the mean over the members that worked on g (each with the mean of its episodes on g, so that a
    member with many does not count more), and one scale serves all groups. A group with a scale of its own
    would make a group that everybody solves by a hair as loud as one that only the best can solve. A member
    alone in its group has nothing to be compared with: its episodes there have a = 0. Episodes without a
    group are one group. With a single group this is the z-score.

    Source: EGGROLL, arXiv 2511.16652, section 6.3 (mean of the question subtracted, one standard deviation).
    The scale there is that of the raw rewards; here it is that of the compared values a, so that w keeps a
    root mean square of 1 and alpha its meaning when groups differ a lot. Reason codes: no_rewards,
    one_survivor, no_common_group, no_spread.
    """
    scaled = _scaled(rewards)
    members: dict[str | None, set[int]] = {}
    for item in scaled:
        members.setdefault(item.group, set()).add(item.member)
    if len({item.member for item in scaled}) > 1 and all(len(seen) < 2 for seen in members.values()):
        return Estimate((), "no_common_group")
    means = group_means(scaled)
    return compare(member_values(residuals(scaled, means.__getitem__)), centre=False)


def group_means(rewards: Sequence[EpisodeReward]) -> dict[str | None, float]:
    """The mean over members of each group, None being the group of episodes without one."""
    by_group: dict[str | None, list[EpisodeReward]] = {}
    for item in rewards:
        by_group.setdefault(item.group, []).append(item)
    found = {}
    for group, items in by_group.items():
        values = member_values(items)
        found[group] = weighted_mean([item.value for item in values], [item.weight for item in values])
    return found


def residuals(
    rewards: Sequence[EpisodeReward], baseline: Callable[[str | None], float]
) -> list[EpisodeReward]:
    """The rewards less the baseline of their groups."""
    return [replace(item, reward=item.reward - baseline(item.group)) for item in rewards]


def relative_to(rewards: Sequence[EpisodeReward], baselines: Mapping[str | None, float]) -> Estimate:
    """w_i = c_i (a_i - mean(a)) / std(a),  a_i = mean over the episodes of i of (r - baseline(group)).

    Rewards and baselines are scaled by the largest of both before they are subtracted, so that every finite
    reward has a finite weight.
    """
    scale = max(
        (abs(value) for item in rewards for value in (item.reward, baselines[item.group])), default=0.0
    )
    if scale:
        rewards = [replace(item, reward=item.reward / scale) for item in rewards]
        baselines = {group: value / scale for group, value in baselines.items()}
    return compare(member_values(residuals(rewards, baselines.__getitem__)), centre=True)


def _scaled(rewards: Sequence[EpisodeReward]) -> list[EpisodeReward]:
    scale = max((abs(item.reward) for item in rewards), default=0.0)
    return [replace(item, reward=item.reward / scale) for item in rewards] if scale else list(rewards)
