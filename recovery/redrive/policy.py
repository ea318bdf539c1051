"""When the next driver of a session starts, and when none does. Pure: the random number, the time and what the log says are given.

Judged in this order: a session that has finished stays so, whatever is told of its driver later; a driver that lives is left alone; what is
parked stays parked; then the newest end is looked at; then the starts since the last committed progress are counted. A start counts before
it is made, and a good start counts like a bad one: only what the log has committed since resets the count.
"""

from typing import Literal

import msgspec

from eventlog.process_identity import ProcessIdentity
from recovery.redrive.record import Attempt, Parked, RedriveRecord

MOST_DOUBLINGS = 30
MOST_ATTEMPTS = 500  # the record keeps more
NEEDS_PERSON = 78
MOST_COUNTED_GAP_SECS = 5.0
"""What silence grows by at one look at most: who was not running itself for longer has heard nothing then, and says nothing of others."""


class Limits(msgspec.Struct, frozen=True):
    """`attempts`: starts without progress before a session is parked. `backoff_secs` doubles with each up to `most_secs`. `stall_secs` (0:
    off) of silence end a driver, `grace_secs` before its first word. Behind a driver that has run for `ready_secs` (0: never) the next
    start is made ready: counted before there is need of it."""

    attempts: int = 8
    backoff_secs: float = 1.0
    most_secs: float = 60.0
    stall_secs: float = 120.0
    grace_secs: float = 600.0
    ready_secs: float = 3.0


class Seen(msgspec.Struct, frozen=True):
    """What the log says: its head, the newest event that is progress (0: none), where the session stands, and the newest event that only a
    driver writes: what follows that one no driver has judged by yet."""

    head_seq: int
    progress_seq: int
    is_finished: bool
    is_paused: bool
    driven_seq: int


class Ended(msgspec.Struct, frozen=True):
    """How the newest driver ended: an exit code, a signal, ended for its silence, or nobody knows. `sentence` is the last it said to
    people."""

    how: Literal["exited", "killed", "stalled", "unknown"]
    number: int = 0
    sentence: str = ""

    def describe(self) -> str:
        """In words, for the record."""
        match self.how:
            case "exited":
                return f"exit {self.number}"
            case "killed":
                return f"killed by signal {self.number}"
            case "stalled":
                return f"stalled: silent for {self.number} s, and killed"
            case "unknown":
                return "ended while nobody watched"


class Finish(msgspec.Struct, frozen=True):
    """The session has finished: nothing is started any more."""


class LeaveAlone(msgspec.Struct, frozen=True):
    """This driver lives: it is watched, and nothing is started beside it."""

    identity: ProcessIdentity


class Park(msgspec.Struct, frozen=True):
    """No driver is started until a person says so."""

    kind: Literal["person", "poison", "paused"]
    reason: str


class StayParked(msgspec.Struct, frozen=True):
    """It was parked before, and what parked it still stands."""

    parked: Parked


class Start(msgspec.Struct, frozen=True):
    """Start the next driver in `delay_secs`; `why` stands in the history."""

    delay_secs: float
    why: str


Next = Finish | LeaveAlone | Park | StayParked | Start


def choose_next(
    record: RedriveRecord, seen: Seen, ended: Ended | None, living: ProcessIdentity | None, limits: Limits, jitter: float
) -> Next:
    """What comes next. `ended` is how the driver ended that was watched last (None: none was); `jitter` is from 0 to 1."""
    if seen.is_finished:
        return Finish()
    if living is not None:
        return LeaveAlone(living)
    if record.parked is not None and not is_lifted(record.parked, seen):
        return StayParked(record.parked)
    if seen.is_paused and not record.is_retried:
        return Park("paused", "the session is paused")
    if ended is not None and (ended.how, ended.number) == ("exited", NEEDS_PERSON):
        return Park("person", ended.sentence or "the driver needs a person")
    counted = count_since_progress(record.attempts, seen)
    if counted >= limits.attempts:
        last = f"; the last: {ended.describe()}" if ended is not None else ""
        last += f": {ended.sentence}" if ended is not None and ended.sentence else ""
        return Park("poison", f"{counted} drivers were started and none committed progress{last}")
    return Start(choose_delay(counted, limits, jitter), _why(record, ended))


def _why(record: RedriveRecord, ended: Ended | None) -> str:
    if ended is not None:
        return ended.describe()
    if record.is_retried:
        return "a person said so"
    return "nobody drives it" if record.attempts else "first start"


def is_lifted(parked: Parked, seen: Seen) -> bool:
    """Whether what parked a session is over without `--retry`: it waited for a person, and the log has moved on since; or somebody drove it
    by hand and committed progress."""
    match parked.kind:
        case "person":
            return seen.head_seq > parked.head_seq
        case "poison":
            return seen.progress_seq > parked.head_seq
        case "paused":
            return not seen.is_paused


def count_since_progress(attempts: list[Attempt], seen: Seen) -> int:
    """How many drivers were started since the newest committed progress."""
    counted = 0
    for attempt in reversed(attempts):
        if attempt.progress_seq < seen.progress_seq or attempt.is_forgiven:
            break
        counted += 1
    return counted


def choose_delay(counted: int, limits: Limits, jitter: float) -> float:
    """Seconds before the next start after `counted` ones without progress: none for the first, then doubling between half and whole."""
    if counted == 0:
        return 0.0
    whole = min(limits.most_secs, limits.backoff_secs * 2.0 ** min(counted - 1, MOST_DOUBLINGS))
    return whole * (0.5 + 0.5 * jitter)


class Silence:
    """How long a driver has said nothing, in time that this process itself was running and could listen."""

    def __init__(self, now: float, has_spoken: bool = False) -> None:
        self._last = now
        self._has_spoken = has_spoken
        self.secs = 0.0

    def listen(self, now: float, has_grown: bool | None) -> None:
        """Take in one look at the driver's output: it has grown, it has not, or (None) it could not be looked at, which is no silence."""
        gap = min(max(0.0, now - self._last), MOST_COUNTED_GAP_SECS)
        self._last = now
        if has_grown:
            self.secs, self._has_spoken = 0.0, True
        elif has_grown is not None:
            self.secs += gap

    def is_stall(self, limits: Limits) -> bool:
        """Whether that is too long."""
        if limits.stall_secs == 0:
            return False
        return self.secs >= (limits.stall_secs if self._has_spoken else max(limits.stall_secs, limits.grace_secs))
