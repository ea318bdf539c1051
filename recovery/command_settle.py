"""`recovery settle`: what only a person can say. Each way out is a driver like any other: next epoch, fates, kills, then its act.

`--processes-dead`: nothing of a session's older epochs lives, where nothing can prove it (S9). What can be killed is killed all the same,
and what is seen alive and does not die stays an error. What is only unproved is taken for dead, and ledger and log say who said so.
Nothing is decided and no workspace path is looked at: the next drive recovers.

`--rebuild`, `--accept-root`: what the directory is that stands where the workspace was (D3).

`--ran`, `--not-run`, `--undo`, `--accept-workspace`: what the open call did, and how a restore ends that does not (D4, R5).

`--exclude`: a path that cannot be read is left out of the images (C5). `--discard`: what a call made is deleted, not kept (R4).
"""

import os
from collections.abc import Callable

from eventlog import events
from eventlog.errors import MisuseError
from eventlog.records import Record
from eventlog.show import as_word, show_text, show_word
from recovery.command_log import Place, find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.settings import Settings
from recovery.settle_call import accept_workspace, not_run, ran, undo
from recovery.settle_discard import discard
from recovery.settle_exclude import exclude
from recovery.settle_root import accept_root, check_away, rebuild
from recovery.words import naming_state

SAID = "a person says that no process of an older epoch lives (settle --processes-dead)"


def settle_rebuild(log: str, settings: Settings, ports: Ports) -> int:
    """Rebuild the workspace from the log in whatever is there; the exit code. Raises as `settle_processes` does."""
    command = f"recovery settle {show_word(log)} --rebuild"
    place = _find_away(log, command)

    def work(context: Context) -> int:
        rebuild(context)
        context.tell(f"the workspace equals the log; {place.way_on} goes on")
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


def settle_root(log: str, settings: Settings, ports: Ports) -> int:
    """Take the directory that is there as the workspace; the exit code. Raises as `settle_processes` does."""
    command = f"recovery settle {show_word(log)} --accept-root"
    place = _find_away(log, command)

    def work(context: Context) -> int:
        accept_root(context)
        context.tell(
            f"{show_text(context.root)} is the workspace from here on; {place.way_on} records what differs in it as an outside change"
        )
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


def settle_ran(log: str, settings: Settings, ports: Ports) -> int:
    """Take what is there for the open call's result; the exit code. Raises as `settle_processes` does."""
    return _settle_open(log, "--ran", ran, "it is settled as finished, its exit unknown", settings, ports, may_claim=True)


def settle_not_run(log: str, settings: Settings, ports: Ports) -> int:
    """Restore the image before the open call, which the next drive runs; the exit code. Raises as `settle_processes` does."""
    return _settle_open(log, "--not-run", not_run, "the image before it is restored, and it runs", settings, ports, may_claim=True)


def settle_undo(log: str, settings: Settings, ports: Ports) -> int:
    """Restore the image before the open call, and end it as interrupted; the exit code. Raises as `settle_processes` does."""
    return _settle_open(log, "--undo", undo, "the image before it is restored, and it ended interrupted", settings, ports, may_claim=False)


def settle_workspace(log: str, root: str, settings: Settings, ports: Ports) -> int:
    """End the open restore with the workspace as it is; the exit code. Raises as `settle_processes` does."""

    def accept(context: Context) -> None:
        accept_workspace(context, root)

    option = f"--accept-workspace {as_word(show_text(root))}"
    place = find_place(log, None, f"recovery settle {show_word(log)} {option}", "name the state directory of a session")
    if not place.known.is_finished and place.known.obligation is None:
        raise MisuseError(
            f"recovery settle {option}: no restore is open in {show_text(place.state)}; {place.way_on} recovers"
        )
    return _settle(place, option, accept, f"the restore is ended, and the workspace is the image {root}", settings, ports, may_claim=False)


def settle_exclude(log: str, path: str, settings: Settings, ports: Ports) -> int:
    """Leave a path out of all images from here on; the exit code. Raises as `settle_processes` does."""
    option = f"--exclude {show_word(path)}"
    place = find_place(log, None, f"recovery settle {show_word(log)} {option}", "name the state directory of a session")
    relative = os.path.relpath(os.path.join(place.workspace, path), place.workspace)
    if relative == "." or relative.startswith(".."):
        raise MisuseError(f"recovery settle {option}: name a path below the workspace {show_text(place.workspace)}")

    def leave_out(context: Context) -> None:
        exclude(context, os.fsencode(relative))

    done = f"{show_text(relative)} is left out of the images and never touched from here on"
    return _settle(place, option, leave_out, done, settings, ports, may_claim=True)


def settle_discard(log: str, call: int, settings: Settings, ports: Ports) -> int:
    """Restore the image before the open call, and delete what that displaces; the exit code. Raises as `settle_processes` does."""

    def delete(context: Context) -> None:
        count = discard(context, call)
        context.tell(f"call {call}: {count} paths that its restore displaced were deleted, for ever")

    return _settle_open(log, f"--discard {call}", delete, "the image before it is restored", settings, ports, may_claim=True)


def _settle_open(
    log: str, option: str, act: Callable[[Context], None], done: str, settings: Settings, ports: Ports, *, may_claim: bool
) -> int:  # fmt: skip
    """An act on the open call. Raises MisuseError before the takeover where none is open: it would end what runs, for nothing."""
    place = find_place(log, None, f"recovery settle {show_word(log)} {option}", "name the state directory of a session")
    call = place.known.open_call
    if not place.known.is_finished and call is None and place.known.obligation is None:
        raise MisuseError(
            f"recovery settle {option}: no call is open in {show_text(place.state)}; {place.way_on} goes on"
        )
    told = f"call {call.number}: {done}" if call is not None else "the restore is ended"
    return _settle(place, option, act, told, settings, ports, may_claim=may_claim)


def _settle(
    place: Place, option: str, act: Callable[[Context], None], done: str, settings: Settings, ports: Ports, *, may_claim: bool
) -> int:  # fmt: skip
    def work(context: Context) -> int:
        act(context)
        context.tell(f"{done}; {place.way_on} goes on")
        return 0

    command = f"recovery settle {show_word(place.state)} {option}"
    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=may_claim)), settings, ports)


def _find_away(log: str, command: str) -> Place:
    """A session whose workspace is not in its place. Raises MisuseError where it is: a takeover would end what runs, for nothing."""
    place = find_place(log, None, command, "name the state directory of a session")
    if not place.known.is_finished:  # which the drive refuses by itself
        with naming_state(place.state):
            check_away(place.workspace, place.known)
    return place


def settle_processes(log: str, settings: Settings, ports: Ports) -> int:
    """Take over on a person's word; the exit code. Raises MisuseError, LogMissingError, CorruptError before anything is changed."""
    command = f"recovery settle {show_word(log)} --processes-dead"
    place = find_place(log, None, command, "name the state directory of a session")

    def work(context: Context) -> int:
        context.journal.append([Record(events.Noted(context.clock.now_ms(), SAID))], (), "settled")
        context.tell(f"no process of an older epoch lives, on your word; {place.way_on} goes on")
        return 0

    act = Act(work, command, may_claim=False, are_processes_dead=True)
    return drive(Order(place.state, None, None, "", act), settings, ports)
