"""What a person asks of a campaign, checked and turned into values. Each mistake is one sentence with the next command."""

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.actions import parse_plan
from chaos.campaign import Limits
from chaos.catalogue import MODES, check_mode, choose
from chaos.console import check_target
from chaos.depth import Depth
from chaos.drivers import HANDED_ON
from chaos.enumeration import OF_OWN_RUNNERS
from chaos.plan import FAULTS
from chaos.powerloss.copies import MODE as CROSSCHECK
from chaos.powerloss.enumerate import MODE as POWERLOSS
from chaos.results import Action
from chaos.scenario import Scenario
from chaos.sim.options import LOCAL, SIM, check_backend, check_simulation
from chaos.sim.options import RUNNER as SIM_RUNNER
from chaos.step import format_step, parse_short_step
from chaos.syscalls.enumerate import DEFAULT_KILLS
from chaos.syscalls.level import DEFAULT_SCENARIO, STEP, SYSCALL, check_level, check_required, check_syscalls
from chaos.syscalls.level import RUNNER as SYSCALL_RUNNER
from chaos.target.target import Target
from chaos.trial_set import TrialSet
from eventlog.errors import MisuseError
from recovery.space.bubblewrap import choose_bubblewrap, parse_space
from recovery.space.marks import choose_marks

