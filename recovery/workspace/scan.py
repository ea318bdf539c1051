"""The scan: what the workspace holds now, whole or not at all (I11).

Walks by directory descriptors without following a link, entering another mount, recursing, or holding more than a fixed number of
descriptors; paths may be longer than the system takes. Every file is read and hashed. What is not tracked (sockets, devices,
mounts, links to the outside) is listed beside the image.
"""

import os
from dataclasses import dataclass, field

import msgspec

from eventlog.beneath import OPEN_DIRECTORY
from eventlog.errors import InternalError, ScanError
from eventlog.image import Entry
from eventlog.kernel import Status, kind_of, look_at, look_through
from eventlog.show import show_path
from recovery.workspace import observe
from recovery.workspace.observe import ChangedUnderneath
from recovery.workspace.values import MOUNT, OUTSIDE_LINK, Scan, Untracked

__all__ = ["RootMissing", "Scan", "Untracked", "scan"]


_TRIES = 3
_OPEN_LIMIT = 64


class RootMissing(ScanError):
    """The workspace's root is not there or is not a directory."""


def scan(root: str, *, side_directory_name: bytes | None) -> Scan:
    """Read the tree at `root` (a link to it is resolved), leaving out `side_directory_name` directly below it.

    Raises `RootMissing`, or `ScanError` naming the path and the reason in words. Names that vanish meanwhile are absent; a file
    that changes while it is read is read again, three times at most.
    """
    for _ in range(_TRIES):
        try:
            return _scan_once(root, side_directory_name)
        except ChangedUnderneath:
            continue
    raise ScanError(f"directories of {show_path(os.fsencode(root))} keep moving while they are read; try again when it is quiet")


def _scan_once(root: str, side_directory_name: bytes | None) -> Scan:
    walk = _Walk(_open_root(root), side_directory_name)
    try:
        walk.run()
    finally:
        walk.close()
    return walk.finish()


def _open_root(root: str) -> int:
    shown = show_path(os.fsencode(root))
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RootMissing(f"the workspace {shown} is missing: {error.strerror}") from error
    except OSError as error:
        raise ScanError(f"cannot read the workspace {shown}: {error.strerror}") from error


@dataclass(slots=True)
class _Frame:
    """A directory being walked; `descriptor` is None while it is closed to keep within the bound."""

    descriptor: int | None
    status: Status
    names: list[bytes]
    path: bytes


@dataclass(slots=True)
class _Group:
    """The names seen of one inode that has several, and the newest reading of it."""

    status: Status
    entry: Entry
    paths: list[bytes] = field(default_factory=list)


class _Walk:
    """One pass over the tree. Depth first with a stack of its own, children in any order."""

    def __init__(self, root: int, side_directory_name: bytes | None) -> None:
        self._image: dict[bytes, Entry] = {}
        self._untracked: list[Untracked] = []
        self._groups: dict[tuple[int, int], _Group] = {}
        self._side_directory_name = side_directory_name
        self._root = look_through(root)
        self._frames = [_Frame(root, self._root, [], b"")]

    def run(self) -> None:
        """Visit everything."""
        root = self._frames[0]
        with _naming(b""):
            self._image[b""] = observe.observe_directory(self._current(), root.status, is_root=True)
            root.names = [name for name in _list_names(self._current()) if name != self._side_directory_name]
        while self._frames:
            frame = self._frames[-1]
            if frame.names:
                self._visit(frame, frame.names.pop())
            else:
                self._leave()

    def close(self) -> None:
        """Close what an error left open."""
        for frame in self._frames:
            if frame.descriptor is not None:
                os.close(frame.descriptor)
        self._frames.clear()

    def finish(self) -> Scan:
        """The scan, with hard-link groups resolved."""
        for group in self._groups.values():
            self._finish_group(group)
        self._untracked.sort(key=lambda one: (one.path, one.kind))
        return Scan(self._image, tuple(self._untracked))

    def _finish_group(self, group: _Group) -> None:
        leader = min(group.paths) if len(group.paths) > 1 else None
        for path in group.paths:
            self._image[path] = msgspec.structs.replace(group.entry, link=leader)
            if group.status.links > len(group.paths):
                self._untracked.append(Untracked(path, OUTSIDE_LINK))

    def _visit(self, frame: _Frame, name: bytes) -> None:
        path = frame.path + b"/" + name if frame.path else name
        with _naming(path):
            for _ in range(_TRIES):
                try:
                    status = look_at(name, self._current())
                    self._take(status, name, path)
                    return
                except FileNotFoundError:
                    return
                except ChangedUnderneath:
                    continue
        raise ScanError(f"{show_path(path)} keeps changing while it is read; try again when it is quiet")

    def _take(self, status: Status, name: bytes, path: bytes) -> None:
        kind = kind_of(status.mode)
        if not status.is_on_mount_of(self._root):
            self._untracked.append(Untracked(path, MOUNT))
        elif kind == "f":
            self._take_file(status, name, path)
        elif kind == "d":
            self._enter(status, name, path)
        elif kind == "l":
            self._image[path] = observe.observe_link(name, self._current(), status)
        elif kind == "p":
            self._image[path] = observe.observe_pipe(status)
        else:
            self._untracked.append(Untracked(path, kind))

    def _take_file(self, status: Status, name: bytes, path: bytes) -> None:
        known = self._groups.get((status.device, status.inode)) if status.links > 1 else None
        if known is None or not known.status.is_same_version(status):
            entry, status = observe.observe_file(name, self._current())
        else:
            entry = known.entry
        if status.links < 2:
            self._image[path] = entry
            return
        group = self._groups.setdefault((status.device, status.inode), _Group(status, entry))
        group.status, group.entry = status, entry
        group.paths.append(path)

    def _enter(self, status: Status, name: bytes, path: bytes) -> None:
        descriptor = observe.open_or_changed(name, self._current(), OPEN_DIRECTORY)
        try:
            found = look_through(descriptor)
            if found.inode != status.inode or not found.is_on_mount_of(self._root):
                raise ChangedUnderneath
            entry, names = observe.observe_directory(descriptor, found), _list_names(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._image[path] = entry
        if len(self._frames) >= _OPEN_LIMIT:
            self._suspend(self._frames[-_OPEN_LIMIT])
        self._frames.append(_Frame(descriptor, found, names, path))

    def _current(self) -> int:
        descriptor = self._frames[-1].descriptor
        if descriptor is None:
            raise InternalError("the innermost directory of a scan is not open")
        return descriptor

    def _suspend(self, frame: _Frame) -> None:
        if frame.descriptor is not None:
            os.close(frame.descriptor)
            frame.descriptor = None

    def _leave(self) -> None:
        left = self._frames[-1]
        above = self._frames[-2] if len(self._frames) > 1 else None
        if above is not None and above.descriptor is None:
            with _naming(above.path):
                above.descriptor = self._open_above(above)
        self._frames.pop()
        self._suspend(left)

    def _open_above(self, above: _Frame) -> int:
        descriptor = os.open(b"..", OPEN_DIRECTORY, dir_fd=self._current())
        found = look_through(descriptor)
        if (found.device, found.inode) != (above.status.device, above.status.inode):
            os.close(descriptor)
            raise ChangedUnderneath
        return descriptor


def _list_names(descriptor: int) -> list[bytes]:
    return list({os.fsencode(name) for name in os.listdir(descriptor)})  # a busy directory may list a name twice


class _naming:
    """Turns an `OSError` inside into the `ScanError` that names `path`."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise ScanError(f"cannot read {show_path(self._path)}: {error.strerror}; make it readable and try again") from error
