"""Shims that are used again: who owns which command, what is told when, what becomes of one that dies, stops or is superseded."""

import os
import signal
from collections.abc import Iterator

import msgspec
import pytest

from eventlog.errors import LostProcessError
from eventlog.events import Exit
from eventlog.process_identity import identify, identify_self, is_alive
from recovery.space.ledger import append_fenced, read_end
from recovery.space.listing import AttemptWord, word_of
from recovery.space.marks import KINDS, MarkKind, find_cgroup_base
from recovery.space.marks.choose import explain_mark
from recovery.space.records import Exited, Prepare, Start
from tests.helpers import is_running, kill_process, wait_until
from tests.recovery.space.spaces import HOST, LooseSpace, open_space

MARKS = [pytest.param("cgroup", marks=pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here")), "environment"]
WAITS = 'echo $$ > "$BASE/pid"; until [ -e "$BASE/gate" ]; do sleep 0.01; done'


@pytest.fixture(params=MARKS)
def space(request: pytest.FixtureRequest) -> Iterator[LooseSpace]:
    with open_space(request.param) as made:
        yield made


def command_of(space: LooseSpace) -> int:
    """The pid of the command that WAITS."""
    place = space.base / "pid"
    return int(wait_until(lambda: place.exists() and place.read_text().strip(), "the command's start"))


def owners(space: LooseSpace) -> list[int]:
    """The pids of the shims of all attempts, in their order."""
    return [attempt.start.identity.pid for attempt in space.ledger.state.attempts.values() if attempt.start is not None]


def test_an_idle_shim_is_used_again_and_each_command_has_a_mark_of_its_own(space: LooseSpace) -> None:
    ends = [space.run(f"echo {number}; exit {number}") for number in range(3)]
    assert [end.exit.code for end in ends] == [0, 1, 2]
    assert [space.output(end)[0] for end in ends] == [b"0\n", b"1\n", b"2\n"], "nobody's output is another's"
    assert len(set(owners(space))) == 1
    marks = [attempt.prepared.mark for attempt in space.ledger.state.attempts.values()]
    own = {attempt.start.mark for attempt in space.ledger.state.attempts.values() if attempt.start}
    assert len(set(marks)) == 3 and not own & set(marks)


def test_a_busy_shim_is_left_alone_and_another_is_forked(space: LooseSpace) -> None:
    waiting = space.request(WAITS)
    first = space.start(waiting)
    command_of(space)
    assert space.run("exit 5").exit == Exit("exited", code=5)
    (space.base / "gate").touch()
    assert space.space.wait_command(waiting.key, first).exit == Exit("exited", code=0)
    assert len(set(owners(space))) == 2


@pytest.mark.parametrize("mark", [kind for kind in KINDS if kind not in ("cgroup", "environment")])
def test_a_shim_that_joined_its_mark_for_good_owns_one_command(mark: MarkKind) -> None:
    """And says so with its end: the next command is not sent to one that is just ending."""
    reason = explain_mark(mark)
    if reason:
        pytest.skip(f"{mark}: {reason}")
    with open_space(mark) as space:
        assert [space.run(f"exit {number}").exit.code for number in range(4)] == [0, 1, 2, 3]
        assert len(set(owners(space))) == 4


def test_a_shim_that_died_idle_is_replaced(space: LooseSpace) -> None:
    space.run("true")
    kill_process(owners(space)[0])
    assert space.run("exit 4").exit == Exit("exited", code=4)
    assert len(set(owners(space))) == 2


def test_rule_S7_a_shim_that_is_lost_with_its_command_halts_and_its_command_is_dead(space: LooseSpace) -> None:
    """Lost is told from exited and from never started: a starting mark without an exit."""
    waiting = space.request(WAITS)
    shim = space.start(waiting)
    command = command_of(space)
    kill_process(shim.pid)
    with pytest.raises(LostProcessError, match="ended without an exit record"):
        space.space.wait_command(waiting.key, shim)
    wait_until(lambda: not is_running(command), "the death of the command with its shim")
    attempt = space.ledger.state.attempts[waiting.key]
    assert attempt.start is not None and attempt.exit is None


def test_a_shim_that_is_superseded_ends_after_its_command(space: LooseSpace) -> None:
    """Its exit is recorded, and it owns no other command: a mark is never used by two epochs (S8)."""
    waiting = space.request(WAITS)
    shim = space.start(waiting)
    command_of(space)
    space.advance(**{waiting.key: "claimed"})
    (space.base / "gate").touch()
    wait_until(lambda: not is_running(shim.pid), "the end of the claimed shim")
    space.ledger.refresh()
    attempt = space.ledger.state.attempts[waiting.key]
    assert attempt.exit is not None and attempt.exit.exit == Exit("exited", code=0) and not attempt.cut


def test_case_33_what_a_takeover_cut_is_cut_whatever_its_exit_says(space: LooseSpace) -> None:
    """Condemned before its exit is recorded: no code, signal or 0 that is recorded after makes it an outcome."""
    waiting = space.request(WAITS)
    shim = space.start(waiting)
    command_of(space)
    space.advance(**{waiting.key: "condemned"})
    (space.base / "gate").touch()
    wait_until(lambda: not is_running(shim.pid), "the end of the condemned shim, which nobody killed here")
    space.ledger.refresh()
    attempt = space.ledger.state.attempts[waiting.key]
    assert attempt.exit is not None and attempt.exit.exit == Exit("exited", code=0)
    assert (attempt.cut, word_of(attempt, False), attempt.condemned_by) == (True, AttemptWord.CUT, 2)


def test_rule_S4_an_idle_shim_of_an_older_epoch_starts_nothing(space: LooseSpace) -> None:
    space.run("true")
    request = space.request('touch "$BASE/late"')
    mark = space.space.mark("late")
    append_fenced(space.ledger, space.epoch, Prepare(request.key, "command", space.epoch, 9, 1, "", mark, None, 0, ""))
    space.advance(**{request.key: "condemned"})
    shim = space.space.start_command(request, mark)
    wait_until(lambda: not is_running(shim.pid), "the end of the superseded shim")
    space.ledger.refresh()
    assert space.ledger.state.attempts[request.key].start is None and not (space.base / "late").exists()


def test_a_shim_whose_driver_is_gone_records_the_exit_and_ends(space: LooseSpace) -> None:
    waiting = space.request(f"{WAITS}; echo end; exit 6")
    shim = space.start(waiting)
    command_of(space)
    list(space.space._shims.close())
    (space.base / "gate").touch()
    wait_until(lambda: not is_running(shim.pid), "the end of the shim")
    exited = space.space.wait_command(waiting.key, shim)
    assert (exited.exit, space.output(exited)[0]) == (Exit("exited", code=6), b"end\n")


def test_the_spawner_takes_no_shim_and_no_record_with_it(space: LooseSpace) -> None:
    """Killed while a shim runs: the command goes on, its exit is recorded and told."""
    waiting = space.request(f"{WAITS}; exit 8")
    shim = space.start(waiting)
    command_of(space)
    kill_process(space.space._helpers[0].pid)
    (space.base / "gate").touch()
    assert space.space.wait_command(waiting.key, shim).exit == Exit("exited", code=8)


@pytest.mark.parametrize("ignored", ["", "trap '' TERM; "])
def test_rule_S5_a_limit_holds_for_a_command_that_stopped_itself(space: LooseSpace, ignored: str) -> None:
    stopped = space.run(f"{ignored}kill -STOP $$", timeout_secs=0.3)
    assert stopped.exit == Exit("timed_out", signal=signal.SIGKILL)


def test_case_29_identity_holds_from_the_first_moment_whatever_the_name_is(space: LooseSpace) -> None:
    """Read right after the start, while names are still the parent's, through exec and a change of name: pid and start time are the same
    as later, and who has them is alive; the ledger's identities hold no name at all."""
    renames = "exec -a renamed bash -c 'printf other > /proc/$$/comm; until [ -e \"$BASE/gate\" ]; do sleep 0.01; done'"
    for number in range(20):
        (space.base / "gate").unlink(missing_ok=True)
        request = space.request(renames)
        shim = space.start(request)
        assert is_alive(shim, HOST) and identify(shim.pid, HOST) == shim, f"start {number}"
        (space.base / "gate").touch()
        assert space.space.wait_command(request.key, shim).exit == Exit("exited", code=0)
        assert space.ledger.state.attempts[request.key].start.identity == shim  # type: ignore[union-attr]
    assert b"renamed" not in open(space.paths.ledger, "rb").read() and os.getpid() not in owners(space)


def test_an_exit_whose_shim_was_killed_at_its_sync_is_on_disk_before_it_is_told(space: LooseSpace) -> None:
    key, me = space.request("true").key, identify_self(HOST)
    gone = msgspec.structs.replace(me, start_ticks=me.start_ticks - 1)
    append_fenced(space.ledger, space.epoch, Prepare(key, "command", space.epoch, 1, 1, "", space.space.mark("gone"), None, 0, ""))
    append_fenced(space.ledger, space.epoch, Start(key, gone, "gone"))
    synced = read_end(space.ledger.path)
    space.ledger.append_locked(Exited(key, Exit("exited", code=3), me.boot_id), "exit", is_shared=True)
    assert read_end(space.ledger.path) == synced
    assert space.space.wait_command(key, gone).exit == Exit("exited", code=3)
    assert read_end(space.ledger.path) == (synced or 0) + 1, "its line is noted: it was synced"
