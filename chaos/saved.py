"""Saved states: the directory of a trial after the first actions of its plan, when nothing of it is alive, copied to be begun from again.

What must hold: a trial from a saved state is the same trial as from zero (a test compares their history digests). A state is made by
playing the very actions it stands for, in the directory in which it will be used: paths stand in the log, the ledger and the registry.
It is made only where every process then ended by itself: with a command alive there is nothing to copy.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.drivers import Place
from chaos.play import Observer, Part, Play
from chaos.results import Action, Fault
from chaos.scenario import Scenario
from chaos.seed import plant_seed
from chaos.stage import Ended
from chaos.trees import copy_tree, empty_tree
from chaos.volume import mount_work, unmount_work
from recovery.workspace.side import read_root_identity

QUIET_SECS = 1.5
SAVABLE = ("kill", "edit", "turn", "jump", "lose", "parked")
"""What a saved state may end with."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A copy, what had been done until then, and how its drivers had ended. `copy` is None for the state before the first action."""

    copy: Path | None
    faults: tuple[Fault, ...] = ()
    ends: tuple[Ended, ...] = ()
    edits: tuple[dict[str, Any], ...] = ()
    parked: tuple[str, ...] = ()


class SavedStates:
    """The states one runner has made, by scenario, actions and directory."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._states: dict[tuple[Scenario, tuple[Action, ...], Path], SavedState | None] = {}

    def set_stage(self, scenario: Scenario, actions: tuple[Action, ...], directory: Path) -> SavedState:
        """Fill the empty `directory` with the state after `actions`, or before the first of them where that cannot be saved."""
        state = self._find(scenario, actions, directory) if actions else None
        if state is None or state.copy is None:
            make_stage(scenario, directory)
            return SavedState(None)
        place = Place(directory)
        if Place(state.copy).mounted.exists():
            place.work.mkdir()
            mount_work(place)
        copy_tree(state.copy, directory)
        return state

    def find_longest(self, scenario: Scenario, actions: tuple[Action, ...], directory: Path) -> int:
        """How many of the first `actions` can be saved."""
        for length in range(len(actions), 0, -1):
            if actions[length - 1].do in SAVABLE and self._find(scenario, actions[:length], directory) is not None:
                return length
        return 0

    def find_copy(self, scenario: Scenario, actions: tuple[Action, ...], directory: Path) -> Path | None:
        """The copy of the state after `actions`, where that was saved."""
        state = self._find(scenario, actions, directory) if actions else None
        return None if state is None else state.copy

    def _find(self, scenario: Scenario, actions: tuple[Action, ...], directory: Path) -> SavedState | None:
        key = (scenario, actions, directory)
        if key not in self._states:
            self._states[key] = self._make(scenario, actions, directory)
        return self._states[key]

    def _make(self, scenario: Scenario, actions: tuple[Action, ...], directory: Path) -> SavedState | None:
        place = make_stage(scenario, directory)
        play = Play(scenario, place, Part(actions), self._observer)
        is_quiet = play.run_plan_only(QUIET_SECS)
        state = None
        if is_quiet and (any(action.do == "lose" for action in actions) or _has_own_identity(place)):
            copy = directory.parent / f"{directory.name}-saved" / f"{os.getpid()}-{len(self._states)}"
            copy.mkdir(parents=True)
            place.trace.unlink(missing_ok=True)
            for name in filter(None, (scenario.gate, scenario.ready)):
                (place.outside / name).unlink(missing_ok=True)  # they are for a command still to come
            place.socket.unlink()
            copy_tree(directory, copy)
            done = play.played
            state = SavedState(copy, tuple(done.faults), tuple(done.ends), tuple(done.edits), tuple(done.parked))
        if place.mounted.exists():
            unmount_work(place)
        empty_tree(directory)
        return state


def make_stage(scenario: Scenario, directory: Path) -> Place:
    """The directories of a trial, with the scenario's seed, in the empty `directory`."""
    place = Place(directory)
    for path in (place.work, place.outside, directory / "scratch"):
        path.mkdir()
    if scenario.mount:
        mount_work(place)
    plant_seed(scenario.seed, place.work)
    return place


def _has_own_identity(place: Place) -> bool:
    """Whether the root bears an identity that a copy bears too (rule R6): without one it is known by its inode, and a copy is another."""
    return read_root_identity(str(place.work)).id is not None
