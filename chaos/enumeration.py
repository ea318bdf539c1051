"""From a recording to trials: record once, then aim one trial at each step. Pure; by name and ordinal, never by timers.

What must hold: everything in the recording is either aimed at or named with a reason from `UNREACHABLE_REASONS`; so
steps = killed + unreachable, and for a set that freezes, steps = frozen + not frozen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chaos.results import Action, Recording, Trial
from chaos.scenario import Scenario
from chaos.step import Step, format_step, lock_of, parse_step, role_of
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError

EXEC_STEP = "driver@1:outcome.commit.before:1"
OF_OWN_RUNNERS = {"corrupt": ("corrupt", "corrupt"), "fail": ("fork", "disk")}
"""What is done by trials that a runner of their own plays, with entry and fault of such a trial."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A step of the clean run that no trial aims at, with one of `UNREACHABLE_REASONS`."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Enumeration:
    """What the recording of one trial set makes: `steps` are its distinct steps, each killed by a trial or `unreachable`; `frozen` are
    those at which a trial freezes, `not_frozen` the others of a set that freezes. `does` is what is done in place of a kill."""

    scenario: str
    steps: tuple[str, ...]
    trials: tuple[Trial, ...]
    unreachable: tuple[Unreachable, ...]
    kill_mark: str = "cgroup"
    prefix: tuple[Action, ...] = ()
    frozen: tuple[str, ...] = ()
    not_frozen: tuple[Unreachable, ...] = ()
    does: str = "kill"


def enumerate_trials(recording: Recording, scenario: Scenario, trial_set: TrialSet, first_number: int = 1) -> Enumeration:
    """The trials of one set, numbered from `first_number`, in a fixed order.

    Of a scenario with a plan of its own: that one trial, and the other steps are `not in this scenario`. Else one kill for each step that
    the set names, a freeze for each of its steps (but where the holder of a lock cannot be known), and the exec trial where its step
    is passed.
    Raises MisuseError when the recording holds what is no step.
    """
    steps = find_distinct(recording)
    if scenario.plan:
        aimed = {action.at for action in scenario.plan if action.do == "kill"}
        left_out = tuple(Unreachable(step, "not in this scenario") for step in steps if step not in aimed)
        trial = Trial(first_number, scenario.name, scenario.plan, fault="kill")
        return Enumeration(recording.scenario, steps, (trial,), left_out, recording.kill_mark)
    unprovable = _find_unprovable(steps) if recording.kill_mark == "environment" else frozenset()
    killed, unreachable = _choose_killed(steps, trial_set, unprovable, find_first_epoch(steps, recording.prefix))
    frozen, not_frozen = _choose_frozen(steps, trial_set, unprovable)
    fault = _name_fault(trial_set, recording.prefix)
    done = trial_set.does[0] if trial_set.does else Action("", "kill")
    plans = [((*recording.prefix, *_kill_at(step, done, trial_set, steps), *trial_set.then), "fork", fault) for step in killed]
    sleep = "race" if trial_set.race else "freeze"
    plans += [(plan, "fork", sleep) for step in frozen for plan in _freeze_plans(recording, step, trial_set)]
    plans += [((Action(EXEC_STEP, "kill"),), "exec", "exec")] if _has_exec(steps, trial_set) else []
    trials = tuple(
        Trial(number, scenario.name, plan, entry, fault, recording.saved if entry == "fork" else 0)
        for number, (plan, entry, fault) in enumerate(plans, first_number)
    )
    return Enumeration(recording.scenario, steps, trials, unreachable, recording.kill_mark, recording.prefix, frozen, not_frozen, done.do)


def find_distinct(recording: Recording) -> tuple[str, ...]:
    """The steps of a recording, each once, in the order passed. Raises MisuseError when it holds what is no step."""
    where = f"recording of {recording.scenario}"
    return tuple(dict.fromkeys(format_step(parse_step(step, where)) for step in recording.steps))


