"""The recorder in the processes of a driver: it hears of every operation of the durable module and of SQLite's files, and writes it down.

It is told before an operation begins and after it has ended. What is begun is written down before it is done, so that nobody can act on
what the record does not have yet; a sync counts from what was written down when it began. It never opens a file of the state
directory: closing one would drop the locks that its process has on it (rule L6).
"""

import fcntl
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from blake3 import blake3

from chaos.powerloss.events import Event, Kind, Look, encode_event
from eventlog import durable
from eventlog.kernel import look_at

LOGGED = ("state", "holders")
"""Directories of a trial whose files are written by the durable module and SQLite only: looked at for their names."""
_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+")
_KINDS: dict[durable.Kind, Kind] = {
    "create": "name", "write": "write", "truncate": "truncate", "sync": "sync", "syncfs": "syncfs", "rename": "name", "move": "name",
    "link": "name", "unlink": "name", "rmdir": "name",
}  # fmt: skip
_TYPES = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}
Signature = tuple[int, int, int, int, int]
COPIED = "copied"
"""The point of the event that stands after the one at which something was to be done."""


@dataclass(frozen=True, slots=True)
class Instant:
    """Something to be done once, when the event called `name` (`name_event`) has been written down and before what it announces is done:
    meanwhile no process announces anything else."""

    name: str
    act: Callable[[], None]


def is_logged(path: str) -> bool:
    """Whether a path below the trial's directory is one of `LOGGED` or below one."""
    return path.partition("/")[0] in LOGGED


def is_looked_at(path: str) -> bool:
    """Whether a path is of the workspace or its side directory, whose files are looked at as a whole."""
    first = path.partition("/")[0]
    return first == "work" or first.startswith(".crashworthy-")


