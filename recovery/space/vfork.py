"""Starting a program without copying this process: clone3(2) with CLONE_VM | CLONE_VFORK, as posix_spawn(3) does it. By ctypes.

A fork copies the tables of every page, and each page that parent or child writes to afterwards is a fault and a copy: of an interpreter
with its libraries that is many times what an exec costs. posix_spawn copies nothing, but knows neither PR_SET_PDEATHSIG nor
CLONE_INTO_CGROUP, without which no command may run (rules S5 and S8), and what is in Python cannot run in a child that shares its parent's
memory. So the child executes a list of system calls, made before and given as numbers, and nothing else: it has no stack of its own, needs
none, and never returns from here. What walks through the list are the instructions below.

The parent goes on once the child has executed a program or ended; signals are not blocked meanwhile, because the child has no handlers
(CLONE_CLEAR_SIGHAND). Where this cannot be had (another machine, memory that may not be executed, a kernel before 5.7) the caller forks.

A call is nine 64-bit numbers: the system call's number, five arguments, its result, and the lowest and the highest result with which the
child goes on to the next; with any other it exits with 127, and the result tells the parent why. The last call ends the child, or is
followed by one that does.
"""

import ctypes
import errno
import functools
import mmap
import os
import signal
import struct
from array import array
from collections.abc import Callable, Sequence

import msgspec

HIGHEST = (1 << 63) - 1
LOWEST_ERROR = -4095  # of Linux: what a system call returns from here to -1 is an errno, negated

# Numbers of Linux on x86_64 (arch/x86/entry/syscalls/syscall_64.tbl).
RT_SIGACTION = 13
DUP2 = 33
EXECVE = 59
KILL = 62
CHDIR = 80
GETPPID = 110
SETSID = 112
PRCTL = 157
_EXIT_GROUP = 231
DEFAULT_ACTION = bytes(32)  # a kernel's struct sigaction: SIG_DFL, no flags, an empty mask

_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_CLONE_CLEAR_SIGHAND, _CLONE_INTO_CGROUP = 0x100000000, 0x200000000
_CLONE_ARGUMENTS = struct.Struct("11Q")
_NOT_CALLED = -(1 << 63)
_NUMBERS = 9
_RESULT = 6

# long start(struct clone_args *rdi, size_t rsi, struct call *rdx)
_X86_64 = bytes.fromhex(
    "f30f1efa"  # endbr64
    "53"  # push rbx
    "4889d3"  # mov rbx, rdx
    "b8b3010000"  # mov eax, 435: clone3, with the first two arguments of this function
    "0f05"  # syscall
    "4885c0"  # test rax, rax
    "753b"  # jnz out: in the parent, or nothing was cloned
    "488b03"  # call: mov rax, [rbx]
    "488b7b08"  # mov rdi, [rbx + 8]
    "488b7310"  # mov rsi, [rbx + 16]
    "488b5318"  # mov rdx, [rbx + 24]
    "4c8b5320"  # mov r10, [rbx + 32]
    "4c8b4328"  # mov r8, [rbx + 40]
    "0f05"  # syscall
    "48894330"  # mov [rbx + 48], rax
    "483b4338"  # cmp rax, [rbx + 56]
    "7c0c"  # jl stop
    "483b4340"  # cmp rax, [rbx + 64]
    "7f06"  # jg stop
    "4883c348"  # add rbx, 72
    "ebd1"  # jmp call
    "bf7f000000"  # stop: mov edi, 127
    "b8e7000000"  # mov eax, 231: exit_group
    "0f05"  # syscall
    "5b"  # out: pop rbx
    "c3"  # ret
)
_libc = ctypes.CDLL(None, use_errno=True)


class Call(msgspec.Struct, frozen=True):
    """One system call of the child: its number, up to five arguments (numbers, or bytes that it is given the address of), and with which
    results the child goes on."""

    number: int
    arguments: tuple[int | bytes, ...] = ()
    lowest: int = 0
    highest: int = HIGHEST


END = Call(_EXIT_GROUP, (127,))
"""What comes after the last program."""


def execute(path: bytes, arguments: int, environment: int) -> Call:
    """execve(2), after whose failure the child goes on to the next call; the vectors are addresses (`make_vector`)."""
    return Call(EXECVE, (path, arguments, environment), lowest=LOWEST_ERROR)


def make_vector(values: Sequence[bytes]) -> "ctypes.Array[ctypes.c_char_p]":
    """A vector of strings as execve(2) takes it; `ctypes.addressof` is its address for as long as it is held."""
    return (ctypes.c_char_p * (len(values) + 1))(*values, None)


def is_available() -> bool:
    """Whether `start_calls` can be tried here. A kernel that refuses is told by its OSError only."""
    return _load() is not None


def start_calls(calls: Sequence[Call], cgroup: int | None = None) -> tuple[int, list[int | None]]:
    """Start a child that makes these calls, in the cgroup behind an open directory when one is given; its pid, and what each call
    returned, None for those that it did not come to and for the one that executed a program.

    OSError when there is no child: EAGAIN and ENOMEM when none is to be had, anything else where this kernel does not do it.
    """
    loaded = _load()
    if loaded is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    numbers = array("q")
    for call in calls:
        values = [value if isinstance(value, int) else _address(value) for value in call.arguments]
        numbers.extend((call.number, *values, *(0,) * (5 - len(values)), _NOT_CALLED, call.lowest, call.highest))
    flags = _CLONE_VM | _CLONE_VFORK | _CLONE_CLEAR_SIGHAND | (0 if cgroup is None else _CLONE_INTO_CGROUP)
    packed = _CLONE_ARGUMENTS.pack(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup or 0)
    pid = loaded[0](packed, len(packed), numbers.buffer_info()[0])
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid, [None if result == _NOT_CALLED else result for result in numbers[_RESULT::_NUMBERS]]


def _address(data: bytes) -> int:
    """Where bytes lie, which end with a NUL there; good for as long as they are held."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@functools.cache
def _load() -> tuple[Callable[[bytes, int, int], int], mmap.mmap] | None:
    """The instructions as a function, and the memory that they lie in, which is held for as long; None where they cannot be. Once for a
    process and what it forks."""
    if os.uname().machine != "x86_64" or struct.calcsize("P") != 8:
        return None
    try:
        pages = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError:
        return None
    pages.write(_X86_64)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    rights = ctypes.c_int(mmap.PROT_READ | mmap.PROT_EXEC)
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), rights) != 0:
        return None  # memory that was written may not be executed here
    # The interpreter's lock is kept meanwhile, as a fork keeps it.
    return ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)(address), pages
