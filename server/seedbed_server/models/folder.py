"""Is this folder a whole Hugging Face model? Asked before an engine is started on it.

Only headers are read, so the check of a large model takes milliseconds. It finds what breaks in practice:
a download that was cut short, a shard that is missing, a file that is a pointer instead of the data.
"""

import json
import struct
from pathlib import Path
from typing import Any

from seedbed_server.models.errors import ModelError

INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
# The longest header that the safetensors format allows.
MAX_HEADER_BYTES = 100_000_000
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F4": 4, "C64": 64,
}  # fmt: skip


def check_folder(folder: Path, remedy: str = "Download or export the model again.") -> str:
    """Return the architecture that `config.json` names, or raise ModelError naming the file and `remedy`."""
    if not folder.is_dir():
        raise ModelError(folder, "is not a folder", "Give the path of a Hugging Face model folder.")
    architecture = _check_config(folder / "config.json", remedy)
    _check_weights(folder, remedy)
    _check_tokenizer(folder, remedy)
    return architecture


def _check_config(file: Path, remedy: str) -> str:
    architectures = _read_json(file, remedy).get("architectures")
    if not (isinstance(architectures, list) and architectures and isinstance(architectures[0], str)):
        raise ModelError(file, 'names no architecture ("architectures": [...])', remedy)
    return architectures[0]


def _check_weights(folder: Path, remedy: str) -> None:
    index = folder / INDEX
    if not index.exists():
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ModelError(folder, "has no *.safetensors file", remedy)
        for file in files:
            _check_safetensors(file, remedy)
        return
    weight_map = _read_json(index, remedy).get("weight_map")
    if not (isinstance(weight_map, dict) and weight_map):
        raise ModelError(index, 'has no "weight_map"', remedy)
    for name in sorted({str(value) for value in weight_map.values()}):
        file = folder / name
        if not file.is_file():
            raise ModelError(file, f"is missing, but {INDEX} names it", remedy)
        present = _check_safetensors(file, remedy)
        absent = sorted(k for k, v in weight_map.items() if v == name and k not in present)
        if absent:
            raise ModelError(file, f"lacks {absent[0]}, which {INDEX} places in it", remedy)


def _check_safetensors(file: Path, remedy: str) -> set[str]:
    """Names of the tensors in `file`, whose header must be readable and agree with the file's size."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise ModelError(file, f"is not a safetensors file ({size} bytes, no readable header)", remedy)
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        end = 0
        for name, entry in header.items():
            if name != "__metadata__":
                end = max(end, _check_entry(file, name, entry, remedy))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(file, f"has a damaged header ({error})", remedy) from error
    if size != 8 + length + end:
        raise ModelError(file, f"has {size} bytes where its header says {8 + length + end}", remedy)
    return set(header) - {"__metadata__"}


def _check_entry(file: Path, name: str, entry: dict[str, Any], remedy: str) -> int:
    """The offset at which the data of tensor `name` ends."""
    begin, end = entry["data_offsets"]
    count = 1
    for extent in entry["shape"]:
        count *= extent
    bits = BITS.get(entry["dtype"])
    if bits is not None and (end - begin) * 8 != count * bits:
        raise ModelError(file, f"gives {name} {end - begin} bytes for {count} x {entry['dtype']}", remedy)
    return int(end)


def _check_tokenizer(folder: Path, remedy: str) -> None:
    found = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    if not found:
        raise ModelError(folder, f"has no tokenizer (none of {', '.join(TOKENIZER_FILES)})", remedy)
    for name in (*found, "tokenizer_config.json"):
        if name.endswith(".json") and (folder / name).is_file():
            _read_json(folder / name, remedy)


def _read_json(file: Path, remedy: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ModelError(file, "is missing", remedy) from None
    except (OSError, ValueError) as error:
        raise ModelError(file, f"cannot be read as JSON ({error})", remedy) from error
    if not isinstance(content, dict):
        raise ModelError(file, "is not a JSON object", remedy)
    return content
