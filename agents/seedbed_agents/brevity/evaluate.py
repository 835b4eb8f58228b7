"""What the unperturbed live model does with questions that never earn a reward."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from seedbed_agents.brevity.questions import HELD_OUT, Question
from seedbed_agents.brevity.reward import count_words, has_keyword, reward

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from seedbed_agents.brevity.agent import Agent, Answer

__all__ = ["Evaluation", "Measured", "evaluate", "spread_out"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One held-out question and the answer to it."""

    question: str
    keywords: tuple[str, ...]
    text: str
    truncated: bool

    @property
    def words(self) -> int:
        """Length of the answer."""
        return count_words(self.text)

    @property
    def correct(self) -> bool:
        """Whether an expected keyword is in the answer."""
        return has_keyword(self.text, self.keywords)

    @property
    def score(self) -> float:
        """What the answer would earn, if it earned anything."""
        return reward(self.text, self.keywords)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All answers of the live model at one version."""

    version: int
    answers: tuple[Measured, ...]

    @property
    def words(self) -> float:
        """Mean words per answer."""
        return sum(answer.words for answer in self.answers) / len(self.answers)

    @property
    def score(self) -> float:
        """Mean score, 0 to 1."""
        return sum(answer.score for answer in self.answers) / len(self.answers)

    @property
    def empty(self) -> int:
        """Answers without a word."""
        return sum(answer.words == 0 for answer in self.answers)

    @property
    def correct(self) -> int:
        """Answers with a keyword."""
        return sum(answer.correct for answer in self.answers)

    @property
    def truncated(self) -> int:
        """Answers that were cut by length."""
        return sum(answer.truncated for answer in self.answers)

    def to_json(self) -> dict[str, Any]:
        """The version and the answers, as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Evaluation:
        """What `to_json` wrote."""
        answers = tuple(
            Measured(answer["question"], tuple(answer["keywords"]), answer["text"], answer["truncated"])
            for answer in values["answers"]
        )
        return cls(version=values["version"], answers=answers)


async def evaluate(
    agent: Agent,
    version: int,
    questions: Sequence[Question] = HELD_OUT,
    seen: Callable[[Answer], None] | None = None,
) -> Evaluation:
    """Ask `<model>:live`, which serves the live weights with no perturbation. Nothing is rewarded."""
    answers = await agent.ask_all(questions, model=f"{agent.model}:live", seen=seen)
    measured = (Measured(a.question.text, a.question.keywords, a.text, a.truncated) for a in answers)
    return Evaluation(version, tuple(measured))


def spread_out(questions: Sequence[Question], count: int) -> tuple[Question, ...]:
    """`count` of the questions at even distances, the same ones every time."""
    count = min(count, len(questions))
    return tuple(questions[index * len(questions) // count] for index in range(count))
