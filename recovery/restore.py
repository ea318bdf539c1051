"""A restore is an obligation: begun by `recovery_decided`, ended by `restore_finished` once the tree is applied, synced, scanned
and equal (rule R1).

The driver lays the contents ready in the space's own directory, as one pack; the file worker moves and places. The one sync of a restore
is here, after the scan that found the image and before the commit that says so. What was displaced is read from
the quarantine directory itself (R3: the directory is the truth), over all rounds, in the commit that closes the obligation.
"""

import contextlib
import errno
import os

from eventlog import durable, events
from eventlog.errors import FullError, RestoreIncompleteError, required
from eventlog.image import Image, diff, root_hash
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.show import encode_bytes, show_path
from eventlog.values import Seq, StreamId
from recovery.capture import look_again
from recovery.context import Context
from recovery.fallback_image import Fallback
from recovery.labels import REBUILDS, Label
from recovery.space.keys import announce
from recovery.space.protocol import ApplyPlan
from recovery.space.records import Prepare
from recovery.state import TO_RESTORE, Obligation, SessionState
from recovery.workspace.actions import Displace, RestorePlan, encode_plan
from recovery.workspace.left_out import without
from recovery.workspace.made import SUFFIX, read_made
from recovery.workspace.pack import write_pack
from recovery.workspace.profile import Profile
from recovery.workspace.quarantine import list_quarantine
from recovery.workspace.restore_plan import plan_restore
from recovery.workspace.values import Scan, Untracked

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
ROUNDS = 3  # rule R5: then the paths are named and nothing more is tried in this run


def decided_restore(
    context: Context, label: Label, facts: dict[str, object], found: Scan | None, fallback: Fallback | None = None
) -> events.RecoveryDecided:
    """The decision to restore to the head image, or to the older one (`fallback`) whose checkpoint is to stand in for it (C7). `found` is
    the scan it was decided on: how much differs stands in the decision, as whoever ends the restore may have seen only the rest of it.
    None: nothing is there."""
    state = context.journal.state
    target, seq, root = (state.image, state.image_seq, state.root) if fallback is None else (fallback.image, fallback.seq, fallback.root)
    facts = facts | {TO_RESTORE: len(target) if found is None else count_differing(found.image, target)}
    facts = facts if fallback is None else facts | fallback.facts
    call = state.open_call
    number, attempt = (call.number, call.last.number) if call else (None, None)
    return events.RecoveryDecided(
        context.clock.now_ms(), label.value, number, attempt, True, seq, root, state.mode, facts
    )


def count_differing(found: Image, target: Image) -> int:
    """How many paths of `target` are not there, or differ by more than their time."""
    return sum(change.op == "put" for change in diff(found, target))


def complete_restore(context: Context, side: str) -> list[Record]:
    """Make the workspace equal to the obligation's target; the records that close it, for the caller to commit.

    Raises RestoreIncompleteError (the obligation stays open), FullError, ScanError, StaleEpochError, LostProcessError.
    """
    obligation = required(context.journal.state.obligation, "complete_restore is called under an open obligation only")
    target = _read_target(context, obligation)
    quarantine = f"{context.journal.log_id}-{obligation.seq}"
    restored = 0  # by this driver's rounds; those of killed ones left no count, so that the decision's is the least there was
    found = look_again(context, target)
    for _ in range(ROUNDS):
        plan = plan_for(context.profile, found, target, untracked_of(context, obligation))
        if not plan.actions:
            break
        restored += _apply_round(context, obligation, plan, quarantine)
        found = look_again(context, target)
    _check_equal(found, target, obligation, context.profile)
    return _closing_records(context, obligation, side, quarantine, max(restored, obligation.to_restore))


def plan_displacing(context: Context) -> RestorePlan:
    """What the open restore would displace now, and nothing else of it: no room is needed for that."""
    obligation = required(context.journal.state.obligation, "plan_displacing is called under an open obligation only")
    target = _read_target(context, obligation)
    plan = plan_for(context.profile, look_again(context, target), target, untracked_of(context, obligation))
    moves = tuple(action for action in plan.actions if isinstance(action, Displace))
    return RestorePlan(moves, 0, len(moves), 0)


def displace(context: Context, plan: RestorePlan) -> str:
    """Carry out `plan_displacing`; the name of the quarantine that has it."""
    obligation = required(context.journal.state.obligation, "displace is called under an open obligation only")
    quarantine = f"{context.journal.log_id}-{obligation.seq}"
    if plan.actions:
        _apply_round(context, obligation, plan, quarantine)
    return quarantine


def _read_target(context: Context, obligation: Obligation) -> Image:
    """The image to restore: the head's, which the driver holds, or one out of the log."""
    state = context.journal.state
    if obligation.target_seq == state.image_seq:
        return state.image
    return target_at(context.journal.reader, state, obligation.target_seq)


def target_at(reader: Reader, state: SessionState, seq: int) -> Image:
    """What a restore to the image at `seq` aims at: that image, without what a person left out since. Such a path is never touched, and no
    image of the workspace holds it any more (C5)."""
    return without(reader.image(StreamId(state.opened.name), Seq(seq)), state.profile.left_out)


