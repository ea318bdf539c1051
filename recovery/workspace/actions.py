"""The actions of a restore plan: a closed union of values that can be written down as JSON. Bytes become base64 there.

A plan is used once. After a crash nobody continues an old plan: the tree is scanned again and a new plan made, so each docstring says why
what the action left, or half left, leads the next plan to the same end.

`owner` and `acl` None: not tracked, left as they are; `acl` empty: there is none. `mtime_ns` None: the current time for a file that is
written, the time that is there for one that stays.
"""

import msgspec


class Displace(msgspec.Struct, frozen=True, tag=True):
    """Move what is at `path`, whole, into the round's quarantine under the same relative path.

    Repeating: the move is one atomic rename that replaces nothing. Moved, the path is absent in the next scan and not displaced
    again; not moved, it is displaced by the next plan into that round's own directory.
    """

    path: bytes
    kind: str


class MakeDirectory(msgspec.Struct, frozen=True, tag=True):
    """Make the directory `path`, mode 0700 until `FinishDirectory`.

    Repeating: a directory left by a crash is found by the next scan as one with a wrong mode, kept, and finished.
    """

    path: bytes


class StageDirectory(msgspec.Struct, frozen=True, tag=True):
    """Make the directory `path` in staging, mode 0700. Until `PlaceDirectory` every action is below it and works there.

    Repeating: before `PlaceDirectory` nothing is at `path`, and staging is emptied by the next round.
    """

    path: bytes


class PlaceDirectory(msgspec.Struct, frozen=True, tag=True):
    """Move the staged directory `path`, with everything in it, to its place by one rename.

    Repeating: after the move all in it is complete but for modes and times of directories, which the next plan finishes.
    """

    path: bytes


class PlaceFile(msgspec.Struct, frozen=True, tag=True):
    """Make a file in staging, with its content verified, its attributes, mode and time, and move it to `path`; in a staged directory
    it is made under its name.

    Repeating: before the move (of the file or of that directory) nothing is at `path` and staging is emptied by the next round; after it
    the file is complete and the next plan leaves it alone.
    """

    path: bytes
    content: bytes
    size: int
    mode: int
    mtime_ns: int | None
    xattrs: bytes | None
    owner: tuple[int, int] | None = None
    acl: bytes | None = None


class PlaceLink(msgspec.Struct, frozen=True, tag=True):
    """Make a symlink in staging and move it to `path`. Repeating: as for `PlaceFile`."""

    path: bytes
    target: bytes
    mtime_ns: int
    owner: tuple[int, int] | None = None


class PlacePipe(msgspec.Struct, frozen=True, tag=True):
    """Make a FIFO in staging and move it to `path`. Repeating: as for `PlaceFile`."""

    path: bytes
    mode: int
    mtime_ns: int
    owner: tuple[int, int] | None = None
    acl: bytes | None = None


class LinkFile(msgspec.Struct, frozen=True, tag=True):
    """Give the file, symlink (itself, never what it leads to) or FIFO at `source` the further name `path`.

    Repeating: making a name is atomic and replaces nothing. A group of which only some names were made is found by the next scan
    as a smaller group of the right node, and the missing names are linked to it.
    """

    path: bytes
    source: bytes


class SetAttributes(msgspec.Struct, frozen=True, tag=True):
    """Set owner, ACL, mode, attributes and time of a file, FIFO or symlink (owner and time only) whose content is right, in place.

    Repeating: every value is set outright, none is relative to what was there; the next plan sets again what still differs.
    """

    path: bytes
    kind: str
    mode: int
    mtime_ns: int | None
    xattrs: bytes | None
    owner: tuple[int, int] | None = None
    acl: bytes | None = None


class FinishDirectory(msgspec.Struct, frozen=True, tag=True):
    """Give a directory its attributes, mode and time, after everything below it is done.

    Repeating: as for `SetAttributes`. A directory whose mode was loosened for the work and not finished differs in mode, and the next
    plan finishes it.
    """

    path: bytes
    mode: int
    mtime_ns: int
    xattrs: bytes | None
    owner: tuple[int, int] | None = None
    acl: bytes | None = None


Action = (
    Displace
    | MakeDirectory
    | StageDirectory
    | PlaceDirectory
    | PlaceFile
    | PlaceLink
    | PlacePipe
    | LinkFile
    | SetAttributes
    | FinishDirectory
)


class RestorePlan(msgspec.Struct, frozen=True):
    """What makes the tree equal to the target, in the order it must be done.

    `restored` counts the paths whose identity (not only time) will change or be made, `displaced` the moves into quarantine,
    `needed_bytes` the room that the files to be written take at most, a block for what a node costs included.
    An empty `actions` means that nothing differs.
    """

    actions: tuple[Action, ...]
    restored: int
    displaced: int
    needed_bytes: int


def encode_plan(plan: RestorePlan) -> bytes:
    """The plan as JSON."""
    return msgspec.json.encode(plan)


def decode_plan(data: bytes) -> RestorePlan:
    """The plan that `encode_plan` wrote. Raises `msgspec.DecodeError` for anything else."""
    return msgspec.json.decode(data, type=RestorePlan)
