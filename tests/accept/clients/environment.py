"""The environment of the clients: `.venv.clients` beside the checkout's own, made when its list changes.

python -m tests.accept.clients.environment        makes it, or says that it is there
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["FOLDER", "REQUIREMENTS", "EnvironmentFailedError", "python_of_clients"]

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".venv.clients"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_SECONDS = 900.0
MAX_AGE_SECONDS = 7 * 86_400.0
"""An environment that is older is brought up to date: newest means newest."""


class EnvironmentFailedError(RuntimeError):
    """The environment cannot be made; the message says why and what to do."""


def python_of_clients() -> Path:
    """The interpreter of the environment, which is made first where it is missing, old or of another list.

    Raises EnvironmentFailedError.
    """
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, stamp = FOLDER / "bin" / "python", FOLDER / "stamp"
        if not python.exists() or not _is_fresh(stamp):
            stamp.unlink(missing_ok=True)
            _make(python)
            stamp.write_text(_fingerprint())
    return python


def _fingerprint() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()


def _is_fresh(stamp: Path) -> bool:
    if not stamp.exists() or stamp.read_text() != _fingerprint():
        return False
    return time.time() - stamp.stat().st_mtime < MAX_AGE_SECONDS


def _make(python: Path) -> None:
    if not python.exists():
        for name in ("bin", "lib", "lib64", "include"):
            path = FOLDER / name
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(FOLDER)], "python -m venv")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "--upgrade", "-r", str(REQUIREMENTS)], "pip install")


def _run(command: list[str], what: str) -> None:
    # Nothing of the checkout's own environment: it has SGLang's pins.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"it took longer than {INSTALL_SECONDS:g} s"
    else:
        if done.returncode == 0:
            return
        reason = "\n".join(line for line in done.stderr.splitlines() if "WARNING" not in line)[-2000:]
    raise EnvironmentFailedError(
        f"the environment of the clients cannot be made in {FOLDER}: {what} failed:\n{reason}\n"
        f"pip must reach a package index with the packages of {REQUIREMENTS.relative_to(ROOT)} "
        "(pip config set global.index-url URL names another one). To look at it alone: "
        "python -m tests.accept.clients.environment. Removing the folder starts afresh."
    )


if __name__ == "__main__":
    try:
        print(python_of_clients())
    except EnvironmentFailedError as error:
        sys.exit(str(error))
