"""What a driver is asked to do, in which world, and where it tells of it."""

import contextlib
import os
import sys
from collections.abc import Callable

import msgspec

from eventlog.errors import NeedsPersonError
from eventlog.ports import Clock, Host, Ids
from eventlog.show import show_text
from recovery.context import Context
from recovery.script import OnInterrupted, Session


class Ports(msgspec.Struct, frozen=True):
    """The world of one driver."""

    clock: Clock
    ids: Ids
    host: Host


class Act(msgspec.Struct, frozen=True):
    """What a driver does in place of the script, once it has taken over (T1 to T3). `command` is what a refusal names to be run again;
    without `may_claim` a running command is condemned with the rest; with `is_fresh` its scans trust nothing that an earlier process
    remembered."""

    work: Callable[[Context], int]
    command: str
    may_claim: bool = True
    is_fresh: bool = False
    runs_commands: bool = False  # it may run those of the open call
    accepts_outside: bool = False  # its command has the option `--accept-outside`
    are_processes_dead: bool = False  # a person says so, of what cannot be proved (recovery settle --processes-dead)


class Order(msgspec.Struct, frozen=True):
    """What to drive: a session file's content, or (None) whatever the state directory holds. Only with `finish` is a session without a
    script ended, for good. `takes_calls`: calls come that no script names."""

    state: str
    session: Session | None
    on_interrupted: OnInterrupted | None = None
    accept_outside: str = ""
    act: Act | None = None
    finish: bool = False
    takes_calls: bool = False
    accept_lost: int = 0


def finished_error(state: str, name: str) -> NeedsPersonError:
    """The refusal of an act on a session that has ended."""
    return NeedsPersonError(
        f"session {name} in {show_text(state)} has finished and nothing follows its end; "
        f"`eventlog checkout` gives the files of any point, `recovery image NEWLOG --workspace DIR --new` begins another"
    )


def say(line: str) -> None:
    """A protocol line, on stdout."""
    # A reader that is gone, or a full device behind stdout, must not stop a session: the log has every outcome, the line only tells of it.
    with contextlib.suppress(OSError):
        os.write(1, line.encode() + b"\n")


def say_nothing(line: str) -> None:
    """Swallow a protocol line."""


def tell(line: str) -> None:
    """A line for people, on stderr."""
    with contextlib.suppress(OSError):  # as for stdout
        print(line, file=sys.stderr, flush=True)
