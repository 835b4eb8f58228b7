"""The test vectors of docs/noise.md, made by the NumPy reference.

python -m tests.reference.vectors           prints them as they stand in the page
python -m tests.reference.vectors --write   writes them into the page
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import noise

PAGE = Path(__file__).resolve().parents[2] / "docs" / "noise.md"
_BLOCK = re.compile(r"<!-- vectors: (\w+) -->\n```json\n(.*?)```\n", re.DOTALL)

Q = "model.layers.0.self_attn.q_proj.weight"
LARGEST = 2**64 - 1


def philox() -> list[dict[str, Any]]:
    cases = [
        ([0, 0, 0, 0], [0, 0]),
        ([noise.MASK] * 4, [noise.MASK] * 2),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]),
    ]
    found = []
    for counter, key in cases:
        words = noise.philox4x32_10(np.array([counter], dtype=np.uint32), (key[0], key[1]))[0]
        found.append({"counter": _hex(counter), "key": _hex(key), "words": _hex(words.tolist())})
    return found


def names() -> list[dict[str, Any]]:
    texts = [Q, "model.layers.0.self_attn.q_proj.bias", "model.embed_tokens.weight", "größe.weight"]
    return [{"name": text, "hash": f"{noise.name_hash(text):016x}"} for text in texts]


def values() -> list[dict[str, Any]]:
    cases = [
        (0, Q, noise.A, 0, 0, 12),
        (0, Q, noise.B, 0, 0, 12),
        (1, Q, noise.A, 0, 5, 14),
        (LARGEST, Q, noise.A, 0, 0, 12),
        (0x0123456789ABCDEF, Q, noise.B, 3, 2**32 - 2, 2**32 + 6),
        (7, "model.norm.weight", noise.VECTOR, 0, 0, 12),
        (7, "model.embed_tokens.weight", noise.A, 0, 49140, 49152),
    ]
    return [
        {
            "seed": f"{seed:016x}",
            "name": name,
            "factor": factor,
            "rank_index": rank_index,
            "start": start,
            "values": noise.values(seed, name, factor, start, stop, rank_index).tolist(),
        }
        for seed, name, factor, rank_index, start, stop in cases
    ]


def rounding_words() -> list[dict[str, Any]]:
    cases = [(1, Q, 0), (2, Q, 3), (50, "model.norm.weight", 1), (1, "model.embed_tokens.weight", 28311546)]
    return [
        {
            "version": version,
            "name": name,
            "start": start,
            "words": _hex(noise.words(version, name, noise.ROUNDING, np.arange(start, start + 6)).tolist()),
        }
        for version, name, start in cases
    ]


def rounding() -> list[dict[str, Any]]:
    cases = [0x3F800000, 0x3F808000, 0x3F818000, 0x3F80FFFF, 0xBF804001, 0x00000001, 0x80007FFF, 0x7F7FFFFF]
    found = []
    for bits in cases:
        value = np.array([bits], dtype=np.uint32).view(np.float32)
        down, half, up = (
            noise.narrow_stochastic(value, np.array([w], dtype=np.uint32)).tolist()[0]
            for w in (0xABCD0000, 0xABCD7FFF, 0xABCDFFFF)
        )
        found.append(
            {
                "float32": f"{bits:08x}",
                "nearest": f"{noise.narrow_nearest(value).tolist()[0]:04x}",
                "stochastic": {"abcd0000": f"{down:04x}", "abcd7fff": f"{half:04x}", "abcdffff": f"{up:04x}"},
            }
        )
    return found


_UPDATE = {
    "version": 3,
    "seeds": [5, LARGEST, 0x0123456789ABCDEF],
    "coefficients": [127, -64, 3],
    # float32 numbers near 1e-5 and 3e-5.
    "matrix_multiplier": float(np.float32(1e-5)),
    "vector_multiplier": float(np.float32(3e-5)),
}

_DECAY = float(np.float32(0.05))


def updates() -> list[dict[str, Any]]:
    parameters: list[tuple[str, noise.Role, Any]] = [
        (Q, "matrix", _weights(3, 5)),
        ("model.layers.0.self_attn.q_proj.bias", "bias", _weights(7)),
        ("model.norm.weight", "norm", _weights(7)),
    ]
    found = []
    for name, role, weight in parameters:
        for dtype, stochastic in (("float32", False), ("bfloat16", False), ("bfloat16", True)):
            bits = weight.view(np.uint32) if dtype == "float32" else noise.narrow_nearest(weight)
            update = noise.Update(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in _UPDATE.items()},  # type: ignore[arg-type]
                stochastic=stochastic,
            )
            found.append(
                {
                    "name": name,
                    "role": role,
                    "dtype": dtype,
                    "rounding": "stochastic" if stochastic else "nearest",
                    "shape": list(bits.shape),
                    "before": _hex(bits.ravel().tolist(), bits.itemsize),
                    "after": _hex(noise.updated(bits, name, role, update).ravel().tolist(), bits.itemsize),
                }
            )
    return found


def decays() -> list[dict[str, Any]]:
    """The same update with a decay, from weights that are not the base's."""
    found = []
    for case in updates():
        base = bits_of(case["before"], case["shape"])
        wide = (noise.widen(base) * np.float32(1.03125)).astype(np.float32)
        before = wide.view(np.uint32) if case["dtype"] == "float32" else noise.narrow_nearest(wide)
        update = noise.Update(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in _UPDATE.items()},  # type: ignore[arg-type]
            stochastic=case["rounding"] == "stochastic",
            decay=_DECAY,
        )
        after = noise.updated(before, case["name"], case["role"], update, base)
        found.append(
            {
                **{key: case[key] for key in ("name", "role", "dtype", "rounding", "shape")},
                "base": case["before"],
                "before": _hex(before.ravel().tolist(), before.itemsize),
                "after": _hex(after.ravel().tolist(), after.itemsize),
            }
        )
    return found


