"""What the redriver of one session touches, as a port: a fake takes its place where time, deaths and logs are made up."""

import contextlib
import os
from typing import Protocol

from eventlog import durable, steps
from eventlog.errors import InternalError, required
from eventlog.ports import Clock, Host
from eventlog.process_identity import ProcessIdentity, is_alive
from recovery.redrive.looking import LogWatch, choose_epoch, find_living
from recovery.redrive.policy import Ended, Seen
from recovery.redrive.pool import Pool
from recovery.redrive.record import Ready, RedriveRecord, load_record, publish_record
from recovery.redrive.starting import (
    OUTPUT_DIRECTORY,
    IdleDriver,
    Start,
    last_sentence,
    old_outputs,
    output_paths,
    output_size,
)
from recovery.space.identity import kill_and_wait

DEATH_SECS = 10.0


class Driver(Protocol):
    """A process that is, or will be, the driver."""

    @property
    def identity(self) -> ProcessIdentity: ...

    def has_ended(self) -> bool: ...

    def end(self, epoch: int) -> Ended:
        """How it ended; it has."""
        ...


class World(Protocol):
    """One session's surroundings."""

    def load(self) -> RedriveRecord: ...

    def publish(self, record: RedriveRecord) -> None: ...

    def look(self) -> Seen: ...

    def find_living(self, record: RedriveRecord) -> ProcessIdentity | None: ...

    def choose_epoch(self, record: RedriveRecord) -> int: ...

    def expect_start(self) -> None:
        """A start is likely: whatever of it takes time and leaves nothing may begin."""
        ...

    def prepare(self) -> Driver:
        """A process that has done nothing yet and waits to be told."""
        ...

    def find_waiting(self) -> ProcessIdentity | None:
        """The process that `prepare` would give and that nobody else will be given, if one is there already."""
        ...

    def has_begun(self, ready: Ready) -> bool:
        """Whether a process that an earlier redriver had made ready was told to begin, or may have been."""
        ...

    def tell(self, driver: Driver, epoch: int) -> None:
        """Let it begin under this epoch."""
        ...

    def watch(self, identity: ProcessIdentity) -> Driver:
        """A driver that somebody else started."""
        ...

    def output_size(self, epoch: int) -> int | None:
        """How much the driver of an epoch has said; None where that cannot be looked at."""
        ...

    def kill(self, identity: ProcessIdentity) -> bool:
        """End exactly this process; False when it does not die."""
        ...


class Child:
    """A driver that this redriver started."""

    def __init__(self, idle: IdleDriver, state: str) -> None:
        self.idle = idle
        self._state = state

    @property
    def identity(self) -> ProcessIdentity:
        return self.idle.identity

    def has_ended(self) -> bool:
        return self.idle.poll() is not None

    def end(self, epoch: int) -> Ended:
        code = required(self.idle.poll(), "the end of a driver was asked for that has not ended")
        self.idle.close()
        said = last_sentence(self._state, epoch)
        return Ended("killed", -code, said) if code < 0 else Ended("exited", code, said)


class Stranger:
    """A driver that somebody else started, an earlier redriver above all: nobody here is told its exit code."""

    def __init__(self, identity: ProcessIdentity, host: Host) -> None:
        self.identity = identity
        self._host = host

    def has_ended(self) -> bool:
        return not is_alive(self.identity, self._host)

    def end(self, epoch: int) -> Ended:
        return Ended("unknown")


class LocalWorld:
    """A session on this machine."""

    def __init__(
        self, state: str, pool: Pool, clock: Clock, host: Host, on_interrupted: str, accept_outside: str, is_alone: bool = False
    ) -> None:
        """`is_alone`: no other session's driver is taken from the pool."""
        self._is_alone = is_alone
        self._state = state
        self._pool = pool
        self._clock = clock
        self._host = host
        self._choices = (on_interrupted, accept_outside)
        self._log = LogWatch(state)

    def load(self) -> RedriveRecord:
        return load_record(self._state)

    def publish(self, record: RedriveRecord) -> None:
        publish_record(self._state, record)

    def look(self) -> Seen:
        return self._log.look()

    def find_living(self, record: RedriveRecord) -> ProcessIdentity | None:
        return find_living(self._state, record, self._host)

    def choose_epoch(self, record: RedriveRecord) -> int:
        return choose_epoch(self._state, self._log.floor, record)

    def expect_start(self) -> None:
        self._pool.expect()

    def prepare(self) -> Child:
        os.makedirs(os.path.join(self._state, OUTPUT_DIRECTORY), mode=0o700, exist_ok=True)
        child = Child(self._pool.take(), self._state)
        steps.reach("redrive.prepared")
        return child

    def find_waiting(self) -> ProcessIdentity | None:
        return self._pool.waiting if self._is_alone else None

    def has_begun(self, ready: Ready) -> bool:
        # The first thing that it does is to make the file of its output. Of another boot nobody knows which files were lost.
        is_of_now = ready.driver.boot_id == self._host.boot_id()
        return not is_of_now or output_size(self._state, ready.epoch) is not None or is_alive(ready.driver, self._host)

    def tell(self, driver: Driver, epoch: int) -> None:
        if not isinstance(driver, Child):
            raise InternalError(f"a {type(driver).__name__} is told to begin, and was not prepared here")
        out, err = output_paths(self._state, epoch)
        steps.reach("redrive.counted")
        driver.idle.tell(Start(self._state, epoch, *self._choices, out, err))
        steps.reach("redrive.told")
        with contextlib.suppress(OSError):  # the driver has begun: what stays of older ones costs its room and nothing else
            for path in old_outputs(self._state):
                durable.unlink(path, "redrive.output")

    def watch(self, identity: ProcessIdentity) -> Stranger:
        return Stranger(identity, self._host)

    def output_size(self, epoch: int) -> int | None:
        return output_size(self._state, epoch)

    def kill(self, identity: ProcessIdentity) -> bool:
        steps.reach("redrive.kill.before")
        is_dead = kill_and_wait(identity, self._host, self._clock, DEATH_SECS)
        steps.reach("redrive.kill.after")
        return is_dead
