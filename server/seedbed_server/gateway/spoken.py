"""What is wrong with a body, in one sentence for its writer: the field, its value and what would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seedbed_server.gateway.errors import ApiError, bad_request

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["shown", "spoken"]

_REMEDIES = {
    "bool_type": "use true or false",
    "dict_type": "send an object",
    "extra_forbidden": "there is no such field; leave it out",
    "finite_number": "send a finite number",
    "float_type": "send a number",
    "greater_than": "use more than {gt}",
    "greater_than_equal": "use {ge} or more",
    "int_from_float": "send a whole number",
    "int_type": "send a whole number",
    "less_than": "use less than {lt}",
    "less_than_equal": "use {le} or less",
    "list_type": "send a list",
    "literal_error": "use {expected}",
    "model_type": "send an object",
    "none_required": "leave it out",
    "string_pattern_mismatch": "it must match {pattern}",
    "string_too_long": "send at most {max_length} characters",
    "string_too_short": "send at least {min_length} characters",
    "string_type": "send a text",
    "too_long": "send at most {max_length}",
    "too_short": "send at least {min_length}",
    "union_tag_invalid": "use {expected_tags} as its {discriminator}",
    "union_tag_not_found": "its {discriminator} is missing; send it",
}


def spoken(error: ValidationError, values: Any) -> ApiError:
    """400 for the first thing that is wrong with `values`."""
    first = error.errors(include_url=False)[0]
    kind, given = first["type"], first["input"]
    name = _path(first["loc"], values, missing=kind == "missing")
    if kind == "missing":
        return bad_request(f"{name}: it is missing; send it", param=name)
    remedy = _REMEDIES.get(kind)
    message = first["msg"] if remedy is None else remedy.format(**first.get("ctx", {}))
    return bad_request(f"{name}: {shown(given)} cannot be used: {message}", param=name)


def _path(location: tuple[int | str, ...], values: Any, *, missing: bool) -> str:
    """Where in `values` an error is. Labels of a union's variants, which pydantic puts in between, are left
    out.
    """
    written: list[str] = []
    for part in location[:-1] if missing else location:
        below: Any = dict(enumerate(values)) if isinstance(values, list) else values
        if isinstance(below, dict) and part in below:
            values = below[part]
            written.append(str(part))
    return ".".join([*written, str(location[-1])] if missing else written)


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
