"""Refusals before a log is opened for writing: file systems on which WAL corrupts, read-only places.

`filesystem_of` is pure over the text of /proc/self/mountinfo; `check_writable_place` asks the machine.
"""

import os
import re

from eventlog.errors import MisuseError
from eventlog.show import show_text

# WAL needs shared memory that is coherent between processes; these lose it (LESSONS: NFS, virtiofs, 9p, FUSE corrupt within minutes).
REFUSED_FILESYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p virtiofs ceph glusterfs afs lustre gpfs ocfs2 gfs2 orangefs davfs beegfs"
    " fuseblk prl_fs vboxsf vmhgfs".split()
)


_OCTAL = re.compile(r"\\([0-7]{3})")


def filesystem_of(path: str, mountinfo: str) -> str:
    """The file system type that holds the absolute, resolved `path`, by the longest mount point; "" when none matches."""
    best, kind = -1, ""
    for line in mountinfo.split("\n"):
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = _unescape(fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), right.split(" ")[0]
    return kind


def _unescape(field: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def is_refused(kind: str) -> bool:
    """True for network and FUSE file systems."""
    return kind in REFUSED_FILESYSTEMS or kind == "fuse" or kind.startswith("fuse.")


def check_writable_place(directory: str, *, allow_network: bool) -> None:
    """Raise MisuseError when a log may not be written in `directory` (an existing directory)."""
    resolved = os.path.realpath(directory)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        kind = filesystem_of(resolved, file.read())
    if is_refused(kind) and not allow_network:
        raise MisuseError(
            f"{show_text(directory)} is on a {kind} file system, where SQLite's WAL corrupts; put the state directory on a local disk, "
            "or set SESSION_ALLOW_NETWORK_FILESYSTEM=1 if you know that only one host ever opens it"
        )
    if os.statvfs(resolved).f_flag & os.ST_RDONLY or not os.access(resolved, os.W_OK | os.X_OK):
        raise MisuseError(
            f"{show_text(directory)} is read-only here; name a writable state directory (a copy can be read with `eventlog show`)"
        )
