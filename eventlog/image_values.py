"""What an image is made of: entries, changes, and the byte encoding of extended attributes (eventlog/README, section Images).

Pure. Paths are bytes relative to the workspace root, components joined by `/`; the empty path is the root itself. Owners and ACLs are
tracked by flag of the session (`track` of its first event); where they are not, they are None in every entry.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from eventlog.errors import CorruptError
from eventlog.show import show_path

Kind = Literal["f", "d", "l", "p"]
Operation = Literal["put", "del", "times"]
MODE_BITS = 0o7777
LINK_MODE = 0o777
DIGEST_BYTES = 32
XATTR_PREFIX = b"user."
ACL_ACCESS, ACL_DEFAULT = b"system.posix_acl_access", b"system.posix_acl_default"
_ACL_HEAD, _ACL_ENTRY = (2).to_bytes(4, "little"), 8  # the kernel's version word, and the size of each entry after it
OWNER_MAX = (1 << 32) - 2  # the largest number is what chown takes for "leave it"
ROOT_IDENTITY = b"user.crashworthy.root"  # of the root on disk, never of an image (rule R6)
NAME_MAX, TARGET_MAX, XATTR_SIZE_MAX = 255, 4095, 65536
"""What Linux takes: a name, a link's target, an attribute's value, in bytes."""
MTIME_MIN, MTIME_MAX = -(1 << 63), (1 << 63) - 1
SIZE_MAX = (1 << 63) - 1
_u32 = struct.Struct(">I")


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One path of an image: `f` file, `d` directory, `l` symlink, `p` FIFO.

    `mode` is the twelve permission bits (0o777 for a symlink); `content` the BLAKE3 id of a file's bytes and `size` their number; `target`
    a symlink's; `link` the first path, in byte order, of the hard-link group of a file, symlink or FIFO; `xattrs` the encoded pairs of its
    `user.*` attributes; None where a column does not apply. `mtime_ns` is recorded and is not identity. `owner` is (user id, group id) and
    `acl` the encoded pairs of its `system.posix_acl_access` and `system.posix_acl_default`; None where they are not tracked, `acl` also
    where there is none.

    A struct of msgspec, because a scan makes one for each path: made nine times, compared three times as fast as a frozen dataclass.
    Copies with other values come from `msgspec.structs.replace`. Encoded it is an array of its fields (only the stat cache does that).
    """

    kind: Kind
    mode: int
    content: bytes | None = None
    size: int = 0
    target: bytes | None = None
    link: bytes | None = None
    xattrs: bytes | None = None
    mtime_ns: int = 0
    owner: tuple[int, int] | None = None
    acl: bytes | None = None

    def has_identity_of(self, other: "Entry") -> bool:
        """Whether the two are the same but for their times."""
        return (
            self.content == other.content
            and self.size == other.size
            and self.mode == other.mode
            and self.kind == other.kind
            and self.target == other.target
            and self.link == other.link
            and self.xattrs == other.xattrs
            and self.owner == other.owner
            and self.acl == other.acl
        )


Image = Mapping[bytes, Entry]


class Change(msgspec.Struct, frozen=True):
    """What an event does to one path: `put` sets `entry`, `del` removes the path, `times` sets only `mtime_ns`.

    `entry` is there for `put` alone; `mtime_ns` is that of the entry for `put`, the observed one for `times`, 0 for `del`.
    """

    path: bytes
    op: Operation
    entry: Entry | None = None
    mtime_ns: int = 0


def put_change(path: bytes, entry: Entry) -> Change:
    """The change that sets the whole entry at `path`."""
    return Change(path, "put", entry, entry.mtime_ns)


def delete_change(path: bytes) -> Change:
    """The change that removes `path`."""
    return Change(path, "del")


def times_change(path: bytes, mtime_ns: int) -> Change:
    """The change that sets only the time at `path`."""
    return Change(path, "times", None, mtime_ns)


def parent_of(path: bytes) -> bytes:
    """The directory that holds `path`; the root is its own parent."""
    return path.rpartition(b"/")[0]


def name_of(path: bytes) -> bytes:
    """The last component of `path`."""
    return path.rpartition(b"/")[2]


def encode_xattrs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """`b(name) | b(value)` for each attribute, sorted by name; None when there are none."""
    encoded = b"".join(prefixed(name) + prefixed(value) for name, value in sorted(pairs))
    return encoded or None


