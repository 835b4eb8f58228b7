"""SGLang as it comes, in a process of its own: what the engine is compared with.

    python -m bench.plain_sglang --model FOLDER [--attention NAME] [--adapters FOLDER]

Reads one command a line from standard input and answers with one line: `{"prompts": [[...]], "new_tokens": n,
"adapters": [...] or null}` gives `{"seconds", "tokens"}`. End of input ends it. It never sets the variable
that wakes our plugin, and answers in its first line which of our hooks SGLang applied: none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from seedbed_server.engine import attention, cpu


def _prepare() -> None:
    """Before SGLang is imported, here and in each process that it spawns, which imports this module too."""
    cpu.install()
    if attention.BACKEND in sys.argv:
        attention.register()
    if "--adapters" in sys.argv and cpu.wanted():
        _ignore_pinning()


def _ignore_pinning() -> None:
    """SGLang's LoRA pins host memory without asking whether there is a device to pin it for."""

    def without(make: Any) -> Any:
        def made(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("pin_memory", None)
            return make(*args, **kwargs)

        return made

    for name in ("tensor", "zeros", "empty"):
        setattr(torch, name, without(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]


if __name__ in ("__main__", "__mp_main__"):
    _prepare()


def arguments_of(options: argparse.Namespace) -> dict[str, Any]:
    """SGLang's settings: those that the engine uses, wherever they do not belong to it."""
    settings: dict[str, Any] = {
        "model_path": options.model,
        "dtype": options.dtype,
        "device": options.device,
        "max_running_requests": options.requests,
        "max_total_tokens": options.max_total_tokens,
        "mem_fraction_static": 0.3,
        "log_level": "error",
        "skip_server_warmup": True,
        "disable_cuda_graph": True,
        "sleep_on_idle": True,
        "random_seed": 0,
    }
    if options.attention:
        settings["attention_backend"] = options.attention
    if options.adapters:
        paths = sorted(Path(options.adapters).iterdir())
        settings |= {
            "enable_lora": True,
            "lora_paths": [f"{path.name}={path}" for path in paths],
            "max_loras_per_batch": len(paths),
            "lora_backend": "torch_native" if options.device == "cpu" else "triton",
        }
    return settings


async def batch(engine: Any, command: dict[str, Any]) -> dict[str, Any]:
    """All prompts at once, each a request of its own."""
    sampling = {"temperature": 0.0, "max_new_tokens": command["new_tokens"], "ignore_eos": True}
    adapters = command["adapters"] or [None] * len(command["prompts"])
    started = time.perf_counter()
    answers = await asyncio.gather(
        *(
            engine.async_generate(input_ids=prompt, sampling_params=sampling, lora_path=adapter)
            for prompt, adapter in zip(command["prompts"], adapters, strict=True)
        )
    )
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": [answer["output_ids"] for answer in answers]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--attention", default="")
    parser.add_argument("--adapters", default="")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--max-total-tokens", type=int, default=16384)
    options = parser.parse_args()
    # Whatever prints to standard output must not get between our lines.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    import sglang
    from sglang.srt.plugins.hook_registry import HookRegistry

    engine = sglang.Engine(**arguments_of(options))
    with contextlib.closing(out):
        print(json.dumps({"ready": True, "hooks": sorted(HookRegistry._patched)}), file=out)
        for line in sys.stdin:
            print(json.dumps(engine.loop.run_until_complete(batch(engine, json.loads(line)))), file=out)
    engine.shutdown()


if __name__ == "__main__":
    main()
