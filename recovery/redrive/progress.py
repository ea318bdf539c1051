"""What counts as progress of a session: that it got on, not that something happened in it. Pure."""

from eventlog import events
from recovery.labels import BY_PERSON


class Progress:
    """Taken event by event: which of them say that the session got on.

    A call that finished, further in the script than any before it; a person's word or restore, a pause, the end. Drivers that only recover,
    interrupt and begin again get nowhere, however often (case 26); nor do those that run again what a lost checkpoint took back.
    """

    def __init__(self) -> None:
        self._index: int | None = None  # of the newest call in the script
        self._furthest = -1

    def take(self, event: events.Event) -> bool:
        """Whether this event is progress."""
        match event:
            case events.AttemptStarted():
                self._index = event.script_index
                return False
            case events.CallSettled():
                return event.ended == "finished" and self._is_further()
            case events.RecoveryDecided():
                is_wish = event.label in BY_PERSON
                self._furthest = -1 if is_wish else self._furthest
                return is_wish
            case events.ApprovalAnswered() | events.SessionPaused() | events.SessionFinished():
                return True
            case _:
                return False

    def _is_further(self) -> bool:
        if self._index is None:  # no script says what comes next
            return True
        is_further = self._index > self._furthest
        self._furthest = max(self._furthest, self._index)
        return is_further
