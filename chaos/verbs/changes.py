"""The verbs that change what a session rests on, behind its back: `edit`, `lose` and `keep`."""

import json
import os

from blake3 import blake3

from chaos.processes import end_everything
from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import Reached, release
from chaos.taking import TAKING, keep_log

ENDS_ALL = ("boot", "machine")
"""Losses that no process outlives."""


def edit(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Somebody else writes a file of the workspace, or removes it."""
    path = scene.place.work / action.path
    if action.content is None:
        path.unlink()
    else:
        path.write_text(action.content, "utf-8")
    content = None if action.content is None else blake3(action.content.encode()).hexdigest()
    scene.played.edits.append({"path": action.path, "content": content, "head": scene.read_head()})
    _let_go(scene, reached)
    return Fault(action.at, "edit", True, True)


def lose(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Take something away; it fired when that is seen. What stood in the workspace until now is nothing that recovery could find."""
    if scene.is_over:
        return Fault(action.at, "lose", bool(reached), False, note="the session had ended before")
    if action.path in ENDS_ALL and scene.stage.running():
        return Fault(action.at, "lose", bool(reached), False, note="a driver lives, which a restart would have ended")
    if action.path in ENDS_ALL:
        end_everything(os.getpid(), scene.observer.pid)
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
    _let_go(scene, reached)
    return Fault(action.at, "lose", True, is_done, note="" if is_done else f"{action.path}: it is not seen to be so")


def keep(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Copy the log's files, to be put back by a `lose`."""
    keep_log(scene.place)
    _let_go(scene, reached)
    return Fault(action.at, "keep", True, (scene.place.kept_log / "log.sqlite").is_file())


def _let_go(scene: Scene, reached: Reached | None) -> None:
    """The process that waited meanwhile goes on."""
    if reached is not None:
        release(reached)
        scene.stage.open_wanted_gate()
