"""prctl(2) by ctypes: what Python does not offer."""

import ctypes
import os
import signal

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
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
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (parent, _OUTSIDE):
        os._exit(70)


def outlive_parent() -> None:
    """Take `end_with_parent` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def name_process(name: str) -> None:
    """What `ps` shows, at most 15 bytes; for display only."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _libc.prctl(ctypes.c_int(_PR_SET_NAME), buffer, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
