"""The one error of this package."""

from pathlib import Path


class ModelError(Exception):
    """A model cannot be used: `subject` (a file, folder or name), what is wrong with it, and what to do."""

    def __init__(self, subject: str | Path, problem: str, remedy: str) -> None:
        self.subject = str(subject)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{subject}: {problem}. {remedy}")
