"""A campaign that was killed goes on: what its run directory already holds, and whether it may go on from there.

What must hold: a trial that has a result is not run again; nothing goes on where engine, harness, scenarios or what was asked for are not
what they were, since the whole would then be no run of anything. Nor from results that the campaign did not write
(`chaos.seal`). A line that a crash cut off is taken away before another is written.
"""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaos.done import Done
from chaos.history import end_word
from chaos.options import Options
from chaos.results import Recording, TrialResult
from chaos.rundir import Config, is_run, read_config, read_lines, read_results
from chaos.seal import SEALED, check_chain
from chaos.sim.options import SIM
from chaos.trees import remove_tree
from eventlog.errors import MisuseError

JSON_LINES = ("history.jsonl", "steps.jsonl", "recordings.jsonl", "results.jsonl")
FREE = ("jobs", "json", "junit", "html", "resume")
"""Options that may stand beside --resume: where reports go and how many work is no part of what runs."""


class _Moment(msgspec.Struct):
    at_ms: int
    what: str = ""
    scenario: str = ""
    trial: int = 0
    end: str = ""


def check_resumed(path: Path, options: Options) -> Options:
    """The options of the run in `path`, with those of `options` that may differ. MisuseError for a run that cannot go on, and for options
    that belong to a new one."""
    for name in Options.__dataclass_fields__:
        if name not in FREE and getattr(options, name) != getattr(Options(), name):
            raise MisuseError(f"--{name.replace('_', '-')} belongs to a new campaign; --resume goes on with what {path} was asked for")
    if not is_run(path):
        raise MisuseError(f"{path}: is no run directory (config.json is missing); give the directory that chaos printed")
    _check_cut_short(path)
    config = read_config(path)
    if not config.options:
        raise MisuseError(f"{path}: does not say what was asked for, so that nothing can go on; run {config.command}")
    if config.options.get("backend") == SIM:
        raise MisuseError(f"{path}: a simulation is not gone on with, it runs again from its seed: {config.command}")
    given = {name: getattr(options, name) for name in FREE}
    asked: dict[str, Any] = {**config.options, "seed": config.seed, "out": str(path), **given}
    return Options(**asked)


def _check_cut_short(path: Path) -> None:
    if (path / "verdict.json").exists():
        raise MisuseError(f"{path}: this campaign came to its end; chaos report {path} shows it")


def check_same(then: Config, now: Config, path: Path) -> None:
    """Raise MisuseError, naming what is another now, unless a campaign would do the same now as then."""
    parts = (
        ("what drivers are given", _find_given(then.program), _find_given(now.program)),
        ("the version of crashworthy", then.project, now.project),
        ("the version of Python", then.python, now.python),
        ("the engine", then.engine_digest, now.engine_digest),
        ("the harness", then.harness_digest, now.harness_digest),
        ("the set of available scenarios", then.unavailable, now.unavailable),
    )
    for what, before, after in parts:
        if before != after:
            found = f"{before or 'nothing'} then, {after or 'nothing'} now"
            raise MisuseError(f"{path}: {what} is not what it was ({found}); begin anew: {then.command}")
    now = msgspec.json.decode(msgspec.json.encode(now), type=Config)
    names = [one["name"] for one in (*then.scenarios, *now.scenarios) if one not in then.scenarios or one not in now.scenarios]
    if names or then.scenarios != now.scenarios:
        changed = ", ".join(dict.fromkeys(names)) or "their order"
        raise MisuseError(f"{path}: the scenarios are not what they were ({changed}); begin anew: {then.command}")


def _find_given(program: str) -> str:
    """The variables that stand before a program's name."""
    words = shlex.split(program)
    return shlex.join(word for word in words if "=" in word) if words[:1] == ["env"] else ""


def take_up(path: Path) -> Done:
    """Read what a run has behind it, and make the directory ready to be written on: no cut line, nothing kept of trials without result.
    MisuseError where it is not what the campaign left: a line that was changed, added or taken away; and where another one that went on
    came to its end meanwhile. The caller has it locked (`chaos.rundir.lock_run`)."""
    _check_cut_short(path)
    for name in JSON_LINES:
        _cut_last_line(path / name)
    for name in SEALED:
        check_chain(path, name)
    done = Done(
        tuple(read_lines(path / "recordings.jsonl", Recording)),
        tuple(read_results(path)),
        len(read_lines(path / "steps.jsonl", dict)),
        _read_seconds(path),
    )
    _check_ends(path, done)
    _drop_unnamed(path / "artifacts", done.results)
    for name in ("audit.jsonl", "harness-error.txt"):  # both are made anew
        (path / name).unlink(missing_ok=True)
    return done


def _check_ends(path: Path, done: Done) -> None:
    """Raise MisuseError for a trial that ended, as the history has it, and has no result that says so: lines that are missing at the end of
    a file break no chain. The result is written first, so that no crash leaves this behind."""
    known = {(scenario, number): end_word(result.verdict) for (scenario, number), result in done.find_trials().items()}
    clean = Counter(one.trial.scenario for one in done.results if not one.trial.number)
    ends = [one for one in read_lines(path / "history.jsonl", _Moment) if one.what == "trial ended"]
    last = {(one.scenario, one.trial): one.end for one in ends if one.trial}
    lost = [f"trial {number} of {scenario}" for (scenario, number), end in last.items() if known.get((scenario, number)) != end]
    ended = Counter(one.scenario for one in ends if not one.trial)
    lost += [f"a clean run of {scenario}" for scenario, times in ended.items() if clean[scenario] < times]
    recorded = Counter(one.scenario for one in done.recordings)
    lost += [f"the recording of a clean run of {scenario}" for scenario, times in clean.items() if recorded[scenario] < times]
    if lost:
        raise MisuseError(
            f"{path}: the history has the end of {lost[0]}, and no result says the same: lines are gone from it, so that nothing can go on "
            "from it; run the campaign again"
        )


def _read_seconds(path: Path) -> float:
    moments = read_lines(path / "history.jsonl", _Moment)
    return moments[-1].at_ms / 1000 if moments else 0.0


def _cut_last_line(file: Path) -> None:
    """Take away what comes after the last end of a line: a crash cut it off."""
    if not file.exists():
        return
    text = file.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        os.truncate(file, whole)


def _drop_unnamed(artifacts: Path, results: Sequence[TrialResult]) -> None:
    """Remove kept directories that no result names: their trial is run again."""
    named = {Path(result.kept.partition(" (incomplete: ")[0]).name for result in results if result.kept}
    for kept in artifacts.iterdir() if artifacts.is_dir() else ():
        if kept.name not in named:
            remove_tree(kept)
