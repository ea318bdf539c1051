"""Real file systems in a file: made, mounted through a loop device in the runner's own mount namespace, copied while they are mounted.

What a copy holds is what the loop device was given by then: what the kernel still has in memory is not in it, as after a loss of power
with a drive that has written all it was given.
"""

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.needs import find_missing
from chaos.stage import wait_until
from chaos.volume import NAMESPACE

CHUNK_BYTES = 1 << 20
COPIES = 8
"""So often is a copy made that is not the same when it is compared: the kernel wrote meanwhile."""
PROGRAMS = ("mount", "umount", "unshare", "losetup", "blockdev")
UNMOUNT_SECS = 20.0
PLACES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where programs that make file systems lie, on a PATH or not."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A file system: how large an image of it is, in MiB, what makes it there, and what a copy of it needs before it is mounted."""

    mib: int
    make: tuple[str, ...]
    forget: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "ext4": Kind(64, ("mkfs.ext4", "-q", "-F")),
    "xfs": Kind(320, ("mkfs.xfs", "-q", "-f")),
    "btrfs": Kind(128, ("mkfs.btrfs", "-q", "-f"), ("btrfs", "device", "scan", "--forget")),
}
"""As their makers have them when nothing is asked for, as small as each lets itself be made. btrfs knows a device by its id and wants to be
told that the one it knew is gone."""


@functools.cache
def find_lack(name: str) -> str:
    """Why no file system of this name can be mounted here, in words; "" when one can."""
    missing = find_missing([KINDS[name].make[0], *PROGRAMS], _find)
    if missing:
        return f"it needs {', '.join(missing)}, not found on PATH"
    with tempfile.TemporaryDirectory(prefix="chaos-mount-") as directory:
        image, place = Path(directory, "image"), Path(directory, "place")
        place.mkdir()
        try:
            make_image(name, image)
        except subprocess.CalledProcessError as error:
            return f"{KINDS[name].make[0]} does not work here: {_say(error.stderr)}"
        done = subprocess.run([*NAMESPACE, "mount", "-o", "loop", "-t", name, image, place], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"it cannot be mounted here: {_say(done.stderr)}"


def find_lacks() -> dict[str, str]:
    """The file systems that cannot be mounted here, each with the reason."""
    return {name: lack for name in KINDS if (lack := find_lack(name))}


def _find(name: str) -> str | None:
    places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *PLACES]
    return next((path for path in (os.path.join(place, name) for place in places) if os.access(path, os.X_OK)), None)


def _say(error: bytes) -> str:
    return error.decode("utf-8", "replace").strip()[:200]


def make_image(name: str, image: Path, options: tuple[str, ...] = ()) -> None:
    """An empty file system in the new file `image`. Raises CalledProcessError."""
    kind = KINDS[name]
    with open(image, "xb") as file:
        file.truncate(kind.mib << 20)
    program, *words = kind.make
    subprocess.run([_find(program) or program, *words, *options, image], check=True, capture_output=True)
    subprocess.run(["fallocate", "--dig-holes", image], check=False, capture_output=True)  # zeros need no room, nor time to copy


@contextlib.contextmanager
def attach(image: Path) -> Iterator[Path]:
    """The loop device of an image; the kernel takes it away when this is left and nothing is mounted from it, or this process ends."""
    done = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True)
    device = Path(os.fsdecode(done.stdout.strip()))
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        subprocess.run(["losetup", "--detach", device], check=True, capture_output=True)  # as soon as nobody has it open any more
        yield device
    finally:
        os.close(descriptor)


def put_back(copy: Path, image: Path, device: Path) -> None:
    """Have the image hold what a copy of it does, beneath a device that is not mounted: a machine that restarts finds its disk under the
    number that it had (xfs makes its own id from that)."""
    with open(image, "r+b") as file, open(copy, "rb") as source:
        size = os.fstat(file.fileno()).st_size
        file.truncate(0)
        file.truncate(size)
        for offset, data in _read_data(source.fileno()):
            os.pwrite(file.fileno(), data, offset)
    subprocess.run(["blockdev", "--flushbufs", device], check=True, capture_output=True)


def mount(name: str, device: Path, directory: Path) -> None:
    """Mount a device at a directory, whatever is in its journal being done first. Raises CalledProcessError."""
    if KINDS[name].forget:
        subprocess.run([_find(KINDS[name].forget[0]) or "btrfs", *KINDS[name].forget[1:]], check=False, capture_output=True)
    subprocess.run(["mount", "-t", name, device, directory], check=True, capture_output=True)
    lost = directory / "lost+found"
    if lost.is_dir():
        lost.rmdir()


def unmount(directory: Path) -> None:
    """Unmount what is mounted there; TimeoutError when it stays in use."""

    def is_unmounted() -> bool:
        return subprocess.run(["umount", directory], check=False, capture_output=True).returncode == 0

    wait_until(is_unmounted, UNMOUNT_SECS, f"{directory} to be unmounted")


def copy_image(image: Path, copy: Path) -> None:
    """Copy an image as it is at one instant: what was copied is compared, and copied again where the kernel wrote meanwhile. There is no
    copy where it never came out the same. The first copy stays."""
    if copy.exists():
        return
    for _ in range(COPIES):
        _copy(image, copy)
        if _is_same(image, copy):
            return
        copy.unlink()


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as file, open(target, "xb") as copy:
        copy.truncate(os.fstat(file.fileno()).st_size)
        for offset, data in _read_data(file.fileno()):
            os.pwrite(copy.fileno(), data, offset)


def _is_same(one: Path, other: Path) -> bool:
    with open(one, "rb") as file, open(other, "rb") as copy:
        return all(os.pread(copy.fileno(), len(data), offset) == data for offset, data in _read_data(file.fileno()))


def _read_data(descriptor: int) -> Iterator[tuple[int, bytes]]:
    """What of a file is no hole, a chunk at a time."""
    size, at = os.fstat(descriptor).st_size, 0
    while at < size:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole is left
            return
        end = os.lseek(descriptor, at, os.SEEK_HOLE)
        while at < end:
            data = os.pread(descriptor, min(CHUNK_BYTES, end - at), at)
            yield at, data
            at += len(data)
