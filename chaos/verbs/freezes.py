"""The verbs `freeze`, `wake` and `killed`: SIGSTOP and SIGCONT seen to be so, and the death of who was frozen with a lock proved."""

import os
import signal
import time
from pathlib import Path

from chaos.ends import AGAIN, look
from chaos.played import MOST_DRIVERS, Woken
from chaos.processes import holds_write_lock, is_running, is_stopped, read_death, stop_process
from chaos.results import Action, Fault, OracleVerdict, Verdict
from chaos.scene import Scene
from chaos.stage import DRIVER_SECS, Reached, Traced, read_trace, release
from chaos.starts import count_started, start_next
from chaos.step import Lock, lock_of, parse_step
from chaos.verbs.kills import is_half_written

STOP_SECS = 10.0


def freeze(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Stop the process; it fired only when it was seen stopped, with the lock that its step says and no other."""
    pid = scene.find(action, reached)
    if not pid:
        return Fault(action.at, "freeze", False, False, note="there was no such process", who=action.who)
    alive = scene.list_alive()
    stopped = stop_process(pid, STOP_SECS)
    note = _check_lock(scene, action, pid, reached) if stopped else "it ended instead of stopping"
    scene.frozen[action.who or f"{parse_step(action.at).role}@{parse_step(action.at).epoch}"] = pid
    if reached is not None:
        # It is held by the signal alone from here on: woken, it goes on at once.
        release(reached)
    return Fault(action.at, "freeze", True, not note, pid, 0, alive, is_half_written(action.at), note, action.who)


def wake(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Wake a frozen process; one that is dead by now (a successor killed it) is proved so instead. A driver must still be there."""
    if action.who not in scene.frozen:
        return Fault("", "wake", False, False, note="it was not frozen", who=action.who)
    _await_takeover(scene)
    pid = scene.frozen.pop(action.who)
    scene.played.woken.append(Woken(action.who, scene.list_work(), scene.read_head()))
    if pid not in scene.list_left_behind():
        is_driver = action.who.startswith("driver@")
        return Fault("", "wake", True, not is_driver, pid, note="it was dead already", who=action.who)
    stopped = is_stopped(pid)
    os.kill(pid, signal.SIGCONT)
    return Fault("", "wake", True, stopped, pid, note="" if stopped else "it was not stopped any more", who=action.who)


def _await_takeover(scene: Scene) -> None:
    """Start successors until one has not asked to be started again: an epoch whose driver could not prove the old ones dead (exit 1) has
    taken nothing over, and what it left alive may go on until another has."""
    deadline = time.monotonic() + DRIVER_SECS
    while not scene.is_over and scene.stage.ends and _asks_again(scene) and count_started(scene) < MOST_DRIVERS:
        start_next(scene)
        epoch = scene.stage.newest
        while epoch in scene.stage.running():
            look(scene, f"driver@{epoch} to end", deadline)


def _asks_again(scene: Scene) -> bool:
    """Whether the newest driver has ended and needs another."""
    newest = scene.stage.newest
    codes = {ended.epoch: ended.code for ended in scene.stage.ends}
    return codes.get(newest) in (AGAIN, -signal.SIGKILL)


def prove_killed(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """A process that was frozen with a lock: dead of signal 9 by its wait status, never woken, killed by a successor by its own
    trace; and the newest driver has come to the session's end."""
    pid = scene.frozen.get(action.who, 0)
    if not pid:
        return Fault("", "killed", False, False, note="it was not frozen", who=action.who)
    number = _read_death(scene, action.who, pid)
    note = "" if number == signal.SIGKILL else "it lives" if is_running(pid) else f"it died of signal {number}, not 9"
    if not note and not any(map(_is_holder_s_end, read_trace(scene.place))):
        note = "no successor killed it"
    newest = scene.stage.newest
    successor = next((ended for ended in scene.stage.ends if ended.epoch == newest), None)
    if not note and (successor is None or successor.code != 0):
        note = f"its successor ended with {successor.code if successor else 'nothing'} instead of 0"
    if note:
        detail = f"{action.who} was frozen while it held a lock: {note}: {scene.read_last_words(newest)}"
        scene.played.findings.append(OracleVerdict("lock-holder", Verdict.FAIL, detail))
    else:
        del scene.frozen[action.who]
    scene.stage.is_lock_held = bool(note)
    return Fault("", "killed", True, not note, pid, number, note=note, who=action.who)


def _read_death(scene: Scene, who: str, pid: int) -> int:
    """The signal that a frozen process died of; 0 when this runner killed it itself, or when it did not die of one."""
    role, _, epoch = who.partition("@")
    ended = next((ended for ended in scene.stage.ends if role == "driver" and ended.epoch == int(epoch)), None)
    if int(epoch) in scene.killed:
        return 0
    return read_death(pid) if ended is None else -ended.code


def _check_lock(scene: Scene, action: Action, pid: int, reached: Reached | None) -> str:
    """Whether a frozen process holds the lock that its step says, and no other, by the kernel's list; "" when it does."""
    if reached is None:
        return ""
    step = parse_step(action.at)
    lock = _lock_files(scene).get(lock_of(step))
    if lock is None:
        return "it holds a lock here" if holds_write_lock(pid) else ""
    if not holds_write_lock(pid, lock):
        return f"it does not hold the lock of the {lock_of(step)} here"
    scene.played.held.append((step.epoch, scene.read_head()))
    scene.stage.is_lock_held = True
    return ""


def _lock_files(scene: Scene) -> dict[Lock, Path]:
    return {"log": scene.place.state / "log.sqlite-shm", "ledger": scene.place.state / "space" / "ledger.lock"}


def _is_holder_s_end(traced: Traced) -> bool:
    """Whether a driver has killed the holder of a lock here."""
    return traced.step.startswith("driver@") and ":unlock.kill.after:" in traced.step
