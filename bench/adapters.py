"""Random rank-1 LoRA adapters of a Hugging Face model, as PEFT writes them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

__all__ = ["write_adapters"]

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_DEVIATION = 0.07
"""Of both factors: so an adapter is about as large as a perturbation with a sigma of 0.005."""


def write_adapters(model: Path, folder: Path, count: int, rank: int = 1) -> list[str]:
    """Writes `count` adapters of all linear modules; returns their names, each a folder in `folder`."""
    shapes: dict[str, tuple[int, int]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                module = name.removesuffix(".weight")
                if module.rpartition(".")[2] in TARGETS and name.endswith(".weight"):
                    rows, columns = tensors.get_slice(name).get_shape()
                    shapes[module] = (rows, columns)
    if not shapes:
        raise ValueError(
            f"model: {model} has no linear modules in *.safetensors files; give a Hugging Face folder"
        )
    names = []
    for index in range(count):
        generator = torch.Generator().manual_seed(index)
        target = folder / f"adapter-{index:02}"
        target.mkdir(parents=True)
        tensors_of = {}
        for module, (rows, columns) in shapes.items():
            prefix = f"base_model.model.{module}"
            tensors_of[f"{prefix}.lora_A.weight"] = (
                torch.randn(rank, columns, generator=generator) * _DEVIATION
            )
            tensors_of[f"{prefix}.lora_B.weight"] = torch.randn(rows, rank, generator=generator) * _DEVIATION
        save_file(tensors_of, target / "adapter_model.safetensors", metadata={"format": "pt"})
        configuration = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(model),
            "r": rank,
            "lora_alpha": rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "target_modules": list(TARGETS),
        }
        (target / "adapter_config.json").write_text(json.dumps(configuration, indent=1))
        names.append(target.name)
    return names
