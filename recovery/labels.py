"""The labels of recovery's decisions. They stand in the table, the log, the docs, the reports and the tests, and nowhere under
another name."""

from enum import StrEnum


class Label(StrEnum):
    """One per row of the decision table (recovery/README, "Decision"), in the order in which they are judged."""

    COMPLETE_RESTORE = "complete_restore"
    COMPLETE_REBUILD = "complete_rebuild"
    COMPLETE_WITHOUT_LEDGER = "complete_without_ledger"
    LEDGER_LOST = "ledger_lost"
    LEDGER_EXCHANGED = "ledger_exchanged"
    LEDGER_DAMAGED = "ledger_damaged"
    LOG_BEHIND_ADOPT = "log_behind_adopt"
    LOG_BEHIND_RESTORE = "log_behind_restore"
    ROOT_LOST_BY_CALL = "root_lost_by_call"
    ROOT_LOST = "root_lost"
    ROOT_UNMOUNTED = "root_unmounted"
    ROOT_REPLACED = "root_replaced"
    RERUN_RESTORED = "rerun_restored"
    INTERRUPT_RESTORED = "interrupt_restored"
    RUN_VOIDED = "run_voided"
    ADOPT_EXIT = "adopt_exit"
    REATTACH = "reattach"
    VOID_AND_RUN = "void_and_run"
    ASK = "ask"
    RESTORE_AND_RERUN = "restore_and_rerun"
    RESTORE_AND_INTERRUPT = "restore_and_interrupt"
    SETTLED = "settled"
    RESTORE_UNSYNCED_HEAD = "restore_unsynced_head"
    OUTSIDE_DELETION = "outside_deletion"
    RECORD_OUTSIDE = "record_outside"
    RESTORE_BY_PERSON = "restore_by_person"
    REBUILD_BY_PERSON = "rebuild_by_person"
    RAN_BY_PERSON = "ran_by_person"
    NOT_RUN_BY_PERSON = "not_run_by_person"
    UNDO_BY_PERSON = "undo_by_person"
    ACCEPT_BY_PERSON = "accept_by_person"
    EXCLUDE_BY_PERSON = "exclude_by_person"
    DISCARD_BY_PERSON = "discard_by_person"


NOT_ACTED_ON = frozenset(
    {
        Label.ROOT_UNMOUNTED,
        Label.ROOT_REPLACED,
        Label.ASK,
        Label.OUTSIDE_DELETION,
    }
)
"""Rows that end with exit 78 and their label in this version, no workspace path touched."""

RENEWALS = frozenset({Label.COMPLETE_WITHOUT_LEDGER, Label.LEDGER_LOST, Label.LEDGER_EXCHANGED, Label.LEDGER_DAMAGED})
"""Decisions to make the ledger anew, in the takeover itself (rule S10); what they leave open is decided after that."""

REBUILDS = frozenset({Label.ROOT_LOST, Label.ROOT_LOST_BY_CALL, Label.REBUILD_BY_PERSON})
"""Decisions to make the workspace equal to the head image from nothing (rule D3)."""

OBLIGATIONS = REBUILDS | {
    Label.RESTORE_AND_RERUN, Label.RESTORE_AND_INTERRUPT, Label.RESTORE_UNSYNCED_HEAD, Label.RESTORE_BY_PERSON, Label.LOG_BEHIND_RESTORE,
    Label.NOT_RUN_BY_PERSON, Label.UNDO_BY_PERSON,
}  # fmt: skip
"""Decisions that open a restore obligation (rule R1)."""

BEHIND = frozenset({Label.LOG_BEHIND_ADOPT, Label.LOG_BEHIND_RESTORE})
"""Decisions on a log that lost its tail (rule D2)."""

INTERRUPTS = frozenset(
    {
        Label.RESTORE_AND_INTERRUPT,
        Label.ROOT_LOST_BY_CALL,
        Label.REBUILD_BY_PERSON,
        Label.RESTORE_BY_PERSON,
        Label.LOG_BEHIND_RESTORE,
        Label.UNDO_BY_PERSON,
    }
)
"""Those at whose end the call that was open, if one was, ends interrupted."""

BY_PERSON = frozenset(
    {
        Label.RESTORE_BY_PERSON,
        Label.REBUILD_BY_PERSON,
        Label.RAN_BY_PERSON,
        Label.NOT_RUN_BY_PERSON,
        Label.UNDO_BY_PERSON,
        Label.ACCEPT_BY_PERSON,
        Label.EXCLUDE_BY_PERSON,
        Label.DISCARD_BY_PERSON,
    }
)
"""Decisions of a person: no row of the table leads to them, a command does."""
