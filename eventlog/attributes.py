"""Modes, `user.*` attributes and times, set through open descriptors, in the one order that leaves them exact.

Owner first (a change of owner clears set-id bits), then ACL and attributes (they need write permission, so the mode is loosened for
them), then the mode (a later write would clear set-id bits; with an ACL it also sets the mask, which is what the group bits of a mode
are then), then the time. The umask never matters: modes are set, not asked for. Each function sets all of it outright, so doing it again
is the same.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from eventlog import steps
from eventlog.beneath import OPEN_NODE
from eventlog.image import decode_xattrs, encode_xattrs
from eventlog.image_values import ACL_ACCESS, ACL_DEFAULT, MODE_BITS, ROOT_IDENTITY
from eventlog.kernel import kind_of, look_through

ROOT_IDENTITY_XATTR = ROOT_IDENTITY
TRACKED_PREFIX = b"user."
_OWNER_MAY_ALL = 0o700
_OWNER_MAY_WRITE = 0o600


Owner = tuple[int, int]
_NO_ACL = (errno.ENODATA, errno.ENOTSUP)


def set_attributes(
    descriptor: int,
    mode: int,
    xattrs: bytes | None,
    mtime_ns: int | None,
    step: str,
    *,
    owner: Owner | None = None,
    acl: bytes | None = None,
) -> None:
    """Give an open file, FIFO or directory (O_PATH will do) exactly these attributes, mode and time.

    `owner` (user id, group id) and `acl` (encoded pairs, empty for none) None: left as they are; `mtime_ns` None: likewise.
    The attribute that is the root's identity is left alone. Passes `<step>.attributes.before` and `.after`. Raises `OSError`.
    """
    steps.reach(f"{step}.attributes.before")
    path = f"/proc/self/fd/{descriptor}"
    if owner is not None:
        _set_owner(path, owner)
    present = look_through(descriptor).mode & MODE_BITS
    if acl is not None and read_acl(path) != (acl or None):
        _set_acl(path, acl)
        present = -1
    if _differs(path, xattrs):
        present = look_through(descriptor).mode & MODE_BITS
        if present & _OWNER_MAY_WRITE != _OWNER_MAY_WRITE:
            present |= _OWNER_MAY_WRITE
            os.chmod(path, present)
        _set_xattrs(path, xattrs)
    if present != mode:
        os.chmod(path, mode)
    if mtime_ns is not None:
        os.utime(path, ns=(mtime_ns, mtime_ns))
    steps.reach(f"{step}.attributes.after")


def set_new_attributes(
    descriptor: int,
    mode: int | None,
    xattrs: bytes | None,
    mtime_ns: int | None,
    step: str,
    *,
    owner: Owner | None = None,
    acl: bytes | None = None,
) -> None:
    """`set_attributes` for a file just made, open for writing, that has none yet: nothing is asked, all is set through the handle. `mode`
    None: it was made with the right one, permission bits alone."""
    steps.reach(f"{step}.attributes.before")
    if owner is not None:
        os.fchown(descriptor, *owner)
    if acl or xattrs:
        for name, value in (*decode_xattrs(acl or None), *decode_xattrs(xattrs)):
            os.setxattr(descriptor, name, value)
    if mode is not None:
        os.fchmod(descriptor, mode)
    if mtime_ns is not None:
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    steps.reach(f"{step}.attributes.after")


def _set_owner(path: str, owner: Owner) -> None:
    found = os.stat(path)
    if (found.st_uid, found.st_gid) != owner:
        os.chown(path, *owner)


def read_acl(source: int | str) -> bytes | None:
    """The encoded ACLs (access, default) of an open node or of what a path leads to; None when there are none."""
    pairs = []
    for name in (ACL_ACCESS, ACL_DEFAULT):
        try:
            pairs.append((name, os.getxattr(source, name)))
        except OSError as error:
            if error.errno not in _NO_ACL:
                raise
    return encode_xattrs(pairs)


def _set_acl(path: str, acl: bytes) -> None:
    wanted = dict(decode_xattrs(acl or None))
    for name, _ in decode_xattrs(read_acl(path)):
        if name not in wanted:
            os.removexattr(path, name)
    for name, value in wanted.items():
        os.setxattr(path, name, value)


def drop_default_acl(descriptor: int) -> None:
    """Take the default ACL from an open directory: nothing that is made in it is bent by one any more."""
    _drop(descriptor, ACL_DEFAULT)


def drop_acls(descriptor: int) -> None:
    """Take from an open directory, made just now, the ACLs that it has only because of where it was made."""
    _drop(descriptor, ACL_DEFAULT)
    _drop(descriptor, ACL_ACCESS)


def _drop(descriptor: int, name: bytes) -> None:
    try:
        os.removexattr(descriptor, name)
    except OSError as error:
        if error.errno not in _NO_ACL:
            raise


def set_link_time(name: bytes, directory: int, mtime_ns: int, step: str) -> None:
    """Give a symlink, not what it leads to, its time."""
    steps.reach(f"{step}.attributes.before")
    os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=directory, follow_symlinks=False)
    steps.reach(f"{step}.attributes.after")


@contextmanager
def open_node(name: bytes, directory: int, kind: str) -> Iterator[int]:
    """An O_PATH descriptor of the node `name`, not followed; `OSError` ESTALE when it is not of `kind` any more."""
    descriptor = os.open(name, OPEN_NODE, dir_fd=directory)
    try:
        if kind_of(look_through(descriptor).mode) != kind:
            raise OSError(errno.ESTALE, "it became another kind meanwhile")
        yield descriptor
    finally:
        os.close(descriptor)


def loosen_directory(descriptor: int) -> None:
    """Let the owner work in an open directory whose mode forbids it. Its final mode is set when the work is done."""
    if not os.access(f"/proc/self/fd/{descriptor}", os.W_OK | os.X_OK, effective_ids=True):
        os.chmod(f"/proc/self/fd/{descriptor}", look_through(descriptor).mode & MODE_BITS | _OWNER_MAY_ALL)


@contextmanager
def loosened(name: bytes, directory: int) -> Iterator[None]:
    """While inside, the owner may write in the directory `name`; afterwards it has its mode again, wherever it was moved to.

    A directory can be moved to another parent only by who may write in it.
    """
    with open_node(name, directory, "d") as descriptor:
        mode = look_through(descriptor).mode & MODE_BITS
        loosen_directory(descriptor)
        try:
            yield
        finally:
            os.chmod(f"/proc/self/fd/{descriptor}", mode)


def copy_xattrs(path: str, xattrs: bytes | None) -> None:
    """Give what `path` leads to exactly the `user.*` attributes `xattrs`."""
    if _differs(path, xattrs):
        _set_xattrs(path, xattrs)


def read_xattrs(source: int | str, skip: bytes = b"") -> bytes | None:
    """The encoded `user.*` attributes but `skip` of an open file or directory, or of what a path leads to.

    None when there are none or the file system has none.
    """
    try:
        names = [os.fsencode(name) for name in os.listxattr(source)]
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return None
        raise
    pairs = []
    for name in names:
        if not name.startswith(TRACKED_PREFIX) or name == skip:
            continue
        try:
            pairs.append((name, os.getxattr(source, name)))
        except OSError as error:
            if error.errno != errno.ENODATA:  # gone since it was listed
                raise
    return encode_xattrs(pairs)


def _differs(path: str, wanted: bytes | None) -> bool:
    return read_xattrs(path, skip=ROOT_IDENTITY_XATTR) != wanted


def _set_xattrs(path: str, wanted: bytes | None) -> None:
    present = dict(decode_xattrs(read_xattrs(path, skip=ROOT_IDENTITY_XATTR)))
    pairs = dict(decode_xattrs(wanted))
    for name in present.keys() - pairs.keys():
        os.removexattr(path, name)
    for name, value in pairs.items():
        if present.get(name) != value:
            os.setxattr(path, name, value)
