"""What became of a session's calls and workspace, told from its log alone, for the recovery note. Pure over stored events."""

from collections.abc import Iterable
from typing import Any

import msgspec

from eventlog import events
from eventlog.reader import StoredEvent
from eventlog.show import show_path, show_text
from recovery.labels import Label
from recovery.script import TOOL_RUN, decode_bytes

MOST_SHOWN = 160
"""Characters of one command or path: a note names a call, it does not repeat it."""


class ToldCall(msgspec.Struct, frozen=True):
    """One call: `what` is its command or path, escaped and cut. `ended` None: it is open. `attempts` counts those that may have run: one
    that was void, provably never did. `exit` is in words, "" for none. `may_remain`: a person took the workspace as it was found, so that
    what an interrupted call did may be in it."""

    call: int
    key: str
    tool: str
    what: str
    attempts: int = 1
    ended: events.Ended | None = None
    exit: str = ""
    changed: int = 0
    reason: str = ""
    undone_by: int | None = None
    may_remain: bool = False


class ToldRestore(msgspec.Struct, frozen=True):
    """A restore: the decision's seq and label, the event whose image was restored; counts once it is finished, and what it moved away.
    `accepted`: it was never carried out, a person took the workspace as it was found."""

    decision_seq: int
    label: str
    target_seq: int
    restored: int | None = None
    directory: str = ""
    moved: tuple[str, ...] = ()
    accepted: bool = False


class Story(msgspec.Struct):
    """A session as told. `outside` counts the changes that were made outside any call; `accepted` what a person or a driver noted."""

    calls: dict[int, ToldCall] = msgspec.field(default_factory=dict)
    restores: dict[int, ToldRestore] = msgspec.field(default_factory=dict)
    outside: int = 0
    notes: list[str] = msgspec.field(default_factory=list)

    def take(self, stored: StoredEvent) -> None:
        """Fold one event."""
        match stored.event:
            case events.SessionForked() as event:
                self.calls = {call.call: _carried(call) for call in event.calls}
            case events.AttemptStarted() as event:
                known = self.calls.get(event.call)
                attempts = 1 if known is None else known.attempts + 1
                self.calls[event.call] = ToldCall(event.call, show_text(event.request_id), event.tool, describe_call(event), attempts)
            case events.CallSettled() as event:
                self._settle(event, sum(change.op != "times" for change in stored.changes))
            case events.CallUndone() as event if event.call in self.calls:
                self.calls[event.call] = msgspec.structs.replace(self.calls[event.call], undone_by=event.decision_seq)
            case events.RecoveryDecided() as event:
                self._decide(event, stored.seq)
            case events.Quarantined() as event if event.decision_seq in self.restores:
                moved = tuple(show_path(decode_bytes(path, "quarantined")) for path in event.paths)
                told = self.restores[event.decision_seq]
                self.restores[event.decision_seq] = msgspec.structs.replace(told, directory=event.directory, moved=moved)
            case events.RestoreFinished() as event if event.decision_seq in self.restores:
                told = self.restores[event.decision_seq]
                self.restores[event.decision_seq] = msgspec.structs.replace(told, restored=event.restored, accepted=event.accepted)
            case events.WorkspaceObserved():
                self.outside += 1
            case events.Noted() as event:
                self.notes.append(_cut(show_text(event.text)))
            case _:
                pass

    def _settle(self, event: events.CallSettled, changed: int) -> None:
        known = self.calls.get(event.call)
        if known is not None:
            self.calls[event.call] = msgspec.structs.replace(
                known, ended=event.ended, exit=describe_exit(event.exit), changed=changed, reason=_cut(show_text(event.reason)),
                may_remain=event.label == Label.ACCEPT_BY_PERSON,
            )  # fmt: skip

    def _decide(self, event: events.RecoveryDecided, seq: int) -> None:
        if event.label == "void_and_run" and event.call in self.calls:
            known = self.calls[event.call]
            self.calls[event.call] = msgspec.structs.replace(known, attempts=max(0, known.attempts - 1))
        if event.obligation:
            self.restores[seq] = ToldRestore(seq, event.label, event.target_seq or 0)


def tell_story(stored: Iterable[StoredEvent]) -> Story:
    """The story of a stream, from its first event on."""
    story = Story()
    for one in stored:
        story.take(one)
    return story


def describe_call(started: events.AttemptStarted) -> str:
    """A call's command or path in a few words, escaped."""
    words = _describe_input(started.input)
    return f"{words} (recorded redacted)" if started.redacted else words


def _describe_input(given: dict[str, Any]) -> str:
    for name in ("run", "path"):
        if name in given:
            text = show_path(decode_bytes(given[name], name))
            return _cut(text.removeprefix(TOOL_RUN))
    return ""


def describe_exit(exit_: events.Exit | None) -> str:
    """An exit in words, "" for none."""
    if exit_ is None:
        return ""
    by = f"exit {exit_.code}" if exit_.code is not None else f"signal {exit_.signal}"
    match exit_.kind:
        case "exited" | "signaled":
            return by
        case "timed_out":
            return f"timed out, {by}"
        case "start_failed":
            return _cut(f"not started: {show_text(exit_.error or '')}")


def _carried(call: events.ForkedCall) -> ToldCall:
    return ToldCall(call.call, show_text(call.request_id), call.tool, "before the fork", 1, call.ended, describe_exit(call.exit))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + " ..."
