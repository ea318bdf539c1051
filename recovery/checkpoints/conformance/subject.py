"""What the suite needs beside a store: another handle on it, and the means to spoil what it keeps."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eventlog.conformance.factory import find_named
from eventlog.values import ContentId
from recovery.checkpoints.port import CheckpointStore

DEFAULT = "recovery.checkpoints.conformance.subjects:make_directory"


class Subject(Protocol):
    """One new, empty store."""

    def open(self) -> CheckpointStore:
        """One more handle on it."""
        ...

    def spoil(self, content: ContentId) -> None:
        """Change one bit of what is stored for a content, as a failing disk does."""
        ...

    def spoil_manifest(self, owner: str, manifest: str) -> None:
        """The same for a manifest."""
        ...

    def lose(self, content: ContentId) -> None:
        """Take a content away."""
        ...

    def count(self) -> int:
        """How many contents are stored, chunks included."""
        ...


SubjectFactory = Callable[[Path], Subject]


def find_subject(name: str) -> SubjectFactory:
    """The factory of this name. Raises MisuseError in one sentence when there is none."""
    found: SubjectFactory = find_named(name, "checkpoint store", DEFAULT)
    return found
