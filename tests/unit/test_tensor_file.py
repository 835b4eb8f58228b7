"""Files of tensors that are written one by one, and differences of folders."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from seedbed_server.engine import tensor_file
from seedbed_server.engine.difference import write_difference
from seedbed_server.engine.tensor_file import write_tensors
from seedbed_server.files import put_in_place


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_written_is_read_back_by_safetensors(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_file, "_PIECE", 50)
    fused = torch.randn(12, 8).to(dtype)
    tensors = {"rows": fused[3:7], "columns": fused[:, 2:5], "vector": torch.randn(7).to(dtype)}
    tensors |= {"none": torch.zeros(0, 4, dtype=dtype), "a name / of ours": torch.ones(1, dtype=dtype)}
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    path = tmp_path / "model.safetensors"
    size = write_tensors(path, shapes, tensors.values(), {"format": "pt"})
    assert path.stat().st_size == size
    found = load_file(path)
    assert set(found) == set(tensors)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    with pytest.raises(FileExistsError):
        write_tensors(path, {}, [], {})


def test_a_difference_added_to_the_base_is_the_other_folder(tmp_path: Path) -> None:
    base = {"a": torch.randn(3, 4).bfloat16(), "b": torch.randn(5).bfloat16()}
    moved = {
        name: (tensor.float() + 0.01 * torch.randn(tensor.shape)).bfloat16() for name, tensor in base.items()
    }
    for name, weights in (("base", base), ("version", moved)):
        (tmp_path / name).mkdir()
        save_file({"a": weights["a"]}, tmp_path / name / "model-00001-of-00002.safetensors")
        save_file({"b": weights["b"]}, tmp_path / name / "model-00002-of-00002.safetensors")
    path = tmp_path / "difference.safetensors"
    size = write_difference(tmp_path / "base", tmp_path / "version", path, {"version": "3"})
    assert path.stat().st_size == size
    found = load_file(path)
    for name, tensor in moved.items():
        assert found[name].dtype == torch.float32
        assert torch.equal((base[name].float() + found[name]).bfloat16(), tensor)
    with pytest.raises(FileExistsError):
        write_difference(tmp_path / "base", tmp_path / "version", path, {})
    assert {p.name for p in tmp_path.iterdir()} == {"base", "version", "difference.safetensors"}


@pytest.mark.parametrize("links", [True, False])
def test_a_finished_file_gets_its_name_and_replaces_nothing(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def no_links(*_: object) -> None:
            raise PermissionError("a memory stick")

        monkeypatch.setattr("seedbed_server.files.os.link", no_links)
    for content in ("one", "two"):
        (tmp_path / "finished").unlink(missing_ok=True)
        (tmp_path / "finished").write_text(content)
        if content == "one":
            put_in_place(tmp_path / "finished", tmp_path / "target")
        else:
            with pytest.raises(FileExistsError):
                put_in_place(tmp_path / "finished", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "one"
