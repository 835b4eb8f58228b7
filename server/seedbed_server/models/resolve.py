"""What `--model` means."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seedbed_server.models.catalogue import CATALOGUE
from seedbed_server.models.errors import ModelError
from seedbed_server.models.fetch import Report, cache_directory, fetch_model, quiet
from seedbed_server.models.folder import check_folder

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SERVED_NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")


@dataclass(frozen=True)
class ModelSource:
    """What the engine loads, and the name under which users ask for it."""

    # A folder, or a hub id.
    path: str
    served_name: str
    kind: Literal["catalogue", "folder", "hub"]


def resolve_model(
    name: str, *, served_name: str = "", cache: Path | None = None, report: Report = quiet
) -> ModelSource:
    """Turn what an operator typed into something to load; fetches a catalogue model that is missing.

    A catalogue name comes first (write `./smollm2` for a folder of that name), then a folder, then a hub id
    such as `Qwen/Qwen3-0.6B`, which SGLang downloads. Raises ModelError for a damaged folder and for a name
    that is none of the three.
    """
    if name in CATALOGUE:
        folder = (cache or cache_directory()) / "models" / name
        if folder.exists():
            check_folder(folder, remedy=f"Repair it with: seedbed model fetch {name}")
        else:
            folder = fetch_model(CATALOGUE[name], cache=cache, report=report)
        return ModelSource(str(folder), check_served_name(served_name or name), "catalogue")
    folder = Path(name).expanduser()
    if (name and folder.is_dir()) or name.startswith(("/", "./", "../", "~")):
        folder = folder.resolve()
        check_folder(folder)
        return ModelSource(str(folder), check_served_name(served_name or folder.name), "folder")
    if HUB_ID.fullmatch(name):
        return ModelSource(name, check_served_name(served_name or name.rsplit("/", 1)[1]), "hub")
    known = ", ".join(sorted(CATALOGUE))
    problem = "is neither a known model, nor a folder, nor a hub id (organisation/name)"
    raise ModelError(name or "(empty)", problem, f"Known models: {known}. Or give a path or a hub id.")


def check_served_name(name: str) -> str:
    """Return `name`, or raise ModelError: `:` is kept for `<name>:live`, and spaces break clients."""
    if not SERVED_NAME.fullmatch(name):
        problem = "cannot be a served name; letters, digits, '.', '_', '-' and '/' may be used"
        raise ModelError(name, problem, "Choose another one with --served-name.")
    return name
