"""The redriver's record: whole or an error, part of L1's highest epoch, and a sign that there was a log (L9)."""

from pathlib import Path

import pytest

from eventlog.errors import CorruptError
from eventlog.process_identity import ProcessIdentity
from recovery.opening import should_exist
from recovery.redrive.record import (
    MOST_KEPT,
    Attempt,
    Parked,
    RedriveRecord,
    decode_record,
    encode_record,
    issued_epoch,
    load_record,
    publish_record,
    record_path,
)
from tests.recovery.sessions import Sandbox, bash

WHO = ProcessIdentity(7, 1, "boot", 1)
RECORD = RedriveRecord(epoch=7, attempts=[Attempt(1, 7, 5, "first start", 0, 3, WHO)], parked=Parked(6, "poison", "why", 9))


def test_a_record_comes_back_as_it_was_published(tmp_path: Path) -> None:
    assert load_record(str(tmp_path)) == RedriveRecord() and issued_epoch(str(tmp_path)) == 0
    publish_record(str(tmp_path), RECORD)
    assert load_record(str(tmp_path)) == RECORD and issued_epoch(str(tmp_path)) == 7
    assert should_exist(str(tmp_path)), "a log stood beside it (L9)"


def test_rule_I9_every_cut_and_every_flipped_bit_of_a_record_is_damage(tmp_path: Path) -> None:
    """Read as nothing it would lower the next epoch and forget the count."""
    whole = encode_record(RECORD)
    for length in range(len(whole)):
        with pytest.raises(CorruptError, match="not a redriver's record"):
            decode_record(whole[:length], "r")
    for at in range(len(whole)):
        with pytest.raises(CorruptError):
            decode_record(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], "r")
    Path(record_path(str(tmp_path))).mkdir()
    with pytest.raises(CorruptError, match="not a regular file"):
        load_record(str(tmp_path))


def test_a_record_of_a_later_format_is_refused() -> None:
    with pytest.raises(CorruptError, match="format 2 is not known here"):
        decode_record(encode_record(RedriveRecord(format=2)), "r")


def test_old_attempts_are_dropped_and_counted(tmp_path: Path) -> None:
    attempts = [Attempt(number, number, 0, "", 0, 0, WHO) for number in range(1, MOST_KEPT + 11)]
    publish_record(str(tmp_path), RedriveRecord(attempts=attempts))
    found = load_record(str(tmp_path))
    assert (len(found.attempts), found.dropped, found.attempts[-1].number) == (MOST_KEPT, 10, MOST_KEPT + 10)


def test_rule_L1_the_next_driver_is_above_every_epoch_that_a_redriver_issued(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("kill -9 $PPID"), on_interrupted="continue"))
    publish_record(str(sandbox.state), RedriveRecord(epoch=41))
    sandbox.drive()
    assert max(stored.epoch for stored in sandbox.events()) == 42


def test_a_damaged_record_stops_redriver_and_driver_in_one_sentence(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("kill -9 $PPID"), on_interrupted="continue"))
    Path(record_path(str(sandbox.state))).write_text("nonsense")
    head = len(sandbox.events())
    for command in ("drive", "redrive"):
        refused = sandbox.run(command, sandbox.state)
        assert refused.code == 78 and "redriver: not a redriver's record" in refused.sentence(), refused.err
    assert len(sandbox.events()) == head
