"""Which lines a reader folds, and that it cannot be told from what it says."""

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import CorruptError
from recovery.space import ledger_lines
from recovery.space.ledger import LedgerView, append_fenced
from recovery.space.ledger_lines import Reading, encode_line, find_key
from recovery.space.records import (
    Advance,
    Collect,
    Condemn,
    Header,
    LedgerState,
    ProvedDead,
    Record,
    Register,
    Rejoin,
    ScanFailed,
    Sealed,
    Void,
    fold_record,
)
from tests.recovery.space.ledgers import ME, end_key, make_ledger, open_ledger, prepare_key, start_key

KEYS = ["log/n/1/1/1", "log/n/d7/1", "by hand", 'a "quoted" key', "back\\slash", "líne\n", "☃", ""]
HEADER = Header(1, "id", 1)
RECORDS: list[Record] = [
    *(prepare_key(key, call) for key, call in zip(KEYS, (1, None, None, 2, None, 3, None, None), strict=True)),
    *(start_key(key) for key in KEYS),
    *(end_key(key) for key in KEYS),
    Register("spawner", 1, "m", ME),
    Collect(1, 1, 4, "h4"),
    Advance(2, "log", 5, "h5", {KEYS[0]: "condemned"}, ["m"]),
    Condemn(2, [KEYS[2]]),
    ProvedDead(2, [KEYS[0]], ["m"]),
    Void(KEYS[3], 1),
    Rejoin(1, 2, "h2"),
    Sealed(3, "ab"),
]


class Writing:
    """Lines of a sound ledger, made one by one."""

    def __init__(self) -> None:
        self.state = LedgerState()
        self.reading = Reading("ledger")
        self._last = b""
        self.add(HEADER)

    def add(self, record: Record) -> bool:
        """Append what a sound ledger may hold there; False when it may not."""
        trial = msgspec.json.decode(msgspec.json.encode(self.state), type=LedgerState)
        try:
            fold_record(trial, record, "ledger")
        except CorruptError:
            return False
        fold_record(self.state, record, "ledger")
        line = encode_line(self._last, record)
        self._last = line[:32]
        self.reading.take(line[:-1])
        return True


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(RECORDS), st.sampled_from([*KEYS, "nobody's", None])), max_size=30))
def test_rule_S3_a_key_is_told_as_the_whole_ledger_tells_it_in_whatever_order_keys_are_asked_for(
    history: list[tuple[Record, str | None]],
) -> None:
    """A reader that folds the lines of one key before older ones of others says of that key, of the floor and of what was collected what
    all lines come to, and comes to the same state in the end."""
    written = Writing()
    for record, key in history:
        written.add(record)
        if key is not None:
            told, known = written.reading.state_of(key), written.state
            assert told.find(key) == known.find(key)
            assert (told.floor, told.collected, told.collected_work) == (known.floor, known.collected, known.collected_work)
            assert written.reading.floor == known.floor
    assert written.reading.state == written.state


def test_lines_of_other_keys_are_not_decoded_to_tell_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many writers most lines are of others: what a command costs must not grow with them."""
    written = Writing()
    for number in range(50):
        for make in (prepare_key, start_key, end_key):
            written.add(make(f"k{number}"))
    decoded: list[bytes] = []
    real = ledger_lines._decoder

    class Counting:
        def decode(self, body: bytes) -> Record:
            decoded.append(body)
            return real.decode(body)

    monkeypatch.setattr(ledger_lines, "_decoder", Counting())
    attempt = written.reading.state_of("k7").find("k7")
    assert attempt is not None and attempt.exit is not None and len(decoded) == 3
    assert written.reading.state_of("k7").find("k7") == attempt and len(decoded) == 3
    assert written.reading.state == written.state and len(decoded) == 150


@pytest.mark.parametrize("key", KEYS)
def test_a_key_with_an_escape_is_never_left_for_later(key: str) -> None:
    """It may be written in more than one way: by its bytes it might not be found again, and a key that is not found runs anew."""
    body = encode_line(b"", start_key(key))[33:-1]
    assert find_key(body) == (None if b"\\" in body else key.encode())


def test_a_line_that_cannot_be_folded_is_told_of_each_time_its_key_is_asked_for() -> None:
    reading, last = Reading("ledger"), b""
    for record in (HEADER, start_key("never prepared"), prepare_key("other")):
        line = encode_line(last, record)
        last = line[:32]
        reading.take(line[:-1])
    for _ in range(2):
        with pytest.raises(CorruptError, match="line 2: key never prepared was never prepared"):
            reading.state_of("never prepared")
    for _ in range(2):
        with pytest.raises(CorruptError, match="line 2"):
            reading.state  # noqa: B018


def test_rule_S3_nothing_of_the_ledger_itself_is_appended_after_a_line_that_cannot_be_folded(tmp_path: Path) -> None:
    """Other keys may be told of without such a line; a record of the whole says what all before it come to."""
    made = make_ledger(tmp_path, prepare_key("other"))
    other = open_ledger(made.path)
    made.refresh()
    with other.transaction() as transaction, suppress(CorruptError):
        transaction.append(start_key("never prepared"))
    before = (tmp_path / "ledger").read_bytes()
    for _ in range(2):
        with pytest.raises(CorruptError, match="key never prepared was never prepared"):
            append_fenced(made, 1, ScanFailed(1, 1, "x"))
    assert (tmp_path / "ledger").read_bytes() == before


def test_a_line_that_cannot_be_folded_is_named_again_by_a_reader_that_met_it_among_others(tmp_path: Path) -> None:
    """Its own cause each time: not that the ledger was damaged, with the advice to put back a copy."""
    made = make_ledger(tmp_path, prepare_key("other"))
    view, last = LedgerView(made.path), (tmp_path / "ledger").read_bytes().splitlines()[-1][:32]
    with (tmp_path / "ledger").open("ab") as file:
        for record in (start_key("other"), start_key("never prepared"), ScanFailed(1, 1, "x")):
            line = encode_line(last, record)
            last = line[:32]
            file.write(line)
    for _ in range(2):
        with pytest.raises(CorruptError, match="key never prepared was never prepared"):
            view.refresh()
    view.close()
