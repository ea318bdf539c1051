"""prctl(2) and clone3(2) by ctypes: what Python does not offer."""

import ctypes
import os
import signal
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_held = ctypes.PyDLL(None, use_errno=True)
_held.syscall.restype = ctypes.c_long
for _function in (ctypes.pythonapi.PyOS_BeforeFork, ctypes.pythonapi.PyOS_AfterFork_Parent, ctypes.pythonapi.PyOS_AfterFork_Child):
    _function.restype = None
PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SYS_CLONE3 = 435  # the same number on every architecture
_CLONE_INTO_CGROUP = 0x200000000
_CLONE_ARGUMENTS = struct.Struct("11Q")
_OUTSIDE = 0  # what a process is told of a parent in an outer pid namespace


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Inherit every orphaned descendant."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Get SIGKILL when the parent process ends (S5). Called in a fresh child; ends it at once when the parent is gone already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (parent, _OUTSIDE):
        os._exit(70)


def outlive_parent() -> None:
    """Take `end_with_parent` back."""
    _prctl(PR_SET_PDEATHSIG, 0)


def name_process(name: str) -> None:
    """What `ps` shows, at most 15 bytes; for display only."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _libc.prctl(ctypes.c_int(_PR_SET_NAME), buffer, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def fork_into_cgroup(directory: int) -> int:
    """Fork with the child in the cgroup of this open directory from its first instruction on: as os.fork, and the pid or 0.

    Moving a process there by cgroup.procs instead waits for a grace period of the kernel, 6 to 20 ms after a pause. Raises OSError where
    the kernel has no clone3 (before 5.7, or forbidden) or the cgroup is not to be had; then nothing was forked. For processes of one
    thread.
    """
    arguments = ctypes.create_string_buffer(
        _CLONE_ARGUMENTS.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory), _CLONE_ARGUMENTS.size
    )
    # What os.fork does around its system call. Calls through pythonapi keep the interpreter's lock, as fork does.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_held.syscall(ctypes.c_long(_SYS_CLONE3), arguments, ctypes.c_size_t(_CLONE_ARGUMENTS.size)))
    number = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid
