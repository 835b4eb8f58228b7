"""Small random models, made on the spot: whole Hugging Face folders that SGLang and transformers load.

Every parameter matters: biases are not 0, norm weights not 1, and logits are far from uniform, so that a
perturbation that is missed anywhere is seen in the log-probabilities.

    python -m tests.toys llama /tmp/toy-llama
"""

import argparse
import json
from pathlib import Path
from typing import Any, Literal, get_args

Architecture = Literal["llama", "qwen2", "qwen3"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)
# One tied, one untied and one with a tied head and q/k norms.
TIED: dict[Architecture, bool] = {"llama": True, "qwen2": False, "qwen3": True}

HIDDEN, HEADS, KEY_VALUE_HEADS, HEAD_DIM, FEED_FORWARD = 64, 4, 2, 16, 96
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Enough English for a few hundred merges.
CORPUS = """
The gardener sows the seeds in rows and waters them before the sun is high. Some of them grow fast, some
slowly, and some do not come up at all; she writes down which ones did well, and next year she takes more of
those. Nothing of this needs a theory of plants. It needs patience, a notebook, and honest counting of what
was there in the end. What is the capital of France? The capital of France is Paris. How many legs does a
spider have? A spider has eight legs. Which planet is the largest one? Jupiter is the largest planet of the
solar system. Please answer in one short sentence, without repeating the question. The user asks, the
assistant answers, and somebody gives it a reward. When many small steps point the same way, the weights move
there together; when they disagree, they stay where they were. A model that serves and learns at once must
never mix the weights of yesterday with the answers of today. Numbers are words as well: one, two, three,
four, five, six, seven, eight, nine, ten, eleven, twelve. """


def make_toy(
    architecture: Architecture,
    folder: Path,
    dtype: str = "float32",
    *,
    seed: int = 0,
    tied: bool | None = None,
    layers: int = 2,
    vocab_size: int = 512,
    context: int = 512,
) -> Path:
    """Write a random model with a byte-level tokenizer and a ChatML template into `folder`; return `folder`.

    hidden 64, 4 heads over 2 key-value heads of 16, feed-forward 96. The same arguments give the same bytes.
    `tied` says whether head and embedding are one tensor; None takes the architecture's entry in TIED.
    A `vocab_size` that is no multiple of 64 makes SGLang pad the embedding.
    """
    import torch
    from safetensors.torch import save_file

    tied = TIED[architecture] if tied is None else tied
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: _scaled(name, torch.randn(shape, generator=generator)).to(getattr(torch, dtype))
        for name, shape in parameter_shapes(architecture, tied, layers, vocab_size).items()
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(architecture, dtype, tied, layers, vocab_size, context))
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})
    _write_tokenizer(folder, vocab_size, context)
    return folder


def parameter_shapes(
    architecture: Architecture, tied: bool, layers: int, vocab_size: int
) -> dict[str, tuple[int, ...]]:
    """Hugging Face state-dict names and shapes; a tied head is not listed."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, HIDDEN)}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _block(architecture).items()}
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (vocab_size, HIDDEN)
    return shapes


def _block(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    queries, keys = HEADS * HEAD_DIM, KEY_VALUE_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (queries, HIDDEN),
        "self_attn.k_proj.weight": (keys, HIDDEN),
        "self_attn.v_proj.weight": (keys, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, queries),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN),
        "mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
    }
    if architecture == "qwen2":
        biases = {"q": queries, "k": keys, "v": keys}
        shapes |= {f"self_attn.{part}_proj.bias": (size,) for part, size in biases.items()}
    if architecture == "qwen3":
        shapes |= {f"self_attn.{part}_norm.weight": (HEAD_DIM,) for part in "qk"}
    return shapes


def _scaled(name: str, values: Any) -> Any:
    """Deviations that keep activations near 1 and give logits a deviation of about 2."""
    if name.endswith("norm.weight"):
        return 1 + 0.2 * values
    if name.endswith("bias"):
        return 0.3 * values
    if "embed_tokens" in name or "lm_head" in name:
        return 0.25 * values
    return 0.15 * values


def _config(
    architecture: Architecture, dtype: str, tied: bool, layers: int, vocab_size: int, context: int
) -> dict[str, Any]:
    class_name = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    own: dict[Architecture, dict[str, Any]] = {
        "llama": {"attention_bias": False, "mlp_bias": False},
        "qwen2": {"use_sliding_window": False, "sliding_window": None},
        "qwen3": {"attention_bias": False, "use_sliding_window": False, "sliding_window": None},
    }
    return {
        "architectures": [class_name[architecture]],
        "model_type": architecture,
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_dropout": 0.0,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": dtype,
        **own[architecture],
    }


def _write_tokenizer(folder: Path, vocab_size: int, context: int) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (PAD, START, END)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    assert tokenizer.get_vocab_size() == vocab_size, "the corpus is too short for this vocabulary"
    tokenizer.save(str(folder / "tokenizer.json"))
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "model_max_length": context,
        "chat_template": CHATML,
    }
    _write_json(folder / "tokenizer_config.json", configuration)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("architecture", choices=ARCHITECTURES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    o = parser.parse_args()
    print(make_toy(o.architecture, o.folder, o.dtype, seed=o.seed, layers=o.layers))
