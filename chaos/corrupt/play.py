"""One trial of the mode `corrupt`: a session as it was left, one piece of damage in its files, every command asked, then driven on.

The session is played once for each runner by the very plan that comes before the damage, and copied; each trial begins from the copy, in
the directory in which it was played. What the commands say of the sound copy is asked twice: an answer that is not the same both times
could be compared with nothing, and makes the clean run unknown.
"""

import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from chaos.corrupt.commands import Said, anchor_of, checkout_of, list_commands, run_command
from chaos.corrupt.damage import apply_near, format_damage, parse_damage
from chaos.corrupt.draw import ENTRY, WITHIN, format_size, list_dull
from chaos.corrupt.judge import End, judge_answers, judge_drive, judge_untouched
from chaos.corrupt.own_copy import WAL, count_sound_bytes, keep_sound
from chaos.corrupt.targets import Target, empty_wal, find_target, list_targets, read_emptied
from chaos.drivers import Place
from chaos.ends import AGAIN
from chaos.play import Part, Play, Played
from chaos.results import Action, Fault, OracleVerdict, Recording, Trial, TrialResult, Verdict, merge_verdicts
from chaos.saved import make_stage
from chaos.scenario import Scenario
from chaos.trees import copy_tree, empty_tree, remove_tree
from chaos.trial import Bench, question_of, read_kill_mark, remove_cgroups
from eventlog.errors import InternalError

QUIET_SECS = 20.0
FIRST_NUMBER = 101
"""The outputs of commands are numbered from here, above every driver's epoch."""
DRIVES = 4
"""So often is a session driven that ends with "try again"."""


@dataclass(slots=True)
class Base:
    """A session to damage. `older` is what its state directory was after the first action of the plan; `driven` what the sound session
    ends in; `heads` its newest event by how many bytes of its WAL are left."""

    copy: Path
    older: Path
    played: Played
    kill_mark: str
    intact: tuple[Said, ...] = ()
    driven: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()
    heads: dict[int, int] = field(default_factory=dict)
    trouble: str = ""


