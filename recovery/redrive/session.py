"""The redriver of one session: looks, judges (policy), does one thing, and says when it wants to look again.

Ordering invariants: the log is read before anything is judged, so that a session that has finished is never begun again, whatever is told
of its driver (case 28); an attempt is counted, on disk, with the identity of its process, before that process is told to begin (case 26);
a driver that lives is left alone, whoever started it (case 25). Killed anywhere, the next redriver finds the count, and the driver by its
identity. Behind a driver that has run for a while the next start is counted ahead (`Ready`), under an epoch that nobody else has used when
it is made: then nothing is written between a death and the next start.
"""

import contextlib
import random
from collections.abc import Callable
from typing import assert_never

import msgspec

from eventlog import steps
from eventlog.errors import CrashworthyError
from eventlog.ports import Clock
from eventlog.process_identity import ProcessIdentity
from recovery.redrive.policy import (
    NEEDS_PERSON,
    Ended,
    Finish,
    LeaveAlone,
    Limits,
    Park,
    Seen,
    Silence,
    Start,
    StayParked,
    choose_next,
)
from recovery.redrive.record import Attempt, Parked, Ready, RedriveRecord
from recovery.redrive.world import Driver, World

TRY_AGAIN = 1
SHORTEST_DELAY_SECS = 0.001
LISTEN_SECS = 0.5
"""How often a driver's output and life are looked at, beside being told of a child's death at once."""


class Watched(msgspec.Struct):
    """The driver that runs. `epoch` is 0 where nobody here knows it."""

    driver: Driver
    epoch: int
    silence: Silence
    size: int | None
    since: float


