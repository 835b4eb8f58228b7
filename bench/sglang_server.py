"""SGLang's own HTTP server as it comes, in a process of its own: what the gateway is compared with.

    python -m bench.sglang_server --model FOLDER --name NAME --port PORT [--attention NAME]

Prints one line when it serves, `{"ready": true, "hooks": [...]}`: the hooks of our plugin that SGLang
applied, of which there must be none. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from seedbed_server.engine import attention, cpu

if __name__ in ("__main__", "__mp_main__"):
    # Before SGLang is imported, here and in each process that it spawns, which imports this module too.
    cpu.install()
    if any(word.endswith(attention.BACKEND) for word in sys.argv):
        attention.register()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--attention", default="")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--max-total-tokens", type=int, default=16384)
    options = parser.parse_args()
    # Whatever prints to standard output must not get between our lines.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.server_args import ServerArgs

    settings: dict[str, Any] = {
        "model_path": options.model,
        "served_model_name": options.name,
        "host": "127.0.0.1",
        "port": options.port,
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

    def ready() -> None:
        print(json.dumps({"ready": True, "hooks": sorted(HookRegistry._patched)}), file=out)

    launch_server(ServerArgs(**settings), launch_callback=ready)


if __name__ == "__main__":
    main()
