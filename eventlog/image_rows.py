"""Image changes as rows of `image_change`, both ways. Pure; a row that no sound log holds raises CorruptError."""

from typing import TypeGuard

from eventlog.errors import CorruptError
from eventlog.image import Change, Entry, delete_change, put_change, times_change
from eventlog.image_values import MODE_BITS, OWNER_MAX, SIZE_MAX

COLUMNS = "path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns"
Row = tuple[object, ...]


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
    empty = (kind, mode, content, size, target, link, xattrs, uid, gid, acl) == ("", 0, None, 0, None, None, None, None, None, None)
    match op:
        case "del" if empty and mtime_ns == 0:
            return delete_change(path)
        case "times" if empty:
            return times_change(path, mtime_ns)
        case "put" if (
            kind in ("f", "d", "l", "p")
            and _is_within(mode, MODE_BITS)
            and _is_within(size, SIZE_MAX)
        ):
            optional = [_optional_bytes(value, where) for value in (content, target, link, xattrs, acl)]
            owner = _owner_of(uid, gid, where)
            return put_change(
                path, Entry(kind, mode, optional[0], size, optional[1], optional[2], optional[3], mtime_ns, owner, optional[4])
            )
        case _:
            raise CorruptError(f"{where}: an image change is neither a put, a del nor a times this version knows")


def _is_within(value: object, largest: int) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value <= largest


def _owner_of(uid: object, gid: object, where: str) -> tuple[int, int] | None:
    if uid is None and gid is None:
        return None
    if _is_within(uid, OWNER_MAX) and _is_within(gid, OWNER_MAX):
        return uid, gid
    raise CorruptError(f"{where}: an image change has {uid!r} and {gid!r} where an owner belongs")


def _optional_bytes(value: object, where: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise CorruptError(f"{where}: an image change has {value!r} where bytes belong")
