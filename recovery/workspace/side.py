"""The side directory of a space and the identity of a workspace's root (rules R2 and R6).

    <parent of the root>/.crashworthy-<space id>/     when that is on the root's mount, proved by a trial rename
    <root>/.crashworthy-side/                         otherwise; the reserved name no image, scan or user path may contain
        staging/  quarantine/  probe/

The trial renames a file of `probe` to the reserved name in the root and back, so that a crash between leaves nothing that a scan would see;
what a crash left there is taken back by the next trial.
"""

import contextlib
import errno
import os

import msgspec

from eventlog import durable, events
from eventlog.attributes import ROOT_IDENTITY_XATTR
from eventlog.beneath import OPEN_DIRECTORY
from eventlog.errors import MisuseError, NeedsPersonError
from eventlog.kernel import kind_of, look_at, look_through
from eventlog.show import show_path

RESERVED_NAME = b".crashworthy-side"
_BESIDE_PREFIX = ".crashworthy-"
_PROBE = "probe"
_PRIVATE = 0o700
_STEP = "side"
_NO_XATTRS = (errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.ENOSPC)


class Side(msgspec.Struct, frozen=True):
    """Where the side directory is (absolute path), and whether that is inside the root."""

    path: str
    inside: bool


class RootIdentity(msgspec.Struct, frozen=True):
    """What tells this root from another: a random `id` in an attribute of it, else inode, birth time and file system id.

    `birth_ns` is None where the file system keeps none; `filesystem` is the statvfs id in hex (never the device number).
    """

    id: str | None
    inode: int
    birth_ns: int | None
    filesystem: str


def recorded_root(identity: events.RootIdentity) -> RootIdentity:
    """A root identity as an event holds it, as the functions here compare it."""
    return RootIdentity(identity.id, identity.inode, identity.birth_ns, identity.filesystem)


def prepare_side(root: str, space_id: str) -> Side:
    """Find or make the side directory of the space on the root's own mount. `root` is absolute and resolved.

    Raises `MisuseError` when neither place can be used. An inside directory, once made, stays in use: quarantine lies in it.
    """
    inside = os.path.join(root, os.fsdecode(RESERVED_NAME))
    if _is_directory(inside):
        return Side(_make_private(inside), inside=True)
    beside = os.path.join(os.path.dirname(root), _BESIDE_PREFIX + space_id)
    if _can_use(beside, root):
        return Side(beside, inside=False)
    try:
        _take_back(root)
        return Side(_make_private(inside), inside=True)
    except OSError as error:
        shown = show_path(os.fsencode(root))
        raise MisuseError(f"no side directory can be made beside or in {shown}: {error.strerror}; make the workspace writable") from error


def find_sides(root: str, space_id: str) -> tuple[str, ...]:
    """The side directories of the space that are there now, in the order in which `prepare_side` asks for them; changes nothing.

    Both may be: a root that was moved onto a mount of its own gets one inside, and the older one keeps what lies in it.
    """
    places = (os.path.join(root, os.fsdecode(RESERVED_NAME)), os.path.join(os.path.dirname(root), _BESIDE_PREFIX + space_id))
    return tuple(place for place in places if _is_directory(place))


def _is_directory(path: str) -> bool:
    try:
        return kind_of(look_at(path).mode) == "d"
    except (FileNotFoundError, NotADirectoryError):
        return False


def _make_private(path: str) -> str:
    """Make the directory, or check that what is there is a directory of ours; 0700 in the end."""
    try:
        os.mkdir(path, _PRIVATE)
    except FileExistsError:
        pass  # an earlier session's; checked next
    descriptor = os.open(path, OPEN_DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise MisuseError(f"the side directory {show_path(os.fsencode(path))} belongs to another user")
        os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)
    return path


def _can_use(beside: str, root: str) -> bool:
    """Whether the place beside the root serves: made, on the same mount, and a rename into the root and back works."""
    try:
        if not look_at(os.path.dirname(root)).is_on_mount_of(look_at(root)):
            return False
        _make_private(beside)
        _try_rename(beside, root)
    except OSError:
        return False  # whatever the reason: the place inside the root is tried next
    return True


