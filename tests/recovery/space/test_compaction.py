"""Compaction of the ledger while others have it open (rules S3, L5): the same state, in a new file, whoever dies on the way."""

import errno
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.oracle.ledger import read_moved
from eventlog import durable, steps
from eventlog.errors import CorruptError, ReplacedError, StaleEpochError
from eventlog.ports import SystemClock
from recovery.space import ledger as ledger_module
from recovery.space.keys import Spent, judge_key
from recovery.space.ledger import Ledger, LedgerView, append_fenced, compact_if_large
from recovery.space.records import (
    Advance,
    Collect,
    Condemn,
    Exited,
    Header,
    LedgerState,
    Prepare,
    ProvedDead,
    Record,
    Register,
    ScanFailed,
    Sealed,
    Void,
    compact_state,
    fold_record,
)
from tests.recovery.sessions import Sandbox, bash
from tests.recovery.space.ledgers import (
    EXITED,
    ME,
    PREPARED,
    STARTED,
    KillAt,
    Names,
    WaitAt,
    end_key,
    fork,
    make_ledger,
    open_ledger,
    prepare_key,
    start_key,
    view,
)
from tests.recovery.space.test_ledger import advance_elsewhere
from tests.recovery.workspace.support import run_in_child

RICH: list[Record] = [
    Register("worker", 1, "mark", ME),
    PREPARED,
    STARTED,
    EXITED,
    Collect(1, 1, 5, "h5"),
    prepare_key("running", 2),
    start_key("running"),
    prepare_key("waiting", 3),
    prepare_key("by hand"),
    start_key("by hand"),
    Exited("by hand", EXITED.exit, "boot", 7, 7, 1, "said", {"x": 1}, "digest", 1, 2, "other", 0, True, 9),
    prepare_key("kept"),
    start_key("kept"),
    Exited("kept", EXITED.exit, "boot", left=3),
    prepare_key("void", 3),
    Void("void", 1),
    ScanFailed(1, 3, "x"),
    Condemn(1, ["waiting"]),
]


def compact(made: Ledger) -> None:
    with made.transaction() as transaction:
        transaction.compact()


def compact_elsewhere(path: str) -> None:
    """Compact from a process of its own, as a driver does beside its shims."""
    assert run_in_child(lambda: compact(Ledger(path, SystemClock()))) == 0


def said(state: LedgerState) -> LedgerState:
    """A state without how often its file was written anew."""
    return msgspec.structs.replace(state, compactions=0)


def test_rule_S3_a_compacted_ledger_says_the_same_in_two_lines(tmp_path: Path) -> None:
    """Unresolved keys, keys by hand, fates, marks, helpers, counts: everything but the lines themselves."""
    made = make_ledger(tmp_path, *RICH)
    before, size = made.state, os.path.getsize(made.path)
    compact(made)
    assert Path(made.path).read_bytes().count(b"\n") == 2 and os.path.getsize(made.path) < size
    assert said(view(made.path)) == said(made.state) == before and view(made.path).compactions == 1
    assert (set(before.attempts), set(before.ended)) == ({"running", "waiting", "void", "kept"}, {"by hand"})
    assert os.stat(made.path).st_mode & 0o777 == 0o600


def test_rule_S3_a_key_below_the_mark_is_collected_after_a_compaction_too(tmp_path: Path) -> None:
    """Never taken for one that was not started yet."""
    made = make_ledger(tmp_path, *RICH)
    compact(made)
    assert judge_key(view(made.path), "k", 1, "digest") == Spent(
        "its outcome is in the log, and the ledger collected everything up to call 1"
    )
    assert view(made.path).highest_call == 3


