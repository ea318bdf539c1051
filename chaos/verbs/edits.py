"""The verbs `edit` and `turn`: somebody else writes, removes or exchanges something of the workspace.

What must hold: it fired only when the file system shows it, and the oracle is told of all that was taken away by it.
"""

import os
from pathlib import Path
from typing import Any

from blake3 import blake3

from chaos.actions import SYMLINK
from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import Reached
from chaos.trees import remove_tree
from chaos.verbs.changes import let_go


def edit(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Somebody else writes a file of the workspace, in place where there is one, or removes what is there."""
    path = scene.place.work / action.path
    if action.content is None and not os.path.lexists(path):
        let_go(scene, reached)
        return Fault(action.at, "edit", bool(reached), False, note=f"{action.path}: nothing is there that could be removed")
    removed = _clear(scene, path) if action.content is None or not path.is_file() or path.is_symlink() else []
    if action.content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(action.content, "utf-8")
    name = None if action.content is None else blake3(action.content.encode()).hexdigest()
    is_done = not os.path.lexists(path) if action.content is None else path.read_text("utf-8") == action.content
    return _tell(scene, action, reached, removed, {"content": name}, is_done=is_done)


def turn(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Somebody else makes a directory, a FIFO or a symlink of a path, whatever was there."""
    path, wanted = scene.place.work / action.path, action.content or ""
    removed = _clear(scene, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if wanted.startswith(SYMLINK):
        target = wanted.removeprefix(SYMLINK)
        path.symlink_to(target)
        return _tell(scene, action, reached, removed, {"content": None, "kind": "l", "target": target}, is_done=path.is_symlink())
    if wanted == "fifo":
        os.mkfifo(path)
        return _tell(scene, action, reached, removed, {"content": None, "kind": "p"}, is_done=path.is_fifo())
    path.mkdir()
    is_done = path.is_dir() and not path.is_symlink()
    return _tell(scene, action, reached, removed, {"content": None, "kind": "d"}, is_done=is_done)


def _clear(scene: Scene, path: Path) -> list[str]:
    """Remove what stands at a path; the paths below it that went with it, as the oracle names them."""
    if path.is_dir() and not path.is_symlink():
        below = [one for one in scene.list_tree(path) if one]
        remove_tree(path)
        return below
    path.unlink(missing_ok=True)
    return []


def _tell(
    scene: Scene, action: Action, reached: Reached | None, removed: list[str], made: dict[str, Any], *, is_done: bool
) -> Fault:
    """Tell the oracle of an edit and of what it took away, and let who waited go on."""
    head = scene.read_head()
    scene.played.edits += [{"path": f"{action.path}/{one}", "content": None, "head": head} for one in sorted(removed)]
    scene.played.edits.append({"path": action.path, "head": head, **made})
    let_go(scene, reached)
    return Fault(action.at, action.do, True, is_done, note="" if is_done else "it is not seen to be so")
