"""The redriver's own record of a session: which epochs it has issued, which drivers it has started and why, what is parked.

One file `redriver` in the state directory, one line: 64 hex digits (BLAKE3 of what follows the blank), a blank, a JSON object, a newline.
It is published whole and synced, so that it is never torn; one that does not say what it must is damage and stops redriver and drivers
(I9): read as nothing it would lower the next epoch and forget the count. An attempt is in it, with the identity of the process that will
drive, before that process is told to begin (case 26).

That may be long before: `ready` is a start that was counted while the driver before it ran, so that nothing has to be written when that one
dies. It becomes an attempt once its process was told, in the next record that is published; who finds it in the record of a redriver that
is gone looks whether that process began (`World.has_begun`), and counts it as an attempt if it did, or may have.
"""

import os
from typing import Literal

import msgspec
from blake3 import blake3

from eventlog import durable
from eventlog.errors import CorruptError
from eventlog.process_identity import ProcessIdentity
from eventlog.show import show_text

RECORD_NAME = "redriver"
RECORD_FORMAT = 1
STEP = "redrive.record"
MOST_KEPT = 1000
"""Attempts that are kept; above any limit of starts, and a file of some 300 KiB."""


class Attempt(msgspec.Struct, frozen=True):
    """One start. `why` it was made, after which delay, when the log's newest progress stood at `progress_seq`; `ended` is how it ended, ""
    where nobody has seen that. `is_forgiven`: a person said `--retry` after it, and it counts no more."""

    number: int
    epoch: int
    at_ms: int
    why: str
    delay_ms: int
    progress_seq: int
    driver: ProcessIdentity
    ended: str = ""
    is_forgiven: bool = False


class Ready(msgspec.Struct, frozen=True):
    """A start that is counted and not made yet: the epoch issued for it, and the process that waits for it."""

    epoch: int
    driver: ProcessIdentity


class Parked(msgspec.Struct, frozen=True):
    """Why no driver is started, since when, and where the log stood: at its head, for `person` at the newest event that the driver which
    needs one is known to have seen."""

    at_ms: int
    kind: Literal["person", "poison", "paused"]
    reason: str
    head_seq: int


class RedriveRecord(msgspec.Struct, frozen=True):
    """`epoch` is the highest that was issued; `dropped` counts attempts older than the kept ones. `is_retried`: a person wants it driven on
    although it is parked or paused, which holds until the next start."""

    format: int = RECORD_FORMAT
    epoch: int = 0
    attempts: list[Attempt] = []
    dropped: int = 0
    parked: Parked | None = None
    is_finished: bool = False
    is_retried: bool = False
    ready: Ready | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RedriveRecord)


def record_path(state: str) -> str:
    """The record of a state directory."""
    return os.path.join(state, RECORD_NAME)


def has_record(state: str) -> bool:
    """Whether a redriver was here (L9)."""
    return os.path.lexists(record_path(state))


def issued_epoch(state: str) -> int:
    """The highest epoch that a redriver has issued for a session; 0 without one (L1). Raises CorruptError."""
    return load_record(state).epoch


def load_record(state: str) -> RedriveRecord:
    """The record, empty where no redriver was here yet. Raises CorruptError."""
    path = record_path(state)
    if not has_record(state):
        return RedriveRecord()
    if not os.path.isfile(path):
        raise _damaged(path, "it is not a regular file")
    with open(path, "rb") as file:
        return decode_record(file.read(), path)


def decode_record(text: bytes, path: str) -> RedriveRecord:
    """The record in the bytes of its file. Raises CorruptError."""
    digits, _, body = text.removesuffix(b"\n").partition(b" ")
    if not text.endswith(b"\n") or digits != blake3(body).hexdigest().encode():
        raise _damaged(path, "its digits are not those of what it says")
    try:
        record = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if record.format != RECORD_FORMAT:
        raise _damaged(path, f"format {record.format} is not known here")
    return record


def encode_record(record: RedriveRecord) -> bytes:
    """The bytes of its file."""
    body = _encoder.encode(record)
    return blake3(body).hexdigest().encode() + b" " + body + b"\n"


def publish_record(state: str, record: RedriveRecord) -> None:
    """Put a record in the place of the one before, whole and synced. Raises OSError."""
    kept = record.attempts[-MOST_KEPT:]
    record = msgspec.structs.replace(record, attempts=kept, dropped=record.dropped + len(record.attempts) - len(kept))
    durable.publish(record_path(state), encode_record(record), STEP)


def _damaged(path: str, what: str) -> CorruptError:
    return CorruptError(
        f"{show_text(path)}: not a redriver's record ({what}); put a whole copy back, or, if no redriver and no driver of this session "
        "runs, remove it and set SESSION_EPOCH above every epoch ever used for the next drive"
    )
