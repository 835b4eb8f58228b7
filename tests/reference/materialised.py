"""A model whose weights really are those of a version or a member, in transformers and nothing else.

    python -m tests.reference.materialised JOBS.json RESULT.json

Runs in a process of its own: in one that has built an SGLang engine, transformers gave other numbers. The
weights come from `tests.reference.noise`; `tests.reference.client` writes the jobs and reads the result.
"""

from __future__ import annotations

import itertools
import json
import sys
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from tests.reference import noise

if TYPE_CHECKING:
    from collections.abc import Iterator

State = dict[str, noise.Bits]


def load(folder: str, dtype: torch.dtype) -> Any:
    """The model of a folder, by transformers alone, with its plainest attention."""
    with _without_torchvision():
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """transformers imports torchvision wherever it is installed, and that one's compiled part wants CUDA."""
    hide = "torchvision" not in sys.modules
    if hide:
        sys.modules["torchvision"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hide:
            del sys.modules["torchvision"]


class Materialised:
    """One model in float32 whose parameters are written again for every version and member.

    Args:
        folder: a Hugging Face folder.
        dtype: the live dtype of the engine that it is compared with: weights and updates are rounded to it,
            the computation is float32 all the same.
        exclude: name patterns of parameters that take no part.
    """

    def __init__(self, folder: str, dtype: str, exclude: list[str]) -> None:
        model = load(folder, torch.float32)
        self.model = model.eval()
        # A tied head is listed once, under the embedding's name.
        self.parameters = {
            n: p for n, p in model.named_parameters() if not any(fnmatchcase(n, e) for e in exclude)
        }
        self.base: State = {}
        for name, parameter in self.parameters.items():
            if dtype == "bfloat16":
                self.base[name] = noise.narrow_nearest(parameter.detach().numpy())
            else:
                self.base[name] = parameter.detach().numpy().view(np.uint32).copy()

    def version(self, updates: list[noise.Update]) -> State:
        """The live weights after these updates of the base."""
        state = dict(self.base)
        for update in updates:
            state = {n: noise.updated(bits, n, role(n, bits.shape), update) for n, bits in state.items()}
        return state

    @torch.no_grad()
    def become(self, state: State, seed: int, sigma: float) -> None:
        """Writes theta + sigma eps(seed); theta itself for a sigma of 0."""
        for name, parameter in self.parameters.items():
            weight = noise.widen(state[name])
            if sigma:
                full = noise.perturbed(weight, name, role(name, weight.shape), seed, sigma)
                weight = full.astype(np.float32)
            parameter.copy_(torch.from_numpy(np.array(weight)))

    @torch.no_grad()
    def score(self, tokens: list[int]) -> dict[str, list[Any]]:
        """Log-probability of every token after the first, and the most probable next token everywhere."""
        ids = torch.tensor([tokens])
        logits: npt.NDArray[np.float64] = self.model(ids).logits[0].double().numpy()
        peak = logits.max(axis=-1, keepdims=True)
        logprobs = logits - peak - np.log(np.exp(logits - peak).sum(axis=-1, keepdims=True))
        given = logprobs[np.arange(len(tokens) - 1), tokens[1:]]
        best = np.partition(logprobs, -2, axis=-1)
        return {
            "logprobs": [None, *given.tolist()],
            "greedy": logprobs.argmax(axis=-1).tolist(),
            "margins": (best[:, -1] - best[:, -2]).tolist(),
        }


def role(name: str, shape: tuple[int, ...]) -> noise.Role:
    """How a parameter of a Llama, Qwen2 or Qwen3 model takes part."""
    module, _, leaf = name.rpartition(".")
    if len(shape) == 2 and leaf == "weight":
        return "matrix"
    if len(shape) == 1 and leaf == "bias":
        return "bias"
    if len(shape) == 1 and leaf == "weight" and module.endswith("norm"):
        return "norm"
    raise ValueError(f"{name}: no rule of the noise specification fits a parameter of shape {shape}")


def answers(request: dict[str, Any]) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """(index of the job, its answer), in an order that writes the weights as seldom as possible."""
    twin = Materialised(request["folder"], request["dtype"], request["exclude"])
    jobs = list(enumerate(request["jobs"]))

    def updates_of(item: tuple[int, dict[str, Any]]) -> str:
        return json.dumps(item[1]["updates"])

    def member_of(item: tuple[int, dict[str, Any]]) -> tuple[int, float]:
        return item[1]["seed"], item[1]["sigma"]

    for updates, same_version in itertools.groupby(sorted(jobs, key=updates_of), key=updates_of):
        state = twin.version([noise.Update(**u) for u in json.loads(updates)])
        ordered = sorted(same_version, key=member_of)
        for (seed, sigma), same_member in itertools.groupby(ordered, key=member_of):
            twin.become(state, seed, sigma)
            for index, job in same_member:
                yield index, twin.score(job["tokens"])


def main(source: str, target: str) -> None:
    request = json.loads(Path(source).read_text())
    found = dict(answers(request))
    assert "sglang" not in sys.modules, "the reference must not see SGLang"
    Path(target).write_text(json.dumps([found[index] for index in range(len(request["jobs"]))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
