"""`recovery redrive`: start the next driver of each session until every one has finished, or is parked with a reason.

One redriver for a session: it holds the lock `redriver.lock` in the state directory, so that another is refused by name; where two are at
work all the same, epochs fence. It holds no handle on a log while it waits, and drives nothing itself.
"""

import contextlib
import json
import os
import random
import select
from collections.abc import Mapping, Sequence

import msgspec

from eventlog import steps
from eventlog.errors import BusyError, MisuseError
from eventlog.show import show_text
from recovery.driver.order import Ports, tell
from recovery.opening import check_log_exists, log_path, should_exist
from recovery.redrive.lock import claim
from recovery.redrive.policy import Limits
from recovery.redrive.pool import Pool
from recovery.redrive.record import RedriveRecord, load_record
from recovery.redrive.session import Redrive
from recovery.redrive.world import Child, LocalWorld
from recovery.words import name_state

BUSY = 1
INTERRUPTED = 130
LONGEST_PAUSE_SECS = 0.5


class RedriveOrder(msgspec.Struct, frozen=True):
    """What is asked for: state directories or directories of them, and how they are driven."""

    places: tuple[str, ...]
    limits: Limits
    seed: int | None
    is_warm: bool
    is_retried: bool
    on_interrupted: str = ""
    accept_outside: str = ""


def redrive(order: RedriveOrder, environment: Mapping[str, str], ports: Ports) -> int:
    """Redrive every session; the exit code. 0: all have finished; 78: one is parked; 1: one has another redriver.

    Raises MisuseError, LogMissingError before anything is started.
    """
    if environment.get("SESSION_EPOCH"):
        raise MisuseError("SESSION_EPOCH is set, and a redriver issues each driver's epoch itself; unset it")
    states = find_states(order.places)
    steps.enter("redriver", 0)
    pool = Pool(with_heartbeat(environment, order.limits), ports.host, order.is_warm)
    with contextlib.ExitStack() as held:
        held.callback(pool.close)
        chance = random.Random(order.seed)
        made = [_begin(state, order, pool, chance, ports, held, len(states) == 1) for state in states]
        sessions = [session for session in made if session is not None]
        try:
            _run(sessions, pool, ports)
        except KeyboardInterrupt:
            tell("recovery: interrupted; drivers that run go on, and `recovery redrive` finds them")
            return INTERRUPTED
    worst = max((session.code or 0 for session in sessions), default=0)
    return worst or (BUSY if None in made else 0)


def _begin(
    state: str, order: RedriveOrder, pool: Pool, chance: random.Random, ports: Ports, held: contextlib.ExitStack, is_alone: bool
) -> Redrive | None:
    """The redriver of one session, which this process is until `held` ends; None where another process is."""
    name = show_text(state)

    def tell_of(line: str) -> None:
        tell(name_state(line, state))

    try:
        held.enter_context(claim(state, ports.clock))
    except BusyError as error:
        tell(f"recovery: {error}")
        return None
    except OSError as error:
        tell(f"recovery: {name}: {error.strerror or error}; nothing was started")
        return None
    world = LocalWorld(state, pool, ports.clock, ports.host, order.on_interrupted, order.accept_outside, is_alone)
    return Redrive(name, world, order.limits, ports.clock, chance, tell_of, order.is_retried)


def find_states(places: Sequence[str]) -> list[str]:
    """The state directories that are meant, each once: a state directory, or the ones directly in a directory. Raises MisuseError,
    LogMissingError."""
    found: dict[str, None] = {}
    for place in places:
        for state in _states_of(place):
            found[os.path.realpath(state)] = None
    return list(found)


def _states_of(place: str) -> list[str]:
    if os.path.exists(log_path(place)) or not os.path.isdir(place) or should_exist(place):
        check_log_exists(place)
        return [place]
    inside = [entry.path for entry in sorted(os.scandir(place), key=lambda entry: entry.name) if entry.is_dir()]
    states = [path for path in inside if os.path.exists(log_path(path)) or should_exist(path)]
    if not states:
        check_log_exists(place)  # raises: neither a state directory nor a directory of them
    return states


def with_heartbeat(environment: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """The drivers' environment: they say that they live four times within a stall, where nobody says otherwise."""
    made = dict(environment)
    if limits.stall_secs and not made.get("SESSION_HEARTBEAT_SECS"):
        made["SESSION_HEARTBEAT_SECS"] = f"{limits.stall_secs / 4:g}"
    return made


def _run(sessions: Sequence[Redrive], pool: Pool, ports: Ports) -> None:
    while open_ones := [session for session in sessions if session.code is None]:
        now = ports.clock.monotonic()
        for session in open_ones:
            if session.due <= now or (session.watched is not None and session.watched.driver.has_ended()):
                session.step()
        left = [session for session in sessions if session.code is None]
        if left and not _wait(left, ports):
            pool.refill()  # not while a driver that was just told needs the processors


def _wait(sessions: Sequence[Redrive], ports: Ports) -> bool:
    """Until something is due, or (True) a child has ended."""
    due = min(session.due for session in sessions) - ports.clock.monotonic()
    poll = select.poll()
    for session in sessions:
        if session.watched is not None and isinstance(session.watched.driver, Child):
            poll.register(session.watched.driver.idle.descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, min(due, LONGEST_PAUSE_SECS)) * 1000))


def print_histories(places: Sequence[str], as_json: bool) -> int:
    """The attempts of each session as its redriver recorded them; the exit code. Raises MisuseError, LogMissingError, CorruptError."""
    for state in find_states(places):
        record = load_record(state)
        if as_json:
            print(json.dumps({"state": show_text(state), **msgspec.to_builtins(record)}))
        else:
            lines = _describe_record(record) or ["no redriver was ever at work on it"]
            print("\n".join(f"{show_text(state)}: {line}" for line in lines))
    return 0


def _describe_record(record: RedriveRecord) -> list[str]:
    lines = [f"{record.dropped} older attempts are not kept"] if record.dropped else []
    for one in record.attempts:
        ended = one.ended or "no end seen"
        lines.append(f"attempt {one.number} epoch {one.epoch} pid {one.driver.pid} after {one.delay_ms / 1000:.1f} s ({one.why}): {ended}")
    if record.ready is not None:
        lines.append(f"the next start is counted ahead: epoch {record.ready.epoch} pid {record.ready.driver.pid}")
    if record.parked is not None:
        lines.append(f"parked ({record.parked.kind}): {record.parked.reason}")
    if record.is_finished:
        lines.append("finished")
    return [show_text(line) for line in lines]
