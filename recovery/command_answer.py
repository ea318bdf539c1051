"""`recovery answer`: a person's word about a call that waits for it (`approve = true`). It stands in the log, once; nobody has to wait.

The same answer given again changes nothing and is no error; another one is refused, and the one that stands is named.
"""

import json
from pathlib import Path
from typing import Any, Literal

from eventlog import events
from eventlog.command_options import check_text
from eventlog.errors import MisuseError
from eventlog.show import show_text, show_word
from recovery.asking import append_judged, check_going_on
from recovery.driver.order import Ports
from recovery.script import call_to_json, parse_calls
from recovery.session_file import load_toml
from recovery.state import Approval, SessionState
from recovery.words import describe_way_on

Answer = Literal["approved", "edited", "rejected"]


def choose_answer(approve: bool, edit: Path | None, reject: bool) -> Answer:
    """The one answer that was given. Raises MisuseError for none and for several."""
    given: list[Answer] = []
    given += ["approved"] if approve else []
    given += ["edited"] if edit is not None else []
    given += ["rejected"] if reject else []
    if len(given) != 1:
        raise MisuseError("recovery answer: give one answer: --approve, --edit FILE or --reject")
    return given[0]


def answer(state_directory: str, given: Answer, edit: Path | None, reason: str, as_json: bool, ports: Ports) -> int:
    """Commit the answer; the exit code. Raises MisuseError where nothing waits or another answer stands, LogMissingError, CorruptError."""
    check_text("--reason", reason)
    edited = None if edit is None else load_edited(edit)

    def judge(state: SessionState) -> events.ApprovalAnswered | None:
        asked = _find_question(state, state_directory)
        _check_tool(edited, asked)
        if asked.answer is not None:
            _check_same(asked, given, edited)
            return None
        return events.ApprovalAnswered(ports.clock.now_ms(), asked.seq, given, edited, reason)

    before = append_judged(state_directory, ports.ids, judge, "answered")
    asked = _find_question(before, state_directory)
    is_new = asked.answer is None
    if as_json:
        print(json.dumps({"session": before.opened.name, "call": asked.call, "asked_seq": asked.seq, "answer": given, "is_new": is_new}))
    else:
        how = "" if is_new else " already"
        way_on = describe_way_on(bool(before.opened.script), show_word(state_directory))
        print(f"call {asked.call} of session {before.opened.name} is {given}{how}; {way_on} goes on")
    return 0


def load_edited(file: Path) -> dict[str, Any]:
    """The call in a file, TOML or (`.json`) JSON: the keys of a `[[call]]`, or one such table. Raises MisuseError."""
    table = _load_json(file) if file.suffix == ".json" else load_toml(file)
    if set(table) == {"call"} and isinstance(table["call"], list) and len(table["call"]) == 1:
        table = table["call"][0]
    if isinstance(table, dict):
        table = {key: value for key, value in table.items() if value is not None}  # as `approval_asked` shows a call in the log
    return call_to_json(parse_calls([table], str(file))[0])


def _load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise MisuseError(f"{file}: no such file") from error
    except OSError as error:
        raise MisuseError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MisuseError(f"{file}: not valid JSON: {error}") from error


def _find_question(state: SessionState, state_directory: str) -> Approval:
    check_going_on(state, state_directory)
    if state.approval is None:
        raise MisuseError(
            f"session {state.opened.name} in {show_text(state_directory)} waits for no answer; `recovery plan "
            f"{show_word(state_directory)}` says what comes next"
        )
    return state.approval


def _check_tool(edited: dict[str, Any] | None, asked: Approval) -> None:
    """An edited call is the same tool's: what was asked about is changed, not replaced by something else."""
    if edited is not None and edited["tool"] != asked.tool:
        raise MisuseError(
            f"call {asked.call} is a {asked.tool} call, and the file has a {edited['tool']} call; "
            "edit its input, not its tool"
        )


def _check_same(asked: Approval, given: Answer, edited: dict[str, Any] | None) -> None:
    if (asked.answer, asked.edited) != (given, edited):
        what = "edited otherwise" if asked.answer == given else f"{asked.answer}"
        raise MisuseError(f"call {asked.call} is {what} already, at a question that has one answer; nothing was changed")
