"""Starting a command and telling how it ended. Called by the shim that owns it.

A command is started without a fork where its mark asks nothing of it (vfork.py), which is the cheap way, and by a fork else: under a kind
of mark that a process joins by itself, confined, or where the kernel does not have it. Both do the same in the same order.

Ordering invariants. The child asks for its death with the shim's before anything else; it is in the attempt's mark before it
executes anything; nothing that the shim or whoever started the driver has open reaches it (case 36). A command that could not be
executed has no exit code: its start failed, with the errno's name and what it was about (I8).
"""

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from eventlog import steps
from eventlog.show import show_text
from recovery.space import marks, vfork
from recovery.space.confined import Confined, Inside, StartError, hold_input, make_inside
from recovery.space.kernel import PR_SET_PDEATHSIG, end_with_parent, fork_into_cgroup
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


class _Plan(msgspec.Struct, frozen=True):
    """What is executed and where, worked out before there is a process: each page that a forked child writes to is a fault and a copy.
    `streams` become its descriptors 0 to 2; `inside` is set where the command is confined, and executed by what confines it."""

    request: CommandRequest
    mark: str
    streams: tuple[int, int, int]
    candidates: list[bytes]
    environment: dict[bytes, bytes]
    inside: Inside | None


def _start(request: CommandRequest, mark: str, wrapper: Sequence[bytes], opened: list[int]) -> Running:
    """`opened` are the descriptors that are to be closed whatever happens; those that the command's owner needs are taken out."""

    def pipe() -> tuple[int, int]:
        ends = os.pipe()
        opened.extend(ends)
        return ends

    output, output_end = pipe()
    errors, errors_end = pipe() if request.separate else (None, output_end)
    given = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) if request.stdin is None else hold_input("stdin", request.stdin)
    opened.append(given)
    environment = dict(request.environment) | _marked(mark)
    inside = make_inside(wrapper, request, environment, opened) if wrapper else None
    candidates = find_candidates(request.arguments[0], environment, request.directory) if inside is None else []
    plan = _Plan(request, mark, (given, output_end, errors_end), candidates, environment, inside)
    steps.reach("spawn.before")
    pid = _start_directly(plan) or _start_forked(plan)
    steps.reach("spawn.after")
    for kept in (output, errors, *((inside.control, inside.complaints) if inside is not None else ())):
        if kept is not None:
            opened.remove(kept)
            os.set_blocking(kept, False)
    if inside is not None:
        about = _program(request), show_text(os.fsdecode(request.directory))
        return Confined(pid, os.pidfd_open(pid), output, errors, inside.control, inside.complaints, about)
    return Running(pid, os.pidfd_open(pid), output, errors)


def _start_directly(plan: _Plan) -> int | None:
    """Execute without a fork, where the command has nothing to do for its mark by itself; None where that is not so, or not to be had.
    Raises StartError."""
    mark = marks.command_mark(plan.mark)
    if plan.inside is not None or not marks.is_inherited(mark) or not vfork.is_available():
        return None
    arguments = vfork.make_vector(plan.request.arguments)
    environment = vfork.make_vector([name + b"=" + value for name, value in plan.environment.items()])
    before = _preparing_calls(plan)
    programs = [vfork.execute(path, ctypes.addressof(arguments), ctypes.addressof(environment)) for path in plan.candidates]
    try:
        with _open_leaf_of(mark) as leaf:
            pid, results = vfork.start_calls([*before, *programs, vfork.END], leaf)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            raise
        return None
    failure = _find_failure(plan, before, results)
    if failure is not None:
        os.waitpid(pid, 0)
        raise failure
    return pid


def _preparing_calls(plan: _Plan) -> list[vfork.Call]:
    """What the child does before it executes anything, in this order: it asks for its death with the shim's first of all."""
    shim = os.getpid()
    return [
        vfork.Call(vfork.PRCTL, (PR_SET_PDEATHSIG, signal.SIGKILL)),
        vfork.Call(vfork.GETPPID, lowest=shim, highest=shim),  # a shim that was gone before is not seen to go
        vfork.Call(vfork.SETSID),
        *(vfork.Call(vfork.DUP2, (stream, number)) for number, stream in enumerate(plan.streams)),
        *(vfork.Call(vfork.RT_SIGACTION, (number, vfork.DEFAULT_ACTION, 0, 8)) for number in _RESET_SIGNALS),
        vfork.Call(vfork.CHDIR, (plan.request.directory,)),
    ]


def _find_failure(plan: _Plan, before: Sequence[vfork.Call], results: Sequence[int | None]) -> StartError | None:
    """Why nothing was executed; None when something was, or the child was killed before, which is an end like any other."""
    for call, result in zip(before, results, strict=False):
        if result is not None and not call.lowest <= result <= call.highest:
            what = show_text(os.fsdecode(plan.request.directory)) if call.number == vfork.CHDIR else _program(plan.request)
            return StartError(-result if result < 0 else errno.ESRCH, what)
    tried = [-result for result in results[len(before) : -1] if result is not None]
    if len(tried) < len(plan.candidates):
        return None
    # As execvp(3): of the first that is there and cannot be executed, else of the last.
    number = next((number for number in tried if number not in (errno.ENOENT, errno.ENOTDIR)), tried[-1])
    return StartError(number, _program(plan.request))


def _start_forked(plan: _Plan) -> int:
    """Fork, and have the child execute. Raises StartError."""
    failure, failure_end = os.pipe()
    with open(failure, "rb", buffering=0) as reader:
        try:
            shim = os.getpid()
            pid, is_placed = fork_under(marks.command_mark(plan.mark))
            if pid == 0:
                _become_command(plan, is_placed, shim, failure_end)
        finally:
            os.close(failure_end)
        told = reader.readall()  # nothing when it was executed
    if told:
        os.waitpid(pid, 0)
        number, _, what = told.partition(b" ")
        raise StartError(int(number), os.fsdecode(what))
    return pid


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
    with _open_leaf_of(mark) as directory:
        if directory is not None:
            try:
                return fork_into_cgroup(directory), True
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ENOMEM):
                    raise
    return os.fork(), False


@contextlib.contextmanager
def _open_leaf_of(mark: str) -> Iterator[int | None]:
    """A descriptor of the cgroup in which a process is to be born under `mark`; None for a mark of another kind."""
    kind, _, value = mark.partition(":")
    directory = _open_leaf(value) if kind == "cgroup" else None
    try:
        yield directory
    finally:
        if directory is not None:
            os.close(directory)


def _open_leaf(leaf: str) -> int:
    """A descriptor of a cgroup, which is made when it is not there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(leaf, flags)
    except FileNotFoundError:
        os.makedirs(leaf, exist_ok=True)
        return os.open(leaf, flags)


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


def _become_command(plan: _Plan, is_placed: bool, shim: int, failure: int) -> NoReturn:
    """In the forked child: execute the command, or what confines it, or tell the shim the errno and what it was about. Never returns."""
    request, inside = plan.request, plan.inside
    about = _program(request)
    try:
        end_with_parent(shim)
        os.setsid()
        if not is_placed:
            marks.join_mark(marks.command_mark(plan.mark))
        for number, stream in enumerate(plan.streams):
            os.dup2(stream, number)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if inside is not None:
            about = show_text(os.fsdecode(inside.wrapper[0]))
            os.execve(inside.wrapper[0], inside.arguments(plan.streams[2]), _marked(plan.mark))
        about = show_text(os.fsdecode(request.directory))
        os.chdir(request.directory)
        about = _program(request)
        _execute(plan.candidates, request.arguments, plan.environment)
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
