"""The pause of learning, and the guard over the controls that may ask for one: jobs inside the store's
transaction, so that a restart finds both as they were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from seedbed_server.learner import Control, drop, observe_control, verdict
from seedbed_server.store import learning

if TYPE_CHECKING:
    import sqlalchemy as sa

    from seedbed_server.gateway.plan import RewardRules

__all__ = ["Pause", "guard_of", "observe", "pause", "pause_of", "restart", "resume", "rolled_back", "stay"]


@dataclass(frozen=True)
class Pause:
    """Why nothing is explored and no population closes, although everything is served."""

    at: float
    by: Literal["operator", "guard"]
    reason: str
    roll_back_to: int | None = None
    """The version to go back to, after which learning goes on."""


def pause_of(connection: sa.Connection) -> Pause | None:
    """The pause, or None while learning goes on."""
    value = learning.get(connection, learning.PAUSE)
    return None if value is None else Pause(**value)


def pause(connection: sa.Connection, wanted: Pause) -> Pause:
    """Pauses learning; a pause that is there already stays. Returns the one that holds."""
    found = pause_of(connection)
    if found is None:
        learning.put(connection, learning.PAUSE, asdict(wanted))
    return found or wanted


def resume(connection: sa.Connection) -> Pause | None:
    """Ends the pause, and starts the guard again from what it knows is best. Returns what it ended."""
    found = pause_of(connection)
    if found is not None:
        learning.forget(connection, learning.PAUSE)
        restart(connection)
    return found


def restart(connection: sa.Connection, since: int | None = None) -> None:
    """Takes the guard's evidence away. Controls of versions before `since` say nothing from now on."""
    control, before = _guard(connection)
    if control is not None:
        _keep(connection, drop.restart(control), before if since is None else since)


def stay(connection: sa.Connection) -> None:
    """There is nothing to go back to: the guard's pause stays, until somebody resumes."""
    found = pause_of(connection)
    if found is not None and found.roll_back_to is not None:
        learning.put(connection, learning.PAUSE, asdict(replace(found, roll_back_to=None)))


def rolled_back(connection: sa.Connection, version: int) -> None:
    """A rollback made `version`: what the guard asked for is done, and only controls from there on count."""
    found = pause_of(connection)
    if found is not None and found.by == "guard":
        learning.forget(connection, learning.PAUSE)
    restart(connection, version)


def guard_of(connection: sa.Connection) -> Control:
    """What the guard knows."""
    return _guard(connection)[0] or Control()


def observe(
    connection: sa.Connection, rules: RewardRules, reward: float, version: int, now: float
) -> Pause | None:
    """Shows the guard the reward of one control. Returns the pause that it decided on, which is kept."""
    if rules.drop is None:
        return None
    control, since = _guard(connection)
    if version < since:
        return None
    control = observe_control(control or Control(), rules.drop, reward, version)
    _keep(connection, control, since)
    alarm = verdict(control, rules.drop)
    if alarm is None or pause_of(connection) is not None:
        return None
    back = alarm.best.last_version if rules.roll_back else None
    return pause(connection, Pause(now, "guard", alarm.message, back))


def _guard(connection: sa.Connection) -> tuple[Control | None, int]:
    value = learning.get(connection, learning.GUARD)
    return (None, 0) if value is None else (drop.from_json(value["control"]), value["since"])


def _keep(connection: sa.Connection, control: Control, since: int) -> None:
    learning.put(connection, learning.GUARD, {"control": drop.to_json(control), "since": since})
