"""Carrying out a restore plan. Runs only in the file worker, after every older process is proved dead (I7).

Ordering invariants, each against a crash between its two halves: staging is emptied, the room needed is there, and what will be changed
in place is on record as it was (in_place.py), before the first move; a victim is in quarantine before anything takes its name; a file, or
a whole new directory (staged.py), is complete in staging before it gets its name; a directory gets its mode and time after all below it.
Nothing is followed, overwritten or unlinked in the workspace. Killed anywhere, a new scan, plan and apply reach the same end (actions.py
says why for each action).

Of a large plan two processes fill the staged trees (dealing.py, filler.py); what gets a name in the workspace, or loses it there, is this
process's act alone, one after the other.

Nothing is synced here. What a restore made counts only from `restore_finished` on, and who commits that syncs the whole file system
once before: power lost earlier leaves the obligation open, and the next round scans what really reached the disk, empty or torn files
included, and places it again. So a sync of each file would buy nothing, and costs more than everything else together.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from blake3 import blake3

from eventlog import durable, steps
from eventlog.attributes import drop_acls, loosen_directory, open_node, set_attributes, set_link_time, set_new_attributes
from eventlog.beneath import OPEN_DIRECTORY, OPEN_FILE, Beneath
from eventlog.checkout import has_hole
from eventlog.errors import CorruptError, FullError, InternalError, RestoreIncompleteError
from eventlog.image import name_of, parent_of
from eventlog.show import show_path
from recovery.workspace.actions import (
    Action,
    Displace,
    FinishDirectory,
    LinkFile,
    MakeDirectory,
    PlaceDirectory,
    PlaceFile,
    PlaceLink,
    PlacePipe,
    RestorePlan,
    SetAttributes,
    StageDirectory,
)
from recovery.workspace.dealing import Part, Tree, cut_stretches, deal
from recovery.workspace.file_clock import trusted_before
from recovery.workspace.filler import Filler
from recovery.workspace.in_place import encode_before, list_before, write_before
from recovery.workspace.listing import CHANGE_TIME
from recovery.workspace.made import Made
from recovery.workspace.observe import key_of
from recovery.workspace.pack import WHOLE_BYTES, PackReading, count_data, lay_out, write_sparsely
from recovery.workspace.preflight import refuse_fixed, refuse_owners
from recovery.workspace.quarantine import Round, open_round
from recovery.workspace.staging import Staging, clear_staging

_STAGED_MODE = 0o600
_PERMISSIONS = 0o777
_MADE_MODE = 0o700
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Applied(msgspec.Struct, frozen=True):
    """What one round did: paths restored, moves into quarantine, the number of the round, and the versions of files it made (made.py)."""

    restored: int
    displaced: int
    round: int
    made: tuple[Made, ...] = ()


def apply_plan(
    plan: RestorePlan, *, root: str, side: str, quarantine_directory: str, pack: str, step: str = "restore", is_shared: bool = False
) -> Applied:
    """Carry out `plan` on the tree at `root`, once.

    `side` is the absolute path of the side directory; `quarantine_directory` a name below its quarantine (`<log id>-<decision seq>`);
    `pack` is the path of the plan's pack (pack.py). `is_shared`: a second process may do half of a large plan, which only a caller says
    whose children die with it, provably (filler.py). Steps are `<step>.displace.*`,
    `<step>.record.*`, `<step>.place.*`, `<step>.link.*`, `<step>.mkdir.*`, `<step>.set.*`, `<step>.finish.*` and `<step>.clear.*`. The
    caller syncs the file system before it says that the restore is done.

    Raises, before the first move: `FullError` when the room is too little (R4), `RestoreIncompleteError` naming what is immutable or
    append-only and in the way, or an owner that this user may not give. Later: `FullError` when the room ran out; `CorruptError` when
    a content does not hash to its name; `RestoreIncompleteError` naming the path for everything else that cannot be done. Then the
    tree is between the two images: scan and plan again.
    """
    try:
        clear_staging(side, f"{step}.clear")
        with _open_pack(pack, plan) as content:
            record = encode_before(list_before(plan, root))
            _check_room(plan, side, content, len(record))
            refuse_fixed(plan, root)
            refuse_owners(plan, side, f"{step}.clear")
            return _apply(plan, root, side, quarantine_directory, content, record, step, is_shared)
    except OSError as error:
        text = f"the restore could not use {show_path(os.fsencode(side))} or {show_path(os.fsencode(root))}: {error.strerror}"
        raise RestoreIncompleteError(f"{text}. Remove the cause and try again") from error


def _apply(
    plan: RestorePlan, root: str, side: str, quarantine_directory: str, pack: "_Pack", record: bytes, step: str, is_shared: bool
) -> Applied:
    with (
        open_round(side, quarantine_directory) as quarantine,
        Staging(side, f"{quarantine_directory}-{quarantine.number}", f"{step}.clear") as staging,
        Beneath(root) as tree,
    ):
        write_before(quarantine.directory, quarantine.number, record, f"{step}.record")
        worker = _Worker(tree, quarantine, staging, pack, step)
        mask = os.umask(0)  # a file is made with its mode, which is one call less for each than to set it afterwards
        try:
            for one in cut_stretches(plan.actions) if is_shared else plan.actions:
                if isinstance(one, tuple):
                    _perform_stretch(worker, one)
                else:
                    _perform(worker, one)
        finally:
            os.umask(mask)
            worker.leave_staged()
    return Applied(plan.restored, plan.displaced, quarantine.number, tuple(worker.made))


class _Pack(msgspec.Struct, frozen=True):
    """The plan's pack, open, and the offset of each content in it."""

    reading: PackReading
    offsets: dict[bytes, int]


