"""A trial of a target: set its stage, play it, have it judged. And the clean runs that must pass before anything is killed.

A trial passes only if its kills provably fired, the target finished, and whoever judges says that the end is right.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from chaos.actions import format_action
from chaos.plan import find_unfired
from chaos.play import unplayed
from chaos.results import Action, OracleVerdict, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.step import parse_step
from chaos.syscalls.enumerate import ENTRY as SYSCALL_ENTRY
from chaos.syscalls.enumerate import FAULT as SYSCALL_FAULT
from chaos.syscalls.inject import TraceError
from chaos.target.check import Checker
from chaos.target.place import TargetPlace, make_place
from chaos.target.play import TargetPlay, TargetPlayed, read_announced, read_passes
from chaos.target.target import ENTRY, NAME, STARTED, Target, describe_target
from chaos.transcript import Transcript
from chaos.trees import copy_tree
from eventlog.errors import MisuseError

STEP_NAME = "small letters, digits, '.', '-' and '_'"


def run_target(
    target: Target, trial: Trial, directory: Path, given: Mapping[str, str], checker: Checker, *, is_recorded: bool = False
) -> TrialResult:
    """One trial in an empty directory. Never raises for what the target does. `is_recorded` as for `TargetPlay`."""
    began = time.monotonic()
    place = make_place(directory)
    if target.seed:
        copy_tree(Path(target.seed), place.work)
    played = TargetPlay(target, place, trial.plan, given, checker.pid, is_recorded=is_recorded).run()
    judged = checker.judge(place, len(played.ends), suspect=not trial.plan) if played.has_finished else ()
    return _conclude(trial, played, (*played.findings, *judged), time.monotonic() - began)


def record_target(
    target: Target, directory: Path, given: Mapping[str, str], checker: Checker, prefix: tuple[Action, ...] = ()
) -> Recording:
    """Two clean runs in directories of their own: the steps of the first, and its verdict, less than a pass where anything speaks against
    killing it now. With `prefix`, the kills that come before: one run, and the steps of the start after the last of them."""
    entry, fault = (SYSCALL_ENTRY, SYSCALL_FAULT) if target.is_traced else (ENTRY, "kill")
    trial = Trial(0, NAME, prefix, entry, fault)
    if prefix:
        return _record_after(target, trial, directory, given, checker)
    alone = msgspec.structs.replace(target, starts=1)
    result = run_target(alone, trial, directory, given, checker, is_recorded=True)
    place = TargetPlace(directory)
    steps: tuple[str, ...] = ()
    doubt = _describe_clean(result, place)
    if not doubt:
        steps, doubt = _read_steps(target, place)
    if not doubt:
        doubt = checker.find_blind(place)
    if not doubt and not target.is_traced:
        again = directory / "again"
        again.mkdir()
        doubt = _compare(run_target(alone, trial, again, given, checker), TargetPlace(again), steps)
    if doubt:
        result = msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=doubt)
    return Recording(NAME, steps, result, kill_mark="")


def _record_after(target: Target, trial: Trial, directory: Path, given: Mapping[str, str], checker: Checker) -> Recording:
    """The run of the kills that come before, and the steps of the start after them: none announced, where it had nothing left to do."""
    result = run_target(target, trial, directory, given, checker, is_recorded=True)
    place, start = TargetPlace(directory), len(trial.plan) + 1
    steps, doubt = _read_calls(result, place, start) if target.is_traced else _check_steps(read_announced(place, start))
    if doubt and result.verdict is Verdict.PASS:
        result = msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=doubt)
    return Recording(NAME, steps, result, kill_mark="", prefix=trial.plan)


def _read_calls(result: TrialResult, place: TargetPlace, start: int) -> tuple[tuple[str, ...], str]:
    """The steps of a start that was traced, and why they are none."""
    code = dict(result.drivers).get(start)
    if code is None:
        return (), f"there was no start {start}"
    try:
        return read_passes(place, start, code), ""
    except TraceError as error:
        return (), str(error)


def _describe_clean(result: TrialResult, place: TargetPlace) -> str:
    """Why a clean run is no beginning, in one sentence; "" when it is one."""
    code = result.drivers[0][1] if result.drivers else None
    if code is None:
        return f"the clean run did not end: {result.reason}"
    if code != 0:
        return f"the clean run ended with {code}, not 0, so that nothing was killed: {_last_line(place.errors(1))}"
    if result.verdict is not Verdict.PASS:
        return f"the clean run, with nothing killed, is not right already: {result.reason}"
    if not any(any(one.iterdir()) for one in place.given):
        return "the clean run left nothing in CHAOS_WORK, CHAOS_STATE and CHAOS_OUTSIDE: what a crash left elsewhere would meet every trial"
    return ""


def _read_steps(target: Target, place: TargetPlace) -> tuple[tuple[str, ...], str]:
    """The steps of a clean run, and why they are none."""
    try:
        if target.is_traced:
            return read_passes(place), ""
    except TraceError as error:
        return (), str(error)
    steps, doubt = _check_steps(read_announced(place))
    if not steps and not doubt:
        doubt = "the target announced no step; call step(NAME) of chaos.target.announce in it, or kill it with --level syscall"
    return steps, doubt


def _check_steps(steps: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The steps, each once, and why they are none."""
    for step in steps:
        try:
            parse_step(step)
        except MisuseError:
            return (), f"the target announced {step!r}, which is no step; a name has {STEP_NAME}"
    return tuple(dict.fromkeys(steps)), ""


