"""Bodies of posted rewards, as they are checked and published."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seedbed_server.gateway.association import HEADER, Named, agreed, other_episode
from seedbed_server.gateway.errors import ApiError, bad_request
from seedbed_server.gateway.shapes import WHOLE
from seedbed_server.gateway.spoken import shown, spoken
from seedbed_server.gateway.verdicts import Posted
from seedbed_server.learner import Given, bounded

if TYPE_CHECKING:
    from seedbed_server.gateway.association import Identity
    from seedbed_server.learner import Bounds

__all__ = [
    "MAX_REWARDS",
    "EpisodeFeedback",
    "Feedback",
    "FeedbackBatch",
    "check_within",
    "parse",
    "parse_batch",
    "within_bounds",
]

MAX_REWARDS = 64

Id = Annotated[str, Field(min_length=1, max_length=256)]


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": "string"}}}


# What the document says of fields that need one another.
_TARGET: Any = {"anyOf": [_given("episode_id"), _given("completion_id")]}
_CHOICE: Any = {"anyOf": [{"properties": {"choice": {"type": "null"}}}, _given("completion_id")]}


class EpisodeFeedback(BaseModel):
    """One reward below the base URL of an episode, which is its target if no completion is named."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": [_CHOICE]})

    completion_id: Id | None = None
    choice: Annotated[int, Field(ge=0, lt=2**31), WHOLE] | None = None
    reward: float
    reward_id: Id | None = None
    feedback_text: Annotated[str, Field(max_length=65536)] | None = None
    final: bool | None = Field(
        None,
        description="false: more rewards follow for the episode, which counts when they are there, or "
        "when it ends. true: none follow; the episode ends.",
    )


class Feedback(EpisodeFeedback):
    """One reward. Fields that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": [_CHOICE, _TARGET]})

    episode_id: Id | None = None


class FeedbackBatch(BaseModel):
    """Many rewards. They are judged in their order and kept together."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rewards: Annotated[list[Feedback], Field(min_length=1, max_length=MAX_REWARDS)]


def check_within(feedback: Feedback, identity: Identity, in_path: str | None) -> None:
    """Raises ApiError for a target outside the episode that key, base URL or header name."""
    within = identity.episode_id
    if within is None or feedback.episode_id in (None, within):
        return
    assert feedback.episode_id is not None
    if identity.session is not None:
        raise other_episode(within, feedback.episode_id)
    source = "the base URL" if in_path is not None else f"the header {HEADER}"
    agreed((Named("id", source, within), Named("episode_id", "the body", feedback.episode_id)))


def within_bounds(feedback: Feedback, bounds: Bounds) -> Posted:
    """The reward within the server's bounds. Raises ApiError 400 for one that they refuse."""
    try:
        reward = bounded(feedback.reward, bounds)
    except ValueError as error:
        raise bad_request(str(error), param="reward", code="out_of_bounds") from None
    given = Given(feedback.episode_id, feedback.completion_id, reward, feedback.reward_id, feedback.choice)
    return Posted(given, feedback.feedback_text, feedback.final)


def parse(data: bytes, within: str | None = None) -> Feedback:
    """The posted reward, which is for the episode `within` if it names no target.

    Raises ApiError 400 that names the field, the value and the remedy.
    """
    return _parsed(_object(data), within)


def parse_batch(data: bytes, bounds: Bounds, identity: Identity) -> list[Posted]:
    """The posted rewards. Raises ApiError 400 that names place, field, value and remedy."""
    values = _object(data)
    for name in values:
        if name != "rewards":
            raise bad_request(f"{name}: there is no such field; send the list `rewards`", param=name)
    items = values.get("rewards")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_REWARDS:
        raise bad_request(f"rewards: send a list of 1 to {MAX_REWARDS} rewards", param="rewards")
    posted = []
    for place, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise bad_request(f"{shown(item)} is no reward; send an object")
            feedback = _parsed(item, identity.episode_id)
            check_within(feedback, identity, None)
            posted.append(within_bounds(feedback, bounds))
        except ApiError as error:
            param = f"rewards.{place}" + (f".{error.param}" if error.param else "")
            raise ApiError(
                error.status, f"rewards.{place}: {error.message}", param=param, code=error.code
            ) from None
    return posted


def _object(data: bytes) -> dict[str, Any]:
    try:
        # The standard parser takes NaN and Infinity, so that the message can name the field they are in.
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"body: it is not JSON ({error}); send one JSON object") from None
    if not isinstance(values, dict):
        raise bad_request(f"body: {type(values).__name__} given; send one JSON object")
    return values


def _parsed(values: dict[str, Any], within: str | None) -> Feedback:
    reward = values.get("reward")
    if "reward" not in values or reward is None:
        raise bad_request("reward: it is missing; send a finite number", param="reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise bad_request(f"reward: {shown(reward)} is not a number; send a finite number", param="reward")
    try:
        values["reward"] = float(reward)
    except OverflowError:
        values["reward"] = math.inf
    if not math.isfinite(values["reward"]):
        raise bad_request(
            f"reward: {shown(reward)} is not finite; send a finite number, or nothing if there is no reward",
            param="reward",
        )
    try:
        posted = Feedback.model_validate(values)
    except ValidationError as error:
        raise spoken(error, values) from None
    if posted.choice is not None and posted.completion_id is None:
        raise bad_request(
            f"completion_id: it is missing, and choice {posted.choice} was given; name the completion of the "
            "choice",
            param="completion_id",
        )
    if posted.episode_id is None and posted.completion_id is None:
        if within is None:
            raise bad_request(
                "episode_id: neither it nor completion_id is given; send one of the two", param="episode_id"
            )
        return posted.model_copy(update={"episode_id": within})
    return posted
