"""A session's surroundings, made up: its log, its drivers, its clock. What a driver does is said beforehand, one act for each."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from eventlog.process_identity import ProcessIdentity
from recovery.redrive.policy import Ended, Limits, Seen
from recovery.redrive.record import Ready, RedriveRecord, decode_record, encode_record
from recovery.redrive.session import Redrive
from recovery.redrive.world import Driver

START_WALL_MS = 1_000_000


class Died(Exception):
    """The redriver was killed there."""


class MadeUpClock:
    """Monotonic time that passes when it is told to; the wall clock goes its own way."""

    def __init__(self) -> None:
        self.time = 0.0
        self.wall: Callable[[float], int] = lambda time: START_WALL_MS + round(time * 1000)

    def now_ms(self) -> int:
        return self.wall(self.time)

    def monotonic(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class Life:
    """What one driver does: it lives for `secs`, says something each `every` of them (0: never), commits progress or not, and ends;
    `answered`: before anybody looks at its end a person writes to the log."""

    secs: float
    ended: Ended
    progress: bool = False
    finishes: bool = False
    pauses: bool = False
    answered: bool = False
    every: float = 1.0


class Lived:
    """A driver of a made-up world."""

    def __init__(self, world: "MadeUpWorld", identity: ProcessIdentity, life: Life) -> None:
        self.identity = identity
        self.life = life
        self.told_at: float | None = None
        self.killed = False
        self._world = world

    def has_ended(self) -> bool:
        """It dies when its time has come, and its work is in the log then."""
        return self.killed or (self.told_at is not None and self._world.clock.time - self.told_at >= self.life.secs)

    def end(self, epoch: int) -> Ended:
        return Ended("killed", 9) if self.killed else self.life.ended


class Unknown:
    """The same driver, seen by a redriver that did not start it."""

    def __init__(self, lived: Lived) -> None:
        self._lived = lived
        self.identity = lived.identity

    def has_ended(self) -> bool:
        return self._lived.has_ended()

    def end(self, epoch: int) -> Ended:
        return Ended("unknown")


@dataclass
class MadeUpWorld:
    """`lives` are those of the drivers in the order in which they are started. Somebody else has used the epochs up to `used_epoch`;
    `happened` are publishing and telling in their order; the redriver dies before or after the next of them (`dies_at`, "before
    publish")."""

    clock: MadeUpClock
    lives: list[Life]
    seen: Seen = Seen(1, 0, False, False, 1)
    stored: bytes = b""
    drivers: list[Lived] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    published: int = 0
    is_readable: bool = True
    idle: Lived | None = None
    made: int = 0
    used_epoch: int = 0
    happened: list[str] = field(default_factory=list)
    dies_at: str = ""

    def load(self) -> RedriveRecord:
        """A redriver begins: what waited for the one before is gone."""
        self.idle = None
        return self.stored_record()

    def stored_record(self) -> RedriveRecord:
        """What stands on its disk."""
        return decode_record(self.stored, "record") if self.stored else RedriveRecord()

    def publish(self, record: RedriveRecord) -> None:
        self._meet("before publish")
        self.stored = encode_record(record)
        self.published += 1
        self.happened.append("publish")
        self._meet("after publish")

    def _meet(self, place: str) -> None:
        if self.dies_at == place:
            self.dies_at = ""
            raise Died(place)

    def look(self) -> Seen:
        for lived in self.drivers:
            if lived.has_ended() and lived.told_at is not None:
                self._commit(lived)
        return self.seen

    def _commit(self, lived: Lived) -> None:
        head = self.seen.head_seq + 1
        life, lived.life = lived.life, replace(lived.life, progress=False, finishes=False, pauses=False)
        if life.progress or life.finishes or life.pauses:
            self.seen = Seen(head, head, life.finishes, life.pauses, head)
        if life.answered:
            self.seen, lived.life = msgspec.structs.replace(self.seen, head_seq=self.seen.head_seq + 1), replace(lived.life, answered=False)

    def find_living(self, record: RedriveRecord) -> ProcessIdentity | None:
        return next((lived.identity for lived in self.drivers if lived.told_at is not None and not lived.has_ended()), None)

    def choose_epoch(self, record: RedriveRecord) -> int:
        return max(record.epoch, self.used_epoch) + 1

    def prepare(self) -> Driver:
        assert len(self.drivers) < len(self.lives), "more drivers are started than there may be"
        lived, self.idle = self.idle or self._make(), None
        self.drivers.append(lived)
        return lived

    def _make(self) -> Lived:
        self.made += 1
        return Lived(self, ProcessIdentity(99 + self.made, 1, "boot", 1), self.lives[len(self.drivers)])

    def find_waiting(self) -> ProcessIdentity | None:
        if self.idle is None and len(self.drivers) < len(self.lives):
            self.idle = self._make()
        return None if self.idle is None else self.idle.identity

    def has_begun(self, ready: Ready) -> bool:
        return any(lived.told_at is not None and lived.identity == ready.driver for lived in self.drivers)

    def tell(self, driver: Driver, epoch: int) -> None:
        record = self.stored_record()
        is_attempt = bool(record.attempts) and record.attempts[-1].driver == driver.identity and record.epoch == epoch
        assert is_attempt or record.ready == Ready(epoch, driver.identity), "told before it was counted"
        assert epoch > self.used_epoch, "told under an epoch that somebody else has used"
        assert isinstance(driver, Lived)
        assert self.find_living(record) is None, "a driver begins beside one that lives"
        driver.told_at = self.clock.time
        self.epochs.append(epoch)
        self.starts.append(self.clock.time)
        self.happened.append("tell")
        self._meet("after tell")

    def watch(self, identity: ProcessIdentity) -> Driver:
        return Unknown(next(lived for lived in self.drivers if lived.identity == identity))

    def output_size(self, epoch: int) -> int | None:
        if not self.is_readable or not self.drivers:
            return None
        lived = self.drivers[-1]
        if lived.told_at is None or lived.life.every == 0:
            return 0
        return int(min(self.clock.time - lived.told_at, lived.life.secs) / lived.life.every)

    def kill(self, identity: ProcessIdentity) -> bool:
        next(lived for lived in self.drivers if lived.identity == identity).killed = True
        return True


def made_redrive(world: MadeUpWorld, limits: Limits, said: list[str] | None = None, seed: int = 1, retry: bool = False) -> Redrive:
    """A redriver of a made-up session."""
    return Redrive("s", world, limits, world.clock, random.Random(seed), (said if said is not None else []).append, retry)


def run(redrive: Redrive, world: MadeUpWorld, until: float = 1e9) -> int | None:
    """Let time pass from one look to the next until there is a code, or until that time."""
    looks = 0
    while redrive.code is None and world.clock.time < until:
        redrive.step()
        world.clock.time = max(world.clock.time, redrive.due if redrive.watched is None else world.clock.time + 0.5)
        looks += 1
        assert looks < 100_000, "it comes to no end"
    return redrive.code
