"""Seeds of requests: a row whose request names a seed takes its token by that seed, whoever is in the batch.

Every token of the vocabulary gets an exponential number E from (seed, position, token), and the token with
the largest p / E is taken: one with probability p in a fraction p of all seeds. As each token has its own
number, probabilities that differ in their last bits from batch to batch hardly ever change which one it is.
SGLang reads a request's seed only in its deterministic mode; without a seed nothing here is reached.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seedbed_server.digests import GOLDEN
from seedbed_server.engine.digest import mix64_, signed

__all__ = ["Seeded", "choices_apart", "choose", "seed_of_choice", "seeded_rows"]


@dataclass(frozen=True)
class Seeded:
    """The rows of a batch that have a seed.

    Attributes:
        rows: int64 [k], where they stand in the batch.
        seeds: int64 [k].
        limited: int64 [l], which of the k take only some of the tokens (top_k, top_p, min_p); None: no one.
    """

    rows: Tensor
    seeds: Tensor
    limited: Tensor | None


def seeded_rows(parameters: Sequence[Any], device: torch.device | str) -> Seeded | None:
    """Finds them in SGLang's sampling parameters, one for each row. A row that is greedy needs no seed."""
    found = [(i, p) for i, p in enumerate(parameters) if p.sampling_seed is not None and p.top_k > 1]
    if not found:
        return None
    limited = [j for j, (_, p) in enumerate(found) if p.top_k < _ALL or p.top_p < 1 or p.min_p > 0]
    return Seeded(
        torch.tensor([i for i, _ in found], device=device),
        torch.tensor([p.sampling_seed for _, p in found], dtype=torch.int64, device=device),
        torch.tensor(limited, device=device) if limited else None,
    )


_ALL = 1 << 30
"""SGLang's top_k of a row that may take any token."""


def choose(probabilities: Tensor, positions: Tensor, seeded: Seeded, information: Any) -> Tensor:
    """The tokens of the seeded rows.

    Args:
        probabilities: [rows, vocabulary] of the whole batch; not changed.
        positions: [rows], of the last token of each row's sequence.
        information: SGLang's `SamplingBatchInfo` of the batch.

    Returns:
        int64 [k].
    """
    weights = probabilities[seeded.rows]
    if seeded.limited is not None:
        rows = seeded.rows[seeded.limited]
        limits = information.top_ks[rows], information.top_ps[rows], information.min_ps[rows]
        weights[seeded.limited] = _kept(weights[seeded.limited], *limits)
    positions = positions[seeded.rows]
    # On a CPU one row stays in the cache, and all of them would wake threads for every operation.
    size = 1 if weights.device.type == "cpu" else len(weights)
    drawn = []
    for first in range(0, len(weights), size):
        part = slice(first, first + size)
        numbers = _exponential(seeded.seeds[part], positions[part], weights.shape[1])
        drawn.append((weights[part].double() / numbers).argmax(-1))
    return torch.cat(drawn)


def _kept(p: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """The probabilities [l, vocabulary] less those that a row's limits leave out, as SGLang reads them."""
    ordered, order = p.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(p.shape[1], device=p.device)
    before = ordered.double().cumsum(-1).sub_(ordered)
    out = (rank >= top_k[:, None]) | ((before > top_p[:, None]) & (top_p < 1)[:, None])
    out |= ordered < ordered[:, :1] * min_p[:, None]
    return torch.zeros_like(p).scatter_(-1, order, ordered.masked_fill_(out, 0))


def _exponential(seeds: Tensor, positions: Tensor, count: int) -> Tensor:
    """[k, count] of the exponential distribution: SplitMix64 under a key of seed and position."""
    key = mix64_(mix64_(seeds + signed(GOLDEN)) + (positions.long() + 1) * signed(GOLDEN))
    words = (torch.arange(1, count + 1, device=seeds.device) * signed(GOLDEN)) + key[:, None]
    uniform = (mix64_(words) >> 12).bitwise_and_(2**52 - 1).double().add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_()


def seed_of_choice(seed: int, choice: int) -> int:
    """The seed of the n-th choice of one request, from 0; the first one is that of a request without n."""
    if choice == 0:
        return seed
    number = torch.tensor([signed(seed + choice * GOLDEN)], dtype=torch.int64)
    return int(mix64_(number).item())


def choices_apart(request: Any) -> Any:
    """SGLang's internal request (`GenerateReqInput`) with a seed of its own for every choice.

    SGLang asks the same parameters `n` times over. Where they have a seed, the prompts are written `n` times
    instead, in the order in which SGLang numbers choices.
    """
    parameters = request.sampling_params
    seed, n = parameters.get("sampling_seed"), parameters.get("n") or 1
    if seed is None or n == 1:
        return request
    request = copy.copy(request)
    prompts = 1
    for name in ("text", "input_ids"):
        value = getattr(request, name)
        if value is None:
            continue
        several = isinstance(value, list) and (name == "text" or isinstance(value[0], list))
        values = value if several else [value]
        prompts = len(values)
        setattr(request, name, [one for one in values for _ in range(n)])
    apart = [{**parameters, "n": 1, "sampling_seed": seed_of_choice(seed, i)} for i in range(n)]
    request.sampling_params = apart * prompts
    return request
