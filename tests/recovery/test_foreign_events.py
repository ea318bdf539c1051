"""Notes and inputs of other processes beside a live driver (L2): its fold and the ledger's memory of the log (D2) stay right."""

import contextlib
from pathlib import Path

import pytest

from eventlog import events
from eventlog.ports import CountingIds, RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Epoch
from eventlog.verify import verify
from eventlog.writer import Writer
from recovery.journal import Journal, only_stream, read_state
from recovery.takeover import is_abreast
from tests.helpers import wait_until
from tests.recovery.sessions import Sandbox, bash, write


class Outsider:
    """Another process's hand in a session's log: it notes, and takes inputs in."""

    def __init__(self, log: Path) -> None:
        self._log = str(log)
        self.count = 0

    def add(self) -> None:
        """A note, an input, and the same input again."""
        self.count += 1
        with contextlib.closing(Writer.open(self._log, RandomIds())) as writer:
            stream = only_stream(writer.reader)
            writer.append_unfenced(stream, [Record(events.Noted(1, f"note {self.count}"))], "note")
            assert writer.admit(stream, f"request {self.count}", {"n": self.count}, 1).is_new
            assert not writer.admit(stream, f"request {self.count}", {"n": self.count}, 2).is_new


def check_log_and_ledger(sandbox: Sandbox) -> None:
    """Verify is clean; the newest event that the ledger has seen stands in the log where the ledger says."""
    with contextlib.closing(Reader.open(str(sandbox.log))) as reader:
        assert not verify(reader).findings
        state, hashes = read_state(reader, only_stream(reader))
    ledger = sandbox.ledger()
    assert len(hashes) == state.head_seq and hashes[-1] == state.head_hash
    assert is_abreast(ledger, hashes) and hashes[ledger.log_seq - 1] == ledger.log_hash


STOPS = [
    "driver@1:floor.raised:1",
    "driver@1:takeover.killed:1",
    "driver@1:recovered:1",
    "driver@1:intent.commit.before:1",
    "driver@1:intent.commit.after:1",
    "driver@1:outcome.commit.before:1",
    "driver@1:outcome.commit.after:1",
    "driver@1:intent.commit.before:2",
    "driver@1:outcome.commit.after:2",
]


def test_a_session_with_foreign_events_between_and_during_its_calls_finishes(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"), write("b", "two"), bash('until [ -e "$GATE" ]; do :; done; echo three > c'))
    driver = sandbox.start("run", session, epoch=1, wait=tuple(STOPS))
    outsider = Outsider(sandbox.log)
    for stop in STOPS:
        sandbox.steps.wait(stop, driver)
        outsider.add()
        sandbox.steps.release(stop)
    wait_until(lambda: has_started(sandbox, 3), "the third command")
    outsider.add()
    sandbox.open_gate()
    assert driver.end() == 0, driver.err
    assert [(call, ended) for call, _, ended, _ in sandbox.settled()] == [(1, "finished"), (2, "finished"), (3, "finished")]
    assert len(sandbox.of_kind(events.Noted)) == len(sandbox.of_kind(events.InputAdmitted)) == len(STOPS) + 1
    assert sandbox.labels() == [], "nothing was there to recover"
    check_log_and_ledger(sandbox)


@pytest.mark.parametrize("stop", ["driver@1:outcome.commit.before:1", "driver@1:outcome.commit.after:1", "driver@1:intent.commit.after:2"])
def test_a_driver_killed_beside_foreign_events_is_followed_by_one_that_goes_on(sandbox: Sandbox, stop: str) -> None:
    """The ledger remembers hashes by seq: with notes before and after what it remembers, the next driver finds the log abreast (D2)."""
    session = sandbox.session(bash("echo one >> a", policy="after-restore"), bash("echo two >> a", policy="after-restore"))
    stops = ("driver@1:intent.commit.before:1", stop)
    driver = sandbox.start("run", session, epoch=1, wait=stops)
    outsider = Outsider(sandbox.log)
    sandbox.steps.wait(stops[0], driver)
    outsider.add()
    sandbox.steps.release(stops[0])
    sandbox.steps.wait(stop, driver)
    outsider.add()
    sandbox.steps.kill(stop)
    outsider.add()
    sandbox.drive()
    assert (sandbox.root / "a").read_text() == "one\ntwo\n"
    assert not {"log_behind_adopt", "log_behind_restore"} & set(sandbox.labels())
    check_log_and_ledger(sandbox)


def test_the_journal_folds_anew_what_came_between_its_own_events(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    with contextlib.closing(Reader.open(str(sandbox.log))) as reader:
        stream = only_stream(reader)
        known = read_state(reader, stream)
    journal = Journal(Writer.open(str(sandbox.log), CountingIds(1 << 80)), stream, Epoch(1), known)
    outsider = Outsider(sandbox.log)
    for batch in (["a"], ["b", "c", "d"]):
        outsider.add()
        places = journal.append([Record(events.Noted(1, text)) for text in batch], (), "note")
        assert journal.state.head_seq == places[-1].seq == len(journal.hashes)
        assert [journal.hashes[place.seq - 1] for place in places] == [place.hash.hex() for place in places]
        assert (journal.state, journal.hashes) == read_state(journal.reader, stream)
    journal.append([Record(events.Noted(1, "without anything between"))], (), "note")
    assert (journal.state, journal.hashes) == read_state(journal.reader, stream)
    journal.close()


def test_a_note_while_a_command_runs_is_met_by_its_outcome(sandbox: Sandbox) -> None:
    session = sandbox.session(bash('until [ -e "$GATE" ]; do :; done; echo done > a'), bash("echo two > b"))
    driver = sandbox.start("run", session)
    wait_until(lambda: sandbox.log.exists() and sandbox.ledger_path.exists() and has_started(sandbox, 1), "the command")
    outsider = Outsider(sandbox.log)
    outsider.add()
    sandbox.open_gate()
    assert driver.end() == 0, driver.err
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished", "finished"]
    assert sandbox.of_kind(events.Noted)[0].text == "note 1"
    check_log_and_ledger(sandbox)


def has_started(sandbox: Sandbox, call: int) -> bool:
    attempts = sandbox.ledger().attempts.values()
    return any(attempt.start is not None and attempt.prepared.call == call for attempt in attempts)