RECORDS: list[Record] = [
    *(make(f"k{number}") for number in range(3) for make in (lambda key: prepare_key(key, int(key[1]) or None), start_key, end_key)),
    Register("spawner", 1, "m", ME),
    Collect(1, 1, 4, "h4"),
    Collect(1, 2, 6, "h6"),
    Advance(2, "log", 5, "h5", {}, ["m"]),
    Condemn(2, ["k1"]),
    ProvedDead(2, ["k1"], ["m"]),
    Void("k2", 1),
    ScanFailed(1, 2, "x"),
    Sealed(3, "ab"),
]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(RECORDS), st.booleans()), max_size=14))
def test_whatever_came_before_and_comes_after_a_compaction_changes_nothing(history: list[tuple[Record, bool]]) -> None:
    plain, compacted = LedgerState(), LedgerState()
    for state in (plain, compacted):
        fold_record(state, make_header(), "ledger")
    for record, is_compacted in history:
        outcomes = [fold_safely(state, record) for state in (plain, compacted)]
        assert outcomes[0] == outcomes[1]
        if is_compacted:
            anew = LedgerState()
            fold_record(anew, make_header(), "ledger")
            fold_record(anew, compact_state(compacted, 1), "ledger")
            compacted = anew
        assert said(compacted) == said(plain)


def make_header() -> Header:
    return Header(1, "id", 1)


def fold_safely(state: LedgerState, record: Record) -> str:
    try:
        fold_record(state, record, "ledger")
    except CorruptError as error:
        return str(error)
    return ""


def test_a_compacted_record_in_the_middle_is_damage(tmp_path: Path) -> None:
    made = make_ledger(tmp_path)
    says = "a compacted state stands behind the header and nowhere else"
    with pytest.raises(CorruptError, match=says), made.transaction() as transaction:
        transaction.append(compact_state(made.state, 2))


def steps_of_a_compaction(tmp_path: Path) -> list[tuple[str, int]]:
    directory = tmp_path / "clean"
    directory.mkdir()
    made = make_ledger(directory, *RICH)
    names = Names()
    steps.enter("test", 0)
    steps.install(names)
    compact(made)
    steps.install(None)
    return names.found


def compact_until_killed(path: str, name: str, ordinal: int) -> Callable[[], None]:
    def work() -> None:
        steps.enter("test", 0)
        steps.install(KillAt(name, ordinal))
        compact(Ledger(path, SystemClock()))

    return work


def test_rule_L5_a_compaction_killed_at_any_step_leaves_one_whole_ledger(tmp_path: Path) -> None:
    """Old or new file under the path: each says the same; a handle that was open before goes on, and nothing half-written stays."""
    found = steps_of_a_compaction(tmp_path)
    assert {name for name, _ in found} == {
        "ledger.compact.write.half", "ledger.compact.sync.before", "ledger.compact.sync.after",
        "ledger.compact.rename.before", "ledger.compact.rename.after",
    }  # fmt: skip
    for number, (name, ordinal) in enumerate(found):
        directory = tmp_path / str(number)
        directory.mkdir()
        made = make_ledger(directory, *RICH)
        before = made.state

        assert os.WTERMSIG(run_in_child(compact_until_killed(made.path, name, ordinal))) == signal.SIGKILL, name
        assert said(view(made.path)) == before, name
        append_fenced(made, 1, ScanFailed(1, 3, "after"))
        assert view(made.path).scan_failures == {3: 2}, name
        compact(made)
        assert sorted(os.listdir(directory)) == ["ledger", "ledger.end", "ledger.lock"], name


def test_rule_L5_a_writer_that_waits_for_a_compaction_writes_into_the_new_file(tmp_path: Path) -> None:
    """The lock is held until the new file has its name: whoever waited opens that, and no record goes to a file without one."""
    made = make_ledger(tmp_path, *RICH)
    told, tell = os.pipe()
    until, go = os.pipe()

    def compacting() -> None:
        mine = Ledger(made.path, SystemClock())
        steps.install(WaitAt("ledger.compact.rename.before", tell, until))
        compact(mine)

    def waiting() -> None:
        mine = Ledger(made.path, SystemClock())
        os.write(tell, b"x")
        append_fenced(mine, 1, ScanFailed(1, 3, "waited"))

    first = fork(compacting)
    assert select.select([told], [], [], 60)[0] and os.read(told, 1) == b".", "waited 60 s for the compaction to stand before its rename"
    second = fork(waiting)
    assert select.select([told], [], [], 60)[0] and os.read(told, 1) == b"x", "waited 60 s for the second writer to have the old file open"
    inode = os.stat(made.path).st_ino
    assert os.waitpid(second, os.WNOHANG) == (0, 0)
    os.write(go, b".")
    assert [os.waitpid(pid, 0)[1] for pid in (first, second)] == [0, 0]
    assert os.stat(made.path).st_ino != inode
    assert view(made.path).scan_failures == {3: 2}
    for descriptor in (told, tell, until, go):
        os.close(descriptor)


