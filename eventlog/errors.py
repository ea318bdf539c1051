"""Errors by who is to blame. Each says what, which, and what to do now; none carries a traceback to a person.

`InternalError` is a bug of this project: it stops the process and keeps its evidence. Every other class is weather
or misuse and is shown as one sentence. `exit_code` is the code of `recovery` (DESIGN section 10): 75 a newer epoch exists,
78 a person or another configuration is needed, 1 try again.
"""

import sys
from typing import TypeVar

from eventlog.holder import Holder

T = TypeVar("T")


class CrashworthyError(Exception):
    """Base of every error a person may see."""

    exit_code = 78


class InternalError(Exception):
    """A bug: an impossible combination was met. Nothing was written after it."""


def required(value: T | None, sentence: str) -> T:
    """`value`; `InternalError` with `sentence` where it is None. In place of an `assert`, which `python -O` leaves out."""
    if value is None:
        raise InternalError(sentence)
    return value


class StaleEpochError(CrashworthyError):
    """A newer epoch exists. The process halts; this never becomes an outcome (I6)."""

    exit_code = 75


class EpochTakenError(CrashworthyError):
    """Another identity already holds this very epoch; a new one must be issued (L1)."""

    exit_code = 1


class CorruptError(CrashworthyError):
    """Stored bytes do not say what they must (I9)."""


class LogMissingError(CrashworthyError):
    """A log that should exist does not (L9). Never answered with a new log."""


class HeadMovedError(CrashworthyError):
    """Somebody appended since the caller read the stream; nothing was written. Read again and decide again."""

    exit_code = 1


class BusyError(CrashworthyError):
    """LogBusy: a lock was not to be had within its bound. Neither fenced nor corrupt (L7).

    `holder` is who held it when it was asked for then (L4), None when that cannot be told.
    """

    exit_code = 1

    def __init__(self, message: str, holder: Holder | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class FullError(CrashworthyError):
    """No room. Nothing was recorded; the same work can be tried again (L7)."""

    exit_code = 1


class UncertainCommitError(CrashworthyError):
    """COMMIT was sent and its answer lost: the handle is poisoned, reopen and look up by event id (L7).

    `event_ids` are those of the events that stand all or not at all (16 bytes each; `Reader.find`).
    """

    exit_code = 1

    def __init__(self, message: str, event_ids: tuple[bytes, ...] = ()) -> None:
        super().__init__(message)
        self.event_ids = event_ids


class ReplacedError(CrashworthyError):
    """The files under an open handle are no longer those at the path (L5)."""


class MovedError(CrashworthyError):
    """The session lives on elsewhere (L8). Nothing is appended here any more."""


class CompactedError(CrashworthyError):
    """The content of an old image was given up by compaction, on record. The events and the names of the files are still there."""


class ContentGoneError(CrashworthyError):
    """An append names a content that the log does not hold (any more): nothing was written. Look again and send the content with it."""

    exit_code = 1


class ScanError(CrashworthyError):
    """The workspace could not be read. Nothing was recorded (I11)."""

    exit_code = 1


class FenceIncompleteError(CrashworthyError):
    """Death of an older epoch's processes is not proved; no workspace path was touched (I7). The message says so by its first word."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(f"FenceIncomplete: {message}")


class DeathUnprovedError(FenceIncompleteError):
    """Nothing was seen alive and nothing proves that it is dead. `is_elsewhere` tells that it was seen in another pid namespace."""

    def __init__(self, message: str, is_elsewhere: bool = False) -> None:
        super().__init__(message)
        self.is_elsewhere = is_elsewhere


class LostProcessError(CrashworthyError):
    """A shim, spawner or file worker went away without its record; the driver halts (S7)."""

    exit_code = 1


class SpaceFileError(CrashworthyError):
    """The system refused a file of a space: no such directory, no permission, a failing device. Nothing was started after it."""

    exit_code = 1


class RestoreIncompleteError(CrashworthyError):
    """A restore did not reach its target; the obligation stays open (R5)."""

    exit_code = 1


class NeedsPersonError(CrashworthyError):
    """A decision this version does not act on, or one that only a person may make."""


class MisuseError(CrashworthyError):
    """The caller asked for what cannot be: bad usage, bad configuration, a missing capability."""


class RequestMismatchError(MisuseError):
    """A key was asked for with another request than it stands for (S4). Nothing was started. `known` and `given` are the two digests."""

    def __init__(self, message: str, known: str, given: str) -> None:
        super().__init__(message)
        self.known = known
        self.given = given


class KeySpentError(MisuseError):
    """A key that never runs (again): collected, void or condemned (S3, S4). Nothing was started."""


def tell_bug(error: BaseException) -> None:
    """Print an exception that nobody expected, with where it came from, on standard error. By the interpreter's own hook: the module
    `traceback` brings two more along, and every driver would wait for them."""
    sys.excepthook(type(error), error, error.__traceback__)
