"""From a request to a finished run directory: the pieces of a campaign put together."""

import contextlib
import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.area import open_area
from chaos.bytecode import compile_engine
from chaos.campaign import Audit, Campaign, CampaignResult, Enumerate, Watcher, Work
from chaos.corrupt.draw import enumerate_damage, required_of_damage
from chaos.disk.enumerate import enumerate_faults, required_of_disk
from chaos.done import NOTHING, Done
from chaos.enumeration import Enumeration, enumerate_trials
from chaos.fingerprint import digest_engine, digest_harness
from chaos.needs import describe_missing
from chaos.options import Request
from chaos.pool import Pool
from chaos.powerloss.copies import MODE as CROSSCHECK
from chaos.powerloss.copies import RUNNER as CROSSCHECK_RUNNER
from chaos.powerloss.copies import enumerate_copies, required_of_copies
from chaos.powerloss.enumerate import MODE as POWERLOSS
from chaos.powerloss.enumerate import RUNNER as POWERLOSS_RUNNER
from chaos.powerloss.enumerate import enumerate_cuts
from chaos.powerloss.loops import KINDS, find_lacks
from chaos.required import Require, required_oracles
from chaos.results import Trial, TrialResult, Verdict, merge_verdicts
from chaos.rundir import Config, KnownLabel, RunDirectory, describe_scenarios
from chaos.scenario import Scenario
from chaos.sim.campaign import Simulation
from chaos.sim.options import BATCH_SECS, SIM, SIMULATED_LABELS
from chaos.sim.options import RUNNER as SIM_RUNNER
from chaos.swarm.draws import enumerate_drawn
from chaos.swarm.keep import keep_scenarios
from chaos.swarm.pairs import enumerate_pairs
from chaos.syscalls.enumerate import FAULT, enumerate_kills
from chaos.syscalls.level import ANSWER_SECS as SYSCALL_ANSWER_SECS
from chaos.syscalls.level import RUNNER, SYSCALL
from chaos.transcript import Transcript, read_transcript
from chaos.trial_set import TrialSet
from chaos.volume import NAMESPACE
from chaos.zygote_client import ANSWER_SECS, ProcessZygote, Zygote, ZygoteError, zygote_command
from eventlog.errors import MisuseError
from recovery.labels import NOT_ACTED_ON, Label

StartZygote = Callable[[int], Zygote]
Review = Callable[[CampaignResult], CampaignResult]
POWERLOSS_SECS = 900.0
"""A cut is answered for when every state of the disk at it has been tried."""

CORRUPT, DISK = "corrupt", "disk"
RUNNERS = {CORRUPT: "chaos.corrupt.runner", DISK: "chaos.disk.runner", POWERLOSS: POWERLOSS_RUNNER, CROSSCHECK: CROSSCHECK_RUNNER}
"""The modes whose trials are no plays of plans alone, with the module that plays them."""
REQUIRED: dict[str, Require] = {CORRUPT: required_of_damage, DISK: required_of_disk, CROSSCHECK: required_of_copies}
OWN_ANSWER_SECS = 900.0
"""One answer of disks and damage is several sessions and a score of commands, each with a deadline of its own."""


UNREACHABLE_LABELS = {
    Label.DISCARD_BY_PERSON: "no fault of this version fills the disk beside a workspace",
    Label.EXCLUDE_BY_PERSON: "no fault of this version makes a path that cannot be read",
    Label.ACCEPT_BY_PERSON: "no fault of this version keeps a restore from reaching its image",
}
"""Decisions to which no fault of a campaign leads, with the reason."""


class Silent:
    """A watcher that says nothing."""

    def begin(self, phase: str, total: int) -> None:
        """Nothing to show."""

    def advance(self, result: TrialResult) -> None:
        """Nothing to show."""


def has_mounts(scenarios: Sequence[Scenario], mode: str = "") -> bool:
    """Whether a scenario that is available here mounts something, or the mode does."""
    is_mounting = mode == CROSSCHECK and len(find_lacks()) < len(KINDS)
    return is_mounting or any(one.mount and not describe_missing(one) for one in scenarios)


