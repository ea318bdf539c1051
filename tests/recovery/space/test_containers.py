"""Rule S9: what another pid namespace left on record under this boot. Containers are pid namespaces made by `unshare --pid --fork`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import events
from eventlog.errors import DeathUnprovedError, FenceIncompleteError
from eventlog.ports import FakeHost, LinuxHost, SystemClock
from recovery.space import condemned
from recovery.space.condemned import Sweep, Trust
from recovery.space.containers import hold_namespace
from recovery.space.marks import find_cgroup_base
from recovery.space.marks.descendants import list_children
from recovery.space.records import Advance, LedgerState
from tests.helpers import is_running, kill_process, read_tree, wait_until
from tests.recovery.driver.test_lock_holders import unshare
from tests.recovery.sessions import Sandbox, bash
from tests.recovery.space.ledgers import make_ledger, prepare_key, view
from tests.recovery.space.test_kill_shapes import MARKS

RUN = 'echo one > a; echo $$ >> "$WITNESS"; sleep 300'
ENVIRONMENT = {"SESSION_KILL_MARK": "environment"}


def start_container(sandbox: Sandbox, *, is_first: bool, **environment: str) -> "subprocess.Popen[bytes]":
    """A driver in a container, its command running: the first process of it, or the child of a shell that is."""
    driver = [sys.executable, "-m", "recovery", "run", str(sandbox.session(bash(RUN)))]
    inside = driver if is_first else ["sh", "-c", '"$@"; true', "sh", *driver]
    error = (sandbox.base / "container.err").open("wb")
    container = subprocess.Popen(
        [*unshare(), *inside], env=sandbox.environment(1, ()) | environment, stdout=subprocess.DEVNULL, stderr=error
    )  # fmt: skip
    wait_until(sandbox.witnessed, "the command in the container")
    return container


def end_container(container: "subprocess.Popen[bytes]") -> None:
    """Kill its first process; the kernel ends the rest."""
    first = list_children(container.pid)[0]
    kill_process(first)
    container.wait()


def proved(sandbox: Sandbox) -> list[tuple[object, bool]]:
    """Who said that something was dead, and whether anything was taken for dead without proof."""
    lines = (line.partition(" ")[2] for line in sandbox.ledger_path.read_text().splitlines())
    found = [record for record in map(json.loads, lines) if record["op"] == "proved_dead"]
    return [(record["by"], bool(record["assumed"])) for record in found]


def test_rule_S9_the_lock_of_a_containers_first_process_is_proof_when_it_is_free(sandbox: Sandbox) -> None:
    container = start_container(sandbox, is_first=True, **ENVIRONMENT)
    end_container(container)
    second = sandbox.run("drive", sandbox.state, **ENVIRONMENT)
    assert second.code == 78, second.err
    assert (sandbox.settled()[0][2], proved(sandbox)) == ("interrupted", [("", False)])
    assert not (sandbox.root / "a").exists()


def test_rule_S9_while_it_is_held_nothing_is_proved(sandbox: Sandbox) -> None:
    """The container lives: exit 1, its pids named, nothing touched; and nothing is signalled by a number of another namespace."""
    container = start_container(sandbox, is_first=True, **ENVIRONMENT)
    try:
        before = read_tree(sandbox.root)
        refused = sandbox.run("drive", sandbox.state, **ENVIRONMENT)
        assert refused.code == 1
        assert refused.sentence().startswith("recovery: FenceIncomplete: process ")
        assert "was seen in another pid namespace and cannot be proved dead from here; no workspace path was touched" in refused.sentence()
        assert (read_tree(sandbox.root), sandbox.labels()) == (before, [])
    finally:
        end_container(container)
    assert sandbox.run("drive", sandbox.state, **ENVIRONMENT).code == 78


def test_rule_S9_without_a_lock_a_person_or_a_setting_must_say_it(sandbox: Sandbox) -> None:
    """The driver was not the first process: FenceIncomplete with the ways out, until the recorded setting says that containers end all."""
    end_container(start_container(sandbox, is_first=False, **ENVIRONMENT))
    before = read_tree(sandbox.root)
    refused = sandbox.run("drive", sandbox.state, **ENVIRONMENT)
    assert (refused.code, read_tree(sandbox.root), sandbox.labels()) == (1, before, [])
    assert "set SESSION_CONTAINER_ENDS_ALL=1 if that container has ended and ends all its processes" in refused.sentence()
    assert f"`recovery settle {sandbox.state} --processes-dead`" in refused.sentence()
    second = sandbox.run("drive", sandbox.state, **ENVIRONMENT, SESSION_CONTAINER_ENDS_ALL="1")
    assert second.code == 78, second.err
    assert (sandbox.settled()[0][2], proved(sandbox)) == ("interrupted", [("container_ends_all", True)])


def test_rule_S9_a_persons_word_is_recorded_in_ledger_and_log(sandbox: Sandbox) -> None:
    end_container(start_container(sandbox, is_first=False, **ENVIRONMENT))
    settled = sandbox.run("settle", sandbox.state, "--processes-dead", **ENVIRONMENT)
    assert settled.code == 0, settled.err
    assert (proved(sandbox), sandbox.labels()) == ([("person", True)], [])
    assert [event.text for event in sandbox.of_kind(events.Noted)] == [
        "a person says that no process of an older epoch lives (settle --processes-dead)"
    ]
    assert sandbox.run("drive", sandbox.state, **ENVIRONMENT).code == 78
    assert sandbox.settled()[0][2] == "interrupted"


def test_rule_S9_a_person_who_is_wrong_is_not_believed_where_something_lives(sandbox: Sandbox) -> None:
    """A command runs, its driver is dead: it is seen, claimed by nobody, and ended; nothing was taken for dead on anybody's word."""
    gated = 'echo "$CALL_KEY" >> "$WITNESS"; echo one > a; until [ -e "$GATE" ]; do sleep 0.01; done'
    driver = sandbox.start("run", sandbox.session(bash(gated)), epoch=1)
    wait_until(sandbox.witnessed, "the command's start")
    (shim,) = [one.start.identity.pid for one in sandbox.ledger().attempts.values() if one.start and one.prepared.kind == "command"]
    driver.kill()
    assert is_running(shim)
    settled = sandbox.run("settle", sandbox.state, "--processes-dead")
    assert settled.code == 0, settled.err
    assert not is_running(shim) and proved(sandbox) == [("", False)]
    assert sandbox.run("drive", sandbox.state).code == 78
    assert (sandbox.settled()[0][2], sandbox.labels()) == ("interrupted", ["restore_and_interrupt"])
    assert not (sandbox.root / "a").exists()


