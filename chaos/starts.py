"""Starting the next driver of a trial: which epoch it has, and whether it is forked, the real command, a redriver or a person."""

import shlex

from chaos.answers import find_answer
from chaos.drivers import FIRST_REDRIVER, PERSON, REDRIVE, REDRIVE_AHEAD
from chaos.scene import Scene


def start_next(scene: Scene) -> None:
    """Start the next driver: what a person does for the one before, a redriver, or a driver as the trial's `entry` says."""
    is_redriven = scene.scenario.redriven and (scene.place.state / "log.sqlite").exists()
    redrive = PERSON + shlex.join(REDRIVE_AHEAD if scene.scenario.ahead else REDRIVE)
    begin(scene, find_answer(scene) or (redrive if is_redriven else scene.part.entry))


def begin(scene: Scene, entry: str) -> None:
    """Start a driver with this entry, after a look at what the one before left."""
    scene.kept.update(scene.list_quarantine())
    if scene.stage.newest and not scene.has_writer():
        scene.played.looks.append(scene.list_work())
    scene.stage.start(next_epoch(scene), entry)


def count_started(scene: Scene) -> int:
    """How many drivers, or redrivers after the first, this part has started."""
    return len(scene.stage.ends) + len(scene.stage.running())


def next_epoch(scene: Scene) -> int:
    """One more than the last, but 1 again while no log was made: an epoch above 1 says that there was one (rule L9)."""
    if not (scene.place.state / "log.sqlite").exists():
        return 1
    if scene.scenario.redriven:
        return max(scene.stage.newest + 1, FIRST_REDRIVER)
    return scene.stage.newest + 1
