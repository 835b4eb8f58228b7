"""Whose answer is it? Runs `programs/attribution.py` against a server and examines all that it received."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.accept.clients.program import Results, run_program
from tests.accept.clients.scores import Spoken, score
from tests.e2e.served import Served

__all__ = ["TOLERANCE", "Findings", "examine", "readable_toy"]

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Findings:
    """What became of all completions.

    Attributes:
        results: what the program printed.
        turns: every completion, episode by episode.
        worst: the largest distance of a received log-probability from that under the stored member.
        confused: completions that another member of the population would explain as well.
        members: seed and signed sigma of each member, as stored.
    """

    results: Results
    turns: list[list[dict[str, Any]]]
    worst: float
    confused: int
    members: list[tuple[int, float]]

    @property
    def completions(self) -> list[dict[str, Any]]:
        return [turn for episode in self.turns for turn in episode]

    @property
    def faults(self) -> Counter[str]:
        """How often each failure was injected."""
        found = Counter(turn["fault"] for turn in self.completions if turn["fault"])
        found["left a stream"] = sum(turn["hung_up"] for turn in self.completions)
        return found


def readable_toy(toy: Path, folder: Path) -> Path:
    """A copy of a toy model in whose answers each token has a text of its own.

    Its vocabulary is made of bytes, and a byte that is no character by itself would be shown as a question
    mark like all others; here a token is shown as it stands in the vocabulary.
    """
    shutil.copytree(toy, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["decoder"] = {"type": "Fuse"}
    file.write_text(json.dumps(tokenizer))
    return folder


def examine(served: Served, *, timeout: float = 600.0, **options: int) -> Findings:
    """`options`: episodes, turns, tokens, at_once, seed."""
    results = run_program(
        "attribution",
        served.url,
        served.model.name,
        options={**options, "seconds": timeout},
        timeout=timeout + 60,
    )
    turns = results.facts("crowd")["episodes"]
    completions = [turn for episode in turns for turn in episode]
    members, stored = _stored(served.store, [turn["completion"] for turn in completions])
    spoken = [_spoken(served.model, turn) for turn in completions]
    scores = score(served.model, members, spoken, timeout)
    worst, confused = 0.0, 0
    for turn, whose, found in zip(completions, stored, scores, strict=True):
        received = np.array([logprob for _, logprob in turn["tokens"]])
        distances = np.abs(found - received).max(axis=1)
        mine = members.index(whose)
        turn["distance"] = float(distances[mine])
        worst = max(worst, turn["distance"])
        confused += bool((np.delete(distances, mine) <= TOLERANCE).any())
    return Findings(results, turns, worst, confused, members)


def _stored(store: Path, completions: list[str]) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Members of the open population, and whose each completion is: seed and signed sigma, as on disk."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        members = connection.execute(
            "SELECT m.seed, m.sign * p.sigma FROM members m JOIN populations p ON p.number = m.population "
            'WHERE p.closed_at IS NULL ORDER BY m."index"'
        ).fetchall()
        whose = {
            id_: (int(seed), sigma)
            for id_, seed, sigma in connection.execute(
                "SELECT c.id, e.seed, e.sigma FROM completions c JOIN episodes e ON e.id = c.episode_id"
            )
            if seed is not None
        }
    return [(int(seed), sigma) for seed, sigma in members], [whose[id_] for id_ in completions]


def _spoken(model: Path, turn: dict[str, Any]) -> Spoken:
    """The tokens that the engine saw and made."""
    tokenizer = _tokenizer(model)
    prompt = tokenizer.apply_chat_template(
        turn["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    vocabulary = tokenizer.get_vocab()
    assert turn["prompt_tokens"] in (None, len(prompt)), "the engine saw another prompt"
    return Spoken(tuple(prompt), tuple(vocabulary[token] for token, _ in turn["tokens"]))


_loaded: dict[Path, Any] = {}


def _tokenizer(model: Path) -> Any:
    if model not in _loaded:
        from transformers import PreTrainedTokenizerFast

        _loaded[model] = PreTrainedTokenizerFast.from_pretrained(model)
    return _loaded[model]
