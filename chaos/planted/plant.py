"""Copies of the installed packages, sound or with a bug in them. The installed ones are only ever read."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from chaos.planted.bug import PACKAGES, Replace, Target
from eventlog.errors import MisuseError

INSTALLED = Path(__file__).resolve().parent.parent.parent
"""The directory that holds the packages this module itself belongs to."""


def copy_packages(target: Target, directory: Path, source: Path = INSTALLED) -> None:
    """Copy what `target` consists of from `source` into `directory`, without compiled files."""
    for package in PACKAGES[target]:
        shutil.copytree(source / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))


def apply_changes(bug: str, changes: Sequence[Replace], directory: Path) -> None:
    """Make the changes of `bug` in the copy at `directory`, each in a text that the ones before it left.

    MisuseError naming the bug and the file when an `old` does not occur exactly once: the project has moved on, and the bug must follow.
    """
    for change in changes:
        file = directory / change.file
        if not file.is_file():
            raise MisuseError(f"bug {bug}: there is no file {change.file} (any more); name the file its text has moved to")
        text = file.read_text("utf-8")
        count = text.count(change.old)
        if count != 1:
            first = change.old.strip().splitlines()[0]
            raise MisuseError(f"bug {bug}: {change.file} holds its `old` {count} times, not once; adapt it to the text now there: {first}")
        file.write_text(text.replace(change.old, change.new), "utf-8")


def plant(bug: str, target: Target, changes: Sequence[Replace], directory: Path, source: Path = INSTALLED) -> None:
    """A copy of a target with these changes made, in `directory`. Raises MisuseError."""
    copy_packages(target, directory, source)
    apply_changes(bug, changes, directory)
