"""Histories as a driver writes them, event by event, for tests of what is folded from them. No file is opened."""

from typing import Any

from eventlog import events
from eventlog.image import Change, Entry, put_change, root_hash
from eventlog.reader import StoredEvent
from eventlog.values import Epoch, Seq
from recovery.state import SessionState, fold_stream

ROOT = Entry("d", 0o755)
EMPTY = root_hash({b"": ROOT}).hex()


class History:
    """The events of one session; `floor` is its newest epoch. Methods append what a driver would, legal or not."""

    def __init__(self, calls: int = 1, boot: str = "boot-1") -> None:
        self.stored: list[StoredEvent] = []
        self.floor = 0
        self.call = 0
        self.attempt_number = 0
        self.decision = 0
        script: list[dict[str, Any]] = [{"tool": "bash", "run": "true"} for _ in range(calls)]
        identity = events.RootIdentity("root", 1, None, "fs")
        opened = events.SessionOpened(
            0, "n", "/w", "transactional", "stop", script, EMPTY, identity, "ledger", 1, [], [], [], None, None
        )  # fmt: skip
        self.add(opened, (put_change(b"", ROOT),))
        self.driver(boot)

    def add(self, event: events.Event, changes: tuple[Change, ...] = ()) -> int:
        seq = len(self.stored) + 1
        self.stored.append(StoredEvent(Seq(seq), bytes(16), Epoch(self.floor), seq.to_bytes(32, "big"), event, changes))
        return seq

    def driver(self, boot: str = "boot-1") -> None:
        self.floor += 1
        self.add(events.DriverStarted(0, events.DriverIdentity("nonce", 1, 1, boot, 1), "ledger", 1, "cgroup"))

    def attempt(
        self, call: int | None = None, number: int = 1, script_index: int | None = 0, tool: str = "bash", policy: Any = "never"
    ) -> str:
        self.call = self.call + 1 if call is None else call
        self.attempt_number = number
        key = f"log/n/{self.call}/{number}/1"
        self.add(events.AttemptStarted(0, self.call, number, script_index, tool, {"tool": tool}, policy, key, "digest", redacted=False))
        return key

    def settle(self, ended: Any = "finished", changes: tuple[Change, ...] = (), root: str = EMPTY) -> None:
        self.add(events.CallSettled(0, self.call, self.attempt_number, ended, "live", "", None, None, root, []), changes)

    def decide(self, label: str, obligation: bool = False, call: int | None = 0) -> int:
        number, attempt = (None, None) if call is None else (call or self.call, self.attempt_number)
        seq, root = (1, EMPTY) if obligation else (None, None)
        self.decision = self.add(events.RecoveryDecided(0, label, number, attempt, obligation, seq, root, "transactional", {}))
        return self.decision

    def finish_restore(self) -> None:
        self.add(events.Quarantined(0, self.decision, "q", []))
        self.add(events.RestoreFinished(0, self.decision, EMPTY, 0, 0, 0))
        self.add(events.Synced(0, EMPTY, "boot-1"))

    def restore(self, label: str, call: int | None = 0) -> None:
        self.decide(label, obligation=True, call=call)
        self.finish_restore()

    def undo(self, call: int) -> None:
        self.add(events.CallUndone(0, call, "a person had an image restored", self.decision))

    def observe(self, changes: tuple[Change, ...] = ()) -> None:
        self.add(events.WorkspaceObserved(0, EMPTY, []), changes)

    def end(self) -> None:
        self.add(events.SessionFinished(0, EMPTY))

    def state(self) -> SessionState:
        return fold_stream(self.stored, "log")
