"""Two processes fill the staged trees of a large restore: dealt out purely, and killed at any instant of either, also while both work."""

import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog import steps
from eventlog.errors import CorruptError, RestoreIncompleteError
from recovery.space.marks.descendants import list_children
from recovery.workspace import dealing, staged
from recovery.workspace.actions import Action, MakeDirectory, PlaceDirectory, PlaceFile, RestorePlan, StageDirectory
from recovery.workspace.apply import apply_plan
from recovery.workspace.dealing import Part, Tree, cut_stretches, deal
from recovery.workspace.filler import ROLE
from tests.helpers import DEADLINE_SECS
from tests.recovery.workspace.support import QUARANTINE, Space, run_in_child
from tests.recovery.workspace.test_apply_crash import assert_converges
from tests.trees.generate import Node
from tests.trees.generate import Tree as NodeTree

WANTED: NodeTree = {
    b"": Node("d", mode=0o755),
    b"first": Node("d", mode=0o555, attribute=b"v", tick=2),
    b"first/a": Node("f", b"a", 0o640),
    b"first/deep": Node("d", mode=0o500),
    b"first/deep/f": Node("f", b"\0" * 8192 + b"end", 0o4755, b"v"),
    b"first/deep/l": Node("l", b"../../same", 0o777),
    b"first/name": Node("h", b"same"),
    b"first/p": Node("p", mode=0o640),
    b"same": Node("f", b"same"),
    b"second": Node("d", mode=0o2775, tick=1),
    b"second/g": Node("f", b"g", 0o600),
    b"second/h": Node("f", b"h", 0o444),
}
LEAST_FILES = 768
"""So many files of a byte are worth a second process."""
PRESENT: NodeTree = {b"": Node("d", mode=0o755), b"same": Node("f", b"same"), b"second": Node("f", b"in the way")}


def make_actions(*sizes: int) -> list[Action]:
    """Staged trees with a directory in each, and so many files of 1 byte in it as are named."""
    actions: list[Action] = []
    for number, size in enumerate(sizes):
        top = b"t%d" % number
        actions += [StageDirectory(top), MakeDirectory(top + b"/d")]
        actions += [PlaceFile(top + b"/d/%d" % file, b"c", 1, 0o644, 0, None) for file in range(size)]
        actions.append(PlaceDirectory(top))
    return actions


def flatten(stretches: list[Action | tuple[Tree, ...]]) -> list[Action]:
    """The actions of what was cut, one after another."""
    actions: list[Action] = []
    for one in stretches:
        for tree in one if isinstance(one, tuple) else ():
            actions += [tree.stage, *tree.directories, *tree.nodes, tree.place]
        actions += [] if isinstance(one, tuple) else [one]
    return actions


def count_nodes(half: list[Part]) -> int:
    return sum(len(nodes) for _, nodes in half)


@pytest.mark.parametrize("sizes", [(900,), (300, 300, 300), (10, 10), (3000, 2000, 10), (8,) * 100, (40,) * 100, (400, 400, 5000)])
def test_cutting_keeps_every_action_in_its_order(sizes: tuple[int, ...]) -> None:
    alone = MakeDirectory(b"x")
    actions = [alone, *make_actions(*sizes), PlaceFile(b"y", b"c", 1, 0o644, 0, None), *make_actions(*sizes)]
    stretches = list(cut_stretches(actions))
    assert flatten(stretches) == actions
    for one in stretches:
        if isinstance(one, tuple):
            assert sum(len(tree.nodes) for tree in one) >= LEAST_FILES
            assert len(one) == 1 or sum(2 + len(tree.nodes) for tree in one) <= staged.MOST_NODES
            assert len(one) <= dealing.MOST_TREES


def test_a_small_plan_is_the_work_of_one_process() -> None:
    small = make_actions(LEAST_FILES - 1)
    assert not any(isinstance(one, tuple) for one in cut_stretches(small))
    assert any(isinstance(one, tuple) for one in cut_stretches(make_actions(LEAST_FILES)))


def test_a_stretch_is_no_larger_than_the_largest_staged_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "LEAST_WORK", 2)
    monkeypatch.setattr(dealing, "MOST_BYTES", 4)
    assert [len(one) for one in cut_stretches(make_actions(2, 2, 2, 2)) if isinstance(one, tuple)] == [2, 2]


