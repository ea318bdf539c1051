"""SQLite's files under the recorder: a VFS that hands everything on to the operating system's own and tells what it does to the disk.

It is made the default of the process, so that the engine opens its log as ever. What SQLite's own VFS does by itself, and no method
shows, is told for it: the first sync of a journal or WAL that it has made also syncs the directory.
"""

from typing import Protocol

import apsw

from chaos.powerloss.events import Kind

NAME = "crashworthy-powerloss"
BASE = "unix"
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class Notes(Protocol):
    """What the VFS tells of (`chaos.powerloss.recorder.Recorder`)."""

    def note(self, kind: Kind, point: str, path: str, offset: int = 0, data: bytes = b"", *, is_end: bool = False) -> None:
        """One thing begun or done."""

    def locate(self, path: str) -> str | None:
        """A path as it is below the trial's directory."""


def name_file(path: str) -> str:
    """What a file of SQLite's is called in the names of cuts and sync points: `log`, `wal` or `journal`, with `new-` before a log that is
    being made."""
    base = path.rpartition("/")[2]
    prefix = "new-" if ".new-" in base else ""
    return prefix + next((kind for kind in ("wal", "journal") if base.endswith(f"-{kind}")), "log")


class RecordingVfs(apsw.VFS):
    """The default VFS of a process from here on; keep the object alive."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        super().__init__(NAME, BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        path = self._notes.locate(text) if text else None
        return apsw.VFSFile(BASE, name, flags) if path is None else RecordingFile(self._notes, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        path = self._notes.locate(filename)
        if path is not None:
            self._notes.note("name", f"{name_file(path)}.delete", path)
        super().xDelete(filename, syncdir)
        if path is not None:
            self._notes.note("name", f"{name_file(path)}.delete", path, is_end=True)
            if syncdir:
                _tell_directory_synced(self._notes, path, f"{name_file(path)}.delete")


class RecordingFile(apsw.VFSFile):
    """One file of SQLite's."""

    def __init__(self, notes: Notes, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._notes = notes
        self._path = path
        self._point = name_file(path)
        self._has_new_name = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS)
        super().__init__(BASE, name, flags)
        self._is_readonly = bool(flags[1] & apsw.SQLITE_OPEN_READONLY)
        if self._has_new_name:
            self._notes.note("open", self._point, path, is_end=True)

    def xLock(self, level: int) -> None:
        """At the end of a reader SQLite asks for a lock that a file open for reading cannot have, and rightly ignores the error. Of a VFS
        in Python it would come out to the caller, but for "busy", which is the same to SQLite there."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            if not self._is_readonly:
                raise
            raise apsw.BusyError("open for reading only") from error

    def xWrite(self, data: bytes, offset: int) -> None:
        self._notes.note("write", self._point, self._path, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._notes.note("truncate", self._point, self._path, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._notes.note("sync", self._point, self._path)
        super().xSync(flags)
        self._notes.note("sync", self._point, self._path, is_end=True)
        if self._has_new_name:
            self._has_new_name = False
            _tell_directory_synced(self._notes, self._path, self._point)


def _tell_directory_synced(notes: Notes, path: str, point: str) -> None:
    above = path.rpartition("/")[0]
    notes.note("sync", f"{point}.directory", above)
    notes.note("sync", f"{point}.directory", above, is_end=True)
