"""What a fork's first event says, and where a stream can be forked (rule C9). Pure; the command is tested in test_command_history."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from eventlog import events
from eventlog import fork as fork_module
from eventlog.errors import CorruptError, MisuseError
from eventlog.fork import fork_record, newest_forkable
from eventlog.image import Entry, diff, fold_changes, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Reader, StoredEvent
from eventlog.records import Record
from eventlog.values import Epoch, LogId, Seq, StreamId
from eventlog.verify import verify
from eventlog.writer import Writer
from recovery.labels import Label
from tests.eventlog import support
from tests.eventlog.support import IMAGE, LATER, STREAM

LOG = LogId("l" * 32)


def store(records: Sequence[Record]) -> list[StoredEvent]:
    """Records as a stream would hold them."""
    return [
        StoredEvent(Seq(at), bytes(16), Epoch(0), bytes([at]) * 32, record.event, record.changes)
        for at, record in enumerate(records, start=1)
    ]


def fork(stored: Sequence[StoredEvent], at: int) -> Record:
    return fork_record(stored, Seq(at), name="copy", reason="forked", parent_log=LOG, parent=STREAM, now_ms=9)


def forked(record: Record) -> events.SessionForked:
    assert isinstance(record.event, events.SessionForked)
    return record.event


def undone(call: int) -> Record:
    return Record(events.CallUndone(7, call, "its checkpoint was lost", 1))


def decided(obligation: bool) -> Record:
    target = 1 if obligation else None
    event = events.RecoveryDecided(6, "restore_and_interrupt", 1, 1, obligation, target, "r" if obligation else None, "transactional", {})
    return Record(event)


def restored(decision_seq: int) -> Record:
    return Record(events.RestoreFinished(7, decision_seq, root_hash(IMAGE).hex(), 0, 0, 1, 0, 0, accepted=False))


HISTORY = [
    support.opened(),  # 1
    Record(support.started()),  # 2
    support.attempt(1),  # 3
    support.settled(1, LATER, diff(IMAGE, LATER)),  # 4
    support.attempt(2),  # 5
    decided(True),  # 6
    restored(6),  # 7
    support.settled(2, LATER, ()),  # 8
    support.note("x"),  # 9
]


def test_rule_C9_a_fork_begins_with_the_whole_image_and_the_calls_settled_by_then() -> None:
    record = fork(store(HISTORY), 4)
    event = forked(record)
    assert record.changes == diff({}, LATER)
    assert (event.name, event.reason, event.parent_log, event.parent, event.parent_seq) == ("copy", "forked", LOG, STREAM, 4)
    assert (event.parent_hash, event.root, event.at_ms) == ((b"\4" * 32).hex(), root_hash(LATER).hex(), 9)
    outcome = HISTORY[3].event
    assert isinstance(outcome, events.CallSettled)
    expected = events.ForkedCall(1, 0, "bash", "finished", root_hash(LATER).hex(), "", "d" * 64, outcome.exit, outcome.output)
    assert event.calls == [expected]
    opened = HISTORY[0].event
    assert isinstance(opened, events.SessionOpened)
    assert (event.script, event.on_interrupted, event.mode) == (opened.script, opened.on_interrupted, opened.mode)
    assert forked(fork(store(HISTORY), 2)).calls == [] and forked(fork(store(HISTORY), 2)).root == root_hash(IMAGE).hex()
    assert [call.call for call in forked(fork(store(HISTORY), 8)).calls] == [1, 2]


@pytest.mark.parametrize(("label", "listed"), [("restore_by_person", ["old"]), ("restore_and_interrupt", ["new"])])
def test_after_a_persons_restore_a_fork_has_the_untracked_nodes_of_the_chosen_event(label: str, listed: list[str]) -> None:
    def observed(*paths: str) -> Record:
        return Record(events.WorkspaceObserved(5, root_hash(IMAGE).hex(), [events.Untracked(path, "socket") for path in paths]))

    by_person = replace(decided(True), event=replace(decided(True).event, label=label, target_seq=3))
    history = [support.opened(), Record(support.started()), observed("old"), support.note("x"), observed("new"), by_person, restored(6)]
    assert [node.path for node in forked(fork(store(history), 7)).untracked] == listed
    assert [node.path for node in forked(fork(store(history), 5)).untracked] == ["new"]


def test_the_label_of_a_persons_restore_is_the_one_that_recovery_writes() -> None:
    assert Label.RESTORE_BY_PERSON.value == fork_module._BY_PERSON


@pytest.mark.parametrize(
    ("at", "why"), [(3, "call 1 is open"), (5, "call 2 is open"), (6, "the restore decided at seq 6"), (7, "call 2 is open")]
)
def test_rule_C9_a_point_with_an_open_call_or_a_restore_owed_is_refused_by_name(at: int, why: str) -> None:
    with pytest.raises(MisuseError) as refused:
        fork(store(HISTORY), at)
    before, after = (2, 4) if at == 3 else (4, 8)
    assert why in str(refused.value)
    assert f"the nearest point before it that can be forked is {before}, the next one after it is {after}" in str(refused.value)


def test_rule_C9_an_obligation_outside_any_call_is_an_obligation_all_the_same() -> None:
    history = store([*HISTORY, decided(True)])
    with pytest.raises(MisuseError, match=r"restore decided at seq 10 .* is 9, no later one yet"):
        fork(history, 10)
    with pytest.raises(MisuseError, match="restore decided at seq 10"):
        fork(store([*HISTORY, decided(True), restored(6)]), 11)
    assert newest_forkable(history) == 9
    assert newest_forkable(store([*HISTORY, decided(True), restored(10)])) == 11
    assert newest_forkable(store([*HISTORY, decided(False)])) == 10


def test_a_point_that_is_not_there_is_refused_with_those_that_are() -> None:
    for at in (0, 10, -1):
        with pytest.raises(MisuseError, match=f"has no event {at}; its events are 1 to 9"):
            fork(store(HISTORY), at)


def test_newest_forkable_steps_back_over_an_open_call() -> None:
    assert newest_forkable(store(HISTORY)) == 9
    assert newest_forkable(store(HISTORY[:3])) == 2
    assert newest_forkable(store(HISTORY[:7])) == 4
    assert newest_forkable(store(HISTORY[:1])) == 1


def test_a_fork_goes_on_in_the_mode_of_its_point_and_names_no_checkpoint_which_is_its_parents() -> None:
    first = HISTORY[0].event
    assert isinstance(first, events.SessionOpened)
    asked = replace(first, mode="auto", limits=events.Limits(10, None, None), checkpoints=events.Checkpoints("/s", 2, ""))
    history = [Record(asked, HISTORY[0].changes), *HISTORY[1:]]
    root = forked(fork(store(history), 9)).root
    taken = [
        Record(events.ModeSwitched(8, "checkpoint", "above the limit", "c" * 64)), Record(events.CheckpointTaken(8, "c" * 64, root, 3))
    ]
    before, after = forked(fork(store(history), 9)), forked(fork(store([*history, *taken]), 11))
    assert (before.mode, before.checkpoints, before.limits) == ("auto", events.Checkpoints("/s", 2, ""), asked.limits)
    assert (after.mode, after.checkpoints) == ("checkpoint", events.Checkpoints("/s", 2, ""))
    other = [*taken[:1], Record(events.CheckpointTaken(8, "c" * 64, "d" * 64, 3))]
    assert forked(fork(store([*history, *other]), 11)).checkpoints == events.Checkpoints("/s", 2, "")


def test_a_fork_of_a_fork_carries_the_calls_of_its_parent() -> None:
    first = replace(fork(store(HISTORY), 4), id=None)
    later = [first, Record(support.started()), support.attempt(2), support.settled(2, LATER, ()), undone(1)]
    event = forked(fork(store(later), 4))
    assert [(call.call, call.ended) for call in event.calls] == [(1, "finished"), (2, "finished")]
    assert [(call.call, call.ended) for call in forked(fork(store(later), 5)).calls] == [(1, "interrupted"), (2, "finished")]
    assert forked(fork(store(later), 1)).calls == forked(first).calls


def test_what_is_untracked_is_that_of_the_newest_image() -> None:
    socket = events.Untracked("s", "socket")
    observed = Record(events.WorkspaceObserved(5, root_hash(LATER).hex(), [socket]))
    assert forked(fork(store([*HISTORY, observed]), 10)).untracked == [socket]
    assert forked(fork(store(HISTORY), 9)).untracked == []


def test_what_is_no_session_is_damage() -> None:
    with pytest.raises(CorruptError, match="does not begin with session_opened"):
        fork(store(HISTORY[1:]), 1)
    with pytest.raises(CorruptError, match="no events"):
        newest_forkable([])
    with pytest.raises(CorruptError, match="call 1 is settled and was not open"):
        newest_forkable(store([HISTORY[0], HISTORY[3]]))
    with pytest.raises(CorruptError, match="no root directory"):
        fork(store([replace(HISTORY[0], changes=())]), 1)


def test_every_forkable_point_of_a_log_with_every_kind_gives_a_sound_fork_with_its_root(tmp_path: Path) -> None:
    path = support.make_golden(tmp_path)
    writer = Writer.open(path, CountingIds(9_000_000))
    made = 0
    for parent in [row.id for row in writer.reader.streams()]:
        stored = list(writer.reader.events(parent))
        image: dict[bytes, Entry] = {}
        for event in stored:
            image = fold_changes(image, event.changes)
            name = f"{parent}-{event.seq}"
            try:
                record = fork_record(stored, event.seq, name=name, reason="forked", parent_log=writer.log_id, parent=parent, now_ms=50)
            except MisuseError:
                continue
            assert forked(record).root == root_hash(image).hex()
            writer.open_stream(StreamId(name), record, "fork", parent, event.seq)
            made += 1
    writer.close()
    reader = Reader.open(path)
    found = verify(reader)
    reader.close()
    assert made > 10 and found.findings == () and found.streams == made + 2
