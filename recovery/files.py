"""The file worker as the driver uses it: started when an epoch first has a workspace path to change, not before.

A drive that only adopts, reattaches or runs commands starts none: a process that is not there cannot be frozen inside a rename. What must
hold: the side directory is readied, and the root marked with its identity, by the worker under a ledger record of its own (S6, R2).
"""

from typing import Literal

import msgspec

from eventlog import events
from recovery.context import Context
from recovery.space.keys import announce
from recovery.space.protocol import EmptyQuarantine, PrepareSide, TakeRoot
from recovery.space.records import Prepare
from recovery.workspace.side import read_root_identity


def ready_side(context: Context) -> str:
    """The side directory, with a file worker of this epoch that serves; both are made ready at the first call.

    Raises NeedsPersonError when the root is another's, LostProcessError, StaleEpochError.
    """
    if context.space.side is None:
        _serve(context)
        context.space.side = _prepare_side(context)
    return context.space.side


def take_root(context: Context, how: Literal["rebuilt", "accepted"]) -> events.RootRecorded:
    """Have the worker make the root (`rebuilt`: nothing, or an empty directory, is there) or mark the one a person `accepted`, under a
    new id: an old root that comes back is told from it (R6). What is returned says so, for the caller to commit.

    Raises NeedsPersonError, LostProcessError, StaleEpochError.
    """
    _serve(context)
    key = _prepare(context, "root")
    done = context.space.change_files(TakeRoot(context.epoch, key, context.ids.new_id().hex(), how == "accepted"))
    context.space.side = None  # of the root that was there before, if of any
    return events.RootRecorded(context.clock.now_ms(), how, msgspec.convert(done.detail["identity"], events.RootIdentity))


def _serve(context: Context) -> None:
    if not context.space.has_worker:
        context.space.start_worker(context.root)


def mark_root(context: Context) -> None:
    """Have the root marked with its identity when it bears none yet (R6)."""
    if read_root_identity(context.root).id is None:
        ready_side(context)


def empty_quarantine(context: Context, directories: list[str]) -> int:
    """Have the file worker delete these directories of the quarantine (side directory only); how many names went.

    Raises what `ready_side` does, MisuseError for a path that will not go.
    """
    ready_side(context)
    key = _prepare(context, "quarantine")
    return int(context.space.change_files(EmptyQuarantine(context.epoch, key, directories)).detail["removed"])


def _prepare_side(context: Context) -> str:
    key = _prepare(context, "side")
    identity = context.journal.state.root_identity
    return str(context.space.change_files(PrepareSide(context.epoch, key, identity)).detail["side"])


def _prepare(context: Context, digest: str) -> str:
    """Announce work outside any call; its key."""
    state = context.journal.state
    attempt = 1
    while (key := context.key(f"d{state.head_seq}", attempt)) in context.ledger.state.attempts:
        attempt += 1
    mark = context.space.mark(f"e{context.epoch}-worker")
    prepared = Prepare(key, "work", context.epoch, None, attempt, digest, mark, None, state.head_seq, state.head_hash)
    announce(context.ledger, prepared)
    return key