def test_rule_L5_readers_and_writers_go_over_to_the_new_file(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, *RICH)
    reader = LedgerView(made.path)
    compact_elsewhere(made.path)
    append_fenced(made, 1, ScanFailed(1, 9, "after"))
    assert Path(made.path).read_bytes().count(b"\n") == 3
    reader.refresh()
    assert reader.state == made.state and reader.state.scan_failures == {3: 1, 9: 1}
    reader.close()


def test_rule_L5_a_superseded_driver_compacts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "COMPACT_BYTES", 10)
    made = make_ledger(tmp_path, *RICH)
    advance_elsewhere(made.path)
    data = Path(made.path).read_bytes()
    with pytest.raises(StaleEpochError):
        compact_if_large(made, 1)
    assert Path(made.path).read_bytes() == data


def test_rule_L5_an_older_copy_in_the_ledgers_place_is_refused(tmp_path: Path) -> None:
    """By a process that has the newer one open: what it knows is not unsaid by a file."""
    made = make_ledger(tmp_path, *RICH)
    older = Path(made.path).read_bytes()
    compact(made)
    Path(made.path + ".older").write_bytes(older)
    os.rename(made.path + ".older", made.path)
    os.truncate(made.path + ".end", 0)
    with pytest.raises(ReplacedError, match="another file was put in the ledger's place while it was open; put the ledger's own file back"):
        append_fenced(made, 1, ScanFailed(1, 1, "x"))
    assert Path(made.path).read_bytes() == older


@pytest.mark.parametrize("what", ["another ledger", "a copy of its own"])
def test_rule_L5_anything_else_in_the_ledgers_place_is_refused(tmp_path: Path, what: str) -> None:
    made = make_ledger(tmp_path, *RICH)
    data = Path(made.path).read_bytes()
    if what == "another ledger":
        (tmp_path / "other").mkdir()
        other = make_ledger(tmp_path / "other", *RICH)
        compact(other)  # by its count alone it could be what became of the held one
        append_fenced(other, 1, ScanFailed(1, 1, "x"))
        data = rechain(Path(other.path).read_bytes().replace(b'"ledger_id":"id"', b'"ledger_id":"is"'))
    Path(made.path + ".copy").write_bytes(data)
    os.rename(made.path + ".copy", made.path)
    with pytest.raises(ReplacedError, match="another file was put in the ledger's place"):
        made.refresh()


def rechain(data: bytes) -> bytes:
    last, lines = b"", []
    for line in data.splitlines():
        body = line[33:]
        last = blake3(last + body).hexdigest(16).encode()
        lines.append(last + b" " + body + b"\n")
    return b"".join(lines)


def test_rule_L5_a_ledger_taken_away_is_told(tmp_path: Path) -> None:
    made = make_ledger(tmp_path, *RICH)
    os.rename(made.path, made.path + ".away")
    with pytest.raises(ReplacedError, match="the ledger was taken away while it was open; put it back and drive again"):
        append_fenced(made, 1, ScanFailed(1, 1, "x"))
    os.rename(made.path + ".away", made.path)
    append_fenced(made, 1, ScanFailed(1, 1, "x"))


