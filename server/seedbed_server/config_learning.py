"""What an operator can set about learning; a part of `config.ServeSettings`. docs/learning.md says what each
choice means.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field
from pydantic_settings import BaseSettings

__all__ = ["LearningSettings", "check_learning"]

Sampling = Literal["one-sided", "mirrored"]
ScheduleName = Literal["cosine", "linear", "constant"]
EstimatorName = Literal["zscore", "centered-rank", "group-relative", "group-baseline", "raw"]
AggregationName = Literal["mean", "sum", "last", "discounted-sum"]
OnDrop = Literal["off", "pause", "rollback"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class LearningSettings(BaseSettings):
    """Populations, rewards, estimators, schedules, guards. What is None is off."""

    # Populations and how they close.
    explore: Share = Field(
        1.0, description="Share of new episodes that members answer; the live model answers the others."
    )
    population_size: int = Field(16, ge=2, le=10_000, description="Members of a population.")
    episodes_per_member: int = Field(1, ge=1, description="Rewards that a member needs.")
    sampling: Sampling = Field("one-sided", description="`mirrored` pairs every seed with its negative.")
    noise_reuse: int = Field(1, ge=1, description="Populations in a row that explore the same seeds.")
    run_seed: int = Field(0, ge=0, lt=2**64, description="All seeds of members are derived from it.")
    deadline_seconds: Positive | None = Field(
        None,
        description="Age at which a population closes with a quorum; not set: it waits for every member.",
    )
    quorum: float = Field(
        0.5, gt=0, le=1, allow_inf_nan=False,
        description="Share of the members that must have a reward at the deadline; at least 2 of them.",
    )  # fmt: skip
    give_up_seconds: Positive | None = Field(
        None, description="Age at which a population without a quorum is given up; not set: it waits on."
    )
    idle_seconds: Positive | None = Field(
        None, description="Time without a completion after which an episode expires; not set: it does not."
    )
    stale_limit: Count = Field(1, description="Versions that an episode may be behind and still count.")
    stale_weight: float = Field(
        1.0, gt=0, le=1, allow_inf_nan=False, description="How much an episode counts that is behind."
    )

    # Rewards.
    aggregation: AggregationName = Field(
        "mean", description="How the rewards of completions become that of their episode."
    )
    discount: float = Field(
        1.0, gt=0, le=1, allow_inf_nan=False, description="Factor of `discounted-sum` from one completion on."
    )
    reward_low: Finite | None = Field(None, description="The least reward that is taken.")
    reward_high: Finite | None = Field(None, description="The greatest reward that is taken.")
    reward_clip: bool = Field(
        False, description="Move rewards beyond the bounds to them; otherwise they are refused."
    )

    # From rewards to a step.
    estimator: EstimatorName = Field("zscore", description="How rewards become the weights of members.")
    clip: Positive | None = Field(None, description="Largest weight of a member, 3 for instance.")
    prior: NotNegative = Field(
        1.0, description="`group-baseline`: rewards that the mean of everything is worth to a group."
    )
    history_memory: int | None = Field(
        None, ge=1, description="`group-baseline`: rewards of a group that are remembered; not set: all."
    )
    history_groups: int = Field(
        10_000, ge=1, description="`group-baseline`: groups that are remembered, those seen last."
    )
    step_bound: Positive | None = Field(
        None, description="Largest expected root mean square of a step; a longer one is made shorter."
    )
    sigma: Positive = Field(5e-3, le=1, description="Size of the perturbations at the start.")
    sigma_floor: Positive = Field(1e-3, le=1, description="Sigma at the end of its schedule.")
    sigma_schedule: ScheduleName = Field("cosine", description="How sigma moves.")
    alpha: NotNegative = Field(1e-2, description="Size of a step at the start; 0: explore and never learn.")
    alpha_floor: NotNegative = Field(0.0, description="Alpha at the end of its schedule.")
    alpha_schedule: ScheduleName = Field("constant", description="How alpha moves.")
    anchor_decay: float = Field(
        0.0, ge=0, lt=1, allow_inf_nan=False,
        description="Share of the way back to the base weights that each update goes, against forgetting; in "
        "proportion to alpha where that moves. 0: off.",
    )  # fmt: skip
    warmup_updates: Count = Field(0, description="Updates before schedules start to fall.")
    total_updates: int = Field(100, ge=1, description="Updates after which schedules have reached the floor.")
    schedule_begin: AwareDatetime | None = Field(
        None, description="Schedules by date instead of updates: when they begin, 2026-12-01T00:00Z."
    )
    schedule_end: AwareDatetime | None = Field(None, description="When they have reached the floor.")
    warmup_seconds: NotNegative = Field(0.0, description="Seconds before schedules by date start to fall.")

    # Guards.
    on_drop: OnDrop = Field(
        "off", description="When the controls drop below the best version: pause learning, or go back to it."
    )
    drop_bound: NotNegative = Field(0.05, description="Drop of the mean reward that is tolerated.")
    drop_low: Finite = Field(0.0, description="Rewards below count as this in the guard.")
    drop_high: Finite = Field(1.0, description="Rewards above count as this in the guard.")
    drop_error: float = Field(
        0.05, gt=0, lt=1, description="Probability that the best version is over-rated."
    )
    drop_run_length: float = Field(
        10_000.0, gt=1, allow_inf_nan=False, description="Controls between two false alarms, at least."
    )
    drop_block: int = Field(100, ge=2, description="Controls that make one mean; larger: sees smaller drops.")
    least_spread: NotNegative | None = Field(None, description="Warn of a spread of rewards below this.")
    most_dropped: Share | None = Field(None, description="Warn of a larger share of unrewarded episodes.")
    most_truncated: Share | None = Field(None, description="Warn of a larger share of truncated completions.")


def check_learning(settings: LearningSettings) -> None:
    """Raises ValueError, with the remedy, for settings that contradict each other."""
    _check_populations(settings)
    _check_schedules(settings)
    _check_guard(settings)


def _check_populations(settings: LearningSettings) -> None:
    if settings.sampling == "mirrored" and settings.population_size % 2:
        raise ValueError(
            f"population_size: {settings.population_size} is odd, and mirrored members come in pairs. "
            f"Use {settings.population_size + 1}"
        )
    deadline, give_up = settings.deadline_seconds, settings.give_up_seconds
    if give_up is not None and deadline is None:
        raise ValueError(
            f"give_up_seconds: {give_up:g} is the second deadline, and there is no first. "
            "Set deadline_seconds as well"
        )
    if give_up is not None and deadline is not None and give_up < deadline:
        raise ValueError(
            f"give_up_seconds: {give_up:g} is before deadline_seconds, {deadline:g}. Use {deadline:g} or more"
        )
    low, high = settings.reward_low, settings.reward_high
    if low is not None and high is not None and low >= high:
        raise ValueError(f"reward_low: {low:g} is not below reward_high, {high:g}. Use a smaller one")
    if settings.reward_clip and low is None and high is None:
        raise ValueError("reward_clip: there is no bound to move rewards to. Set reward_low or reward_high")
    if settings.discount != 1 and settings.aggregation != "discounted-sum":
        raise ValueError(
            f"discount: {settings.discount:g} is not used by the aggregation {settings.aggregation}. "
            "Use aggregation discounted-sum, or leave discount out"
        )


def _check_schedules(settings: LearningSettings) -> None:
    for name in ("sigma", "alpha"):
        start, floor = getattr(settings, name), getattr(settings, f"{name}_floor")
        if getattr(settings, f"{name}_schedule") != "constant" and floor > start:
            raise ValueError(f"{name}_floor: {floor:g} is above {name}. Use at most {start:g}")
    begin, end = settings.schedule_begin, settings.schedule_end
    if (begin is None) != (end is None):
        given, missing = (
            ("schedule_end", "schedule_begin") if begin is None else ("schedule_begin", "schedule_end")
        )
        raise ValueError(f"{given}: schedules by date need {missing} as well. Set both, or neither")
    if begin is None or end is None:
        if settings.warmup_seconds:
            raise ValueError(
                f"warmup_seconds: {settings.warmup_seconds:g} is for schedules by date. Use warmup_updates, "
                "or set schedule_begin and schedule_end"
            )
        if settings.warmup_updates >= settings.total_updates:
            raise ValueError(
                f"warmup_updates: {settings.warmup_updates} leaves none of {settings.total_updates} updates "
                "to fall. Use less than total_updates"
            )
        return
    if end <= begin:
        raise ValueError(f"schedule_end: {end} is not after schedule_begin, {begin}. Use a later date")
    seconds = (end - begin).total_seconds()
    if settings.warmup_seconds >= seconds:
        raise ValueError(
            f"warmup_seconds: {settings.warmup_seconds:g} leaves none of {seconds:g} s to fall. Use less"
        )
    if settings.warmup_updates:
        raise ValueError(
            f"warmup_updates: {settings.warmup_updates} is for schedules by updates. Use warmup_seconds"
        )


def _check_guard(settings: LearningSettings) -> None:
    if settings.on_drop == "off":
        return
    if settings.explore == 1:
        raise ValueError(
            f"on_drop: {settings.on_drop} watches episodes that the live model answers, and with explore 1 "
            "there are none. Use explore 0.9, for instance"
        )
    low, high = settings.drop_low, settings.drop_high
    if low >= high:
        raise ValueError(f"drop_low: {low:g} is not below drop_high, {high:g}. Use a smaller one")
    if settings.drop_bound >= high - low:
        raise ValueError(
            f"drop_bound: {settings.drop_bound:g} is no drop that can happen within {low:g} to {high:g}. "
            f"Use less than {high - low:g}"
        )
