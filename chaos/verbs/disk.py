"""The verb `fail`: the next driver works on a disk that fails, then there is room again."""

import time

from chaos.disk import inodes
from chaos.disk.fault import COUNT, INODES, parse_fault
from chaos.disk.rules import has_fired, judge_driver, read_trace
from chaos.ends import look
from chaos.powerloss.loops import find_lack
from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import DRIVER_SECS, Reached
from chaos.starts import next_epoch, start_next

WAITS_FOR_ROOM = "cannot be recorded"
"""What a driver says whose shim tries again to record an exit."""


def fail_disk(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Start the next driver on a disk with this fault, wait for its end, make room again. It fired when the device met it."""
    epoch = int(action.who.partition("@")[2])
    if scene.stage.running() or scene.is_over or epoch != next_epoch(scene):
        return Fault("", "fail", False, False, note=f"the next driver is not {action.who}", who=action.who)
    fault = parse_fault(action.path, action.content or "")
    if fault.role == INODES and (lack := find_lack(inodes.KIND)):
        return Fault("", "fail", False, False, note=f"inodes are unavailable here: {lack}", who=action.who)
    before = _find_log(scene)
    if fault.role == INODES:
        inodes.mount_state(scene.place, fault.number - 1)
        before = _find_log(scene)
    scene.place.disk_fault.write_text(f"{action.path} {action.content}", "ascii")
    start_next(scene)
    deadline = time.monotonic() + DRIVER_SECS
    while epoch in scene.stage.running():
        if WAITS_FOR_ROOM in _read_errors(scene, epoch):
            scene.place.disk_fault.unlink(missing_ok=True)  # a command has ended, and its shim waits for room for its exit
        look(scene, f"{action.who} to end", deadline)
    scene.place.disk_fault.unlink(missing_ok=True)
    trace = read_trace(scene.place)
    ended = next(ended for ended in reversed(scene.played.ends) if ended.epoch == epoch)
    if fault.role == INODES:
        fired = ended.code != 0 or inodes.count_left(scene.place) == 0
        inodes.make_room(scene.place)
    else:
        fired = bool(trace) if fault.operation == COUNT else has_fired(trace, fault)
    said = _read_errors(scene, epoch)
    scene.played.findings.append(judge_driver(fault, ended.code, said, trace, before, _find_log(scene)))
    return Fault("", "fail", True, fired, note="" if fired else "it came to its end without that operation", who=action.who)


def _find_log(scene: Scene) -> int:
    """The log's inode number, 0 for no log."""
    log = scene.place.state / "log.sqlite"
    return log.stat().st_ino if log.exists() else 0


def _read_errors(scene: Scene, epoch: int) -> str:
    """What a driver has said on stderr so far."""
    file = scene.place.errors(epoch)
    return file.read_text("utf-8", "replace") if file.exists() else ""