@pytest.mark.parametrize("sizes", [(300,), (299, 1), (1, 299), (100, 7, 193), (1, 1)])
def test_halves_are_all_of_it_in_order_and_alike(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "LEAST_WORK", 2)
    [trees] = cut_stretches(make_actions(*sizes))
    assert isinstance(trees, tuple)
    first, second = deal(trees)
    assert [node for _, nodes in (*first, *second) for node in nodes] == [node for tree in trees for node in tree.nodes]
    assert all(set(nodes) <= set(trees[number].nodes) for number, nodes in (*first, *second))
    assert 0 <= count_nodes(first) - count_nodes(second) <= 1


def test_bytes_count_where_files_are_not_alike() -> None:
    large = PlaceFile(b"t/0", b"c", 1 << 24, 0o644, 0, None)
    small = tuple(PlaceFile(b"t/%d" % number, b"c", 1, 0o644, 0, None) for number in range(1, 300))
    first, second = deal([Tree(StageDirectory(b"t"), (), (large, *small), PlaceDirectory(b"t"))])
    assert first == [(0, (large,))] and second == [(0, small)]


def begin(base: Path) -> tuple[Space, RestorePlan, Callable[[], None]]:
    """A workspace that is to be restored, the plan, and the check that it came to its end."""
    base.mkdir(exist_ok=True)
    space = Space(str(base))
    space.replace_tree(WANTED)
    target = space.snapshot()
    space.replace_tree(PRESENT)
    found = space.scan()
    return space, space.plan(target), lambda: assert_converges(space, target, found)


def apply_shared(space: Space, plan: RestorePlan) -> tuple[bytes, ...]:
    """Apply with two processes; the paths that are told as made."""
    pack = space.lay_pack(plan)
    applied = apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack, is_shared=True)
    return tuple(one.path for one in applied.made)


