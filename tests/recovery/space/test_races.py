"""Races for the ledger between real processes: whoever comes first, there is one outcome, and no key is started twice.

Each race is run anew with other delays, drawn from a seed: a sample here, a thousand of each with `-m soak`. A "command" is a line in a
file outside, written by a process that has made its starting mark, as a shim does.
"""

import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.errors import EpochTakenError, FenceIncompleteError, KeySpentError, StaleEpochError
from eventlog.ports import LinuxHost, SystemClock
from eventlog.process_identity import identify_self, read_stat
from recovery.space.keys import New, prepare
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.local import SpacePaths
from recovery.space.records import Attempt, LedgerState, Start
from recovery.takeover import take_over
from tests.helpers import is_running, wait_until
from tests.recovery.histories import History
from tests.recovery.sessions import Driver, Sandbox, bash, write
from tests.recovery.space.ledgers import OPENED, end_key, make_ledger, prepare_key, view

SEED = 20261130
SAMPLE = 12
MANY = 1000
KEY = "log/n/1/1/1"
COUNTS = [pytest.param(SAMPLE, id="sample"), pytest.param(MANY, marks=pytest.mark.soak, id="soak")]


class Arena:
    """One race: a ledger of epoch 1, processes that are let go at once, each after a delay of its own."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        directory.mkdir()
        self.paths = SpacePaths(str(directory))
        self.paths.make()
        self.ledger = make_ledger(directory)
        self.witness = directory / "witness"
        self.witness.touch()
        self._gate, self._open = os.pipe()
        self._racers: list[int] = []
        self._ends: list[Path] = []

    def race(self, name: str, work: Callable[[], str]) -> None:
        """A process that does `work` once all are let go; what it returns, or the error's name, is its outcome."""
        spins = self.random.randrange(0, 20_000)
        end = self.witness.with_name(f"end-{name}")
        self._ends.append(end)
        pid = os.fork()
        if pid == 0:
            os.close(self._open)
            try:
                os.read(self._gate, 1)
                for _ in range(spins):
                    pass
                end.write_text(work())
            except FenceIncompleteError:  # whatever kind of it
                end.write_text("FenceIncompleteError")
            except (StaleEpochError, EpochTakenError, KeySpentError) as error:
                end.write_text(type(error).__name__)
            except BaseException:  # noqa: BLE001
                end.write_text(traceback.format_exc())
            finally:
                os._exit(0)
        self._racers.append(pid)

    def run(self) -> dict[str, str]:
        """Let all go; each one's outcome, by name. One that was killed has none."""
        os.close(self._gate)
        os.close(self._open)
        for pid in self._racers:
            os.waitpid(pid, 0)
        return {end.name.removeprefix("end-"): end.read_text() if end.exists() else "" for end in self._ends}

    def command(self, key: str) -> None:
        """What a command does that is started once."""
        descriptor = os.open(self.witness, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{key}\n".encode())
        os.close(descriptor)

    @property
    def started(self) -> list[str]:
        return self.witness.read_text().splitlines()

    def take_over(self, epoch: int, history: History | None = None) -> str:
        """The whole takeover: fates, handshake, kills, proof."""
        state = (history or History()).state()
        ledger = Ledger(self.ledger.path, SystemClock())
        take_over(ledger, state, [stored.hash.hex() for stored in (history or History()).stored], "log", epoch, self.paths,
                  SystemClock(), LinuxHost())  # fmt: skip
        return "took over"

    def start(self, key: str, epoch: int, call: int | None = None) -> str:
        """Announce a key and start its command like a shim: the mark under the lock, only then the command, then its exit."""
        ledger = Ledger(self.ledger.path, SystemClock())
        if prepare(ledger, prepare_key(key, call, epoch)) != New():
            return "known"
        append_fenced(ledger, epoch, Start(key, identify_self(LinuxHost()), "socket"))
        self.command(key)
        with ledger.transaction() as transaction:
            transaction.append(end_key(key))
        return "ended"


def attempt_of(state: LedgerState, key: str) -> Attempt | None:
    return state.find(key)


def run_races(tmp_path: Path, count: int, race: Callable[[Arena], None]) -> None:
    for number in range(count):
        arena = Arena(tmp_path / str(number), SEED + number)
        try:
            race(arena)
        except AssertionError as error:
            raise AssertionError(f"race {number} of seed {SEED}: {error}") from error
        finally:
            OPENED.pop().close()
            shutil.rmtree(arena.witness.parent)


@pytest.mark.parametrize("count", COUNTS)
def test_race_of_two_successors_with_one_epoch(tmp_path: Path, count: int) -> None:
    """One has it, the other is told that it is taken: never both."""

    def race(arena: Arena) -> None:
        prepare(arena.ledger, prepare_key(KEY, 1))
        for name in ("one", "two"):
            arena.race(name, lambda: arena.take_over(2))
        assert sorted(arena.run().values()) == ["EpochTakenError", "took over"]
        state = view(arena.ledger.path)
        assert state.floor == 2 and state.attempts[KEY].condemned_by == 2 and state.attempts[KEY].is_proved_dead

    run_races(tmp_path, count, race)


@pytest.mark.parametrize("count", COUNTS)
def test_race_of_two_successors_with_two_epochs(tmp_path: Path, count: int) -> None:
    """The newer one has the space in the end; the older one had it before, or never."""

    def race(arena: Arena) -> None:
        prepare(arena.ledger, prepare_key(KEY, 1))
        arena.race("two", lambda: arena.take_over(2) + ", " + arena.start("log/n/2/1/1", 2, 2))
        arena.race("three", lambda: arena.take_over(3) + ", " + arena.start("log/n/2/1/1", 3, 2))
        outcomes = arena.run()
        assert outcomes["three"] in ("took over, ended", "took over, known", "KeySpentError")
        assert outcomes["two"] in ("took over, ended", "StaleEpochError", "")
        assert view(arena.ledger.path).floor == 3 and arena.started.count("log/n/2/1/1") <= 1

    run_races(tmp_path, count, race)


@pytest.mark.parametrize("count", COUNTS)
def test_race_of_a_stale_driver_that_starts_a_command(tmp_path: Path, count: int) -> None:
    """Its command started before the newer epoch stood, and has a fate or an exit; or it was refused, and never runs."""

    def race(arena: Arena) -> None:
        arena.race("stale", lambda: arena.start(KEY, 1, 1))
        arena.race("newer", lambda: arena.take_over(2))
        outcomes = arena.run()
        attempt = attempt_of(view(arena.ledger.path), KEY)
        assert outcomes["newer"] in ("took over", "FenceIncompleteError"), outcomes
        if outcomes["stale"] == "StaleEpochError":
            assert arena.started == [] and (attempt is None or (attempt.start is None and attempt.fate == "condemned"))
        elif outcomes["stale"] == "ended":
            assert start_precedes_advance(arena), "it started below the floor"
            assert arena.started == [KEY] and attempt is not None and attempt.exit is not None
            assert attempt.cut == (attempt.fate == "condemned")
        else:  # killed by the takeover after its mark
            assert outcomes["stale"] == "" and attempt is not None and attempt.start is not None and attempt.fate == "condemned"
            assert arena.started in ([], [KEY])

    run_races(tmp_path, count, race)


@pytest.mark.parametrize("count", COUNTS)
def test_race_of_a_claim_against_an_exit(tmp_path: Path, count: int) -> None:
    """Clean or cut, by which came first in the ledger; a claim that finds the exit leaves it clean."""

    def race(arena: Arena) -> None:
        history = History()
        history.attempt()
        prepare(arena.ledger, prepare_key(KEY, 1))

        def shim() -> str:
            with ledger_of(arena).transaction() as transaction:
                transaction.append(Start(KEY, identify_self(LinuxHost()), "socket"))
            arena.command(KEY)
            for _ in range(pause):
                pass
            with ledger_of(arena).transaction() as transaction:
                transaction.append(end_key(KEY))
            return "ended"

        pause = arena.random.randrange(0, 300_000)
        arena.race("shim", shim)
        arena.race("newer", lambda: arena.take_over(2, history))
        outcomes = arena.run()
        attempt = attempt_of(view(arena.ledger.path), KEY)
        assert attempt is not None and arena.started.count(KEY) <= 1
        assert outcomes["newer"] in ("took over", "FenceIncompleteError") and view(arena.ledger.path).floor == 2
        assert attempt.cut == (attempt.exit is not None and attempt.fate == "condemned" and exit_follows_condemnation(arena))
        if attempt.exit is not None and attempt.fate != "condemned":
            assert not attempt.cut

    run_races(tmp_path, count, race)


def ledger_of(arena: Arena) -> Ledger:
    return Ledger(arena.ledger.path, SystemClock())


def start_precedes_advance(arena: Arena) -> bool:
    """Whether the starting mark that stands was written before the floor rose to 2: from the lines, not from the fold."""
    lines = Path(arena.ledger.path).read_bytes().splitlines()
    (start,) = [at for at, line in enumerate(lines) if b'"op":"start"' in line]
    (advance,) = [at for at, line in enumerate(lines) if b'"op":"advance","epoch":2' in line]
    return start < advance


def exit_follows_condemnation(arena: Arena) -> bool:
    """From the lines themselves, not from the fold."""
    lines = Path(arena.ledger.path).read_bytes().splitlines()
    condemned = [at for at, line in enumerate(lines) if b'"condemned"' in line or b'"op":"condemn"' in line]
    exits = [at for at, line in enumerate(lines) if b'"op":"exit"' in line]
    return bool(exits) and bool(condemned) and condemned[0] < exits[0]


@pytest.mark.parametrize("count", COUNTS)
def test_race_of_an_advance_against_a_shim_that_is_slow_before_its_mark(tmp_path: Path, count: int) -> None:
    """Prepared, forked, and late: the floor is compared under the lock that the mark is written with."""

    def race(arena: Arena) -> None:
        prepare(arena.ledger, prepare_key(KEY, 1))

        def slow() -> str:
            ledger = ledger_of(arena)
            for _ in range(pause):
                pass
            append_fenced(ledger, 1, Start(KEY, identify_self(LinuxHost()), "socket"))
            arena.command(KEY)
            return "started"

        pause = arena.random.randrange(0, 60_000)
        arena.race("shim", slow)
        arena.race("newer", lambda: arena.take_over(2))
        outcomes = arena.run()
        attempt = attempt_of(view(arena.ledger.path), KEY)
        assert attempt is not None and attempt.condemned_by == 2
        if outcomes["shim"] == "StaleEpochError":
            assert attempt.start is None and arena.started == [] and outcomes["newer"] == "took over"
        else:
            assert outcomes["shim"] in ("started", "") and attempt.start is not None
            assert start_precedes_advance(arena), "it started below the floor"
            assert arena.started == [KEY] or outcomes["shim"] == ""

    run_races(tmp_path, count, race)


SWEEP = ["kill.before:1", "kill.after:1", "kill.before:2", "kill.after:2", "ledger.proved_dead.before:1"]
GATED = 'echo "$CALL_KEY $$" >> "$WITNESS"; until [ -e "$GATE" ]; do sleep 0.01; done; echo {} >> log'


def freeze_at(sandbox: Sandbox, step: str, driver: Driver) -> int:
    pid = sandbox.steps.wait(step, driver)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (read_stat(pid) or ["X"])[0] == "T", f"process {pid} to stop at {step}")
    sandbox.steps.release(step)
    return pid