def _try_rename(side: str, root: str) -> None:
    probe = os.path.join(side, _PROBE)
    os.makedirs(probe, _PRIVATE, exist_ok=True)
    _take_back(root)
    trial = os.path.join(probe, "trial")
    os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    before = os.stat(root)
    reserved = os.path.join(root, os.fsdecode(RESERVED_NAME))
    durable.move(trial, reserved, _STEP)
    durable.move(reserved, trial, _STEP)
    os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))


def _take_back(root: str) -> None:
    """Remove an (empty) trial file that a killed trial left under the reserved name in the root."""
    reserved = os.path.join(root, os.fsdecode(RESERVED_NAME))
    try:
        found = look_at(reserved)
    except FileNotFoundError:
        return
    if kind_of(found.mode) == "f" and found.size == 0:
        durable.unlink(reserved, _STEP)


def read_root_identity(root: str) -> RootIdentity:
    """The identity of the root as it is now; changes nothing. Raises `OSError` when it cannot be looked at."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = look_through(descriptor)
        return RootIdentity(_read_id(descriptor), status.inode, status.birth_ns, f"{os.fstatvfs(descriptor).f_fsid:x}")
    finally:
        os.close(descriptor)


def _read_id(descriptor: int) -> str | None:
    try:
        return os.getxattr(descriptor, ROOT_IDENTITY_XATTR).decode("ascii", "replace")
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return None
        raise


def set_root_identity(root: str, identity: str) -> bool:
    """Write the random id into the root's attribute. False when the file system or the root's permissions do not take it.

    Doing it again is the same. Replaces an id that came along with a copy of another root.
    """
    try:
        os.setxattr(root, ROOT_IDENTITY_XATTR, identity.encode("ascii"))
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return False
        raise
    return True


def take_root(root: str, identity: str, is_accepted: bool) -> RootIdentity:
    """Make the directory `root` the workspace under a new id, and read its identity back: made where nothing is, with the directories
    above it; one that is there must be empty, or accepted by a person. Doing it again is the same.

    Raises NeedsPersonError for a directory with content that nobody accepted, or for something that is no directory.
    """
    with contextlib.suppress(FileExistsError):
        os.makedirs(root)
    if kind_of(look_at(root).mode) != "d":
        raise NeedsPersonError(f"{show_path(os.fsencode(root))} is not a directory; move it away, then drive again")
    if not is_accepted and os.listdir(root):
        # Asked by who is about to mark it: a directory put there meanwhile must not become the session's own (D3).
        raise NeedsPersonError(f"{show_path(os.fsencode(root))} is not empty any more; nothing was changed in it, drive again")
    set_root_identity(root, identity)
    return read_root_identity(root)


def tell_unmounted(root: str, recorded: RootIdentity) -> str:
    """A half sentence when a lost root may only be out of sight: nothing is there, and what is (an empty directory, or the nearest
    directory above) is on another file system than the recorded root was. "" otherwise. Changes nothing.
    """
    place = root
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        is_empty = place != root or not os.listdir(root)
        filesystem = f"{os.statvfs(place).f_fsid:x}"
    except OSError:
        return ""
    if not is_empty or filesystem == recorded.filesystem:
        return ""
    return "its file system may not be mounted (the session began on another one than is there now): mount it; "


def is_same_root(recorded: RootIdentity, found: RootIdentity) -> bool:
    """Whether the root found is the one recorded: by id when it carries one, else by inode, birth time and file system.

    An unknown birth time proves nothing, as inode numbers are used again.
    """
    if recorded.id is not None and found.id is not None:
        return recorded.id == found.id
    if recorded.birth_ns is None:
        return False
    return (recorded.inode, recorded.birth_ns, recorded.filesystem) == (found.inode, found.birth_ns, found.filesystem)
