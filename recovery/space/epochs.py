"""Which epochs a space takes. Pure."""

from eventlog.errors import MisuseError
from eventlog.values import HIGHEST_EPOCH

EPOCH_LEAP = 1 << 20
"""An advance by hand may leap over this many epochs and no more: one wrong number must not burn those of all later drivers."""


def check_epoch(epoch: int, floor: int) -> None:
    """Raise MisuseError for an epoch that no advance by hand may raise the floor to."""
    if not 1 <= epoch <= HIGHEST_EPOCH:
        raise MisuseError(f"epoch {epoch} is not a number from 1 to {HIGHEST_EPOCH}; use {floor + 1}, the next one")
    if epoch > floor + EPOCH_LEAP:
        raise MisuseError(f"epoch {epoch} is more than {EPOCH_LEAP} above the floor {floor}; use {floor + 1}, the next one")
