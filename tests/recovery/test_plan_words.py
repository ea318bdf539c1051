"""What `recovery plan` says, over the product of all fact values: always something, and never a chain without an end."""


import msgspec
import pytest

from recovery.decision import decide
from recovery.facts import AttemptFact, CallFact, Facts, LedgerFact, LogFact, PolicyFact, RootFact, find_contradiction
from recovery.labels import Label
from recovery.plan_words import describe_evidence, describe_steps, foresee
from tests.recovery.test_decision import COMMAND, QUIET, product


def test_every_combination_is_explained_and_every_chain_begins_with_its_row_and_ends() -> None:
    for facts in product():
        if find_contradiction(facts):
            continue
        chain = foresee(facts)
        assert chain[0] is decide(facts) and len(chain) <= 4 and len(set(chain)) == len(chain), facts
        assert all(describe_evidence(facts)), facts


def changed(base: Facts, **values: object) -> Facts:
    return msgspec.structs.replace(base, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "chain"),
    [
        (changed(COMMAND, ledger=LedgerFact.MISSING), [Label.LEDGER_LOST, Label.RESTORE_AND_INTERRUPT]),
        (
            changed(COMMAND, ledger=LedgerFact.DAMAGED, attempt=AttemptFact.EXIT_CLEAN, policy=PolicyFact.SAFE),
            [Label.LEDGER_DAMAGED, Label.RESTORE_AND_RERUN, Label.RERUN_RESTORED],
        ),
        (
            changed(COMMAND, root=RootFact.MISSING, policy=PolicyFact.SAFE, attempt=AttemptFact.CLAIMED),
            [Label.ROOT_LOST, Label.RERUN_RESTORED],
        ),
        (changed(COMMAND, ledger=LedgerFact.MISSING, policy=PolicyFact.ASK), [Label.LEDGER_LOST, Label.ASK]),
        (changed(QUIET, ledger=LedgerFact.MISSING), [Label.LEDGER_LOST, Label.SETTLED]),
        (changed(QUIET, log=LogFact.BEHIND), [Label.LOG_BEHIND_RESTORE]),
        (QUIET, [Label.SETTLED]),
    ],
)
def test_the_rows_that_follow_are_foreseen_as_far_as_the_facts_tell(facts: Facts, chain: list[Label]) -> None:
    assert foresee(facts) == chain
    assert [line.partition(": ")[0] for line in describe_steps(facts, None)] == [label.value for label in chain]


def test_what_is_known_is_said_of_what_it_is_about() -> None:
    assert describe_evidence(QUIET) == [
        "ledger, log and workspace are the session's own and whole", "the workspace equals the newest image",
    ]  # fmt: skip
    said = describe_evidence(changed(COMMAND, ledger=LedgerFact.MISSING, attempt=AttemptFact.UNKNOWN))
    assert said[0] == "the ledger is missing" and "what its newest attempt did is not known" in said
    assert "its policy lets no attempt follow one that may have run (never)" in said
    lost = describe_evidence(changed(QUIET, call=CallFact.SETTLED, root=RootFact.MISSING))
    assert "nothing is where the workspace was" in lost and not any("newest image" in clause for clause in lost)
