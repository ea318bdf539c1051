"""Waiting for a person is a state in the log: nobody has to stay, one answer stands, and each combination survives a kill between each
two events."""

import itertools
import json

import pytest

from eventlog import events
from tests.helpers import read_contents
from tests.recovery.sessions import Driver, Sandbox, bash, write

FIRST = "echo one >> a"
ANSWERS = ("--approve", "--edit", "--reject")
OUTCOMES = {"--approve": {"a": b"one\n", "b": b"two\n"}, "--edit": {"a": b"other\n", "b": b"two\n"}, "--reject": {"b": b"two\n"}}


def ask(sandbox: Sandbox) -> Driver:
    """A session whose first call waits for a person."""
    driver = sandbox.run("run", sandbox.session(bash(FIRST, approve=True), write("b", "two\n")), epoch=1)
    assert driver.code == 78, driver.err
    return driver


def answer(sandbox: Sandbox, given: str, *more: str) -> Driver:
    """`recovery answer`; an edit comes from a file."""
    (sandbox.base / "edited.toml").write_text('tool = "bash"\nrun = "echo other >> a"\n')
    file = (str(sandbox.base / "edited.toml"),) if given == "--edit" else ()
    return sandbox.run("answer", sandbox.state, given, *file, *more)


def kinds(sandbox: Sandbox) -> list[str]:
    return [stored.event.kind for stored in sandbox.events()]


def test_a_call_with_approve_asks_before_anything_of_it_begins(sandbox: Sandbox) -> None:
    driver = ask(sandbox)
    assert "recovery: call 1 (call 1 of the script) waits for a person's word and has not begun" in driver.err
    assert f"`recovery answer {sandbox.state} --approve`" in driver.err
    assert kinds(sandbox) == ["session_opened", "driver_started", "approval_asked"]
    sandbox.drive(expect=78)
    assert kinds(sandbox).count("approval_asked") == 1, "it is asked once, however often the session is driven"
    assert not read_contents(sandbox.root)


@pytest.mark.parametrize("given", ANSWERS)
def test_each_answer_leads_where_it_says(sandbox: Sandbox, given: str) -> None:
    ask(sandbox)
    answered = answer(sandbox, given, "--reason", "seen")
    assert answered.code == 0, answered.err
    sandbox.drive()
    assert read_contents(sandbox.root) == OUTCOMES[given]
    (stood,) = sandbox.of_kind(events.ApprovalAnswered)
    assert (stood.asked_seq, stood.reason) == (3, "seen")
    intents = sandbox.of_kind(events.AttemptStarted)
    if given == "--edit":
        assert intents[0].input["run"] == "echo other >> a", "the intent holds what ran"
    assert [one.script_index for one in intents] == ([1] if given == "--reject" else [0, 1])


STEPS_OF = {
    "--approve": ("intent.commit.before:1", "intent.commit.after:1", "outcome.commit.before:1", "outcome.commit.after:1"),
    "--edit": ("intent.commit.before:1", "intent.commit.after:1", "outcome.commit.before:1", "outcome.commit.after:1"),
    "--reject": ("intent.commit.before:1", "finish.commit.before:1", "finish.commit.after:1"),
}
KILLS = [(given, step) for given, steps in STEPS_OF.items() for step in steps]


@pytest.mark.parametrize(("given", "step"), KILLS, ids=lambda value: value.strip("-"))
def test_a_driver_killed_after_the_answer_is_followed_by_one_that_keeps_it(sandbox: Sandbox, given: str, step: str) -> None:
    ask(sandbox)
    assert answer(sandbox, given).code == 0
    second = sandbox.start("drive", sandbox.state, epoch=2, wait=(f"driver@2:{step}",))
    sandbox.steps.kill(f"driver@2:{step}", second)
    second.end()
    sandbox.drive()
    assert (kinds(sandbox).count("approval_asked"), kinds(sandbox).count("approval_answered")) == (1, 1)
    assert read_contents(sandbox.root) == OUTCOMES[given]


@pytest.mark.parametrize("step", ["asked.commit.before", "asked.commit.after"])
def test_a_question_killed_at_its_commit_is_asked_once(sandbox: Sandbox, step: str) -> None:
    session = sandbox.session(bash(FIRST, approve=True))
    driver = sandbox.start("run", session, epoch=1, wait=(f"driver@1:{step}:1",))
    sandbox.steps.kill(f"driver@1:{step}:1", driver)
    driver.end()
    sandbox.drive(expect=78)
    assert kinds(sandbox).count("approval_asked") == 1


