"""The decision table (PROTOCOL, D): from facts to a label, pure and total. Judged in order, the first row that applies.

Each row has a paragraph in recovery/README that says which crash produces it. A test enumerates the product of all fact values.
"""

from collections.abc import Callable

import msgspec

from eventlog.errors import InternalError
from recovery.facts import (
    LOST_ROOTS,
    AttemptFact,
    BootFact,
    CallFact,
    DifferenceFact,
    Facts,
    LedgerFact,
    LogFact,
    PolicyFact,
    RootFact,
    find_contradiction,
)
from recovery.labels import Label


class Row(msgspec.Struct, frozen=True):
    """One row: its label, and when it applies (given that no row above did)."""

    label: Label
    applies: Callable[[Facts], bool]


def _is_open(facts: Facts) -> bool:
    return facts.call in (CallFact.OPEN_COMMAND, CallFact.OPEN_FILE)


def _is_command(facts: Facts) -> bool:
    return facts.call is CallFact.OPEN_COMMAND


def _is_lost(facts: Facts) -> bool:
    return facts.root in LOST_ROOTS


def _may_rerun(facts: Facts) -> bool:
    return facts.policy in (PolicyFact.SAFE, PolicyFact.AFTER_RESTORE)


def _has_lost_writes(facts: Facts) -> bool:
    """Whether the machine was restarted and what differs may be writes of earlier calls that never came to the disk (D5): on such a
    workspace nothing is run, and no scan of it is believed."""
    return facts.boot is BootFact.OTHER and facts.difference is not DifferenceFact.EQUAL and not facts.is_restored


def _is_after_restore(facts: Facts) -> bool:
    return _is_open(facts) and facts.attempt is AttemptFact.RESTORED


TABLE: tuple[Row, ...] = (
    # D1: an open obligation binds every successor.
    Row(Label.COMPLETE_WITHOUT_LEDGER, lambda facts: facts.is_obliged and facts.ledger is not LedgerFact.SOUND),
    Row(Label.COMPLETE_REBUILD, lambda facts: facts.is_obliged and _is_lost(facts)),
    Row(Label.COMPLETE_RESTORE, lambda facts: facts.is_obliged and facts.root is RootFact.PRESENT),
    # D2: log and ledger disagree.
    Row(Label.LEDGER_LOST, lambda facts: facts.ledger is LedgerFact.MISSING),
    Row(Label.LEDGER_EXCHANGED, lambda facts: facts.ledger is LedgerFact.OTHER_GENERATION),
    Row(Label.LEDGER_DAMAGED, lambda facts: facts.ledger is LedgerFact.DAMAGED),
    # Neither is met in a directory that is not the session's own (D3); a call after which the root is gone is never adopted.
    Row(Label.LOG_BEHIND_ADOPT, lambda facts: facts.log is LogFact.BEHIND_ONE_CLEAN and facts.root is RootFact.PRESENT),
    Row(Label.LOG_BEHIND_RESTORE, lambda facts: facts.log is not LogFact.ABREAST and (_is_lost(facts) or facts.root is RootFact.PRESENT)),
    # D3: the root itself; an obligation is met in no directory but the session's own.
    Row(Label.ROOT_LOST_BY_CALL, lambda facts: _is_lost(facts) and _is_command(facts) and facts.attempt is AttemptFact.EXIT_CLEAN),
    Row(Label.ROOT_LOST, _is_lost),
    Row(Label.ROOT_UNMOUNTED, lambda facts: facts.root is RootFact.UNMOUNTED),
    Row(Label.ROOT_REPLACED, lambda facts: facts.root is RootFact.OTHER),
    # D4: the open call.
    Row(Label.RERUN_RESTORED, lambda facts: _is_after_restore(facts) and _may_rerun(facts)),
    Row(Label.INTERRUPT_RESTORED, lambda facts: _is_after_restore(facts) and facts.policy is PolicyFact.NEVER),
    Row(Label.RUN_VOIDED, lambda facts: _is_open(facts) and facts.attempt is AttemptFact.VOID and not _has_lost_writes(facts)),
    Row(
        Label.ADOPT_EXIT, lambda facts: _is_command(facts) and facts.attempt is AttemptFact.EXIT_CLEAN and facts.boot is not BootFact.OTHER
    ),
    Row(Label.REATTACH, lambda facts: _is_command(facts) and facts.attempt is AttemptFact.CLAIMED),
    Row(
        Label.VOID_AND_RUN,
        lambda facts: _is_command(facts) and facts.attempt is AttemptFact.NEVER_STARTED and not _has_lost_writes(facts),
    ),
    Row(Label.ASK, lambda facts: _is_open(facts) and facts.policy is PolicyFact.ASK),
    Row(Label.RESTORE_AND_RERUN, lambda facts: _is_open(facts) and _may_rerun(facts)),
    Row(Label.RESTORE_AND_INTERRUPT, _is_open),
    # D5: no call is open.
    Row(Label.SETTLED, lambda facts: facts.is_restored or facts.difference is DifferenceFact.EQUAL),
    Row(Label.RESTORE_UNSYNCED_HEAD, lambda facts: facts.boot is BootFact.OTHER),
    Row(Label.OUTSIDE_DELETION, lambda facts: facts.difference is DifferenceFact.MASS_DELETION),
    Row(Label.RECORD_OUTSIDE, lambda facts: facts.difference is DifferenceFact.DIFFERENT),
)


def decide(facts: Facts) -> Label:
    """The label of the first row that applies. Raises InternalError for a combination that cannot be."""
    contradiction = find_contradiction(facts)
    if contradiction:
        raise InternalError(f"contradictory facts {facts.named()}: {contradiction}")
    for row in TABLE:
        if row.applies(facts):
            return row.label
    raise InternalError(f"no row of the decision table applies to {facts.named()}")
