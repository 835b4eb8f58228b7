"""How the main process speaks to the schedulers: one request type of ours on SGLang's ordinary path.

The answer carries data, and the error of any rank is the error of the call. (SGLang's `collective_rpc` gives
no data back, blocks its caller's event loop and reports success when rank 1 failed.)
"""

from __future__ import annotations

import logging
from typing import Any

import torch.distributed
from sglang.srt.managers.io_struct import BaseReq, hook_custom_types

__all__ = [
    "ControlError",
    "ControlReply",
    "ControlRequest",
    "answer",
    "call",
    "install_main",
    "install_scheduler",
]

logger = logging.getLogger(__name__)


class ControlError(RuntimeError):
    """An operation failed on some rank. `kind` is the class name of what was raised there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ControlRequest(BaseReq, kw_only=True):  # type: ignore[misc, call-arg]
    """One operation of `seedbed_server.engine.operations` and its arguments, by name."""

    operation: str
    payload: dict[str, Any] = {}  # noqa: RUF012 (a struct, copied for each)


class ControlReply(BaseReq, kw_only=True):  # type: ignore[misc, call-arg]
    """Its result, or the class name and message of what it raised."""

    kind: str = ""
    message: str = ""
    payload: dict[str, Any] = {}  # noqa: RUF012 (a struct, copied for each)


hook_custom_types(ControlRequest, ControlReply)


def answer(scheduler: Any, request: ControlRequest) -> ControlReply:
    """Runs one operation on this rank and gathers what every rank says of it."""
    from seedbed_server.engine.operations import OPERATIONS

    kind, message, payload = "", "", {}
    try:
        payload = OPERATIONS[request.operation](scheduler, request.payload)
    except Exception as error:
        logger.exception("operation %s failed", request.operation)
        kind, message = type(error).__name__, str(error)
    group = scheduler.tp_group.cpu_group
    answers: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(answers, (kind, message, payload), group=group)
    failed = next((a for a in answers if a[0]), None)
    if failed:
        return ControlReply(kind=failed[0], message=failed[1])
    return ControlReply(payload=answers[0][2])


def install_scheduler(scheduler: Any) -> None:
    """Makes a scheduler answer our requests."""
    from sglang.utils import TypeBasedDispatcher

    scheduler._request_dispatcher += TypeBasedDispatcher([(ControlRequest, lambda r: answer(scheduler, r))])


def install_main(tokenizer_manager: Any) -> None:
    """Gives the main process a place to await the answers."""
    from sglang.srt.managers.communicator import FanOutCommunicator
    from sglang.utils import TypeBasedDispatcher

    communicator: Any = FanOutCommunicator(tokenizer_manager._dispatch_to_scheduler, 1)
    tokenizer_manager.seedbed = communicator
    tokenizer_manager._result_dispatcher += TypeBasedDispatcher([(ControlReply, communicator.handle_recv)])


async def call(tokenizer_manager: Any, operation: str, **payload: Any) -> dict[str, Any]:
    """Runs one operation on every rank, between two batches. Raises ControlError."""
    tokenizer_manager.auto_create_handle_loop()
    (reply,) = await tokenizer_manager.seedbed(ControlRequest(operation=operation, payload=payload))
    if reply.kind:
        raise ControlError(reply.kind, reply.message)
    return dict(reply.payload)
