"""Writing the image of a point into a new directory: whole under its name, or not there at all.

Ordering invariants, each against a crash between its two halves. The image is checked and every content is found in the log before
anything is made. The tree is made under a name that nobody looks for, in a directory of mode 0700, beside the one it is meant for. A
file has its bytes, verified, before its mode; a directory gets its mode and time after all below it, the deepest first; the whole file
system is synced before the tree is moved to its name, without replacing; the directory above is synced before this returns.

Nothing is quarantined, staged or scanned, as the file worker of `recovery` must: a new directory holds nothing of anybody else, no
command runs in it and no other process may enter it before it has its name. So there is nothing that could be displaced, nothing to lose
by removing what was made, and no epoch to fence. Names and links are hostile all the same: everything is reached by directory
descriptors, no link is followed, every file is made where nothing was.

    <directory of DIR>/.eventlog-checkout-unfinished-<16 hex digits>    what a killed checkout leaves; it may be removed

A failure removes what it made. Steps: `checkout.mkdir.*`, `checkout.place.*`, `checkout.link.*`, `checkout.finish.*`,
`checkout.syncfs.*`, `checkout.move.*`, `checkout.sync.*`, and `checkout.clear.*` after a failure.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from eventlog import durable, steps
from eventlog.attributes import ROOT_IDENTITY_XATTR, TRACKED_PREFIX, loosen_directory, open_node, set_attributes, set_link_time
from eventlog.beneath import OPEN_DIRECTORY, Beneath
from eventlog.errors import CorruptError, CrashworthyError, FullError, MisuseError
from eventlog.history import check_contents
from eventlog.image import Entry, Image, check_image, decode_xattrs, name_of, parent_of
from eventlog.ports import Ids
from eventlog.reader import Reader
from eventlog.show import show_path, show_text
from eventlog.values import ContentId

UNFINISHED_PREFIX = ".eventlog-checkout-unfinished-"
HOLE_BYTES = 1 << 12
"""The least run of zeros, at a multiple of itself, that becomes a hole."""
_ZEROS = bytes(HOLE_BYTES)
_FEW_ZEROS = bytes(16)
_STEP = "checkout"
_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class CheckedOut(msgspec.Struct, frozen=True):
    """What was written: the number of paths but the root's own, and the bytes of all files, hard links counted once."""

    paths: int
    size: int


def check_out(reader: Reader, image: Image, directory: str, ids: Ids) -> CheckedOut:
    """Write `image` into the new directory `directory`; its contents come from `reader`, one piece at a time.

    Raises, before anything is made: MisuseError when `directory` is there or cannot be made, CorruptError when the image is not one or
    lacks a content, CompactedError when a content was given up. Later: FullError, CorruptError and MisuseError; then nothing is left.
    """
    check_image(image)
    _check_attributes(image)
    check_contents(reader, image)
    parent, name = _open_parent(directory)
    try:
        temporary = UNFINISHED_PREFIX + ids.new_id().hex()[:16]
        with _telling(directory):
            done = _make_and_name(reader, image, parent, temporary, name)
        _sync_name(parent, directory)
    finally:
        os.close(parent)
    return done


def _check_attributes(image: Image) -> None:
    """The attributes of an image are those that a scan tracks, whoever made it: `security.*` and `trusted.*` give powers."""
    for path, entry in image.items():
        for name, _ in decode_xattrs(entry.xattrs):
            if not name.startswith(TRACKED_PREFIX) or b"\0" in name or (not path and name == ROOT_IDENTITY_XATTR):
                raise CorruptError(f"image entry {show_path(path)}: an attribute {show_path(name)}, which no image may hold")


def _open_parent(directory: str) -> tuple[int, str]:
    """The directory that will hold the new one, open, and the new one's name."""
    shown = show_text(directory)
    place, name = os.path.split(directory.rstrip("/"))
    if not name or "\0" in directory or os.path.lexists(directory):
        raise MisuseError(f"{shown or 'an empty name'}: there is something already; name a directory that is not there yet")
    try:
        return os.open(place or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), name
    except OSError as error:
        raise MisuseError(f"{shown}: {show_text(place)} cannot be opened: {error.strerror}; make that directory first") from error


@contextmanager
def _telling(directory: str) -> Iterator[None]:
    """Errors of the system as ones that a person is told."""
    try:
        yield
    except FileExistsError as error:
        raise MisuseError(f"{show_text(directory)}: something came there meanwhile; nothing was written, name another one") from error
    except OSError as error:
        raise _told(error, directory) from error


def _told(error: OSError, where: str) -> CrashworthyError:
    if error.errno in _NO_ROOM:
        return FullError(f"{show_text(where)}: no room left ({error.strerror}); nothing was kept, make room and check out again")
    return MisuseError(f"{show_text(where)}: cannot be written: {error.strerror}; nothing was kept")


def _sync_name(parent: int, directory: str) -> None:
    try:
        durable.sync_file(parent, _STEP)
    except OSError as error:
        text = f"{show_text(directory)}: it was written, but its name may not be on disk ({error.strerror})"
        raise MisuseError(f"{text}; remove it and check out again") from error


def _make_and_name(reader: Reader, image: Image, parent: int, temporary: str, name: str) -> CheckedOut:
    made: list[bytes] = []
    steps.reach(f"{_STEP}.mkdir.before")
    os.mkdir(temporary, _PRIVATE_DIRECTORY, dir_fd=parent)
    descriptor = os.open(temporary, OPEN_DIRECTORY, dir_fd=parent)
    try:
        with Beneath(f"/proc/self/fd/{descriptor}") as tree:
            try:
                steps.reach(f"{_STEP}.mkdir.after")
                done = _Maker(reader, image, tree, made).make_all()
                durable.sync_filesystem(descriptor, _STEP)
                durable.move(temporary, name, _STEP, source_dir=parent, target_dir=parent)
            except BaseException:
                _clear(tree, image, made, parent, temporary)
                raise
    finally:
        os.close(descriptor)
    return done