@contextmanager
def _open_pack(path: str, plan: RestorePlan) -> Iterator[_Pack]:
    offsets = lay_out(plan)
    try:
        descriptor = os.open(path, OPEN_FILE) if offsets else os.open(os.devnull, OPEN_FILE)
    except FileNotFoundError as error:
        raise CorruptError(f"the contents laid ready for the restore are missing: {show_path(os.fsencode(path))}") from error
    try:
        yield _Pack(PackReading(descriptor), offsets)
    finally:
        os.close(descriptor)


def _check_room(plan: RestorePlan, side: str, pack: _Pack, recorded: int) -> None:
    """R4. The sizes of the plan are an upper bound; only where they do not fit are the holes of the contents counted out. `recorded`: the
    bytes of the record of what is changed in place."""
    room = os.statvfs(side)
    free = room.f_bavail * room.f_frsize
    needed = plan.needed_bytes + recorded
    if needed > free:
        needed -= sum(
            action.size - count_data(pack.reading.descriptor, pack.offsets[action.content], action.size)
            for action in plan.actions
            if isinstance(action, PlaceFile)
        )
    if needed > free:
        raise FullError(
            f"the restore needs {needed} bytes and {free} are free beside the workspace; nothing was moved. Free space and try again, "
            "or `recovery settle STATE_DIR --discard CALL` deletes what the call made, for ever, and restores then"
        )
    nodes = sum(isinstance(action, MakeDirectory | StageDirectory | PlaceFile | PlaceLink | PlacePipe) for action in plan.actions)
    if room.f_files and nodes > room.f_favail:
        raise FullError(
            f"the restore needs {nodes} inodes and {room.f_favail} are free beside the workspace; nothing was moved. "
            "Remove files there and try again"
        )