def make_config(
    request: Request, command: str, program: str, scenario_argument: str, options: Mapping[str, Any] | None = None
) -> Config:
    """What `config.json` says of a request. `scenario_argument` is what was given to --scenario, `options` is all that was typed."""
    arguments = {scenario.name: scenario_argument or scenario.name for scenario in request.scenarios}
    return Config(
        seed=request.seed,
        mode=request.mode,
        command=command,
        program=program,
        arguments=arguments,
        jobs=request.jobs,
        started_ms=time.time_ns() // 1_000_000,
        scenarios=describe_scenarios(request.scenarios),
        engine=str(request.engine or ""),
        project=_project_version(),
        unavailable={one.name: why for one in request.scenarios if (why := describe_missing(one))},
        python=platform.python_version(),
        options=dict(options or {}),
        engine_digest=digest_engine(request.engine),
        harness_digest=digest_harness(),
        labels=tuple(KnownLabel(label.value, label not in NOT_ACTED_ON, _why_unreachable(label, request.backend)) for label in Label),
    )


def _why_unreachable(label: Label, backend: str) -> str:
    return "not simulated" if backend == SIM and label not in SIMULATED_LABELS else UNREACHABLE_LABELS.get(label, "")


def start_processes(run: RunDirectory, engine: Path | None, runner: str = "", mounts: bool = False) -> StartZygote:
    """What starts the real zygotes of a run (with another `runner` than their own where one is named, in mount namespaces of their own with
    `mounts`); their standard error goes to its directory."""
    command = [*(NAMESPACE if mounts else ()), *zygote_command(engine), *(["--runner", runner] if runner else [])]
    patience = {POWERLOSS_RUNNER: POWERLOSS_SECS, CROSSCHECK_RUNNER: POWERLOSS_SECS, SIM_RUNNER: BATCH_SECS, RUNNER: SYSCALL_ANSWER_SECS}
    patience |= dict.fromkeys((RUNNERS[CORRUPT], RUNNERS[DISK]), OWN_ANSWER_SECS)
    return lambda slot: ProcessZygote(command, run.path / "zygotes" / f"{slot}.txt", patience.get(runner, ANSWER_SECS), slot=slot)


@contextlib.contextmanager
def open_pool(start: StartZygote, jobs: int) -> Iterator[Pool]:
    """Zygotes for one campaign; all have ended when this is left."""
    pool = Pool(start, jobs)
    try:
        yield pool
    finally:
        pool.close()


