"""What can be damaged of a session, by role, and where its bytes stand: `log`, `wal`, `ledger`, `blob.K`, `manifest.K`, `content.K`.

K counts from 1: blobs by their names (the hash of what they hold), objects of the checkpoint store from the newest. So a name means the
same in another play of the same session, where paths and hashes may not.

The log is read through SQLite in copies only, by the standard library: nobody has the session's files open then (FACTS, trap 1).
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chaos.drivers import Place

_NEEDLE = 48
"""How many of a blob's first stored bytes are looked for."""


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
    log, wal = place.state / "log.sqlite", place.state / "log.sqlite-wal"
    found = [*_whole("log", [log]), *_whole("wal", [wal]), *_whole("ledger", [place.ledger])]
    found += _find_blobs(log, wal, scratch)
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


def _find_blobs(log: Path, wal: Path, scratch: Path) -> list[Target]:
    """The first stretch of each blob's stored bytes, where it counts: in the newest page that holds it."""
    files = [path for path in (wal, log) if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    found = []
    for number, stored in enumerate(_read_blobs(log, wal, scratch), 1):
        needle = stored[:_NEEDLE]
        for path, data in contents.items():
            at = data.rfind(needle)
            if at >= 0:
                found.append(Target(f"blob.{number}", path, at, len(needle)))
                break
    return found


def _read_blobs(log: Path, wal: Path, scratch: Path) -> list[bytes]:
    copies = [scratch / path.name for path in (log, wal) if path.is_file()]
    for copy in copies:
        copy.write_bytes((log.parent / copy.name).read_bytes())
    try:
        connection = sqlite3.connect(scratch / log.name)
        try:
            return [row[0] for row in connection.execute("SELECT bytes FROM blob WHERE length(bytes) > 16 ORDER BY hash")]
        finally:
            connection.close()
    finally:
        for left in scratch.iterdir():
            left.unlink()
