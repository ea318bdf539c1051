"""The oracle `liveness`: after the last fault the session comes to its end, or to a person with a reason, within three driver starts.

Whoever only says "try again" for ever breaks no rule of safety. A person's command that a scenario's `answers` name begins the count anew:
it is what was asked for.
"""

import time

from chaos.answers import find_answer
from chaos.ends import AGAIN, look
from chaos.results import OracleVerdict, Verdict
from chaos.scene import Scene
from chaos.stage import DRIVER_SECS
from chaos.starts import start_next

NAME = "liveness"
MOST_STARTS = 3
"""Two are enough where nothing happens any more: the first may find that its space was ended behind its back, the second begins anew."""


def drive_to_end(scene: Scene) -> None:
    """Start drivers while the session is not over, three at most, and wait for each; then for those that still run. TimeoutError."""
    deadline = time.monotonic() + DRIVER_SECS
    started = 0
    while not scene.is_over:
        if not scene.stage.running():
            is_answered = bool(find_answer(scene))
            if started >= MOST_STARTS and not is_answered:
                break
            start_next(scene)
            started = 0 if is_answered else started + 1
            deadline = time.monotonic() + DRIVER_SECS
        look(scene, f"driver {scene.stage.newest} to end", deadline)
    while scene.stage.running():
        look(scene, "every driver to end", deadline)
    _judge(scene, started)


def _judge(scene: Scene, started: int) -> None:
    """A pass where the session is over and no driver's end said otherwise; what those said stands already."""
    findings = scene.played.findings
    if any(one.oracle == NAME for one in findings):
        return
    if scene.is_over:
        findings.append(OracleVerdict(NAME, Verdict.PASS, f"over after {started} driver starts since the last fault"))
        return
    newest = scene.stage.newest
    words = scene.read_last_words(newest)
    detail = f"{started} drivers after the last fault, each of which said {AGAIN} (try again), and the session is not finished: {words}"
    findings.append(OracleVerdict(NAME, Verdict.FAIL, detail))