def transcribe(zygote: Zygote, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> Transcript:
    """Play a trial to its transcript. Raises ZygoteError, as for one that writes none."""
    if not isinstance(zygote, ProcessZygote):
        raise ZygoteError("this kind of zygote writes no transcripts")
    zygote.replay(scenario, trial, directory, converges_to)
    return read_transcript(directory)


def run_request(
    request: Request, run: RunDirectory, watcher: Watcher, start: StartZygote, review: Review | None = None, done: Done = NOTHING
) -> CampaignResult:
    """Run the campaign into `run`, without scenarios whose programs are missing. The verdict is returned, not written: the caller adds
    its summary.

    `review` may lower the verdict once every trial stands in the run directory.
    """
    scenarios = [one for one in request.scenarios if not describe_missing(one)]
    compile_engine(scenarios, request.engine)
    with open_area() as area, open_pool(start, request.jobs) as pool:
        if request.backend == SIM:
            result = Simulation(pool, run, watcher).run(request.session, request.limits, request.seed)
        elif request.level == SYSCALL and request.lack:
            result = _record_only(scenarios, Campaign(pool, run, area, watcher))
        else:
            require = REQUIRED.get(request.mode, required_oracles)
            audit = Audit(request.audit, transcribe if request.audit else None)
            enumerate_one = _choose_enumeration(request)
            campaign = Campaign(pool, run, area, watcher, enumerate_one=enumerate_one, done=done, audit=audit, require=require)
            result = campaign.run(scenarios, request.limits, request.seed)
            if request.mode == "random":
                keep_scenarios(result.results, {one.name: one for one in scenarios})
    result = _tell_lack(request, result)
    result = _tell_states(result) if request.mode in (POWERLOSS, CROSSCHECK) else result
    result = _tell_missing(result) if request.mode == CROSSCHECK else result
    result = review(result) if review else result
    run.history.note("campaign ended", verdict=result.verdict)
    return result


def choose_runner(request: Request) -> str:
    """The module that answers for a campaign's zygotes; "" for the plain one."""
    return request.runner or RUNNERS.get(request.mode, "")


def _choose_enumeration(request: Request) -> Enumerate:
    if request.mode == POWERLOSS:
        return lambda recording, scenario, trial_set, first: enumerate_cuts(recording, first, request.seed)
    if request.mode == CROSSCHECK:
        return lambda recording, scenario, trial_set, first: enumerate_copies(recording, first, request.seed, request.limits.step)
    if request.mode == "pairwise":
        return enumerate_pairs
    if request.mode == "random":
        return enumerate_drawn(request.seed)
    if request.mode == DISK:
        return lambda recording, scenario, trial_set, first: enumerate_faults(recording, first)
    if request.mode == CORRUPT:
        return lambda recording, scenario, trial_set, first: enumerate_damage(recording, first, request.seed)
    if not request.is_traced:
        return enumerate_trials
    return lambda recording, scenario, trial_set, first: enumerate_kills(recording, first, request.kills, request.seed, request.limits.step)


def _record_only(scenarios: Sequence[Scenario], campaign: Campaign) -> CampaignResult:
    """The clean runs alone, untraced: a level that is unavailable here is listed, not run."""
    results = tuple(recording.result for recording in campaign.record([Work(one, TrialSet()) for one in scenarios]))
    return CampaignResult(merge_verdicts([one.verdict for one in results]), (), results, (), 0)


def _tell_lack(request: Request, result: CampaignResult) -> CampaignResult:
    """The result with the reason why a level is unavailable; unknown instead of a pass when it was required."""
    if not request.lack:
        return result
    reasons = (*result.reasons, f"syscall is unavailable here, no kill was made in a system call: {request.lack}")
    is_required = request.require == FAULT
    return replace(result, reasons=reasons, verdict=merge_verdicts([result.verdict, Verdict.UNKNOWN]) if is_required else result.verdict)


def _tell_states(result: CampaignResult) -> CampaignResult:
    """The result of a campaign of power losses, unknown instead of a pass when no disk was tried but as it was."""
    if any(one.states for one in result.results):
        return result
    reasons = (*result.reasons, "no state of a disk was tried that differs from the disk as it was")
    return replace(result, reasons=reasons, verdict=merge_verdicts([result.verdict, Verdict.UNKNOWN]))


def _tell_missing(result: CampaignResult) -> CampaignResult:
    """The result with the file systems that could not be had here, which lower no verdict."""
    missing = tuple(f"{kind} is unavailable here, it was held against no model: {lack}" for kind, lack in find_lacks().items())
    return replace(result, reasons=(*result.reasons, *missing))


def record_steps(scenarios: Sequence[Scenario], engine: Path | None, jobs: int, mode: str = "") -> list[Enumeration]:
    """The steps of each scenario's clean run, for `chaos list steps`; the cuts in the mode `powerloss`. MisuseError when a clean run does
    not pass."""
    runner = RUNNERS[mode] if mode in (POWERLOSS, CROSSCHECK) else ""
    works = [Work(scenario, trial_set) for scenario in scenarios for trial_set in scenario.trials]
    with open_area() as area:
        config = Config(0, "list", "chaos list steps", jobs, 0, describe_scenarios(scenarios))
        with RunDirectory(area / "run", config, time.monotonic) as run:
            start = start_processes(run, engine, runner, has_mounts(scenarios, mode))
            with open_pool(start, jobs) as pool:
                recordings = Campaign(pool, run, area, Silent()).record(works)
    for recording in recordings:
        if recording.result.verdict is not Verdict.PASS:
            reason = recording.result.reason
            raise MisuseError(
                f"{recording.scenario}: its clean run does not pass ({reason}); chaos --scenario {recording.scenario} shows more"
            )
    if mode == CROSSCHECK:
        return [enumerate_copies(one, 1, 0) for one in recordings]
    if runner:
        return [enumerate_cuts(one, 1, 0) for one in recordings]
    return [enumerate_trials(one, work.scenario, work.trial_set) for one, work in zip(recordings, works, strict=True)]


def _project_version() -> str:
    try:
        return importlib.metadata.version("crashworthy")
    except importlib.metadata.PackageNotFoundError:
        return ""
