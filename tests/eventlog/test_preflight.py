"""Where a log may be written: not over a network, not in FUSE, not where nothing can be written."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from eventlog.preflight import check_writable_place, filesystem_of, is_refused
from tests.recovery.workspace.support import run_as_ordinary_user, run_with_own_mounts

MOUNTS = (
    r"""21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
23 21 0:30 / /net rw - nfs4 server:/net rw
24 23 8:2 / /net/local rw,nosuid - xfs /dev/sdb1 rw
25 21 0:31 / /with\040space rw - fuse.sshfs host: rw
26 21 0:32 / /back\134040slash rw - 9p share rw
27 21 0:33 / /new\012line rw - virtiofs share rw
28 21 0:34 / /hash\043mark rw - cifs //share rw
29 21 0:35 / /over rw - ext4 /dev/sdc rw
30 29 0:36 / /over rw - tmpfs tmpfs rw
31 21 0:37 / /odd"""
    + "\u2028\x0b\x85"
    + r"""name rw - ceph mon:/ rw
a line that is none
"""
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/proc/1", "proc"),
        ("/net", "nfs4"),
        ("/net/me", "nfs4"),
        ("/network", "ext4"),
        ("/net/local", "xfs"),
        ("/net/local/state", "xfs"),
        ("/net/locality", "nfs4"),
        ("/with space/x", "fuse.sshfs"),
        ("/back\\040slash/x", "9p"),
        ("/new\nline/x", "virtiofs"),
        ("/hash#mark/x", "cifs"),
        ("/over/x", "tmpfs"),
        ("/odd\u2028\x0b\x85name/x", "ceph"),
    ],
)
def test_the_file_system_is_that_of_the_longest_and_newest_mount(path: str, kind: str) -> None:
    assert filesystem_of(path, MOUNTS) == kind


def test_nothing_is_known_of_an_empty_table() -> None:
    assert filesystem_of("/", "") == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse", "fuse.sshfs", "fuseblk"])
def test_network_and_fuse_are_refused(kind: str) -> None:
    assert is_refused(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fusectl", ""])
def test_local_ones_are_taken(kind: str) -> None:
    assert not is_refused(kind)


def test_a_writable_directory_of_this_machine_is_taken(tmp_path: Path) -> None:
    check_writable_place(str(tmp_path), allow_network=True)
    (tmp_path / "link").symlink_to(tmp_path)
    check_writable_place(str(tmp_path / "link"), allow_network=True)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user of the machine can reach."""
    base = Path(tempfile.mkdtemp(prefix="crashworthy-test-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base, ignore_errors=True)


def test_a_directory_without_write_permission_is_refused_by_name(open_place: Path) -> None:
    closed = open_place / "closed\x1b"
    closed.mkdir(mode=0o555)

    def check() -> None:
        os.chmod(closed, 0o555)
        with pytest.raises(MisuseError, match=r"closed\\x1b is read-only here; name a writable state directory"):
            check_writable_place(str(closed), allow_network=True)

    run_as_ordinary_user(str(open_place), check)


def test_a_read_only_mount_is_refused_by_name(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()

    def check() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)], check=True)
        with pytest.raises(MisuseError, match="place is read-only here"):
            check_writable_place(str(place), allow_network=True)

    run_with_own_mounts(check)
