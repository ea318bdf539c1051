"""One trial while it is played: what its verbs share, and what can be asked of it."""

import os
from pathlib import Path

from chaos.drivers import Place
from chaos.played import Listing, Observer, Part, Played
from chaos.processes import is_running, list_alive
from chaos.results import Action, Alive
from chaos.scenario import Scenario
from chaos.stage import Reached, Stage, find_process, left_behind, read_roles, read_trace

WRITERS = ("worker", "filler", "command", "shim", "fork")
"""Roles of processes that may change the workspace; a fork is one that has not said yet what it is."""


class Scene:
    """The state of a trial between its actions.

    `stage` is set while its drivers can run. `killed` are the epochs of drivers killed by the plan, `frozen` the pids of frozen processes
    by `ROLE@EPOCH`, `kept` what once lay in quarantine, `away` what lies in the workspace that was moved away (None: none, or a command
    may still write in it), `judged` how many ends were judged, `is_over` whether the session has come to its end.
    """

    stage: Stage

    def __init__(self, scenario: Scenario, place: Place, part: Part, observer: Observer) -> None:
        self.scenario = scenario
        self.place = place
        self.part = part
        self.observer = observer
        self.killed: set[int] = set()
        self.frozen: dict[str, int] = {}
        self.kept: Listing = {}
        self.away = self.list_away()
        self.judged = 0
        self.is_over = any(ended.code == 0 for ended in part.before)
        self.played = Played(ends=list(part.before))

    def list_left_behind(self) -> list[int]:
        """Processes of the trial that still live, by the tree."""
        return left_behind(self.observer.pid)

    def list_alive(self) -> tuple[Alive, ...]:
        """The same with their roles."""
        return list_alive(os.getpid(), self.observer.pid, read_roles(self.place))

    def list_left(self) -> list[int]:
        """What still runs of the trial, by the tree and by the trace: a shim whose spawner dies just now is in no tree, and a state that is
        saved without it would begin with a command that nobody killed and that is not there."""
        traced = {traced.pid for traced in read_trace(self.place)}  # each passed many steps
        return sorted(set(filter(is_running, traced)) | set(self.list_left_behind()))

    def has_writer(self) -> bool:
        """Whether anything lives that may change the workspace. Asked of the trace too: one whose parent dies just now is in no tree."""
        traced = {traced.pid for traced in read_trace(self.place) if traced.step.partition("@")[0].partition(".")[0] in WRITERS}
        return any(map(is_running, traced)) or any(one.role.partition(".")[0] in WRITERS for one in self.list_alive())

    def find(self, action: Action, reached: Reached | None) -> int:
        """The pid an action is aimed at; 0 when there is none that lives."""
        if reached is not None:
            return reached.pid
        role, _, epoch = action.who.partition("@")
        if role == "command":
            return next((one.pid for one in self.list_alive() if one.role == "command"), 0)
        pid = self.stage.running().get(int(epoch), 0) if role == "driver" else find_process(self.place, action.who)
        return pid if pid in self.list_left_behind() else 0

    def list_work(self) -> Listing:
        """The workspace as the oracle sees it."""
        return self.observer.list_tree(self.place.work)

    def list_tree(self, tree: Path) -> Listing:
        """A directory as the oracle sees it."""
        return self.observer.list_tree(tree)

    def list_away(self) -> Listing | None:
        """The workspace that was moved away; None when none was."""
        return self.observer.list_tree(self.place.away) if self.place.away.is_dir() else None

    def list_quarantine(self) -> Listing:
        """What lies in quarantine now."""
        quarantine = self.place.find_quarantine()
        return self.observer.list_tree(quarantine) if quarantine.is_dir() else {}

    def read_head(self) -> int:
        """The seq of the log's newest event, 0 without a log."""
        return self.observer.read_head(self.place.state / "log.sqlite", self.place.directory / "scratch", self.scenario.name)

    def read_last_words(self, epoch: int) -> str:
        """The last line of a driver's stderr."""
        lines = self.place.errors(epoch).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"
