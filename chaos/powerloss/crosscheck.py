"""One trial of the mode `crosscheck`: a session on a real file system, whose image is copied at one instant; the copy is mounted, held
against the model of the disk, and a driver recovers from it.

The image is mounted at the trial's own directory, so that every path is there what it was; only the runner's mount namespace has it. What
must hold: what the model calls a state of this cut was made from the very record of this run; a trial counts only when its copy was made at
the instant that it is named for, is the image at one instant, and could be mounted.
"""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from chaos.drivers import Place
from chaos.play import Part, Play, Played
from chaos.powerloss.device import KEPT as KEPT_FATE
from chaos.powerloss.device import STRICT, Cut, build, cut_after
from chaos.powerloss.disk import KEPT, WORK
from chaos.powerloss.events import Event, read_events
from chaos.powerloss.files import File, Tree
from chaos.powerloss.history import History, Moment, file_of, read_history
from chaos.powerloss.loops import KINDS, attach, copy_image, find_lack, make_image, mount, put_back, unmount
from chaos.powerloss.possible import Found, TooManyError, find_impossible, find_impossible_file
from chaos.powerloss.record import REBUILT, Recorded, ended, record_run
from chaos.powerloss.recorder import COPIED, Instant, is_logged, is_looked_at, look_at_all, name_event
from chaos.results import Action, Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict
from chaos.scenario import Scenario
from chaos.stage import Ended
from chaos.trees import copy_tree, remove_tree
from chaos.trial import Bench, judge_trial, read_kill_mark, remove_cgroups

MARK = "copy"
ORACLE = "model"
TROUBLE = "power-copy"
TRIES = 3
"""How often a session is run anew to come by one instant: what several processes do at once differs from run to run."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A run whose image was copied: the history up to that instant, and what the run said and noted by then."""

    recorded: Recorded
    history: History
    moment: Moment


@dataclass(slots=True)
class _Images:
    """The files of one trial that lie beside its directory."""

    directory: Path
    home: Path = field(init=False)
    device: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.directory.parent / f"{self.directory.name}-images"
        remove_tree(self.home)
        self.home.mkdir()

    @property
    def image(self) -> Path:
        return self.home / "image"

    @property
    def copy(self) -> Path:
        return self.home / "copy"

    @property
    def record(self) -> Path:
        return self.home / "record"

    @property
    def left(self) -> Path:
        return self.home / "left"


def format_name(kind: str, event: str) -> str:
    """How a recording names an instant on a file system: ROLE@EPOCH:copy.KIND.WHAT:N."""
    who, what, count = event.split(":")
    return f"{who}:{MARK}.{kind}.{what}:{count}"


def parse_name(step: str) -> tuple[str, str]:
    """The file system and the event that a name says. ValueError when it is none."""
    who, what, count = step.split(":")
    mark, kind, event = what.split(".", 2)
    if mark != MARK or kind not in KINDS:
        raise ValueError(f"{step} is no instant at which an image is copied")
    return kind, f"{who}:{event}:{count}"


def record_copies(bench: Bench, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Recording:
    """The clean runs, one on each file system that there is here: the instants at which its image can be copied, and the verdict."""
    began = time.monotonic()
    bench.reference(scenario, directory)
    saved = bench.saved.find_longest(scenario, prefix, directory)
    trial = Trial(0, scenario.name, prefix, fault="", saved=saved)
    names: list[str] = []
    parts: dict[str, Any] = {}
    results: list[TrialResult] = []
    mark = "cgroup"
    for kind in (kind for kind in KINDS if not find_lack(kind)):
        with _on_image(kind, directory) as images:
            recorded = _run(bench, scenario, trial, directory, images, None)
            names += [format_name(kind, name) for name in list_instants(read_events(images.record.read_bytes()))]
            place = Place(directory)
            played = Played(faults=list(recorded.before.faults), ends=[*recorded.before.ends, Ended(recorded.epoch, recorded.code)])
            result, judgement = judge_trial(bench, scenario, trial, place, played, began, {})
            trouble = recorded.history.trouble or ([] if recorded.code == 0 else [f"the driver ended with {recorded.code}"])
            results.append(_tell_trouble(trial, f"{kind}: {'; '.join(trouble)}") if trouble else result)
            parts, mark = judgement.final_parts or {}, read_kill_mark(place)
    worst = next((one for one in results if one.verdict is not Verdict.PASS), None)
    result = worst or (results[0] if results else _tell_trouble(trial, "no file system can be mounted here"))
    return Recording(scenario.name, tuple(names), result, mark, prefix, saved, parts)


def list_instants(events: Iterator[Event]) -> list[str]:
    """Those of a run at which its image can be copied: whenever something is begun, and when a sync has ended."""
    counts: dict[str, int] = {}
    named = [(event, name_event(event, counts)) for event in events]
    return [
        name
        for event, name in named
        if event.kind in ("write", "truncate", "sync", "syncfs", "name") and (not event.is_end or event.kind in ("sync", "syncfs"))
    ]


def run_copy(bench: Bench, scenario: Scenario, trial: Trial, directory: Path, converges_to: Mapping[str, Any]) -> TrialResult:
    """Run a session on an image, copy that at the instant of the trial, judge the copy and what becomes of it. Never raises for what the
    engine does."""
    began = time.monotonic()
    kind, name = parse_name(trial.plan[-1].at)
    if lack := find_lack(kind):
        return _tell_trouble(trial, f"{kind} is unavailable here: {lack}")
    bench.reference(scenario, directory)
    for _ in range(TRIES):
        with _on_image(kind, directory) as images:
            recorded = _run(bench, scenario, trial, directory, images, Instant(name, partial(copy_image, images.image, images.copy)))
            unmount(directory)
            if images.copy.exists():
                put_back(images.copy, images.image, images.device)
                mount(kind, images.device, directory)
                copied = _read_copied(recorded, images.record)
                result = _judge_copy(bench, scenario, trial, directory, copied, converges_to)
                if result.verdict is not Verdict.PASS:
                    images.left.mkdir()
                    copy_tree(directory, images.left)
        if images.left.is_dir():
            copy_tree(images.left, directory)
        if images.copy.exists():
            return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 4))
    return _tell_trouble(trial, f"no run of {TRIES} was copied at {trial.plan[-1].at}")


