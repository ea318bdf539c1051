"""Everything a decision may depend on, reduced to closed sets of named values. Pure; `gather` makes them, `decision` reads them.

A combination that cannot be is listed in `find_contradiction` with its reason; deciding on one is a bug, never a fallback. None with a
damaged, missing or behind log or ledger is on that list.
"""

from enum import Enum

import msgspec


class LedgerFact(Enum):
    """The ledger against what the log says of it."""

    SOUND = "sound"
    MISSING = "missing"
    OTHER_GENERATION = "other_generation"
    DAMAGED = "damaged"


class LogFact(Enum):
    """The log against what the ledger has seen of it: its newest event, and the calls. ONE_CLEAN: one call is lost, no other was open, and
    the ledger has its intent and a clean exit of this boot."""

    ABREAST = "abreast"
    BEHIND_ONE_CLEAN = "behind_one_clean"
    BEHIND = "behind"


class RootFact(Enum):
    """The workspace root against the recorded identity (R6)."""

    PRESENT = "present"
    MISSING = "missing"
    EMPTY_OTHER = "empty_other"
    UNMOUNTED = "unmounted"
    OTHER = "other"


LOST_ROOTS = frozenset({RootFact.MISSING, RootFact.EMPTY_OTHER})
"""What is rebuilt without asking: nothing is there that could be anybody's."""


class CallFact(Enum):
    """The last call."""

    NONE = "none"
    SETTLED = "settled"
    OPEN_COMMAND = "open_command"
    OPEN_FILE = "open_file"


class AttemptFact(Enum):
    """The open call's newest attempt, from log and ledger after the kills of the takeover."""

    NONE = "none"
    NEVER_STARTED = "never_started"
    UNKNOWN = "unknown"
    CLAIMED = "claimed"
    EXIT_CLEAN = "exit_clean"
    EXIT_CUT = "exit_cut"
    RESTORED = "restored"
    VOID = "void"


class BootFact(Enum):
    """The boot under which the open attempt's exit, else its start, else the head image, was recorded; SYNCED: another boot, but the
    head image was known synced before it, or is stale and therefore nothing to restore."""

    SAME = "same"
    SYNCED = "synced"
    OTHER = "other"


class PolicyFact(Enum):
    """The open call's policy."""

    SAFE = "safe"
    AFTER_RESTORE = "after-restore"
    NEVER = "never"
    ASK = "ask"


class DifferenceFact(Enum):
    """The scanned workspace against the head image."""

    EQUAL = "equal"
    DIFFERENT = "different"
    MASS_DELETION = "mass_deletion"


class Facts(msgspec.Struct, frozen=True):
    """One point of the product over which the table is total."""

    is_obliged: bool
    ledger: LedgerFact
    log: LogFact
    root: RootFact
    call: CallFact
    attempt: AttemptFact
    boot: BootFact
    policy: PolicyFact
    is_restored: bool
    difference: DifferenceFact

    def named(self) -> dict[str, object]:
        """The evidence as it stands in the log."""
        return {
            "obliged": self.is_obliged,
            "ledger": self.ledger.value,
            "log": self.log.value,
            "root": self.root.value,
            "call": self.call.value,
            "attempt": self.attempt.value,
            "boot": self.boot.value,
            "policy": self.policy.value,
            "restored": self.is_restored,
            "difference": self.difference.value,
        }


def find_contradiction(facts: Facts) -> str:
    """Why this combination cannot be, or "" when it can."""
    if facts.ledger is not LedgerFact.SOUND or facts.log is not LogFact.ABREAST:
        return ""
    is_open = facts.call in (CallFact.OPEN_COMMAND, CallFact.OPEN_FILE)
    if is_open == (facts.attempt is AttemptFact.NONE):
        return "a call is open exactly when it has a newest attempt"
    if facts.call is CallFact.OPEN_FILE and facts.attempt is AttemptFact.CLAIMED:
        return "a file worker's attempt is never claimed (T2)"
    if facts.is_obliged and facts.attempt is AttemptFact.CLAIMED:
        return "an attempt under a restore decision is never claimed (T2)"
    if facts.attempt is AttemptFact.CLAIMED and facts.boot is BootFact.OTHER:
        return "a shim of another boot does not live"
    return ""
