"""The transcript of one trial: everything needed to play it again and to compare, one JSON file (`trial.json` in its kept directory).

The events are the oracle's: every volatile field replaced by an ordinal, so that two runs that did the same have equal ones.
"""

from pathlib import Path
from typing import Any

import msgspec

from chaos.results import RUN_FORMAT, TrialResult
from eventlog.errors import MisuseError

NAME = "trial.json"


class Transcript(msgspec.Struct, frozen=True):
    """A scenario as JSON, what was done, how it ended, what stood in the log. `converges_to` is what it was judged against."""

    scenario: dict[str, Any]
    result: TrialResult
    events: list[dict[str, Any]]
    converges_to: dict[str, Any] = {}
    format: int = RUN_FORMAT


class _Format(msgspec.Struct):
    format: int


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
