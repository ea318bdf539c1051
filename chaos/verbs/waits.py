"""The verbs that wait or let go: `wait` (for a step), `end`, `parked`, `release`, `start` and `person`."""

import time

from chaos.answers import PARKED, fill_in
from chaos.drivers import PERSON
from chaos.ends import look
from chaos.played import MOST_DRIVERS
from chaos.results import Action, Fault, OracleVerdict, Verdict
from chaos.scene import Scene
from chaos.stage import DRIVER_SECS, Reached, find_process, read_trace
from chaos.starts import begin, count_started, start_next
from chaos.step import parse_step


def await_step(scene: Scene, step: str) -> bool:
    """Wait until a process waits at a step; False when none can get there any more."""
    parsed = parse_step(step)
    deadline = time.monotonic() + DRIVER_SECS
    while step not in scene.stage.waiting:
        running = [epoch for epoch in scene.stage.running() if f"driver@{epoch}" not in scene.frozen]
        if not running and not _can_go_on(scene, parsed.role, parsed.epoch):
            return False
        if parsed.role == "driver" and parsed.epoch in {ended.epoch for ended in scene.stage.ends}:
            return False
        look(scene, f"{step} to be reached", deadline)
    return True


def _can_go_on(scene: Scene, role: str, epoch: int) -> bool:
    """With no driver at work: whether a step can still be reached, by a process left of its epoch, or by a driver started now."""
    is_of_next = scene.scenario.redriven and role in ("driver", "redriver")
    if epoch <= scene.stage.newest and not is_of_next:
        return role != "driver" and any(_is_of_epoch(scene, pid, epoch) for pid in scene.list_left_behind())
    if scene.is_over or count_started(scene) >= MOST_DRIVERS:
        return False
    start_next(scene)
    return True


def _is_of_epoch(scene: Scene, pid: int, epoch: int) -> bool:
    return any(traced.pid == pid and f"@{epoch}:" in traced.step for traced in read_trace(scene.place))


def await_end(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Wait for the end of a process; it fired when there was one."""
    role, _, epoch = action.who.partition("@")
    deadline = time.monotonic() + DRIVER_SECS
    if role == "driver":
        while int(epoch) in scene.stage.running():
            look(scene, f"{action.who} to end", deadline)
        fired = any(ended.epoch == int(epoch) for ended in scene.stage.ends)
        _look_after(scene, action.who)
        return Fault("", "end", True, fired, note="" if fired else "it was never started", who=action.who)
    pid = scene.frozen.get(action.who) or (scene.find(action, None) if role == "command" else find_process(scene.place, action.who))
    while pid in scene.list_left_behind():
        look(scene, f"{action.who} to end", deadline)
    _look_after(scene, action.who)
    return Fault("", "end", True, bool(pid), pid, note="" if pid else "there was no such process", who=action.who)


def _look_after(scene: Scene, who: str) -> None:
    """After the end of one that was woken: what it may have changed."""
    for woken in scene.played.woken:
        if woken.who == who and woken.listing_after is None:
            woken.listing_after, woken.head_after = scene.list_work(), scene.read_head()


def await_parked(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """The end of a driver that needs a person: 78 and the words for it."""
    epoch = int(action.who.partition("@")[2])
    deadline = time.monotonic() + DRIVER_SECS
    if epoch == scene.stage.newest + 1 and not scene.is_over:
        start_next(scene)
    while epoch in scene.stage.running():
        look(scene, f"{action.who} to end", deadline)
    ended = next((ended for ended in scene.played.ends if ended.epoch == epoch), None)
    if ended is None:
        return Fault("", "parked", False, False, note="it was never started", who=action.who)
    words = scene.read_last_words(epoch)
    note = "" if ended.code == PARKED and action.path in words else f"it ended with {ended.code}: {words}"
    if note:
        detail = f"{action.who} should have ended with {PARKED} and {action.path!r}: {note}"
        scene.played.findings.append(OracleVerdict("parked", Verdict.FAIL, detail))
    return Fault("", "parked", True, not note, note=note, who=action.who)


def release_held(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Let a process that is held at steps go on."""
    steps = [step for step in scene.stage.waiting if step.startswith(f"{action.who}:")]
    let_go = [scene.stage.let_go(step) for step in steps]
    note = "it was not held at any step" if not steps else "" if all(let_go) else "it was dead already"
    return Fault("", "release", True, not note, note=note, who=action.who)


def start(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Start the next driver while others live."""
    start_next(scene)
    return Fault("", "start", True, True)


def ask_person(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Start a person's command, as `start` does a driver; how it ends is judged as a driver's end is."""
    begin(scene, PERSON + fill_in(scene, action.path))
    return Fault("", "person", True, True)
