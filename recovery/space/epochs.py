"""Which epochs a ledger takes. Pure.

An epoch is a number from 1 to HIGHEST_EPOCH. Whoever starts, voids or collects must be at the floor: below it a newer driver has the
space, above it nobody has advanced the space yet, and a start that raised the floor on its own would pass by the takeover's kills. An
advance goes at most LARGEST_STEP above the floor, unless it is to the epoch that the log gave its driver: so nobody who asks for the
highest number takes it from all who come after.
"""

from eventlog.errors import EpochTakenError, MisuseError, StaleEpochError
from eventlog.values import HIGHEST_EPOCH, HIGHEST_GIVEN_EPOCH

LARGEST_STEP = 1 << 20


def check_epoch(epoch: int | None) -> int:
    """The epoch itself. Raises MisuseError for none, 0, a negative one, one that is no number, one above HIGHEST_EPOCH."""
    if epoch is None:
        raise MisuseError(f"the request has no epoch; give the one that `space advance` made current, from 1 to {HIGHEST_EPOCH}")
    if type(epoch) is not int or not 1 <= epoch <= HIGHEST_EPOCH:
        raise MisuseError(f"epoch {epoch} is not a number from 1 to {HIGHEST_EPOCH}; give the one that `space advance` made current")
    return epoch


def _stale(epoch: int, floor: int, name: str) -> StaleEpochError:
    return StaleEpochError(f"{name}: epoch {epoch} is below the ledger's floor {floor}; a newer driver has the space")


def check_at_floor(epoch: int | None, floor: int, name: str) -> None:
    """Raise StaleEpochError below the floor of ledger `name` (rules S4, S6), MisuseError above it and for what is no epoch."""
    epoch = check_epoch(epoch)
    if epoch < floor:
        raise _stale(epoch, floor, name)
    if epoch > floor:
        raise MisuseError(f"{name}: epoch {epoch} is above the ledger's floor {floor}; advance the space to it first")


def check_advance(epoch: int | None, floor: int, name: str, log_epoch: int | None = None) -> None:
    """Whether the floor may rise to `epoch`; `log_epoch` is what the log's floor was raised to by who asks, None without a log.

    Raises StaleEpochError below the floor, EpochTakenError at it, MisuseError for what is no epoch and for a step that is too large.
    """
    epoch = check_epoch(epoch)
    if epoch < floor:
        raise _stale(epoch, floor, name)
    if epoch == floor:
        raise EpochTakenError(f"{name}: epoch {epoch} is held by another driver; start again under epoch {epoch + 1}")
    if epoch != log_epoch and epoch > min(floor + LARGEST_STEP, HIGHEST_GIVEN_EPOCH):
        raise MisuseError(
            f"{name}: epoch {epoch} is more than {LARGEST_STEP} above the ledger's floor {floor}, or above {HIGHEST_GIVEN_EPOCH}; "
            f"advance to {floor + 1}: what is skipped once is gone for all who come after"
        )
