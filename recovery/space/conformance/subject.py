"""What the suite needs beside a space: commands it can start there, and a way to see what they did."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eventlog.conformance.factory import find_named
from recovery.space.port import Space

DEFAULT = "recovery.space.conformance.local_subject:make"


class Subject(Protocol):
    """One new space and the commands of the suite, as argument lists of requests; `name` tells the commands of a test apart."""

    def open(self) -> Space:
        """One more handle on the space; the first call makes it, at generation 1, floor 0."""
        ...

    def exits(self, code: int) -> list[bytes]:
        """Ends at once with this code."""
        ...

    def dies(self, signal: int) -> list[bytes]:
        """Ends at once by this signal."""
        ...

    def prints(self, out: bytes, err: bytes = b"") -> list[bytes]:
        """Writes these bytes to standard output and standard error, and ends with 0."""
        ...

    def reads(self) -> list[bytes]:
        """Copies its standard input to standard output, and ends with 0."""
        ...

    def missing(self) -> list[bytes]:
        """Cannot be executed."""
        ...

    def blocks(self, name: str, out: bytes = b"") -> list[bytes]:
        """Is witnessed under `name`, writes `out`, then waits for `release(name)` and ends with 0."""
        ...

    def escapes(self, name: str) -> list[bytes]:
        """As `blocks(name)`, and what is witnessed and waits is a process that left the process group and the session of the command, which
        waits for it."""
        ...

    def leaves(self, name: str) -> list[bytes]:
        """Starts `blocks(name)` beside itself, with no hold on the output, and ends with 0 once that was witnessed."""
        ...

    def release(self, name: str) -> None:
        """Let `blocks(name)` go on."""
        ...

    def witnessed(self, name: str) -> int:
        """How many times `blocks(name)` has begun."""
        ...

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition with a deadline; fails saying what was waited for."""
        ...

    def is_alive(self, name: str) -> bool:
        """Whether a process of `blocks(name)` lives."""
        ...

    def lay(self, path: str, content: bytes | None = None, leads_to: str = "") -> None:
        """Put a file with this content, or a symbolic link to `leads_to`, into the workspace, as somebody else would."""
        ...

    def read(self, path: str) -> bytes | None:
        """What is in the file at `path` of the workspace (relative; `..` leads to what is beside it), None when nothing is there."""
        ...

    def close(self) -> None:
        """End everything the test left."""
        ...


SubjectFactory = Callable[[Path], Subject]


def find_subject(name: str) -> SubjectFactory:
    """The factory of this name, `module:factory`. Raises MisuseError in one sentence when there is none."""
    found: SubjectFactory = find_named(name, "space", DEFAULT)
    return found
