"""The filler: a second process of the file worker that makes half of the nodes of staged trees, and nothing else (dealing.py).

Ordering invariants. It is forked only where the worker's kill mark is a leaf, which every child is in from its first instruction on, so
that whoever proves the worker dead proves it of the filler, too (I7). It works in staging alone. The worker puts no tree in its place
before the filler has ended and said so; a filler that did not say so has placed nothing, and its half goes with the round. It
dies with the worker, and the worker, on an error of its own, ends and reaps it before it goes on: no filler outlives its request.

    what it sends when it is done, through a pipe: MessagePack of `_Told`
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import TracebackType

import msgspec

from eventlog import steps
from eventlog.errors import CorruptError, CrashworthyError, FullError, RestoreIncompleteError
from recovery.space.kernel import end_with_parent, name_process
from recovery.workspace.made import Made

ROLE = "filler"
_ERRORS: dict[str, type[CrashworthyError]] = {one.__name__: one for one in (CorruptError, FullError, RestoreIncompleteError)}


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """The end of a filler: what it made, by the number of the tree; or the error that stopped it and that error's class."""

    made: list[tuple[int, list[Made]]]
    error: str = ""
    kind: str = ""


Work = Callable[[], Sequence[tuple[int, list[Made]]]]


class Filler:
    """A forked process that does `work`. A context manager: left, the process has ended and is reaped, killed if need be. Making one raises
    OSError where no process is to be had."""

    def __init__(self, work: Work) -> None:
        reading, writing = os.pipe()
        parent = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            raise
        if self._pid == 0:
            os.close(reading)
            _run(work, writing, parent)
        os.close(writing)
        self._reading = reading

    def __enter__(self) -> "Filler":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._reading)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # ours and not reaped: the number is nobody else's
            self._reap()

    def wait_done(self) -> list[tuple[int, list[Made]]]:
        """Wait for its end; what it made.

        Raises what it raised, or `RestoreIncompleteError` when it ended without a word."""
        with open(self._reading, "rb", closefd=False) as pipe:
            data = pipe.read()
        status = self._reap()
        if status != 0:
            raise RestoreIncompleteError(f"the process that made half of the files ended with {status} before it was done; try again")
        told = msgspec.msgpack.decode(data, type=_Told)
        if told.error:
            raise _ERRORS[told.kind](told.error)
        return told.made

    def _reap(self) -> int:
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = 0
        return status


def _run(work: Work, writing: int, parent: int) -> None:
    """Be the filler, to the end of the process: nothing of the parent's code may run on in it."""
    code = 1
    try:
        end_with_parent(parent)
        gc.disable()
        name_process(ROLE)
        steps.enter(ROLE, steps.current_epoch())
        told = _told_by(work)
        with open(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(told))
        code = 0
    except BaseException:  # noqa: BLE001
        # The last line of a forked process: whatever it was, the evidence goes to stderr and the process ends.
        import traceback  # only here: it costs every start of a driver two modules of the tokenizer

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _told_by(work: Work) -> _Told:
    try:
        return _Told(list(work()))
    except (CorruptError, FullError, RestoreIncompleteError) as error:
        return _Told([], str(error), type(error).__name__)
