"""A plan carried out on real processes, and the session driven to its end.

What must hold: every action of the plan leaves one Fault, and it `fired` only when the kernel showed its effect: a wait status, a stopped
state, a process that is gone. An action that cannot be carried out any more ends the plan; the session is driven on all the same.

The verbs are carried out in `verbs/`, over the `Scene` that they share.
"""

import os
import time
from collections.abc import Callable

from chaos.drivers import Place
from chaos.ends import look
from chaos.liveness import drive_to_end
from chaos.played import MOST_DRIVERS, QUIET_SECS, Listing, Observer, Part, Played, Woken, unplayed
from chaos.processes import end_everything, kill_child, reap_all, wait_all_ended
from chaos.results import OracleVerdict, Verdict
from chaos.scenario import Scenario
from chaos.scene import Scene
from chaos.stage import DRIVER_SECS, Stage, trace_size
from chaos.starts import start_next
from chaos.unkept import find_unkept
from chaos.verbs.changes import doubt_jumps
from chaos.verbs.table import carry_out

__all__ = ["MOST_DRIVERS", "QUIET_SECS", "Listing", "Observer", "Part", "Play", "Played", "Woken", "unplayed"]

STARTS = ("start", "person")
NEEDS_NO_PROCESS = ("start", "edit", "turn", "jump", "lose", "parked", "person", "fail")
"""Verbs that need no process when they name no step: no driver is started before them."""


class Play:
    """Plays one part in a place."""

    def __init__(self, scenario: Scenario, place: Place, part: Part, observer: Observer) -> None:
        self._scene = Scene(scenario, place, part, observer)
        self.played = self._scene.played

    def run_to_end(self) -> Played:
        """Play the plan, drive on until the session ends; trouble of the harness is kept as a sentence."""
        scene = self._scene
        self._run(self._finish)
        left = end_everything(os.getpid(), scene.observer.pid)
        if left and not self.played.trouble:
            self.played.findings.append(OracleVerdict("processes", Verdict.FAIL, f"processes {left} outlived the session"))
        _check_kept(scene)
        _check_away(scene)
        doubt_jumps(scene)
        return self.played

    def run_plan_only(self, quiet_secs: float) -> bool:
        """Play the plan and no more; True when all of it fired and every process then ended by itself within `quiet_secs`."""
        scene = self._scene
        is_quiet = False

        def wait_quiet() -> None:
            nonlocal is_quiet
            deadline = time.monotonic() + quiet_secs
            while scene.stage.running() and time.monotonic() < deadline:
                look(scene, "the drivers to end", deadline + DRIVER_SECS)  # one that lost a shim or its file worker halts by itself
            has_gone_on = scene.is_over or bool(scene.stage.running())
            is_quiet = not has_gone_on and wait_all_ended(scene.list_left(), quiet_secs)

        self._run(wait_quiet)
        end_everything(os.getpid(), scene.observer.pid)
        return is_quiet and not self.played.trouble and all(fault.fired for fault in self.played.faults)

    def _run(self, then: Callable[[], None]) -> None:
        scene = self._scene
        armed = frozenset(action.at for action in scene.part.plan if action.at)
        with Stage(scene.scenario, scene.place, armed) as scene.stage:
            scene.stage.newest = max((ended.epoch for ended in scene.part.before), default=0)
            try:
                self._play_plan()
                then()
            except TimeoutError as error:
                self.played.trouble = str(error)
            except OSError as error:
                self.played.trouble = f"{type(error).__name__}: {error}"

    def _play_plan(self) -> None:
        scene = self._scene
        plan = scene.part.plan
        if plan and not plan[0].at and plan[0].do not in NEEDS_NO_PROCESS:
            start_next(scene)  # the first action is aimed at a process that lives
        for action in plan:
            begun = trace_size(scene.place)
            fault = carry_out(scene, action)
            self.played.faults.append(fault)
            # What an action starts passes steps at once, and they come after it.
            self.played.recorded_from = begun if action.do in STARTS else trace_size(scene.place)
            if not fault.fired:
                break

    def _finish(self) -> None:
        """Release what is held, drive on until the session ends, give its helpers their time to end."""
        scene = self._scene
        for step in list(scene.stage.waiting):
            scene.stage.let_go(step)
        scene.stage.armed.clear()
        for pid in scene.frozen.values():
            if pid in scene.stage.running().values():
                kill_child(pid)  # the plan did not come to wake it
                scene.killed |= {epoch for epoch, driver in scene.stage.running().items() if driver == pid}
        drive_to_end(scene)
        if wait_all_ended(scene.list_left_behind(), QUIET_SECS):
            reap_all(scene.observer.pid)


def _check_kept(scene: Scene) -> None:
    """What once lay in quarantine lies there to the end: nothing may take from it or write over it (I10, rule R3)."""
    if not scene.kept:
        return
    final = scene.list_quarantine()
    path = find_unkept(scene.kept, final)
    if path:
        detail = "what lay in quarantine when a driver was started is gone or changed at the end"
        found = OracleVerdict("quarantine-kept", Verdict.FAIL, detail, path, str(scene.kept[path]), str(final.get(path)))
        scene.played.findings.append(found)


def _check_away(scene: Scene) -> None:
    """A directory that was moved away is nobody's but who moved it: whatever recovery does, it does elsewhere."""
    if scene.away is not None and scene.away != scene.list_away():
        detail = "the workspace that was moved away was changed where it lies now"
        scene.played.findings.append(OracleVerdict("left-alone", Verdict.FAIL, detail))