def _name_fault(trial_set: TrialSet, prefix: Sequence[Action]) -> str:
    """The name in `FAULTS` under which the kills of a set are counted."""
    if trial_set.is_inside_recovery:
        return "deeper" if trial_set.depth > 2 else "again"
    done = {action.do for action in (*prefix, *trial_set.does, *trial_set.then)}
    if trial_set.back:
        return "rollback"
    named = {"lose": "lose", "jump": "clock", "edit": "edit", "turn": "edit"}
    return next((fault for verb, fault in named.items() if verb in done), "kill")


def _has_exec(steps: Sequence[str], trial_set: TrialSet) -> bool:
    """Whether a set has the trial of the real command: one that kills drivers from nothing, and is a sample in the mode `ci` at most."""
    is_sample = bool(trial_set.sample) and trial_set.sample != trial_set.ci
    is_plain = not (trial_set.before or is_sample or trial_set.does or trial_set.then or trial_set.back)
    return is_plain and EXEC_STEP in steps and "driver" in trial_set.kill


def add_trial(one: Enumeration, plan: tuple[Action, ...]) -> Enumeration:
    """The enumeration with one trial more, of a plan that somebody gave."""
    number = max((trial.number for trial in one.trials), default=0) + 1
    entry, fault = OF_OWN_RUNNERS.get(one.does, ("fork", "kill"))
    return replace(one, trials=(*one.trials, Trial(number, one.scenario, plan, entry, fault)))


def _choose_killed(
    steps: Sequence[str], trial_set: TrialSet, unprovable: frozenset[str], first: int
) -> tuple[tuple[str, ...], tuple[Unreachable, ...]]:
    window, recovery = _find_window(steps, trial_set, first), _find_recovery(steps, first)
    if trial_set.lose == "space":
        window &= _find_with_space(steps)
    reasons: dict[str, str] = {}
    for step in steps:
        parsed = parse_step(step)
        if step in unprovable:
            reasons[step] = "platform"
        elif role_of(parsed) not in trial_set.kill:
            reasons[step] = "not in this scenario"
        elif parsed.epoch not in (first, 0):
            reasons[step] = "not yet"
        elif step not in window:
            reasons[step] = "not in this scenario"
        elif trial_set.is_inside_recovery and step not in recovery:
            reasons[step] = "not in this scenario"  # before and after recovery: killed by a set without a label
        elif trial_set.back and not _find_kept(step, trial_set.back, steps):
            reasons[step] = "not in this scenario"  # no commit, or not so many before it
    aimed = [step for step in steps if step not in reasons]
    sampled = _sample(aimed, trial_set.sample)
    reasons |= {step: "sampled" for step in aimed if step not in sampled}
    return tuple(sampled), tuple(Unreachable(step, reasons[step]) for step in steps if step in reasons)


def find_first_epoch(steps: Sequence[str], prefix: Sequence[Action]) -> int:
    """The epoch of the first driver that was recorded; after a kill that of the killed process's successor: what is left of the killed
    epoch may pass steps on its way out."""
    epochs = [parsed.epoch for parsed in map(parse_step, steps) if parsed.role == "driver"]
    after = parse_step(prefix[-1].at).epoch if prefix and prefix[-1].do == "kill" and prefix[-1].at else 0
    return min((epoch for epoch in epochs if epoch > after), default=min(epochs, default=1))


def _find_window(steps: Sequence[str], trial_set: TrialSet, epoch: int) -> frozenset[str]:
    """The steps that a set is limited to: of one call, from before its intent to before the next intent or the end; up to its `until`."""
    begin, end = 0, len(steps)
    if trial_set.until and trial_set.until not in steps:
        raise MisuseError(f"until {trial_set.until}: the clean run passes no such step; chaos list steps shows those it passes")
    if trial_set.call and f"driver@{epoch}:intent.commit.before:{trial_set.call}" not in steps:
        raise MisuseError(f"call {trial_set.call}: the recorded driver begins no such call; count from the first that it begins")
    if trial_set.call:
        intent = f"driver@{epoch}:intent.commit.before:{{}}"
        ends = [intent.format(trial_set.call + 1), f"driver@{epoch}:finish.syncfs.before:1"]
        begin = steps.index(intent.format(trial_set.call))
        end = min((steps.index(step) for step in ends if step in steps), default=len(steps))
    if trial_set.until in steps:
        end = min(end, steps.index(trial_set.until) + 1)
    return frozenset(steps[begin:end])


