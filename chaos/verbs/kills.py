"""The verb `kill`: what lives is recorded, SIGKILL sent from outside, and how the process died read back."""

from chaos.ends import judge_ends
from chaos.processes import kill_child, kill_other
from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import Reached


def kill(scene: Scene, action: Action, reached: Reached | None) -> Fault:
    """Record what lives, SIGKILL the process, read back how it died."""
    stage = scene.stage
    if scene.scenario.ready and not stage.is_gate_open() and _has_command(scene):
        stage.wait_ready(lambda: not _has_command(scene))
    pid = scene.find(action, reached)
    if not pid:
        return Fault(action.at, "kill", False, False, note="there was no such process", who=action.who)
    alive = scene.list_alive()
    half = is_half_written(action.at) or (stage.is_ready() and not stage.is_gate_open())
    epoch = next((epoch for epoch, driver in stage.running().items() if driver == pid), 0)
    if epoch:
        scene.killed.add(epoch)
        kill_child(pid)
        number = -stage.wait_end(epoch, "the killed driver's wait status").code
        judge_ends(scene)
    else:
        number = kill_other(pid)
    if reached is not None:
        reached.connection.close()
    for step in [step for step, other in stage.waiting.items() if other.pid == pid]:
        stage.deal_with(step).connection.close()  # it was held there and is dead now
    note = "" if number == 9 else f"the process ended with signal {number}, not 9"
    return Fault(action.at, "kill", True, number == 9, pid, max(number, 0), alive, half, note, action.who)


def is_half_written(step: str) -> bool:
    """Whether the file worker, or the second process of it, stands between the two halves of a file's content."""
    return step.startswith(("worker@", "filler@")) and ".write.half:" in step


def _has_command(scene: Scene) -> bool:
    return any(one.role == "command" for one in scene.list_alive())
