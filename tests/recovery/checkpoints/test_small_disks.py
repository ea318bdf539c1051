"""A checkpoint store on a disk of every size, to the byte: a file system that is faked, since real ones give out whole pages.

What holds on each: a checkpoint is whole or there is none of it, an error tells of the room, and with room the same work goes through.
"""

import errno

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from eventlog.errors import CrashworthyError
from recovery.checkpoints.conformance.fixtures import OWNER, take
from recovery.checkpoints.directory import DirectoryStore, make_store
from recovery.checkpoints.port import check_contents

FILES = {b"one.txt": b"first " * 40, b"two.txt": bytes(range(200)), b"three.txt": b"3"}
PLACE = "/disk"
AMPLE = 1 << 20


def take_on(fs: FakeFilesystem, store: DirectoryStore, room: int) -> str:
    """What taking a checkpoint with so much room left comes to: "" or what is told."""
    fs.set_disk_usage(fs.get_disk_usage(PLACE).used + room, PLACE)
    try:
        take(store, FILES)
    except CrashworthyError as error:
        return str(error)
    except OSError as error:
        assert error.errno == errno.ENOSPC
        return f"No space: {error}"
    finally:
        fs.set_disk_usage(AMPLE, PLACE)
    return ""


@pytest.mark.parametrize("step", [7])
def test_a_checkpoint_on_a_disk_of_any_size_is_whole_or_absent(fs: FakeFilesystem, step: int) -> None:
    fs.add_mount_point(PLACE, AMPLE)
    ends = set()
    for number, room in enumerate(range(0, 1400, step)):
        store = make_store(f"{PLACE}/store-{number}")
        said = take_on(fs, store, room)
        manifests = list(store.list_manifests(OWNER))
        for manifest in manifests:
            found = store.load(OWNER, manifest)
            check_contents(store, found, found.image)
        ends.add((bool(said), len(manifests)))
        assert not said or "room" in said or "space" in said, said
        take(store, FILES)
        (manifest,) = store.list_manifests(OWNER)
        found = store.load(OWNER, manifest)
        check_contents(store, found, found.image)
    assert ends == {(True, 0), (False, 1)}, ends