class Watcher:
    """Does `act` at the pass number `instant` of the process with the role `role` ("": the worker's)."""

    def __init__(self, role: str, instant: int, act: Callable[[], None]) -> None:
        self.role, self.left, self.act = role, instant, act

    def pass_step(self, step: str) -> None:
        if step.startswith(ROLE) == (self.role == ROLE):
            self.count()

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def stand(pipe: int) -> None:
    """Stay here until something comes out of a pipe into which nobody writes."""
    os.read(pipe, 1)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes work on however little there is."""
    monkeypatch.setattr(dealing, "LEAST_WORK", 2)


@pytest.mark.usefixtures("shared")
def test_two_processes_make_what_one_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.workspace.apply.trusted_before", lambda _: 1 << 62)
    space, plan, check = begin(tmp_path)
    roles = tmp_path / "roles"

    class Note:
        def pass_step(self, step: str) -> None:
            with roles.open("a") as out:
                print(step.partition("@")[0], os.getpid(), file=out)

    steps.install(Note())
    try:
        made = apply_shared(space, plan)
    finally:
        steps.install(None)
    assert made == (b"first/a", b"second/g", b"second/h")
    assert len({line for line in roles.read_text().splitlines() if line.startswith(ROLE)}) == 1, "one filler for both trees"
    check()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("audit", [False, True], ids=["steps", "calls"])
@pytest.mark.parametrize("role", ["", ROLE], ids=["worker", "filler"])
def test_rule_R1_a_shared_restore_killed_at_every_instant_of_either_process_converges(quick_path: Path, role: str, audit: bool) -> None:
    """A killed worker takes its filler with it; a worker whose filler was killed says so, and has placed nothing of that stretch."""
    instant, killed = 0, True
    while killed:
        instant += 1
        space, plan, check = begin(quick_path / str(instant))
        reading, writing = os.pipe()

        def work(space: Space = space, plan: RestorePlan = plan, reading: int = reading, instant: int = instant) -> None:
            os.close(reading)
            watcher = Watcher(role, instant, kill_self)
            steps.install(watcher)
            if audit:
                worker = os.getpid()
                sys.addaudithook(lambda name, _: watcher.count() if (os.getpid() == worker) != (role == ROLE) else None)
            try:
                apply_shared(space, plan)
            except RestoreIncompleteError as error:
                assert "ended with -9" in str(error), error
                os._exit(3)
            os._exit(0)

        status = run_in_child(work)
        os.close(writing)
        with open(reading, "rb") as pipe:
            pipe.read()  # until neither process lives, as whoever is about to restore proves first (I7)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL or os.waitstatus_to_exitcode(status) in (0, 3)
        killed = os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 3
        assert not killed or os.WIFSIGNALED(status) == (role == "")
        if role == ROLE and killed:
            assert os.listdir(space.root) == ["same"], "nothing of a stretch is placed before all of it is done"
        check()
    assert instant > {("", False): 30, ("", True): 80, (ROLE, False): 8, (ROLE, True): 20}[role, audit], "the kills do not reach the work"


@pytest.mark.usefixtures("shared")
def test_where_no_process_is_to_be_had_one_makes_all(tmp_path: Path) -> None:
    """As under a limit of processes: what a restore needs is the room, not a helper."""
    space, plan, check = begin(tmp_path)

    def refuse(name: str, _: tuple[object, ...]) -> None:
        if name == "os.fork":
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def work() -> None:
        before = len(os.listdir("/proc/self/fd"))
        sys.addaudithook(refuse)
        apply_shared(space, plan)
        os._exit(0 if len(os.listdir("/proc/self/fd")) == before else 4)

    assert os.waitstatus_to_exitcode(run_in_child(work)) == 0
    assert sorted(os.listdir(os.path.join(space.root, "second"))) == ["g", "h"]
    check()


@pytest.mark.usefixtures("shared")
def test_what_stops_the_filler_stops_the_restore_by_name(space: Space) -> None:
    children = list_children(os.getpid())
    space.replace_tree(WANTED)
    target = space.snapshot()
    space.replace_tree(PRESENT)
    plan = space.plan(target)
    pack = space.lay_pack(plan)
    with open(pack, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")  # the last content is of the second half
    with pytest.raises(CorruptError, match="second/h"):
        apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack, is_shared=True)
    assert list_children(os.getpid()) == children, "the filler has ended and is reaped"
    assert space.restore(target).restored > 0 and space.scan() == target


@pytest.mark.usefixtures("shared")
def test_a_worker_that_fails_leaves_no_filler_behind(space: Space) -> None:
    """The filler stands at a step and would stand there for ever."""
    children = list_children(os.getpid())
    space.replace_tree(WANTED)
    target = space.snapshot()
    space.replace_tree(PRESENT)
    plan = space.plan(target)
    pack = space.lay_pack(plan)
    with open(pack, "r+b") as file:
        file.write(b"?")  # the first content is of the first half
    reading, writing = os.pipe()
    steps.install(Watcher(ROLE, 2, lambda: stand(reading)))
    try:
        with pytest.raises(CorruptError, match="first/a"):
            apply_plan(plan, root=space.root, side=space.side, quarantine_directory=QUARANTINE, pack=pack, is_shared=True)
    finally:
        steps.install(None)
        os.close(reading)
        os.close(writing)
    assert list_children(os.getpid()) == children, "the filler has ended and is reaped"
    assert space.restore(target).restored > 0 and space.scan() == target


@pytest.mark.usefixtures("shared")
def test_rule_S6_a_filler_dies_with_its_worker(tmp_path: Path) -> None:
    """The filler stands at a step for ever and says so first; then its worker is killed."""
    space, plan, check = begin(tmp_path)
    never, held = os.pipe()
    reading, writing = os.pipe()

    def tell_and_stand() -> None:
        os.write(writing, b"!")
        stand(never)

    worker = os.fork()
    if worker == 0:
        try:
            steps.install(Watcher(ROLE, 2, tell_and_stand))
            apply_shared(space, plan)
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"!"
    os.kill(worker, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == signal.SIGKILL
    ready, _, _ = select.select([reading], [], [], DEADLINE_SECS)
    assert ready, f"the filler still lives {DEADLINE_SECS:.0f} s after its worker was killed"
    assert os.read(reading, 1) == b""
    for descriptor in (never, held, reading):
        os.close(descriptor)
    check()
