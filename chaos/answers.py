"""What a person does after a driver that ended with 78: the commands that a scenario's `answers` name, filled in."""

import re
import shlex

from chaos.drivers import PERSON
from chaos.scene import Scene

PARKED = 78
MOST_ANSWERS = 4
_ROOT = re.compile(r"\b[0-9a-f]{64}\b")


def find_answer(scene: Scene) -> str:
    """The command that a person runs because of how the newest driver ended, as an entry; "" for none."""
    ends = scene.played.ends
    newest = max(ends, key=lambda ended: ended.epoch, default=None)
    if newest is None or newest.code != PARKED:
        return ""
    words = scene.read_last_words(newest.epoch)
    command = next((command for text, command in scene.scenario.answers if text in words), "")
    if not command or sum(ended.code == PARKED for ended in ends) > MOST_ANSWERS:
        return ""
    roots = _ROOT.findall(words)
    return PERSON + fill_in(scene, command).replace("{root}", roots[-1] if roots else "")


def fill_in(scene: Scene, command: str) -> str:
    """A person's command with the trial's workspace in it."""
    return command.replace("{workspace}", shlex.quote(str(scene.place.work)))
