"""What an operator can set for `seedbed serve`, in one place.

Every field has a flag (`--population-size`) and an environment variable (`SEEDBED_POPULATION_SIZE`); a flag
wins. Settings are checked as a whole before anything is started, and an error names the setting, the value
that was given and what to do. Two more variables are read elsewhere: `SEEDBED_CACHE` (fetched models) and
`SEEDBED_HOME` (stores).
"""

import difflib
import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_serializer, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from seedbed_server.config_learning import LearningSettings, check_learning
from seedbed_server.home import home

PREFIX = "SEEDBED_"
# Read elsewhere: not fields, and not mistakes.
OTHER_VARIABLES = frozenset({"SEEDBED_CACHE", "SEEDBED_HOME"})

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16"]
Rounding = Literal["stochastic", "nearest"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]


class SettingsError(ValueError):
    """Settings that cannot be served with; the message has one line for each, with its remedy."""


def _patterns(value: object) -> object:
    """A list, or one text with commas, as an environment variable has it."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
PathOrUrl = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]
Patterns = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_patterns)]


class ServeSettings(LearningSettings):
    """Everything that `seedbed serve` needs to know. Frozen; `load_settings` makes one with readable
    errors.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    # What is served, and where.
    model: str = Field("smollm2", min_length=1, description="A known model, a local folder or a hub id.")
    served_name: str = Field("", description="Name that clients ask for; empty: the model's own.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8600, ge=0, le=65535, description="0 takes a free port.")
    allow_remote: bool = Field(
        False, description="Listen on other addresses than loopback. No key is asked for: close the network."
    )
    store: PathOrUrl | None = Field(
        None,
        min_length=1,
        description="Keeps episodes, rewards and the journal: an SQLite file, or postgresql://USER@HOST/DATABASE.",
    )
    store_folder: Path | None = Field(
        None,
        description="Snapshots and the engine's log, for a store with a URL; those of a file lie beside it.",
    )
    snapshot_every: Count = Field(
        100, description="Updates from one snapshot of the weights to the next; 0: none are taken."
    )
    snapshot_keep: int = Field(
        2, ge=1, description="Newest snapshots that are kept; older ones are, ever further apart."
    )

    # The engine. 0 and "auto" leave the choice to it.
    device: Device = Field("auto", description="Where the model runs.")
    dtype: Dtype = Field(
        "auto", description="Type of the live weights: float32 on a CPU, the model's own on a GPU."
    )
    slots: Count = Field(0, description="Seeds that are resident at once; 0: 16 on a CPU, 64 on a GPU.")
    max_running_requests: Count = Field(0, description="Requests in one batch, at most `slots`; 0: `slots`.")
    context_length: Count = Field(
        0, description="Longest prompt and answer together, in tokens; 0: the model's."
    )
    max_total_tokens: Count = Field(0, description="Tokens that the KV cache holds; 0: the engine's choice.")
    scope: str = Field(
        "full", min_length=1, description="`full`, `all-linear` or patterns of parameter names."
    )
    exclude: Patterns = Field((), description="Patterns of parameter names that are left alone.")
    rounding: Rounding = Field("stochastic", description="How updates are rounded to bfloat16 weights.")
    tool_call_parser: str = Field(
        "", description="SGLang's parser for tool calls; empty: what the chat template says; `none`: off."
    )
    reasoning_parser: str = Field("", description="SGLang's parser for reasoning; likewise.")
    max_queued_requests: Count = Field(
        256, description="Requests that may wait for a place in a batch; further ones get 429."
    )
    start_seconds: Positive = Field(600.0, description="How long the engine may take to start.")
    hold_seconds: NotNegative = Field(30.0, description="How long requests wait for an update to end.")

    log_level: LogLevel = Field("info", description="What is written to stderr.")
    log_format: LogFormat = Field("console", description="For people, or one JSON object a line.")

    @model_validator(mode="after")
    def _fits_together(self) -> "ServeSettings":
        if not self.allow_remote and not _is_loopback(self.host):
            raise ValueError(
                f"host: {self.host!r} can be reached from other machines and no key is asked for. "
                "Use 127.0.0.1, or set allow_remote where the network itself is closed"
            )
        check_learning(self)
        if self.slots and self.max_running_requests > self.slots:
            raise ValueError(
                f"max_running_requests: {self.max_running_requests} is above slots ({self.slots}), and every "
                f"request may need its own. Use at most {self.slots}"
            )
        return self

    def store_name(self, served_name: str) -> str:
        """The store's path or URL: as set, or `<SEEDBED_HOME>/<served name>/store.sqlite`."""
        return self.store or str(default_store(served_name))

    @field_serializer("store")
    def _without_password(self, store: str | None) -> str | None:
        return store and re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", store)


def default_store(served_name: str) -> Path:
    """Where the store of a model is kept when nobody says otherwise."""
    return home() / served_name.replace("/", "--") / "store.sqlite"


def load_settings(**flags: Any) -> ServeSettings:
    """Settings from flags (None: not given), then the environment, then defaults. Raises SettingsError."""
    try:
        return ServeSettings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(dict(detail)) for detail in error.errors())) from None


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """One warning for each SEEDBED_ variable that nothing reads: most likely a slip of the pen."""
    known = {PREFIX + name.upper() for name in ServeSettings.model_fields} | OTHER_VARIABLES
    warnings = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            warnings.append(
                f"{name} is not read by anything" + (f"; did you mean {close[0]}?" if close else ".")
            )
    return warnings


def _explain(detail: dict[str, Any]) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    if not detail["loc"]:
        return f"{message}."
    name = str(detail["loc"][0])
    field = ServeSettings.model_fields.get(name)
    if field is None:
        close = difflib.get_close_matches(name, ServeSettings.model_fields, n=1)
        return f"{name}: there is no such setting." + (f" Did you mean {close[0]}?" if close else "")
    flag, variable = f"--{name.replace('_', '-')}", PREFIX + name.upper()
    message = message[:1].lower() + message[1:]
    return f"{name}: {detail['input']!r}: {message}. {field.description} Set {flag} or {variable}."


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
