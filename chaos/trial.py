"""One trial: set its stage, play its plan on real processes until the session ends, then have it judged.

A trial passes only if every action of its plan provably fired where it was aimed and every oracle says pass. A fault that did not fire, a
deadline that passed and trouble of the harness itself are unknown.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.actions import format_action
from chaos.drivers import ROOT_SIDE_NAME, Place, base_environment
from chaos.judging import Judgement, OracleProcess
from chaos.plan import find_unfired
from chaos.play import Listing, Part, Play, Played, Woken, unplayed
from chaos.reference import Reference, make_reference
from chaos.results import Action, OracleVerdict, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.saved import SavedStates
from chaos.scenario import Scenario, to_json
from chaos.stage import read_steps
from chaos.transcript import Transcript, unplace_question, write_transcript
from chaos.trees import remove_tree
from recovery.labels import Label

LEDGER_ID = re.compile(rb'"ledger_id":"([0-9a-f]+)"')
"""In the first line of a ledger."""


@dataclass(slots=True)
class Bench:
    """What one runner keeps between trials: its oracle, each scenario's reference, the saved states."""

    oracle: OracleProcess
    references: dict[Scenario, Reference] = field(default_factory=dict)
    saved: SavedStates = field(init=False)

    def __post_init__(self) -> None:
        self.saved = SavedStates(self.oracle)

    def reference(self, scenario: Scenario, directory: Path) -> Reference:
        """The plain run's end, made once per scenario in the empty `directory`, which is left empty."""
        if scenario not in self.references:
            plain = directory / "plain"
            self.references[scenario] = make_reference(scenario, plain, base_environment(), self.oracle)
            remove_tree(plain)
        return self.references[scenario]


def record_scenario(bench: Bench, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Recording:
    """A run in which nothing is done but `prefix`: the steps after it, and its own verdict."""
    saved = bench.saved.find_longest(scenario, prefix, directory)
    copy = bench.saved.find_copy(scenario, prefix, directory) if saved == len(prefix) else None
    state = "" if copy is None else bench.oracle.digest_state(Place(copy), scenario.name)
    trial = Trial(0, scenario.name, prefix, fault="", saved=saved)
    result, played, judgement = _run(bench, scenario, trial, directory, {})
    place = Place(directory)
    steps = read_steps(place, played.recorded_from)
    return Recording(scenario.name, steps, result, read_kill_mark(place), prefix, saved, judgement.final_parts or {}, state)


def read_kill_mark(place: Place) -> str:
    """The kind of mark that the clean run's ledger names."""
    ledger = place.state / "space" / "ledger"
    lines = ledger.read_text("utf-8", "replace").splitlines() if ledger.exists() else []
    prepared = next((line.partition(" ")[2] for line in lines if '"op":"prepare"' in line), "")
    return str(json.loads(prepared)["mark"]).partition(":")[0] if prepared else "cgroup"


def run_trial(
    bench: Bench, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any], *, transcribe: bool = False
) -> TrialResult:
    """Run and judge one trial in an empty directory. `converges_to` are the parts of the final state that it must end in, empty where
    nothing is known of it. The transcript of one that did not pass is left in the directory, of any when `transcribe`. Never raises for
    what the engine does."""
    return _run(bench, scenario, trial, directory, converges_to, transcribe)[0]


def _run(
    bench: Bench, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any], transcribe: bool = False
) -> tuple[TrialResult, Played, Judgement]:
    began = time.monotonic()
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    bench.reference(scenario, directory)
    state = bench.saved.set_stage(scenario, trial.plan[: trial.saved], directory)
    place = Place(directory)
    part = Part(trial.plan[len(state.faults) :], trial.entry, state.ends)
    played = Play(scenario, place, part, bench.oracle).run_to_end()
    played.faults[:0] = state.faults
    played.edits[:0] = state.edits
    played.parked[:0] = state.parked
    remove_cgroups(place)
    result, judgement = judge_trial(bench, scenario, trial, place, played, began, converges_to, transcribe=transcribe)
    return result, played, judgement


def judge_trial(
    bench: Bench,
    scenario: Scenario,
    trial: Trial,
    place: Place,
    played: Played,
    began: float,
    converges_to: Mapping[str, Any],
    *,
    transcribe: bool = False,
) -> tuple[TrialResult, Judgement]:
    """Have what was played in `place` since `began` (monotonic seconds) judged; its reference has been made."""
    reference = bench.references[scenario]
    question = question_of(scenario, trial, place, reference, played) | {
        "converges_to": converges_to.get("final"),
        "converges_to_parts": converges_to.get("parts"),
        "displaced": _find_displaced(played.looks, bench.oracle.list_tree(place.work)) if played.looks else [],
    }
    judgement = bench.oracle.judge(question)
    result = _conclude(trial, played, judgement, (*judgement.verdicts, *played.findings), time.monotonic() - began)
    if transcribe or result.verdict is not Verdict.PASS:
        _transcribe(bench, scenario, result, place.directory, question, converges_to)
    return result, judgement


def _transcribe(
    bench: Bench, scenario: Scenario, result: TrialResult, directory: Path, question: dict[str, object], converges_to: Mapping[str, Any]
) -> None:
    """Leave the transcript; the oracle is asked again, in a scratch directory of its own, for the events."""
    scratch = directory / "scratch-history"
    scratch.mkdir()
    events = bench.oracle.judge(question | {"scratch": str(scratch), "history": True}).events
    asked = unplace_question(question, directory)
    write_transcript(directory, Transcript(to_json(scenario), result, list(events), dict(converges_to), asked))


