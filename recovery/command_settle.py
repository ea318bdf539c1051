"""`recovery settle`: what only a person can say. Each way out is a driver like any other: next epoch, fates, kills, then its act.

`--processes-dead`: nothing of a session's older epochs lives, where nothing can prove it (S9). What can be killed is killed all the same,
and what is seen alive and does not die stays an error. What is only unproved is taken for dead, and ledger and log say who said so.
Nothing is decided and no workspace path is looked at: the next drive recovers.

`--rebuild`, `--accept-root`: what the directory is that stands where the workspace was (D3).
"""

from eventlog import events
from eventlog.records import Record
from eventlog.show import show_text
from recovery.command_log import Place, find_place
from recovery.context import Context
from recovery.driver.entry import drive
from recovery.driver.order import Act, Order, Ports
from recovery.settings import Settings
from recovery.settle_root import accept_root, check_away, rebuild

SAID = "a person says that no process of an older epoch lives (settle --processes-dead)"


def settle_rebuild(log: str, settings: Settings, ports: Ports) -> int:
    """Rebuild the workspace from the log in whatever is there; the exit code. Raises as `settle_processes` does."""
    command = f"recovery settle {show_text(log)} --rebuild"
    place = _find_away(log, command)

    def work(context: Context) -> int:
        rebuild(context)
        context.tell(f"the workspace equals the log; `recovery drive {show_text(place.state)}` goes on")
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


def settle_root(log: str, settings: Settings, ports: Ports) -> int:
    """Take the directory that is there as the workspace; the exit code. Raises as `settle_processes` does."""
    command = f"recovery settle {show_text(log)} --accept-root"
    place = _find_away(log, command)

    def work(context: Context) -> int:
        accept_root(context)
        context.tell(
            f"{show_text(context.root)} is the workspace from here on; `recovery drive {show_text(place.state)}` "
            "records what differs in it as an outside change"
        )
        return 0

    return drive(Order(place.state, None, None, "", Act(work, command, may_claim=False)), settings, ports)


def _find_away(log: str, command: str) -> Place:
    """A session whose workspace is not in its place. Raises MisuseError where it is: a takeover would end what runs, for nothing."""
    place = find_place(log, None, command, "name the state directory of a session")
    if not place.known.is_finished:  # which the drive refuses by itself
        check_away(place.workspace, place.known)
    return place


def settle_processes(log: str, settings: Settings, ports: Ports) -> int:
    """Take over on a person's word; the exit code. Raises MisuseError, LogMissingError, CorruptError before anything is changed."""
    command = f"recovery settle {show_text(log)} --processes-dead"
    place = find_place(log, None, command, "name the state directory of a session")

    def work(context: Context) -> int:
        context.journal.append([Record(events.Noted(context.clock.now_ms(), SAID))], (), "settled")
        context.tell(f"no process of an older epoch lives, on your word; `recovery drive {show_text(place.state)}` goes on")
        return 0

    act = Act(work, command, may_claim=False, are_processes_dead=True)
    return drive(Order(place.state, None, None, "", act), settings, ports)
