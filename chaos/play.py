"""A plan carried out on real processes, and the session driven to its end.

What must hold: every action of the plan leaves one Fault, and it `fired` only when the kernel showed its effect: a wait status, a stopped
state, a process that is gone. An action that cannot be carried out any more ends the plan; the session is driven on all the same.
"""

import json
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3

from chaos.disk.fault import COUNT, parse_fault
from chaos.disk.rules import has_fired, judge_driver
from chaos.disk.rules import read_trace as read_disk_trace
from chaos.drivers import FIRST_REDRIVER, PERSON, REDRIVE, Place
from chaos.processes import (
    end_everything,
    holds_write_lock,
    is_running,
    is_stopped,
    kill_child,
    kill_other,
    list_alive,
    read_death,
    reap_all,
    stop_process,
    wait_all_ended,
)
from chaos.results import Action, Alive, Fault, OracleVerdict, Verdict
from chaos.scenario import Scenario
from chaos.stage import (
    DRIVER_SECS,
    LOOK_SECS,
    Ended,
    Reached,
    Stage,
    Traced,
    find_process,
    left_behind,
    read_roles,
    read_trace,
    release,
    trace_size,
)
from chaos.step import Lock, lock_of, parse_step
from chaos.taking import TAKING, keep_log

MOST_DRIVERS = 8
QUIET_SECS = 10.0
STOP_SECS = 10.0
STALE = 75
AGAIN = 1
PARKED = 78
MOST_ANSWERS = 4
STARTS = ("start", "person")
WAITS_FOR_ROOM = "cannot be recorded"
"""What a driver says whose shim tries again to record an exit."""
ENDS_ALL = ("boot", "machine")
"""Losses that no process outlives."""
_ROOT = re.compile(r"\b[0-9a-f]{64}\b")
WRITERS = ("worker", "command", "shim", "fork")
"""Roles of processes that may change the workspace; a fork is one that has not said yet what it is."""

Listing = dict[str, Any]


class Observer(Protocol):
    """The oracle, as far as it looks at a trial while it is played; `pid` is no process of the trial."""

    @property
    def pid(self) -> int:
        """Its process, 0 when there is none."""

    def list_tree(self, tree: Path) -> Listing:
        """A directory as the oracle sees it."""

    def read_head(self, log: Path, scratch: Path, stream: str) -> int:
        """The seq of the log's newest event; nobody may write the log meanwhile."""


@dataclass(slots=True)
class Woken:
    """The workspace and the log's head just before an old process was woken, and after its end (None: it was not waited for)."""

    who: str
    listing_before: Listing
    head_before: int
    listing_after: Listing | None = None
    head_after: int = 0


@dataclass(slots=True)
class Played:
    """What came of it. `edits` are those of the plan as the oracle is told of them, `looks` what the workspace held before each successor
    started (where nothing lived that could write in it), `parked` the words with which drivers asked for a person, `held` the epochs of
    processes frozen with a lock and the log's head then, `recorded_from` is the size of the trace when the plan was through."""

    faults: list[Fault] = field(default_factory=list)
    findings: list[OracleVerdict] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    woken: list[Woken] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    edits: list[dict[str, Any]] = field(default_factory=list)
    looks: list[Listing] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    trouble: str = ""
    recorded_from: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """What is played: a plan after `before` (the ends of drivers that a saved state already holds)."""

    plan: tuple[Action, ...]
    entry: str = "fork"
    before: tuple[Ended, ...] = ()


