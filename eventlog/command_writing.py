"""What every command that writes does first: it leaves word of who it is before it asks for a lock (rule L4)."""

import contextlib
import os
from collections.abc import Iterator

from eventlog import connection
from eventlog.identity_files import Purpose, leaving_identity
from eventlog.ports import LinuxHost, RandomIds


@contextlib.contextmanager
def announced(path: str, purpose: Purpose) -> Iterator[None]:
    """Run with an identity file beside the log at `path`. Where there is no log nothing is left: opening it says what is missing.

    Raises FullError when there is no room for the file, UncertainCommitError when the device fails, MisuseError where none can be left.
    """
    if not os.path.exists(path):
        yield
        return
    try:
        with leaving_identity(os.path.dirname(path) or ".", purpose, LinuxHost(), RandomIds()):
            yield
    except OSError as error:
        raise connection.translate_system(error, path) from error
