"""The journal reads the log once: what was read is taken while the head is the same event, and read anew when it is not."""

from pathlib import Path

import pytest

from eventlog import events
from eventlog.errors import InternalError, NeedsPersonError
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Epoch, StreamId
from eventlog.writer import Writer
from recovery.fold_cache import Known
from recovery.journal import Journal, only_stream, read_state
from recovery.state import fold_stream
from tests.eventlog import bundles
from tests.recovery.sessions import Sandbox, bash


def open_journal(log: Path, stream: StreamId, known: Known) -> Journal:
    """A journal that is given what was known."""
    return Journal(Writer.open(str(log), RandomIds()), stream, Epoch(1), known)


def test_what_is_known_is_taken_only_while_the_head_is_the_same(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    log = sandbox.state / "log.sqlite"
    reader = Reader.open(str(log))
    stream = only_stream(reader)
    known, stored = read_state(reader, stream), list(reader.events(stream))
    reader.close()
    older = (fold_stream(stored[:1], "log"), [stored[0].hash.hex()])
    current = open_journal(log, stream, known)
    assert current.state is known[0]
    current.close()
    stale = open_journal(log, stream, older)
    assert (stale.state, stale.hashes) == known
    stale.close()


def test_forks_and_imported_streams_beside_a_session_are_not_driven(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    log = sandbox.state / "log.sqlite"
    writer = Writer.open(str(log), RandomIds())
    stream = only_stream(writer.reader)
    stored = list(writer.reader.events(stream))
    (opened,) = [one.event for one in stored if isinstance(one.event, events.SessionOpened)]
    forked = events.SessionForked(
        1, "fork", "forked", writer.log_id, stream, 1, stored[0].hash.hex(), "transactional", "stop", [], [], opened.root, [], [], [],
        None, None, [],
    )  # fmt: skip
    writer.open_stream(StreamId("fork"), Record(forked, stored[0].changes), "fork", stream, stored[0].seq)
    assert only_stream(writer.reader) == stream
    with pytest.raises(NeedsPersonError, match="was forked or imported and has no workspace yet"):
        read_state(writer.reader, StreamId("fork"))
    writer.close()
    assert sandbox.run("drive", sandbox.state).code == 0


def test_an_imported_session_is_the_one_of_its_log_and_has_no_workspace_yet(sandbox: Sandbox, tmp_path: Path) -> None:
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    log = str(sandbox.state / "log.sqlite")
    reader = Reader.open(log)
    stream = only_stream(reader)
    reader.close()
    bundles.make(log, tmp_path / "a.bundle", stream)
    bundles.take_new(str(tmp_path / "new.sqlite"), tmp_path / "a.bundle", "f")
    reader = Reader.open(str(tmp_path / "new.sqlite"))
    assert only_stream(reader) == "f"
    with pytest.raises(NeedsPersonError, match=f"`recovery place {tmp_path} --workspace DIR` gives it one"):
        read_state(reader, StreamId("f"))
    reader.close()


def test_what_the_fold_refuses_is_not_written(sandbox: Sandbox) -> None:
    """An event that no driver writes there would make the log unreadable for good."""
    assert sandbox.run("run", sandbox.session(bash("true", approve=True))).code == 78
    log = sandbox.state / "log.sqlite"
    reader = Reader.open(str(log))
    stream = only_stream(reader)
    known = read_state(reader, stream)
    reader.close()
    journal = open_journal(log, stream, known)
    settled = events.CallSettled(1, 1, 1, "finished", "live", "", None, None, known[0].root, [])
    with pytest.raises(InternalError, match="nothing is written: .* call 1 attempt 1 is settled and is not open"):
        journal.append([Record(events.Noted(1, "first")), Record(settled)], (), "outcome")
    assert journal.state is known[0] and read_state(journal.reader, stream) == known
    journal.close()