class Play:
    """Plays one part in a place."""

    def __init__(self, scenario: Scenario, place: Place, part: Part, observer: Observer) -> None:
        self._scenario = scenario
        self._place = place
        self._part = part
        self._observer = observer
        self._stage: Stage
        self._killed: set[int] = set()
        self._frozen: dict[str, int] = {}
        self._kept: Listing = {}
        self._away = self._list_away()
        self._judged = 0
        self._is_over = any(ended.code == 0 for ended in part.before)
        self.played = Played(ends=list(part.before))

    def run_to_end(self) -> Played:
        """Play the plan, drive on until the session ends; trouble of the harness is kept as a sentence."""
        self._run(self._finish)
        left = end_everything(os.getpid(), self._observer.pid)
        if left and not self.played.trouble:
            self.played.findings.append(OracleVerdict("processes", Verdict.FAIL, f"processes {left} outlived the session"))
        self._check_kept()
        self._check_away()
        return self.played

    def run_plan_only(self, quiet_secs: float) -> bool:
        """Play the plan and no more; True when all of it fired and every process then ended by itself within `quiet_secs`."""
        is_quiet = False

        def wait_quiet() -> None:
            nonlocal is_quiet
            deadline = time.monotonic() + quiet_secs
            while self._stage.running() and time.monotonic() < deadline:
                self._look("the drivers to end", deadline + DRIVER_SECS)  # one that lost a shim or its file worker halts by itself
            has_gone_on = self._is_over or bool(self._stage.running())
            is_quiet = not has_gone_on and wait_all_ended(self._list_left(), quiet_secs)

        self._run(wait_quiet)
        end_everything(os.getpid(), self._observer.pid)
        return is_quiet and not self.played.trouble and all(fault.fired for fault in self.played.faults)

    def _run(self, then: Callable[[], None]) -> None:
        armed = frozenset(action.at for action in self._part.plan if action.at)
        with Stage(self._scenario, self._place, armed) as self._stage:
            self._stage.newest = max((ended.epoch for ended in self._part.before), default=0)
            try:
                self._play_plan()
                then()
            except TimeoutError as error:
                self.played.trouble = str(error)
            except OSError as error:
                self.played.trouble = f"{type(error).__name__}: {error}"

    def _play_plan(self) -> None:
        if self._part.plan and not self._part.plan[0].at and self._part.plan[0].do not in (*STARTS, "edit", "lose", "parked", "fail"):
            self._start_next()  # the first action is aimed at a process that lives
        for action in self._part.plan:
            begun = trace_size(self._place)
            fault = self._carry_out(action)
            self.played.faults.append(fault)
            # What an action starts passes steps at once, and they come after it.
            self.played.recorded_from = begun if action.do in STARTS else trace_size(self._place)
            if not fault.fired:
                break

    def _carry_out(self, action: Action) -> Fault:
        reached = None
        if action.at:
            if not self._await_step(action.at):
                return Fault(action.at, action.do, False, False, note="the step was not reached")
            if action.do == "wait":
                return Fault(action.at, "wait", True, True, self._stage.waiting[action.at].pid)
            reached = self._stage.deal_with(action.at)
        match action.do:
            case "kill":
                return self._kill(action, reached)
            case "freeze":
                return self._freeze(action, reached)
            case "wake":
                return self._wake(action)
            case "killed":
                return self._prove_killed(action)
            case "release":
                return self._release(action)
            case "start":
                self._start_next()
                return Fault("", "start", True, True)
            case "end":
                return self._await_end(action)
            case "edit":
                return self._edit(action, reached)
            case "lose":
                return self._lose(action, reached)
            case "keep":
                return self._keep_log(action, reached)
            case "parked":
                return self._await_parked(action)
            case "person":
                return self._ask_person(action)
            case "fail":
                return self._fail_disk(action)
            case _:
                return Fault(action.at, action.do, False, False, note="this verb is not known")

    # Waiting

    def _await_step(self, step: str) -> bool:
        """Wait until a process waits at a step; False when none can get there any more."""
        parsed = parse_step(step)
        deadline = time.monotonic() + DRIVER_SECS
        while step not in self._stage.waiting:
            running = [epoch for epoch in self._stage.running() if f"driver@{epoch}" not in self._frozen]
            if not running and not self._can_go_on(parsed.role, parsed.epoch):
                return False
            if parsed.role == "driver" and parsed.epoch in {ended.epoch for ended in self._stage.ends}:
                return False
            self._look(f"{step} to be reached", deadline)
        return True

    def _can_go_on(self, role: str, epoch: int) -> bool:
        """With no driver at work: whether a step can still be reached, by a process left of its epoch, or by a driver started now."""
        is_of_next = self._scenario.redriven and role in ("driver", "redriver")
        if epoch <= self._stage.newest and not is_of_next:
            return role != "driver" and any(self._is_of_epoch(pid, epoch) for pid in left_behind(self._observer.pid))
        if self._is_over or self._count_started() >= MOST_DRIVERS:
            return False
        self._start_next()
        return True

    def _count_started(self) -> int:
        """How many drivers, or redrivers after the first, this part has started."""
        return len(self._stage.ends) + len(self._stage.running())

    def _is_of_epoch(self, pid: int, epoch: int) -> bool:
        return any(traced.pid == pid and f"@{epoch}:" in traced.step for traced in read_trace(self._place))

    def _look(self, what: str, deadline: float) -> None:
        self._stage.look(what, deadline, until=time.monotonic() + LOOK_SECS)
        self._judge_ends()

    def _await_end(self, action: Action) -> Fault:
        role, _, epoch = action.who.partition("@")
        deadline = time.monotonic() + DRIVER_SECS
        if role == "driver":
            while int(epoch) in self._stage.running():
                self._look(f"{action.who} to end", deadline)
            fired = any(ended.epoch == int(epoch) for ended in self._stage.ends)
            self._look_after(action.who)
            return Fault("", "end", True, fired, note="" if fired else "it was never started", who=action.who)
        pid = self._frozen.get(action.who) or (self._find(action, None) if role == "command" else find_process(self._place, action.who))
        while pid in left_behind(self._observer.pid):
            self._look(f"{action.who} to end", deadline)
        self._look_after(action.who)
        return Fault("", "end", True, bool(pid), pid, note="" if pid else "there was no such process", who=action.who)

    # Doing

    def _start_next(self) -> None:
        is_redriven = self._scenario.redriven and (self._place.state / "log.sqlite").exists()
        self._begin(self._find_answer() or (PERSON + shlex.join(REDRIVE) if is_redriven else self._part.entry))

    def _begin(self, entry: str) -> None:
        self._kept.update(self._list_quarantine())
        if self._stage.newest and not self._has_writer():
            self.played.looks.append(self._observer.list_tree(self._place.work))
        self._stage.start(self._next_epoch(), entry)

    def _find_answer(self) -> str:
        """The command that a person runs because of how the newest driver ended, as an entry; "" for none."""
        newest = max(self.played.ends, key=lambda ended: ended.epoch, default=None)
        if newest is None or newest.code != PARKED:
            return ""
        words = self._last_words(newest.epoch)
        command = next((command for text, command in self._scenario.answers if text in words), "")
        if not command or sum(ended.code == PARKED for ended in self.played.ends) > MOST_ANSWERS:
            return ""
        roots = _ROOT.findall(words)
        return PERSON + self._fill(command).replace("{root}", roots[-1] if roots else "")

    def _list_quarantine(self) -> Listing:
        quarantine = self._place.find_quarantine()
        return self._observer.list_tree(quarantine) if quarantine.is_dir() else {}

    def _check_kept(self) -> None:
        """What once lay in quarantine lies there to the end: nothing may take from it or write over it (I10, rule R3)."""
        if not self._kept:
            return
        final = self._list_quarantine()
        for path, entry in sorted(self._kept.items()):
            if entry.get("kind") != "d" and final.get(path) != entry:
                detail = "what lay in quarantine when a driver was started is gone or changed at the end"
                self.played.findings.append(OracleVerdict("quarantine-kept", Verdict.FAIL, detail, path, str(entry), str(final.get(path))))
                return

    def _has_writer(self) -> bool:
        """Whether anything lives that may change the workspace. Asked of the trace too: one whose parent dies just now is in no tree."""
        traced = {traced.pid for traced in read_trace(self._place) if traced.step.partition("@")[0].partition(".")[0] in WRITERS}
        return any(map(is_running, traced)) or any(one.role.partition(".")[0] in WRITERS for one in self._list_alive())

    def _list_left(self) -> list[int]:
        """What still runs of the trial, by the tree and by the trace: a shim whose spawner dies just now is in no tree, and a state that is
        saved without it would begin with a command that nobody killed and that is not there."""
        traced = {traced.pid for traced in read_trace(self._place) if is_running(traced.pid)}
        return sorted(traced | set(left_behind(self._observer.pid)))

    def _next_epoch(self) -> int:
        """One more than the last, but 1 again while no log was made: an epoch above 1 says that there was one (rule L9)."""
        if not (self._place.state / "log.sqlite").exists():
            return 1
        if self._scenario.redriven:
            return max(self._stage.newest + 1, FIRST_REDRIVER)
        return self._stage.newest + 1

    def _find(self, action: Action, reached: Reached | None) -> int:
        """The pid an action is aimed at; 0 when there is none that lives."""
        if reached is not None:
            return reached.pid
        role, _, epoch = action.who.partition("@")
        if role == "command":
            return next((one.pid for one in self._list_alive() if one.role == "command"), 0)
        pid = self._stage.running().get(int(epoch), 0) if role == "driver" else find_process(self._place, action.who)
        return pid if pid in left_behind(self._observer.pid) else 0

    def _list_alive(self) -> tuple[Alive, ...]:
        return list_alive(os.getpid(), self._observer.pid, read_roles(self._place))

    def _kill(self, action: Action, reached: Reached | None) -> Fault:
        """Record what lives, SIGKILL the process, read back how it died."""
        if self._scenario.ready and not self._stage.is_gate_open() and any(one.role == "command" for one in self._list_alive()):
            self._stage.wait_ready(lambda: not any(one.role == "command" for one in self._list_alive()))
        pid = self._find(action, reached)
        if not pid:
            return Fault(action.at, "kill", False, False, note="there was no such process", who=action.who)
        alive = self._list_alive()
        half = _is_half_written(action.at) or (self._stage.is_ready() and not self._stage.is_gate_open())
        epoch = next((epoch for epoch, driver in self._stage.running().items() if driver == pid), 0)
        if epoch:
            self._killed.add(epoch)
            kill_child(pid)
            number = -self._stage.wait_end(epoch, "the killed driver's wait status").code
            self._judge_ends()
        else:
            number = kill_other(pid)
        if reached is not None:
            reached.connection.close()
        for step in [step for step, other in self._stage.waiting.items() if other.pid == pid]:
            self._stage.deal_with(step).connection.close()  # it was held there and is dead now
        note = "" if number == 9 else f"the process ended with signal {number}, not 9"
        return Fault(action.at, "kill", True, number == 9, pid, max(number, 0), alive, half, note, action.who)

    def _freeze(self, action: Action, reached: Reached | None) -> Fault:
        pid = self._find(action, reached)
        if not pid:
            return Fault(action.at, "freeze", False, False, note="there was no such process", who=action.who)
        alive = self._list_alive()
        is_stopped = stop_process(pid, STOP_SECS)
        note = self._check_lock(action, pid, reached) if is_stopped else "it ended instead of stopping"
        self._frozen[action.who or f"{parse_step(action.at).role}@{parse_step(action.at).epoch}"] = pid
        if reached is not None:
            # It is held by the signal alone from here on: woken, it goes on at once.
            release(reached)
        return Fault(action.at, "freeze", True, not note, pid, 0, alive, _is_half_written(action.at), note, action.who)

    def _check_lock(self, action: Action, pid: int, reached: Reached | None) -> str:
        """Whether a frozen process holds the lock that its step says, and no other, by the kernel's list; "" when it does."""
        if reached is None:
            return ""
        step = parse_step(action.at)
        lock = self._lock_files().get(lock_of(step))
        if lock is None:
            return "it holds a lock here" if holds_write_lock(pid) else ""
        if not holds_write_lock(pid, lock):
            return f"it does not hold the lock of the {lock_of(step)} here"
        self.played.held.append((step.epoch, self._read_head()))
        self._stage.is_lock_held = True
        return ""

    def _lock_files(self) -> dict[Lock, Path]:
        return {"log": self._place.state / "log.sqlite-shm", "ledger": self._place.state / "space" / "ledger.lock"}

    def _prove_killed(self, action: Action) -> Fault:
        """A process that was frozen with a lock: dead of signal 9 by its wait status, never woken, killed by a successor by its own
        trace; and the newest driver has come to the session's end."""
        pid = self._frozen.get(action.who, 0)
        if not pid:
            return Fault("", "killed", False, False, note="it was not frozen", who=action.who)
        role, _, epoch = action.who.partition("@")
        ended = next((ended for ended in self._stage.ends if role == "driver" and ended.epoch == int(epoch)), None)
        number = 0 if int(epoch) in self._killed else -ended.code if ended is not None else read_death(pid)
        note = "" if number == signal.SIGKILL else "it lives" if is_running(pid) else f"it died of signal {number}, not 9"
        if not note and not any(map(_is_holder_s_end, read_trace(self._place))):
            note = "no successor killed it"
        successor = next((ended for ended in self._stage.ends if ended.epoch == self._stage.newest), None)
        if not note and (successor is None or successor.code != 0):
            note = f"its successor ended with {successor.code if successor else 'nothing'} instead of 0"
        if note:
            detail = f"{action.who} was frozen while it held a lock: {note}: {self._last_words(self._stage.newest)}"
            self.played.findings.append(OracleVerdict("lock-holder", Verdict.FAIL, detail))
        else:
            del self._frozen[action.who]
        self._stage.is_lock_held = bool(note)
        return Fault("", "killed", True, not note, pid, number, note=note, who=action.who)

    def _wake(self, action: Action) -> Fault:
        """Wake a frozen process; one that is dead by now (a successor killed it) is proved so instead. A driver must still be there."""
        pid = self._frozen.pop(action.who, 0)
        if not pid:
            return Fault("", "wake", False, False, note="it was not frozen", who=action.who)
        self.played.woken.append(Woken(action.who, self._observer.list_tree(self._place.work), self._read_head()))
        if pid not in left_behind(self._observer.pid):
            is_driver = action.who.startswith("driver@")
            return Fault("", "wake", True, not is_driver, pid, note="it was dead already", who=action.who)
        stopped = is_stopped(pid)
        os.kill(pid, signal.SIGCONT)
        return Fault("", "wake", True, stopped, pid, note="" if stopped else "it was not stopped any more", who=action.who)

    def _release(self, action: Action) -> Fault:
        steps = [step for step in self._stage.waiting if step.startswith(f"{action.who}:")]
        let_go = [self._stage.let_go(step) for step in steps]
        note = "it was not held at any step" if not steps else "" if all(let_go) else "it was dead already"
        return Fault("", "release", True, not note, note=note, who=action.who)

    def _look_after(self, who: str) -> None:
        """After the end of one that was woken: what it may have changed."""
        for woken in self.played.woken:
            if woken.who == who and woken.listing_after is None:
                woken.listing_after, woken.head_after = self._observer.list_tree(self._place.work), self._read_head()

    def _read_head(self) -> int:
        return self._observer.read_head(self._place.state / "log.sqlite", self._place.directory / "scratch", self._scenario.name)

    def _edit(self, action: Action, reached: Reached | None) -> Fault:
        path = self._place.work / action.path
        if action.content is None:
            path.unlink()
        else:
            path.write_text(action.content, "utf-8")
        content = None if action.content is None else blake3(action.content.encode()).hexdigest()
        self.played.edits.append({"path": action.path, "content": content, "head": self._read_head()})
        if reached is not None:
            release(reached)
            self._stage.open_wanted_gate()
        return Fault(action.at, "edit", True, True)

    def _lose(self, action: Action, reached: Reached | None) -> Fault:
        """Take something away; it fired when that is seen. What stood in the workspace until now is nothing that recovery could find."""
        if self._is_over:
            return Fault(action.at, "lose", bool(reached), False, note="the session had ended before")
        if action.path in ENDS_ALL and self._stage.running():
            return Fault(action.at, "lose", bool(reached), False, note="a driver lives, which a restart would have ended")
        if action.path in ENDS_ALL:
            end_everything(os.getpid(), self._observer.pid)
        taking = TAKING[action.path]
        before = self._observer.list_tree(self._place.work) if action.path == "files" else {}
        taking.carry_out(self._place)
        is_done = taking.is_done(self._place)
        if action.path == "log":
            self._place.put_back.write_text(json.dumps([self._read_head(), len(self.played.ends)]), "ascii")
        removed = [{"path": path, "content": None, "head": self._read_head()} for path in sorted(before) if path]
        self.played.edits += removed
        self.played.looks.clear()
        if action.path == "machine":
            self._kept.clear()
        # A command that still runs goes on in the directory that was moved, until the next driver ends it: that is nobody's touch.
        self._away = None if self._has_writer() else self._list_away()
        if reached is not None:
            release(reached)
            self._stage.open_wanted_gate()
        return Fault(action.at, "lose", True, is_done, note="" if is_done else f"{action.path}: it is not seen to be so")

    def _keep_log(self, action: Action, reached: Reached | None) -> Fault:
        keep_log(self._place)
        if reached is not None:
            release(reached)
            self._stage.open_wanted_gate()
        return Fault(action.at, "keep", True, (self._place.kept_log / "log.sqlite").is_file())

    def _list_away(self) -> Listing | None:
        return self._observer.list_tree(self._place.away) if self._place.away.is_dir() else None

    def _check_away(self) -> None:
        """A directory that was moved away is nobody's but who moved it: whatever recovery does, it does elsewhere."""
        if self._away is not None and self._away != self._list_away():
            detail = "the workspace that was moved away was changed where it lies now"
            self.played.findings.append(OracleVerdict("left-alone", Verdict.FAIL, detail))

    def _await_parked(self, action: Action) -> Fault:
        """The end of a driver that needs a person: 78 and the words for it."""
        epoch = int(action.who.partition("@")[2])
        deadline = time.monotonic() + DRIVER_SECS
        if epoch == self._stage.newest + 1 and not self._is_over:
            self._start_next()
        while epoch in self._stage.running():
            self._look(f"{action.who} to end", deadline)
        ended = next((ended for ended in self.played.ends if ended.epoch == epoch), None)
        if ended is None:
            return Fault("", "parked", False, False, note="it was never started", who=action.who)
        words = self._last_words(epoch)
        note = "" if ended.code == PARKED and action.path in words else f"it ended with {ended.code}: {words}"
        if note:
            detail = f"{action.who} should have ended with {PARKED} and {action.path!r}: {note}"
            self.played.findings.append(OracleVerdict("parked", Verdict.FAIL, detail))
        return Fault("", "parked", True, not note, note=note, who=action.who)

    def _ask_person(self, action: Action) -> Fault:
        """Start a person's command, as `start` does a driver; how it ends is judged as a driver's end is."""
        self._begin(PERSON + self._fill(action.path))
        return Fault("", "person", True, True)

    def _fail_disk(self, action: Action) -> Fault:
        """Start the next driver on a disk with this fault, wait for its end, make room again. It fired when the device met it."""
        epoch = int(action.who.partition("@")[2])
        if self._stage.running() or self._is_over or epoch != self._next_epoch():
            return Fault("", "fail", False, False, note=f"the next driver is not {action.who}", who=action.who)
        fault = parse_fault(action.path, action.content or "")
        log = self._place.state / "log.sqlite"
        before = log.stat().st_ino if log.exists() else 0
        self._place.disk_fault.write_text(f"{action.path} {action.content}", "ascii")
        self._start_next()
        deadline = time.monotonic() + DRIVER_SECS
        while epoch in self._stage.running():
            if WAITS_FOR_ROOM in self._read_errors(epoch):
                self._place.disk_fault.unlink(missing_ok=True)  # a command has ended, and its shim waits for room for its exit
            self._look(f"{action.who} to end", deadline)
        self._place.disk_fault.unlink(missing_ok=True)
        trace = read_disk_trace(self._place)
        fired = bool(trace) if fault.operation == COUNT else has_fired(trace, fault)
        ended = next(ended for ended in self.played.ends if ended.epoch == epoch)
        said = self._read_errors(epoch)
        after = log.stat().st_ino if log.exists() else 0
        self.played.findings.append(judge_driver(fault, ended.code, said, trace, before, after))
        return Fault("", "fail", True, fired, note="" if fired else "it came to its end without that operation", who=action.who)

    def _read_errors(self, epoch: int) -> str:
        """What a driver has said on stderr so far."""
        file = self._place.errors(epoch)
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def _fill(self, command: str) -> str:
        return command.replace("{workspace}", shlex.quote(str(self._place.work)))

    # To the end

    def _finish(self) -> None:
        """Release what is held, drive on until the session ends, give its helpers their time to end."""
        for step in list(self._stage.waiting):
            self._stage.let_go(step)
        self._stage.armed.clear()
        for pid in self._frozen.values():
            if pid in self._stage.running().values():
                kill_child(pid)  # the plan did not come to wake it
                self._killed |= {epoch for epoch, driver in self._stage.running().items() if driver == pid}
        deadline = time.monotonic() + DRIVER_SECS
        while not self._is_over:
            if not self._stage.running():
                if self._count_started() >= MOST_DRIVERS:
                    break
                self._start_next()
                deadline = time.monotonic() + DRIVER_SECS
            self._look(f"driver {self._stage.newest} to end", deadline)
        while self._stage.running():
            self._look("every driver to end", deadline)
        if wait_all_ended(left_behind(self._observer.pid), QUIET_SECS):
            reap_all(self._observer.pid)

    def _judge_ends(self) -> None:
        """What the ends of drivers since the last look say."""
        for ended in self._stage.ends[self._judged :]:
            self.played.ends.append(ended)
            self._judge_end(ended)
        self._judged = len(self._stage.ends)

    def _judge_end(self, ended: Ended) -> None:
        if ended.epoch in self._killed and ended.code == -signal.SIGKILL:
            return
        if ended.superseded and ended.code == -signal.SIGKILL and ended.epoch in {epoch for epoch, _ in self.played.held}:
            return  # its successor killed it; `killed` in the plan proves whether that was right
        if ended.superseded:
            # One that never came to raise its floor may find the session finished: it added nothing, and says so.
            if ended.code != STALE and not (ended.code == 0 and not self._has_raised(ended.epoch)):
                detail = f"the superseded driver {ended.epoch} ended with {ended.code} instead of {STALE}: {self._last_words(ended.epoch)}"
                self.played.findings.append(OracleVerdict("fencing-exit", Verdict.FAIL, detail))
        elif ended.code == 0:
            self._is_over = not ended.command or ended.command.startswith(("drive", "redrive"))
        elif ended.code == PARKED and (self._is_meant_to_park(ended.epoch) or self._find_answer()):
            words = self._last_words(ended.epoch)
            self.played.parked += [text for text in self._texts() if text in words]
        elif ended.code != AGAIN:
            self._is_over = True
            detail = f"driver {ended.epoch} ended with {ended.code} and the session is not finished: {self._last_words(ended.epoch)}"
            self.played.findings.append(OracleVerdict("liveness", Verdict.FAIL, detail))

    def _texts(self) -> list[str]:
        """What a driver that needs a person may say in this trial."""
        planned = [action.path for action in self._part.plan if action.do == "parked"]
        return list(dict.fromkeys([*planned, *(text for text, _ in self._scenario.answers)]))

    def _is_meant_to_park(self, epoch: int) -> bool:
        return any(action.do == "parked" and action.who == f"driver@{epoch}" for action in self._part.plan)

    def _has_raised(self, epoch: int) -> bool:
        return any(traced.step.startswith(f"driver@{epoch}:floor.commit.after:") for traced in read_trace(self._place))

    def _last_words(self, epoch: int) -> str:
        lines = self._place.errors(epoch).read_text("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else "(nothing on stderr)"


def _is_holder_s_end(traced: Traced) -> bool:
    """Whether a driver has killed the holder of a lock here."""
    return traced.step.startswith("driver@") and ":unlock.kill.after:" in traced.step


def _is_half_written(step: str) -> bool:
    """Whether the file worker stands between the two halves of a file's content."""
    return step.startswith("worker@") and ".write.half:" in step


def unplayed(plan: Sequence[Action], faults: Sequence[Fault]) -> list[Fault]:
    """A Fault for each action that the plan did not come to."""
    return [Fault(action.at, action.do, False, False, note="the plan ended before", who=action.who) for action in plan[len(faults) :]]
