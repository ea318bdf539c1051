"""One commit of an image, in the mode in force (rules C7, C8).

    transactional   the contents that the log lacks are in the commit, or ahead of it
    checkpoint      the checkpoint is durable, manifest last; then the commit that names it and the root; contents are not in the log
    auto            as transactional, until a limit is crossed: then one switch, in the commit that crosses it, on a durable checkpoint

Within `lost_work_bound` a checkpoint may be left out (checkpoints/frequency.py). The store is held from the first content to the commit, so
that no collection takes what is about to be named.
"""

from collections.abc import Iterable, Sequence

from eventlog import events
from eventlog.codec import Blob
from eventlog.errors import InternalError
from eventlog.records import Appended, Dropped, Record
from recovery.capture import Capture
from recovery.checkpoints.frequency import Since, should_take
from recovery.checkpoints.vault import Vault
from recovery.context import Context
from recovery.opening import list_checkpointed
from recovery.state import SessionState

_IMAGES = (events.WorkspaceObserved, events.CallSettled, events.RestoreFinished, events.CallReplayed)


def commit_image(
    context: Context, found: Capture, records: Sequence[Record], purpose: str, blobs: Iterable[Blob] = ()
) -> list[Appended]:
    """Append `records`, after which the image is that of `found`; where each of them came to stand. `blobs` are not of the image.

    Raises ContentsChangedError: the look is taken again; FullError, CheckpointDamagedError, and what an append raises.
    """
    state = context.journal.state
    if state.mode == "transactional" or (state.mode == "auto" and not found.crossing):
        return context.journal.append(records, (*found.blobs, *blobs), purpose)
    vault = vault_of(context)
    elsewhere = [one for one in list_checkpointed(found.changes, context.clock) if not context.journal.reader.has_blob(one.content)]
    if is_covered(state, found.root, vault) or not _is_due(state, records):
        _note(context, elsewhere)
        return context.journal.append(records, tuple(blobs), purpose)
    at = _after_image(records)
    with vault.writing() as writer:
        kept = context.scanner.kept if context.scanner is not None else None
        manifest = vault.take(writer, found.scan.image, context.profile.excludes, context.root, kept)
        named = _name(context, found, manifest, vault.took_ms)
        _note(context, elsewhere)
        placed = context.journal.append([*records[:at], *named, *records[at:]], tuple(blobs), purpose)
    return placed[:at] + placed[at + len(named) :]


def _note(context: Context, elsewhere: list[Dropped]) -> None:
    if elsewhere:
        context.journal.note_checkpointed(elsewhere)


def vault_of(context: Context) -> Vault:
    """The session's checkpoints."""
    if context.vault is None:
        raise InternalError("a session with checkpoints is driven without its store")
    return context.vault


def is_covered(state: SessionState, root: str, vault: Vault) -> bool:
    """Whether the newest checkpoint is one of this very image, and there. Its contents are proved when it is loaded."""
    newest = state.modes.newest
    if state.mode != "checkpoint" or newest is None or newest.root != root:
        return False
    return vault.store.has_manifest(vault.owner, newest.manifest)


def _is_due(state: SessionState, records: Sequence[Record]) -> bool:
    """Whether this commit takes a checkpoint (C7); the one that switches the mode always does."""
    if state.mode != "checkpoint":
        return True
    unsaved = state.unsaved_calls
    calls, work_ms, is_outside = len(unsaved), sum(call.work_ms for call in unsaved), False
    for record in records:
        match record.event:
            case events.CallSettled(ended="finished", at_ms=at_ms) if state.open_call is not None:
                calls, work_ms = calls + 1, work_ms + max(0, at_ms - state.open_call.last.at_ms)
            case events.WorkspaceObserved() | events.RestoreFinished(accepted=True):
                is_outside = True  # no call made this image: done again from an older checkpoint none would lead to it
            case _:
                pass
    newest = state.modes.newest
    return should_take(Since(calls, work_ms, is_outside), state.modes.bound, newest.took_ms if newest is not None else 0)


def _after_image(records: Sequence[Record]) -> int:
    """Where in the commit the image is that of its capture: behind the last record that states one."""
    return max((number for number, record in enumerate(records, 1) if isinstance(record.event, _IMAGES)), default=0)


def _name(context: Context, found: Capture, manifest: str, took_ms: int) -> list[Record]:
    now = context.clock.now_ms()
    taken = Record(events.CheckpointTaken(now, manifest, found.root, took_ms))
    if context.journal.state.mode == "checkpoint":
        return [taken]
    context.tell(f"the session is in mode checkpoint from here on: {found.crossing}")
    return [Record(events.ModeSwitched(now, "checkpoint", found.crossing, manifest)), taken]