def test_rule_S9_a_persons_word_does_not_overrule_what_is_seen_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only unproved is taken for dead; what does not die although it is killed stays an error, and nothing is recorded of it."""

    def sweep(error: FenceIncompleteError, directory: Path) -> LedgerState:
        def kill(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(condemned, "kill_mark", kill)
        directory.mkdir()
        ledger = make_ledger(directory, prepare_key("k"), Advance(2, "log", 1, "hash", {"k": "condemned"}, []))
        trust = Trust(all_dead=True)
        Sweep(str(directory), SystemClock(), LinuxHost(), trust).kill_condemned(ledger, 2, frozenset())
        return view(ledger.path)

    assert sweep(DeathUnprovedError("nobody knows"), tmp_path / "unproved").attempts == {}  # resolved, and set aside
    with pytest.raises(FenceIncompleteError, match="process 7 does not die"):
        sweep(FenceIncompleteError("process 7 does not die"), tmp_path / "alive")
    assert not view(tmp_path / "alive" / "ledger").attempts["k"].is_proved_dead


@pytest.mark.parametrize("mark", MARKS)
def test_case_30_pids_that_were_given_to_strangers_are_never_signalled(sandbox: Sandbox, mark: str) -> None:
    """In a small pid namespace every recorded number is somebody else's by now, each the leader of a group. The command counts as lost."""
    session = sandbox.session(bash(RUN))
    program = str(Path(__file__).with_name("reused_pids.py"))
    done = subprocess.run(
        [*unshare(), sys.executable, program, str(session), str(sandbox.state), mark, str(sandbox.witness)],
        env=sandbox.environment(None, ()), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["alive"]) >= 3 and all(found["alive"]), found
    if mark == "environment":
        assert (found["code"], sandbox.labels()) == (1, []), found
        assert "is dead and only the environment mark is in force" in found["said"]
    else:
        assert (found["code"], sandbox.labels()) == (78, ["restore_and_interrupt"]), found


@pytest.mark.skipif(not find_cgroup_base(), reason="no writable cgroup v2 here")
def test_rule_S9_a_cgroup_that_is_visible_and_empty_is_proof(sandbox: Sandbox) -> None:
    end_container(start_container(sandbox, is_first=False, SESSION_KILL_MARK="cgroup"))
    second = sandbox.run("drive", sandbox.state, SESSION_KILL_MARK="cgroup")
    assert second.code == 78, second.err
    assert proved(sandbox) == [("", False)]


def test_settle_says_what_it_can_settle(sandbox: Sandbox) -> None:
    refused = sandbox.run("settle", sandbox.state)
    assert (refused.code, "one thing of: --processes-dead, --rebuild, --accept-root, --ran" in refused.sentence()) == (78, True)


def test_only_the_first_process_of_a_namespace_holds_its_lock(tmp_path: Path) -> None:
    hold_namespace(str(tmp_path), FakeHost())
    assert list(tmp_path.iterdir()) == []
