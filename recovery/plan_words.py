"""What a forecast says in plain words: what is known, what follows from it, and which command does it. Pure."""

import msgspec

from recovery.decision import decide
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
)
from recovery.labels import RENEWALS, Label
from recovery.words import WORDS

_LEDGER = {
    LedgerFact.SOUND: "the ledger is whole",
    LedgerFact.MISSING: "the ledger is missing",
    LedgerFact.OTHER_GENERATION: "the ledger is not the one in force",
    LedgerFact.DAMAGED: "the ledger is damaged",
}
_LOG = {
    LogFact.ABREAST: "the log has all that the ledger has seen of it",
    LogFact.BEHIND_ONE_CLEAN: "the ledger has seen one call that the log lacks, with its intent and a clean exit",
    LogFact.BEHIND: "the ledger has seen more of the log than there is",
}
_ROOT = {
    RootFact.PRESENT: "the workspace is the session's own directory",
    RootFact.MISSING: "nothing is where the workspace was",
    RootFact.EMPTY_OTHER: "an empty directory, not the session's own, is where the workspace was",
    RootFact.UNMOUNTED: "nothing is where the workspace was, and its file system may not be mounted",
    RootFact.OTHER: "another directory is where the workspace was",
}
_ATTEMPT = {
    AttemptFact.NEVER_STARTED: "its newest attempt provably never started",
    AttemptFact.UNKNOWN: "what its newest attempt did is not known",
    AttemptFact.CLAIMED: "its command runs, and its shim answers for it",
    AttemptFact.EXIT_CLEAN: "its command ended by itself, and how is recorded",
    AttemptFact.EXIT_CUT: "its command was ended by a takeover",
    AttemptFact.RESTORED: "the workspace was restored to the image before it",
    AttemptFact.VOID: "its newest attempt was declared void",
}
_POLICY = {
    PolicyFact.SAFE: "its policy lets it run again after a restore (safe)",
    PolicyFact.AFTER_RESTORE: "its policy lets it run again after a restore (after-restore)",
    PolicyFact.NEVER: "its policy lets no attempt follow one that may have run (never)",
    PolicyFact.ASK: "its policy is to ask a person",
}
_BOOT = {
    BootFact.OTHER: "the machine was restarted since, and what was written then is not known to be on disk",
    BootFact.SYNCED: "the machine was restarted since, and what was written then is on disk",
}
_DIFFERENCE = {
    DifferenceFact.EQUAL: "the workspace equals the newest image",
    DifferenceFact.DIFFERENT: "the workspace differs from the newest image",
    DifferenceFact.MASS_DELETION: "most of the newest image is gone from the workspace",
}
KEPT = "the ledger is the session's own and newer than the log knows: it is kept, and the log is what lost something"
_RESTORING = frozenset({Label.ROOT_LOST, Label.RESTORE_AND_RERUN})
_MOST = 6  # no chain of rows is longer


def describe_evidence(facts: Facts) -> list[str]:
    """What is known, a clause each, in the order in which it is judged; what is as it should be is left out where more is to be said."""
    clauses = [_LEDGER[facts.ledger], _LOG[facts.log], _ROOT[facts.root]]
    if facts.ledger is LedgerFact.SOUND and facts.log is LogFact.ABREAST and facts.root is RootFact.PRESENT:
        clauses = ["ledger, log and workspace are the session's own and whole"]
    if facts.is_obliged:
        clauses.insert(0, "a restore was begun and has not ended")
    if facts.call in (CallFact.OPEN_COMMAND, CallFact.OPEN_FILE):
        clauses += [_ATTEMPT[facts.attempt]] if facts.attempt in _ATTEMPT else []
        clauses.append(_POLICY[facts.policy])
    elif facts.root is RootFact.PRESENT:
        clauses.append(_DIFFERENCE[facts.difference])
        if facts.is_restored:
            clauses.append("the workspace was just restored")
    if facts.boot in _BOOT:
        clauses.append(_BOOT[facts.boot])
    return clauses


def foresee(facts: Facts) -> list[Label]:
    """The row that applies, and the rows that apply after it was acted on, as far as they follow from these facts alone."""
    labels: list[Label] = []
    following: Facts | None = facts
    while following is not None and len(labels) < _MOST:
        label = decide(following)
        labels.append(label)
        following = _after(following, label)
    return labels


def _after(facts: Facts, label: Label) -> Facts | None:
    """The facts once `label` was acted on; None where nothing is left, or where they do not tell."""
    is_open = facts.call in (CallFact.OPEN_COMMAND, CallFact.OPEN_FILE)
    if label in RENEWALS:
        attempt = facts.attempt if facts.attempt in (AttemptFact.RESTORED, AttemptFact.VOID) else AttemptFact.UNKNOWN
        return msgspec.structs.replace(
            facts, ledger=LedgerFact.SOUND, log=LogFact.ABREAST, attempt=attempt if is_open else AttemptFact.NONE
        )  # fmt: skip
    if label in _RESTORING and is_open:
        return msgspec.structs.replace(facts, root=RootFact.PRESENT, attempt=AttemptFact.RESTORED, is_restored=True)
    return None


def describe_steps(facts: Facts, call: int | None) -> list[str]:
    """`<call>: <label>: <what it means>`, a line for each row that is foreseen."""
    about = f"call {call}: " if call is not None else ""
    return [f"{about}{label.value}: {WORDS[label]}" for label in foresee(facts)]
