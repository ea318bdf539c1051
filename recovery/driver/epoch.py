"""A driver's epoch, from its identity file to the clean end: floor, ledger, takeover (T1 to T3), and the context for what follows."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from eventlog import durable, events, steps
from eventlog.errors import CorruptError, CrashworthyError, LogMissingError, ReplacedError, ScanError
from eventlog.identity_files import DRIVE, Writing, forget_dead, highest_intended, leave_identity
from eventlog.later import later
from eventlog.ports import Clock
from eventlog.process_identity import identify_self
from eventlog.show import show_text
from eventlog.values import Epoch, StreamId
from eventlog.writer import Writer
from recovery.context import Context
from recovery.driver.begin import Begun, space_override
from recovery.driver.heartbeat import Heartbeat, watch_floor
from recovery.driver.order import tell
from recovery.facts import LOST_ROOTS, LedgerFact
from recovery.gather import is_newer, open_ledger_fact
from recovery.journal import Journal
from recovery.opening import log_path, scan_cache_path, space_paths
from recovery.redrive.record import issued_epoch
from recovery.root import observe_root
from recovery.space.condemned import Trust
from recovery.space.containers import hold_namespace
from recovery.space.epochs import check_epoch
from recovery.space.ledger import Ledger, readable_floor
from recovery.space.local import LocalSpace
from recovery.state import SessionState
from recovery.takeover import take_over
from recovery.unlock import Unlock
from recovery.workspace.scan import Scanner
from recovery.workspace.watch import Watch

if TYPE_CHECKING:
    from recovery import new_ledger
else:
    new_ledger = later("recovery.new_ledger")  # where the ledger is not the one in force

Found = Ledger | LogMissingError | CorruptError
"""A ledger that could be opened, or why none could."""
LOG_IS_DOUBTED = (CorruptError, LogMissingError, ReplacedError)
"""Errors after which nobody can count on the log for the epoch that was raised in it."""


@contextmanager
def under_epoch(
    begun: Begun, spawner: socket.socket, say: Callable[[str], None], tell: Callable[[str], None] = tell
) -> Iterator[Context | None]:
    """Take a session over under the next epoch, and hold it until the body ends; None where another driver has finished it meanwhile.

    `spawner` was forked before any thread and any handle on the log; `say` gets the protocol's lines, `tell` those for people. The
    identity file goes when this ends by itself with its epoch on record: whoever dies, meets a bug, fails before its floor stands in the
    log or can no longer count on the log leaves word of the epoch that it meant to have (L1, L4). A process that was forked from this one
    ends nothing of it.

    Raises StaleEpochError, FenceIncompleteError, NeedsPersonError, and what opening log and ledger raises.
    """
    order, ports = begun.order, begun.ports
    paths = space_paths(order.state)
    ledger = _open_ledger(paths.ledger, ports.clock)
    epoch = begun.settings.epoch or _next_epoch(order.state, begun.known[0], ledger)
    hold_namespace(paths.directory, ports.host)
    driver, identity_file = _leave_identity(begun, epoch)
    unlock = Unlock(order.state, epoch, ports.clock, ports.host, tell)
    journal = _open_journal(begun, ledger, epoch, unlock, tell)
    is_on_record = goes = False
    try:
        opened = journal.state.opened
        started = events.DriverStarted(ports.clock.now_ms(), driver, opened.ledger_id, journal.state.generation, begun.setting.kind)
        is_raised = journal.raise_floor(started)
        is_on_record = True  # where it was not raised the session has finished: no epoch follows
        if is_raised:
            steps.reach("floor.raised")
            forget_dead(order.state, epoch, ports.host)
            context = _take_over(begun, spawner, journal, ledger, unlock, say, tell)
            with Heartbeat(epoch, begun.settings.heartbeat_secs, ports.clock, say, _progress(journal), watch_floor(paths.ledger, epoch)):
                yield context
            if context.scanner is not None:
                context.scanner.save()
            context.space.close()
            journal.tidy(ports.clock)
        else:
            yield None
        goes = True
    except (CrashworthyError, OSError) as error:
        goes = is_on_record and not isinstance(error, LOG_IS_DOUBTED)
        raise
    finally:
        if os.getpid() == driver.pid:
            journal.close()
            if goes:
                _forget_identity(identity_file)


def _forget_identity(path: str) -> None:
    """Remove the identity file. It may be gone: a newer driver that found this process dead removes it, and so does a person."""
    with suppress(FileNotFoundError):
        durable.unlink(path, "identity")


def _leave_identity(begun: Begun, epoch: int) -> tuple[events.DriverIdentity, str]:
    """Who this driver is, and the file that says so (L4)."""
    ports = begun.ports
    identity = identify_self(ports.host)
    nonce = ports.ids.new_id().hex()
    identity_file = leave_identity(begun.order.state, Writing(nonce, identity, epoch, DRIVE))
    try:
        begun.hold()  # again: a release that saw no driver here may have let go of the workspace; from now on it sees one
    except CrashworthyError:
        durable.unlink(identity_file, "identity")
        raise
    return events.DriverIdentity(nonce, identity.pid, identity.start_ticks, identity.boot_id, identity.pid_namespace), identity_file


def _open_journal(begun: Begun, ledger: Found, epoch: int, unlock: Unlock, tell: Callable[[str], None]) -> Journal:
    """The log for writing; from here on who holds its lock or the ledger's is judged (L4)."""
    state, settings, ports = begun.order.state, begun.settings, begun.ports
    if isinstance(ledger, Ledger):
        ledger.judge_holders(settings.lock_secs, unlock.free_ledger(ledger))
    busy_ms = max(1, round(settings.lock_secs * 1000))
    writer = Writer.open(log_path(state), ports.ids, unlock=unlock.free_log, busy_ms=busy_ms)
    writer.on_pinned_wal = lambda pinned: tell(f"{show_text(state)}: {pinned}; it grows until that ends")
    return Journal(writer, StreamId(begun.name), Epoch(epoch), begun.known, begun.fold_cache)


