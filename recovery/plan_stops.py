"""What stops the next drive, whatever the table of decisions says: looked at as the drive does, and nothing is changed."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from eventlog.errors import CorruptError, MisuseError, NeedsPersonError
from recovery.calls import describe_tool_elsewhere
from recovery.capture import LimitCrossedError
from recovery.checkpoints.vault import Vault
from recovery.contents import Contents
from recovery.driver.begin import space_override
from recovery.fallback import find_fallback, may_replay
from recovery.fallback_image import Fallback
from recovery.labels import OBLIGATIONS, REBUILDS, Label
from recovery.limits import find_crossing, measure
from recovery.perform import describe_stale_target
from recovery.person_restore import undone_calls
from recovery.redrive.record import load_record
from recovery.script import call_from_json
from recovery.settings import Settings
from recovery.space.bubblewrap import choose_bubblewrap
from recovery.state import CallState, SessionState
from recovery.workspace.values import Scan

FindVault = Callable[[SessionState], Vault | None]


def find_record_stop(state_directory: str) -> list[str]:
    """Why a driver could not tell its epoch: the redriver's record is damaged (L1)."""
    try:
        load_record(state_directory)
    except CorruptError as error:
        return [str(error)]
    return []


def find_store(state: SessionState, find_vault: FindVault) -> tuple[Vault | None, list[str]]:
    """The checkpoints of a session, and why they are not to be had."""
    try:
        return find_vault(state), []
    except (NeedsPersonError, MisuseError) as error:
        return None, [str(error)]


def find_stale(labels: Sequence[Label], state: SessionState) -> str:
    """Why a row that is foreseen is not acted on for a stale image, "" where all are."""
    return next((why for label in labels if (why := describe_stale_target(label, state))), "")


def find_older(labels: Sequence[Label], contents: Contents, state: SessionState, found: Scan | None) -> tuple[Fallback | None, str]:
    """The older image that stands in where the newest is to be restored and its checkpoint is not whole, or why none does (C7)."""
    label = next((one for one in labels if one in OBLIGATIONS), None)
    if label is None or contents.vault is None or state.modes.newest is None:
        return None, ""
    try:
        return find_fallback(contents, state, None if label in REBUILDS else found, 0), ""
    except NeedsPersonError as error:
        return None, str(error)


def list_replayed(older: Fallback | None, state: SessionState) -> list[CallState]:
    """The finished calls that are done again where this older image stands in."""
    after = undone_calls(state, older.seq) if older is not None else []
    return list(after) if older is not None and may_replay(state, after, older.seq) else []


def find_space_stop(state: SessionState, root: str, settings: Settings) -> list[str]:
    """Why no driver confines the commands of the script here: the namespaced space is not to be had."""
    try:
        override = space_override(settings)
        kinds = {override or call.get("space", "local") for call in state.opened.script if call["tool"] == "bash"}
        choose_bubblewrap(kinds, root, settings.command_environment.get("PATH"), writable=settings.space_writable)
    except MisuseError as error:
        return [str(error)]
    return []


def find_unstartable(calls: Sequence[CallState], environment: Mapping[str, str]) -> str:
    """Why the first of these calls that cannot be begun again by a driver with this environment is not, "" where all can."""
    asked = ((call.number, call_from_json(call.input, f"call {call.number}")) for call in calls)
    return next((why for number, call in asked if (why := describe_tool_elsewhere(environment, number, call))), "")


def find_shell(calls: Sequence[CallState], environment: Mapping[str, str]) -> list[str]:
    """A line for each command that is foreseen to begin and whose program is not there: it ends all the same, as not started."""
    path = environment.get("PATH")
    commands = [call.number for call in calls if call.tool == "bash"]
    if not commands or shutil.which("bash", path=path) is not None:
        return []
    return [f"call {number}: there is no `bash` in PATH: it cannot be started, and its exit will say so" for number in commands]


def describe_older(older: Fallback, state: SessionState) -> tuple[str, list[int]]:
    """What the older image means for the finished calls after it, and which of them are given up."""
    calls = undone_calls(state, older.seq)
    numbers = [call.number for call in calls]
    if not calls:
        become = "no finished call is lost"
    else:
        listed = ", ".join(map(str, numbers))
        again = may_replay(state, calls, older.seq)
        become = f"the finished calls {listed} are {'done again, or undone where they lead elsewhere' if again else 'given up, and undone'}"
        numbers = [] if again else numbers
    return f"the checkpoint of the image at seq {older.seq} stands in for the newest: {older.facts['why']}; {become}", numbers


def find_limit_stop(state: SessionState, root: str) -> list[str]:
    """Which limit the workspace is above, where a drive reads nothing of it (C8). Raises ScanError."""
    if state.mode != "transactional" or state.modes.limits is None or state.open_call is not None or state.obligation is not None:
        return []
    with suppress(FileNotFoundError, NotADirectoryError):
        if crossing := find_crossing(measure(root, state.profile), state.modes.limits):
            return [str(LimitCrossedError(crossing))]
    return []
