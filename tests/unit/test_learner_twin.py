"""A numerical twin: the learner's pure functions and a straightforward NumPy loop optimise the same thing.

Both use the real noise (its NumPy reference). The twin has its own seeds, estimators, schedules, quantisation
and update, and is never put back onto the learner's trajectory: they must stay together by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from seedbed_server.learner import (
    History,
    Step,
    estimator,
    lease,
    make_step,
    observe,
    open_population,
    schedule,
)
from seedbed_server.learner.population import is_complete, reward_episode
from tests.reference import learning, noise

F64 = npt.NDArray[np.float64]
Weights = dict[str, F64]

SIZE, UPDATES, RUN_SEED = 12, 20, 5
GROUPS = ("easy", "hard")
DIFFICULTY = {"easy": 0.5, "hard": -2.0}
ESTIMATORS = ("zscore", "centered-rank", "group-relative", "group-baseline", "raw")
SCHEDULES = ("cosine", "linear", "constant")


@functools.lru_cache(maxsize=20_000)
def direction(seed: int, name: str, shape: tuple[int, ...]) -> F64:
    return noise.perturbation(seed, name, shape)


@dataclass(frozen=True)
class Task:
    """Something to optimise: a start, and what weights earn."""

    start: Weights
    earn: Callable[[Weights], float]
    alpha: float


def quadratic() -> Task:
    goal = np.random.default_rng(0).normal(size=(5, 4))
    return Task(
        {"w.weight": np.zeros((5, 4))}, lambda theta: -float(((theta["w.weight"] - goal) ** 2).mean()), 0.2
    )


def network() -> Task:
    """tanh(x A + a) B + b against the same network with other weights: mean squared error."""
    generator = np.random.default_rng(1)

    def draw() -> Weights:
        return {
            "a.weight": generator.normal(size=(3, 6)),
            "a.bias": generator.normal(size=6),
            "b.weight": generator.normal(size=(6, 2)),
            "b.bias": generator.normal(size=2),
        }

    inputs, teacher, student = generator.normal(size=(32, 3)), draw(), draw()

    def answer(theta: Weights) -> F64:
        hidden = np.tanh(inputs @ theta["a.weight"] + theta["a.bias"])
        return np.asarray(hidden @ theta["b.weight"] + theta["b.bias"])

    targets = answer(teacher)
    return Task(student, lambda theta: -float(((answer(theta) - targets) ** 2).mean()), 0.08)


def learner_side(task: Task, name: str, kind: str, mirrored: bool) -> list[Weights]:
    """All weights, as the product goes from one version to the next."""
    options = {"start": 0.05, "floor": 0.01, "steps": UPDATES, "warmup": 3}
    sigma = schedule(kind, options)
    alpha = schedule(kind, {**options, "start": task.alpha, "floor": task.alpha / 10})
    theta, history, trajectory = dict(task.start), History(), []
    for version in range(UPDATES):
        population = open_population(
            number=version, version=version, sigma=sigma(version), size=SIZE, episodes_per_member=2,
            mirrored=mirrored, run_seed=RUN_SEED,
        )  # fmt: skip
        seen = []
        for group in GROUPS:
            for _ in range(SIZE):
                population, member = lease(population, group)
                signed = member.sign * population.sigma
                perturbed = {n: w + signed * direction(member.seed, n, w.shape) for n, w in theta.items()}
                reward = task.earn(perturbed) + DIFFICULTY[group]
                seen.append((group, reward))
                population = reward_episode(population, member.index, f"{group}{member.index}", group, reward)
        assert is_complete(population)
        step = make_step(population, estimator(name, history=history), alpha(version))
        assert isinstance(step, Step)
        history = observe(history, seen, population=version)
        update = noise.Update(
            version + 1, step.seeds, step.coefficients, step.matrix_multiplier, step.vector_multiplier
        )
        moved = {}
        for n, w in theta.items():
            role: noise.Role = "matrix" if w.ndim == 2 else "bias"
            k = step.matrix_multiplier if role == "matrix" else step.vector_multiplier
            moved[n] = w + k * noise.integer_sum(n, role, w.shape, update)
        theta = moved
        trajectory.append(theta)
    return trajectory


def weights_of(name: str, rewards: F64, groups: learning.Groups, past: learning.PastRewards) -> F64:
    if name == "group-relative":
        return learning.group_relative(rewards, groups)
    if name == "group-baseline":
        return past.weights(rewards, groups)
    plain = {"zscore": learning.zscore, "centered-rank": learning.centered_rank, "raw": learning.raw}
    return plain[name](rewards)


def twin_side(task: Task, name: str, kind: str, mirrored: bool) -> list[Weights]:
    """The same, written down as in a textbook."""
    sigmas = learning.schedule(kind, 0.05, 0.01, UPDATES, 3)
    alphas = learning.schedule(kind, task.alpha, task.alpha / 10, UPDATES, 3)
    groups = np.array([GROUPS] * SIZE)
    theta, past, trajectory = dict(task.start), learning.PastRewards(), []
    signs = np.array([1.0, -1.0] * (SIZE // 2)) if mirrored else np.ones(SIZE)
    for version in range(UPDATES):
        draws = [i // 2 if mirrored else i for i in range(SIZE)]
        seeds = [learning.seed(RUN_SEED, version, draw) for draw in draws]
        noises = [{n: direction(s, n, w.shape) for n, w in theta.items()} for s in seeds]
        plain = np.array(
            [
                task.earn({n: w + sign * sigmas[version] * e[n] for n, w in theta.items()})
                for sign, e in zip(signs, noises, strict=True)
            ]
        )
        rewards = plain[:, None] + np.array([DIFFICULTY[group] for group in GROUPS])
        weights = weights_of(name, rewards, groups, past)
        past.add(rewards, groups)
        coefficients = weights * signs
        if mirrored:
            coefficients, noises = coefficients[::2] + coefficients[1::2], noises[::2]
        codes, scale = learning.quantised(coefficients)
        # What is left of an exact step when a coefficient has 8 bits.
        assert (np.abs(codes * np.float64(scale) - coefficients) <= scale * 0.5001).all()
        theta = {
            n: w + alphas[version] / SIZE * sum(c * scale * e[n] for c, e in zip(codes, noises, strict=True))
            for n, w in theta.items()
        }
        trajectory.append(theta)
    return trajectory


def compare(task: Task, name: str, kind: str, mirrored: bool) -> None:
    ours, theirs = learner_side(task, name, kind, mirrored), twin_side(task, name, kind, mirrored)
    for version, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for parameter, weights in one.items():
            # The multipliers are float32 once each: 1e-7 of a step, and a few dozen steps.
            np.testing.assert_allclose(
                weights, other[parameter], rtol=0, atol=3e-6, err_msg=f"version {version + 1}, {parameter}"
            )
    if name != "raw":
        assert task.earn(ours[-1]) > task.earn(task.start), "it learns as well"


@pytest.mark.parametrize("mirrored", [False, True], ids=["one-sided", "mirrored"])
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_quadratic_moves_like_its_twin(name: str, kind: str, mirrored: bool) -> None:
    compare(quadratic(), name, kind, mirrored)


@pytest.mark.parametrize("mirrored", [False, True], ids=["one-sided", "mirrored"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_small_network_moves_like_its_twin(name: str, mirrored: bool) -> None:
    compare(network(), name, "cosine", mirrored)
