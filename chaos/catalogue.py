"""Modes, and the scenario files that ship with the package."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chaos.depth import Depth
from chaos.scenario import Scenario, load_scenario
from chaos.swarm.draws import draw_scenarios
from chaos.trial_set import TrialSet, narrow, widen
from eventlog.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode: what it does, the folders of its scenarios, what it makes of their sets of trials, how deep it kills inside recovery. One
    that has no folders draws its scenarios: from the seed, for so many trials, or the one of a name."""

    about: str
    folders: tuple[str, ...]
    choose_sets: Callable[[tuple[TrialSet, ...]], tuple[TrialSet, ...]]
    depth: Depth = Depth()
    draw: Callable[[int, int | None, str], list[Scenario]] | None = None


def _keep(sets: tuple[TrialSet, ...]) -> tuple[TrialSet, ...]:
    return sets


def _keep_recoveries(sets: tuple[TrialSet, ...]) -> tuple[TrialSet, ...]:
    return tuple(one for one in sets if one.label)


def _keep_kills(sets: tuple[TrialSet, ...]) -> tuple[TrialSet, ...]:
    """The sets of plain kills, without their freezes."""
    return tuple(replace(one, freeze=()) for one in sets if not (one.label or one.does or one.back or one.race or one.then))


MODES = {
    "ci": Mode(
        "the gate: every scenario, the heavier sets of trials sampled (`ci`), and a drawn few kills of depth 3",
        ("ci", "regression", "lost", "stale", "checkpoint", "auto", "redrive", "faults"), narrow, Depth(3, 4, 2),
    ),
    "transactional": Mode(
        "sessions that keep their image in the log: the scenarios of scenarios/ci and scenarios/regression, each set as it stands",
        ("ci", "regression"), _keep,
    ),
    "recovery": Mode(
        "kills inside recovery to depth 3: after each first crash that a set names by its label a second kill at each step of recovery, "
        "and inside the recovery from each of these two third kills, drawn by the seed",
        ("ci", "regression", "lost", "stale", "checkpoint", "auto", "redrive", "faults"), _keep_recoveries, Depth(3, 0, 2),
    ),
    "lost": Mode(
        "something is taken away from a session: its workspace directory, its files, the machine it ran on; at steps of a call, between "
        "calls, after a crash, after the last call",
        ("lost",), _keep,
    ),
    "stale": Mode(
        "the newest image is stale, as a process that was kept writes a file of it: it is never what a restore aims at",
        ("stale",), _keep,
    ),
    "redrive": Mode(
        "a redriver starts the drivers: it is killed at every step of its own, a driver at every step of a call, both, and two are started",
        ("redrive",), _keep,
    ),
    "checkpoint": Mode(
        "sessions that keep their files in a checkpoint store: killed at every step of a call and of a restore from it, the newest "
        "checkpoint damaged; work lost is held against the bound",
        ("checkpoint",), _keep,
    ),
    "auto": Mode(
        "sessions that go from the log to a checkpoint store when a limit is crossed: killed at every step of that", ("auto",), _keep
    ),
    "powerloss": Mode(
        "the power is lost at every operation on the disk of scenarios/powerloss: a driver recovers from each state that the disk may hold",
        ("powerloss",), _keep,
    ),
    "crosscheck": Mode(
        "the same sessions on real file systems, ext4, xfs and btrfs: an image is copied at instants drawn by the seed and mounted; what "
        "it holds must be a state of the model of mode powerloss, and a driver recovers from it",
        ("powerloss",), _keep,
    ),
    "disk": Mode(
        "the disk fails under a driver, at every write, sync, read, creation and new name of its log, ledger, output, checkpoints and "
        "workspace, in a call and in a recovery; then there is room again",
        ("disk",), _keep,
    ),
    "faults": Mode(
        "what others do to a session: edits of every type, the log put back by one to three commits, clocks that jump, floods and hung "
        "commands, the space ended behind a driver's back, races of three drivers",
        ("faults",), _keep,
    ),
    "twice": Mode(
        "exhaustive depth 2: after each kill of the sets without a label a second kill at each step of the recovery from it, but for those "
        "that left a state equal to that of another",
        ("ci", "regression"), _keep_kills, Depth(2, least=2),
    ),
    "pairwise": Mode(
        "pairs of faults: each two kinds of kills, freezes, edits, losses and jumps of the clock in one trial, in either order",
        ("search",), _keep,
    ),
    "random": Mode(
        "a swarm: workloads and plans drawn from the seed, with some kinds of faults each; what was drawn stands in config.json", (), _keep,
        draw=draw_scenarios,
    ),
    "corrupt": Mode(
        "files of a session that was cut or has finished are damaged, a bit, a block or an end at a time: every command tells it, or "
        "answers as before; then the session is driven on",
        ("corrupt",), _keep,
    ),
    "soak": Mode(
        "every scenario without limits: every step of every call is killed, in every set, and every third kill inside recovery",
        ("ci", "regression", "lost", "stale", "checkpoint", "auto", "redrive", "faults"), widen, Depth(3),
    ),
}  # fmt: skip
SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"


def check_mode(mode: str) -> str:
    """The mode, or MisuseError that names those there are."""
    if mode not in MODES:
        raise MisuseError(f"unknown mode {mode!r}; there is {', '.join(MODES)} (chaos list modes tells more)")
    return mode


def find_files(mode: str, root: Path = SCENARIOS) -> list[Path]:
    """The scenario files of a mode, in order of name."""
    return [file for folder in MODES[check_mode(mode)].folders for file in sorted((root / folder).glob("*.toml"))]


def load_mode(mode: str, root: Path = SCENARIOS) -> list[Scenario]:
    """All scenarios of a mode; two of one name are refused."""
    loaded: dict[str, Path] = {}
    scenarios = []
    for file in find_files(mode, root):
        scenario = load_scenario(file)
        if scenario.name in loaded:
            raise MisuseError(f"{file}: name {scenario.name!r} is taken by {loaded[scenario.name]}; give it another")
        loaded[scenario.name] = file
        scenarios.append(scenario)
    if not scenarios:
        raise MisuseError(f"{root}: holds no scenario of mode {mode}; put a TOML file into {root / MODES[mode].folders[0]}")
    return scenarios


def _choose_sets(mode: str, scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    """The scenarios with their sets of trials as the mode has them, without those of which it has none. A plan of its own is one set."""
    choose_sets = MODES[check_mode(mode)].choose_sets
    chosen = [replace(one, trials=choose_sets(one.trials)) for one in scenarios]
    return [one for one in chosen if one.trials]


def choose(mode: str, wanted: str, root: Path = SCENARIOS, seed: int = 0, runs: int | None = None) -> Sequence[Scenario]:
    """The scenarios to run: all of the mode for "", the one of that name, or the one in the file `wanted` (ends in .toml or holds a /).
    A mode that draws them does so from the seed, for `runs` trials."""
    if wanted.endswith(".toml") or "/" in wanted:
        chosen = _choose_sets(mode, [load_scenario(Path(wanted))])
        if not chosen:
            raise MisuseError(f"{wanted}: has no set of trials for mode {mode}, which takes those with a label; use another mode")
        return chosen
    draw = MODES[check_mode(mode)].draw
    if draw is not None:
        return draw(seed, runs, wanted)
    scenarios = _choose_sets(mode, load_mode(mode, root))
    chosen = [scenario for scenario in scenarios if wanted in ("", scenario.name)]
    if not chosen:
        names = ", ".join(scenario.name for scenario in scenarios)
        raise MisuseError(f"unknown scenario {wanted!r}; mode {mode} has {names}; a file is given by its path")
    return chosen