def decay() -> dict[str, Any]:
    return {"decay": _DECAY.hex()}


def update_record() -> dict[str, Any]:
    return {
        "version": _UPDATE["version"],
        "seeds": [f"{seed:016x}" for seed in _UPDATE["seeds"]],  # type: ignore[attr-defined]
        "coefficients": _UPDATE["coefficients"],
        "matrix_multiplier": float(_UPDATE["matrix_multiplier"]).hex(),  # type: ignore[arg-type]
        "vector_multiplier": float(_UPDATE["vector_multiplier"]).hex(),  # type: ignore[arg-type]
    }


def digests() -> list[dict[str, Any]]:
    found = []
    for dtype, base in (("float32", b""), ("bfloat16", bytes(range(32)))):
        parameters: dict[str, noise.Bits] = {}
        for u in updates():
            if u["dtype"] == dtype and u["rounding"] == "nearest":
                parameters[u["name"]] = bits_of(u["before"], u["shape"])
        found.append(
            {
                "dtype": dtype,
                "base": base.hex(),
                "scope": "full",
                "sums": {name: f"{noise.element_sum(bits):016x}" for name, bits in parameters.items()},
                "digest": noise.digest(parameters, base=base, scope="full").hex(),
            }
        )
    return found


def bits_of(digits: list[str], shape: list[int]) -> noise.Bits:
    """Stored weights from the page: uint32 or uint16, as the number of digits says."""
    kind = {8: np.uint32, 4: np.uint16}[len(digits[0])]
    return np.array([int(text, 16) for text in digits], dtype=kind).reshape(shape)


def _weights(*shape: int) -> Any:
    """Numbers of both signs between 0.5 and 1 in size, made of bits, so that every NumPy makes the same."""
    index = np.arange(np.prod(shape), dtype=np.uint64)
    mantissa = (index * np.uint64(0x9E3779B9)) & np.uint64(0x7FFFFF)
    bits = ((index % np.uint64(2)) << np.uint64(31)) | np.uint64(126 << 23) | mantissa
    return bits.astype(np.uint32).reshape(shape).view(np.float32)


def _hex(numbers: list[int], size: int = 4) -> list[str]:
    return [f"{number:0{2 * size}x}" for number in numbers]


VECTORS = {
    "philox": philox,
    "names": names,
    "values": values,
    "rounding_words": rounding_words,
    "rounding": rounding,
    "update_record": update_record,
    "updates": updates,
    "decay": decay,
    "decays": decays,
    "digests": digests,
}


def read(page: Path = PAGE) -> dict[str, Any]:
    """All vectors that stand in the page, by their names."""
    return {name: json.loads(text) for name, text in _BLOCK.findall(page.read_text())}


def render(name: str) -> str:
    """One block as it stands in the page: one line for each case."""
    made = VECTORS[name]()
    cases = made if isinstance(made, list) else [made]
    lines = ",\n".join(" " + json.dumps(case, ensure_ascii=False) for case in cases)
    text = f"[\n{lines}\n]" if isinstance(made, list) else lines.strip()
    return f"<!-- vectors: {name} -->\n```json\n{text}\n```\n"


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(_BLOCK.sub(lambda match: render(match[1]), PAGE.read_text()))
    else:
        print("\n".join(render(name) for name in VECTORS))


if __name__ == "__main__":
    main()
