"""How things are taken from a session behind its back, and whether that is seen to be done. By plain means, without the engine.

What must hold: a loss has fired only when the file system shows it afterwards. What is moved away lies in the trial's `away`, and nobody
may touch it there.
"""

import os
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard
from blake3 import blake3

from chaos.drivers import Place
from chaos.trees import remove_tree
from chaos.volume import unmount_work
from eventlog.errors import required

LOG_FILES = ("log.sqlite", "log.sqlite-wal")
OTHER_SPACE = b"5" * 32
STRANGER = "somebody's.txt"
"""The file in a directory that stands where the workspace was."""


@dataclass(frozen=True, slots=True)
class Taking:
    """How one thing is taken away, and by what that is seen (False: it was not done)."""

    carry_out: Callable[[Place], None]
    is_done: Callable[[Place], bool]


def _remove_root(place: Place) -> None:
    remove_tree(place.work)


def _empty_root(place: Place) -> None:
    # The old one stays until the new one is there, so that the new one cannot be given its inode.
    os.rename(place.work, place.away)
    place.work.mkdir()
    remove_tree(place.away)


def _move_root(place: Place) -> None:
    os.rename(place.work, place.away)


def _replace_root(place: Place) -> None:
    _move_root(place)
    place.work.mkdir()
    (place.work / STRANGER).write_text("this is somebody else's directory\n", "utf-8")


def _copy_root(place: Place) -> None:
    """What a backup keeps: names, contents, modes and times, and not the id in an attribute of the root (R6)."""
    _move_root(place)
    shutil.copytree(place.away, place.work, symlinks=True)
    for name in os.listxattr(place.work):
        os.removexattr(place.work, name)


def _is_copied(place: Place) -> bool:
    names = [sorted(str(path.relative_to(top)) for path in top.rglob("*")) for top in (place.away, place.work)]
    return place.away.is_dir() and place.work.is_dir() and names[0] == names[1] and not os.listxattr(place.work)


def _remove_all(place: Place) -> None:
    """Every file of the workspace, as a person who runs the wrong command does."""
    for name in os.listdir(place.work):
        path = place.work / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _restart(place: Place) -> None:
    place.boot.write_text(str(uuid.uuid4()), "ascii")


def _read_lines(ledger: Path) -> list[tuple[bytes, bytes]]:
    """The check digits and the record of each line of a ledger (recovery/README, "Ledger")."""
    lines = ledger.read_bytes().split(b"\n")[:-1]
    return [(digits, body) for digits, _, body in (line.partition(b" ") for line in lines)]


def _find_damage(ledger: Path) -> list[int]:
    """The numbers of the lines whose digits are not those of their record after the line before."""
    previous, damaged = b"", []
    for number, (digits, body) in enumerate(_read_lines(ledger)):
        if blake3(previous + body).hexdigest(16).encode() != digits:
            damaged.append(number)
        previous = digits
    return damaged


