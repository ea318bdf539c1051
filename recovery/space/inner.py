"""The first process of a confined command's pid namespace: it starts the command there, waits for it and tells its shim how it ended.

Executed by bubblewrap as a file, under `python -I -S`, where nothing of this project need be to be seen: it imports the standard library
alone, and little of that. Arguments: the descriptors of the control socket, of the request (`confined.pack_request`) and of the command's
standard error; its own 2 is for complaints. With the one argument `probe` it ends with 0.

Ordering invariants. The shim's end of the socket being closed, it ends, and the kernel ends everything else in the namespace: so the
command dies with its shim also when that dies before bubblewrap has asked for it. What it tells is the raw wait status, so that a code of
137 stays apart from signal 9, which bubblewrap's own exit code cannot say (case 33). It ends after it has told, never before.

From it, one packet each: `failed ERRNO directory|program`, or `begun` and later `ended STATUS LEFT`, where LEFT counts the processes that
the command left behind. To it: one byte, the signal for the command and its group.
"""

import contextlib
import errno
import marshal
import os
import select
import signal
import sys
from typing import NoReturn

_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ)


def _main(control: int, request: int, errors: int) -> None:
    for descriptor in (control, request, errors):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what has a handler can be sent to a first process from inside
    ended = _wake_on_ended_children()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with open(request, "rb") as file:
        arguments, directory, environment = marshal.loads(file.read())
    if any(mask & select.POLLHUP for _, mask in poll.poll(0)):
        return  # the shim is gone, and nobody would end the command
    child, failed = _start(arguments, directory, dict(environment), errors)
    if failed:
        os.write(control, b"failed " + failed)
        return
    os.write(control, b"begun")
    poll.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if ended in ready:
            os.read(ended, 1 << 10)
            status = _reap(child)
            if status is not None:
                os.write(control, b"ended %d %d" % (status, _count_left()))
                return
        if control in ready:
            number = _read_signal(control)
            if number is None:
                return
            _signal(child, number)


def _wake_on_ended_children() -> int:
    """A descriptor that is readable when a child has ended; orphans of the namespace become children."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader


def _start(arguments: list[bytes], directory: bytes, environment: dict[bytes, bytes], errors: int) -> tuple[int, bytes]:
    """Fork and execute: the command's pid, and b"" or the errno and what could not be had."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        return 0, b"%d program" % (error.errno or errno.EAGAIN)
    if pid == 0:
        _become_command(arguments, directory, environment, errors, writer)
    os.close(writer)
    with open(reader, "rb") as file:
        failed = file.read()
    if failed:
        os.waitpid(pid, 0)
    return pid, failed


def _become_command(
    arguments: list[bytes], directory: bytes, environment: dict[bytes, bytes], errors: int, failure: int
) -> NoReturn:  # fmt: skip
    """In the forked child, what the local space's forked child does as well. Never returns."""
    about = b"program"
    try:
        os.setsid()
        os.dup2(errors, 2)
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
                if int(name) > 2:
                    os.set_inheritable(int(name), False)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        about = b"directory"
        os.chdir(directory)
        about = b"program"
        os.execvpe(arguments[0], arguments, environment)
    except OSError as error:
        os.write(failure, b"%d %s" % (error.errno or errno.EIO, about))
    except MemoryError:
        os.write(failure, b"%d %s" % (errno.ENOMEM, about))
    except BaseException:  # noqa: BLE001
        # Whatever kept the command from being executed is a failed start, never an exit of the command (I8).
        os.write(failure, b"%d %s" % (errno.EIO, about))
    finally:
        os._exit(127)


def _reap(child: int) -> int | None:
    """Collect whatever has ended; the command's wait status when it is among that."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == child:
                found = status
    return found


def _read_signal(control: int) -> int | None:
    """What the shim asks for; None when it is gone, which is an error to a socket of which it had not read all."""
    try:
        asked = os.read(control, 1)
    except ConnectionResetError:
        return None
    return asked[0] if asked else None


def _signal(child: int, number: int) -> None:
    """To the command's group, and to the command if it left that. It is not reaped yet, so neither number can be anybody else's."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, number)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _count_left() -> int:
    """Living processes of the namespace but this one."""
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                found += file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return found


if __name__ == "__main__":
    if sys.argv[1:] != ["probe"]:
        _main(*(int(number) for number in sys.argv[1:]))
    os._exit(0)
