"""One trial of a power loss: every state that the disk may hold at one cut, each laid out, recovered by a real driver and judged.

What must hold: a state counts as explored only when the disk holds it (it is read back) and when it differs from the disk as it was; no
state of a cut is tried where that of a disk that lost everything is not, bytes and names, what was synced (`find_unlike`);
a cut at which there is no such state has fired all the same where the machine was restarted, and counts none. The first state that
does not pass ends the trial and is what is kept of it.
"""

import itertools
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from chaos.drivers import Place
from chaos.play import Part, Play, Played
from chaos.powerloss.device import DROPPED, KEPT, STRICT, Choice, Cut, Fate, Traits, build, choose, cut_after
from chaos.powerloss.disk import lay_out, read_logged
from chaos.powerloss.files import File, Unit, build_tree, choose_fates
from chaos.powerloss.history import Moment
from chaos.powerloss.record import Recorded, ended, record_run
from chaos.powerloss.recorder import LOGGED
from chaos.results import Action, Fault, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.scenario import Scenario
from chaos.stage import Ended
from chaos.trees import empty_tree
from chaos.trial import Bench, judge_trial, read_kill_mark, remove_cgroups
from eventlog.errors import required

SAMPLE = 6
"""Drawn choices for each cut, besides those that are enumerated; half as many for the files of commands."""
EARLIER = 2
"""Drawn from the looks at the workspace since its last sync: a file system may have written what stood there then, and no more."""
TRIES = 3
"""How often a scenario is recorded anew to find a cut by its name: what several processes do at once differs from run to run."""
TROUBLE = "power-record"


@dataclass(frozen=True, slots=True)
class DiskState:
    """One state: the engine's files, the workspace's, and in words what was lost."""

    logged: Mapping[str, bytes | None]
    tree: Mapping[str, File]
    words: str
    is_uncut: bool
    digest: bytes


@dataclass(slots=True)
class PowerBench:
    """A bench, with what its runner has recorded, by scenario, prefix and directory."""

    bench: Bench
    recorded: dict[tuple[str, tuple[Action, ...], Path], Recorded] = field(default_factory=dict)


