"""Failures seen in a real system of this kind, each by name (the others stand with what they are about: test_keys, test_ledger,
test_ledger_opening, test_listing)."""

import os
from collections import Counter
from pathlib import Path

import pytest

from eventlog.errors import StaleEpochError
from eventlog.ports import SystemClock
from recovery.space import ledger_lines
from recovery.space.keys import Attach, New, Replay, prepare
from recovery.space.ledger import Ledger, append_fenced
from recovery.space.records import Advance, Collect, Record, ScanFailed
from tests.recovery.space.ledgers import end_key, grow, make_ledger, prepare_key, start_key, view
from tests.recovery.workspace.support import run_in_child

NEWER = 5_000


@pytest.mark.parametrize("is_compacted", [False, True], ids=["as appended", "compacted"])
def test_a_running_key_is_not_evicted_by_thousands_of_newer_ones(tmp_path: Path, is_compacted: bool) -> None:
    """Evicted, a retry would run beside it. Nor is one that has ended: a retry would run again."""
    made = grow(tmp_path, NEWER)
    for record in (prepare_key("running"), start_key("running"), prepare_key("of a call", 1), start_key("of a call")):
        append_fenced(made, 1, record)
    for number in range(20):
        for record in (prepare_key(f"n{number}", 2), start_key(f"n{number}"), end_key(f"n{number}"), Collect(1, 2, 9, "h")):
            append_fenced(made, 1, record)
    if is_compacted:
        with made.transaction() as transaction:
            transaction.compact()
    for key, call in (("running", None), ("of a call", 1)):
        answer = prepare(made, prepare_key(key, call))
        assert isinstance(answer, Attach) and answer.attempt.start == start_key(key)
    assert isinstance(prepare(made, prepare_key("log/n/0/1/1")), Replay)
    assert isinstance(prepare(made, prepare_key(f"log/n/{NEWER - 1}/1/1")), Replay)


class Counting:
    """Counts what a ledger costs: bytes read from files, records folded, bytes written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Counter[str] = Counter()
        pread, fold, write = os.pread, ledger_lines.fold_record, os.write

        def count_read(descriptor: int, size: int, offset: int) -> bytes:
            self.found["read"] += size
            return pread(descriptor, size, offset)

        def count_fold(*arguments: object) -> None:
            self.found["folded"] += 1
            fold(*arguments)  # type: ignore[arg-type]

        def count_write(descriptor: int, data: bytes) -> int:
            self.found["written"] += len(data)
            return write(descriptor, data)

        monkeypatch.setattr(os, "pread", count_read)
        monkeypatch.setattr(ledger_lines, "fold_record", count_fold)
        monkeypatch.setattr(os, "write", count_write)

    def count(self, made: Ledger, key: str, call: int) -> Counter[str]:
        self.found.clear()
        assert prepare(made, prepare_key(key, call)) == New()
        for record in (start_key(key), end_key(key), Collect(1, call, 1, "hash")):
            append_fenced(made, 1, record)
        return Counter(self.found)


@pytest.mark.parametrize("call", [None, 2], ids=["by hand", "of calls"])
def test_a_start_costs_the_same_with_ten_keys_and_with_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int | None
) -> None:
    """Counted, not timed: prepare, mark, exit and collection read, fold and write the same few records, whatever else stands there."""
    costs = []
    for keys in (10, NEWER):
        directory = tmp_path / str(keys)
        directory.mkdir()
        made = grow(directory, keys, call)
        with monkeypatch.context() as patch:
            costs.append(Counting(patch).count(made, "x" * 9, 1))
    assert costs[0] == costs[1] and costs[0]["folded"] == 4


def test_a_collection_looks_at_what_it_collects_and_at_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys of later calls are open or by hand."""
    made = grow(tmp_path, NEWER, 10)
    looked: Counter[str] = Counter()
    attempts = made.state.attempts
    monkeypatch.setattr(made.state, "attempts", Watched(attempts, looked))
    append_fenced(made, 1, Collect(1, 10, 1, "hash"))
    assert looked["get"] + looked["all"] <= 2 and len(made.state.attempts) == NEWER - 1


class Watched(dict[str, object]):
    """A dictionary that counts the looks into it."""

    def __init__(self, found: dict[str, object], looked: Counter[str]) -> None:  # type: ignore[type-arg]
        super().__init__(found)
        self._looked = looked

    def __getitem__(self, key: str) -> object:
        self._looked["get"] += 1
        return super().__getitem__(key)

    def __iter__(self):  # type: ignore[no-untyped-def]
        self._looked["all"] += len(self)
        return super().__iter__()

    def items(self):  # type: ignore[no-untyped-def]
        self._looked["all"] += len(self)
        return super().items()

    def values(self):  # type: ignore[no-untyped-def]
        self._looked["all"] += len(self)
        return super().values()


def test_two_servers_on_one_ledger_share_the_keys_and_the_fence(tmp_path: Path) -> None:
    """Each with a handle of its own: what one advances to, the other compares with, under the lock, at its very next start."""
    made = make_ledger(tmp_path)
    assert prepare(made, prepare_key("first")) == New()

    def other_server() -> None:
        other = Ledger(made.path, SystemClock())
        assert isinstance(prepare(other, prepare_key("first")), Attach)
        with other.transaction() as transaction:
            transaction.append(Advance(2, "log", 2, "hash", {"first": "condemned"}, []))

    assert run_in_child(other_server) == 0
    late: list[Record] = [start_key("first"), Collect(1, 1, 1, "h"), ScanFailed(1, 1, "x")]
    for record in late:
        with pytest.raises(StaleEpochError, match="epoch 1 is below the ledger's floor 2"):
            append_fenced(made, 1, record)
    with pytest.raises(StaleEpochError):
        prepare(made, prepare_key("second"))
    assert view(made.path).attempts["first"].start is None
