"""A state directory with few inodes: an ext4 of its own, mounted over it, all of whose inodes but some are taken.

Nothing of it is seen outside of the runner's mount namespace. Everything that makes a file is refused there, whoever it is: the engine by
the durable module or beside it, SQLite, the kernel for a socket. Commands work in the workspace, which has room.
"""

import os

from chaos.drivers import Place
from chaos.powerloss.loops import attach, make_image, mount, unmount
from chaos.trees import copy_tree, empty_tree, remove_tree

KIND = "ext4"
INODES = 512
FILLER = "filler"


def count_files(place: Place) -> int:
    """How many files and directories there are in the state directory."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(place.state))


def mount_state(place: Place, left: int) -> None:
    """Put the state directory, where there is one, on a file system that has `left` inodes more. Nobody may be at work. CalledProcessError,
    OSError."""
    home = place.directory / "inodes"
    home.mkdir()
    make_image(KIND, home / "image", ("-N", str(INODES)))
    place.state.mkdir(mode=0o700, exist_ok=True)
    with attach(home / "image") as device:
        (home / "new").mkdir()
        mount(KIND, device, home / "new")
        copy_tree(place.state, home / "new")
        unmount(home / "new")
        mount(KIND, device, place.state)
    (place.state / FILLER).mkdir()
    while os.statvfs(place.state).f_favail > left:
        (place.state / FILLER / str(os.statvfs(place.state).f_favail)).touch()


def count_left(place: Place) -> int:
    """How many inodes are free there."""
    return os.statvfs(place.state).f_favail


def make_room(place: Place) -> None:
    """Give the inodes back that were taken. Doing it again is the same."""
    remove_tree(place.state / FILLER)


def is_mounted(place: Place) -> bool:
    """Whether the state directory is a file system of its own."""
    return os.path.ismount(place.state)


def put_back(place: Place, *, keeps: bool) -> None:
    """Unmount it; with `keeps` what is in it stays, for people to look at."""
    kept = place.directory / "state-left"
    kept.mkdir()
    if keeps:
        copy_tree(place.state, kept)
    unmount(place.state)
    if keeps:
        empty_tree(place.state)
        copy_tree(kept, place.state)
    remove_tree(kept)
