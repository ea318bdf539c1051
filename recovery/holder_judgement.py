"""Whether a process that does not let go of a lock may be ended (rule L4). Pure.

Only a process of an older epoch of this very session may: a driver by its identity file, a spawner, shim or file worker by what the
ledger says of it, or, where it has not come to stand there yet, by the mark of its epoch (recovery/space/epoch_mark.py). An epoch is
older when it is below the one that the judging driver intends to have, whether or not the log's floor has been raised yet. A command of
`eventlog` has no epoch and may be at long work (a compaction): it is named and left alone, like any stranger.
"""

from collections.abc import Iterator, Sequence

import msgspec

from eventlog.identity_files import Writing
from eventlog.process_identity import ProcessIdentity
from recovery.space.records import Attempt, LedgerState


class Suspect(msgspec.Struct, frozen=True):
    """What is known of a lock's holder: who it is, and the epoch under which it bears the mark of this space (None: it bears none)."""

    identity: ProcessIdentity | None
    marked_epoch: int | None = None


class End(msgspec.Struct, frozen=True):
    """It is a process of this older epoch: it is ended."""

    identity: ProcessIdentity
    epoch: int


class Leave(msgspec.Struct, frozen=True):
    """It is left alone, and named. `reason` is a clause for the person who reads of it, "" where the name says all."""

    reason: str = ""


def judge_holder(suspect: Suspect, writing: Sequence[Writing], ledger: LedgerState | None, mine: int) -> End | Leave:
    """`writing` are the identity files of the session, `ledger` what its ledger says (None for the log's lock: only drivers take it),
    `mine` is the epoch that the judging driver intends to have."""
    identity = suspect.identity
    if identity is None:
        return Leave()
    if any(one.identity == identity and not one.is_driver for one in writing):
        return Leave("it is a command at work on this log, and has no epoch to be superseded in")
    if ledger is not None and any(_would_lose_proof(attempt, identity) for attempt in ledger.attempts.values()):
        return Leave("it is the shim of a command whose end could not be proved without it (environment mark); let it go on")
    epoch = _find_epoch(suspect, identity, writing, ledger)
    if epoch is None:
        return Leave()
    if epoch >= mine:
        return Leave(f"it belongs to epoch {epoch}, which is not older than {mine}")
    return End(identity, epoch)


def _find_epoch(suspect: Suspect, identity: ProcessIdentity, writing: Sequence[Writing], ledger: LedgerState | None) -> int | None:
    """The newest epoch of which the process is known to be, None for a stranger."""
    known = [(one.identity, one.epoch) for one in writing if one.is_driver]
    marked = [] if suspect.marked_epoch is None else [suspect.marked_epoch]
    if ledger is not None:
        known += [(helper.registered.identity, helper.registered.epoch) for helper in ledger.helpers.values()]
        known += _started(ledger)
    return max((*marked, *(epoch for one, epoch in known if one == identity)), default=None)


def _started(ledger: LedgerState) -> Iterator[tuple[ProcessIdentity, int]]:
    for attempt in ledger.attempts.values():
        if attempt.start is not None:
            yield attempt.start.identity, attempt.epoch


def _would_lose_proof(attempt: Attempt, identity: ProcessIdentity) -> bool:
    """Whether this process is the shim of an attempt under the environment mark that may have a living command (rule S8)."""
    return (
        attempt.start is not None
        and attempt.start.identity == identity
        and attempt.exit is None
        and attempt.prepared.kind == "command"
        and attempt.prepared.mark.startswith("environment:")
    )
