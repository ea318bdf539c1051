"""What session files say of modes, when a checkpoint is taken, what the log's events make of it. Nothing is run."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eventlog import events
from eventlog.errors import CorruptError, MisuseError
from eventlog.image import Entry, put_change, root_hash
from recovery.checkpoints.frequency import Since, should_take
from recovery.command_checkpoints import list_kept
from recovery.limits import DEFAULT_LIMITS, Measured, find_crossing, measure, measure_image
from recovery.script import BashCall, WriteCall
from recovery.session_file import load_session
from recovery.state import SessionState, fold_stream
from recovery.workspace.profile import Profile
from tests.recovery.histories import EMPTY, ROOT, History

CALL = '[[call]]\ntool = "bash"\nrun = "true"\n'
EXAMPLES = Path(__file__).resolve().parents[2] / "scenarios" / "examples"


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "s.toml"
    path.write_text(f'name = "n"\nworkspace = "w"\nstate = "s"\n{text}\n{CALL}')
    return load_session(path)


@pytest.mark.parametrize("name", ["nightly", "checkpoint", "auto", "limits"])
def test_the_examples_are_sessions(name: str) -> None:
    session = load_session(EXAMPLES / f"{name}.toml")
    assert session.mode == {"checkpoint": "checkpoint", "auto": "auto"}.get(name, "transactional")


def test_a_session_file_says_mode_store_bound_limits_and_policies(tmp_path: Path) -> None:
    session = load_session(EXAMPLES / "checkpoint.toml")
    assert (session.store, session.lost_work_bound) == (str(EXAMPLES / "checkpoints"), 2)
    assert [call.policy for call in session.calls] == ["safe", "safe"]
    assert isinstance(session.calls[0], BashCall) and isinstance(session.calls[1], WriteCall)
    assert load_session(EXAMPLES / "limits.toml").limits == events.Limits(None, 1000, None)
    auto = load(tmp_path, 'mode = "auto"')
    assert getattr(auto, "limits", None) == DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('mode = "sometimes"', "unknown mode"), ('store = "x"', "add mode"), ("lost_work_bound = 1", "add mode"),
        ('mode = "checkpoint"\nlost_work_bound = -1', "lost_work_bound must be"), ('mode = "checkpoint"\nstore = ""', "store must name"),
        ('mode = "checkpoint"\nlimits = { paths = 1 }', "leave them out"), ("limits = { files = 1 }", "limits must be a table"),
        ("limits = { paths = 0 }", "above 0"),
        ('replay = { make = "safe" }', "replay must be"), ('replay = { bash = "often" }', "unknown policy"),
    ],
)  # fmt: skip
def test_a_mistake_in_them_is_one_sentence(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(MisuseError, match=found):
        load(tmp_path, text)


def test_sizes_are_logical_and_asked_without_reading(tmp_path: Path) -> None:
    """Case 6: a file of 4 GiB with nothing in it counts 4 GiB; its blocks are never looked at."""
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(4 << 30)
    (tmp_path / "sparse").chmod(0)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "small").write_text("12345")
    (tmp_path / "d" / "again").hardlink_to(tmp_path / "d" / "small")
    (tmp_path / "left.o").write_text("x" * 100)
    assert measure(str(tmp_path), Profile(("*.o",))) == Measured((4 << 30) + 5, 5, b"sparse", 4 << 30)
    (tmp_path / "sparse").chmod(0o600)


def test_a_limit_is_crossed_above_it_and_named() -> None:
    sizes = Measured(100, 10, b"a", 60)
    assert find_crossing(sizes, None) == "" == find_crossing(sizes, events.Limits(100, 10, 60))
    assert find_crossing(sizes, events.Limits(99, None, None)) == "the workspace has 100 bytes, above the limit of 99"
    assert find_crossing(sizes, events.Limits(None, 9, None)) == "the workspace has 10 paths, above the limit of 9"
    assert find_crossing(sizes, events.Limits(None, None, 59)) == "a has 60 bytes, above the limit of 59 for a file"
    image = {b"": ROOT, b"a": Entry("f", 0o644, b"c" * 32, 60, link=b"a"), b"b": Entry("f", 0o644, b"c" * 32, 60, link=b"a")}
    assert measure_image(image) == Measured(60, 3, b"a", 60)


def count(costs: list[int], bound: int, cost_ms: int) -> tuple[int, int]:
    """Checkpoints taken over calls of these costs, and the most finished calls that were ever without one."""
    taken = most = calls = work = 0
    for cost in costs:
        calls, work = calls + 1, work + cost
        if should_take(Since(calls, work), bound, cost_ms):
            taken, calls, work = taken + 1, 0, 0
        most = max(most, calls)
    return taken, most


PAIRS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=60)


@given(PAIRS, st.integers(0, 10), st.integers(0, 5000))
def test_rule_C7_dearer_calls_never_have_fewer_checkpoints(pairs: list[tuple[int, int]], bound: int, cost_ms: int) -> None:
    cheap, dear = [one for one, _ in pairs], [one + more for one, more in pairs]
    assert count(dear, bound, cost_ms)[0] >= count(cheap, bound, cost_ms)[0]


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(0, 10), st.integers(0, 5000))
def test_rule_C7_never_are_more_finished_calls_without_a_checkpoint_than_the_bound(costs: list[int], bound: int, cost_ms: int) -> None:
    assert count(costs, bound, cost_ms)[1] <= bound


def test_a_bound_of_0_takes_one_with_every_call_and_an_outside_change_always_has_one() -> None:
    assert count([0] * 5, 0, 10**9) == (5, 0)
    assert count([1] * 10, 3, 10**9) == (2, 3)
    assert should_take(Since(0, 0, is_outside=True), 9, 10**9) and not should_take(Since(0, 0), 9, 10**9)


def with_checkpoints(mode: events.Mode = "checkpoint", manifest: str = "a" * 64, bound: int = 1) -> History:
    history = History(4)
    first = history.stored[0]
    assert isinstance(first.event, events.SessionOpened)
    opened = replace(first.event, mode=mode, checkpoints=events.Checkpoints("/store", bound, manifest))
    history.stored[0] = replace(first, event=opened)
    return history


def changed(history: History, name: str) -> str:
    """A finished call that makes a file; the root then."""
    history.attempt()
    entry = Entry("f", 0o644, name.encode().ljust(32, b"."), 1)
    image = {**history.state().image, name.encode(): entry}
    root = root_hash(dict(sorted(image.items()))).hex()
    history.settle(changes=(put_change(name.encode(), entry),), root=root)
    return root


def test_the_log_says_which_checkpoints_there_are_and_which_calls_have_none() -> None:
    history = with_checkpoints()
    root = changed(history, "a")
    history.add(events.CheckpointTaken(0, "b" * 64, root, 7))
    changed(history, "b")
    state = history.state()
    assert (state.mode, state.modes.bound, state.modes.store) == ("checkpoint", 1, b"/store")
    assert [(one.seq, one.manifest, one.took_ms) for one in state.modes.list_taken()] == [(5, "b" * 64, 7), (1, "a" * 64, 0)]
    assert [call.number for call in state.unsaved_calls] == [2]


def test_what_may_be_collected_is_never_the_head_image_s_nor_a_restore_s_target() -> None:
    history = with_checkpoints()
    for name in "abc":
        history.add(events.CheckpointTaken(0, name * 64, changed(history, name), 1))
    assert list_kept(history.state(), 1) == ["c" * 64]
    assert list_kept(history.state(), 2) == ["b" * 64, "c" * 64]
    history.decide("restore_by_person", obligation=True, call=None)
    assert list_kept(history.state(), 1) == ["a" * 64, "c" * 64], "the first image is the target"
    history.finish_restore()
    assert list_kept(history.state(), 1) == ["a" * 64, "c" * 64], "it is the head image"


DAMAGE = {
    "of another image": ("checkpoint", events.CheckpointTaken(0, "b" * 64, "c" * 64, 1), "another image"),
    "in mode transactional": ("transactional", events.CheckpointTaken(0, "b" * 64, EMPTY, 1), "in mode transactional"),
    "before the switch": ("auto", events.CheckpointTaken(0, "b" * 64, EMPTY, 1), "in mode auto"),
    "a second switch": ("checkpoint", events.ModeSwitched(0, "checkpoint", "why", "b" * 64), "mode checkpoint switched"),
    "a switch on nothing": ("auto", events.ModeSwitched(0, "checkpoint", "why", ""), "mode auto switched"),
    "a switch back": ("auto", events.ModeSwitched(0, "transactional", "why", "b" * 64), "switched to transactional"),
    "a replay of no call": ("checkpoint", events.CallReplayed(0, 1, 2, EMPTY), "call 1 is replayed"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_no_driver_writes_of_checkpoints_is_damage(case: str) -> None:
    mode, event, found = DAMAGE[case]
    history = History() if mode == "transactional" else with_checkpoints(mode)  # type: ignore[arg-type]
    history.add(event)  # type: ignore[arg-type]
    with pytest.raises(CorruptError, match=found):
        history.state()


def test_a_mode_with_checkpoints_and_no_store_is_damage() -> None:
    history = with_checkpoints()
    first = history.stored[0]
    assert isinstance(first.event, events.SessionOpened)
    history.stored[0] = replace(first, event=replace(first.event, checkpoints=None))
    with pytest.raises(CorruptError, match="names no checkpoint store"):
        fold_stream(history.stored, "log")


def test_a_switched_session_is_in_mode_checkpoint_for_good() -> None:
    history = with_checkpoints("auto", manifest="")
    root = changed(history, "a")
    history.add(events.ModeSwitched(0, "checkpoint", "too large", "b" * 64))
    history.add(events.CheckpointTaken(0, "b" * 64, root, 1))
    state: SessionState = history.state()
    assert state.opened.mode == "auto" and state.mode == "checkpoint" and state.unsaved_calls == ()
