"""What compaction keeps, as a pure choice; each rule of the policy by an example in which only that rule keeps something."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog import codec, events
from eventlog.errors import CorruptError
from eventlog.image import Change, Entry, put_change
from eventlog.reader import StoredEvent, StreamRow
from eventlog.retention import (
    ImageStep,
    Outline,
    Policy,
    choose_given_up,
    choose_points,
    keep_contents,
    keep_outputs,
    outline_stream,
)
from eventlog.values import ZERO_HASH, ContentId, Epoch, Seq, StreamId
from tests.eventlog import support

S, T = StreamId("s"), StreamId("t")


def name(text: str) -> ContentId:
    return codec.content_id(text.encode())


A, B, C, D, E = (name(text) for text in "abcde")


def outline(stream: StreamId = S, images: str = "", **given: object) -> Outline:
    """A stream whose event 1, 2, 3 ... has the image of that letter; "-" for an event that changes nothing, "?" for one without root."""
    steps = tuple(ImageStep(Seq(seq), None if root == "?" else root) for seq, root in enumerate(images, 1) if root != "-")
    head = Seq(len(images))
    usual: dict[str, object] = {
        "stream": stream, "head": head, "parent": None, "forked_at": None, "is_fork": False,
        "images": steps, "settled": head, "targets": frozenset(), "outputs": (),
    }  # fmt: skip
    return Outline(**(usual | given))  # type: ignore[arg-type]


def points(one: Outline, *others: Outline, keep: int = 1, pins: Iterable[int] = ()) -> list[int]:
    chosen = choose_points([one, *others], frozenset((one.stream, Seq(seq)) for seq in pins), Policy(keep))
    return sorted(chosen[one.stream])


def test_the_newest_distinct_images_are_kept_and_the_head() -> None:
    assert points(outline(images="abc-d-"), keep=2) == [3, 5, 6]


def test_an_image_that_comes_again_counts_once() -> None:
    assert points(outline(images="abcbcb"), keep=3) == [1, 5, 6]


def test_an_event_that_states_no_root_is_an_image_of_its_own() -> None:
    assert points(outline(images="a??"), keep=2) == [2, 3]


def test_a_pinned_event_is_kept() -> None:
    assert points(outline(images="abcd"), pins=[2]) == [2, 4]


def test_the_point_where_a_fork_of_the_same_log_begins_is_kept() -> None:
    assert points(outline(images="abcd"), outline(T, images="x", parent=S, forked_at=Seq(2))) == [2, 4]


def test_the_first_image_of_a_fork_is_kept_and_that_of_a_session_is_not() -> None:
    assert points(outline(images="abcd", is_fork=True)) == [1, 4]
    assert points(outline(images="abcd")) == [4]


def test_every_image_from_the_newest_settled_point_on_is_kept() -> None:
    assert points(outline(images="abcde", settled=Seq(2))) == [2, 3, 4, 5]


def test_the_target_of_an_open_restore_is_kept() -> None:
    assert points(outline(images="abcd", targets=frozenset({Seq(1)}))) == [1, 4]


def stored(seq: int, event: events.Event, changes: tuple[Change, ...] = ()) -> StoredEvent:
    return StoredEvent(Seq(seq), bytes(16), Epoch(0), ZERO_HASH, event, changes)


def row() -> StreamRow:
    return StreamRow(S, Epoch(0), Seq(1), ZERO_HASH)


PUT = (put_change(b"a", Entry("f", 0o644, A, 1)),)


def test_an_outline_says_where_nothing_was_open() -> None:
    decided = events.RecoveryDecided(1, "restore_and_interrupt", 2, 1, True, 5, "r", "transactional", {})
    finished = events.RestoreFinished(1, 6, "r", 0, 0, 0, 0, 0, accepted=False)
    history = [support.opened(), support.attempt(1), support.settled(1, support.LATER, PUT), support.attempt(2)]
    events_so_far = [record.event for record in history]
    settled = [1, 1, 3, 3, 3, 3, 3, 8]
    told = [*events_so_far, events.Noted(1, "x"), decided, finished, support.settled(2, support.LATER, ()).event]
    for count in range(1, len(told) + 1):
        found = outline_stream(row(), [stored(seq, event) for seq, event in enumerate(told[:count], 1)], "log")
        assert (found.head, found.settled) == (count, settled[count - 1])
        assert found.targets == (frozenset({5}) if count == 6 else frozenset())


def test_an_outline_has_images_where_there_are_changes_and_outputs_in_order() -> None:
    later = support.settled(1, support.LATER, PUT)
    history = [stored(1, support.opened().event, PUT), stored(2, support.attempt(1).event), stored(3, later.event)]
    found = outline_stream(row(), history, "log")
    assert [(step.seq, step.root) for step in found.images] == [(1, support.opened().event.root)]  # type: ignore[union-attr]
    assert found.outputs == ((codec.content_id(support.OUTPUT), len(support.OUTPUT)),)


def test_an_output_that_names_nothing_is_damage() -> None:
    output = events.Output(1, 1, False, "zz")
    event = events.CallSettled(1, 1, 1, "finished", "l", "", None, output, "r", [])
    with pytest.raises(CorruptError, match="log: stream s seq 1: output names no blob"):
        outline_stream(row(), [stored(1, event)], "log")


@pytest.mark.parametrize(("outputs", "kept"), [(None, {A, B, C}), (0, set()), (1, {C}), (2, {B, C}), (9, {A, B, C})])
def test_outputs_of_all_calls_are_kept_or_those_of_the_newest(outputs: int | None, kept: set[ContentId]) -> None:
    assert keep_outputs(outline(outputs=((A, 1), (B, 1), (C, 1))), Policy(1, outputs)) == kept


def test_rule_L8_a_session_that_was_moved_away_keeps_all_so_that_its_bundle_can_come_again() -> None:
    moved = outline(images="abcd", outputs=((A, 1), (B, 1)), is_moved=True)
    assert points(moved, keep=1) == [1, 2, 3, 4]
    assert keep_outputs(moved, Policy(1, 0)) == {A, B}
    assert outline_stream(row(), [stored(1, events.SessionMoved(1, "d" * 64))], "log").is_moved


def test_contents_are_those_of_the_images_at_the_points() -> None:
    steps = [(Seq(1), b"x", A), (Seq(1), b"y", B), (Seq(3), b"x", C), (Seq(4), b"y", None), (Seq(4), b"z", D)]
    expected = {0: set(), 1: {A, B}, 2: {A, B}, 3: {B, C}, 4: {C, D}, 9: {C, D}}
    for seq, contents in expected.items():
        assert keep_contents(steps, [Seq(seq)]) == contents
    assert keep_contents(steps, [Seq(1), Seq(4)]) == {A, B, C, D}


STORED = frozenset({A, B, C, D, E})


def test_what_is_named_and_not_kept_is_given_up_and_what_nothing_names_with_it() -> None:
    given = choose_given_up(STORED, {}, frozenset({A, B}), frozenset({B}), takes_orphans=True)
    assert (given.contents, given.chunks, given.orphans) == ({A}, set(), {C, D, E})


def test_chunks_go_with_the_last_list_that_needs_them() -> None:
    lists = {A: (C, D), B: (D, E)}
    given = choose_given_up(STORED, lists, frozenset({A, B}), frozenset({B}), takes_orphans=True)
    assert (given.contents, given.chunks, given.orphans) == ({A}, {C}, set())


def test_a_content_that_is_a_chunk_of_a_kept_one_stays() -> None:
    given = choose_given_up(STORED, {B: (A, C)}, frozenset({A, B}), frozenset({B}), takes_orphans=True)
    assert (given.contents, given.chunks, given.orphans) == (set(), set(), {D, E})


def test_a_kept_content_that_is_a_chunk_of_a_given_up_one_stays() -> None:
    given = choose_given_up(STORED, {A: (B, C)}, frozenset({A, B}), frozenset({B}), takes_orphans=True)
    assert (given.contents, given.chunks) == ({A}, {C})


def test_without_orphans_what_nothing_names_stays_and_what_it_needs() -> None:
    given = choose_given_up(STORED, {A: (C, D), B: (D, E)}, frozenset({A}), frozenset(), takes_orphans=False)
    assert (given.contents, given.chunks, given.orphans) == ({A}, {C}, set())


def test_what_is_not_stored_is_not_given_up_again() -> None:
    given = choose_given_up(frozenset({B}), {}, frozenset({A, B}), frozenset({B}), takes_orphans=True)
    assert given.contents | given.chunks | given.orphans == set()


NAMES = st.frozensets(st.sampled_from([name(str(number)) for number in range(12)]))


@given(
    stored=NAMES,
    lists=st.dictionaries(st.sampled_from([name(str(number)) for number in range(6)]), NAMES.map(sorted), max_size=6),
    named=NAMES,
    kept=NAMES,
    takes_orphans=st.booleans(),
)
def test_whatever_is_kept_has_its_chunks_and_nothing_goes_twice(
    stored: frozenset[ContentId],
    lists: dict[ContentId, list[ContentId]],
    named: frozenset[ContentId],
    kept: frozenset[ContentId],
    takes_orphans: bool,
) -> None:
    # A list names no list, and is stored: what the writer sees to.
    lists = {one: [chunk for chunk in chunks if chunk not in lists] for one, chunks in lists.items() if one in stored}
    given = choose_given_up(stored, lists, named, kept & named, takes_orphans=takes_orphans)
    gone = given.contents | given.chunks | given.orphans
    assert gone <= stored and not gone & kept & named
    assert len(gone) == len(given.contents) + len(given.chunks) + len(given.orphans)
    for one in stored - gone:
        assert not gone & set(lists.get(one, ()))
    if takes_orphans:
        needed = {chunk for one in kept & named & stored for chunk in lists.get(one, ())}
        assert stored - gone == stored & ((kept & named) | needed)
