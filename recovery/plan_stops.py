"""What stops the next drive, whatever the table of decisions says: looked at as the drive does, and nothing is changed."""

from contextlib import suppress

from eventlog.errors import CorruptError, MisuseError, NeedsPersonError
from eventlog.ports import SystemClock
from recovery.capture import LimitCrossedError
from recovery.checkpoints.vault import Vault
from recovery.limits import find_crossing, measure
from recovery.opening import find_vault
from recovery.redrive.record import load_record
from recovery.state import SessionState


def find_record_stop(state_directory: str) -> list[str]:
    """Why a driver could not tell its epoch: the redriver's record is damaged (L1)."""
    try:
        load_record(state_directory)
    except CorruptError as error:
        return [str(error)]
    return []


def find_store(state: SessionState, said: str) -> tuple[Vault | None, list[str]]:
    """The checkpoints of a session, and why they are not to be had. `said` is where the store is now, if it was moved."""
    try:
        return find_vault(state, said, SystemClock()), []
    except (NeedsPersonError, MisuseError) as error:
        return None, [str(error)]


def find_limit_stop(state: SessionState, root: str) -> list[str]:
    """Which limit the workspace is above, where a drive reads nothing of it (C8). Raises ScanError."""
    if state.mode != "transactional" or state.modes.limits is None or state.open_call is not None or state.obligation is not None:
        return []
    with suppress(FileNotFoundError, NotADirectoryError):
        if crossing := find_crossing(measure(root, state.profile), state.modes.limits):
            return [str(LimitCrossedError(crossing))]
    return []
