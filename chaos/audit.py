"""The audit of determinism: a sample of trials is played twice, and the two histories are compared. Pure.

What must hold: the sample is drawn by the seed before anything runs, by what trials are and not by their numbers: which of two processes
passed its step first when they were recorded is chance; a difference names the first event at which the two part; an audit
that compared nothing makes the run unknown.
"""

from collections.abc import Sequence

import msgspec
from blake3 import blake3

from chaos.actions import format_plan
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
    drawn = sorted((trial for trial in trials if trial.entry == ENTRY), key=lambda trial: (_draw(trial, seed), trial.number))
    return frozenset(map(key_of, drawn[:wanted]))


def _draw(trial: Trial, seed: int) -> bytes:
    """Chance, decided by the seed and what the trial does."""
    return blake3(f"{seed} audit {trial.scenario} {trial.fault} {format_plan(trial.plan)}".encode()).digest()


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
