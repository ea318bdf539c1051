"""The calls of a stream, put together from their events once for all oracles that speak of calls."""

from dataclasses import dataclass, field

from .values import Event, Stream


@dataclass(slots=True)
class Call:
    """One call: its intents and settlements in order of seq. A call the log lost may be settled without any intent."""

    number: int
    attempts: list[Event] = field(default_factory=list)
    settlements: list[Event] = field(default_factory=list)

    def finish(self) -> Event | None:
        """The `call_settled` that says finished, if any."""
        return next((event for event in self.settlements if event.payload["ended"] == "finished"), None)

    def finished_attempt(self) -> Event | None:
        """The intent of the attempt that the finish names, if there is one."""
        finish = self.finish()
        if finish is None:
            return None
        return next((event for event in self.attempts if event.payload["attempt"] == finish.payload["attempt"]), None)

    def script_index(self) -> int | None:
        """The place in the script, None for a call outside it or without an intent."""
        index: int | None = self.attempts[0].payload["script_index"] if self.attempts else None
        return index


def calls_of(stream: Stream) -> list[Call]:
    """The calls in order of their first event."""
    calls: dict[int, Call] = {}
    for event in stream.of_kind("attempt_started", "call_settled"):
        number = event.payload["call"]
        call = calls.setdefault(number, Call(number))
        (call.attempts if event.kind == "attempt_started" else call.settlements).append(event)
    return list(calls.values())