def record_scenario(bench: PowerBench, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Recording:
    """The clean run: the moments at which the power may be cut, and its verdict."""
    began = time.monotonic()
    saved = bench.bench.saved.find_longest(scenario, prefix, directory)
    if saved != len(prefix):
        trial = Trial(0, scenario.name, prefix, fault="")
        return Recording(scenario.name, (), _tell_trouble(trial, "what comes before cannot be saved: a process of it lived on"))
    trial = Trial(0, scenario.name, prefix, fault="", saved=saved)
    recorded = _record(bench, scenario, trial, directory)
    place = Place(directory)
    played = Played(faults=list(recorded.before.faults), ends=[*recorded.before.ends, Ended(recorded.epoch, recorded.code)])
    result, judgement = judge_trial(bench.bench, scenario, trial, place, played, began, {})
    trouble = recorded.history.trouble or ([] if recorded.code == 0 else [f"the recorded driver ended with {recorded.code}"])
    if trouble:
        result = msgspec.structs.replace(_tell_trouble(trial, "; ".join(trouble)), oracles=result.oracles)
    names = tuple(moment.name for moment in recorded.history.moments)
    return Recording(scenario.name, names, result, read_kill_mark(place), prefix, saved, judgement.final_parts or {})


def run_cut(bench: PowerBench, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
    """Try every state of one cut. Never raises for what the engine does."""
    began = time.monotonic()
    at = trial.plan[-1].at
    recorded = _find_recorded(bench, scenario, trial, directory)
    number = next((number for number, one in enumerate(recorded.history.moments) if one.name == at), None)
    if number is None or recorded.history.trouble:
        words = "; ".join(recorded.history.trouble) or f"no run of {TRIES} came by {at}"
        return _tell_trouble(trial, words)
    if unlike := find_unlike(recorded, recorded.history.moments[number]):
        return _tell_trouble(trial, unlike)
    tally = _Tally()
    point = trial.plan[-1].path
    if point:
        sound, recorded = recorded, recorded.without(point)
        if not _is_shown(sound, recorded, number):
            return _tell_none(trial, began, 0)
        seen = {state.digest for state in list_states(sound, sound.history.moments[number], _draw(trial, at))}
    else:
        seen = set()
    seen |= _digests_before(recorded, number, trial)
    for state in list_states(recorded, recorded.history.moments[number], _draw(trial, at)):
        if state.digest in seen and (point or not state.is_uncut):
            tally.pruned += 1
            continue
        seen.add(state.digest)
        one = _State(trial, recorded, recorded.history.moments[number], state)
        if not tally.add(state, _run_state(bench.bench, scenario, one, Place(directory), converges_to)):
            break
    if point and not tally.states:
        return _tell_none(trial, began, tally.pruned)
    return tally.conclude(time.monotonic() - began)


def _tell_trouble(trial: Trial, words: str) -> TrialResult:
    return TrialResult(trial, Verdict.UNKNOWN, f"{TROUBLE}: {words}", (), (), (), {}, 0, 0, 0.0)


def _is_shown(sound: Recorded, recorded: Recorded, number: int) -> bool:
    """Whether a disk may hold more at a cut without a sync than with it: something is pending there that is not, or unsynced."""
    one, other = sound.history.moments[number], recorded.history.moments[number]
    with_it, without = (cut_after(run.history.operations, one.issued, STRICT) for run in (sound, recorded))
    same = (one.synced, len(one.between)) == (other.synced, len(other.between)) and one.old == other.old
    return not same or with_it.pending != without.pending


def _tell_none(trial: Trial, began: float, pruned: int) -> TrialResult:
    """No state that a run with the sync does not have as well."""
    return TrialResult(trial, Verdict.PASS, "", (), (), (), {}, 0, 0, round(time.monotonic() - began, 4), pruned=pruned)


def _draw(trial: Trial, name: str) -> random.Random:
    return random.Random(f"{trial.seed}:{trial.scenario}:{name}")


def _record(bench: PowerBench, scenario: Scenario, trial: Trial, directory: Path) -> Recorded:
    prefix = trial.plan[: trial.saved]
    bench.bench.reference(scenario, directory)
    before = bench.bench.saved.set_stage(scenario, prefix, directory)
    recorded = record_run(scenario, Place(directory), before, bench.bench.oracle)
    remove_cgroups(Place(directory))
    bench.recorded[scenario.name, prefix, directory] = recorded
    return recorded


def _find_recorded(bench: PowerBench, scenario: Scenario, trial: Trial, directory: Path) -> Recorded:
    """The run that a trial's cut is in: this runner's own, since paths stand in the log; recorded anew where its names have no such cut."""
    recorded = bench.recorded.get((scenario.name, trial.plan[: trial.saved], directory))
    for _ in range(TRIES):
        if recorded is not None and any(one.name == trial.plan[-1].at for one in recorded.history.moments):
            return recorded
        empty_tree(directory)
        recorded = _record(bench, scenario, trial, directory)
    return required(recorded, f"no run of {scenario.name} was recorded")


def list_states(recorded: Recorded, moment: Moment, draw: random.Random, traits: Traits = STRICT) -> Iterator[DiskState]:
    """The states of one cut, the same ones for the same draw: the uncut disk first. Equal ones are not left out."""
    cut = cut_after(recorded.history.operations, moment.issued, traits)
    choices = list(choose(cut, traits, draw, SAMPLE))
    trees = list(choose_fates(moment.old, moment.new, moment.synced, draw, SAMPLE // 2))
    everything, nothing = choices[0], choices[len(cut.pending)]
    pairs = [(choice, trees[0]) for choice in choices]
    pairs += [(choice, tree) for choice in (everything, nothing) for tree in trees[1:]]
    pairs += [(draw.choice(choices), draw.choice(trees)) for _ in range(SAMPLE // 2 if len(trees) > 1 else 0)]
    for choice, fates in pairs:
        yield _make_state(recorded, moment, cut, choice, fates)
    earlier = moment.between[:-1]
    for number in sorted(draw.sample(range(len(earlier)), min(EARLIER, len(earlier)))):
        then = replace(moment, new=earlier[number])
        state = _make_state(recorded, then, cut, draw.choice((everything, nothing)), {})
        words = f"{state.words}; the workspace as at look {number + 1} of {len(moment.between)} since its last sync"
        yield replace(state, words=words, is_uncut=False)


def find_unlike(recorded: Recorded, moment: Moment, traits: Traits = STRICT) -> str:
    """Why the states of a cut cannot be those of a disk: that on which all is lost is made of fates, and must be what was synced, which is
    known without any. The engine's files and the workspace apart: either alone would give states enough to hide that the other has none."""
    cut = cut_after(recorded.history.operations, moment.issued, traits)
    lost = build(cut, (DROPPED,) * len(cut.pending)).list_paths(recorded.history.is_directory)
    if lost != build(Cut(cut.operations, cut.settled, ()), ()).list_paths(recorded.history.is_directory):
        return "with everything lost that was not synced the engine's files are not what was synced"
    *_, oldest = itertools.islice(choose_fates(moment.old, moment.new, moment.synced, random.Random(0), 0), 2)
    if build_tree(moment.old, moment.new, oldest) != dict(moment.old):
        return "with everything lost that was not synced the workspace is not what was synced"
    return ""


def _make_state(recorded: Recorded, moment: Moment, cut: Cut, choice: Choice, fates: Mapping[Unit, str]) -> DiskState:
    logged = build(cut, choice).list_paths(recorded.history.is_directory)
    tree = build_tree(moment.old, moment.new, fates, moment.synced)
    words = [f"{recorded.history.words[number]}: {_tell(fate)}" for number, fate in zip(cut.pending, choice, strict=True) if fate != KEPT]
    words += [f"{', '.join(unit.paths)}: {fate}" for unit, fate in fates.items() if fate != "new"]
    hasher = blake3(f"{moment.output} {moment.witness}".encode())
    for path, content in logged.items():
        hasher.update(b"%d %s\0%d " % (content is None, path.encode("utf-8", "surrogateescape"), len(content or b"")) + (content or b""))
    for path, entry in sorted(tree.items()):
        hasher.update(f"{entry.kind} {entry.mode} {path}\0{len(entry.content)} ".encode("utf-8", "surrogateescape") + entry.content)
    return DiskState(logged, tree, "; ".join(words) or "as it was", not words, hasher.digest())


def _tell(fate: Fate) -> str:
    if fate == DROPPED:
        return "lost"
    return {"head": f"only before byte {fate.at}", "tail": f"only from byte {fate.at} on"}.get(fate.kind, fate.kind)


def _digests_before(recorded: Recorded, number: int, trial: Trial) -> set[bytes]:
    """The states of the cut before this one: a disk that can be found there, with as much said, need not be tried again."""
    if number == 0:
        return set()
    before = recorded.history.moments[number - 1]
    return {state.digest for state in list_states(recorded, before, _draw(trial, before.name))}


@dataclass(frozen=True, slots=True)
class _State:
    """One state of one cut of a recorded run, to be tried."""

    trial: Trial
    recorded: Recorded
    moment: Moment
    state: DiskState


def _run_state(bench: Bench, scenario: Scenario, one: _State, place: Place, converges_to: Mapping[str, Any]) -> TrialResult:
    """Lay one state out, drive the session to its end, have it judged."""
    began = time.monotonic()
    trial, recorded, moment, state = one.trial, one.recorded, one.moment, one.state
    others = {**recorded.others, place.output(recorded.epoch).name: recorded.output[: moment.output]}
    others[place.witness.name] = recorded.witness[: moment.witness]
    logged = {path: (content, 0o700 if content is None else 0o600) for path, content in state.logged.items()}
    lay_out(place, logged, state.tree, others, recorded.attributes)
    if read_logged(place, LOGGED) != dict(state.logged) or not place.boot.is_file():
        return _tell_trouble(trial, "the disk does not hold the state that was to be laid out")
    fault = Fault(trial.plan[-1].at, "cut", True, True)
    play = Play(scenario, place, Part((), "fork", ended(recorded)), bench.oracle)
    played = play.run_to_end()
    played.faults = [*recorded.before.faults, fault]
    remove_cgroups(place)
    return judge_trial(bench, scenario, trial, place, played, began, converges_to)[0]


class _Tally:
    """What the states of one cut came to."""

    def __init__(self) -> None:
        self._results: list[TrialResult] = []
        self._bad = ""
        self.states = 0
        self.pruned = 0

    def add(self, state: DiskState, result: TrialResult) -> bool:
        """Count one; False when no more are to be tried."""
        self._results.append(result)
        self.states += not state.is_uncut
        if result.verdict is not Verdict.PASS:
            self._bad = f"with the disk so: {state.words[:1500]}"
        return result.verdict is Verdict.PASS

    def conclude(self, seconds: float) -> TrialResult:
        """One result for the cut: that of its worst state, with the counts of all."""
        last = self._results[-1]
        labels: dict[str, int] = {}
        for result in self._results:
            for label, count in result.labels.items():
                labels[label] = labels.get(label, 0) + count
        return msgspec.structs.replace(
            last,
            verdict=merge_verdicts([result.verdict for result in self._results]),
            reason=f"{last.reason} ({self._bad})" if self._bad else "",
            labels=labels,
            restored=sum(result.restored for result in self._results),
            displaced=sum(result.displaced for result in self._results),
            lost_calls=max(result.lost_calls for result in self._results),
            seconds=round(seconds, 4),
            states=self.states,
            pruned=self.pruned,
        )
