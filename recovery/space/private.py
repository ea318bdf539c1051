"""Opening the ledger's own files: regular files of this user, 0600, never through a link at their last name, refused by a typed error.

A file with wider permissions is tightened by whoever may write it, not refused: what others could read they have read, and a session
that stops over it protects nothing. One that cannot be tightened is refused. Readers change nothing.
"""

import errno
import os
import stat

from eventlog.errors import CorruptError, LogMissingError, MisuseError
from eventlog.show import show_text

MODE = 0o600
_NOT_A_FILE = (errno.EISDIR, errno.ELOOP, errno.ENXIO)


def open_private(path: str, flags: int, what: str) -> int:
    """A descriptor of the regular file at `path`; with O_CREAT it is made where it is missing, and 0600 from then on.

    `what` names it in a message ("the ledger"). Raises LogMissingError, CorruptError (not a regular file), MisuseError (permissions).
    """
    name = show_text(path)
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, MODE)
    except FileNotFoundError as error:
        if flags & os.O_CREAT:
            raise  # its directory is not there
        raise LogMissingError(
            f"{name}: {what} is missing; put it back from where it went: only the takeover of a session makes one anew"
        ) from error
    except PermissionError as error:
        if flags & os.O_CREAT and not os.path.lexists(path):
            where = show_text(os.path.dirname(path) or ".")
            raise MisuseError(
                f"{where}: {what} cannot be made there: {error.strerror}; let this user write in that directory, or run this as its owner"
            ) from error
        raise MisuseError(
            f"{name}: {what} cannot be opened: {error.strerror}; make it a file of this user with `chmod 600`, or drive as its owner"
        ) from error
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise not_a_file(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise not_a_file(path)
        if flags & os.O_CREAT:
            tighten(descriptor, path, what)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def not_a_file(path: str) -> CorruptError:
    """The error for what is no regular file."""
    return CorruptError(f"{show_text(path)}: not a regular file; put the session's own file back")


def tighten(descriptor: int, path: str, what: str) -> None:
    """Give an open file the mode 0600. Raises MisuseError when it is another user's."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode == MODE:
        return
    try:
        os.fchmod(descriptor, MODE)
    except PermissionError as error:
        raise MisuseError(f"{show_text(path)}: {what} has mode {mode:04o} and belongs to another user; give it to this one") from error