class _Staged(msgspec.Struct):
    """The directory that is being filled in staging: its path in the workspace, its name in staging, what is in it, and its plain files."""

    path: bytes
    name: bytes
    tree: Beneath
    made: list[Made] = msgspec.field(default_factory=list)
    last: tuple[bytes, int] = (b"", -1)

    def open_parent(self, path: bytes) -> int:
        """The directory of `path` in what is staged; files come directory by directory, so that the last one is asked for again."""
        above = parent_of(path)
        if self.last[1] < 0 or self.last[0] != above:
            self.last = above, self.tree.directory(above[len(self.path) + 1 :])
        return self.last[1]

    def close_below(self) -> None:
        """Close all directories but the tree's own."""
        self.tree.forget_all()
        self.last = b"", -1

    def close(self) -> None:
        """Close all."""
        self.tree.__exit__(None, None, None)


class _Worker(msgspec.Struct):
    """What the actions work with. `staged` from a StageDirectory to its PlaceDirectory; `made`, what is in place of the files told."""

    tree: Beneath
    quarantine: Round
    staging: Staging
    pack: _Pack
    step: str
    loose: set[bytes] = msgspec.field(default_factory=set)
    staged: _Staged | None = None
    made: list[Made] = msgspec.field(default_factory=list)

    def leave_staged(self) -> None:
        """Close the staged directory; what is in staging of it goes with the round."""
        if self.staged is not None:
            self.staged.close()
            self.staged = None

    def open_parent(self, path: bytes) -> int:
        """The directory of `path`, with permission to change names in it: asked for once, as nothing but the last actions takes it away."""
        if self.staged is not None:
            return self.staged.open_parent(path)  # made by ourselves
        above = parent_of(path)
        directory = self.tree.directory(above)
        if above not in self.loose:
            loosen_directory(directory)
            self.loose.add(above)
        return directory


def _perform(worker: _Worker, action: Action) -> None:
    try:
        _do(worker, action)
    except OSError as error:
        kind = type(action).__name__
        text = f"the restore stopped at {show_path(action.path)} ({kind}): {error.strerror}; what was displaced is in quarantine"
        if error.errno in _NO_ROOM:
            raise FullError(f"{text}. Free space and try again") from error
        raise RestoreIncompleteError(f"{text}. Remove the cause and try again") from error


def _perform_stretch(worker: _Worker, trees: Sequence[Tree]) -> None:
    """Fill staged trees with the help of a second process, then put them in their places."""
    aside: list[_Staged] = []
    try:
        for tree in trees:
            _perform(worker, tree.stage)
            for directory in tree.directories:
                _perform(worker, directory)
            aside.append(_put_aside(worker))
        for number, some in _fill_together(worker, aside, trees):
            aside[number].made += some
        for tree in trees:
            worker.staged = aside.pop(0)
            _perform(worker, tree.place)
    finally:
        for one in aside:
            one.close()


def _fill_together(worker: _Worker, aside: Sequence[_Staged], trees: Sequence[Tree]) -> list[tuple[int, list[Made]]]:
    """Fill the trees that are aside: half of them by a second process, all of them by this one where none is to be had."""
    mine, others = deal(trees)
    try:
        filler = Filler(lambda: _fill(worker, aside, others))
    except OSError:  # a limit of processes, say: a restore must come to its end under it too
        return _fill(worker, aside, [*mine, *others])
    with filler:
        return _fill(worker, aside, mine) + filler.wait_done()


def _put_aside(worker: _Worker) -> _Staged:
    """The staged tree, its directories made, to be filled later."""
    staged = worker.staged
    if staged is None:
        raise InternalError("a tree is put aside and none is staged")
    staged.close_below()  # as many as are aside, none may keep more than its own directory open
    worker.staged = None
    return staged


def _fill(worker: _Worker, aside: Sequence[_Staged], parts: Iterable[Part]) -> list[tuple[int, list[Made]]]:
    """Make the nodes of these parts; of each tree what was made, to be told."""
    made: list[tuple[int, list[Made]]] = []
    try:
        for number, nodes in parts:
            worker.staged = aside[number]
            for node in nodes:
                _perform(worker, node)
            made.append((number, worker.staged.made))
            worker.staged.made = []
            worker.staged.close_below()
    finally:
        worker.staged = None
    return made