class Recorder:
    """Of one process and, since it lives through a fork, of those forked from it. `directory` is the trial's, `record` the file."""

    def __init__(self, directory: Path, record: Path, output: Path, instant: Instant | None = None) -> None:
        self._directory = str(directory)
        self._record = str(record)
        self._output = str(output)
        self._witness = str(directory / "witness")
        self._pid = 0
        self._descriptor = -1
        self._who = "driver@0"
        self._seen: dict[str, tuple[Signature, Look]] = {}
        self._instant = instant
        self._counts: dict[str, int] = {}

    # The hook of steps: who this process is

    def pass_step(self, step: str) -> None:
        self._who = step.partition(":")[0]

    # The observer of the durable module

    def begin(self, operation: durable.Operation) -> None:
        self._note_operation(operation, is_end=False)

    def end(self, operation: durable.Operation) -> None:
        if operation.kind not in ("write", "truncate"):  # what they do is known when they begin
            self._note_operation(operation, is_end=True)

    def _note_operation(self, operation: durable.Operation, *, is_end: bool) -> None:
        path = self._path_of(operation)
        if path is None:
            return
        offset = 0 if operation.offset is None else operation.offset
        if operation.kind == "write" and operation.offset is None:
            is_appending = fcntl.fcntl(operation.descriptor, fcntl.F_GETFL) & os.O_APPEND
            offset = os.fstat(operation.descriptor).st_size if is_appending else os.lseek(operation.descriptor, 0, os.SEEK_CUR)
        is_directory = operation.descriptor >= 0 and stat.S_ISDIR(os.fstat(operation.descriptor).st_mode)
        point = name_point(operation.step, path, is_directory=is_directory and operation.kind == "sync")
        self.note(_KINDS[operation.kind], point, path, offset, operation.data, is_end=is_end)

    def _path_of(self, operation: durable.Operation) -> str | None:
        if operation.descriptor >= 0:
            return self.locate(os.readlink(f"/proc/self/fd/{operation.descriptor}"))
        above = "" if operation.directory is None else os.readlink(f"/proc/self/fd/{operation.directory}")
        return self.locate(os.path.join(above, os.fsdecode(operation.path)))

    def locate(self, path: str) -> str | None:
        """A path as it is below the trial's directory, "" for that; None outside of it."""
        full = os.path.abspath(path)
        if full == self._directory:
            return ""
        return full[len(self._directory) + 1 :] if full.startswith(f"{self._directory}/") else None

    # Writing down

    def note(self, kind: Kind, point: str, path: str, offset: int = 0, data: bytes = b"", *, is_end: bool = False) -> None:
        """Append one event, with what a look at the trial's directories finds new."""
        descriptor = self._open()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            event = self._append(descriptor, Event(self._who, kind, point, path, is_end, offset, data, 0, 0, {}, []))
            if self._instant is not None and name_event(event, self._counts) == self._instant.name:
                self._instant.act()
                self._append(descriptor, Event(self._who, "open", COPIED, "", True, 0, b"", 0, 0, {}, []))
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _append(self, descriptor: int, event: Event) -> Event:
        """Write an event down with what is to be seen now."""
        changed, removed = self._look()
        sizes = _size_of(self._output), _size_of(self._witness)
        seen = msgspec.structs.replace(event, output=sizes[0], witness=sizes[1], changed=changed, removed=removed)
        os.write(descriptor, encode_event(seen))
        return seen

    def _open(self) -> int:
        """The record, opened by this very process: a lock that came along with a fork would be the parent's too."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._descriptor = os.open(self._record, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def _look(self) -> tuple[dict[str, Look], list[str]]:
        found: dict[str, tuple[Signature, Look]] = {}
        for name in sorted(os.listdir(self._directory)):
            if is_logged(name) or is_looked_at(name):
                self._look_at(name, found)
        removed = [path for path in self._seen if path not in found]
        changed = {path: entry[1] for path, entry in found.items() if self._seen.get(path) != entry}
        # A content is told once: what is kept to compare with has none.
        self._seen = {path: (sign, _without_content(look)) for path, (sign, look) in found.items()}
        return changed, removed

    def _look_at(self, path: str, found: dict[str, tuple[Signature, Look]]) -> None:
        full = os.path.join(self._directory, path)
        try:
            status = os.lstat(full)
            sign = _sign(status, is_logged(path))
            known = self._seen.get(path)
            found[path] = known if known is not None and known[0] == sign else (sign, self._read(full, path, status))
            names = sorted(os.listdir(full)) if stat.S_ISDIR(status.st_mode) else []
        except (FileNotFoundError, NotADirectoryError):  # it goes away just now: whoever takes it away says so
            found.pop(path, None)
            return
        for name in names:
            if not name.endswith("-shm"):  # SQLite makes it anew from the WAL
                self._look_at(f"{path}/{name}", found)

    def _read(self, full: str, path: str, status: os.stat_result) -> Look:
        if not is_logged(path):
            return _read_look(Path(full))
        kind = _TYPES.get(stat.S_IFMT(status.st_mode), "o")
        return Look(kind, stat.S_IMODE(status.st_mode), identify(full), status.st_size if kind == "f" else 0)


def identify(path: str | Path) -> int:
    """A number that only this file ever has: an inode number alone goes to the next file once its own is gone. FileNotFoundError."""
    status = look_at(str(path))
    return (status.inode ^ ((status.birth_ns or 0) * 0x9E3779B97F4A7C15)) & 0x3FFF_FFFF_FFFF_FFFF


def name_event(event: Event, counts: dict[str, int]) -> str:
    """What an event is called among those of its run, ROLE@EPOCH:KIND.POINT:N, the end of one ROLE@EPOCH:KIND.POINT.done:N; `counts` are
    those of the process so far, or of the whole run where one after the other is asked for."""
    name = f"{event.who.replace('@0', '@1')}:{event.kind}.{event.point}{'.done' if event.is_end else ''}"
    counts[name] = counts.get(name, 0) + 1
    return f"{name}:{counts[name]}"


def look_at_all(directory: Path) -> dict[str, Look]:
    """Everything that is recorded, with its contents. Only where nobody has a log open: it opens files."""
    found: dict[str, Look] = {}
    for name in sorted(os.listdir(directory)):
        if is_logged(name) or is_looked_at(name):
            tops = [directory / name, *sorted((directory / name).rglob("*"))]
            found.update({str(path.relative_to(directory)): _read_look(path) for path in tops if not path.name.endswith("-shm")})
    return found


def _read_look(path: Path) -> Look:
    status = os.lstat(path)
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), "o")
    content = os.fsencode(os.readlink(path)) if kind == "l" else path.read_bytes() if kind == "f" else None
    digest = b"" if content is None else blake3(content).digest(16)
    return Look(kind, stat.S_IMODE(status.st_mode), identify(path), status.st_size if kind == "f" else 0, digest, content)


def _without_content(look: Look) -> Look:
    return look if look.content is None else Look(look.kind, look.mode, look.inode, look.size, look.digest)


def _sign(status: os.stat_result, is_named_only: bool) -> Signature:
    times = (0, 0) if is_named_only or stat.S_ISDIR(status.st_mode) else (status.st_mtime_ns, status.st_ctime_ns)
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return status.st_ino, status.st_mode, size, *times


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def name_point(step: str, path: str, *, is_directory: bool) -> str:
    """What a sync or a write is called: the caller's step, or the file's name; `.directory` ends the names of directories."""
    name = step or _NUMBERS.sub("n", path.rpartition("/")[2].lower()).strip(".-") or "file"
    clean = re.sub(r"[^a-z0-9_.-]+", "-", name)
    return f"{clean}.directory" if is_directory else clean
