"""The recovery note: what of a session completed, may have partly run, was restored, lies in quarantine, and what a person must do.

For a model that goes on with the work, or a person. It states what the log says and nothing else, in at most as many bytes as are given:
newest first, and what had no room is counted. Names are escaped. Pure: a story and a folded state in, text or a JSON object out.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from eventlog.errors import MisuseError
from recovery.left_behind import describe_stale, is_stale
from recovery.state import SessionState
from recovery.story import Story, ToldCall, ToldRestore
from recovery.words import describe_way_on

DEFAULT_BYTES = 4096
LEAST_BYTES = 1024
"""The lines that are in every note fit into this."""
MOST_LISTED = 100
"""Of each list, before the bytes are counted: a session may have thousands of calls."""
MOST_MOVED = 20
"""Paths of one restore."""


class Note(msgspec.Struct, frozen=True):
    """What a note says; each list newest first. `left_out` counts, by list, what had no room."""

    session: str
    seq: int
    epoch: int
    status: str
    calls: int
    outside: int
    must: tuple[str, ...]
    partly: tuple[ToldCall, ...]
    restores: tuple[ToldRestore, ...]
    completed: tuple[ToldCall, ...]
    notes: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...] = ()
    place: str = "STATE_DIR"


def make_note(state: SessionState, story: Story, place: str = "STATE_DIR") -> Note:
    """The whole note, before it is fitted into its bytes; its commands name the state directory `place`."""
    calls = sorted(story.calls.values(), key=lambda call: -call.call)
    partly = tuple(call for call in calls if call.ended != "finished" or call.attempts > 1)
    completed = tuple(call for call in calls if call.ended == "finished")
    restores = tuple(one for _, one in sorted(story.restores.items(), reverse=True))
    note = Note(
        state.opened.name, state.head_seq, state.floor, _status(state), len(calls), story.outside, _must(state, place), partly, restores,
        completed, tuple(reversed(story.notes)), place=place,
    )  # fmt: skip
    for name in ("partly", "restores", "completed", "notes"):
        note = _shorten(note, name, MOST_LISTED)
    return note


def _status(state: SessionState) -> str:
    if state.is_finished:
        return "finished"
    if state.obligation is not None:
        return "a restore is open"
    if state.open_call is not None:
        return "a call is open"
    if state.is_paused:
        return "paused"
    if _is_asked(state):
        return "a person is asked"
    return "at rest"


def _is_asked(state: SessionState) -> bool:
    return state.approval is not None and state.approval.answer is None


def _must(state: SessionState, place: str) -> tuple[str, ...]:
    """What does not go on by itself, or only with the next driver. What else needs a person is known to a driver only: `plan` says it."""
    if state.is_finished:
        return ()
    found = []
    call = state.open_call
    way_on = describe_way_on(bool(state.opened.script), place)
    if not state.is_placed:
        found.append(f"give the session a workspace: `recovery place {place} --workspace DIR`")
    if state.obligation is not None:
        found.append(f"the restore decided at seq {state.obligation.seq} is not finished: open the session, or `recovery drive {place}`")
    elif call is not None:
        began = "provably did not start" if call.last.is_void else "may have run, be running, or have partly run"
        found.append(f"call {call.number} is open and {began}: the next driver decides; `recovery plan {place}` says what it would do")
    if state.is_paused:
        found.append(f"the session is paused: {way_on} ends the pause")
    elif state.pause_asked is not None:
        found.append(f"a pause is asked for: the session pauses before its next call, then {way_on} goes on")
    if state.approval is not None and _is_asked(state):
        found.append(f"call {state.approval.call} waits for a person's word: `recovery answer {place}` with --approve, --edit or --reject")
    if is_stale(state.untracked):
        found.append(f"the newest image is stale: {describe_stale(state.untracked)}; it is no restore target")
    return tuple(found)


def write_text(note: Note) -> str:
    """A note as plain text, a line for each thing."""
    lines = [f"session {note.session}: {note.status}; seq {note.seq}, epoch {note.epoch}, {note.calls} calls"]
    lines += [f"must be done: {one}" for one in note.must]
    lines += [_partly_line(call) for call in note.partly]
    lines += [_restore_line(one, note.place) for one in note.restores]
    lines += [_completed_line(call) for call in note.completed]
    if note.outside:
        lines.append(f"changes made outside any call were recorded {note.outside} times")
    lines += [f"noted: {text}" for text in note.notes]
    lines += [f"left out for room, older: {count} of {name}" for name, count in note.left_out]
    return "\n".join(lines) + "\n"


def _named(call: ToldCall) -> str:
    key = f" key {call.key}" if call.key else ""
    return f"call {call.call}{key}, {call.tool} {call.what}".rstrip()


def _partly_line(call: ToldCall) -> str:
    tries = f"{call.attempts} attempts" if call.attempts != 1 else "1 attempt"
    if call.ended is None:
        return f"not ended: {_named(call)}: {tries} may have run"
    if call.ended == "finished":
        return f"ran again: {_named(call)}: {tries}; what an earlier one did outside the workspace may be there too"
    why = f" ({call.reason})" if call.reason else ""
    what = "what it did may be half done, in the workspace and elsewhere"
    if not call.may_remain:
        what = "nothing of it is in the workspace, what it did elsewhere may be half done"
    return f"interrupted: {_named(call)}: {tries}; {what}{why}"


def _restore_line(one: ToldRestore, place: str) -> str:
    begun = f"{one.label} decided at seq {one.decision_seq}, to the image at seq {one.target_seq}"
    if one.restored is None:
        return f"restore not finished: {begun}"
    if one.accepted:
        return f"not restored: {begun}: a person took the workspace as it was found{_moved_words(one, place)}"
    if not one.moved:
        return f"restored: {begun}: {one.restored} paths, nothing moved away"
    return f"restored: {begun}: {one.restored} paths{_moved_words(one, place)}"


def _moved_words(one: ToldRestore, place: str) -> str:
    if not one.moved:
        return ""
    more = f" and {len(one.moved) - MOST_MOVED} more" if len(one.moved) > MOST_MOVED else ""
    kept = f"in quarantine (`recovery quarantine show {place} {one.decision_seq}`)"
    return f"; {kept}: {', '.join(one.moved[:MOST_MOVED])}{more}"


def _completed_line(call: ToldCall) -> str:
    undone = f"; undone by the restore decided at seq {call.undone_by}" if call.undone_by is not None else ""
    ended = f"{call.exit}, " if call.exit else ""
    return f"completed: {_named(call)}: {ended}{call.changed} paths changed{undone}"


def write_json(note: Note) -> str:
    """A note as one JSON object on one line."""
    body = {
        "session": note.session,
        "seq": note.seq,
        "epoch": note.epoch,
        "status": note.status,
        "calls": note.calls,
        "must": note.must,
        "partly": [_call_json(call) for call in note.partly],
        "restores": [_restore_json(one) for one in note.restores],
        "completed": [_call_json(call) for call in note.completed],
        "outside": note.outside,
        "notes": note.notes,
        "left_out": dict(note.left_out),
    }
    return json.dumps(body) + "\n"


def _call_json(call: ToldCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in ToldCall.__struct_fields__}


def _restore_json(one: ToldRestore) -> dict[str, Any]:
    told = {name: getattr(one, name) for name in ToldRestore.__struct_fields__}
    return told | {"moved": one.moved[:MOST_MOVED], "moved_in_all": len(one.moved)}


def fit_note(note: Note, limit: int, write: Callable[[Note], str]) -> str:
    """The note as `write` writes it, in at most `limit` bytes of UTF-8: the oldest of what matters least goes first.

    Raises MisuseError for fewer than LEAST_BYTES.
    """
    if limit < LEAST_BYTES:
        raise MisuseError(f"a note in {limit} bytes would say nothing; give at least {LEAST_BYTES}")
    while len((text := write(note)).encode()) > limit:
        for name in ("notes", "completed", "restores", "partly"):
            listed = getattr(note, name)
            if listed:
                note = _shorten(note, name, len(listed) - max(1, len(listed) // 10))
                break
        else:
            raise MisuseError(f"the note does not fit in {limit} bytes; give more")
    return text


def _shorten(note: Note, name: str, most: int) -> Note:
    """The note with at most `most` of a list, the rest counted."""
    listed = getattr(note, name)
    if len(listed) <= most:
        return note
    counted = dict(note.left_out)
    counted[name] = counted.get(name, 0) + len(listed) - most
    return msgspec.structs.replace(note, **{name: listed[:most]}, left_out=tuple(counted.items()))
