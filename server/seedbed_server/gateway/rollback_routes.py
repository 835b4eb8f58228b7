"""/v1/learning/rollback: an older version's weights, brought back."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed.v1.journal_pb2 import RollbackRecord
from seedbed_server.gateway.answers import RollbackAnswer
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import bad_request, json_response
from seedbed_server.gateway.rollback import roll_back
from seedbed_server.gateway.shapes import WHOLE
from seedbed_server.gateway.spoken import spoken
from seedbed_server.gateway.state import gateway_of
from seedbed_server.store.lineage import record_of

__all__ = ["RollbackTerms", "router"]

MAX_BODY = 1 << 16
SECONDS = 60.0
"""How long an answer is kept waiting; what is on its way by then goes on by itself."""

router = APIRouter()


class RollbackTerms(BaseModel):
    """Which version to go back to. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    to_version: Annotated[int, Field(ge=0, lt=2**63), WHOLE] = Field(
        description="A version before the live one; 0: the base."
    )
    reason: Annotated[str, Field(max_length=500)] = Field("requested", description="Kept in the journal.")


@router.post(
    "/v1/learning/rollback",
    responses={
        **answers(RollbackAnswer, 400, 408, 413, 429, 500, 503),
        202: {"description": "It is in the journal and on its way.", "model": RollbackAnswer},
    },
    openapi_extra=body(RollbackTerms),
)
async def rollback(request: Request) -> Response:
    """Makes a new version with the weights of an older one; nothing is deleted. Repeating it is safe."""
    terms = _parse(await read_body(request, MAX_BODY))
    row, live = await roll_back(gateway_of(request).updates, terms.to_version, terms.reason, SECONDS)
    record = record_of(row)
    assert isinstance(record, RollbackRecord)
    return json_response(
        200 if live else 202,
        {
            "object": "rollback",
            "status": "done" if live else "pending",
            "version": row.version,
            "to_version": record.to_version,
            "digest": record.to_digest.hex(),
            "reason": record.reason,
        },
    )


def _parse(data: bytes) -> RollbackTerms:
    """The posted terms. Raises ApiError 400."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object")
    try:
        return RollbackTerms.model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None
