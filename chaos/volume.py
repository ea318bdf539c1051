"""A workspace on a file system of its own, so that it can be unmounted: a tmpfs, in a mount namespace that ends with the zygote.

Nothing of it is seen outside, and whatever is left mounted goes with the last process of the namespace.
"""

import functools
import subprocess
import tempfile

from chaos.drivers import Place

PROGRAMS = ("mount", "umount", "unshare")
NAMESPACE = ("unshare", "--mount", "--propagation", "private")
"""Begins the command of a zygote that mounts."""


@functools.cache
def find_lack() -> str:
    """Why nothing can be mounted here, in words; "" when it can."""
    with tempfile.TemporaryDirectory(prefix="chaos-mount-") as directory:
        try:
            done = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", directory], capture_output=True, check=False)
        except OSError as error:
            return f"{error.strerror}: {NAMESPACE[0]}"
    return "" if done.returncode == 0 else "nothing can be mounted here: " + done.stderr.decode("utf-8", "replace").strip()[:200]


def mount_work(place: Place) -> None:
    """Mount an empty file system at the workspace, which is there. Raises CalledProcessError."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", str(place.work)], check=True)
    place.mounted.touch()


def unmount_work(place: Place) -> None:
    """Take it away again, whoever uses it, and all that is in it. Raises CalledProcessError."""
    subprocess.run(["umount", "--lazy", str(place.work)], check=True)
    place.mounted.unlink()
