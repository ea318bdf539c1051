"""Starting a command and telling how it ended. Called by the shim that owns it.

Ordering invariants. The forked child asks for its death with the shim's before anything else; it is in the attempt's mark before it
executes anything; nothing that the shim or whoever started the driver has open reaches it (case 36). A command that could not be
executed has no exit code: its start failed, with the errno's name and what it was about (I8).
"""

import contextlib
import errno
import os
import signal
from collections.abc import Mapping, Sequence
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
    # Worked out before the fork: each page that the child writes to is a fault and a copy.
    environment = dict(request.environment) | _marked(mark)
    inside = make_inside(wrapper, request, environment, opened) if wrapper else None
    candidates = find_candidates(request.arguments[0], environment, request.directory) if inside is None else []
    steps.reach("spawn.before")
    shim = os.getpid()
    pid, is_placed = fork_under(marks.command_mark(mark))
    if pid == 0:
        streams = given, output_end, errors_end
        _become_command(request, mark, is_placed, shim, streams, failure_end, candidates, environment, inside)
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


def _marked(mark: str) -> dict[bytes, bytes]:
    return {marks.ENVIRONMENT_VARIABLE.encode(): mark.encode("utf-8", "surrogateescape")}


def find_candidates(program: bytes, environment: Mapping[bytes, bytes], directory: bytes) -> list[bytes]:
    """The paths at which a program is tried, as execvp(3) has it: itself with a slash in it, else in each directory of its own PATH
    (relative ones below `directory`) where there is something of that name; all of them where there is nothing anywhere."""
    if b"/" in program:
        return [program]
    places = [os.path.join(place or b".", program) for place in environment.get(b"PATH", os.defpath.encode()).split(b":")]
    return [place for place in places if os.path.lexists(os.path.join(directory, place))] or places


def _execute(candidates: list[bytes], arguments: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Execute the first that can be; OSError of the first that is there and cannot, else of the last."""
    found: OSError | None = None
    for path in candidates:
        try:
            os.execve(path, arguments, environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            found = found or error
    raise found or missing


def fork_under(mark: str) -> tuple[int, bool]:
    """Fork, with the child under `mark` from its first instruction on where that can be; the pid (0 in the child), and whether it is so.
    Where it is not, the child joins its mark by itself, first thing (marks.join_mark)."""
    kind, _, value = mark.partition(":")
    if kind == "cgroup":
        directory = _open_leaf(value)
        try:
            return fork_into_cgroup(directory), True
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOMEM):
                raise
        finally:
            os.close(directory)
    return os.fork(), False


def _open_leaf(leaf: str) -> int:
    """A descriptor of a cgroup, which is made when it is not there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(leaf, flags)
    except FileNotFoundError:
        os.makedirs(leaf, exist_ok=True)
        return os.open(leaf, flags)


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
    request: CommandRequest, mark: str, is_placed: bool, shim: int, streams: tuple[int, int, int], failure: int, candidates: list[bytes],
    environment: dict[bytes, bytes], inside: Inside | None,
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
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if inside is not None:
            about = show_text(os.fsdecode(inside.wrapper[0]))
            os.execve(inside.wrapper[0], inside.arguments(streams[2]), _marked(mark))
        about = show_text(os.fsdecode(request.directory))
        os.chdir(request.directory)
        about = _program(request)
        _execute(candidates, request.arguments, environment)
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


def keep_from_commands() -> None:
    """Nothing that whoever started the driver left open reaches a command (case 36): neither its input nor a lock of its own. Called once
    by the owner of commands; what it opens itself is closed by exec anyway."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
            if int(name) > 2:
                os.set_inheritable(int(name), False)