def _find_with_space(steps: Sequence[str]) -> frozenset[str]:
    """The steps from where the spawner says that it is there: before, there is nothing of a space to be ended."""
    begin = next((number for number, step in enumerate(steps) if step.startswith("spawner@")), len(steps))
    return frozenset(steps[begin + 1 :])


def _find_recovery(steps: Sequence[str], epoch: int) -> frozenset[str]:
    """The steps of recovery: from before the floor is raised (rule T1) to its end, or to where the next attempt begins, which is a call
    like any other. All steps when these are not passed."""
    ends = [f"driver@{epoch}:recovered:1", f"driver@{epoch}:intent.commit.before:1"]
    floor = f"driver@{epoch}:floor.commit.before:1"
    begin = steps.index(floor) if floor in steps else 0
    return frozenset(steps[begin : min((steps.index(step) + 1 for step in ends if step in steps), default=len(steps))])


def _sample(steps: Sequence[str], wanted: int) -> list[str]:
    """`wanted` of the steps (0: all), evenly spread, the first and the last among them."""
    if not wanted or wanted >= len(steps):
        return list(steps)
    if wanted == 1:
        return [steps[0]]
    return [steps[round(place * (len(steps) - 1) / (wanted - 1))] for place in range(wanted)]


def _choose_frozen(
    steps: Sequence[str], trial_set: TrialSet, unprovable: frozenset[str]
) -> tuple[tuple[str, ...], tuple[Unreachable, ...]]:
    if not trial_set.freeze:
        return (), ()
    first = min((parsed.epoch for parsed in map(parse_step, steps) if parsed.role == "driver"), default=1)
    window = _find_window(steps, trial_set, first)
    named = _find_named(steps)
    reasons: dict[str, str] = {}
    for step in steps:
        parsed = parse_step(step)
        if role_of(parsed) not in trial_set.freeze:
            reasons[step] = "not in this scenario"
        elif step in unprovable:
            reasons[step] = "platform"
        elif step not in window:
            reasons[step] = "not in this scenario"
        elif _ends_session(parsed, steps) or (trial_set.race and _comes_again(parsed, steps)):
            reasons[step] = "process already gone by then"
        elif lock_of(parsed) and (step not in named or trial_set.race):
            reasons[step] = "lock held"
        elif trial_set.race and parsed.epoch != first:
            reasons[step] = "not yet"
    held = [step for step in steps if step not in reasons and lock_of(parse_step(step))]
    tried = _sample(held, trial_set.held)
    reasons |= {step: "sampled" for step in held if step not in tried}
    if trial_set.race:
        free = [step for step in steps if step not in reasons]
        tried = _sample(free, trial_set.sample)
        reasons |= {step: "sampled" for step in free if step not in tried}
    aimed = tuple(step for step in steps if step not in reasons)
    return aimed, tuple(Unreachable(step, reasons[step]) for step in steps if step in reasons)


def _find_named(steps: Sequence[str]) -> frozenset[str]:
    """The steps with the log's or the ledger's lock held by a process that a successor can know (rule L4): not before its driver's
    identity file is there (a log that has no name yet, which nobody else wants), and not the lock of the registry of holders, which
    is no session's own."""
    found, drivers = set(), set()
    for step in steps:
        parsed = parse_step(step)
        if parsed.role == "driver" and parsed.name == "identity.rename.after":
            drivers.add(parsed.epoch)
        if lock_of(parsed) in ("log", "ledger") and parsed.epoch in drivers:
            found.add(step)
    return frozenset(found)


