"""Image changes as rows of `image_change`, both ways. Pure; a row that no sound log holds raises CorruptError."""

from typing import TypeGuard

from eventlog.errors import CorruptError
from eventlog.image import Change, Entry, delete_change, put_change, times_change
from eventlog.image_values import MODE_BITS, OWNER_MAX, SIZE_MAX

COLUMNS = "path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns"
Row = tuple[object, ...]
_NOTHING = ("", 0, None, 0, None, None, None, None, None, None)
"""What stands in the columns of an entry where there is none."""


def change_to_row(change: Change) -> Row:
    """The values of COLUMNS for a change."""
    entry = change.entry
    if entry is None:
        return (change.path, change.op, "", 0, None, 0, None, None, None, None, None, None, change.mtime_ns)
    described = (entry.kind, entry.mode, entry.content, entry.size, entry.target, entry.link, entry.xattrs)
    owner = (None, None) if entry.owner is None else entry.owner
    return (change.path, change.op, *described, *owner, entry.acl, entry.mtime_ns)


def change_from_row(row: Row, where: str) -> Change:
    """The change in a row of COLUMNS; `where` names it in messages."""
    path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns = row
    if not isinstance(path, bytes) or not isinstance(mtime_ns, int):
        raise CorruptError(f"{where}: an image change has no path or no time")
    if op == "put":
        if kind in ("f", "d", "l", "p") and _is_within(mode, MODE_BITS) and _is_within(size, SIZE_MAX):
            for value in (content, target, link, xattrs, acl):
                if value is not None and not isinstance(value, bytes):
                    raise CorruptError(f"{where}: an image change has {value!r} where bytes belong")
            owner = None if uid is None and gid is None else _owner_of(uid, gid, where)
            return put_change(path, Entry(kind, mode, content, size, target, link, xattrs, mtime_ns, owner, acl))  # type: ignore[arg-type]
    elif (kind, mode, content, size, target, link, xattrs, uid, gid, acl) == _NOTHING:
        if op == "times":
            return times_change(path, mtime_ns)
        if op == "del" and mtime_ns == 0:
            return delete_change(path)
    raise CorruptError(f"{where}: an image change is neither a put, a del nor a times this version knows")


def _is_within(value: object, largest: int) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value <= largest


def _owner_of(uid: object, gid: object, where: str) -> tuple[int, int]:
    if _is_within(uid, OWNER_MAX) and _is_within(gid, OWNER_MAX):
        return uid, gid
    raise CorruptError(f"{where}: an image change has {uid!r} and {gid!r} where an owner belongs")