OWN_MODES = frozenset(fault for _, fault in OF_OWN_RUNNERS.values())
"""Modes whose faults are no kills at steps: corrupt, disk."""
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)\Z")
_UNIT_SECS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Options:
    """The options as typed; None and "" mean not given."""

    mode: str = "ci"
    seed: int | None = None
    runs: int | None = None
    budget: str = ""
    jobs: int | None = None
    scenario: str = ""
    step: str = ""
    fault: str = ""
    plan: str = ""
    engine: str = ""
    out: str = ""
    stop_after: int | None = None
    json: str = ""
    junit: str = ""
    require_coverage: bool = False
    level: str = STEP
    require: str = ""
    depth: int | None = None
    html: str = ""
    resume: str = ""
    audit: int | None = None
    backend: str = LOCAL
    target: str = ""
    check: str = ""
    workload: int | None = None
    kill: str = ""
    starts: int | None = None
    patience: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A campaign that can be run. `kills` belongs to the syscall level; `lack` says why that is unavailable here, "" when it is not."""

    mode: str
    seed: int
    scenarios: tuple[Scenario, ...]
    limits: Limits
    jobs: int
    engine: Path | None
    out: Path
    json: Path | None
    junit: Path | None = None
    require_coverage: bool = False
    level: str = STEP
    require: str = ""
    kills: int = DEFAULT_KILLS
    lack: str = ""
    target: Target | None = None
    html: Path | None = None
    audit: int = 0
    backend: str = LOCAL
    session: str = ""
    """The simulated session that was asked for, "" for all."""

    @property
    def runner(self) -> str:
        """The runner of its zygotes, "" for the one that they have of themselves."""
        return SIM_RUNNER if self.backend == SIM else SYSCALL_RUNNER if self.is_traced else ""

    @property
    def is_traced(self) -> bool:
        """Whether kills are made in system calls."""
        return self.level == SYSCALL and not self.lack


def check_options(options: Options, seed: int, jobs: int, out: Path) -> Request:
    """The request; `seed`, `jobs` and `out` stand in for what was not given."""
    check_numbers(options)
    _refuse_target_options(options)
    is_syscall = check_level(options.level) == SYSCALL
    if is_syscall and options.mode in (POWERLOSS, CROSSCHECK):
        raise MisuseError(f"--level {SYSCALL} kills one process, and the mode {options.mode} ends them all; leave one of the two away")
    if check_backend(options.backend) == SIM:
        return _check_simulated(options, seed, out)
    check_own_mode(options.mode, options.step, options.depth, is_syscall)
    limits = Limits(
        runs=None if is_syscall else options.runs,
        budget_secs=parse_duration(options.budget) if options.budget else None,
        stop_after=options.stop_after,
        step=format_step(parse_short_step(options.step, "--step")) if options.step else "",
        fault="" if is_syscall else _check_fault(options.fault),
        plan=_check_plan(options),
        depth=_choose_depth(options, is_syscall),
    )
    wanted = options.scenario or (str(DEFAULT_SCENARIO) if is_syscall else "")
    scenarios = choose(options.mode, wanted, seed=seed if options.seed is None else options.seed, runs=options.runs)
    if options.audit and (is_syscall or options.mode in (*OWN_MODES, POWERLOSS, CROSSCHECK)):
        raise MisuseError(f"--audit plays trials again from the zygote, which {_name_kind(options)} has not; leave one of the two away")
    if is_syscall:
        check_syscalls(options.fault, limits.step, scenarios)
        scenarios = [replace(one, trials=(TrialSet(),)) for one in scenarios]  # one recording, from nothing
    return Request(
        mode=check_mode(options.mode),
        seed=seed if options.seed is None else options.seed,
        scenarios=tuple(scenarios),
        limits=limits,
        jobs=options.jobs or jobs,
        engine=check_engine(options.engine),
        out=Path(options.out) if options.out else out,
        json=_check_json(options.json),
        junit=check_junit(options.junit, options.json),
        require_coverage=options.require_coverage,
        level=options.level,
        require=check_required(options.require),
        kills=options.runs or DEFAULT_KILLS,
        html=check_html(options.html, options.json, options.junit),
        audit=options.audit or 0,
    )


def _name_kind(options: Options) -> str:
    """The option that makes a campaign one of another kind."""
    return f"--level {SYSCALL}" if options.level == SYSCALL else f"--mode {options.mode}"


def _check_simulated(options: Options, seed: int, out: Path) -> Request:
    """A simulation: one runner for each core, as it never waits."""
    plan = _check_plan(options)
    check_simulation(options, plan)
    step = format_step(parse_short_step(options.step, "--step")) if options.step else ""
    budget = parse_duration(options.budget) if options.budget else None
    return Request(
        mode=options.mode,
        seed=seed if options.seed is None else options.seed,
        scenarios=(),
        limits=Limits(options.runs, budget, options.stop_after, step, options.fault, plan),
        jobs=options.jobs or os.cpu_count() or 1,
        engine=check_engine(options.engine),
        out=Path(options.out) if options.out else out,
        json=_check_json(options.json),
        junit=check_junit(options.junit, options.json),
        html=check_html(options.html, options.json, options.junit),
        backend=SIM,
        session=options.scenario,
    )


def check_numbers(options: Options) -> None:
    """MisuseError for a count below 1, or a seed below 0."""
    counts = (("runs", options.runs), ("jobs", options.jobs), ("stop-after", options.stop_after), ("depth", options.depth))
    for name, value in (*counts, ("audit", options.audit), ("starts", options.starts)):
        if value is not None and value < 1:
            raise MisuseError(f"--{name} {value} must be at least 1")
    if options.seed is not None and options.seed < 0:
        raise MisuseError(f"--seed {options.seed} must not be negative")


def _refuse_target_options(options: Options) -> None:
    """What only a target has, where there is none."""
    for name, value in write_target_options(options):
        if value not in (None, ""):
            raise MisuseError(f"{name} belongs to a program of somebody else's; name it with --target CMD")


def check_own_mode(mode: str, step: str, depth: int | None, is_syscall: bool) -> None:
    """What a mode with a runner of its own cannot be asked for, by MisuseError."""
    if mode not in OWN_MODES:
        return
    for name, is_given in (("--step", bool(step)), ("--depth", depth is not None), (f"--level {SYSCALL}", is_syscall)):
        if is_given:
            raise MisuseError(f"{name} is about kills at steps, and mode {mode} has its own faults; leave {name} away")


def parse_duration(text: str, option: str = "--budget") -> float:
    """Seconds from `90s`, `1.5m`, `500ms` or `2h`."""
    match = _DURATION.match(text)
    if match is None or float(match["number"]) == 0:
        raise MisuseError(f"{option} {text!r} is no duration; write 90s, 1.5m or 2h")
    return float(match["number"]) * _UNIT_SECS[match["unit"]]


def check_engine(text: str) -> Path | None:
    """The directory of an engine copy: it holds the packages eventlog and recovery."""
    if not text:
        return None
    engine = Path(text).resolve()
    for package in ("eventlog", "recovery"):
        if not (engine / package / "__init__.py").is_file():
            raise MisuseError(f"--engine {text}: holds no package {package}; give a directory with copies of eventlog/ and recovery/")
    return engine


def check_junit(text: str, json: str) -> Path | None:
    """The file for --junit beside the one for --json; None when none was asked for."""
    if not text:
        return None
    if text == "-":
        raise MisuseError("--junit -: name a file; standard output has the report for people")
    if json and Path(text).absolute() == Path(json).absolute():
        raise MisuseError(f"--junit {text}: is the file of --json too; give them different files")
    return check_target("--junit", text)


def check_html(text: str, *others: str) -> Path | None:
    """The file for --html beside those of other reports; None when none was asked for."""
    if not text:
        return None
    if text == "-":
        raise MisuseError("--html -: name a file; standard output has the report for people")
    if Path(text).absolute() in [Path(other).absolute() for other in others if other]:
        raise MisuseError(f"--html {text}: is the file of another report too; give them different files")
    return check_target("--html", text)


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise MisuseError where what is handed on to drivers cannot be had here: before the first of them says so."""
    space = environ.get("SESSION_SPACE", "")
    if space:
        choose_bubblewrap([parse_space(space, "SESSION_SPACE")], tempfile.gettempdir(), environ.get("PATH"))
    if environ.get("SESSION_KILL_MARK"):
        choose_marks(environ["SESSION_KILL_MARK"])


