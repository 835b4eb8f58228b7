"""/v1/learning: pausing, going on, and closing a population with what is there."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed_server.gateway import guards
from seedbed_server.gateway.answers import LearningAnswer, StepAnswer
from seedbed_server.gateway.bodies import read_body
from seedbed_server.gateway.document import answers, body
from seedbed_server.gateway.errors import bad_request, json_response
from seedbed_server.gateway.forcing import force_step
from seedbed_server.gateway.guards import Pause
from seedbed_server.gateway.spoken import spoken
from seedbed_server.gateway.state import gateway_of

if TYPE_CHECKING:
    from seedbed_server.gateway.state import Gateway

__all__ = ["PauseTerms", "router"]

MAX_BODY = 1 << 16
SECONDS = 60.0
"""How long a step waits for an update before it."""

router = APIRouter()


class PauseTerms(BaseModel):
    """Why learning is paused. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        "requested", description="Shown in the status."
    )


@router.post(
    "/v1/learning/pause",
    responses=answers(LearningAnswer, 400, 408, 413, 429, 500, 503),
    openapi_extra=body(PauseTerms, required=False),
)
async def pause(request: Request) -> Response:
    """Nothing is explored and no population closes until it is resumed, also over a restart.

    The live model answers new episodes, those under way go on, and rewards are kept. A pause that is there
    already stays as it is.
    """
    gateway = gateway_of(request)
    terms = _parse(await read_body(request, MAX_BODY))
    wanted = Pause(time.time(), "operator", terms.reason)
    gateway.leases.paused = await gateway.store.write(lambda connection: guards.pause(connection, wanted))
    gateway.leases.poke()
    return _shown(gateway)


@router.post("/v1/learning/resume", responses=answers(LearningAnswer, 429, 500, 503))
async def resume(request: Request) -> Response:
    """Learning goes on where it was; the guard over the controls begins anew with the best that it knows."""
    gateway = gateway_of(request)
    await gateway.store.write(guards.resume)
    gateway.leases.paused = None
    gateway.leases.poke()
    return _shown(gateway)


@router.post("/v1/learning/step", responses=answers(StepAnswer, 409, 429, 500, 503))
async def step(request: Request) -> Response:
    """Closes the open population with whatever two members or more have.

    Answered once that is on disk; `version` is the one that the update makes, null if there is none.
    """
    closed = await force_step(gateway_of(request).updates, SECONDS)
    return json_response(
        200,
        {
            "object": "step",
            "population": closed.population.number,
            "outcome": closed.population.outcome,
            "version": None if closed.row is None else closed.row.version,
        },
    )


def _shown(gateway: Gateway) -> Response:
    held = gateway.leases.paused
    return json_response(200, {"object": "learning", "paused": None if held is None else asdict(held)})


def _parse(data: bytes) -> PauseTerms:
    """The posted terms; no body at all is a pause without a reason. Raises ApiError 400."""
    try:
        values = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object, or nothing") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object, or nothing")
    try:
        return PauseTerms.model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None
