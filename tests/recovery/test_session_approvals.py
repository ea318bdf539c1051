"""Calls from Python that begin only when a person says so: asked once, answered once, and a rejection is a result like any other."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from eventlog import events
from eventlog.errors import CorruptError, MisuseError, NeedsPersonError
from recovery.session import Session, open_session
from tests.helpers import read_contents
from tests.recovery.histories import History
from tests.recovery.sessions import Sandbox
from tests.recovery.tools_of_a_program import add_line

RUN = "echo ran >> $WITNESS; echo x > a"


def opened(sandbox: Sandbox, **options: Any) -> AbstractContextManager[Session]:
    return open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ()), **options)


def ask(sandbox: Sandbox, key: str = "deploy", run: str = RUN) -> None:
    """Have the question stand in the log, and the program end."""
    with opened(sandbox) as session, pytest.raises(NeedsPersonError, match=r"call 1 \(key 'deploy'\) waits .* `recovery answer /.*/state"):
        session.bash(run, key=key, approve=True)


def answer(sandbox: Sandbox, *said: str | Path, code: int = 0) -> str:
    done = sandbox.run("answer", sandbox.state, *said)
    assert done.code == code, done.out + done.err
    return done.out + done.err


def test_a_call_begins_when_a_person_lets_it_and_is_asked_about_once(sandbox: Sandbox) -> None:
    for _ in range(3):
        ask(sandbox)
    assert sandbox.witnessed() == [] and not sandbox.of_kind(events.AttemptStarted)
    assert "the program that opened it, started again" in answer(sandbox, "--approve")
    with opened(sandbox) as session:
        assert session.bash(RUN, key="deploy", approve=True).ok
        assert session.bash(RUN, key="deploy", approve=True).is_recorded
    asked = sandbox.of_kind(events.ApprovalAsked)
    assert [(one.call, one.script_index, one.request_id) for one in asked] == [(1, None, "deploy")]
    assert asked[0].request_digest == sandbox.of_kind(events.AttemptStarted)[0].request_digest
    assert sandbox.witnessed() == ["ran"]


def test_the_object_that_asked_goes_on_and_meets_the_answer(sandbox: Sandbox) -> None:
    with opened(sandbox) as session:
        with pytest.raises(NeedsPersonError):
            session.write("a", "x", key="w", approve=True)
        assert not session.is_broken and session.result("w") is None
        answer(sandbox, "--approve")
        assert session.write("a", "x", key="w", approve=True).ok
        with pytest.raises(NeedsPersonError):
            session.run(add_line("a", "y"), key="t", approve=True)
        answer(sandbox, "--approve")
        assert session.run(add_line("a", "y"), key="t", approve=True).ok
    assert read_contents(sandbox.root) == {"a": b"xy\n"}


def test_rule_C3_a_rejected_call_has_one_result_for_good_and_its_key_is_its_own(sandbox: Sandbox) -> None:
    ask(sandbox)
    answer(sandbox, "--reject", "--reason", "not on a Friday")
    for _ in range(2):
        with opened(sandbox) as session:
            result = session.bash(RUN, key="deploy", approve=True)
            assert (result.ended, result.ok, result.call, result.reason) == ("rejected", False, 0, "not on a Friday")
            assert session.result("deploy") == result and session.results == ()
            for other in ({"run": RUN}, {"run": "true", "approve": True}):
                with pytest.raises(MisuseError, match="a person rejected another call under it"):
                    session.bash(key="deploy", **other)
    with opened(sandbox) as session:
        assert session.bash("echo y > b", key="other").call == 1
        session.finish()
    with opened(sandbox) as session:
        assert session.bash(RUN, key="deploy", approve=True).ended == "rejected", "of a finished session too"
    assert sandbox.witnessed() == [] and read_contents(sandbox.root) == {"b": b"y\n"}


def test_what_a_person_says_in_its_place_runs_under_the_key_of_what_was_asked(sandbox: Sandbox) -> None:
    """Also when it is cut and runs again: the key stays that of what was asked."""
    ask(sandbox)
    edited = sandbox.base / "edited.toml"
    once = "test $(wc -l < $WITNESS) = 2 || { kill -9 $PPID; sleep 60; }"
    edited.write_text(f"tool = \"bash\"\npolicy = \"after-restore\"\nrun = 'echo edited >> $WITNESS; echo y >> b; {once}'\n")
    written = sandbox.base / "write.toml"
    written.write_text('tool = "write"\npath = "a"\ncontent = "x"\n')
    assert "call 1 is a bash call, and the file has a write call" in answer(sandbox, "--edit", written, code=78)
    answer(sandbox, "--edit", edited)
    with pytest.raises(Exception, match="shim"), opened(sandbox) as session:
        session.bash(RUN, key="deploy", approve=True)
    with opened(sandbox) as session:
        assert session.bash(RUN, key="deploy", approve=True).ok
    assert len({one.request_digest for one in sandbox.of_kind(events.AttemptStarted)}) == 1
    assert sandbox.witnessed() == ["edited", "edited"] and read_contents(sandbox.root) == {"b": b"y\n"}


def test_a_question_is_about_the_next_call_and_another_one_withdraws_it(sandbox: Sandbox) -> None:
    ask(sandbox)
    with opened(sandbox) as session:
        assert session.bash("echo y > b", key="other").ok
        assert "waits for no answer" in answer(sandbox, "--approve", code=78)
        with pytest.raises(NeedsPersonError, match="call 2"):
            session.bash(RUN, key="deploy", approve=True)
        with pytest.raises(MisuseError, match="a person is asked about another call under it"):
            session.bash(RUN, key="deploy")
        answer(sandbox, "--approve")
        assert session.bash(RUN, key="deploy", approve=True).call == 2
    assert sandbox.witnessed() == ["ran"]


def test_plan_and_note_say_that_a_person_is_asked(sandbox: Sandbox) -> None:
    ask(sandbox)
    plan = sandbox.run("plan", sandbox.state)
    assert "call 1 waits for `recovery answer" in plan.out and "the program that opened it, started again, goes on" in plan.out
    assert "call 1 waits for a person's word" in sandbox.run("note", sandbox.state).out
    assert sandbox.run("drive", sandbox.state).code == 78 and sandbox.witnessed() == []


@pytest.mark.parametrize("step", ["asked.commit.before:1", "asked.commit.after:1", "intent.commit.before:1"])
def test_a_program_killed_while_it_asks_or_begins_asks_once_and_runs_once(sandbox: Sandbox, step: str) -> None:
    program = sandbox.base / "program.py"
    program.write_text(
        "import sys\nfrom eventlog.errors import NeedsPersonError\nfrom recovery.session import open_session\n"
        "with open_session(sys.argv[1], sys.argv[2]) as session:\n"
        f"    print(session.bash({RUN!r}, key='deploy', approve=True).ended)\n"
    )
    if step.startswith("intent"):
        ask(sandbox)
        answer(sandbox, "--approve")
    epoch = 2 if step.startswith("intent") else 1
    killed = sandbox.start(str(sandbox.state), str(sandbox.root), program=program, epoch=epoch, wait=(f"driver@{epoch}:{step}",))
    sandbox.steps.kill(f"driver@{epoch}:{step}", killed)
    assert killed.end() == -9
    if not step.startswith("intent"):
        ask(sandbox)
        answer(sandbox, "--approve")
    again = sandbox.run(str(sandbox.state), str(sandbox.root), program=program)
    assert (again.code, again.out) == (0, "finished\n"), again.err
    assert len(sandbox.of_kind(events.ApprovalAsked)) == 1 and sandbox.witnessed() == ["ran"]


def test_a_log_in_which_a_call_begins_that_nobody_let_is_corrupt() -> None:
    run = {"tool": "bash", "run": "true"}
    for request_id in ("deploy", "other"):
        history = History()
        history.add(events.ApprovalAsked(0, 1, None, "bash", run, "deploy", "digest"))
        history.add(events.AttemptStarted(0, 1, 1, None, "bash", run, "never", "key", "digest", False, request_id))
        if request_id == "other":
            assert history.state().approval is None
        else:
            with pytest.raises(CorruptError, match="call 1 begins, and what was asked at seq 3 is not answered"):
                history.state()
