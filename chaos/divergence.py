"""Two transcripts of one trial compared: where the second left the first. Pure."""

from chaos.actions import format_action
from chaos.judging import find_first_difference
from chaos.transcript import Transcript


def find_divergence(recorded: Transcript, replayed: Transcript) -> str:
    """The first difference as one sentence, "" when both did the same: an action that fired in one only, then the first differing event."""
    plan = recorded.result.trial.plan
    for number, (before, now) in enumerate(zip(recorded.result.faults, replayed.result.faults, strict=False)):
        if before.fired != now.fired:
            fired, other = ("fired when recorded", "not now") if before.fired else ("did not fire when recorded", "but now")
            note = f" ({now.note or before.note})" if now.note or before.note else ""
            return f"action {number + 1}, {format_action(plan[number])}, {fired}, {other}{note}"
    return find_first_difference(recorded.events, replayed.events)