def _do(worker: _Worker, action: Action) -> None:
    match action:
        case PlaceFile():
            _place(worker, action.path, lambda name, directory: _make_file(worker, name, directory, action))
        case Displace():
            _displace(worker, action)
        case MakeDirectory():
            _make_directory(worker, action)
        case StageDirectory():
            _stage_directory(worker, action)
        case PlaceDirectory():
            _place_directory(worker, action)
        case PlaceLink():
            _place(worker, action.path, lambda name, directory: _make_link(name, directory, action))
        case PlacePipe():
            _place(worker, action.path, lambda name, directory: _make_pipe(name, directory, action, worker.step))
        case LinkFile():
            _link_file(worker, action)
        case SetAttributes():
            _set_attributes(worker, action)
        case FinishDirectory():
            descriptor = worker.tree.directory(action.path)
            set_attributes(
                descriptor, action.mode, action.xattrs, action.mtime_ns, f"{worker.step}.finish", owner=action.owner, acl=action.acl
            )


def _displace(worker: _Worker, action: Displace) -> None:
    worker.tree.forget(action.path)
    if action.kind == "d":
        worker.loose.clear()  # another directory may bear the name from now on
    worker.quarantine.take(action.path, action.kind, worker.open_parent(action.path), f"{worker.step}.displace")


def _make_directory(worker: _Worker, action: MakeDirectory) -> None:
    directory, name = worker.open_parent(action.path), name_of(action.path)
    steps.reach(f"{worker.step}.mkdir.before")
    os.mkdir(name, _MADE_MODE, dir_fd=directory)
    steps.reach(f"{worker.step}.mkdir.after")
    made = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        drop_acls(made)  # a default ACL above is no part of the image of what is made below it
    finally:
        os.close(made)


def _stage_directory(worker: _Worker, action: StageDirectory) -> None:
    name = worker.staging.name_next()
    steps.reach(f"{worker.step}.mkdir.before")
    os.mkdir(name, _MADE_MODE, dir_fd=worker.staging.descriptor)
    steps.reach(f"{worker.step}.mkdir.after")
    tree = Beneath(f"/proc/self/fd/{worker.staging.descriptor}/{name.decode('ascii')}")
    worker.staged = _Staged(action.path, name, tree)
    _inherit_group(worker.tree.directory(parent_of(action.path)), tree.directory(b""))


def _inherit_group(above: int, made: int) -> None:
    """Below a directory with the set-group-id bit new nodes get its group: those in staging get it by what they are made in."""
    found = os.fstat(above)
    if found.st_mode & stat.S_ISGID and found.st_gid != os.fstat(made).st_gid:
        with contextlib.suppress(PermissionError):  # of a group that is not ours; what is made in place keeps ours then, too
            os.chown(made, -1, found.st_gid)
            os.chmod(made, _MADE_MODE | stat.S_ISGID)


def _place_directory(worker: _Worker, action: PlaceDirectory) -> None:
    staged = worker.staged
    if staged is None or staged.path != action.path:
        raise InternalError(f"{show_path(action.path)} is put in its place and was not staged")
    worker.leave_staged()
    directory = worker.open_parent(action.path)
    before = trusted_before(directory)  # asked before others can reach what is in it
    worker.made += [one for one in staged.made if one.key[CHANGE_TIME] < before]
    _move_in(worker, staged.name, action.path)


def _place(worker: _Worker, path: bytes, make: Callable[[bytes, int], None]) -> None:
    """Make a node in staging and give it its name, which must be free; in a staged directory under its name at once."""
    if worker.staged is not None:
        make(name_of(path), worker.open_parent(path))
        return
    staged = worker.staging.name_next()
    make(staged, worker.staging.descriptor)
    _move_in(worker, staged, path)


