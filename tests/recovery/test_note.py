"""The recovery note: what the log says, in the bytes that are given, names escaped; nothing that is not known."""

import json
from typing import Any

import pytest

from eventlog import events
from eventlog.errors import MisuseError
from recovery.note import LEAST_BYTES, Note, fit_note, make_note, write_json, write_text
from recovery.session import open_session
from recovery.story import tell_story
from recovery.workspace.values import OVER_LIMIT
from tests.recovery.histories import EMPTY, History
from tests.recovery.sessions import Sandbox, bash

WRITERS = {"text": write_text, "json": write_json}


def note_of(history: History) -> Note:
    return make_note(history.state(), tell_story(history.stored))


def many_calls(count: int) -> History:
    history = History()
    for _ in range(count):
        history.attempt(script_index=None)
        history.settle()
    return history


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("limit", [LEAST_BYTES, 1500, 4096, 100_000])
def test_a_note_keeps_to_its_bytes_and_counts_what_had_no_room(write: str, limit: int) -> None:
    note = note_of(many_calls(250))
    text = fit_note(note, limit, WRITERS[write])
    assert len(text.encode()) <= limit
    listed = text.count("completed: call ") if write == "text" else len(json.loads(text)["completed"])
    left = int(text.split("left out for room, older: ")[1].split()[0]) if write == "text" else json.loads(text)["left_out"]["completed"]
    assert listed + left == 250 and 0 < listed <= 100, "newest first, the rest is counted"
    assert "call 250" in text if write == "text" else json.loads(text)["completed"][0]["call"] == 250


def test_fewer_bytes_than_any_note_needs_are_refused() -> None:
    with pytest.raises(MisuseError, match="give at least 1024"):
        fit_note(note_of(History()), LEAST_BYTES - 1, write_text)


def test_a_call_that_is_open_may_have_run_and_a_void_one_did_not() -> None:
    history = History()
    history.attempt(script_index=None)
    opened = note_of(history)
    assert opened.status == "a call is open" and opened.partly[0].attempts == 1
    assert "call 1 is open and may have run" in opened.must[0]
    history.decide("void_and_run", call=1)
    void = note_of(history)
    assert void.partly[0].attempts == 0 and "call 1 is open and provably did not start" in void.must[0]
    history.attempt(1, 2, script_index=None)
    history.settle()
    assert note_of(history).partly == (), "one attempt ran"


def test_an_open_restore_must_be_finished() -> None:
    history = History()
    history.attempt(script_index=None)
    history.decide("restore_and_interrupt", call=1, obligation=True)
    note = note_of(history)
    assert note.status == "a restore is open" and "is not finished: open the session" in note.must[0]
    assert "restore not finished: restore_and_interrupt" in write_text(note)


def test_a_workspace_that_a_person_took_as_it_was_found_is_not_told_as_restored() -> None:
    history = History()
    history.attempt(script_index=None)
    obliged = history.decide("restore_and_interrupt", obligation=True)
    history.decide("accept_by_person")
    history.add(events.RestoreFinished(0, obliged, EMPTY, 0, 0, 0, 0, 0, accepted=True))
    history.add(events.CallSettled(0, 1, 1, "interrupted", "accept_by_person", "", None, None, EMPTY, []))
    told = write_text(note_of(history))
    assert "interrupted: call 1, bash: 1 attempt; what it did may be half done, in the workspace and elsewhere\n" in told
    assert "not restored: restore_and_interrupt decided at seq" in told and "\nrestored:" not in told


def test_a_session_that_waits_for_a_person_is_not_told_to_be_at_rest() -> None:
    history = History(calls=1)
    asked = history.add(events.ApprovalAsked(0, 1, 0, "bash", {"tool": "bash", "run": "true"}, "", ""))
    note = note_of(history)
    assert note.status == "a person is asked" and "call 1 waits for a person's word: `recovery answer STATE_DIR`" in note.must[0]
    history.add(events.ApprovalAnswered(0, asked, "approved", None, ""))
    assert note_of(history).must == () and note_of(history).status == "at rest"