def _take_over(
    begun: Begun, spawner: socket.socket, journal: Journal, found: Found, unlock: Unlock, say: Callable[[str], None],
    tell: Callable[[str], None],
) -> Context:  # fmt: skip
    """Fates and kills (T2, T3), with the ledger made anew where it is not the one in force (D2), then all that the driver holds from here
    on."""
    order, settings, ports = begun.order, begun.settings, begun.ports
    epoch, paths = journal.epoch, space_paths(order.state)
    trust = Trust(settings.container_ends_all, order.act is not None and order.act.are_processes_dead)
    ledger, is_made_here = _sound_ledger(begun, journal, found, unlock, trust)
    # Where the workspace is gone nothing that runs is adopted, so nothing is claimed (D3).
    may_claim = (order.act is None or order.act.may_claim) and not _is_root_lost(begun.root, journal.state)
    sweep = take_over(
        ledger, journal.state, journal.hashes, journal.log_id, epoch, paths, ports.clock, ports.host, may_claim, trust, is_made_here
    )  # fmt: skip
    space = LocalSpace(
        spawner, paths, ledger, begun.setting, epoch, ports.clock, ports.host, journal.check_fence, bubblewrap=begun.bubblewrap
    )  # fmt: skip
    space.tell = tell
    space.silent_secs = settings.silent_secs
    scanner = Scanner(
        begun.root, journal.state.profile, cache_path=scan_cache_path(order.state), boot_id=ports.host.boot_id(),
        is_fresh=order.act is not None and order.act.is_fresh,
    )  # fmt: skip
    return Context(
        ports.clock, ports.host, ports.ids, begun.root, settings.command_environment, paths, journal, ledger, space, say, tell, sweep,
        order.accept_outside, scanner, Watch(begun.root) if settings.hints == "watch" else None, settings.left_behind,
        space_override(settings), begun.vault, order.accept_lost,
    )  # fmt: skip


def _open_ledger(path: str, clock: Clock) -> Found:
    try:
        return Ledger(path, clock)
    except (LogMissingError, CorruptError) as error:
        return error


def _is_root_lost(root: str, state: SessionState) -> bool:
    """Whether the workspace is seen to be lost; one that cannot be looked at, or may not be mounted, may come back with all that runs."""
    try:
        return observe_root(root, state) in LOST_ROOTS
    except ScanError:
        return False


def _sound_ledger(begun: Begun, journal: Journal, found: Found, unlock: Unlock, trust: Trust) -> tuple[Ledger, bool]:
    """The ledger in force, and whether it was made here."""
    fact = open_ledger_fact(found, journal.state)
    if isinstance(found, Ledger) and fact is LedgerFact.SOUND:
        return found, False
    order, settings, ports = begun.order, begun.settings, begun.ports
    renewal = new_ledger.Renewal(
        journal, space_paths(order.state), ports.clock, ports.host, trust, settings.lock_secs, unlock.free_lock, tell
    )  # fmt: skip
    if isinstance(found, Ledger) and is_newer(found, journal.state):
        return new_ledger.keep_newer(renewal, found), False
    made = new_ledger.renew_ledger(renewal, found, fact)
    made.judge_holders(settings.lock_secs, unlock.free_ledger(made))
    return made, True


def _next_epoch(state: str, session: SessionState, ledger: Found) -> int:
    """L1: one above everything that was ever used or intended, as far as it can be read (I5)."""
    ledger_floor = ledger.state.floor if isinstance(ledger, Ledger) else 0
    if not isinstance(ledger, Ledger) or open_ledger_fact(ledger, session) is not LedgerFact.SOUND:
        ledger_floor = max(ledger_floor, readable_floor(space_paths(state).ledger, session.opened.ledger_id))
    return check_epoch(max(session.floor, ledger_floor, highest_intended(state), issued_epoch(state)) + 1)


def _progress(journal: Journal) -> Callable[[], int]:
    return lambda: sum(call.ended is not None for call in journal.state.calls)