def _ends_session(step: Step, steps: Sequence[str]) -> bool:
    """Whether the session has its end in the log already at this step, so that no successor can supersede its driver."""
    finish = f"driver@{step.epoch}:finish.commit.after:1"
    return finish in steps and steps.index(format_step(step)) >= steps.index(finish)


def _comes_again(step: Step, steps: Sequence[str]) -> bool:
    """Whether the process passes this name once more after the session's end. In a race that later pass may be the one that has this
    ordinal: what the recording's driver cleared away of an older one that had ended is not there to be cleared while that one sleeps."""
    alike = [parsed for parsed in map(parse_step, steps) if (parsed.role, parsed.epoch, parsed.name) == (step.role, step.epoch, step.name)]
    return any(_ends_session(parsed, steps) for parsed in alike)


def _kill_at(step: str, done: Action, trial_set: TrialSet, steps: Sequence[str]) -> tuple[Action, ...]:
    """What a trial does at one step: a kill or what the set does in its place; with `back` the log is kept some commits before."""
    act = replace_step(done, step)
    if not trial_set.back:
        return (act,)
    return Action(_find_kept(step, trial_set.back, steps), "keep", path="log"), act, Action("", "lose", path="log")


def replace_step(action: Action, step: str) -> Action:
    """The same action at a step."""
    return Action(step, action.do, "", action.path, action.content)


def _find_kept(step: str, back: int, steps: Sequence[str]) -> str:
    """The commit of the same driver that lies `back` commits before the one that ends at `step`; "" when that is none or there are not so
    many."""
    role = step.partition(":")[0]
    commits = [one for one in steps if one.startswith(f"{role}:") and ".commit.after:" in one]
    if step not in commits or not step.startswith("driver@") or commits.index(step) < back:
        return ""
    return commits[commits.index(step) - back]


def _freeze_plans(recording: Recording, step: str, trial_set: TrialSet) -> list[tuple[Action, ...]]:
    """The plans of one freeze: one, or in a race two, which wake the two that sleep in either order."""
    if not trial_set.race:
        return [_freeze_plan(recording.prefix, step)]
    epoch = parse_step(step).epoch
    newest, older = f"driver@{epoch}", [f"driver@{parse_step(one.at).epoch}" for one in recording.prefix if one.do == "freeze"]
    frozen = (*recording.prefix, Action(step, "freeze"), Action("", "start"), Action("", "end", f"driver@{epoch + 1}"))
    orders = ([*older, newest], [newest, *older])
    return [(*frozen, *(Action("", do, who) for who in order for do in ("wake", "end"))) for order in orders]


def _freeze_plan(prefix: Sequence[Action], step: str) -> tuple[Action, ...]:
    """Freeze at the step, let a successor run to its end, wake, and wait for the ends of all that is old. A frozen holder of a lock is
    not woken: its successor must have killed it."""
    parsed = parse_step(step)
    old, driver = f"{parsed.role}@{parsed.epoch}", f"driver@{parsed.epoch}"
    frozen = (*prefix, Action(step, "freeze"), Action("", "start"), Action("", "end", f"driver@{parsed.epoch + 1}"))
    if lock_of(parsed):
        others = [] if old == driver else [driver]
        return (*frozen, Action("", "killed", old), *(Action("", "end", who) for who in others))
    ends = [old] if old == driver else [old, driver]
    return (*frozen, Action("", "wake", old), *(Action("", "end", who) for who in ends))


def _find_unprovable(steps: Sequence[str]) -> frozenset[str]:
    """Steps of shims between their starting mark and their exit record: killed there under the environment mark, nobody can prove
    that their command is dead, and recovery rightly refuses to go on (rule S8)."""
    found: set[str] = set()
    running: set[str] = set()
    for step in steps:
        parsed = parse_step(step)
        if not parsed.role.startswith("shim"):
            continue
        if parsed.name == "ledger.start.append.unsynced":
            running.add(parsed.role)
        if parsed.name == "ledger.exit.append.unsynced":
            running.discard(parsed.role)
        if parsed.role in running:
            found.add(step)
    return frozenset(found)
