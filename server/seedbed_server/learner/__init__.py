"""The learner: from rewards to a step, without any I/O.

A population opens at a version: its members are seeds with a sign (`seeds`). Episodes lease members
(`population.lease`), rewards come in and are judged (`rewards.judge`), and when every member has what it
needs (`population.is_complete`) an estimator turns the members' rewards into weights (`estimators`),
schedules say sigma and alpha (`schedules`), and `step.make_step` folds all of it into the few numbers that an
engine applies and a journal keeps.

Everything here is a pure function over frozen dataclasses. Nothing here knows a database, a socket, a clock
or SGLang; a caller that keeps a population in memory and one that rebuilds it from rows come to the same
step.
"""

from seedbed_server.learner.estimators import Estimate, Estimator, zscore
from seedbed_server.learner.population import Member, Population, lease, open_population
from seedbed_server.learner.rewards import Given, Known, Target, Verdict, judge
from seedbed_server.learner.schedules import Schedule, constant, cosine
from seedbed_server.learner.seeds import derive_seed
from seedbed_server.learner.step import NoStep, Statistics, Step, make_step, statistics

__all__ = [
    "Estimate",
    "Estimator",
    "Given",
    "Known",
    "Member",
    "NoStep",
    "Population",
    "Schedule",
    "Statistics",
    "Step",
    "Target",
    "Verdict",
    "constant",
    "cosine",
    "derive_seed",
    "judge",
    "lease",
    "make_step",
    "open_population",
    "statistics",
    "zscore",
]
