"""What a restore changes in place, as it was before (rule R3): mode, time, owner, ACL and attributes of nodes that keep their place.

    <side>/quarantine/<log id>-<decision seq>/<round>.attributes    a JSON object a line (`Before`), bytes in base64

Ordering: written and synced before the first action of its round, so that whatever was changed stands in it. A file without its last
newline was cut by a crash, and nothing of its round was changed. Of a path that several rounds name the first is what was there: a
round that was killed may have left a directory loosened for the work.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

import msgspec

from eventlog import durable
from eventlog.attributes import ROOT_IDENTITY_XATTR, open_node, read_acl, read_xattrs
from eventlog.beneath import Beneath
from eventlog.image_values import MODE_BITS
from recovery.workspace.actions import FinishDirectory, MakeDirectory, RestorePlan, SetAttributes, StageDirectory

SUFFIX = ".attributes"
_IS_ANOTHER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class Before(msgspec.Struct, frozen=True):
    """A node before it was changed in place. `xattrs` and `acl` are encoded pairs, None for none; `owner` is (user id, group id)."""

    path: bytes
    kind: str
    mode: int
    mtime_ns: int
    owner: tuple[int, int]
    xattrs: bytes | None = None
    acl: bytes | None = None


def list_before(plan: RestorePlan, root: str) -> list[Before]:
    """The nodes whose attributes `plan` will really change in place, as they are now. Raises OSError; a node that is another by now is left
    out: the action itself stops there, by name."""
    made = {action.path for action in plan.actions if isinstance(action, MakeDirectory | StageDirectory)}
    found: list[Before] = []
    with Beneath(root) as tree:
        for action in plan.actions:
            if isinstance(action, SetAttributes | FinishDirectory) and action.path not in made:
                before = _look(tree, action.path, action.kind if isinstance(action, SetAttributes) else "d")
                if before is not None and _changes(action, before):
                    found.append(before)
    return found


def _look(tree: Beneath, path: bytes, kind: str) -> Before | None:
    try:
        return _look_at(tree, path, kind)
    except OSError as error:
        if error.errno in _IS_ANOTHER:
            return None
        raise


def _look_at(tree: Beneath, path: bytes, kind: str) -> Before:
    if not path:
        return _read(path, kind, tree.directory(b""))
    directory, name = tree.parent(path)
    with open_node(name, directory, kind) as descriptor:
        return _read(path, kind, descriptor)


def _read(path: bytes, kind: str, descriptor: int) -> Before:
    status = os.stat(descriptor)
    owner = status.st_uid, status.st_gid
    if kind == "l":
        return Before(path, kind, status.st_mode & MODE_BITS, status.st_mtime_ns, owner)
    name = f"/proc/self/fd/{descriptor}"
    xattrs = read_xattrs(name, skip=b"" if path else ROOT_IDENTITY_XATTR)
    return Before(path, kind, status.st_mode & MODE_BITS, status.st_mtime_ns, owner, xattrs, read_acl(name))


def _changes(action: SetAttributes | FinishDirectory, before: Before) -> bool:
    """Whether the action changes anything of what is there; None in it leaves that as it is."""
    if action.mtime_ns not in (None, before.mtime_ns) or action.owner not in (None, before.owner):
        return True
    if before.kind == "l":
        return False
    is_kept = action.acl is None or (action.acl or None) == before.acl
    return not is_kept or (action.mode, action.xattrs) != (before.mode, before.xattrs)


def encode_before(found: list[Before]) -> bytes:
    """The bytes of a round's record."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in found)


def write_before(directory: str, number: int, record: bytes, step: str) -> None:
    """Put the record of round `number` beside it, synced. Nothing to be said: no file. Raises OSError, having left none."""
    if record:
        durable.write_new(os.path.join(directory, f"{number}{SUFFIX}"), [record], step)


def read_before(directory: str) -> list[tuple[int, Before]]:
    """What all rounds of a decision changed in place, by round and then path; a path that an earlier round names is left out of later ones.

    Nothing there: empty. What is no record of ours is left out.
    """
    numbers: list[int] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        tails = [name.removesuffix(SUFFIX) for name in os.listdir(directory) if name.endswith(SUFFIX)]
        numbers = sorted(int(tail) for tail in tails if tail.isascii() and tail.isdigit())
    found: dict[bytes, tuple[int, Before]] = {}
    for number in numbers:
        for one in _read_record(os.path.join(directory, f"{number}{SUFFIX}")):
            found.setdefault(one.path, (number, one))
    return sorted(found.values(), key=lambda pair: (pair[0], pair[1].path))


def _read_record(path: str) -> Iterator[Before]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        data = file.read()
    if data.endswith(b"\n"):
        with contextlib.suppress(msgspec.DecodeError):  # a ValidationError is one
            yield from [msgspec.json.decode(line, type=Before) for line in data.splitlines()]