def _compare(result: TrialResult, place: TargetPlace, steps: tuple[str, ...]) -> str:
    """Why a second clean run, in fresh directories, is not like the first."""
    if result.verdict is not Verdict.PASS:
        return f"a second clean run in fresh directories is not like the first ({result.reason}): is anything kept elsewhere?"
    other = set(read_announced(place))
    missing = [step for step in steps if step not in other]
    if missing:
        return f"a second clean run in fresh directories did not announce {missing[0]}: is anything kept elsewhere, or left to chance?"
    return ""


def make_transcript(target: Target, result: TrialResult, directory: Path) -> Transcript:
    """What it takes to play the trial in `directory` again, and to compare. Its history is that of its starts: how each ended, and of those
    that were not killed the steps announced. Which of them the siblings of a killed process came to is chance, and so is their order."""
    place = TargetPlace(directory)
    events: list[dict[str, Any]] = []
    for start, code in result.drivers:
        steps = [] if code < 0 else sorted(set(read_announced(place, start)))
        events.append({"seq": start, "kind": STARTED, "payload": {"ended": code, "steps": steps}})
    return Transcript(describe_target(target), result, events)


def _conclude(trial: Trial, played: TargetPlayed, oracles: tuple[OracleVerdict, ...], seconds: float) -> TrialResult:
    unfired = find_unfired(trial, played.faults)
    verdicts = [one.verdict for one in oracles]
    reasons = [f"{one.oracle}: {one.detail}" for one in oracles if one.verdict is not Verdict.PASS]
    if unfired:
        verdicts = [Verdict.UNKNOWN]  # what is wrong with a target that nobody killed says nothing about its recovery
        reasons.insert(0, f"did not fire: {format_action(unfired[0])}")
        reasons += [fault.note for fault in played.faults if not fault.fired and fault.note]
    if played.trouble:
        verdicts, reasons = [Verdict.UNKNOWN], [played.trouble, *reasons]
    return TrialResult(
        trial=trial,
        verdict=merge_verdicts(verdicts),
        reason="; ".join(reasons),
        faults=(*played.faults, *unplayed(trial.plan, played.faults)),
        oracles=oracles,
        drivers=tuple(enumerate(played.ends, 1)),
        labels={},
        restored=0,
        displaced=0,
        seconds=round(seconds, 4),
    )


def _last_line(file: Path) -> str:
    lines = file.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][:400] if lines else "(nothing on stderr)"
