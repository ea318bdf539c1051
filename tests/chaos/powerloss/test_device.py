"""The device model: what of a run may be on disk after a cut, held against what a sync promises, for any run."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.powerloss.device import (
    DROPPED,
    JOURNALLED,
    KEPT,
    ROOT,
    STRICT,
    ZEROED,
    Choice,
    Cut,
    Entry,
    Fate,
    Names,
    Operation,
    Resize,
    State,
    Sync,
    SyncAll,
    Traits,
    Write,
    build,
    choose,
    cut_after,
)

EXAMPLES = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
A, B = 1, 2
DIRECTORY = 3
BEGINNING: tuple[Operation, ...] = (Names((Entry(ROOT, "a", A),)), Names((Entry(ROOT, "b", B),)), SyncAll(2))
"""Both files have a name that nobody takes away."""
IS_DIRECTORY = {A: False, B: False, DIRECTORY: True}
TRAITS = st.builds(
    Traits,
    reorders=st.booleans(),
    grains=st.sampled_from([(), (512,), (512, 4096)]),
    zeroes=st.booleans(),
    orders_names=st.booleans(),
    syncs_name=st.booleans(),
)


def make_operation(number: int, what: int, file: int, directory: int, size: int, back: int) -> Operation:
    """One operation of a run from five small numbers."""
    begun = max(len(BEGINNING), number - back)
    made: tuple[Operation, ...] = (
        Write(file, size * 100, bytes([number + 1]) * (1 + 300 * back)),
        Write(file, size * 300, bytes([number + 1]) * 1500),
        Resize(file, size * 200),
        Names((Entry(directory, "xyz"[back % 3], file),)),
        Names((Entry(ROOT, "x", None), Entry(directory, "w", file))),
        Names((Entry(ROOT, "below", DIRECTORY),)),
        Sync((A, B, ROOT, DIRECTORY)[size % 4], begun),
        SyncAll(begun),
    )
    return made[what]


def runs() -> st.SearchStrategy[list[Operation]]:
    """Writes, sizes, names and syncs of two files in two directories; a sync begins at most three operations before it ends."""
    places = st.sampled_from((ROOT, DIRECTORY))
    numbers = st.tuples(st.integers(0, 7), st.sampled_from((A, B)), places, st.integers(0, 4), st.integers(0, 3))
    rows = st.lists(numbers, min_size=1, max_size=12)
    return rows.map(lambda found: [*BEGINNING, *(make_operation(number, *row) for number, row in enumerate(found, len(BEGINNING)))])


def states_of(operations: list[Operation], count: int, traits: Traits, seed: int = 1) -> list[tuple[Cut, Choice, State]]:
    cut = cut_after(operations, count, traits)
    return [(cut, choice, build(cut, choice)) for choice in choose(cut, traits, random.Random(seed), 4)]


def everything_kept(operations: list[Operation], count: int, traits: Traits) -> State:
    cut = cut_after(operations, count, traits)
    return build(cut, (KEPT,) * len(cut.pending))


@EXAMPLES
@given(runs(), TRAITS)
def test_after_a_sync_of_everything_there_is_one_state(operations: list[Operation], traits: Traits) -> None:
    synced = [*operations, SyncAll(len(operations))]
    states = [state for _, _, state in states_of(synced, len(synced), traits)]
    assert states == [everything_kept(operations, len(operations), traits)]


@EXAMPLES
@given(runs(), TRAITS, st.data())
def test_a_synced_write_is_in_every_state(operations: list[Operation], traits: Traits, data: st.DataObject) -> None:
    """The last write of a file, synced, and nothing after it: its bytes are there, whatever became of all else."""
    file = data.draw(st.sampled_from((A, B)))
    write = Write(file, 700, b"\xff" * 600)
    run = [*operations, write, Sync(file, len(operations) + 1)]
    for _, _, state in states_of(run, len(run), traits):
        assert state.files[file][700:1300] == write.data


@EXAMPLES
@given(runs(), TRAITS, st.data())
def test_a_synced_name_is_in_every_state(operations: list[Operation], traits: Traits, data: st.DataObject) -> None:
    directory = data.draw(st.sampled_from((ROOT, DIRECTORY)))
    run = [*operations, Names((Entry(directory, "kept", A),)), Sync(directory, len(operations) + 1)]
    for _, _, state in states_of(run, len(run), traits):
        assert state.directories[directory]["kept"] == A


@EXAMPLES
@given(runs(), TRAITS, st.data())
def test_what_was_not_issued_is_in_no_state(operations: list[Operation], traits: Traits, data: st.DataObject) -> None:
    count = data.draw(st.integers(len(BEGINNING), len(operations)))
    for _, _, state in states_of([*operations[:count], Write(A, 0, b"\xfe" * 8000), Names((Entry(ROOT, "never", A),))], count, traits):
        assert b"\xfe" not in state.files.get(A, b"") and "never" not in state.directories[ROOT]


@EXAMPLES
@given(runs(), TRAITS)
def test_a_sync_covers_only_what_was_issued_when_it_began(operations: list[Operation], traits: Traits) -> None:
    """A write that came while the sync was under way may be lost."""
    begun = len(operations)
    run = [*operations, Write(A, 5000, b"\xff" * 10), Sync(A, begun)]
    assert any(b"\xff" not in state.files.get(A, b"") for _, _, state in states_of(run, len(run), traits))


@EXAMPLES
@given(runs(), TRAITS)
def test_every_byte_of_a_file_was_written_there_or_is_zero(operations: list[Operation], traits: Traits) -> None:
    written = {A: {0}, B: {0}}
    for one in operations:
        if isinstance(one, Write):
            written[one.file].update(one.data)
    for _, _, state in states_of(operations, len(operations), traits):
        assert all(set(content) <= written[file] for file, content in state.files.items())


@EXAMPLES
@given(runs(), TRAITS)
def test_the_first_choice_keeps_everything_and_one_loses_everything(operations: list[Operation], traits: Traits) -> None:
    states = states_of(operations, len(operations), traits)
    cut, first, state = states[0]
    assert first == (KEPT,) * len(cut.pending) and state == everything_kept(operations, len(operations), traits)
    settled = [operations[number] for number in cut.settled]
    assert any(build(cut, choice) == everything_kept(settled, len(settled), traits) for _, choice, _ in states)


@EXAMPLES
@given(runs())
def test_all_prefixes_and_single_omissions_are_there(operations: list[Operation]) -> None:
    states = states_of(operations, len(operations), STRICT)
    count = len(states[0][0].pending)
    choices = {choice for _, choice, _ in states}
    for number in range(count + 1):
        assert (KEPT,) * number + (DROPPED,) * (count - number) in choices
    for number in range(count):
        assert (*(KEPT,) * number, DROPPED, *(KEPT,) * (count - number - 1)) in choices


@EXAMPLES
@given(runs(), TRAITS)
def test_no_fate_is_chosen_that_the_traits_rule_out(operations: list[Operation], traits: Traits) -> None:
    for cut, choice, _ in states_of(operations, len(operations), traits):
        pending = [(cut.operations[number], fate) for number, fate in zip(cut.pending, choice, strict=True)]
        fates = [fate for _, fate in pending]
        names = [fate for one, fate in pending if isinstance(one, Names)]
        data = [fate for one, fate in pending if not isinstance(one, Names)]
        assert traits.zeroes or ZEROED not in fates
        assert all(any(fate.at % grain == 0 for grain in traits.grains) for fate in fates if fate.kind in ("head", "tail"))
        assert not traits.orders_names or DROPPED not in names or set(names[names.index(DROPPED) :]) == {DROPPED}
        assert traits.reorders or all(fate in (KEPT, DROPPED) for fate in data) or "tail" not in {fate.kind for fate in data}


@EXAMPLES
@given(runs(), st.integers(0, 100))
def test_the_same_seed_chooses_the_same(operations: list[Operation], seed: int) -> None:
    one, other = (states_of(operations, len(operations), STRICT, seed) for _ in "12")
    assert [choice for _, choice, _ in one] == [choice for _, choice, _ in other]


def test_a_rename_is_there_whole_or_not_at_all() -> None:
    run: list[Operation] = [Names((Entry(ROOT, "new", A),)), SyncAll(1), Names((Entry(ROOT, "new", None), Entry(ROOT, "name", A)))]
    found = {tuple(sorted(state.directories[ROOT])) for _, _, state in states_of(run, len(run), STRICT)}
    assert found == {("new",), ("name",)}


def test_a_write_may_be_torn_at_each_grain_and_its_size_be_there_without_its_data() -> None:
    run: list[Operation] = [Write(A, 0, b"\1" * 8192)]
    contents = {state.files.get(A, b"") for _, _, state in states_of(run, 1, STRICT)}
    assert {b"", b"\1" * 8192, bytes(8192), b"\1" * 512, b"\1" * 4096, bytes(4096) + b"\1" * 4096} <= contents
    journalled = {state.files.get(A, b"") for _, _, state in states_of(run, 1, JOURNALLED)}
    assert b"\1" * 512 not in journalled and bytes(8192) not in journalled


def test_a_name_may_be_lost_though_the_file_was_synced_but_for_a_journal() -> None:
    run: list[Operation] = [Names((Entry(ROOT, "a", A),)), Write(A, 0, b"text"), Sync(A, 2)]
    assert any("a" not in state.directories[ROOT] for _, _, state in states_of(run, 3, STRICT))
    assert all("a" in state.directories[ROOT] for _, _, state in states_of(run, 3, JOURNALLED))


def test_what_lies_in_a_directory_whose_name_is_lost_cannot_be_reached() -> None:
    run: list[Operation] = [Names((Entry(ROOT, "below", DIRECTORY),)), Names((Entry(DIRECTORY, "a", A),)), Sync(DIRECTORY, 2)]
    paths = [tuple(state.list_paths(IS_DIRECTORY)) for _, _, state in states_of(run, 3, STRICT)]
    assert set(paths) == {(), ("below", "below/a")}


def test_fates_apply_in_the_order_of_the_operations() -> None:
    run: list[Operation] = [Write(A, 0, b"\1" * 1024), Write(A, 0, b"\2" * 1024)]
    cut = cut_after(run, 2, STRICT)
    assert build(cut, (KEPT, Fate("head", 512))).files[A] == b"\2" * 512 + b"\1" * 512
    assert build(cut, (Fate("tail", 512), DROPPED)).files[A] == bytes(512) + b"\1" * 512


def test_what_was_written_in_a_file_without_a_name_is_not_pending() -> None:
    run: list[Operation] = [Names((Entry(ROOT, "a", A),)), Write(A, 0, b"text"), Names((Entry(ROOT, "a", None),)), Sync(ROOT, 3)]
    assert cut_after(run, 3, STRICT).pending == (0, 1, 2)
    assert cut_after(run, 4, STRICT).pending == ()
