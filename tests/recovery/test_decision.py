"""The decision table over the product of all fact values, against the rules of PROTOCOL (D) written a second time, in another form."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from eventlog.errors import InternalError
from recovery.decision import TABLE, decide
from recovery.facts import (
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
from recovery.labels import BY_PERSON, NOT_ACTED_ON, OBLIGATIONS, Label

QUIET = Facts(
    False,
    LedgerFact.SOUND,
    LogFact.ABREAST,
    RootFact.PRESENT,
    CallFact.SETTLED,
    AttemptFact.NONE,
    BootFact.SAME,
    PolicyFact.NEVER,
    False,
    DifferenceFact.EQUAL,
)
COMMAND = msgspec.structs.replace(QUIET, call=CallFact.OPEN_COMMAND, attempt=AttemptFact.UNKNOWN)
FILE = msgspec.structs.replace(COMMAND, call=CallFact.OPEN_FILE, policy=PolicyFact.SAFE)


def product() -> Iterator[Facts]:
    """Every combination of all fact values."""
    values: list[Any] = [
        (False, True), LedgerFact, LogFact, RootFact, CallFact, AttemptFact, BootFact, PolicyFact, (False, True), DifferenceFact,
    ]  # fmt: skip
    return itertools.starmap(Facts, itertools.product(*values))


def expected(facts: Facts) -> str:
    """PROTOCOL, D: judged from the top, in words of the protocol and not of the table."""
    if facts.is_obliged:
        if facts.ledger.value != "sound":
            return "complete_without_ledger"
        if facts.root.value in ("present", "missing", "empty_other"):
            return "complete_restore" if facts.root.value == "present" else "complete_rebuild"
    if facts.ledger.value != "sound":
        return {"missing": "ledger_lost", "other_generation": "ledger_exchanged", "damaged": "ledger_damaged"}[facts.ledger.value]
    if facts.log.value != "abreast" and facts.root.value in ("present", "missing", "empty_other"):
        is_whole = facts.log.value == "behind_one_clean" and facts.root.value == "present"
        return "log_behind_adopt" if is_whole else "log_behind_restore"
    if facts.root.value != "present":
        if facts.root.value in ("missing", "empty_other"):
            has_ended = facts.call.value == "open_command" and facts.attempt.value == "exit_clean"
            return "root_lost_by_call" if has_ended else "root_lost"
        return "root_replaced" if facts.root.value == "other" else "root_unmounted"
    if facts.call.value in ("none", "settled"):
        return expected_without_call(facts)
    return expected_with_call(facts)


def expected_with_call(facts: Facts) -> str:
    known, policy = facts.attempt.value, facts.policy.value
    again = policy in ("safe", "after-restore")
    has_lost_writes = facts.boot.value == "other" and facts.difference.value != "equal" and not facts.is_restored
    if known == "void" and not has_lost_writes:
        return "run_voided"
    if known == "restored" and policy != "ask":
        return "rerun_restored" if again else "interrupt_restored"
    if facts.call.value == "open_command":
        if known == "exit_clean" and facts.boot.value in ("same", "synced"):
            return "adopt_exit"
        if known == "claimed" or (known == "never_started" and not has_lost_writes):
            return {"claimed": "reattach", "never_started": "void_and_run"}[known]
    if policy == "ask":
        return "ask"
    return "restore_and_rerun" if again else "restore_and_interrupt"


def expected_without_call(facts: Facts) -> str:
    if facts.is_restored or facts.difference.value == "equal":
        return "settled"
    if facts.boot.value == "other":
        return "restore_unsynced_head"
    return "outside_deletion" if facts.difference.value == "mass_deletion" else "record_outside"


def test_every_combination_has_one_label_or_is_a_listed_contradiction() -> None:
    """The table is total; each of the 276,480 combinations gets the label that the rules give it, or raises a bug error."""
    labels: Counter[str] = Counter()
    for facts in product():
        if find_contradiction(facts):
            labels["contradiction"] += 1
            continue
        label = decide(facts)
        assert label.value == expected(facts), facts
        labels[label.value] += 1
    judged = {label.value for label in Label if label not in BY_PERSON}
    assert set(labels) == judged | {"contradiction"}, "every label is reached by at least one combination"
    assert sum(labels.values()) == 2 * 4 * 3 * 5 * 4 * 8 * 3 * 4 * 2 * 3


def test_no_contradiction_with_a_damaged_missing_or_behind_log_or_ledger() -> None:
    """What may not be excused as impossible: damage makes any combination possible."""
    for facts in product():
        if facts.ledger is not LedgerFact.SOUND or facts.log is not LogFact.ABREAST:
            assert not find_contradiction(facts), facts


def test_a_contradiction_is_a_bug_and_never_a_fallback() -> None:
    facts = msgspec.structs.replace(FILE, attempt=AttemptFact.CLAIMED)
    with pytest.raises(InternalError, match=r"contradictory facts .*'attempt': 'claimed'.*a file worker's attempt is never claimed \(T2\)"):
        decide(facts)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (msgspec.structs.replace(QUIET, attempt=AttemptFact.UNKNOWN), "exactly when it has a newest attempt"),
        (msgspec.structs.replace(COMMAND, attempt=AttemptFact.NONE), "exactly when it has a newest attempt"),
        (msgspec.structs.replace(COMMAND, is_obliged=True, attempt=AttemptFact.CLAIMED), "under a restore decision is never claimed"),
        (msgspec.structs.replace(COMMAND, attempt=AttemptFact.CLAIMED, boot=BootFact.OTHER), "a shim of another boot does not live"),
    ],
)
def test_what_cannot_be_is_listed_with_its_reason(facts: Facts, reason: str) -> None:
    assert reason in find_contradiction(facts)


def test_the_table_has_each_label_once_in_the_order_of_the_rules() -> None:
    """D1 obligations, D2 log and ledger, D3 the root, D4 the open call, D5 no call open."""
    order = [row.label for row in TABLE]
    assert sorted(order) == sorted(set(Label) - BY_PERSON) and len(order) == len(set(order))
    blocks = (
        {Label.COMPLETE_WITHOUT_LEDGER, Label.COMPLETE_REBUILD, Label.COMPLETE_RESTORE},
        {Label.LEDGER_LOST, Label.LEDGER_EXCHANGED, Label.LEDGER_DAMAGED, Label.LOG_BEHIND_ADOPT, Label.LOG_BEHIND_RESTORE},
        {Label.ROOT_LOST_BY_CALL, Label.ROOT_LOST, Label.ROOT_UNMOUNTED, Label.ROOT_REPLACED},
        {
            Label.RERUN_RESTORED, Label.INTERRUPT_RESTORED, Label.RUN_VOIDED, Label.ADOPT_EXIT, Label.REATTACH, Label.VOID_AND_RUN,
            Label.ASK, Label.RESTORE_AND_RERUN, Label.RESTORE_AND_INTERRUPT,
        },
        {Label.SETTLED, Label.RESTORE_UNSYNCED_HEAD, Label.OUTSIDE_DELETION, Label.RECORD_OUTSIDE},
    )  # fmt: skip
    for block in blocks:
        assert set(order[: len(block)]) == block
        order = order[len(block) :]


def test_rows_not_acted_on_open_no_obligation() -> None:
    assert not NOT_ACTED_ON & OBLIGATIONS


def check(label: Label, base: Facts, **values: object) -> None:
    assert decide(msgspec.structs.replace(base, **values)) is label  # type: ignore[arg-type]


def test_decision_complete_restore_before_everything_else() -> None:
    check(Label.COMPLETE_RESTORE, QUIET, is_obliged=True, difference=DifferenceFact.MASS_DELETION)
    check(Label.COMPLETE_RESTORE, COMMAND, is_obliged=True, attempt=AttemptFact.EXIT_CLEAN)
    check(Label.COMPLETE_RESTORE, COMMAND, is_obliged=True, log=LogFact.BEHIND)


def test_decision_complete_rebuild_when_the_root_is_gone_in_a_restore() -> None:
    for root in (RootFact.MISSING, RootFact.EMPTY_OTHER):
        check(Label.COMPLETE_REBUILD, COMMAND, is_obliged=True, root=root)


def test_decision_complete_without_ledger_when_it_is_lost_in_a_restore() -> None:
    for ledger in (LedgerFact.MISSING, LedgerFact.OTHER_GENERATION, LedgerFact.DAMAGED):
        check(Label.COMPLETE_WITHOUT_LEDGER, COMMAND, is_obliged=True, ledger=ledger)


def test_decision_ledger_lost_exchanged_damaged_whatever_the_workspace_says() -> None:
    for ledger, label in (
        (LedgerFact.MISSING, Label.LEDGER_LOST),
        (LedgerFact.OTHER_GENERATION, Label.LEDGER_EXCHANGED),
        (LedgerFact.DAMAGED, Label.LEDGER_DAMAGED),
    ):
        check(label, QUIET, ledger=ledger)
        check(label, COMMAND, ledger=ledger, root=RootFact.MISSING, log=LogFact.BEHIND)


def test_decision_log_behind_adopt_by_one_clean_call_only() -> None:
    check(Label.LOG_BEHIND_ADOPT, QUIET, log=LogFact.BEHIND_ONE_CLEAN)
    check(Label.LOG_BEHIND_RESTORE, QUIET, log=LogFact.BEHIND_ONE_CLEAN, root=RootFact.MISSING)


def test_decision_log_behind_restore_is_never_an_outside_change() -> None:
    check(Label.LOG_BEHIND_RESTORE, QUIET, log=LogFact.BEHIND, difference=DifferenceFact.DIFFERENT)
    check(Label.ROOT_REPLACED, QUIET, log=LogFact.BEHIND, root=RootFact.OTHER)
    check(Label.ROOT_UNMOUNTED, QUIET, log=LogFact.BEHIND_ONE_CLEAN, root=RootFact.UNMOUNTED)


def test_decision_root_lost_whatever_the_ledger_says() -> None:
    for root in (RootFact.MISSING, RootFact.EMPTY_OTHER):
        check(Label.ROOT_LOST, COMMAND, root=root, attempt=AttemptFact.EXIT_CUT)
        check(Label.ROOT_LOST, COMMAND, root=root, attempt=AttemptFact.CLAIMED)
        check(Label.ROOT_LOST, QUIET, root=root, difference=DifferenceFact.MASS_DELETION)


def test_decision_root_lost_by_call_when_its_command_ended() -> None:
    """Whatever its policy: it would do the same again."""
    for root in (RootFact.MISSING, RootFact.EMPTY_OTHER):
        check(Label.ROOT_LOST_BY_CALL, COMMAND, root=root, attempt=AttemptFact.EXIT_CLEAN, policy=PolicyFact.SAFE)


def test_decision_root_unmounted_is_never_rebuilt_unasked() -> None:
    for is_obliged in (False, True):
        check(Label.ROOT_UNMOUNTED, COMMAND, root=RootFact.UNMOUNTED, is_obliged=is_obliged)


def test_decision_root_replaced_when_another_directory_has_content() -> None:
    check(Label.ROOT_REPLACED, COMMAND, root=RootFact.OTHER, attempt=AttemptFact.CLAIMED)
    check(Label.ROOT_REPLACED, COMMAND, root=RootFact.OTHER, is_obliged=True)


def test_decision_rerun_restored_after_the_restore_of_a_call_that_may_run_again() -> None:
    check(Label.RERUN_RESTORED, FILE, attempt=AttemptFact.RESTORED)
    check(Label.RERUN_RESTORED, COMMAND, attempt=AttemptFact.RESTORED, policy=PolicyFact.AFTER_RESTORE)


def test_decision_interrupt_restored_after_the_restore_of_a_call_that_may_not() -> None:
    check(Label.INTERRUPT_RESTORED, COMMAND, attempt=AttemptFact.RESTORED)


def test_decision_run_voided_also_for_a_policy_that_never_runs_again() -> None:
    check(Label.RUN_VOIDED, COMMAND, attempt=AttemptFact.VOID)


def test_decision_adopt_exit_needs_a_clean_exit_of_this_boot() -> None:
    """A cut exit, or one whose effects a power loss may have taken, proves nothing."""
    check(Label.ADOPT_EXIT, COMMAND, attempt=AttemptFact.EXIT_CLEAN)
    check(Label.RESTORE_AND_INTERRUPT, COMMAND, attempt=AttemptFact.EXIT_CUT)
    check(Label.RESTORE_AND_INTERRUPT, COMMAND, attempt=AttemptFact.EXIT_CLEAN, boot=BootFact.OTHER)


def test_decision_adopt_exit_never_for_a_file_worker() -> None:
    """S6: its exit record proves nothing."""
    check(Label.RESTORE_AND_RERUN, FILE, attempt=AttemptFact.EXIT_CLEAN)


def test_decision_reattach_to_a_claimed_command() -> None:
    check(Label.REATTACH, COMMAND, attempt=AttemptFact.CLAIMED)


def test_decision_void_and_run_also_for_bash() -> None:
    check(Label.VOID_AND_RUN, COMMAND, attempt=AttemptFact.NEVER_STARTED, policy=PolicyFact.NEVER)
    check(Label.VOID_AND_RUN, COMMAND, attempt=AttemptFact.NEVER_STARTED, policy=PolicyFact.ASK)
    check(Label.VOID_AND_RUN, COMMAND, attempt=AttemptFact.NEVER_STARTED, boot=BootFact.OTHER)
    check(Label.VOID_AND_RUN, COMMAND, attempt=AttemptFact.NEVER_STARTED, difference=DifferenceFact.DIFFERENT)


def test_nothing_runs_on_a_workspace_that_power_loss_may_have_taken_writes_from() -> None:
    """The writes of calls before it would pass for a change from outside, and be gone for good (D5)."""
    lost = {"boot": BootFact.OTHER, "difference": DifferenceFact.DIFFERENT}
    for attempt in (AttemptFact.NEVER_STARTED, AttemptFact.VOID):
        check(Label.RESTORE_AND_INTERRUPT, COMMAND, attempt=attempt, **lost)
        check(Label.RESTORE_AND_RERUN, COMMAND, attempt=attempt, policy=PolicyFact.AFTER_RESTORE, **lost)
    check(Label.RUN_VOIDED, COMMAND, attempt=AttemptFact.VOID, is_restored=True, **lost)


def test_decision_restore_and_rerun_for_what_may_run_again() -> None:
    for policy in (PolicyFact.SAFE, PolicyFact.AFTER_RESTORE):
        check(Label.RESTORE_AND_RERUN, COMMAND, policy=policy)


def test_decision_restore_and_interrupt_for_what_may_not() -> None:
    check(Label.RESTORE_AND_INTERRUPT, COMMAND, policy=PolicyFact.NEVER)


def test_decision_ask_when_what_ran_is_unknown() -> None:
    for attempt in (AttemptFact.UNKNOWN, AttemptFact.EXIT_CUT):
        check(Label.ASK, COMMAND, policy=PolicyFact.ASK, attempt=attempt)


def test_decision_settled_when_equal_or_just_restored() -> None:
    check(Label.SETTLED, QUIET)
    check(Label.SETTLED, QUIET, is_restored=True, difference=DifferenceFact.DIFFERENT)


def test_decision_restore_unsynced_head_under_another_boot() -> None:
    check(Label.RESTORE_UNSYNCED_HEAD, QUIET, boot=BootFact.OTHER, difference=DifferenceFact.DIFFERENT)


def test_decision_record_outside_keeps_two_days_of_edits_after_a_pause_and_a_reboot() -> None:
    check(Label.RECORD_OUTSIDE, QUIET, boot=BootFact.SYNCED, difference=DifferenceFact.DIFFERENT)
    check(Label.RECORD_OUTSIDE, QUIET, difference=DifferenceFact.DIFFERENT)


def test_decision_outside_deletion_waits_for_a_person() -> None:
    check(Label.OUTSIDE_DELETION, QUIET, difference=DifferenceFact.MASS_DELETION)
