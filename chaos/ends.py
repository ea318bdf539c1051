"""What the ends of drivers say: a session that came to its end, a successor that is needed, a person that is asked, or a failure."""

import signal
import time

from chaos.answers import PARKED, find_answer
from chaos.disk.fault import parse_fault
from chaos.disk.rules import may_need_a_person
from chaos.results import Action, OracleVerdict, Verdict
from chaos.scene import Scene
from chaos.stage import LOOK_SECS, Ended, read_trace

STALE = 75
AGAIN = 1


def look(scene: Scene, what: str, deadline: float) -> None:
    """Take note of what happened, and judge the drivers that ended. TimeoutError after `deadline` names `what`."""
    scene.stage.look(what, deadline, until=time.monotonic() + LOOK_SECS)
    judge_ends(scene)


def judge_ends(scene: Scene) -> None:
    """What the ends of drivers since the last look say."""
    for ended in scene.stage.ends[scene.judged :]:
        scene.played.ends.append(ended)
        _judge_end(scene, ended)
    scene.judged = len(scene.stage.ends)


def _judge_end(scene: Scene, ended: Ended) -> None:
    if ended.epoch in scene.killed and ended.code == -signal.SIGKILL:
        return
    if ended.superseded and ended.code == -signal.SIGKILL and ended.epoch in {epoch for epoch, _ in scene.played.held}:
        return  # its successor killed it; `killed` in the plan proves whether that was right
    if ended.superseded:
        # One that never came to raise its floor may find the session finished: it added nothing, and says so.
        if ended.code != STALE and not (ended.code == 0 and not _has_raised(scene, ended.epoch)):
            words = scene.read_last_words(ended.epoch)
            detail = f"the superseded driver {ended.epoch} ended with {ended.code} instead of {STALE}: {words}"
            scene.played.findings.append(OracleVerdict("fencing-exit", Verdict.FAIL, detail))
    elif ended.code == 0:
        scene.is_over = not ended.command or ended.command.startswith(("drive", "redrive"))
    elif ended.code == PARKED and (_is_meant_to_park(scene, ended.epoch) or find_answer(scene)):
        words = scene.read_last_words(ended.epoch)
        scene.played.parked += [text for text in _list_texts(scene) if text in words]
    elif ended.code != AGAIN:
        scene.is_over = True
        detail = f"driver {ended.epoch} ended with {ended.code} and the session is not finished: {scene.read_last_words(ended.epoch)}"
        scene.played.findings.append(OracleVerdict("liveness", Verdict.FAIL, detail))


def _list_texts(scene: Scene) -> list[str]:
    """What a driver that needs a person may say in this trial."""
    planned = [action.path for action in scene.part.plan if action.do == "parked"]
    return list(dict.fromkeys([*planned, *(text for text, _ in scene.scenario.answers)]))


def _is_meant_to_park(scene: Scene, epoch: int) -> bool:
    """By the plan: it says so, or puts the driver on a disk that only a person can mend."""
    mine = [action for action in scene.part.plan if action.who == f"driver@{epoch}"]
    return any(action.do == "parked" or (action.do == "fail" and _may_need_a_person(action)) for action in mine)


def _may_need_a_person(action: Action) -> bool:
    return may_need_a_person(parse_fault(action.path, action.content or ""))


def _has_raised(scene: Scene, epoch: int) -> bool:
    return any(traced.step.startswith(f"driver@{epoch}:floor.commit.after:") for traced in read_trace(scene.place))
