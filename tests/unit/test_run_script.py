"""`./run setup`: what it says when something is missing, and that it knows when there is nothing to do."""

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "dirname", "cat", "cut", "sha256sum", "mkdir", "rm", "df", "awk", "grep", "env", "flock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing installed, and a folder `bin` that holds the only commands on its PATH."""
    shutil.copy(ROOT / "run", tmp_path / "run")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def command(checkout: Path, name: str, body: str) -> None:
    """Put a shell script of this name on the PATH."""
    file = checkout / "bin" / name
    file.unlink(missing_ok=True)
    file.write_text(f"#!/usr/bin/env bash\n{body}\n")
    file.chmod(0o755)


def run(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {"PATH": str(checkout / "bin"), "HOME": str(checkout), **variables}
    return subprocess.run(
        [str(checkout / "run"), *arguments],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def use_real_python(checkout: Path) -> None:
    import sys

    (checkout / "bin" / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")


def test_without_python_it_says_what_to_install(checkout: Path) -> None:
    done = run(checkout, "setup", "--cpu")
    assert done.returncode == 3
    assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr
    assert "PYTHON=/path/to/python3 ./run setup" in done.stderr
    assert not (checkout / ".venv").exists()


def test_python_that_is_too_old_is_not_taken(checkout: Path) -> None:
    command(checkout, "python3", "exit 1")
    assert run(checkout, "setup", "--cpu").returncode == 3


def test_given_interpreter_that_does_not_suit_is_named(checkout: Path) -> None:
    done = run(checkout, "setup", "--cpu", PYTHON="/no/such/python")
    assert done.returncode == 3
    assert "PYTHON=/no/such/python is not a Python" in done.stderr


def test_without_the_venv_module_it_says_what_to_install(checkout: Path) -> None:
    command(checkout, "python3", '[[ "$*" == *ensurepip* ]] && exit 1; exit 0')
    done = run(checkout, "setup", "--cpu")
    assert done.returncode == 4
    assert "apt install python3-venv" in done.stderr


def test_without_disk_it_says_how_much_is_needed(checkout: Path) -> None:
    command(checkout, "python3", "exit 0")
    command(checkout, "df", "printf 'Filesystem 1024-blocks Used Available\\n/dev/x 9999999 1 1048576\\n'")
    done = run(checkout, "setup", "--cpu")
    assert done.returncode == 5
    assert "about 6 GB are needed" in done.stderr
    assert "1 GB are free" in done.stderr


def test_without_network_it_says_so_and_the_next_run_repairs_what_was_cut_off(checkout: Path) -> None:
    use_real_python(checkout)
    nowhere = "http://127.0.0.1:9/simple"
    offline = {"PIP_INDEX_URL": nowhere, "TORCH_INDEX_URL": nowhere, "PIP_RETRIES": "0"}
    offline["PIP_CONFIG_FILE"] = os.devnull
    done = run(checkout, "setup", "--cpu", **offline)
    assert done.returncode == 6, done.stderr
    assert "the package index cannot be reached" in done.stderr
    assert "Run ./run setup again to go on" in done.stderr
    assert not (checkout / ".venv" / ".seedbed-setup").exists()
    # What a kill in the middle of an installation leaves: pip would take this for an installed package.
    [packages] = (checkout / ".venv" / "lib").glob("python3*/site-packages")
    (packages / "numpy-2.4.6.dist-info").mkdir()
    (packages / "numpy-2.4.6.dist-info" / "METADATA").write_text("Name: numpy")
    done = run(checkout, "setup", "--cpu", **offline)
    assert "removing what is left of numpy-2.4.6" in done.stderr
    assert not (packages / "numpy-2.4.6.dist-info").exists()
    assert list(packages.glob("pip-*.dist-info"))


def test_second_setup_does_nothing_in_less_than_a_second(checkout: Path) -> None:
    pins = b"".join(file.read_bytes() for file in sorted((checkout / "requirements").glob("*.txt")))
    print_of_pins = hashlib.sha256(pins + (checkout / "pyproject.toml").read_bytes()).hexdigest()
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to("/bin/true")
    (checkout / ".venv" / ".seedbed-setup").write_text(f"cpu {print_of_pins}")
    began = time.monotonic()
    done = run(checkout, "setup")
    assert done.returncode == 0, done.stderr
    assert "Everything is set up (cpu)" in done.stderr
    assert time.monotonic() - began < 1


def test_changed_pins_are_noticed(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to("/bin/true")
    (checkout / ".venv" / ".seedbed-setup").write_text("cpu 0000")
    assert run(checkout, "setup").returncode == 3  # it went on to look for a Python


def test_two_setups_at_once_do_not_collide(checkout: Path) -> None:
    (checkout / ".setup").mkdir()
    command(checkout, "python3", "exit 0")
    with subprocess.Popen(["flock", str(checkout / ".setup" / "lock"), "sleep", "60"]) as holder:
        time.sleep(0.5)
        done = run(checkout, "setup", "--cpu")
        holder.terminate()
    assert done.returncode == 7
    assert "another ./run setup" in done.stderr


def test_gpu_is_taken_only_when_the_driver_lists_one(checkout: Path) -> None:
    command(checkout, "python3", '[[ "$*" == *ensurepip* ]] && exit 1; exit 0')
    command(checkout, "nvidia-smi", "exit 9")
    assert "for a cpu" in with_little_disk(checkout)
    command(checkout, "nvidia-smi", "echo 'GPU 0: NVIDIA'")
    assert "for a gpu" in with_little_disk(checkout)


def with_little_disk(checkout: Path) -> str:
    command(checkout, "df", "printf 'x\\n/dev/x 1 1 1\\n'")
    return run(checkout, "setup").stderr


def test_unknown_commands_and_options_end_with_code_2(checkout: Path) -> None:
    assert run(checkout, "deploy").returncode == 2
    assert run(checkout, "setup", "--tpu").returncode == 2


def test_help_needs_nothing(checkout: Path) -> None:
    done = run(checkout, "help")
    assert done.returncode == 0
    for name in ("setup", "demo", "serve", "test", "lint", "bench", "accept", "proto"):
        assert name in done.stdout
