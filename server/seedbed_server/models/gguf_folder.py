"""A Llama model in one GGUF file becomes a Hugging Face folder: weights, configuration, tokenizer.

Needs gguf, numpy and tokenizers. The weights are dequantised to float32 and rounded to bfloat16
(nearest, ties to even): the values that a 4-bit file can say do not deserve more, and it halves the folder.
"""

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed_server.models.errors import ModelError

# GGUF's short names of a block's tensors, and the state-dict names of Hugging Face's Llama.
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
CONTROL_TOKEN = 3  # GGUF's token type for <|im_end|> and its like


def write_folder(source: Path, folder: Path, advance: Callable[[int, int], None]) -> int:
    """Write `folder` (which exists and is empty) from the GGUF `source`; return the number of weights.

    `advance(done, total)` is called after each tensor with counts of weights. Raises ModelError when the file
    is not a Llama with a GPT-2 style tokenizer.
    """
    from gguf import GGUFReader

    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama" or fields.get("tokenizer.ggml.model") != "gpt2":
        kind = f"{fields.get('general.architecture')} with tokenizer {fields.get('tokenizer.ggml.model')}"
        raise ModelError(
            source, f"holds {kind}; only llama with gpt2 is understood", "Use another GGUF file."
        )
    weights = _write_weights(reader.tensors, fields, folder / "model.safetensors", advance)
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    _write_json(folder / "config.json", _config(fields, tied=tied))
    ids = {f"{role}_token_id": fields[f"tokenizer.ggml.{key}_token_id"] for role, key in _TOKEN_ROLES}
    _write_json(folder / "generation_config.json", ids)
    _write_tokenizer(fields, folder)
    return weights


_TOKEN_ROLES = (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bfloat16 nearest to each finite float32, as its 16 bits; ties go to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounding = ((bits >> 16) & 1) + np.uint32(0x7FFF)
    return ((bits + rounding) >> 16).astype(np.uint16)


def _write_weights(
    tensors: list[Any], fields: dict[str, Any], file: Path, advance: Callable[[int, int], None]
) -> int:
    """Write the safetensors file (header length, JSON header, data), one tensor in memory at a time."""
    from gguf import dequantize

    # GGUF lists the fastest dimension first.
    shapes = [tuple(int(size) for size in reversed(tensor.shape)) for tensor in tensors]
    names = [_state_name(tensor.name) for tensor in tensors]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in zip(names, shapes, strict=True):
        end = offset + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (offset, end)}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that the data is aligned
    total, done = offset // 2, 0
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, shape, tensor in zip(names, shapes, tensors, strict=True):
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight = _unpermute(weight, _heads(fields, name))
            stream.write(bfloat16_bits(weight).astype("<u2").tobytes())
            done += weight.size
            advance(done, total)
    return total


def _state_name(name: str) -> str:
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    match name.split("."):
        case ["blk", layer, short, "weight"] if short in BLOCK_NAMES:
            return f"model.layers.{layer}.{BLOCK_NAMES[short]}.weight"
    raise ModelError(name, "is a tensor that a Llama does not have", "Use another GGUF file.")


def _heads(fields: dict[str, Any], name: str) -> int:
    suffix = "head_count" if "q_proj" in name else "head_count_kv"
    return int(fields[f"llama.attention.{suffix}"])


def _unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's order of rotary dimensions: there the two halves of a head are interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "max_position_embeddings": fields["llama.context_length"],
        # Stored as float32: 1e-5 reads back as 9.99999975e-06.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "rope_scaling": None,
        "tie_word_embeddings": tied,
        "vocab_size": fields["llama.vocab_size"],
        "initializer_range": 0.02,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        "use_cache": True,
        "torch_dtype": "bfloat16",
    }


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    # The "smollm" pre-tokenizer of the file: digits one by one, then bytes.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{role}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]] for role, key in _TOKEN_ROLES}
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **roles,
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }
    _write_json(folder / "tokenizer_config.json", configuration)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
