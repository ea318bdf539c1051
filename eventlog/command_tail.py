"""`eventlog tail`: events as they come, and at the end how late they were seen."""

import contextlib
import json
import math
import signal
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
import typer

from eventlog.call_history import annotate
from eventlog.command_options import HIGHEST_SEQ, JsonOption, LogArgument, SessionOption, log_path
from eventlog.event_lines import event_json, event_line
from eventlog.follow import Followed, Follower
from eventlog.ports import Clock, SystemClock
from eventlog.reader import Reader, StoredEvent
from eventlog.streams import choose_stream
from eventlog.values import Seq, StreamId

FromOption = Annotated[
    int | None, typer.Option("--from", metavar="SEQ", min=1, max=HIGHEST_SEQ, help="begin with this event; else with the next one to come")
]
UntilEndOption = Annotated[bool, typer.Option("--until-end", help="stop when the session has finished, failed or moved away")]
ForOption = Annotated[float, typer.Option("--for", metavar="SECONDS", min=0.0, help="stop after this long; else when interrupted")]


class Lag(msgspec.Struct):
    """How long after they were made (`at_ms`) new events were seen, in milliseconds. What stood before the first look has no lag."""

    events: int = 0
    found_ms: list[int] = msgspec.field(default_factory=list)

    def note(self, followed: Followed) -> None:
        self.events += 1
        if followed.is_new:
            self.found_ms.append(followed.seen_ms - followed.stored.event.at_ms)

    def median(self) -> int | None:
        """The middle one (of two, the later); None without new events."""
        return sorted(self.found_ms)[len(self.found_ms) // 2] if self.found_ms else None

    def largest(self) -> int | None:
        return max(self.found_ms, default=None)


def describe_lag(lag: Lag, polls: int) -> str:
    """The last line, for people."""
    measured = f"lag p50 {lag.median()} ms, max {lag.largest()} ms" if lag.found_ms else "no lag to measure"
    return f"tail: {lag.events} events, {len(lag.found_ms)} of them new, {measured}, {polls} polls"


def lag_as_json(lag: Lag, polls: int) -> str:
    """The last line, for programs."""
    found = {"events": lag.events, "new": len(lag.found_ms), "p50_ms": lag.median(), "max_ms": lag.largest(), "polls": polls}
    return json.dumps({"lag": found})


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def tail(
        log: LogArgument,
        session: SessionOption = None,
        first: FromOption = None,
        until_end: UntilEndOption = False,
        seconds: ForOption = math.inf,
        as_json: JsonOption = False,
    ) -> None:
        """Print events as they are committed; at the end one line with the lag. Looks at most once in 100 ms."""

        def line(stream: StreamId, stored: StoredEvent) -> str:
            return json.dumps(event_json(stream, next(annotate([stored])))) if as_json else event_line(stream, stored)

        clock = SystemClock()
        lag = Lag()
        with contextlib.closing(open_follower(log_path(log), session, first or 0, clock)) as follower, interruption() as is_interrupted:
            for followed in follower.follow(is_interrupted, deadline=clock.monotonic() + seconds, until_end=until_end):
                print(line(followed.stream, followed.stored), flush=True)
                lag.note(followed)
        print(lag_as_json(lag, follower.polls) if as_json else describe_lag(lag, follower.polls), flush=True)


def open_follower(path: str, session: str | None, first: int, clock: Clock) -> Follower:
    """A follower of one session, or of all; from event `first` on, or from now on when that is 0. Raises MisuseError, as `Follower`."""
    stream = StreamId(session) if session else None
    if first and stream is None:
        with contextlib.closing(Reader.open(path, clock)) as reader:
            stream = choose_stream(reader, session).id
    follower = Follower(path, clock, stream)
    try:
        if first:
            follower.begin_after(Seq(first - 1))
        else:
            follower.begin_at_heads()
    except BaseException:
        follower.close()
        raise
    return follower


@contextlib.contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM has come: the events seen so far are printed whole, and the last line stands after them."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