def decode_xattrs(encoded: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
    """The pairs that `encode_xattrs` made; `CorruptError` when the bytes are not exactly such an encoding."""
    if encoded is None:
        return ()
    fields: list[bytes] = []
    position = 0
    while position < len(encoded):
        end = position + 4
        if end > len(encoded):
            raise CorruptError(f"encoded attributes end inside a length, at byte {position}")
        position = end + int(_u32.unpack_from(encoded, position)[0])
        fields.append(encoded[end:position])
    if position != len(encoded) or len(fields) % 2 or not fields:
        raise CorruptError(f"encoded attributes end inside a pair, after {len(fields)} fields")
    pairs = tuple(zip(fields[::2], fields[1::2], strict=True))
    names = [name for name, _ in pairs]
    if any(before >= after for before, after in zip(names, names[1:], strict=False)):
        raise CorruptError("encoded attributes are not sorted by distinct names")
    return pairs


def prefixed(data: bytes) -> bytes:
    """`b(x)` of the format: the length as u32, then the bytes."""
    return _u32.pack(len(data)) + data


def optional(data: bytes | None) -> bytes:
    """`opt(x)` of the format: 00 for NULL, else 01 and `b(x)`."""
    return b"\0" if data is None else b"\1" + prefixed(data)


def check_path(path: bytes) -> None:
    """`CorruptError` unless `path` is the root or a relative path without empty, `.`, `..` components and NUL bytes."""
    if not path:
        return
    is_plain = len(path) <= NAME_MAX and b"/." not in path and b"//" not in path and b"\0" not in path  # as most are
    if is_plain and path[0] not in b"./" and path[-1:] != b"/":
        return
    if b"\0" in path or any(part in (b"", b".", b"..") or len(part) > NAME_MAX for part in path.split(b"/")):
        raise CorruptError(f"not a path of an image: {show_path(path)}")


def check_entry(path: bytes, entry: Entry) -> None:
    """`CorruptError` unless every column of `entry` is as its kind demands (the table of eventlog/README)."""
    problem = _find_problem(entry)
    if problem:
        raise CorruptError(f"image entry {show_path(path)}: {problem}")


def _find_problem(entry: Entry) -> str:
    if entry.kind not in ("f", "d", "l", "p"):
        return f"unknown kind {entry.kind!r}"
    if not 0 <= entry.mode <= MODE_BITS or not MTIME_MIN <= entry.mtime_ns <= MTIME_MAX:
        return "mode or time out of range"
    problem = _find_file_problem(entry) if entry.kind == "f" else _find_kind_problem(entry)
    if problem or entry.xattrs is None and entry.owner is None and entry.acl is None:
        return problem
    return _find_xattrs_problem(entry) or _find_owner_problem(entry) or _find_acl_problem(entry)


def _find_kind_problem(entry: Entry) -> str:
    if entry.content is not None or entry.size:
        return f"content or size on kind {entry.kind!r}"
    if entry.kind == "d" and entry.link is not None:
        return "a directory in a hard-link group"
    if (entry.target is None) == (entry.kind == "l"):
        return f"target on kind {entry.kind!r}" if entry.kind != "l" else "a symlink without target"
    if entry.kind == "l" and (entry.mode != LINK_MODE or not entry.target or b"\0" in entry.target or len(entry.target) > TARGET_MAX):
        return "a symlink with a mode or an impossible target"
    return ""


def _find_file_problem(entry: Entry) -> str:
    if entry.content is None or len(entry.content) != DIGEST_BYTES:
        return "a file without content id"
    if not 0 <= entry.size <= SIZE_MAX:
        return "size out of range"
    if entry.target is not None:
        return "a file with a link target"
    return ""


def _find_xattrs_problem(entry: Entry) -> str:
    if entry.xattrs is None:
        return ""
    try:
        pairs = decode_xattrs(entry.xattrs)
    except CorruptError as error:
        return str(error)
    # Others are never tracked; an imported image that has them would have a restore set them, as root a file's capabilities.
    for name, value in pairs:
        if not name.startswith(XATTR_PREFIX) or b"\0" in name or len(name) > NAME_MAX or name in (XATTR_PREFIX, ROOT_IDENTITY):
            return "an attribute that is not a user attribute"
        if len(value) > XATTR_SIZE_MAX:
            return "an attribute that is too large"
    return ""


def _find_owner_problem(entry: Entry) -> str:
    if entry.owner is not None and not all(0 <= number <= OWNER_MAX for number in entry.owner):
        return "an owner out of range"
    return ""


def _find_acl_problem(entry: Entry) -> str:
    if entry.acl is None:
        return ""
    if entry.kind == "l":
        return "an ACL on a symlink"
    try:
        pairs = decode_xattrs(entry.acl)
    except CorruptError as error:
        return str(error)
    for name, value in pairs:
        if name != ACL_ACCESS and (name != ACL_DEFAULT or entry.kind != "d"):
            return "an ACL that its kind does not have"
        if value[:4] != _ACL_HEAD or (len(value) - len(_ACL_HEAD)) % _ACL_ENTRY or len(value) > XATTR_SIZE_MAX:
            return "an ACL in a form that Linux does not take"
    return ""