class Redrive:
    """One session's redriver. `step` until `code` is there."""

    def __init__(
        self, name: str, world: World, limits: Limits, clock: Clock, chance: random.Random, tell: Callable[[str], None],
        is_retried: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.code: int | None = None
        self.watched: Watched | None = None
        self.due: float = 0.0  # by the monotonic clock
        self._world = world
        self._limits = limits
        self._clock = clock
        self._chance = chance
        self._tell = tell
        self._record = world.load()
        self._ended: Ended | None = None
        self._start: Start | None = None
        self._found = self._record.ready  # by whoever redrove before
        self._begun_seq = 0  # the log's head when the newest driver was begun: that one saw as much
        if is_retried:
            self._retry()

    def _retry(self) -> None:
        """A person says so: what is parked is driven on, and the starts before count no more."""
        forgiven = [msgspec.structs.replace(attempt, is_forgiven=True) for attempt in self._record.attempts]
        self._change(attempts=forgiven, parked=None, is_retried=True)

    def step(self) -> None:
        """Do what is due; after it `due` says when to look again, or `code` that nothing will be."""
        if self.code is not None:
            return
        if self.watched is not None and not self._listen(self.watched):
            return
        try:
            self._judge()
        except CrashworthyError as error:
            # A log that is damaged or gone: no driver could do anything with it, and nothing is written beside it.
            self._tell(f"{self.name}: {error}")
            self.code = error.exit_code
        except OSError as error:
            # No room for the record, no process to be had: what is not counted is not started.
            what = error.strerror or str(error)
            self._tell(f"{self.name}: {what}; nothing was started, run `recovery redrive STATE_DIR` again when that is mended")
            self.code = TRY_AGAIN

    def _judge(self) -> None:
        seen = self._world.look()
        self._take_in_found(seen)
        if self._start is not None and self._clock.monotonic() >= self.due:
            start, self._start = self._start, None
            living = self._world.find_living(self._record)
            if not seen.is_finished and living is None:
                self._begin(start, seen)
                return
        living = self._world.find_living(self._record)
        match choose_next(self._record, seen, self._ended, living, self._limits, self._chance.random()):
            case Finish():
                self._finish()
            case LeaveAlone(identity=identity):
                self._leave_alone(identity)
            case Park(kind=kind, reason=reason):
                # An answer may have come after the driver ended: it does not stand below what is parked, so that it lifts it.
                known = max(seen.driven_seq, self._begun_seq) if kind == "person" else seen.head_seq
                self._park(Parked(self._clock.now_ms(), kind, reason, known))
            case StayParked(parked=parked):
                self._stay_parked(parked)
            case Start() as start:
                self._wait_for(start, seen)
            case other:
                assert_never(other)

    def _take_in_found(self, seen: Seen) -> None:
        """A start that an earlier redriver had counted ahead: an attempt if it was made. The log is as it was found after it, so that it
        counts as one without progress."""
        ready, self._found = self._found, None
        if ready is None:
            return
        attempts = self._record.attempts
        if self._world.has_begun(ready):
            why, number = "begun by a redriver that is gone", attempts[-1].number + 1 if attempts else 1
            attempts = [*attempts, Attempt(number, ready.epoch, self._clock.now_ms(), why, 0, seen.progress_seq, ready.driver)]
        self._record = msgspec.structs.replace(self._record, attempts=attempts, ready=None)  # on disk with what is published next

    def _make_ready(self) -> None:
        """Count the next start ahead, for the process that waits for it."""
        waiting, ready = self._world.find_waiting(), self._record.ready
        if waiting is None or (ready is not None and ready.driver == waiting):
            return
        with contextlib.suppress(CrashworthyError, OSError):  # then the next start is counted when it is made, and meets it
            epoch = self._world.choose_epoch(self._record)
            self._change(epoch=epoch, ready=Ready(epoch, waiting))

    def _wait_for(self, start: Start, seen: Seen) -> None:
        if start.delay_secs < SHORTEST_DELAY_SECS:  # over before the log could be looked at again
            self._begin(start, seen)
            return
        self._start = start
        self.due = self._clock.monotonic() + start.delay_secs
        self._tell(f"{self.name}: {start.why}; the next driver starts in {start.delay_secs:.1f} s")

    def _begin(self, start: Start, seen: Seen) -> None:
        """Prepare a process, count it, tell it to begin: in this order. One that was counted ahead is told at once, where no other epoch
        was used or intended since."""
        ready = self._record.ready
        issued = self._record if ready is None else msgspec.structs.replace(self._record, epoch=ready.epoch - 1)
        epoch = self._world.choose_epoch(issued)
        driver = self._world.prepare()
        is_counted = ready is not None and (ready.epoch, ready.driver) == (epoch, driver.identity)
        epoch = epoch if is_counted else max(epoch, self._record.epoch + 1)
        last = self._record.attempts[-1].number if self._record.attempts else 0
        attempt = Attempt(
            last + 1, epoch, self._clock.now_ms(), start.why, round(start.delay_secs * 1000), seen.progress_seq, driver.identity
        )  # fmt: skip
        fields = {"epoch": epoch, "attempts": [*self._record.attempts, attempt], "parked": None, "is_retried": False, "ready": None}
        if is_counted:
            self._world.tell(driver, epoch)
            # A full disk here stops nobody: what stands there counts this start, and the next record has it.
            self._record = msgspec.structs.replace(self._record, **fields)
            with contextlib.suppress(OSError):
                self._change()
        else:
            self._change(**fields)
            self._world.tell(driver, epoch)
        self._tell(f"{self.name}: driver {driver.identity.pid} started under epoch {epoch} ({start.why})")
        self._begun_seq = seen.head_seq
        self._watch(driver, epoch)

    def _leave_alone(self, identity: ProcessIdentity) -> None:
        last = self._record.attempts[-1] if self._record.attempts else None
        epoch = last.epoch if last is not None and last.driver == identity else 0
        self._tell(f"{self.name}: driver {identity.pid} lives and is left alone")
        self._watch(self._world.watch(identity), epoch)

    def _watch(self, driver: Driver, epoch: int) -> None:
        size = self._world.output_size(epoch)
        now = self._clock.monotonic()
        self.watched = Watched(driver, epoch, Silence(now, bool(size)), size, now)
        self._start, self.due = None, now + LISTEN_SECS

    def _listen(self, watched: Watched) -> bool:
        """Look at the driver that runs; whether it has ended, by itself or for its silence."""
        if watched.driver.has_ended():
            self._note_end(watched, watched.driver.end(watched.epoch))
            return True
        size, now = self._world.output_size(watched.epoch), self._clock.monotonic()
        watched.silence.listen(now, None if size is None else size > (watched.size or 0))
        watched.size = watched.size if size is None else size
        self.due = now + LISTEN_SECS
        if not watched.silence.is_stall(self._limits):
            if self._limits.ready_secs and now - watched.since >= self._limits.ready_secs:
                self._make_ready()
            return False
        silent = round(watched.silence.secs)
        if not self._world.kill(watched.driver.identity):
            return False  # it is looked at again
        self._note_end(watched, Ended("stalled", silent))
        return True

    def _note_end(self, watched: Watched, ended: Ended) -> None:
        steps.reach("redrive.ended")
        self.watched, self._ended = None, ended
        last = self._record.attempts[-1] if self._record.attempts else None
        if last is not None and last.epoch == watched.epoch:
            attempt = msgspec.structs.replace(last, ended=ended.describe())
            # On disk with what is published next: that a driver ended is read from the log and from its process, not from here.
            self._record = msgspec.structs.replace(self._record, attempts=[*self._record.attempts[:-1], attempt])

    def _finish(self) -> None:
        self._tell(f"{self.name}: finished")
        if self._record.attempts and not self._record.is_finished:
            self._change(is_finished=True, parked=None, ready=None)
        self.code = 0

    def _park(self, parked: Parked) -> None:
        self._change(parked=parked, is_retried=False, ready=None)
        self._stay_parked(parked)

    def _stay_parked(self, parked: Parked) -> None:
        self._tell(f"{self.name}: parked: {parked.reason}; `recovery redrive STATE_DIR --retry` goes on")
        self.code = NEEDS_PERSON

    def _change(self, **fields: object) -> None:
        record: RedriveRecord = msgspec.structs.replace(self._record, **fields)
        self._world.publish(record)
        self._record = record
