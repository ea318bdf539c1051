"""What the faults of a campaign are, and which trials carried them out. Pure.

What must hold: a trial whose plan has an action that did not fire proved nothing; a step counts as killed only when the fault of a
trial aimed at it fired.
"""

from collections.abc import Sequence

from chaos.actions import format_plan
from chaos.results import Action, Fault, Trial, TrialResult

FAULTS = {
    "kill": "SIGKILL at the step, from outside, in a driver forked from the zygote; the wait status must show signal 9",
    "exec": "the same kill in a driver started as the real command: `recovery run` in a process of its own",
    "freeze": "SIGSTOP at the step while a successor runs to its end; then the process is woken, if it still lives: a driver must exit 75; "
    "one that holds the log's or the ledger's lock must have been killed by the successor",
    "edit": "somebody else edits the workspace (creates, changes, removes, makes another type of something): at each step of a call, or "
    "between calls, during one or after a crash, with a kill; nothing of it may be lost",
    "lose": "the workspace or another part of the session is taken away: at a step, between calls, after a crash, after the last call "
    "(chaos/README has what can be lost)",
    "rollback": "a kill at a commit, and the log's files put back as they were one, two or three commits before",
    "clock": "the clock that drivers read jumps, forward or backward, by hours or years: at a step, or with a kill",
    "race": "two or three drivers at once: some are frozen or held at steps while another goes on, then all go on, in either order",
    "pair": "two faults in one trial: each pair of kinds that can follow one another, in either order (--mode pairwise)",
    "random": "one fault or two, drawn by the seed with the workload they fall into (--mode random)",
    "syscall": "SIGKILL by strace before or after a system call of an unprepared `recovery run` or of a helper of it (--level syscall)",
    "power": "the power is lost: nothing but a legal state of the disk is left, under another boot id (--mode powerloss)",
    "copy": "the power is lost on a real file system: a copy of its image at that instant is mounted and held against the model "
    "(--mode crosscheck)",
    "again": "a second kill, inside the recovery from a first one; all placements must converge to one final state",
    "disk": "the disk fails one operation of a driver, or is full or read-only from there on: log, ledger, output, checkpoints, workspace "
    "(--mode disk)",
    "corrupt": "bytes of a file of the session are others: log, write-ahead log, contents, ledger, checkpoints (--mode corrupt)",
    "deeper": "a third kill (--depth N: and more), inside the recovery from the second one; it must converge to the same state",
}
BY_SCENARIO = {
    "output flood": "a command that writes far more than is kept, and one that writes without an end: the scenario flood",
    "hung command": "a command that is deaf to TERM under a time limit, also with its driver killed: the scenario hung",
    "redriver": "kills of the redriver and of its drivers: --mode redrive",
    "lock holder": "a freeze with the log's or the ledger's lock held, in open transactions too: the fault freeze",
}
"""What `chaos list faults` names besides, with the scenario, mode or fault that does it; nothing that --fault takes."""
UNREACHABLE_REASONS = (
    "lock held", "not in this scenario", "process already gone by then", "platform", "not yet", "sampled", "not drawn",
    "changes nothing", "equal state", "not every time",
)


def find_unfired(trial: Trial, faults: Sequence[Fault]) -> list[Action]:
    """The actions of a trial's plan that did not fire: such a trial is never a pass."""
    fired = [fault.fired and (fault.at, fault.do) == (action.at, action.do) for action, fault in zip(trial.plan, faults, strict=False)]
    return [action for number, action in enumerate(trial.plan) if number >= len(fired) or not fired[number]]


def find_fired(steps: Sequence[str], prefix: Sequence[Action], do: str, results: Sequence[TrialResult]) -> frozenset[str]:
    """The steps of `steps` at which one of these trials did `do` after the actions of `prefix`, all before it having fired."""
    fired = set()
    for result in results:
        plan, length = result.trial.plan, len(prefix)
        if plan[:length] != tuple(prefix):
            continue
        for number, (action, fault) in enumerate(zip(plan, result.faults, strict=False)):
            if not fault.fired:
                break
            if number >= length and action.do == do:
                fired.add(action.at)
    return frozenset(fired.intersection(steps))


def select_trials(trials: Sequence[Trial], step: str = "", fault: str = "", plan: Sequence[Action] = ()) -> list[Trial]:
    """The trials with an action at `step` (a full name), of the fault `fault` and of exactly the plan `plan`; empty ones select all."""
    return [
        trial
        for trial in trials
        if (not step or any(action.at == step for action in trial.plan))
        and (not fault or trial.fault == fault)
        and (not plan or trial.plan == tuple(plan))
    ]


def describe_trial(trial: Trial) -> str:
    """A trial's plan as text; `clean run` without one."""
    return format_plan(trial.plan) or "clean run"