@pytest.mark.parametrize("step", SWEEP)
def test_race_of_a_successor_frozen_in_its_sweep_and_woken_after_the_next_epochs_first_call(sandbox: Sandbox, step: str) -> None:
    """Its kills are aimed at marks that it condemned, never at an epoch: what the newer epoch started lives on, each key runs once."""
    frozen_in_sweep(sandbox, step)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(MANY))
def test_race_of_a_successor_frozen_in_its_sweep_a_thousand_times(sandbox: Sandbox, number: int) -> None:
    frozen_in_sweep(sandbox, random.Random(SEED + number).choice(SWEEP))


def frozen_in_sweep(sandbox: Sandbox, step: str) -> None:
    session = sandbox.session(write("a", "x"), bash("echo one >> log"), bash(GATED.format("two")), on_interrupted="reissue")
    held = "driver@1:outcome.commit.before:2"
    first = sandbox.start("run", session, epoch=1, wait=(held,))
    freeze_at(sandbox, held, first)  # its spawner and file worker live, and have to be killed
    full = f"driver@2:{step}"
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(full,))
    pid = freeze_at(sandbox, full, second)
    third = sandbox.start("drive", sandbox.state, epoch=3)
    command = int(wait_until(sandbox.witnessed, "the newer epoch's call")[0].split()[1])
    os.kill(pid, signal.SIGCONT)
    assert second.end() == 75, second.err
    assert is_running(command) and third.code is None
    sandbox.open_gate()
    assert third.end() == 0, third.err
    os.kill(first.pid, signal.SIGCONT)
    assert first.end() == 75, first.err
    keys = [line.split()[0] for line in sandbox.witnessed()]
    assert len(keys) == len(set(keys)) == 1
    assert (sandbox.root / "log").read_text() == "one\ntwo\n"
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "finished")]
