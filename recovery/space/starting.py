"""The starting mark of an attempt (rule S4), as its shim or the file worker makes it: once, at the floor, under the ledger's lock."""

from eventlog import steps
from eventlog.errors import KeySpentError
from eventlog.show import show_text
from recovery.space.ledger import Ledger
from recovery.space.records import Start


def append_start(ledger: Ledger, epoch: int, start: Start) -> None:
    """Append the mark; it is on disk when this returns. Two handles may both have found a key prepared and not begun: of them one
    begins it, and the other must not append a second mark, which no sound ledger holds.

    Raises StaleEpochError, MisuseError above the floor, KeySpentError for an attempt that has begun or never will.
    """
    steps.reach("ledger.start.before")
    with ledger.transaction() as transaction:
        transaction.check_floor(epoch)
        attempt = transaction.state_of(start.key).find(start.key)
        if attempt is None or attempt.start is not None or attempt.void:
            what = "was never announced" if attempt is None else "was declared void" if attempt.void else "has begun already"
            raise KeySpentError(f"{ledger.name}: {show_text(start.key)} {what}; nothing was started")
        transaction.append_shared(start)