def question_of(scenario: Scenario, trial: Trial, place: Place, reference: Reference, played: Played) -> dict[str, object]:
    """What the oracle is asked about what was played in `place`."""
    epochs = sorted({ended.epoch for ended in played.ends})
    return {
        "log": str(place.state / "log.sqlite"),
        "scratch": str(place.directory / "scratch"),
        "stream": scenario.name,
        "workspace": str(place.work),
        "witness": str(place.witness),
        "acknowledged": [*(str(place.output(epoch)) for epoch in epochs), *map(str, place.list_redriven())],
        "reference": reference.listing if scenario.on_interrupted == "reissue" else None,
        "reference_outputs": reference.outputs if scenario.compare_output else None,
        "reference_exits": reference.exits if scenario.on_interrupted == "reissue" else None,
        "witnessed": list(scenario.witnessed),
        "on_interrupted": scenario.on_interrupted,
        "script_length": len(scenario.calls),
        "expect_finished": True,
        "outside_edits": bool(played.edits) or any(action.do in ("edit", "turn") for action in trial.plan),
        "superseded": [list(held) for held in played.held],
        # Oracles are the same in every trial: that none of them is blind is shown once, on the clean run that must pass first.
        "suspect": trial.number == 0,
        "edits": played.edits,
        "frozen": [_woken_to_json(woken) for woken in played.woken if woken.listing_after is not None],
        "quarantine": str(place.find_quarantine()),
        "put_back": json.loads(place.put_back.read_text("ascii")) if place.put_back.exists() else None,
    }


def _woken_to_json(woken: Woken) -> dict[str, object]:
    return {
        "epoch": int(woken.who.partition("@")[2]),
        "listing_before": woken.listing_before,
        "listing_after": woken.listing_after,
        "head_before": woken.head_before,
        "head_after": woken.head_after,
    }


def _find_displaced(looks: Sequence[Listing], final: Listing) -> list[dict[str, object]]:
    """What stood in the workspace before a successor and stands otherwise at the end: it must be somewhere."""
    seen = ((path, entry) for look in looks for path, entry in look.items() if path.partition("/")[0] != ROOT_SIDE_NAME)
    entries = ((path, entry) for path, entry in seen if entry != final.get(path))
    return [{**entry, "path": path} for path, entry in entries if entry.get("kind") in ("f", "l")]


def _conclude(trial: Trial, played: Played, judgement: Judgement, oracles: tuple[OracleVerdict, ...], seconds: float) -> TrialResult:
    unfired = find_unfired(trial, played.faults)
    verdicts = [one.verdict for one in oracles]
    reasons = [f"{one.oracle}: {one.detail}" for one in oracles if one.verdict is not Verdict.PASS]
    if unfired:
        verdicts.append(Verdict.UNKNOWN)
        reasons.append(f"did not fire: {format_action(unfired[0])}" + (f" and {len(unfired) - 1} more" if len(unfired) > 1 else ""))
        reasons += [fault.note for fault in played.faults if not fault.fired and fault.note]
    if played.trouble:
        # Trouble of the harness is never a failure of the product: what the oracles then find is an unfinished session.
        verdicts = [Verdict.UNKNOWN]
        reasons.insert(0, played.trouble)
    # A takeover that finds nothing to do commits no decision; that it was one is known by its driver.
    is_settled = not judgement.labels and len(played.ends) > 1 and not played.trouble
    labels, decisions = ({"settled": 1}, ("settled",)) if is_settled else (judgement.labels, judgement.decisions)
    # Rows that end with a person commit no decision; the driver names its row in its last words.
    parked = [text for text in played.parked if text in set(Label)]
    labels, decisions = dict(Counter(labels) + Counter(parked)), (*parked, *decisions)
    return TrialResult(
        trial=trial,
        verdict=merge_verdicts(verdicts),
        reason="; ".join(reasons),
        faults=(*played.faults, *unplayed(trial.plan, played.faults)),
        oracles=oracles,
        drivers=tuple((ended.epoch, ended.code) for ended in played.ends),
        labels=labels,
        restored=judgement.restored,
        displaced=judgement.displaced,
        seconds=round(seconds, 4),
        decisions=decisions,
        digest=judgement.digest or "",
        final=judgement.final or "",
        lost_calls=judgement.lost_calls,
        bound=judgement.bound,
    )


def remove_cgroups(place: Place) -> None:
    """Give back the cgroup leaves of a trial whose session did not come to give them back itself. A ledger that was damaged on purpose may
    not say any more what they are called: then they stay, empty, for the next trial of the same session."""
    if not place.ledger.exists():
        return
    named = LEDGER_ID.search(place.ledger.read_bytes().partition(b"\n")[0])
    if named is None:
        return
    name = f"crashworthy.{named[1].decode('ascii')}"
    for top in (*_own_cgroups(" - cgroup2 ", "", "0::"), *_own_cgroups(" - cgroup ", ",freezer", ":freezer:")):
        for directory, _, _ in os.walk(top / name, topdown=False):
            os.rmdir(directory)


def _own_cgroups(kind: str, end: str, begin: str) -> list[Path]:
    """This process's own directory in the hierarchies mounted so, of which /proc/self/cgroup has a line with `begin`."""
    mounted = [line for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines() if kind in line and line.endswith(end)]
    own = [line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines() if begin in line]
    return [Path(line.split(" ")[4] + path) for line in mounted for path in own]
