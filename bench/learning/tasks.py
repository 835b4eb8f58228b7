"""What is asked, and what an answer earns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.learning import lists
from seedbed_agents.brevity import questions
from seedbed_agents.brevity.reward import reward

__all__ = ["TASKS", "Item", "Task"]


@dataclass(frozen=True)
class Item:
    """One prompt; `id` is the group under which its rewards are compared."""

    id: str
    text: str
    score: Callable[[str], float]
    """What an answer earns: 0 to 1."""


@dataclass(frozen=True)
class Task:
    """Prompts that earn rewards, and others that only measure.

    Attributes:
        max_tokens: of one answer.
        each: prompts of a population; each member answers each of them once.
        updates: so many are made.
        sigma, sigma_floor, alpha: how; sigma falls along a cosine, alpha stays.
    """

    name: str
    training: tuple[Item, ...]
    held_out: tuple[Item, ...]
    max_tokens: int = 48
    each: int = 4
    updates: int = 14
    sigma: float = 5e-3
    sigma_floor: float = 3e-3
    alpha: float = 1e-2


def _brevity(question: questions.Question) -> Item:
    return Item(question.id, question.text, lambda text: reward(text, question.keywords))


def _lists(wanted: lists.Wanted) -> Item:
    return Item(wanted.id, wanted.text, lambda text: lists.score(text, wanted.count))


TASKS = {
    task.name: task
    for task in (
        Task(
            "brevity",
            tuple(map(_brevity, questions.TRAINING)),
            tuple(map(_brevity, questions.HELD_OUT)),
        ),
        Task(
            "lists",
            tuple(map(_lists, lists.TRAINING)),
            tuple(map(_lists, lists.HELD_OUT)),
            each=8,
            updates=16,
        ),
    )
}
