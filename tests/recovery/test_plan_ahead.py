"""What `recovery plan` says of the script once recovery is done: the drive asks after a cut call, an undone one and a lost one."""

from msgspec.structs import replace

from eventlog import events
from recovery.labels import Label
from recovery.plan import count_calls
from recovery.plan_ahead import look_ahead
from recovery.space.records import LedgerState
from tests.recovery.histories import EMPTY, History


def history(calls: int, on_interrupted: str = "stop") -> History:
    """The first call finished, the second open."""
    made = History(calls=calls)
    opened = made.stored[0].event
    assert isinstance(opened, events.SessionOpened)
    made.stored[0] = replace(made.stored[0], event=replace(opened, on_interrupted=on_interrupted))
    made.attempt()
    made.settle()
    made.attempt(script_index=1)
    return made


def test_what_follows_a_call_depends_on_the_end_that_it_will_have() -> None:
    state = history(3).state()
    assert look_ahead(state, [Label.ADOPT_EXIT], None, "S").then == "then call 3 of 3 of the script runs"
    cut = look_ahead(state, [Label.LEDGER_LOST, Label.RESTORE_AND_INTERRUPT], None, "S")
    assert cut.stops and "about interrupted call 2" in cut.then
    assert "`recovery drive S --on-interrupted reissue` runs it again" in cut.commands
    assert look_ahead(state, [Label.LEDGER_LOST, Label.ASK], None, "S").then == "then a person is needed"
    again = history(3, "reissue").state()
    assert look_ahead(again, [Label.RESTORE_AND_INTERRUPT], None, "S").then == "then call 2 of 3 of the script runs"
    assert "finishes, for good" in look_ahead(history(2).state(), [Label.ADOPT_EXIT], None, "S").then


def test_calls_that_an_older_checkpoint_gives_up_are_asked_about() -> None:
    made = history(2)
    made.settle()
    asked = look_ahead(made.state(), [Label.ROOT_LOST], None, "S", [1, 2])
    assert asked.stops and "about undone call 2" in asked.then and "runs the script again from its call 1" in asked.commands[0]


def test_calls_that_the_log_lost_are_asked_about_and_count_as_interrupted_once_they_have_ended() -> None:
    made = history(3)
    ledger = LedgerState()
    ledger.highest_call = 3
    assert "about the calls that the log lost" in look_ahead(made.state(), [Label.LOG_BEHIND_RESTORE], ledger, "S").then
    assert look_ahead(history(3, "continue").state(), [Label.LOG_BEHIND_RESTORE], ledger, "S").then == "then the script goes on"
    made.restore("log_behind_restore")
    made.add(events.CallSettled(0, 2, 1, "interrupted", "log_behind_restore", "", None, None, EMPTY, []))
    assert count_calls(made.state()) == {"finished": 1, "interrupted": 1}


def test_a_session_without_a_script_is_told_that_its_program_goes_on_before_the_command_that_ends_it() -> None:
    """Whoever follows the first command must not end a session whose program has more to ask for."""
    ahead = look_ahead(History(calls=0).state(), [Label.SETTLED], None, "S")
    assert ahead.stops and "has no script" in ahead.then
    goes_on, ends = ahead.commands
    assert goes_on.startswith("the program that opened it, started again (`open_session`), goes on")
    assert ends == "`recovery drive S --finish` ends it, for good"
