"""What the oracle is told of a target that is a driver of this engine."""

from pathlib import Path

import msgspec
import pytest

from chaos.target.log_check import read_session
from eventlog.creation import create_log
from eventlog.errors import MisuseError
from eventlog.records import Record
from tests.eventlog import support


def test_calls_that_are_missing_at_the_end_are_no_shorter_script(tmp_path: Path) -> None:
    """A driver that ends with 0 after the first of three calls has not done what it was opened for."""
    record = support.opened()
    opened = msgspec.structs.replace(record.event, script=[{"tool": "bash", "run": "true"}] * 3)
    log = tmp_path / "log.sqlite"
    create_log(str(log), support.STREAM, Record(opened, record.changes), support.blobs(), support.CountingIds())
    session = read_session(log, tmp_path / "copies")
    assert (session.script_length, session.kinds) == (3, ("session_opened",))
    assert not (tmp_path / "copies").exists()


def test_a_log_without_a_session_that_began_in_it_is_named(tmp_path: Path) -> None:
    """A runner that ended by it would have said nothing of the target."""
    log = support.make_log(tmp_path)
    support.tamper(log, "UPDATE stream SET origin_log = 'another', origin_stream = 'another'")
    with pytest.raises(MisuseError, match="no session that began in it"):
        read_session(Path(log), tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
