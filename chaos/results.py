"""What a campaign leaves behind, versioned: the one vocabulary that runner, oracle, judge and reports share.

Nothing here opens a file or knows the engine. Verdicts merge pass < unknown < fail: a fault that did not fire, a crashing
oracle and trouble in the harness are unknown, never a pass and never a product failure.
"""

import re
from enum import StrEnum
from typing import Any

import msgspec

RUN_FORMAT = 2


class Verdict(StrEnum):
    """The end of a trial, an oracle or a campaign."""

    PASS = "pass"
    UNKNOWN = "unknown"
    FAIL = "fail"


_ORDER = (Verdict.PASS, Verdict.UNKNOWN, Verdict.FAIL)


def merge_verdicts(verdicts: "list[Verdict]") -> Verdict:
    """The worst of `verdicts`; unknown for none at all, since nothing was judged."""
    return max(verdicts, key=_ORDER.index, default=Verdict.UNKNOWN)


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action of a plan (chaos/README, "Plans"): at the step `at` (`ROLE@EPOCH:NAME:N`, "" where none is waited for) do `do`, to the
    process `who` (`ROLE@EPOCH`, "" for the one that waits at the step). `path` and `content` belong to `edit` (None: removed)."""

    at: str
    do: str
    who: str = ""
    path: str = ""
    content: str | None = None


class Trial(msgspec.Struct, frozen=True):
    """One scenario x one plan. `entry` is `fork` (from the warm zygote), `exec` (the real command) or `syscall` (the same under strace).

    `fault` is the name in `FAULTS` under which it is counted. The first `saved` actions of the plan may be taken from a saved state
    instead of being played. `seed` draws what the trial samples by itself: the states of a power loss.
    """

    number: int
    scenario: str
    plan: tuple[Action, ...]
    entry: str = "fork"
    fault: str = "kill"
    saved: int = 0
    seed: int = 0


class Alive(msgspec.Struct, frozen=True):
    """A process of the trial that was alive just before the kill."""

    pid: int
    role: str
    name: str


class Fault(msgspec.Struct, frozen=True):
    """What became of one action: armed, reached (the process waits at the step), fired (the wait status proves it). A trial has one for
    each action of its plan, in the plan's order."""

    at: str
    do: str
    reached: bool
    fired: bool
    pid: int = 0
    signal: int = 0
    alive: tuple[Alive, ...] = ()
    half_written: bool = False
    note: str = ""
    who: str = ""


class OracleVerdict(msgspec.Struct, frozen=True):
    """What one named oracle says, with the first difference it found."""

    oracle: str
    verdict: Verdict
    detail: str = ""
    path: str = ""
    expected: str = ""
    found: str = ""
    event: str = ""


class TrialResult(msgspec.Struct, frozen=True):
    """All that a report needs of one trial. `drivers` holds (epoch, exit code or minus the signal) in the order of their ends,
    `decisions` the labels in the order decided, `digest` the history digest, `final` a digest of the state that the session ended in,
    `lost_calls` how many acknowledged calls the log's head has not, of `bound` that may be lost. `count` is how many trials it stands for:
    simulated ones that passed alike are counted together (chaos/README, "Simulation"). A power loss was tried with `states`
    of the disk; `pruned` were equal to others."""

    trial: Trial
    verdict: Verdict
    reason: str
    faults: tuple[Fault, ...]
    oracles: tuple[OracleVerdict, ...]
    drivers: tuple[tuple[int, int], ...]
    labels: dict[str, int]
    restored: int
    displaced: int
    seconds: float
    kept: str = ""
    decisions: tuple[str, ...] = ()
    digest: str = ""
    final: str = ""
    lost_calls: int = 0
    bound: int = 0
    count: int = 1
    states: int = 0
    pruned: int = 0


class Recording(msgspec.Struct, frozen=True):
    """A clean run of a scenario: its steps in the order passed, and its own verdict (it must pass before anything is killed).

    `prefix` are the actions that come before the recorded steps, of which the first `saved` can be taken from a saved state; `parts` tells
    what the digest `result.final` is made of.
    `state` is a digest of what the prefix left, where nothing of it lived any more ("": not known).
    `equal` are the steps of a simulated session at which nobody is killed, as a kill there leaves what one at an earlier step leaves.
    `kill_mark` is the mark that was in force (`cgroup` or `environment`): with `environment` the death of a command whose shim was
    killed cannot be proved, so those steps are unreachable.
    """

    scenario: str
    steps: tuple[str, ...]
    result: TrialResult
    kill_mark: str = "cgroup"
    prefix: tuple[Action, ...] = ()
    saved: int = 0
    parts: dict[str, Any] = {}
    state: str = ""
    equal: tuple[str, ...] = ()


class Signature(msgspec.Struct, frozen=True):
    """What makes two failures the same failure: which `oracle` said so ("" where none did), the class of its `detail` and of its `path`,
    and the last decision `label` of recovery ("" where it decided nothing). Scenario, step, calls and values are no part of it."""

    verdict: Verdict
    oracle: str
    detail: str
    path: str
    label: str

    def __str__(self) -> str:
        place = f" of {self.path}" if self.path else ""
        return f"{self.verdict} by {self.oracle or 'no oracle'}{place}, {self.label or 'nothing decided'}: {self.detail}"


_CLASSES = (
    (re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""), "TEXT"),
    (re.compile(r"[a-z]+(?:\.[0-9]+)?@[0-9]+:[a-z0-9_.-]+:[0-9]+"), "STEP"),
    (re.compile(r"(?<![\w/])/[^\s:;,]+"), "PATH"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b"), "DIGEST"),
    (re.compile(r"[0-9]+"), "N"),
    (re.compile(r"\bN(?:, N)+\b"), "N"),
)
"""What of a detail is a value of one trial, in the order in which it is replaced."""
MOST_DETAIL = 160


def find_judge(result: TrialResult) -> OracleVerdict | None:
    """The oracle that made this trial what it is: the first that says the trial's own verdict."""
    return next((oracle for oracle in result.oracles if oracle.verdict is result.verdict), None)


def signature_of(result: TrialResult) -> Signature:
    """The signature of a trial that did not pass (chaos/README, "Signature")."""
    judge = find_judge(result)
    detail, path = (judge.detail, judge.path) if judge is not None else (result.reason, "")
    label = result.decisions[-1] if result.decisions else ""
    return Signature(result.verdict, judge.oracle if judge else "", classify_detail(detail), "a path" if path else "", label)


def classify_detail(detail: str) -> str:
    """A detail without the values of its trial: quoted text, steps, paths, digests and numbers by their kind, its first 160 characters."""
    for pattern, kind in _CLASSES:
        detail = pattern.sub(kind, detail)
    return detail[:MOST_DETAIL]
