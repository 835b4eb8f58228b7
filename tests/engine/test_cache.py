"""A cached prefix is never read under other weights."""

from __future__ import annotations

import os
import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from seedbed_server.engine.config import EngineConfig
from seedbed_server.engine.process import EngineProcess, EngineRefusedError
from tests.engine.client import Ask, Client, record_of


def _prompt(seed: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 512) for _ in range(50))


@pytest.mark.parametrize("other", [(8, 0.03), (7, -0.03), (7, 0.031), (0, 0.0)])
def test_another_seed_sign_or_sigma_finds_nothing_and_the_same_one_does(
    llama: Client, other: tuple[int, float]
) -> None:
    prompt = _prompt(hash(other))
    assert llama.ask(Ask(prompt, 7, 0.03)).cached == 0
    assert llama.ask(Ask(prompt, *other)).cached == 0
    assert llama.ask(Ask(prompt, 7, 0.03)).cached > 0
    assert llama.ask(Ask(prompt, *other)).cached > 0


def test_another_version_finds_nothing(llama: Client) -> None:
    prompt = _prompt(5)
    for ask in (Ask(prompt, 7, 0.03), Ask(prompt)):
        assert llama.ask(ask).cached == 0
        assert llama.ask(ask).cached > 0
    llama.update(record_of(1, {5: 100}))
    for ask in (Ask(prompt, 7, 0.03), Ask(prompt)):
        assert llama.ask(ask).cached == 0
    llama.restore()
    for ask in (Ask(prompt, 7, 0.03), Ask(prompt)):
        assert llama.ask(ask).cached == 0
        assert llama.ask(ask).cached > 0


def test_an_engine_whose_sglang_ignores_namespaces_refuses_to_serve(
    make_config: Callable[..., EngineConfig], toy_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """A second plugin, installed beside ours, makes SGLang's cache blind for namespaces."""
    (tmp_path / "blind.py").write_text(
        textwrap.dedent("""
        def register():
            from sglang.srt.mem_cache import radix_cache
            key = radix_cache.RadixKey
            first = key.__init__
            def init(self, token_ids, extra_key=None, *args, **kwargs):
                first(self, token_ids, None, *args, **kwargs)
            key.__init__ = init
        """)
    )
    info = tmp_path / "blind-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: blind\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nblind = blind:register\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = EngineProcess(
        make_config(toy_folder("llama")), log=sys.stderr.buffer, environment={"PYTHONPATH": path}
    )
    with pytest.raises(EngineRefusedError, match=r"cached tokens across two namespaces.*setup"):
        process.start(300)
    assert not process.alive