def _damage_ledger(place: Place) -> None:
    """The middle line's middle byte: what is torn at the end would be a crash's work, and no damage."""
    data = bytearray(place.ledger.read_bytes())
    lines = bytes(data).split(b"\n")[:-1]
    before = sum(len(line) + 1 for line in lines[: len(lines) // 2])
    data[before + len(lines[len(lines) // 2]) // 2] ^= 1
    place.ledger.write_bytes(data)


def _has_damaged_ledger(place: Place) -> bool:
    return bool(_find_damage(place.ledger))


def _exchange_ledger(place: Place) -> None:
    """The same records under another id, with digits that are right."""
    lines = _read_lines(place.ledger)
    own = required(re.search(rb'"ledger_id":"([0-9a-f]+)"', lines[0][1]), f"{place.ledger}: the first line has no id of a ledger")
    previous, text = b"", b""
    for _, body in lines:
        other = body.replace(own[1], OTHER_SPACE)
        previous = blake3(previous + other).hexdigest(16).encode()
        text += previous + b" " + other + b"\n"
    place.ledger.write_bytes(text)


def keep_log(place: Place) -> None:
    """Copy the log's files as they are now. Nobody may be writing them."""
    place.kept_log.mkdir(exist_ok=True)
    for name in LOG_FILES:
        if (place.state / name).exists():
            shutil.copy2(place.state / name, place.kept_log / name)


def _put_back_log(place: Place) -> None:
    for name in (*LOG_FILES, "log.sqlite-shm"):
        (place.state / name).unlink(missing_ok=True)
    for name in LOG_FILES:
        if (place.kept_log / name).exists():
            shutil.copy2(place.kept_log / name, place.state / name)


def _is_log_put_back(place: Place) -> bool:
    pairs = [(place.kept_log / name, place.state / name) for name in LOG_FILES]
    return place.kept_log.is_dir() and all(kept.exists() == now.exists() and _is_same(kept, now) for kept, now in pairs)


def _is_same(one: Path, other: Path) -> bool:
    return not one.exists() or one.read_bytes() == other.read_bytes()


def _lose_machine(place: Place) -> None:
    _restart(place)
    for name in os.listdir(place.directory):
        if name.startswith(".crashworthy-") or name in (place.work.name, "holders"):
            remove_tree(place.directory / name)
    for name in os.listdir(place.state):
        path = place.state / name
        if name not in LOG_FILES:
            remove_tree(path) if path.is_dir() else path.unlink()


def _list_objects(place: Place, kind: str) -> list[Path]:
    """The objects of the checkpoint store in the state directory, `manifests` or `contents`; the newest last."""
    found = [path for path in (place.checkpoints / kind).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _flip_last(path: Path) -> None:
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # it stays the newest it was


def _damage_manifest(place: Place) -> None:
    _flip_last(_list_objects(place, "manifests")[-1])


def _damage_content(place: Place) -> None:
    _flip_last(_list_objects(place, "contents")[-1])


def _find_damaged(place: Place, kind: str) -> list[Path]:
    """Small objects, which are whole in one file, that do not hash to their names."""
    return [path for path in _list_objects(place, kind) if _content_of(path) is None]


def _content_of(path: Path) -> bytes | None:
    stored = path.read_bytes()
    try:
        content = stored[9:] if stored[0] == 0 else zstandard.ZstdDecompressor().decompress(stored[9:])
    except zstandard.ZstdError:
        return None
    return content if blake3(content).hexdigest() == path.name else None


def _is_empty(directory: Path) -> bool:
    return directory.is_dir() and not os.listdir(directory)


TAKING = {
    "root removed": Taking(_remove_root, lambda place: not os.path.lexists(place.work)),
    "root emptied": Taking(_empty_root, lambda place: _is_empty(place.work) and not place.away.exists()),
    "root moved": Taking(_move_root, lambda place: place.away.is_dir() and not os.path.lexists(place.work)),
    "root replaced": Taking(_replace_root, lambda place: place.away.is_dir() and (place.work / STRANGER).is_file()),
    "root copied": Taking(_copy_root, _is_copied),
    "root unmounted": Taking(unmount_work, lambda place: not place.mounted.exists() and _is_empty(place.work)),
    "boot": Taking(_restart, lambda place: place.boot.is_file()),
    "ledger removed": Taking(lambda place: place.ledger.unlink(), lambda place: not place.ledger.exists()),
    "ledger damaged": Taking(_damage_ledger, _has_damaged_ledger),
    "ledger exchanged": Taking(_exchange_ledger, lambda place: OTHER_SPACE in _read_lines(place.ledger)[0][1]),
    "log": Taking(_put_back_log, _is_log_put_back),
    "machine": Taking(_lose_machine, lambda place: place.boot.is_file() and not place.work.exists() and not place.ledger.parent.exists()),
    "checkpoint": Taking(_damage_manifest, lambda place: bool(_find_damaged(place, "manifests"))),
    "checkpoint content": Taking(_damage_content, lambda place: bool(_find_damaged(place, "contents"))),
    "files": Taking(_remove_all, lambda place: _is_empty(place.work)),
}
"""By the names in `losses`."""
