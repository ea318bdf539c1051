"""The verbs that take from what a session rests on, behind its back: `lose`, `keep` and `jump`."""

import json
import os

import msgspec

from chaos.actions import parse_jump
from chaos.processes import end_everything, is_running, kill_other
from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import Reached, read_roles, release
from chaos.taking import TAKING, keep_log

ENDS_ALL = ("boot", "machine")
"""Losses that no process outlives."""
SPACE = "space"
OF_SPACE = ("spawner", "shim", "worker", "filler", "command", "fork")
"""Roles of the processes of a space; the driver is none of them."""


def lose(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Take something away; it fired when that is seen. What stood in the workspace until now is nothing that recovery could find."""
    if scene.is_over:
        return Fault(action.at, "lose", bool(reached), False, note="the session had ended before")
    if action.path in ENDS_ALL and scene.stage.running():
        let_go(scene, reached)
        return Fault(action.at, "lose", bool(reached), False, note="a driver lives, which a restart would have ended")
    if action.path in ENDS_ALL:
        end_everything(os.getpid(), scene.observer.pid)
    if action.path == SPACE:
        return _lose_space(scene, action, reached)
    taking = TAKING[action.path]
    before = scene.list_work() if action.path == "files" else {}
    taking.carry_out(scene.place)
    is_done = taking.is_done(scene.place)
    if action.path == "log":
        scene.place.put_back.write_text(json.dumps([scene.read_head(), len(scene.played.ends)]), "ascii")
    scene.played.edits += [{"path": path, "content": None, "head": scene.read_head()} for path in sorted(before) if path]
    scene.played.looks.clear()
    if action.path == "machine":
        scene.kept.clear()
    # A command that still runs goes on in the directory that was moved, until the next driver ends it: that is nobody's touch.
    scene.away = None if scene.has_writer() else scene.list_away()
    let_go(scene, reached)
    return Fault(action.at, "lose", True, is_done, note="" if is_done else f"{action.path}: it is not seen to be so")


def _lose_space(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Kill every process of the space but the one that waits at the step; it fired when there was one and each died of signal 9."""
    waits = reached.pid if reached is not None else 0
    numbers: list[int] = []
    for role in OF_SPACE:  # a spawner first, which would start others
        pids = [pid for pid, name in read_roles(scene.place).items() if name.partition(".")[0] == role]
        pids += [one.pid for one in scene.list_alive() if one.role.partition(".")[0] == role]
        numbers += [kill_other(pid) for pid in dict.fromkeys(pids) if pid != waits and is_running(pid)]
    let_go(scene, reached)
    note = "" if numbers and set(numbers) == {9} else f"processes of the space died of the signals {numbers}" if numbers else "none lived"
    return Fault(action.at, "lose", True, not note, note=note)


def jump(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """The wall clock that drivers read jumps; that one read it afterwards is shown at the end of the trial (`doubt_jumps`)."""
    place, jumped = scene.place, parse_jump(action.path) or 0
    before = int(place.clock.read_text("ascii")) if place.clock.exists() else 0
    place.clock.write_text(str(before + jumped), "ascii")
    place.clock_read.unlink(missing_ok=True)
    let_go(scene, reached)
    return Fault(action.at, "jump", True, int(place.clock.read_text("ascii")) == before + jumped)


def doubt_jumps(scene: Scene) -> None:
    """A jump that no driver saw did not fire."""
    if scene.place.clock.exists() and not scene.place.clock_read.exists():
        note = "no driver read the clock after the jump"
        faults = scene.played.faults
        last = max((number for number, fault in enumerate(faults) if fault.do == "jump" and fault.fired), default=None)
        if last is not None:
            faults[last] = msgspec.structs.replace(faults[last], fired=False, note=note)


def keep(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Copy the log's files, to be put back by a `lose`."""
    keep_log(scene.place)
    let_go(scene, reached)
    return Fault(action.at, "keep", True, (scene.place.kept_log / "log.sqlite").is_file())


def let_go(scene: Scene, reached: Reached | None) -> None:
    """The process that waited meanwhile goes on."""
    if reached is not None:
        release(reached)
        scene.stage.open_wanted_gate()
