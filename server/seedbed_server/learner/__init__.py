"""The learner: from rewards to a step, without any I/O.

A population opens at a version: its members are seeds with a sign (`seeds`). Some of the traffic explores
(`explore`): an episode leases a member (`population.lease`), the rest are controls. Rewards come in, are
judged (`rewards.judge`), held to their bounds and made one for each episode (`aggregate`). When every member
has what it needs, or at a deadline with a quorum (`closing`), an estimator turns the members' rewards into
weights (`estimators`, `groups`, and `history` for what groups earned before), schedules say sigma and alpha
(`schedules`), and `step.make_step` folds all of it into the few numbers that an engine applies and a journal
keeps, or says why there is no step (`reasons`). Episodes that go on over an update count in the next
population, or do not (`stale`).

Beside it: what a step is worth (`benefit`), how long it is and whether its rewards are healthy (`watch`), and
whether the controls have dropped (`drop`). `choices` has estimators and schedules by name.

Everything here is a pure function over frozen dataclasses. Nothing here knows a database, a socket, a clock
or SGLang; a caller that keeps a population in memory and one that rebuilds it from rows come to the same
step.
"""

from seedbed_server.learner.aggregate import Aggregation, Bounds, aggregate, bounded, total_reward
from seedbed_server.learner.benefit import Benefit, benefit
from seedbed_server.learner.choices import ESTIMATORS, SCHEDULES, dated_schedule, estimator, schedule
from seedbed_server.learner.closing import Closing, close_reason, needed
from seedbed_server.learner.drop import Control, DropRules, observe_control, verdict
from seedbed_server.learner.estimators import Estimate, Estimator, centered_rank, clipped, raw, zscore
from seedbed_server.learner.explore import explores
from seedbed_server.learner.groups import group_relative
from seedbed_server.learner.history import History, group_baseline, observe
from seedbed_server.learner.population import Member, Population, lease, open_population
from seedbed_server.learner.reasons import NO_STEP
from seedbed_server.learner.rewards import Given, Known, Target, Verdict, judge
from seedbed_server.learner.schedules import DatedSchedule, Schedule, constant, cosine, linear
from seedbed_server.learner.seeds import derive_seed
from seedbed_server.learner.stale import StaleRules, reward_stale, staleness
from seedbed_server.learner.step import NoStep, Statistics, Step, make_step, statistics
from seedbed_server.learner.watch import Limits, Traffic, expected_rms, limit_step, watch

__all__ = [
    "ESTIMATORS",
    "NO_STEP",
    "SCHEDULES",
    "Aggregation",
    "Benefit",
    "Bounds",
    "Closing",
    "Control",
    "DatedSchedule",
    "DropRules",
    "Estimate",
    "Estimator",
    "Given",
    "History",
    "Known",
    "Limits",
    "Member",
    "NoStep",
    "Population",
    "Schedule",
    "StaleRules",
    "Statistics",
    "Step",
    "Target",
    "Traffic",
    "Verdict",
    "aggregate",
    "benefit",
    "bounded",
    "centered_rank",
    "clipped",
    "close_reason",
    "constant",
    "cosine",
    "dated_schedule",
    "derive_seed",
    "estimator",
    "expected_rms",
    "explores",
    "group_baseline",
    "group_relative",
    "judge",
    "lease",
    "limit_step",
    "linear",
    "make_step",
    "needed",
    "observe",
    "observe_control",
    "open_population",
    "raw",
    "reward_stale",
    "schedule",
    "staleness",
    "statistics",
    "total_reward",
    "verdict",
    "watch",
    "zscore",
]
