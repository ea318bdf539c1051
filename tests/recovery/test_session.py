"""Sessions from Python: a key names one call, which takes effect once and has one result; errors end the object, never become one."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from eventlog import events
from eventlog.errors import CrashworthyError, LostProcessError, MisuseError, NeedsPersonError, StaleEpochError
from eventlog.identity_files import read_identities
from recovery.results import ChangedPath
from recovery.session import Session, open_session
from recovery.space.helper import start_helper
from tests.helpers import is_running, read_contents, wait_until
from tests.recovery.sessions import PROJECT, Sandbox

CUT = 'kill -9 $PPID; while :; do sleep 0.1; done'


def opened(sandbox: Sandbox, **options: Any) -> AbstractContextManager[Session]:
    """The session of the sandbox, opened in this process."""
    return open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ()), **options)


def cut_call(sandbox: Sandbox, run: str, key: str, **options: Any) -> None:
    """Ask for a call whose command kills its shim."""
    with pytest.raises(LostProcessError), opened(sandbox) as session:
        session.bash(run, key=key, **options)


def test_a_settled_key_gives_its_recorded_result_and_never_runs_again(sandbox: Sandbox) -> None:
    run = "echo $CALL_KEY >> $WITNESS; echo out; echo err >&2; echo x >> a"
    with opened(sandbox) as session:
        first = session.bash(run, key="one", separate=True)
        again = session.bash(run, key="one", separate=True)
    with opened(sandbox) as session:
        later = session.bash(run, key="one", separate=True)
        assert session.result("one") == later and session.result("two") is None
        assert session.results == (later,)
    assert first.ok and (first.stdout, first.stderr, first.text) == (b"out\n", b"err\n", "out\n")
    assert ChangedPath(b"a", "put") in (first.changed or ())
    assert not first.is_recorded and again.is_recorded and again == later
    assert {**as_dict(first), "is_recorded": True} == as_dict(again)
    assert len(sandbox.witnessed()) == 1 and read_contents(sandbox.root) == {"a": b"x\n"}


def as_dict(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__struct_fields__}


def test_another_call_under_a_known_key_is_refused_and_nothing_is_done(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        head = session.state.head_seq
        with pytest.raises(MisuseError, match="a key names one call for good"):
            session.bash("echo y > a", key="one")
        with pytest.raises(MisuseError, match="a key names one call for good"):
            session.write("a", "y", key="one")
        assert session.state.head_seq == head
        assert session.edit("a", "x", "z", key="two").ok
    assert read_contents(sandbox.root) == {"a": b"z\n"}


def test_files_are_changed_by_key_and_a_refusal_is_a_result(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        assert session.write("d/\udcff", b"\xff", key="one", mode=0o600).ok
        missing = session.edit("none", "a", "b", key="two")
        assert not missing.ok and missing.ended == "finished" and missing.exit is not None and missing.exit.code == 1
        assert session.edit("none", "a", "b", key="two") == session.result("two")
        for bad in ("../out", "/etc/x", ""):
            with pytest.raises(MisuseError, match="must be relative"):
                session.write(bad, "x", key="three")
    assert (sandbox.root / "d" / "\udcff").read_bytes() == b"\xff"


def test_rule_C3_a_cut_call_has_one_final_result_interrupted_and_is_not_run_again(sandbox: Sandbox) -> None:
    run = f"echo x > a; echo ran >> $WITNESS; {CUT}"
    cut_call(sandbox, run, "one")
    with opened(sandbox) as session:
        result = session.bash(run, key="one")
        assert (result.ended, result.exit, result.ok, result.is_recorded) == ("interrupted", None, False, True)
        assert "restored" in result.reason and result.label == "restore_and_interrupt"
        assert session.bash(run, key="one") == result
        assert session.bash("echo y > b", key="two").ok
    assert sandbox.witnessed() == ["ran"] and read_contents(sandbox.root) == {"b": b"y\n"}


def test_a_cut_call_whose_policy_allows_it_runs_again_under_its_key(sandbox: Sandbox) -> None:
    run = f"echo x >> a; echo ran >> $WITNESS; test $(wc -l < $WITNESS) = 2 || {{ {CUT}; }}"
    cut_call(sandbox, run, "one", policy="after-restore")
    with opened(sandbox) as session:
        assert session.result("one") == session.bash(run, key="one", policy="after-restore")
        assert session.results[0].ok
    assert sandbox.witnessed() == ["ran", "ran"] and read_contents(sandbox.root) == {"a": b"x\n"}


def test_rule_I6_a_newer_epoch_ends_the_object_and_never_becomes_a_result(sandbox: Sandbox) -> None:
    raised: list[BaseException] = []
    with pytest.raises(StaleEpochError, match="was superseded|newer"), opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        assert sandbox.run("drive", sandbox.state).code == 78, "a session without a script is not finished by a drive"
        head = sandbox.events()[-1].seq
        for act in (lambda: session.bash("echo y > b", key="two"), lambda: session.inputs, session.finish, session.note):
            try:
                act()
            except CrashworthyError as error:
                raised.append(error)
        raise raised[0]
    assert [type(error) for error in raised] == [StaleEpochError, MisuseError, MisuseError, MisuseError]
    assert all("takes no more requests: StaleEpochError" in str(error) for error in raised[1:])
    assert session.is_broken and sandbox.events()[-1].seq == head
    with opened(sandbox) as session:
        assert session.result("two") is None
    assert read_contents(sandbox.root) == {"a": b"x\n"}


def test_rule_I6_a_newer_epoch_ends_the_object_while_its_command_runs(sandbox: Sandbox) -> None:
    """The next driver owns the command; its result is that of the key, and this object has none."""
    run = "echo began >> $WITNESS; until test -e $GATE; do sleep 0.05; done; echo x > a"
    drivers = []

    def supersede() -> None:
        wait_until(lambda: bool(sandbox.witnessed()), "the command's beginning")
        drivers.append(sandbox.start("drive", sandbox.state))

    thread = threading.Thread(target=supersede)
    thread.start()
    with pytest.raises(StaleEpochError), opened(sandbox) as session:
        session.bash(run, key="one")
    thread.join()
    sandbox.open_gate()
    assert drivers[0].end() == 78
    with opened(sandbox) as session:
        assert session.bash(run, key="one").ok
    assert sandbox.witnessed() == ["began"] and sandbox.labels() == ["reattach"]


def test_one_call_at_a_time_and_from_any_thread(sandbox: Sandbox) -> None:
    done: list[bool] = []
    with opened(sandbox) as session:
        run = "echo began >> $WITNESS; until test -e $GATE; do sleep 0.05; done"
        thread = threading.Thread(target=lambda: done.append(session.bash(run, key="one").ok))
        thread.start()
        wait_until(lambda: bool(sandbox.witnessed()), "the command's beginning")
        with pytest.raises(MisuseError, match="one at a time"):
            session.bash("true", key="two")
        sandbox.open_gate()
        thread.join()
        assert session.bash("true", key="two").ok
    assert done == [True]


def test_an_exception_of_the_body_ends_the_epoch_cleanly(sandbox: Sandbox) -> None:
    with pytest.raises(KeyError, match="mine"), opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        raise KeyError("mine")
    assert read_identities(str(sandbox.state)) == [], "no driver has left its word behind"
    with pytest.raises(MisuseError, match="takes no more requests: it is closed"):
        session.bash("true", key="two")
    with opened(sandbox) as session:
        assert session.bash("echo x > a", key="one").is_recorded


def test_no_process_is_left_of_a_session_however_it_ends(sandbox: Sandbox) -> None:
    before = set(children())
    with opened(sandbox) as session:
        session.write("a", "x", key="one")
        helpers = set(children()) - before
        assert len(helpers) == 1
    cut_call(sandbox, CUT, "two")
    assert not set(children()) - before and not any(map(is_running, helpers))


def children() -> Iterator[int]:
    """The children of this process, ended ones that were not reaped included."""
    for task in Path("/proc/self/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def test_a_finished_session_gives_its_results_and_takes_no_new_call(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        session.admit("r", {"say": 1})
        root = session.finish()
        assert session.is_finished and session.finish() == root
        with pytest.raises(MisuseError, match="has finished and nothing follows its end"):
            session.bash("true", key="two")
    for _ in range(2):
        with opened(sandbox) as session:
            assert session.bash("echo x > a", key="one").ok and session.finish() == root
            assert session.ask("r", dict) == {"say": 1} and not session.admit("r", {"say": 1})
            with pytest.raises(MisuseError, match="has finished and nothing follows its end"):
                session.write("b", "x", key="two")
    other = open_session(sandbox.base / "other", sandbox.root, name="other", environ=sandbox.environment(None, ()))
    with other as session:  # its workspace is free
        assert session.bash("cat a", key="one").text == "x\n"


def test_rule_S1_a_workspace_that_another_session_holds_is_refused(sandbox: Sandbox) -> None:
    with opened(sandbox):
        pass
    with pytest.raises(MisuseError, match="held by session:session"):
        open_session(sandbox.base / "other", sandbox.root, name="other", environ=sandbox.environment(None, ())).__enter__()


def test_rule_L2_an_input_is_admitted_once_whoever_sends_it(sandbox: Sandbox) -> None:
    asked: list[int] = []

    def answer() -> dict[str, Any]:
        asked.append(1)
        return {"run": "true"}

    with opened(sandbox) as session:
        assert session.ask("step-1", answer) == {"run": "true"} == session.ask("step-1", answer)
        assert session.admit("r", {"say": "x"}) and not session.admit("r", {"say": "x"})
        with pytest.raises(MisuseError, match="with another input"):
            session.admit("r", {"say": "y"})
        given = ["append", "--kind", "input_admitted", "--request", "out", "--input", '{"n": 1}', str(sandbox.state)]
        subprocess.run([sys.executable, "-m", "eventlog", *given], check=True, capture_output=True, cwd=PROJECT)
        ids = [one.request_id for one in session.inputs]
        assert session.bash("true", key="one").ok
    with opened(sandbox) as session:
        assert session.ask("step-1", answer) == {"run": "true"} and session.ask("out", answer) == {"n": 1}
        assert [one.request_id for one in session.inputs] == ids == ["step-1", "r", "out"]
    assert asked == [1]


def test_a_pause_that_was_asked_for_comes_before_the_next_call_and_opening_goes_on(sandbox: Sandbox) -> None:
    with pytest.raises(NeedsPersonError, match=r"is paused.* started again \(`open_session`\), goes on"), opened(sandbox) as session:
        assert session.bash("echo x > a", key="one").ok
        assert sandbox.run("pause", sandbox.state).code == 0
        assert session.bash("echo x > a", key="one").is_recorded, "what is recorded is told"
        session.bash("echo y > b", key="two")
    assert sandbox.events()[-1].event.kind == "session_paused"
    refused = sandbox.run("drive", sandbox.state)
    assert refused.code == 78 and "has no script" in refused.sentence() and "`open_session`" in refused.sentence()
    assert "session_resumed" not in [event.event.kind for event in sandbox.events()], "a drive that goes on with nothing ends no pause"
    (sandbox.root / "mine").write_text("mine")
    with opened(sandbox) as session:
        assert session.result("two") is None and session.bash("echo y > b", key="two").ok
    assert [event.event.kind for event in sandbox.events()].count("session_resumed") == 1
    assert read_contents(sandbox.root) == {"a": b"x\n", "b": b"y\n", "mine": b"mine"}


def test_a_pause_that_was_asked_for_comes_before_the_end(sandbox: Sandbox) -> None:
    with pytest.raises(NeedsPersonError, match="is paused"), opened(sandbox) as session:
        assert session.bash("echo x > a", key="one").ok
        assert sandbox.run("pause", sandbox.state).code == 0
        session.finish()
    assert sandbox.events()[-1].event.kind == "session_paused"
    with opened(sandbox) as session:
        session.finish()
    assert sandbox.events()[-1].event.kind == "session_finished"


def test_what_a_session_object_says_names_the_state_directory(sandbox: Sandbox) -> None:
    """Its errors, inside the body and out of it, and its note."""
    with opened(sandbox) as session:
        for number in range(60):
            (sandbox.root / f"f{number}").touch()
        session.bash("true", key="one")
        for number in range(60):
            (sandbox.root / f"f{number}").unlink()
        with pytest.raises(NeedsPersonError, match=f"`recovery drive {sandbox.state} --accept-outside"):
            session.bash("true", key="two")


@pytest.mark.parametrize("key", ["", "x" * 201, "a\0", "\udcff"])
def test_what_is_no_key_is_refused(sandbox: Sandbox, key: str) -> None:
    with opened(sandbox) as session:
        with pytest.raises(MisuseError, match="a text of 1 to 200 characters"):
            session.bash("true", key=key)
        with pytest.raises(MisuseError, match="a text of 1 to 200 characters"):
            session.admit(key, {})
        assert session.bash("true", key="x" * 200).ok


def test_a_session_is_opened_from_a_process_with_threads_and_its_helpers_hold_none_of_its_files(sandbox: Sandbox) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        with opened(sandbox) as session:
            assert session.bash("echo x > a", key="one").ok
            os.close(write)
            assert os.read(read, 1) == b"", "nobody else holds the pipe"
    finally:
        stop.set()
        os.close(read)
        for thread in threads:
            thread.join()


def test_without_a_python_to_execute_it_is_refused_in_one_sentence() -> None:
    for python in ("", "/nowhere/python"):
        with pytest.raises(MisuseError, match="needs Python as a program of its own for its spawner"):
            start_helper({}, python)


def test_events_carry_the_key_of_each_attempt(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        session.bash("true", key="build")
    assert [one.request_id for one in sandbox.of_kind(events.AttemptStarted)] == ["build"]


def put_back(sandbox: Sandbox, kept: dict[str, bytes]) -> None:
    for name, data in kept.items():
        (sandbox.state / name).write_bytes(data)
    (sandbox.state / "log.sqlite-shm").unlink(missing_ok=True)


def test_case_20_a_key_that_the_log_may_have_lost_runs_again_only_at_a_persons_word(sandbox: Sandbox) -> None:
    """Of call 3 the ledger has the intent, with its key; of call 2, which it has collected, the number."""
    two, three = "echo two >> $WITNESS", f"echo three >> $WITNESS; {CUT}"
    with opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        kept = {name: (sandbox.state / name).read_bytes() for name in ("log.sqlite", "log.sqlite-wal")}
        session.bash(two, key="two")
    cut_call(sandbox, three, "three")
    put_back(sandbox, kept)
    for accepted in ((), (1, 3)):
        with opened(sandbox, accept_lost_keys=accepted) as session:
            cut = session.bash(three, key="three")
            assert (cut.ended, cut.is_recorded, cut.label) == ("interrupted", True, "log_behind_restore")
            head = session.state.head_seq
            with pytest.raises(NeedsPersonError, match=r"call 2 of this session ran and its key is lost.*accept_lost_keys=\[2\]"):
                session.bash(two, key="two")
            assert session.state.head_seq == head and session.bash("echo x > a", key="one").is_recorded
    assert sandbox.witnessed() == ["two", "three"]
    with opened(sandbox, accept_lost_keys=[2]) as session:
        assert not session.bash(two, key="two").is_recorded
    assert sandbox.witnessed() == ["two", "three", "two"]


@pytest.mark.parametrize("ends", ["normally", "by its own error"])
def test_rule_I6_a_superseded_session_ends_stale_however_its_block_ends(sandbox: Sandbox, ends: str) -> None:
    own = KeyError("mine") if ends == "by its own error" else None
    with pytest.raises(StaleEpochError) as caught, opened(sandbox) as session:
        session.bash("echo x > a", key="one")
        for _ in range(2):
            assert sandbox.run("drive", sandbox.state).code == 78
        for file in (sandbox.state / "identity").iterdir():
            file.unlink()  # as a newer driver on another machine, which takes this process for dead
        if own is not None:
            raise own
    assert caught.value.__cause__ is own and read_identities(str(sandbox.state)) == []


def test_rule_L4_a_driver_that_ends_by_itself_leaves_no_word_of_an_epoch_that_is_on_record(sandbox: Sandbox) -> None:
    """A question, a pause, a lost shim: each is an end. A death is none (test_endings)."""
    with pytest.raises(NeedsPersonError, match="is paused"), opened(sandbox) as session:
        assert sandbox.run("pause", sandbox.state).code == 0
        session.bash("true", key="one")
    assert read_identities(str(sandbox.state)) == []
    cut_call(sandbox, CUT, "one")
    assert read_identities(str(sandbox.state)) == []
    assert sandbox.run("drive", sandbox.state).code == 78
    assert read_identities(str(sandbox.state)) == []


def test_case_21_a_forked_child_is_refused_and_ends_nothing(sandbox: Sandbox) -> None:
    for leave in (False, True):
        script = (
            "import os, sys\n"
            "from eventlog.errors import MisuseError\n"
            "from recovery.session import open_session\n"
            "child = 1\n"
            "try:\n"
            "    with open_session(sys.argv[1], sys.argv[2]) as session:\n"
            "        session.bash('echo x > a', key='one')\n"
            "        child = os.fork()\n"
            "        if child:\n"
            "            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
            "            assert os.listdir(sys.argv[1] + '/identity'), 'the epoch goes on'\n"
            "            assert session.bash('cat a', key='two').text == 'x\\n'\n"
            f"        elif not {leave}:\n"
            "            session.bash('echo y > a', key='child')\n"
            "except MisuseError as error:\n"
            "    assert not child and 'belongs to process' in str(error) and error.exit_code == 78, error\n"
            "    os._exit(0)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, sandbox.state, sandbox.root],
            env=sandbox.environment(None, ()), cwd=PROJECT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert read_contents(sandbox.root) == {"a": b"x\n"}


def test_what_is_no_request_is_refused_by_name(sandbox: Sandbox) -> None:
    wrong: Any = 5
    with opened(sandbox) as session:
        head = session.state.head_seq
        for ask, why in (
            (lambda: session.bash(wrong, key="k"), "text or bytes, not int"),
            (lambda: session.write("a", wrong, key="k"), "text or bytes, not int"),
            (lambda: session.run(wrong, key="k"), "run takes a @tool with its arguments"),
            (lambda: session.call(wrong, key="k"), "a call is one of recovery.script, not int"),
            (lambda: session.ask("r", wrong), "ask takes a function"),
            (lambda: session.ask("r", lambda: wrong), "cannot be written"),
            (lambda: session.admit("r", {"a": [float("nan")]}), "NaN and Infinity are no numbers of JSON"),
            (lambda: session.ask("r", lambda: {"a": {"b": -float("inf")}}), "NaN and Infinity are no numbers of JSON"),
        ):
            with pytest.raises(MisuseError, match=why):
                ask()
        assert session.state.head_seq == head and not session.inputs
        numbers = {"a": [1.5, 2**70, -(2**63) - 1, 1e300, True]}
        assert session.admit("r", numbers) and session.ask("r", dict) == numbers


def test_an_answer_may_use_the_session_and_is_what_the_log_gives_again(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        given = session.ask("r", lambda: {"said": (session.bash("echo in", key="one").text, session.ask("s", lambda: {"n": 1}))})
        assert given == {"said": ["in\n", {"n": 1}]} == session.ask("r", dict)