def test_the_note_of_the_end_is_true_before_and_after(tmp_path: Path) -> None:
    """Lines that were folded away go on to count, so that a cut end is told in the new file as in the old one."""
    made = make_ledger(tmp_path, *RICH)
    lines = Path(made.path).read_bytes().count(b"\n")
    compact(made)
    assert Path(made.path + ".end").read_bytes() == b"%d\n" % (lines + 1)
    append_fenced(made, 1, ScanFailed(1, 9, "x"))
    whole = Path(made.path).read_bytes()
    assert Path(made.path + ".end").read_bytes() == b"%d\n" % (lines + 2)
    for length in range(len(whole)):
        os.truncate(made.path, length)
        with pytest.raises(CorruptError):
            LedgerView(made.path)
        Path(made.path).write_bytes(whole)
    assert view(made.path).scan_failures == {3: 1, 9: 1}


def test_a_torn_end_is_sealed_before_a_compaction(tmp_path: Path) -> None:
    """What was waiting then is torn in the new file too: "never started" is said of nothing that may have started."""
    made = make_ledger(tmp_path, PREPARED)
    with open(made.path, "ab") as file:
        file.write(b"0123 {half of a re")
    compact(made)
    assert view(made.path).attempts["k"].torn


def test_moves_of_a_restore_are_counted_for_the_oracle_across_compactions(tmp_path: Path) -> None:
    first, second = (f"log/n/d7/{number}" for number in (1, 2))
    made = make_ledger(tmp_path, work_key(first), start_key(first), moved(first, 3))
    compact(made)
    for record in (work_key(second), start_key(second), moved(second, 2), Collect(1, 1, 9, "h")):
        append_fenced(made, 1, record)
    assert read_moved(made.path) == {7: 5}
    compact(made)
    assert read_moved(made.path) == {7: 5} and not view(made.path).attempts and view(made.path).collected_work == 7


def work_key(key: str) -> Prepare:
    return Prepare(key, "work", 1, None, 1, "root", "mark", None, 7, "h7")


def moved(key: str, count: int) -> Exited:
    return Exited(key, EXITED.exit, "boot", detail={"displaced": count})


def test_it_runs_when_the_file_has_grown_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound, and above twice what the last one left: all compactions together write no more than the appends did."""
    made = make_ledger(tmp_path, *RICH)
    assert not compact_if_large(made, 1)
    monkeypatch.setattr(ledger_module, "COMPACT_BYTES", 10)
    assert compact_if_large(made, 1)
    left = os.path.getsize(made.path)
    again = open_ledger(made.path)
    while os.path.getsize(made.path) <= 2 * left:
        for one in (made, again):
            assert not compact_if_large(one, 1)
        append_fenced(made, 1, ScanFailed(1, 3, "x"))
    again.refresh()
    assert again.is_large and compact_if_large(made, 1)
    assert os.path.getsize(made.path) <= left + 2


def test_a_full_disk_puts_it_off_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_ledger(tmp_path, *RICH)
    data = Path(made.path).read_bytes()
    monkeypatch.setattr(ledger_module, "COMPACT_BYTES", 10)
    monkeypatch.setattr(durable, "publish", lambda *_, **__: raise_full())
    assert not compact_if_large(made, 1) and Path(made.path).read_bytes() == data
    assert not made.is_large, "it is not tried again before the file has grown"


def raise_full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_session_with_a_large_ledger_compacts_it_between_two_calls(sandbox: Sandbox) -> None:
    """Shims and spawner hold the old file open meanwhile, and write into the new one."""
    step = "driver@1:outcome.commit.before:1"
    driver = sandbox.start("run", sandbox.session(bash("echo one > a"), bash("echo two > b"), bash("cat a b")), epoch=1, wait=(step,))
    sandbox.steps.wait(step, driver)
    grown = open_ledger(sandbox.ledger_path)
    for _ in range(10):
        append_fenced(grown, 1, ScanFailed(1, 1, "x" * 120_000))
    sandbox.steps.release(step)
    assert driver.end() == 0, driver.err
    assert sandbox.output(3) == b"one\ntwo\n" and sandbox.ledger().compactions == 1
    assert os.path.getsize(sandbox.ledger_path) < 100_000 and sandbox.ledger().collected == 3
