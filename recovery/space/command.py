"""Starting a command and telling how it ended. Called by the shim that owns it.

Ordering invariants. The forked child asks for its death with the shim's before anything else; it is in the attempt's mark before it
executes anything; nothing that the shim or whoever started the driver has open reaches it (case 36). A command that could not be
executed has no exit code: its start failed, with the errno's name and what it was about (I8).
"""

import contextlib
import errno
import os
import signal
from collections.abc import Sequence
from typing import NoReturn

from eventlog import steps
from eventlog.show import show_text
from recovery.space import marks
from recovery.space.confined import Confined, Inside, StartError, hold_input, make_inside
from recovery.space.kernel import end_with_parent, fork_into_cgroup
from recovery.space.request import CommandRequest
from recovery.space.running import Running

_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ)


def start(request: CommandRequest, mark: str, wrapper: Sequence[bytes] = ()) -> Running:
    """Fork and execute, through `wrapper` where the command is to be confined (Bubblewrap.wrap). Raises StartError, and then nothing was
    executed."""
    _check(request)
    opened: list[int] = []
    try:
        return _start(request, mark, wrapper, opened)
    except OSError as error:  # no pipe, no process, no memory for one
        raise StartError(error.errno or errno.EIO, _program(request)) from error
    except MemoryError as error:
        raise StartError(errno.ENOMEM, _program(request)) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _start(request: CommandRequest, mark: str, wrapper: Sequence[bytes], opened: list[int]) -> Running:
    """`opened` are the descriptors that are to be closed whatever happens; those that the command's owner needs are taken out."""

    def pipe() -> tuple[int, int]:
        ends = os.pipe()
        opened.extend(ends)
        return ends

    (output, output_end), (failure, failure_end) = pipe(), pipe()
    errors, errors_end = pipe() if request.separate else (None, output_end)
    given = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) if request.stdin is None else hold_input("stdin", request.stdin)
    opened.append(given)
    environment = _environment(request, mark)
    inside = make_inside(wrapper, request, environment, opened) if wrapper else None
    steps.reach("spawn.before")
    shim = os.getpid()
    pid, is_placed = fork_under(marks.command_mark(mark))
    if pid == 0:
        _become_command(request, mark, environment, is_placed, shim, (given, output_end, errors_end), failure_end, inside)
    steps.reach("spawn.after")
    for end in {output_end, errors_end, failure_end, *(inside.given if inside is not None else ())}:
        opened.remove(end)
        os.close(end)
    told = _read_all(failure)
    if told:
        os.waitpid(pid, 0)
        number, _, what = told.partition(b" ")
        raise StartError(int(number), os.fsdecode(what))
    for kept in (output, errors, *((inside.control, inside.complaints) if inside is not None else ())):
        if kept is not None:
            opened.remove(kept)
            os.set_blocking(kept, False)
    if inside is not None:
        about = _program(request), show_text(os.fsdecode(request.directory))
        return Confined(pid, os.pidfd_open(pid), output, errors, inside.control, inside.complaints, about)
    return Running(pid, os.pidfd_open(pid), output, errors)


def _environment(request: CommandRequest, mark: str) -> dict[bytes, bytes]:
    return dict(request.environment) | _marked(mark)


def _marked(mark: str) -> dict[bytes, bytes]:
    return {marks.ENVIRONMENT_VARIABLE.encode(): mark.encode("utf-8", "surrogateescape")}


def fork_under(mark: str) -> tuple[int, bool]:
    """Fork, with the child under `mark` from its first instruction on where that can be; the pid (0 in the child), and whether it is so.
    Where it is not, the child joins its mark by itself, first thing (marks.join_mark)."""
    kind, _, value = mark.partition(":")
    if kind == "cgroup":
        os.makedirs(value, exist_ok=True)
        directory = os.open(value, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return fork_into_cgroup(directory), True
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOMEM):
                raise
        finally:
            os.close(directory)
    return os.fork(), False


def _read_all(descriptor: int) -> bytes:
    """What the child tells of its failure; nothing when it was executed."""
    told = b""
    while part := os.read(descriptor, 1 << 12):
        told += part
    return told


def _check(request: CommandRequest) -> None:
    """What no kernel can be asked for."""
    if not request.arguments:
        raise StartError(errno.EINVAL, "the argument list is empty")
    for what, values in (
        ("an argument", request.arguments),
        ("the directory", [request.directory]),
        ("the environment", [part for pair in request.environment for part in pair]),
    ):
        if any(b"\0" in value for value in values):
            raise StartError(errno.EINVAL, f"a NUL byte in {what}")
    if any(not name or b"=" in name for name, _ in request.environment):
        raise StartError(errno.EINVAL, "a name in the environment is empty or holds =")


def _program(request: CommandRequest) -> str:
    return show_text(os.fsdecode(request.arguments[0]))


def _become_command(
    request: CommandRequest, mark: str, environment: dict[bytes, bytes], is_placed: bool, shim: int, streams: tuple[int, int, int],
    failure: int, inside: Inside | None,
) -> NoReturn:  # fmt: skip
    """In the forked child: execute the command, or what confines it, or tell the shim the errno and what it was about. Never returns."""
    about = _program(request)
    try:
        end_with_parent(shim)
        os.setsid()
        if not is_placed:
            marks.join_mark(marks.command_mark(mark))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        _keep_from_command()
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if inside is not None:
            about = show_text(os.fsdecode(inside.wrapper[0]))
            os.execve(inside.wrapper[0], inside.arguments(streams[2]), _marked(mark))
        about = show_text(os.fsdecode(request.directory))
        os.chdir(request.directory)
        about = _program(request)
        os.execvpe(request.arguments[0], request.arguments, environment)
    except OSError as error:
        _tell_failure(failure, error.errno or errno.EIO, about)
    except MemoryError:
        _tell_failure(failure, errno.ENOMEM, about)
    except BaseException as error:  # noqa: BLE001
        # Whatever kept the command from being executed is a failed start, never an exit of the command (I8).
        _tell_failure(failure, errno.EIO, f"{about} ({type(error).__name__})")
    finally:
        os._exit(127)


def _tell_failure(failure: int, number: int, about: str) -> None:
    os.write(failure, f"{number} {about}".encode("utf-8", "surrogateescape"))


def _keep_from_command() -> None:
    """Nothing that whoever started the driver left open reaches a command (case 36): neither its input nor a lock of its own."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
            if int(name) > 2:
                os.set_inheritable(int(name), False)