def name_environment(environ: Mapping[str, str]) -> str:
    """The words that have to stand before a command so that it hands the same on; "" for none."""
    given = [f"{name}={environ[name]}" for name in HANDED_ON if environ.get(name)]
    return shlex.join(["env", *given]) + " " if given else ""


def write_command(program: str, options: Options, seed: int) -> str:
    """The exact command that repeats a campaign. Where its files go (--out, --json, --junit, --html) and how many work
    (--jobs) is not part of what runs."""
    given: Sequence[tuple[str, object]] = (
        ("--mode", "" if options.target else options.mode),
        ("--backend", "" if options.backend == LOCAL else options.backend),
        ("--level", "" if options.level == STEP else options.level),
        ("--runs", options.runs),
        ("--budget", options.budget),
        ("--scenario", options.scenario),
        ("--step", options.step),
        ("--fault", options.fault),
        ("--plan", options.plan),
        ("--engine", options.engine),
        ("--stop-after", options.stop_after),
        ("--depth", options.depth),
        ("--require", options.require),
        ("--audit", options.audit),
        *write_target_options(options),
        ("--seed", seed),
    )
    words = [word for name, value in given if value not in (None, "") for word in (name, str(value))]
    flags = ["--require-coverage"] if options.require_coverage else []
    return shlex.join([*shlex.split(program), *words, *flags])


def write_target_options(options: Options) -> Sequence[tuple[str, object]]:
    """What says which target is meant, and how it is treated."""
    return (
        ("--target", options.target),
        ("--check", options.check),
        ("--workload", options.workload),
        ("--kill", options.kill),
        ("--starts", options.starts),
        ("--patience", options.patience),
    )


def write_target_words(program: str, options: Options) -> str:
    """The first words of each command that repeats one trial of a target: the program, and which target is meant."""
    words = [word for name, value in write_target_options(options) if value not in (None, "") for word in (name, str(value))]
    return shlex.join([*shlex.split(program), *words])


def _choose_depth(options: Options, is_syscall: bool) -> Depth:
    """How deep recovery is killed: as the mode says, but for a depth that was given."""
    depth = MODES[check_mode(options.mode)].depth
    if is_syscall and options.depth is not None:
        raise MisuseError("--depth counts kills inside recovery, and --level syscall makes one kill a trial; leave one of the two away")
    return Depth() if is_syscall else depth if options.depth is None else replace(depth, kills=options.depth)


def _check_plan(options: Options) -> tuple[Action, ...]:
    if not options.plan:
        return ()
    for name, given in (("--step", options.step), ("--fault", options.fault)):
        if given:
            raise MisuseError(f"--plan is one whole trial and {name} chooses among those there are; leave one of the two away")
    if not options.scenario:
        raise MisuseError("--plan is played on one scenario; name it with --scenario")
    return parse_plan(options.plan, "--plan")


def _check_fault(fault: str) -> str:
    if fault and fault not in FAULTS:
        raise MisuseError(f"unknown fault {fault!r}; there are {', '.join(FAULTS)} (chaos list faults tells more)")
    return fault


def _check_json(text: str) -> Path | None:
    if not text:
        return None
    if text == "-":
        raise MisuseError("--json -: a campaign prints its progress; name a file, or use chaos report DIR --json - afterwards")
    return check_target("--json", text)
