r"""A ready-made redaction hook: what matches a pattern is never written into a payload. Pure.

It covers what people and programs write into events: inputs, scripts, notes, reasons, facts, errors. It leaves what events refer to each
other by: names of sessions, kinds, labels, request ids, keys of calls, digests, root hashes, paths, identities. It does not see file
contents and outputs: they are blobs. So a secret that a call writes into a file, prints, or puts into the name of a file is in the log.
"""

import base64
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from eventlog import events
from eventlog.records import Redact

REDACTED = "[redacted]"

TEXT_FIELDS: dict[type[events.Event], tuple[str, ...]] = {
    events.SessionOpened: ("script",),
    events.SessionForked: ("script", "inputs"),
    events.SessionPlaced: (),
    events.DriverStarted: (),
    events.WorkspaceObserved: (),
    events.InputAdmitted: ("input",),
    events.AttemptStarted: ("input",),
    events.CallSettled: ("reason", "exit"),
    events.CallUndone: ("reason",),
    events.CallReplayed: (),
    events.CheckpointTaken: (),
    events.ModeSwitched: ("reason",),
    events.RecoveryDecided: ("facts",),
    events.Quarantined: (),
    events.RestoreFinished: (),
    events.Synced: (),
    events.PauseRequested: ("reason",),
    events.ApprovalAsked: ("input",),
    events.ApprovalAnswered: ("input", "reason"),
    events.SessionPaused: ("reason",),
    events.SessionResumed: (),
    events.SessionMoved: (),
    events.SessionFinished: (),
    events.SessionFailed: ("reason",),
    events.RootRecorded: (),
    events.Noted: ("text",),
}
"""For each kind, the fields that hold free text, at any depth. Everything else is a reference and stays as it is."""



def mask(patterns: Sequence[re.Pattern[str]]) -> Redact:
    """A hook that replaces every match of every pattern by `[redacted]`, in the order of the patterns.

    In objects both keys and values are looked at. Bytes that stand as `{"b64": ...}` are looked at as the text they decode to, with
    surrogate escapes for what is not UTF-8. Raises ValueError for a pattern that matches nothing at all (the empty text).
    """
    for pattern in patterns:
        if pattern.search(""):
            raise ValueError(f"the pattern {pattern.pattern!r} matches the empty text; it would redact between any two letters")

    def redact(event: events.Event) -> events.Event:
        changed = {name: _mask_field(getattr(event, name), patterns) for name in TEXT_FIELDS[type(event)]}
        return msgspec.structs.replace(event, **changed) if changed else event

    return redact


def _mask_field(value: Any, patterns: Sequence[re.Pattern[str]]) -> Any:
    if isinstance(value, events.Exit):
        return value if value.error is None else msgspec.structs.replace(value, error=_mask_text(value.error, patterns))
    if isinstance(value, list) and value and isinstance(value[0], events.ForkedInput):
        return [msgspec.structs.replace(one, input=_mask_value(one.input, patterns)) for one in value]
    return _mask_value(value, patterns)


def _mask_value(value: Any, patterns: Sequence[re.Pattern[str]]) -> Any:
    match value:
        case str():
            return _mask_text(value, patterns)
        case {"b64": str() as encoded, **rest} if not rest:
            return _mask_bytes(encoded, patterns)
        case dict():
            return _mask_object(value, patterns)
        case list() | tuple():
            return [_mask_value(item, patterns) for item in value]
        case _:
            return value


def _mask_object(value: dict[Any, Any], patterns: Sequence[re.Pattern[str]]) -> dict[Any, Any]:
    """Two keys that become one get numbers: nothing that stood under them is lost."""
    masked: dict[Any, Any] = {}
    for key, item in value.items():
        name = _mask_text(key, patterns) if isinstance(key, str) else key
        free, number = name, 2
        while free in masked:
            free, number = f"{name} {number}", number + 1
        masked[free] = _mask_value(item, patterns)
    return masked


def _mask_bytes(encoded: str, patterns: Sequence[re.Pattern[str]]) -> Any:
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    except ValueError:
        return {"b64": _mask_text(encoded, patterns)}
    masked = _mask_text(text, patterns)
    if masked == text:
        return {"b64": encoded}
    data = masked.encode("utf-8", "surrogateescape")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode("ascii")}


def _mask_text(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(lambda _: REDACTED, text)
    return text