def _move_in(worker: _Worker, staged: bytes, path: bytes) -> None:
    durable.move(
        staged,
        name_of(path),
        f"{worker.step}.place",
        source_dir=worker.staging.descriptor,
        target_dir=worker.open_parent(path),
    )


def _make_link(name: bytes, directory: int, action: PlaceLink) -> None:
    os.symlink(action.target, name, dir_fd=directory)
    if action.owner is not None:
        os.chown(name, *action.owner, dir_fd=directory, follow_symlinks=False)
    os.utime(name, ns=(action.mtime_ns, action.mtime_ns), dir_fd=directory, follow_symlinks=False)


def _make_pipe(name: bytes, directory: int, action: PlacePipe, step: str) -> None:
    os.mkfifo(name, _STAGED_MODE, dir_fd=directory)
    with open_node(name, directory, "p") as descriptor:
        set_attributes(descriptor, action.mode, None, action.mtime_ns, f"{step}.place", owner=action.owner, acl=action.acl)


def _make_file(worker: _Worker, name: bytes, directory: int, action: PlaceFile) -> None:
    step = f"{worker.step}.place"
    # Attributes need write permission, an ACL is to be there before the mode, and set-id bits are cleared by what is written.
    has_mode = not (action.xattrs or action.acl or action.mode & ~_PERMISSIONS)
    made_mode = action.mode if has_mode else _STAGED_MODE
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, made_mode, dir_fd=directory)
    try:
        _copy_verified(worker.pack, descriptor, action, step)
        mode = None if has_mode else action.mode
        set_new_attributes(descriptor, mode, action.xattrs, action.mtime_ns, step, owner=action.owner, acl=action.acl)
        if worker.staged is not None and (action.xattrs, action.owner, action.acl) == (None, None, None):
            worker.staged.made.append(Made(action.path, key_of(os.fstat(descriptor)), action.content))
    finally:
        os.close(descriptor)


def _copy_verified(pack: _Pack, target: int, action: PlaceFile, step: str) -> None:
    """Copy all bytes, leaving holes where whole blocks are zeros, and compare them with their name."""
    if action.size <= WHOLE_BYTES:
        data = pack.reading.take(pack.offsets[action.content], action.size)
        if len(data) != action.size or blake3(data).digest() != action.content:
            raise _other_content(action)
        if not has_hole(0, data):
            durable.write_all(target, data, step)
        elif write_sparsely(target, 0, data, step):
            os.ftruncate(target, action.size)
        return
    hasher = blake3()
    size = 0
    ends_in_hole = False
    for piece in pack.reading.read(pack.offsets[action.content], action.size):
        hasher.update(piece)
        ends_in_hole = write_sparsely(target, size, piece, step)
        size += len(piece)
    if hasher.digest() != action.content or size != action.size:
        raise _other_content(action)
    if ends_in_hole:
        os.ftruncate(target, size)


def _other_content(action: PlaceFile) -> CorruptError:
    return CorruptError(f"the content kept for {show_path(action.path)} does not hash to {action.content.hex()}; it was not placed")


def _link_file(worker: _Worker, action: LinkFile) -> None:
    directory = worker.open_parent(action.path)
    held = os.dup(directory)  # opening the other directory may close what is lent
    try:
        source_directory, source = worker.tree.parent(action.source)
        durable.link(source, name_of(action.path), f"{worker.step}.link", source_dir=source_directory, target_dir=held)
    finally:
        os.close(held)


def _set_attributes(worker: _Worker, action: SetAttributes) -> None:
    directory, name = worker.tree.parent(action.path)
    with open_node(name, directory, action.kind) as descriptor:
        if action.kind == "l":
            if action.owner is not None:
                os.chown(name, *action.owner, dir_fd=directory, follow_symlinks=False)
            set_link_time(name, directory, action.mtime_ns or 0, f"{worker.step}.set")
        else:
            set_attributes(
                descriptor, action.mode, action.xattrs, action.mtime_ns, f"{worker.step}.set", owner=action.owner, acl=action.acl
            )