@dataclass(slots=True)
class Bases:
    """Those that one runner has made, by scenario, plan and directory."""

    bench: Bench
    made: dict[tuple[str, tuple[Action, ...], Path], Base] = field(default_factory=dict)

    def find(self, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Base:
        """The base of a plan, made in the empty `directory`, which is left empty."""
        key = (scenario.name, prefix, directory)
        if not prefix:
            return Base(directory, directory, Played(), "", trouble="nothing is played before the damage; give the set a `before`")
        if key not in self.made:
            self.made[key] = self._make(scenario, prefix, directory)
        return self.made[key]

    def _make(self, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Base:
        home = directory.parent / f"{directory.name}-bases" / f"{os.getpid()}-{len(self.made)}"
        home.mkdir(parents=True)
        self.bench.reference(scenario, directory)
        place = make_stage(scenario, directory)
        played = self._play(scenario, place, prefix, home / "older")
        base = Base(home / "copy", home / "older", played, read_kill_mark(place))
        base.trouble = played.trouble or next((f"{one.at} {one.note}" for one in played.faults if not one.fired), "")
        if not base.trouble:
            run_command(["eventlog", "verify", str(place.state), "--anchor", str(anchor_of(place))], place, FIRST_NUMBER - 1, self._pid)
            base.copy.mkdir()
            copy_tree(directory, base.copy)
            base.sizes = _list_sizes(place, base)
            self._ask_twice(scenario, base, place)
        empty_tree(directory)
        return base

    def _play(self, scenario: Scenario, place: Place, prefix: tuple[Action, ...], older: Path) -> Played:
        """Play the plan; what the state directory was after its first action is kept in `older`."""
        first = self._play_part(scenario, place, Part(prefix[:1]))
        older.mkdir()
        copy_tree(place.state, older)
        if len(prefix) == 1 or first.trouble:
            return first
        played = self._play_part(scenario, place, Part(prefix[1:], before=tuple(first.ends)))
        played.faults[:0] = first.faults
        return played

    def _play_part(self, scenario: Scenario, place: Place, part: Part) -> Played:
        play = Play(scenario, place, part, self.bench.oracle)
        play.run_plan_only(QUIET_SECS)
        remove_cgroups(place)
        for name in (place.socket, place.trace):
            name.unlink(missing_ok=True)
        return play.played

    def _ask_twice(self, scenario: Scenario, base: Base, place: Place) -> None:
        base.intact = ask(scenario, place, self.bench)
        again = ask(scenario, place, self.bench)
        unsteady = [one.command for one, other in zip(base.intact, again, strict=True) if one != other]
        broken = [one for one in base.intact if "Traceback" in one.err or one.code not in (0, 1, 2)]
        if unsteady:
            base.trouble = f"{unsteady[0]} says something else when it is asked again"
        elif broken:
            base.trouble = f"{broken[0].command} ends with {broken[0].code} on the sound session: {broken[0].err[-200:]}"
        else:
            said = drive(place, self.bench)
            base.driven = self.bench.oracle.list_tree(place.work)
            if said.code != 0:
                base.trouble = f"the sound session cannot be driven to its end: {said.err[-200:]}"

    @property
    def _pid(self) -> int:
        return self.bench.oracle.pid


def ask(scenario: Scenario, place: Place, bench: Bench) -> tuple[Said, ...]:
    """What every command that only looks says now."""
    answers = []
    for number, words in enumerate(list_commands(place, scenario.modes.mode != "transactional"), FIRST_NUMBER):
        for left in (place.output(number), place.errors(number)):
            left.unlink(missing_ok=True)
        said = run_command(words, place, number, bench.oracle.pid)
        if words[1] == "checkout":
            target = checkout_of(place)
            said = Said(said.command, said.code, said.out, said.err, bench.oracle.list_tree(target) if target.is_dir() else None)
            remove_tree(target)
        answers.append(said)
    return tuple(answers)


def drive(place: Place, bench: Bench) -> Said:
    """Drive the session on, again while it says "try again"; what the last driver said."""
    for number in _drives():
        said = run_command(["recovery", "drive", str(place.state)], place, number, bench.oracle.pid)
        if said.code != AGAIN:
            break
    remove_cgroups(place)
    return said


def _drives() -> range:
    """The numbers under which drivers after the damage leave their output."""
    return range(FIRST_NUMBER + 100, FIRST_NUMBER + 100 + DRIVES)


def record_base(bases: Bases, scenario: Scenario, prefix: tuple[Action, ...], directory: Path) -> Recording:
    """The session with no damage: what can be damaged, by name and size."""
    began = time.monotonic()
    base = bases.find(scenario, prefix, directory)
    trial = Trial(0, scenario.name, prefix, ENTRY, "")
    verdict = OracleVerdict("sound", Verdict.UNKNOWN, base.trouble) if base.trouble else OracleVerdict("sound", Verdict.PASS)
    result = TrialResult(
        trial, verdict.verdict, base.trouble, tuple(base.played.faults), (verdict,),
        tuple((one.epoch, one.code) for one in base.played.ends), {}, 0, 0, round(time.monotonic() - began, 4),
    )  # fmt: skip
    return Recording(scenario.name, base.sizes, result, base.kill_mark, prefix)


def run_damage(bases: Bases, scenario: Scenario, trial: Trial, directory: Path) -> TrialResult:
    """Run and judge one trial: its plan is that of the base and one damage. Never raises for what the engine does."""
    began = time.monotonic()
    *prefix, action = trial.plan
    base = bases.find(scenario, tuple(prefix), directory)
    if base.trouble:
        raise ValueError(f"the session before the damage is not sound: {base.trouble}")
    copy_tree(base.copy, directory)
    place = Place(directory)
    fault = _do_damage(place, base, action)
    verdicts: list[OracleVerdict] = []
    labels: dict[str, int] = {}
    lost = bound = 0
    if fault.fired:
        head = _read_head(bases.bench, place, scenario)
        least = _read_least_head(bases.bench, place, scenario, base, action)
        verdicts, end = _look(bases.bench, scenario, place, base)
        said = drive(place, bases.bench)
        verdicts.append(judge_drive(said, end, bases.bench.oracle.list_tree(place.work), base.driven))
        if said.code == 0 and head is not None:
            judgement = bases.bench.oracle.judge(_question(bases, scenario, trial, place, base, max(head, least)))
            labels, lost, bound = judgement.labels, judgement.lost_calls, judgement.bound
            verdicts += [one for one in judgement.verdicts if end != "detected" or _is_of_detected(one)]
    faults = (*base.played.faults, fault)
    reasons = [f"{one.oracle}: {one.detail}" for one in verdicts if one.verdict is not Verdict.PASS]
    reasons += [] if fault.fired else [fault.note]
    return TrialResult(
        trial, merge_verdicts([one.verdict for one in verdicts]), "; ".join(reasons), faults, tuple(verdicts),
        tuple((one.epoch, one.code) for one in base.played.ends), labels, 0, 0, round(time.monotonic() - began, 4),
        lost_calls=lost, bound=bound,
    )  # fmt: skip


def _is_of_detected(one: OracleVerdict) -> bool:
    """Of a session in which damage was told and stands: only how much work was lost, where the log can still say it. That the workspace is
    right is seen by its tree; the other oracles would find the damage again."""
    return one.oracle == "lost-work" and one.verdict is not Verdict.UNKNOWN


def _look(bench: Bench, scenario: Scenario, place: Place, base: Base) -> tuple[list[OracleVerdict], End]:
    before = digest_state(place)
    verdict, end = judge_answers(base.intact, ask(scenario, place, bench))
    return [verdict, judge_untouched(before, digest_state(place))], end


def digest_state(place: Place) -> dict[str, str]:
    """Every file of the state directory but SQLite's index, which readers rebuild, by its digest."""
    files = [path for path in place.state.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path.relative_to(place.state)): blake3(path.read_bytes()).hexdigest() for path in files}


def _do_damage(place: Place, base: Base, action: Action) -> Fault:
    """Damage the bytes that the action names; it fired only when they are others afterwards."""
    target = find_target(place, action.path, place.directory / "scratch")
    if target is None:
        return Fault("", "corrupt", True, False, note=f"there is no {action.path} here")
    if target.role == "blob":
        empty_wal(target.path)
    whole = target.path.read_bytes()
    done = apply_near(parse_damage(action.content or ""), *_cut_out(place, base, target))
    if done is None:
        return Fault("", "corrupt", True, False, note=f"{action.content} leaves {action.path} as it was")
    mode = target.path.stat().st_mode
    target.path.chmod(0o600)
    target.path.write_bytes(whole[: target.start] + done[1] + whole[target.start + target.length :])
    target.path.chmod(mode & 0o7777)
    (place.state / "log.sqlite-shm").unlink(missing_ok=True)  # the machine was restarted since, or the index would hide the damage
    return Fault("", "corrupt", True, target.path.read_bytes() != whole, note=f"{format_damage(done[0])} of {target.length} bytes")


def _cut_out(place: Place, base: Base, target: Target) -> tuple[bytes, bytes]:
    """The target's bytes now, and at the earlier moment."""
    span = slice(target.start, target.start + target.length)
    older = _read_older(place, base, target.path)
    return target.path.read_bytes()[span], older[span] if target.role in WITHIN else older


def _list_sizes(place: Place, base: Base) -> tuple[str, ...]:
    """What can be damaged, and which damage would change nothing, as a recording names both."""
    targets = list_targets(place, place.directory / "scratch")
    files = [one for one in targets if one.role != "blob"]
    dull = [name for one in files for name in list_dull(one.name, *_cut_out(place, base, one))]
    emptied = read_emptied(place, place.directory / "scratch")
    for one in (one for one in targets if one.role == "blob"):
        span = slice(one.start, one.start + one.length)
        dull += list_dull(one.name, emptied[span], _read_older(place, base, one.path)[span])
    return (*(format_size(one.name, one.length) for one in targets), *dull)


def _read_older(place: Place, base: Base, path: Path) -> bytes:
    """What the file was at the earlier moment; of an object of the checkpoint store, which never changes, another object of its kind."""
    older = base.older / path.relative_to(place.state)
    if older.is_file():
        return older.read_bytes()
    others = sorted(one for one in path.parents[1].rglob("*") if one.is_file() and one != path and len(one.name) == len(path.name))
    return others[0].read_bytes() if others else b""


def _read_head(bench: Bench, place: Place, scenario: Scenario) -> int | None:
    """The newest event that the damaged log still shows; None when it cannot be read."""
    try:
        return bench.oracle.read_head(place.state / "log.sqlite", place.directory / "scratch", scenario.name)
    except OSError:
        return None
    finally:
        shutil.rmtree(place.directory / "scratch")
        (place.directory / "scratch").mkdir()


def _read_least_head(bench: Bench, place: Place, scenario: Scenario, base: Base, action: Action) -> int:
    """The newest event that the damage leaves in the runner's own copy of the log: all of them where the log is not what was damaged."""
    state = base.copy / place.state.relative_to(place.directory)
    if action.path == "log" and len(parse_damage(action.content or "").numbers) < 2:  # older as a whole, or cut: there is no saying
        return 0
    intact = _read_bytes(state / WAL)
    sound = count_sound_bytes(intact, _read_bytes(place.state / WAL)) if action.path == "wal" else len(intact)
    if sound not in base.heads:
        own = _made(base.copy.parent / f"own-{sound}")
        scratch = _made(base.copy.parent / f"scratch-{sound}")
        base.heads[sound] = bench.oracle.read_head(keep_sound(state, sound, own), scratch, scenario.name)
        shutil.rmtree(own)
        shutil.rmtree(scratch)
    return base.heads[sound]


def _read_bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _question(bases: Bases, scenario: Scenario, trial: Trial, place: Place, base: Base, head: int) -> dict[str, object]:
    """As of any trial; the acknowledgements are those of before and of the drivers after the damage. Of the first ones the log may lack
    what comes after `head`: the newest event that the damaged log still shows, and no less than the damage leaves of the runner's own
    copy. They are the bound."""
    question = question_of(scenario, trial, place, bases.bench.references[scenario], base.played)
    before = question["acknowledged"]
    if not isinstance(before, list):
        raise InternalError(f"a question names its acknowledgements as a {type(before).__name__}")
    after = [str(path) for number in _drives() if (path := place.output(number)).exists()]
    return question | {"acknowledged": [*before, *after], "put_back": [head, len(before)], "suspect": False}


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory
