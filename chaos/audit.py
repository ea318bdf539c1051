"""The audit of determinism: a sample of trials is played twice, and the two histories are compared. Pure.

What must hold: the sample is drawn by the seed before anything runs; a difference names the first event at which the two part; an audit
that compared nothing makes the run unknown.
"""

import random
from collections.abc import Sequence

import msgspec

from chaos.divergence import find_divergence
from chaos.results import Trial
from chaos.transcript import Transcript

Key = tuple[str, int]
ENTRY = "fork"


class Compared(msgspec.Struct, frozen=True):
    """One trial played twice: the history digests, and the first difference ("" for none)."""

    scenario: str
    trial: int
    digest: str
    again: str
    difference: str = ""


def key_of(trial: Trial) -> Key:
    """What names a trial in its run."""
    return trial.scenario, trial.number


def choose_audited(trials: Sequence[Trial], wanted: int, seed: int) -> frozenset[Key]:
    """`wanted` of the trials that are forked from the zygote, drawn by the seed; all of them where there are fewer."""
    keys = sorted(key_of(trial) for trial in trials if trial.entry == ENTRY)
    return frozenset(random.Random(f"{seed} audit").sample(keys, min(wanted, len(keys))))


def compare(first: Transcript | str, again: Transcript) -> Compared:
    """A transcript, or the digest alone where no more is known, and that of the second time. A history that could not be read is equal to
    nothing: it proves nothing."""
    trial, other = again.result.trial, again.result.digest
    digest = first if isinstance(first, str) else first.result.digest
    difference = "" if isinstance(first, str) else find_divergence(first, again)
    if not difference and not (digest and other):
        difference = "a history could not be read"
    elif not difference and digest != other:
        difference = f"the digests differ, {digest} and {other}; of the first time no events are known"
    return Compared(trial.scenario, trial.number, digest, other, difference)


def judge_audit(compared: Sequence[Compared], wanted: int) -> list[str]:
    """What of an audit makes a run less than a pass, one sentence each."""
    differing = [one for one in compared if one.difference]
    reasons = [f"audit: {one.scenario} trial {one.trial} went another way when it was played again: {one.difference}" for one in differing]
    if wanted and not compared:
        reasons.append("audit: nothing was compared")
    return reasons