@pytest.mark.parametrize(("given", "step"), list(itertools.product(ANSWERS, ["answered.commit.before", "answered.commit.after"])))
def test_an_answer_killed_at_its_commit_is_given_again(sandbox: Sandbox, given: str, step: str) -> None:
    """Idempotent: given twice it stands once."""
    ask(sandbox)
    (sandbox.base / "edited.toml").write_text('tool = "bash"\nrun = "echo other >> a"\n')
    file = (sandbox.base / "edited.toml",) if given == "--edit" else ()
    person = sandbox.start("answer", sandbox.state, given, *file, wait=(f"person@0:{step}:1",))
    sandbox.steps.kill(f"person@0:{step}:1", person)
    person.end()
    again = answer(sandbox, given)
    assert again.code == 0 and ("already" in again.out) == (step == "answered.commit.after"), again.err
    sandbox.drive()
    assert kinds(sandbox).count("approval_answered") == 1 and read_contents(sandbox.root) == OUTCOMES[given]


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(ANSWERS, 2)))
def test_another_answer_than_the_one_that_stands_is_refused(sandbox: Sandbox, first: str, second: str) -> None:
    ask(sandbox)
    assert answer(sandbox, first).code == 0
    refused = answer(sandbox, second)
    assert refused.code == 78 and "already, at a question that has one answer" in refused.sentence()
    sandbox.drive()
    assert read_contents(sandbox.root) == OUTCOMES[first]


def test_of_two_answers_at_once_one_stands(sandbox: Sandbox) -> None:
    """The slower one has read the question unanswered; its append finds that the head moved."""
    ask(sandbox)
    step = "person@0:answered.commit.before:1"
    slow = sandbox.start("answer", sandbox.state, "--reject", wait=(step,))
    sandbox.steps.wait(step, slow)
    assert answer(sandbox, "--approve").code == 0
    sandbox.steps.release(step)
    assert slow.end() == 78 and "call 1 is approved already" in slow.sentence()
    assert kinds(sandbox).count("approval_answered") == 1


def test_an_answer_is_about_its_call_only(sandbox: Sandbox) -> None:
    """An interrupted call that is run again as a new one asks anew."""
    run = '[ -e "$GATE" ] || { touch "$GATE"; kill -9 $PPID; }; echo x > a'
    session = sandbox.session(bash(run, approve=True), on_interrupted="reissue")
    assert sandbox.run("run", session).code == 78
    assert answer(sandbox, "--approve").code == 0
    sandbox.drive(expect=1)
    sandbox.drive(expect=78)
    assert kinds(sandbox).count("approval_asked") == 2 and sandbox.settled() == [(1, 1, "interrupted", "restore_and_interrupt")]
    assert answer(sandbox, "--approve").code == 0
    sandbox.drive()
    assert read_contents(sandbox.root) == {"a": b"x\n"}


def test_what_a_person_says_wrongly_is_refused_in_one_sentence(sandbox: Sandbox) -> None:
    ask(sandbox)
    cases = {
        (): "give one answer",
        ("--approve", "--reject"): "give one answer",
        ("--edit", str(sandbox.base / "missing.toml")): "missing.toml: no such file",
        ("--reject", "--reason", "\udcff"): "--reason \\xff: not UTF-8",
    }
    for arguments, says in cases.items():
        refused = sandbox.run("answer", sandbox.state, *arguments)
        assert refused.code == 78 and says in refused.sentence()
    (sandbox.base / "bad.json").write_text('{"tool": "write", "path": "a", "content": "x"}')
    assert "call 1 is a bash call" in sandbox.run("answer", sandbox.state, "--edit", sandbox.base / "bad.json").sentence()
    assert "unknown key 'fly'" in _edit(sandbox, '{"tool": "bash", "run": "x", "fly": 1}')
    assert "not valid JSON" in _edit(sandbox, "{")
    assert kinds(sandbox).count("approval_answered") == 0
    done = sandbox.run("answer", sandbox.state, "--approve", "--json")
    assert json.loads(done.out) == {"session": "nightly", "call": 1, "asked_seq": 3, "answer": "approved", "is_new": True}


def _edit(sandbox: Sandbox, text: str) -> str:
    (sandbox.base / "edited.json").write_text(text)
    return sandbox.run("answer", sandbox.state, "--edit", sandbox.base / "edited.json").sentence()


def test_nothing_is_answered_where_nothing_waits(sandbox: Sandbox) -> None:
    sandbox.run("run", sandbox.session(bash("kill -9 $PPID")))
    assert "waits for no answer" in sandbox.run("answer", sandbox.state, "--approve").sentence()
