"""One workload at a bench: its clean run, the states a crash leaves at each of its steps, and trials, played and judged.

What must hold: a trial that begins from a saved state is the trial from the beginning. So a state is saved only where nobody but the driver
lives (an idle file worker aside, which ends with it): there a killed driver leaves what is durable, and nothing else. A test compares both.

Two steps of one process are equal where nothing durable has changed in between and no other process has gone on: killed at either it leaves
the same, and what follows is the same. A test plays both.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from chaos.campaign import distrust
from chaos.oracle.evidence import known
from chaos.oracle.judging import is_decision
from chaos.required import ALWAYS
from chaos.results import Action, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.sim.evidence import NOT_JUDGED, Read, Wanted, digest_final, digest_history, gather, judge_all
from chaos.sim.plain import run_plainly
from chaos.sim.play import OnStep, Play, Schedule
from chaos.sim.process import Process
from chaos.sim.workloads import Workload
from chaos.sim.world import SESSION, Durable, enter, open_session
from recovery.script import BashCall

SETTLED = "settled"
MARK = "simulated"
"""The kill mark of simulated processes, in reports."""


class Bench:
    """A workload with what its trials need. `clean` is its clean run; it must have passed before a trial means anything."""

    def __init__(self, workload: Workload, *, saves: bool = False) -> None:
        plain = run_plainly(workload)
        self.workload = workload
        self._opened = open_session(workload)
        self._wanted = Wanted(plain.listing, plain.outputs, plain.exits) if workload.on_interrupted == "reissue" else None
        self._saved: dict[str, Durable] = {}
        self._saves = saves
        self._read = Read()
        self.steps: list[str] = []
        self.equal: dict[str, str] = {}
        """Of each step the first one that is equal to it, often itself."""
        self._first: dict[Hashable, str] = {}
        self.clean = self._record()

    def _record(self) -> TrialResult:
        play = Play(self._opened.copy(), on_step=self._note)
        trial = Trial(0, self.workload.name, (), fault="")
        result = self.judge(self._run(play), trial, suspect=True)
        self._read.keep(play.world.durable)
        if self._wanted is not None and result.verdict is Verdict.PASS:
            self._wanted = replace(self._wanted, final=result.final)
        return result

    @property
    def saved_steps(self) -> frozenset[str]:
        """The steps at which a killed driver leaves a state that was saved."""
        return frozenset(self._saved)

    @property
    def distinct_steps(self) -> list[str]:
        """The steps without those that are equal to an earlier one."""
        return list(dict.fromkeys(self.equal.values()))

    def recording(self, equal: Sequence[str] = ()) -> Recording:
        """The clean run as campaigns have it, and the steps at which nobody is killed because they are equal to others."""
        return Recording(self.workload.name, tuple(self.steps), self.clean, MARK, equal=tuple(equal))

    def _note(self, play: Play, process: Process, step: str) -> None:
        self.steps.append(step)
        self.equal[step] = self._first.setdefault(_mark_left(play, process), step)
        others = [one for one in play.world.processes.living if one is not process and not one.is_idle]
        if self._saves and process.role == "driver" and not others:
            self._saved[step] = play.world.durable.copy()

    def play(self, plan: Sequence[Action], schedule: Schedule | None = None, *, from_zero: bool = False) -> Play:
        """Play a plan, from the state saved at its first kill where that is one."""
        saved = self._saved.get(plan[0].at) if plan and schedule is None and plan[0].do == "kill" and not from_zero else None
        if saved is None:
            return self._run(Play(self._opened.copy(), plan, schedule))
        return self._run(Play(saved.copy(), plan, killed_at=plan[0].at))

    def start(self, schedule: Schedule | None, on_step: OnStep) -> Play:
        """A play that has not begun, from the beginning: for who arms it on the way."""
        return Play(self._opened.copy(), (), schedule, on_step)

    def run(self, play: Play) -> Play:
        """Play it."""
        return self._run(play)

    def _run(self, play: Play) -> Play:
        enter(play.world)
        try:
            play.run()
        finally:
            enter(None)
        return play

    def judge(self, play: Play, trial: Trial, *, suspect: bool = False) -> TrialResult:
        """What came of it: every oracle, then the doubt whether each action of the plan fired and each oracle spoke."""
        evidence = gather(play.world.durable, self._wanted, self._read)
        verdicts = [*judge_all(evidence, suspect=suspect), *play.findings]
        verdict = merge_verdicts([one.verdict for one in verdicts])
        worst = next((one for one in verdicts if one.verdict is verdict), None)
        reason = "" if verdict is Verdict.PASS or worst is None else f"{worst.oracle}: {worst.detail}"
        stream = known(evidence.log).streams[SESSION]
        decided = tuple(str(event.payload["label"]) for event in stream.events if is_decision(event))
        if not decided and len(play.ends) > 1:
            decided = (SETTLED,)  # a takeover that finds nothing to do commits no decision
        restores = [event.payload for event in stream.of_kind("restore_finished")]
        result = TrialResult(
            trial, verdict, reason, tuple(play.faults), tuple(verdicts), tuple(play.ends), {one: decided.count(one) for one in decided},
            sum(one["restored"] for one in restores), sum(one["displaced"] for one in restores), 0.0, decisions=decided,
            final=digest_final(evidence), digest="" if verdict is Verdict.PASS and trial.number else digest_history(evidence),
        )  # fmt: skip
        return distrust(result, self._required(bool(evidence.request.witnessed)))

    def _required(self, is_witnessed: bool) -> frozenset[str]:
        """The oracles that must have spoken before a trial passes."""
        has_command = any(isinstance(call, BashCall) for call in self.workload.calls)
        asked = {"witness": is_witnessed, "reference": self._wanted is not None, "exits": self._wanted is not None and has_command}
        asked["convergence"] = self._wanted is not None and bool(self._wanted.final)
        return (ALWAYS - NOT_JUDGED).union(name for name, is_asked in asked.items() if is_asked)


def _mark_left(play: Play, killed: Process) -> Hashable:
    """What a process that is killed now leaves: what is durable, and the others, each of which waits where it has come to."""
    others = [(one.name, one.turns, one.is_idle, one.has_command) for one in play.world.processes.living if one is not killed]
    return play.world.durable.mark(), killed.name, killed.has_command, killed.is_floor_raised, tuple(others)
