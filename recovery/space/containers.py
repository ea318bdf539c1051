"""What another pid namespace left on record under this boot: dead only by proof (S9), because pids of there mean nothing here.

A driver that is the first process of its pid namespace (the program of a container) holds a lock for as long as it lives, on a file of
the space that is named for the namespace: with the first process the kernel ends the rest. The lock is free a moment before the rest is
dead, so END_SECS are waited for then. Or a person's setting says that a container ends all its processes when it ends.
"""

import fcntl
import os
import struct

from eventlog.errors import DeathUnprovedError
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity

END_SECS = 1.0
"""From the end of a namespace's first process to that of the rest: the kernel closes its files, then kills and waits for the others."""


def hold_namespace(directory: str, host: Host) -> None:
    """Hold the lock of this pid namespace for ever, if this process is the first in it; never twice in a process."""
    if os.getpid() != 1:
        return
    path = _path(directory, host.boot_id(), host.pid_namespace())
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fcntl.lockf(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)


def is_ended(directory: str, identity: ProcessIdentity, clock: Clock) -> bool:
    """Whether the pid namespace of a record has provably ended: its first process held the lock, and the lock is free."""
    try:
        descriptor = os.open(_path(directory, identity.boot_id, identity.pid_namespace), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        free = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, question))[0] == fcntl.F_UNLCK
    finally:
        os.close(descriptor)
    if free:
        clock.pause(END_SECS)
    return bool(free)


def tell_ways_out(error: DeathUnprovedError, way_out: str) -> DeathUnprovedError:
    """The same error, with what a person can do; `way_out` is the command that takes a person's word for it."""
    setting = ", or set SESSION_CONTAINER_ENDS_ALL=1 if that container has ended and ends all its processes" if error.is_elsewhere else ""
    said = str(error).removeprefix("FenceIncomplete: ")
    return DeathUnprovedError(
        f"{said}; no workspace path was touched; drive again where it can be seen{setting}, "
        f"or once you know that nothing of it lives, `{way_out}`",
        error.is_elsewhere,
    )


def _path(directory: str, boot_id: str, namespace: int) -> str:
    return os.path.join(directory, "namespaces", f"{boot_id}-{namespace}")