def _clear(tree: Beneath, image: Image, made: list[bytes], parent: int, temporary: str) -> None:
    """Remove what was made, deepest first; each of it is this process's own, in a directory that is its own."""
    try:
        for path in reversed(made):
            directory = tree.directory(parent_of(path))
            loosen_directory(directory)
            if image[path].kind == "d":
                tree.forget(path)
                durable.remove_directory(name_of(path), f"{_STEP}.clear", directory=directory)
            else:
                durable.unlink(name_of(path), f"{_STEP}.clear", directory=directory)
        durable.remove_directory(temporary, f"{_STEP}.clear", directory=parent)
    except OSError:
        pass  # the error on its way says more; what could not be removed bears the name of an unfinished checkout


class _Maker(msgspec.Struct):
    """One tree being made; `made` lists its paths in the order in which they came to be."""

    reader: Reader
    image: Image
    tree: Beneath
    made: list[bytes]
    size: int = 0
    directories: list[bytes] = msgspec.field(default_factory=list)

    def make_all(self) -> CheckedOut:
        """Everything in byte order of path, which puts a directory before what is in it; then the directories, deepest first."""
        for path in sorted(self.image):
            with _naming(path):
                self._make(path, self.image[path])
        for path in reversed(self.directories):
            entry = self.image[path]
            with _naming(path):
                set_attributes(self.tree.directory(path), entry.mode, entry.xattrs, entry.mtime_ns, f"{_STEP}.finish")
        return CheckedOut(len(self.image) - 1, self.size)

    def _make(self, path: bytes, entry: Entry) -> None:
        if entry.kind == "d":
            self.directories.append(path)
        if not path:
            return
        directory, name = self.tree.parent(path)
        match entry.kind:
            case "d":
                steps.reach(f"{_STEP}.mkdir.before")
                os.mkdir(name, _PRIVATE_DIRECTORY, dir_fd=directory)
                self.made.append(path)
                steps.reach(f"{_STEP}.mkdir.after")
            case _ if entry.link is not None and entry.link != path:
                self._link(path, name, directory, entry.link)
            case "l":
                os.symlink(entry.target or b"", name, dir_fd=directory)
                self.made.append(path)
                set_link_time(name, directory, entry.mtime_ns, f"{_STEP}.place")
            case "p":
                os.mkfifo(name, _PRIVATE_FILE, dir_fd=directory)
                self.made.append(path)
                with open_node(name, directory, "p") as descriptor:
                    set_attributes(descriptor, entry.mode, entry.xattrs, entry.mtime_ns, f"{_STEP}.place")
            case "f":
                self._place(path, name, directory, entry)

    def _link(self, path: bytes, name: bytes, directory: int, first: bytes) -> None:
        held = os.dup(directory)  # opening the other directory may close what is lent
        try:
            source_directory, source = self.tree.parent(first)
            durable.link(source, name, f"{_STEP}.link", source_dir=source_directory, target_dir=held)
            self.made.append(path)
        finally:
            os.close(held)

    def _place(self, path: bytes, name: bytes, directory: int, entry: Entry) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, _PRIVATE_FILE, dir_fd=directory)
        try:
            self.made.append(path)
            self._write(descriptor, path, entry)
            set_attributes(descriptor, entry.mode, entry.xattrs, entry.mtime_ns, f"{_STEP}.place")
        finally:
            os.close(descriptor)
        self.size += entry.size

    def _write(self, descriptor: int, path: bytes, entry: Entry) -> None:
        """All bytes of a file, verified by the reader, holes where it has runs of zeros."""
        size = 0
        for piece in self.reader.content(ContentId(entry.content or b"")):
            if size + len(piece) > entry.size:
                break
            for is_hole, part in cut_runs(size, piece):
                if is_hole:
                    os.lseek(descriptor, len(part), os.SEEK_CUR)
                else:
                    durable.write_all(descriptor, part, f"{_STEP}.place")
            size += len(piece)
        else:
            if size == entry.size:
                os.ftruncate(descriptor, size)
                return
        raise CorruptError(f"{show_path(path)}: its content has not the {entry.size} bytes that the image states")


@contextmanager
def _naming(path: bytes) -> Iterator[None]:
    """Errors of the system with the path of the image that they are about."""
    try:
        yield
    except OSError as error:
        raise _told(error, os.fsdecode(path)) from error


def cut_runs(offset: int, piece: bytes) -> Iterator[tuple[bool, bytes]]:
    """`piece`, which begins at `offset` of its file, cut into runs that become holes (True) and runs to be written. Pure.

    A hole is whole blocks of HOLE_BYTES at multiples of it, all zeros.
    """
    if not has_hole(offset, piece):
        if piece:
            yield False, piece
        return
    start = position = 0
    was_hole = False
    while position < len(piece):
        end = min(len(piece), position + HOLE_BYTES - (offset + position) % HOLE_BYTES)
        is_hole = end - position == HOLE_BYTES and piece[position:end] == _ZEROS
        if is_hole != was_hole and position > start:
            yield was_hole, piece[start:position]
            start = position
        was_hole = is_hole
        position = end
    if position > start:
        yield was_hole, piece[start:position]


def has_hole(offset: int, piece: bytes) -> bool:
    """Whether some whole block is all zeros. Its beginning is asked first: in most blocks that tells."""
    for start in range(-offset % HOLE_BYTES, len(piece) - HOLE_BYTES + 1, HOLE_BYTES):
        if piece.startswith(_FEW_ZEROS, start) and piece.startswith(_ZEROS, start):
            return True
    return False