@contextlib.contextmanager
def _on_image(kind: str, directory: Path) -> Iterator[_Images]:
    """A new file system at an empty directory, which is empty again afterwards."""
    images = _Images(directory)
    make_image(kind, images.image)
    with attach(images.image) as images.device:
        mount(kind, images.device, directory)
        try:
            yield images
        finally:
            if os.path.ismount(directory):
                unmount(directory)


def _run(bench: Bench, scenario: Scenario, trial: Trial, directory: Path, images: _Images, instant: Instant | None) -> Recorded:
    """One recorded run of a scenario; everything that stands there before it is on the disk."""
    before = bench.saved.set_stage(scenario, trial.plan[: trial.saved], directory)
    subprocess.run(["sync", "-f", directory], check=True)
    recorded = record_run(scenario, Place(directory), before, bench.oracle, images.record, instant)
    remove_cgroups(Place(directory))
    return recorded


def _read_copied(recorded: Recorded, record: Path) -> Copied:
    """The history of a run up to the end of the copying: what is begun meanwhile may be on the copy too."""
    events = list(read_events(record.read_bytes()))
    number = next(number for number, event in enumerate(events) if event.point == COPIED)
    history = read_history(events[: number + 1])
    return Copied(recorded, history, history.moments[-1])


def _judge_copy(
    bench: Bench, scenario: Scenario, trial: Trial, directory: Path, copied: Copied, converges_to: Mapping[str, Any]
) -> TrialResult:
    """Hold what is mounted against the model, drive the session on it to its end, have that judged."""
    place, recorded = Place(directory), copied.recorded
    if recorded.history.trouble:
        return _tell_trouble(trial, "; ".join(recorded.history.trouble))
    cut = cut_after(copied.history.operations, copied.moment.issued, STRICT)
    model, is_uncut = judge_found(copied.history, copied.moment, cut, directory)
    _restart(place, copied)
    began = time.monotonic()
    played = Play(scenario, place, Part((), "fork", ended(recorded)), bench.oracle).run_to_end()
    played.faults = [*recorded.before.faults, Fault(trial.plan[-1].at, "cut", True, True)]
    played.findings = [*played.findings, model]
    remove_cgroups(place)
    result = judge_trial(bench, scenario, trial, place, played, began, converges_to)[0]
    return msgspec.structs.replace(result, states=int(not is_uncut))


def judge_found(history: History, moment: Moment, cut: Cut, directory: Path) -> tuple[OracleVerdict, bool]:
    """Whether what stands in a directory is in the model a state of the disk at this cut; and whether it is the disk as it was."""
    looks = look_at_all(directory)
    logged = {path: look for path, look in looks.items() if is_logged(path) and look.kind in "fd"}
    found = {
        path: Found(
            history.nodes.get(look.inode), look.content if look.kind == "f" else None, is_told=path.rpartition("/")[2] not in REBUILT
        )
        for path, look in logged.items()
    }
    tree: Tree = {path: file_of(look, {}) for path, look in looks.items() if is_looked_at(path) and look.kind in "fdlp"}
    try:
        why = find_impossible(cut, found) or find_impossible_file(moment.old, moment.between, moment.synced, tree)
    except TooManyError as error:
        return OracleVerdict(ORACLE, Verdict.UNKNOWN, str(error)), False
    if why:
        return OracleVerdict(ORACLE, Verdict.FAIL, f"a real disk is in no state of the model: {why}", why.partition(" ")[0]), False
    uncut = build(cut, (KEPT_FATE,) * len(cut.pending)).list_paths(history.is_directory)
    other = sorted(path for path in {*uncut, *found} if uncut.get(path, 0) != (found[path].content if path in found else 0))
    changed = sorted(path for path in {*tree, *moment.new} if _plain(tree.get(path)) != _plain(moment.new.get(path)))
    words = f"{len(cut.pending)} operations pending; not as written: {', '.join([*other, *changed][:12]) or 'nothing'}"
    return OracleVerdict(ORACLE, Verdict.PASS, words[:500]), not (other or changed)


def _plain(file: File | None) -> tuple[str, bytes] | None:
    return None if file is None else (file.kind, file.content)


def _restart(place: Place, copied: Copied) -> None:
    """Leave of the harness's own files what a machine that restarts would not have lost: what was said and noted, under a new boot id."""
    for name in os.listdir(place.directory):
        path = place.directory / name
        if not (is_logged(name) or is_looked_at(name) or name in (WORK, *KEPT)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in KEPT:
        (place.directory / name).mkdir(exist_ok=True)
    recorded, moment = copied.recorded, copied.moment
    others = {**recorded.others, place.output(recorded.epoch).name: recorded.output[: moment.output]}
    others[place.witness.name] = recorded.witness[: moment.witness]
    for name, content in others.items():
        (place.directory / name).write_bytes(content)
    place.boot.write_text(str(uuid.uuid4()), "ascii")


def _tell_trouble(trial: Trial, words: str) -> TrialResult:
    return TrialResult(trial, Verdict.UNKNOWN, f"{TROUBLE}: {words}", (), (), (), {}, 0, 0, 0.0)