@pytest.mark.parametrize(("calls", "goes_on"), [(1, "`recovery drive STATE_DIR`"), (0, "the program that opened it")])
def test_a_paused_session_says_what_goes_on(calls: int, goes_on: str) -> None:
    history = History(calls=calls)
    history.add(events.PauseRequested(0, ""))
    assert "a pause is asked for" in note_of(history).must[0] and goes_on in note_of(history).must[0]
    history.add(events.SessionPaused(0, EMPTY, ""))
    assert note_of(history).status == "paused" and note_of(history).must[0].startswith(f"the session is paused: {goes_on}")


def test_an_image_over_a_limit_is_stale_for_its_own_reason() -> None:
    history = History()
    history.attempt(script_index=None)
    untracked = [events.Untracked("", OVER_LIMIT)]
    history.add(events.CallSettled(0, 1, 1, "finished", "live", "", None, None, EMPTY, untracked))
    (must,) = note_of(history).must
    assert "above a limit of the session" in must and "was writing" not in must


def test_what_completed_was_cut_restored_and_kept_is_told(sandbox: Sandbox) -> None:
    cut = "echo x > 'a\nb'; kill -9 $PPID; while :; do sleep 0.1; done"
    session = sandbox.session(bash("echo one > one"), bash(cut), bash("exit 3"), on_interrupted="continue")
    assert sandbox.run("run", session).code == 1
    assert sandbox.run("drive", sandbox.state).code == 0
    told = sandbox.run("note", sandbox.state).out
    lines = told.splitlines()
    assert lines[0].startswith("session nightly: finished; seq ") and lines[0].endswith("3 calls")
    (interrupted,) = [line for line in lines if line.startswith("interrupted: call 2")]
    assert "'a\\x0ab'" in interrupted and "what it did elsewhere may be half done" in interrupted
    (restored,) = [line for line in lines if line.startswith("restored: restore_and_interrupt")]
    decided = sandbox.of_kind(events.Quarantined)[0].decision_seq
    assert f"`recovery quarantine show {sandbox.state} {decided}`" in restored and "a\\x0ab" in restored
    assert [line for line in lines if line.startswith("completed:")] == [
        "completed: call 3, bash exit 3: exit 3, 0 paths changed", "completed: call 1, bash echo one > one: exit 0, 1 paths changed",
    ]  # fmt: skip
    found = json.loads(sandbox.run("note", sandbox.state, "--json").out)
    assert [call["call"] for call in found["completed"]] == [3, 1] and found["partly"][0]["ended"] == "interrupted"
    assert found["restores"][0]["moved"] == ["1/a\\x0ab"] and found["must"] == [] and found["left_out"] == {}
    refused = sandbox.run("note", sandbox.state, "--bytes", "10")
    assert refused.code == 78 and "give at least 1024" in refused.sentence()
    assert sandbox.run("note", sandbox.base).code == 78


def test_a_session_object_gives_the_note(sandbox: Sandbox) -> None:
    with open_session(sandbox.state, sandbox.root, environ=sandbox.environment(None, ())) as session:
        session.bash("true", key="a\x1b[31m")
        assert "completed: call 1 key a\\x1b[31m, bash true: exit 0, 0 paths changed\n" in session.note()


def test_a_long_command_is_cut_and_a_redacted_one_says_so() -> None:
    history = History()
    history.add(events.AttemptStarted(0, 1, 1, None, "bash", {"run": "x" * 5000}, "never", "k", "d", True, "one"))
    (call,) = note_of(history).partly
    assert call.what == "x" * 160 + " ... (recorded redacted)"


def test_a_redacted_call_is_not_replay_safe() -> None:
    """D: what the log has of it is not what was asked for."""
    for policy, becomes in (("safe", "never"), ("after-restore", "never"), ("ask", "ask"), ("never", "never")):
        history = History()
        given: dict[str, Any] = {"tool": "bash", "run": "[redacted]"}
        history.add(events.AttemptStarted(0, 1, 1, None, "bash", given, policy, "k", "d", True, ""))  # type: ignore[arg-type]
        call = history.state().open_call
        assert call is not None and call.policy == becomes
