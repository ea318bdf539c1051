"""The transcript of one trial: everything needed to play it again and to compare, one JSON file (`trial.json` in its kept directory).

The events are the oracle's: every volatile field replaced by an ordinal, so that two runs that did the same have equal ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from chaos.results import RUN_FORMAT, TrialResult
from eventlog.errors import MisuseError

NAME = "trial.json"
DIRECTORY = "{directory}"
PLACED = ("log", "scratch", "workspace", "witness", "acknowledged", "quarantine")
"""The fields of a question that hold paths of the trial."""


class Transcript(msgspec.Struct, frozen=True):
    """A scenario as JSON, what was done, how it ended, what stood in the log. `converges_to` is what it was judged against, `question` what
    the oracle was asked, the trial's directory written as `DIRECTORY`."""

    scenario: dict[str, Any]
    result: TrialResult
    events: list[dict[str, Any]]
    converges_to: dict[str, Any] = {}
    question: dict[str, Any] = {}
    format: int = RUN_FORMAT


class _Format(msgspec.Struct):
    format: int


def unplace_question(question: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The question to an oracle without the place of its trial, which may be moved."""
    return {name: _exchange(value, str(directory), DIRECTORY) if name in PLACED else value for name, value in question.items()}


def place_question(question: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The inverse of `unplace_question`, for where the trial lies now."""
    return {name: _exchange(value, DIRECTORY, str(directory.absolute())) if name in PLACED else value for name, value in question.items()}


def _exchange(value: Any, begin: str, other: str) -> Any:
    """A path, or a list of them, below another directory."""
    if isinstance(value, list):
        return [_exchange(one, begin, other) for one in value]
    return other + value[len(begin) :] if isinstance(value, str) and value.startswith(begin) else value


def write_transcript(directory: Path, transcript: Transcript) -> None:
    """Write it into the directory of its trial."""
    (directory / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(transcript)) + b"\n")


def read_transcript(file: Path) -> Transcript:
    """Read one, from the file or the directory that holds it. MisuseError says what is wrong with it."""
    file = file / NAME if file.is_dir() else file
    try:
        text = file.read_bytes()
    except OSError as error:
        raise MisuseError(f"{file}: cannot be read: {error.strerror}; give the trial.json of a kept trial") from error
    try:
        version = msgspec.json.decode(text, type=_Format).format
        if version > RUN_FORMAT:
            raise MisuseError(f"{file}: has format {version}, this version reads up to {RUN_FORMAT}; use the version that wrote it")
        return msgspec.json.decode(text, type=Transcript)
    except msgspec.DecodeError as error:
        raise MisuseError(f"{file}: is no transcript of a trial: {error}; give the trial.json of a kept trial") from error
