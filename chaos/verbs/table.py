"""Who carries out which verb of a plan."""

from collections.abc import Callable, Mapping

from chaos.results import Action, Fault
from chaos.scene import Scene
from chaos.stage import Reached
from chaos.verbs.changes import jump, keep, lose
from chaos.verbs.disk import fail_disk
from chaos.verbs.edits import edit, turn
from chaos.verbs.freezes import freeze, prove_killed, wake
from chaos.verbs.kills import kill
from chaos.verbs.waits import ask_person, await_end, await_parked, await_step, release_held, start

CarryOut = Callable[[Scene, Action, Reached | None], Fault]
"""Carries out an action on the process that waits at its step (None where it names none): what became of it."""

CARRY_OUT: Mapping[str, CarryOut] = {
    "kill": kill,
    "freeze": freeze,
    "wake": wake,
    "killed": prove_killed,
    "release": release_held,
    "start": start,
    "end": await_end,
    "edit": edit,
    "turn": turn,
    "jump": jump,
    "lose": lose,
    "keep": keep,
    "parked": await_parked,
    "person": ask_person,
    "fail": fail_disk,
}
"""By the verbs of `actions.VERBS`, all but `wait`, which does nothing to who waits."""


def carry_out(scene: Scene, action: Action) -> Fault:
    """Wait for the action's step, where it names one, and do what it says."""
    reached = None
    if action.at:
        if not await_step(scene, action.at):
            return Fault(action.at, action.do, False, False, note="the step was not reached")
        if action.do == "wait":
            return Fault(action.at, "wait", True, True, scene.stage.waiting[action.at].pid)
        reached = scene.stage.deal_with(action.at)
    do = CARRY_OUT.get(action.do)
    if do is None:
        return Fault(action.at, action.do, False, False, note="this verb is not known")
    return do(scene, action, reached)
