"""What is going on: status, updates, health, metrics."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from seedbed.v1 import engine_pb2 as pb
from seedbed_server.gateway import guards
from seedbed_server.gateway.answers import HealthAnswer, ReadyAnswer, StatusAnswer, UpdatesAnswer
from seedbed_server.gateway.document import answers
from seedbed_server.gateway.errors import json_response, unavailable
from seedbed_server.gateway.state import Gateway, gateway_of
from seedbed_server.learner import drop
from seedbed_server.learner.population import complete_members, episode_rewards, waiting_for
from seedbed_server.store import journal
from seedbed_server.store.lineage import record_of

if TYPE_CHECKING:
    from seedbed_server.gateway.guards import Pause
    from seedbed_server.learner import Control
    from seedbed_server.store.rows import JournalRow, PopulationRow

__all__ = ["router"]

MAX_UPDATES = 1000

METRICS = {"text/plain": {"schema": {"type": "string"}}}

router = APIRouter()


@router.get("/v1/status", responses=answers(StatusAnswer))
async def status(request: Request) -> Response:
    """Version, population, what it waits for, and whether the engine answers."""
    gateway = gateway_of(request)
    updates = gateway.updates
    population = gateway.leases.population
    guard = None if gateway.plan.rewards.drop is None else await gateway.store.read(guards.guard_of)
    return json_response(
        200,
        {
            "model": gateway.model,
            "version": updates.version,
            "digest": updates.digest.hex() or None,
            "population": None if population is None else _population(gateway),
            "sigma": None if population is None else population.sigma,
            "alpha": _alpha(gateway),
            "last_update": None if updates.last is None else last_update(updates.last),
            "last_population": None if updates.last_closed is None else last_population(updates.last_closed),
            "learning": learning(gateway, guard),
            "episodes": _episodes(gateway),
            "requests": {"in_flight": gateway.in_flight},
            "tokens": {"prompt": gateway.prompt_tokens, "completion": gateway.completion_tokens},
            "snapshot": None if gateway.snapshots.newest is None else gateway.snapshots.newest.version,
            "engine": gateway.link.state,
            "uptime_seconds": round(time.monotonic() - gateway.started, 3),
            "warnings": warnings(gateway),
        },
    )


@router.get("/v1/updates", responses=answers(UpdatesAnswer, 400, 503))
async def list_updates(
    request: Request,
    after: int = Query(0, ge=0, lt=2**63),
    limit: int = Query(MAX_UPDATES, ge=1, le=MAX_UPDATES),
) -> Response:
    """Published updates and rollbacks that make versions above `after`, oldest first, at most `limit`."""
    rows = await gateway_of(request).store.read(
        lambda connection: journal.after(connection, after, limit + 1)
    )
    data = [update(row) for row in rows if row.digest is not None]
    return json_response(200, {"object": "list", "data": data[:limit], "has_more": len(data) > limit})


@router.get("/healthz", responses=answers(HealthAnswer))
async def alive() -> Response:
    """The gateway runs."""
    return json_response(200, {"status": "ok"})


@router.get("/readyz", responses=answers(ReadyAnswer, 503))
async def ready(request: Request) -> Response:
    """Completions would be answered now."""
    gateway = gateway_of(request)
    _ = gateway.link.ready
    if gateway.leases.population is None:
        raise unavailable("the journal is not applied yet; try again in a few seconds", 2)
    return json_response(200, {"status": "ok", "version": gateway.updates.version})


@router.get("/metrics", responses=answers(None, content=METRICS), response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    gateway = gateway_of(request)
    gateway.metrics.engine_ready.set(gateway.link.state == "ready")
    gateway.metrics.paused.set(gateway.leases.paused is not None)
    return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def update(row: JournalRow) -> dict[str, Any]:
    """One update as users see it."""
    record = record_of(row)
    step, back = (record, None) if isinstance(record, pb.UpdateRecord) else (None, record)
    return {
        "version": row.version,
        "kind": row.kind,
        "to_version": None if back is None else back.to_version,
        "reason": None if back is None else back.reason,
        "population": row.population,
        "created_at": row.created_at,
        "applied_at": row.applied_at,
        "reward_mean": row.reward_mean,
        "reward_spread": row.reward_spread,
        "reward_min": row.reward_min,
        "reward_max": row.reward_max,
        "best_member": row.best_member,
        "members": row.members,
        "episodes": row.episodes,
        "sigma": row.sigma,
        "alpha": row.alpha,
        "decay": None if step is None else step.decay,
        "scale": row.scale,
        "seeds": None if step is None else len(step.seeds),
        "record_bytes": len(row.record),
        "seconds": row.seconds,
        "update_seconds": row.update_seconds,
        "digest_seconds": row.digest_seconds,
        "cosine": row.cosine,
        "retracted": row.retracted,
        "digest": None if row.digest is None else row.digest.hex(),
    }


def last_update(row: JournalRow) -> dict[str, Any]:
    """The same in short, for the status."""
    whole = update(row)
    step = ("alpha", "decay", "sigma", "scale", "seeds", "record_bytes", "cosine")
    head = ("version", "reward_mean", "reward_spread", "reward_min", "reward_max", "best_member", "members")
    return {
        **{name: whole[name] for name in head},
        "seconds": whole["seconds"],
        "step": {name: whole[name] for name in step},
    }


def warnings(gateway: Gateway) -> list[str]:
    """What an operator should look at."""
    found = []
    if gateway.leases.halted is not None:
        found.append(gateway.leases.halted)
    if gateway.link.state != "ready" and gateway.link.problem is not None:
        found.append(gateway.link.problem)
    if gateway.snapshots.problem is not None:
        found.append(gateway.snapshots.problem)
    counts, population = gateway.leases.counts, gateway.leases.population
    enough = population is not None and counts.implicit >= 2 * len(population.members)
    if enough and not counts.implicit_rewarded:
        found.append(
            f"{counts.implicit} episodes were opened by requests that named none, and none has a reward: "
            "post rewards with the episode or completion id of the answers, or give agents the base_url or "
            "the api_key of POST /v1/episodes"
        )
    if gateway.leases.paused is not None:
        found.append(paused(gateway.leases.paused))
    if _alpha(gateway) == 0:
        found.append("alpha is 0: members are explored and the weights do not move")
    closed = gateway.updates.last_closed
    if closed is not None and closed.outcome != "step":
        found.append(f"population {closed.number} made no step: {closed.outcome}")
    if closed is not None and closed.report is not None:
        found += [
            f"population {closed.number}: {finding['message']}"
            for finding in closed.report.get("findings", [])
        ]
    return found


def last_population(row: PopulationRow) -> dict[str, Any]:
    """The population that was closed last."""
    report = row.report or {}
    return {"id": row.number, "outcome": row.outcome, "closing": row.closing, **report}


def learning(gateway: Gateway, guard: Control | None) -> dict[str, Any]:
    """Whether it goes on, and the guard over the controls."""
    pause = gateway.leases.paused
    return {
        "estimator": gateway.plan.estimator_name,
        "paused": None if pause is None else asdict(pause),
        "on_drop": gateway.settings.on_drop,
        "guard": None
        if guard is None
        else {
            "controls": guard.seen,
            "evidence": drop.evidence(guard),
            "best": None if guard.best is None else asdict(guard.best),
        },
    }


def paused(pause: Pause) -> str:
    """Why nothing is explored, and how that ends."""
    return (
        f"learning is paused by the {pause.by} ({pause.reason}): the live model answers everything and no "
        "population closes. POST /v1/learning/resume goes on"
    )


def _alpha(gateway: Gateway) -> float:
    return gateway.plan.alpha(gateway.updates.made, time.time())


def _episodes(gateway: Gateway) -> dict[str, int]:
    """Episodes since the start of this gateway, those that no request named counted apart."""
    counts = gateway.leases.counts
    return {
        "opened": counts.opened,
        "implicit": counts.implicit,
        "implicit_continued": counts.continued,
        "implicit_rewarded": counts.implicit_rewarded,
    }


def _population(gateway: Gateway) -> dict[str, Any]:
    population = gateway.leases.population
    assert population is not None
    rewards = len(episode_rewards(population))
    episodes = sum(tally.episodes for tally in population.tallies)
    return {
        "id": population.number,
        "size": len(population.members),
        "episodes_per_member": population.episodes_per_member,
        "members_complete": complete_members(population),
        "rewards": rewards,
        "episodes_open": max(0, episodes - rewards),
        "waiting_for": waiting_for(population),
        "opened_at": population.opened_at,
        "stale_episodes": sum(len(item.rewards) for item in population.stale),
    }
