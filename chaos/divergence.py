"""Two transcripts of one trial compared: where the second left the first. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.actions import format_action
from chaos.transcript import Transcript


def find_divergence(recorded: Transcript, replayed: Transcript) -> str:
    """The first difference as one sentence, "" when both did the same: an action that fired in one only, then the first differing event."""
    plan = recorded.result.trial.plan
    for number, (before, now) in enumerate(zip(recorded.result.faults, replayed.result.faults, strict=False)):
        if before.fired != now.fired:
            fired, other = ("fired when recorded", "not now") if before.fired else ("did not fire when recorded", "but now")
            note = f" ({now.note or before.note})" if now.note or before.note else ""
            return f"action {number + 1}, {format_action(plan[number])}, {fired}, {other}{note}"
    return _compare_events(recorded.events, replayed.events)


def _compare_events(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    for number, (one, other) in enumerate(zip(before, now, strict=False), 1):
        if one != other:
            field = next(name for name in (*one, *other) if one.get(name) != other.get(name))
            return f"event {number}: {field} was {_show(one.get(field))}, now it is {_show(other.get(field))}"
    if len(before) != len(now):
        longer, where = (before, "recorded") if len(before) > len(now) else (now, "replayed")
        number = min(len(before), len(now))
        return f"event {number + 1} stands only in the {where} history: {_show(longer[number])}"
    return ""


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= 300 else f"{text[:300]}..."
