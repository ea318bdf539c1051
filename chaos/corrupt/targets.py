"""What can be damaged of a session, by role, and where its bytes stand: `log`, `wal`, `ledger`, `record.K`, `blob.K`, `manifest.K`,
`content.K`.

K counts from 1: blobs by their names (the hash of what they hold), records of the ledger and objects of the checkpoint store from the
newest. So a name means the same in another play of the same session, where paths and hashes may not.

Blobs are those of a log whose write-ahead log was emptied into the database (`empty_wal`), as SQLite does by itself when that has grown: in
a frame of the WAL, SQLite notices what is wrong before anybody can believe it.

The log is read through SQLite in copies only, by the standard library: nobody has the session's files open then (FACTS, trap 1).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.drivers import Place

_NEEDLE = 512
"""How many of a blob's first stored bytes are looked for, at most: they stand in one page, in one piece."""


@dataclass(frozen=True, slots=True)
class Target:
    """Bytes of one file: `length` from `start`."""

    name: str
    path: Path
    start: int
    length: int

    @property
    def role(self) -> str:
        """The name without its number."""
        return self.name.partition(".")[0]


def list_targets(place: Place, scratch: Path) -> list[Target]:
    """Everything of a session that holds at least one byte, in the order above. `scratch` is an empty directory, and is left so."""
    log = _log_of(place)
    found = [*_whole("log", [log]), *_whole("wal", [Path(f"{log}-wal")]), *_whole("ledger", [place.ledger])]
    found += _find_records(place.ledger)
    found += _find_blobs(place, scratch)
    found += _number("manifest", _list_objects(place, "manifests"))
    found += _number("content", _list_objects(place, "contents"))
    return found


def find_target(place: Place, name: str, scratch: Path) -> Target | None:
    """The bytes that a name means here; None when there are none."""
    return next((one for one in list_targets(place, scratch) if one.name == name), None)


def _whole(name: str, paths: list[Path]) -> Iterator[Target]:
    for path in paths:
        if path.is_file() and path.stat().st_size:
            yield Target(name, path, 0, path.stat().st_size)


def _number(role: str, paths: list[Path]) -> list[Target]:
    return [one for number, path in enumerate(paths, 1) for one in _whole(f"{role}.{number}", [path])]


def _list_objects(place: Place, kind: str) -> list[Path]:
    found = [path for path in (place.checkpoints / kind).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def _find_records(ledger: Path) -> list[Target]:
    """The whole lines of the ledger, each without its newline, the newest first."""
    found, at = [], 0
    for line in (ledger.read_bytes() if ledger.is_file() else b"").split(b"\n")[:-1]:
        found.append((at, len(line)))
        at += len(line) + 1
    return [Target(f"record.{number}", ledger, start, length) for number, (start, length) in enumerate(reversed(found), 1) if length]


def _find_blobs(place: Place, scratch: Path) -> list[Target]:
    """The first stretch of each blob's stored bytes in the database, as it is when the WAL has been emptied into it."""
    with _emptied(place, scratch) as copy:
        stored, data = _read_blobs(copy), copy.read_bytes()
    spans = ((number, data.rfind(one[:_NEEDLE]), len(one[:_NEEDLE])) for number, one in enumerate(stored, 1))
    return [Target(f"blob.{number}", _log_of(place), at, length) for number, at, length in spans if at >= 0]


def read_emptied(place: Place, scratch: Path) -> bytes:
    """The database as it is when the WAL has been emptied into it."""
    with _emptied(place, scratch) as copy:
        return copy.read_bytes()


def _log_of(place: Place) -> Path:
    return place.state / "log.sqlite"


@contextmanager
def _emptied(place: Place, scratch: Path) -> Iterator[Path]:
    """A copy of the log in `scratch` with its WAL emptied, while that is needed."""
    log = _log_of(place)
    for path in (log, Path(f"{log}-wal")):
        if path.is_file():
            (scratch / path.name).write_bytes(path.read_bytes())
    try:
        empty_wal(scratch / log.name)
        yield scratch / log.name
    finally:
        for left in scratch.iterdir():
            left.unlink()


def empty_wal(log: Path) -> None:
    """Have SQLite move everything in a log's WAL into the database; an empty WAL stays, as the engine leaves one. OSError where it is
    open."""
    connection = sqlite3.connect(log)
    try:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.close()
    if busy:
        raise OSError(f"somebody has {log} open")
    Path(f"{log}-wal").touch(0o600)


def _read_blobs(log: Path) -> list[bytes]:
    connection = sqlite3.connect(log)
    try:
        return [row[0] for row in connection.execute("SELECT bytes FROM blob WHERE length(bytes) > 16 ORDER BY hash")]
    finally:
        connection.close()