def plan_for(profile: Profile, found: Scan, target: Image, untracked: tuple[Untracked, ...]) -> RestorePlan:
    """`plan_restore` with what the session leaves out and tracks."""
    return plan_restore(
        found, target, untracked, has_excludes=profile.leaves_out, owners=profile.owners, acls=profile.acls
    )


def untracked_of(context: Context, obligation: Obligation) -> tuple[Untracked, ...]:
    """What may stay where it is beside the target image: what stood there at the head, or at the event that a person chose."""
    state = context.journal.state
    return state.untracked_at(obligation.target_seq) if obligation.goes_back else state.untracked


def _apply_round(context: Context, obligation: Obligation, plan: RestorePlan, quarantine: str) -> int:
    pack = _lay_pack(context, plan)
    attempt = 1
    while context.ledger.state.find(key := context.key(f"d{obligation.seq}", attempt)) is not None:
        attempt += 1
    state = context.journal.state
    mark = context.space.mark(f"e{context.epoch}-worker")
    prepared = Prepare(key, "work", context.epoch, None, attempt, obligation.target_root, mark, None, state.head_seq, state.head_hash)
    announce(context.ledger, prepared)
    done = context.space.change_files(ApplyPlan(context.epoch, key, encode_plan(plan), quarantine, pack))
    if context.scanner is not None:
        context.scanner.learn(read_made(pack + SUFFIX))
    for name in (pack, pack + SUFFIX):
        durable.unlink(name, "contents")  # placed: what is never written back to the disk costs the one sync nothing
    return int(done.detail.get("restored", 0))


def _lay_pack(context: Context, plan: RestorePlan) -> str:
    """Write the contents a plan needs to this epoch's own directory, verified as they leave the log; the path of the pack."""
    directory = contents_directory(context, context.epoch)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, "pack")
    try:
        write_pack(path, plan, context.contents.read, "contents")
    except OSError as error:
        shown = show_path(os.fsencode(directory))
        if error.errno not in _NO_ROOM:
            raise RestoreIncompleteError(
                f"the contents of the restore cannot be laid ready in {shown}: {error.strerror}; nothing was moved. "
                "Remove the cause and try again"
            ) from error
        raise FullError(
            f"no room to lay the contents of the restore ready in {shown}: it needs up to {plan.needed_bytes} bytes and a file, and "
            f"{_tell_room(directory)} are left there; nothing was moved. Free space and try again"
        ) from error
    return path


def _tell_room(directory: str) -> str:
    """What a file system has left: a disk may be full of bytes, or of files."""
    room = os.statvfs(directory)
    files = f" and {room.f_favail} files" if room.f_files else ""  # some file systems make inodes as they need them
    return f"{room.f_bavail * room.f_frsize} bytes{files}"


def _check_equal(found: Scan, target: Image, obligation: Obligation, profile: Profile) -> None:
    if root_hash(found.image, profile.excludes).hex() == obligation.target_root:
        return
    differing = [change.path for change in diff(target, found.image) if change.op != "times"][:5]
    names = ", ".join(str(encode_bytes(path)) for path in differing)
    raise RestoreIncompleteError(
        f"the restore decided at seq {obligation.seq} did not reach its image after {ROUNDS} rounds; these paths still differ: {names}; "
        "find out what changes them, end it and drive again, or `recovery settle STATE_DIR --accept-workspace "
        f"{root_hash(found.image, profile.excludes).hex()}` takes the workspace as it is"
    )


def _closing_records(context: Context, obligation: Obligation, side: str, name: str, restored: int) -> list[Record]:
    found = list_quarantine(side, name)
    now = context.clock.now_ms()
    sync_workspace(context.root, "restored")
    rounds = len({path.split(b"/")[0] for path in found})
    reverted, reimaged = (0, restored) if obligation.label in REBUILDS else (restored, 0)
    finished = events.RestoreFinished(
        now, obligation.seq, obligation.target_root, restored, len(found), rounds, reverted, reimaged, accepted=False
    )
    return [
        Record(events.Quarantined(now, obligation.seq, name, [encode_bytes(path) for path in found])),
        Record(finished),
        Record(events.Synced(now, obligation.target_root, context.host.boot_id())),
    ]


def sync_workspace(root: str, step: str) -> None:
    """syncfs on the workspace's file system, checked: before anything says that an image is on disk."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        durable.sync_filesystem(descriptor, step)
    finally:
        os.close(descriptor)


def contents_directory(context: Context, epoch: int) -> str:
    """Where the driver of `epoch` lays contents: its own, so that a stale driver that wakes takes nothing from its successor."""
    return os.path.join(context.paths.contents, f"e{epoch}")


def forget_contents(context: Context) -> None:
    """Remove the laid-out contents of finished restores and of older epochs."""
    for name in os.listdir(context.paths.contents):
        if not (name.startswith("e") and name[1:].isdigit() and int(name[1:]) <= context.epoch):
            continue
        directory = os.path.join(context.paths.contents, name)
        with contextlib.suppress(FileNotFoundError):
            for content in os.listdir(directory):
                durable.unlink(os.path.join(directory, content), "contents")
            durable.remove_directory(directory, "contents")
