"""A space of local processes by itself, without a session: what `recovery space` and the conformance suite use.

Handles share nothing but the space's directory. Each forks a spawner of its own when it first starts a command; a handle that is closed,
or whose process dies, leaves its commands running. Where a session's driver has the space, its ledger fences both alike.
"""

import contextlib
import os
import select
from collections.abc import Collection

from blake3 import blake3

from eventlog.errors import EpochTakenError, LostProcessError, MisuseError, StaleEpochError
from eventlog.ports import Clock, Host, Ids
from eventlog.process_identity import is_alive, is_dead, open_process
from eventlog.show import show_text
from recovery.takeover import greet_claimed, kill_condemned
from recovery.space.epochs import check_epoch
from recovery.space.ledger import LEDGER_FORMAT, Ledger, create_ledger
from recovery.space.listing import AttemptWord, word_of
from recovery.space.local import LocalSpace, SpacePaths
from recovery.space.marks import MarkSetting, end_command
from recovery.space.output import read_kept
from recovery.space.port import CAPABILITIES, Advanced, Capability, Ended, How, Listed, Sink, SpaceFacts
from recovery.space.records import Advance, Attempt, Fate, Header, LedgerState, Prepare, Start
from recovery.space.request import CommandRequest, check_same_request, digest_request
from recovery.space.spawner import fork_spawner

POLL_SECS = 0.1  # how often a wait asks the ledger for a newer floor
START_SECS = 30.0


def find_ledger(directory: str) -> SpacePaths:
    """The space in a directory: its own, or the one of a session whose state directory this is. Raises MisuseError."""
    for path in (directory, os.path.join(directory, "space")):
        if os.path.lexists(os.path.join(path, "ledger")):
            return SpacePaths(os.path.realpath(path))
    raise MisuseError(f"{show_text(directory)}: no space is there; name the state directory of a session, or make a space with `recovery space start`")


def make_space(directory: str, ids: Ids) -> SpacePaths:
    """The space in a directory, made where the directory is missing or empty. Raises MisuseError where something else is in it: a ledger
    that is lost is not a new one (S10)."""
    with contextlib.suppress(MisuseError):
        return find_ledger(directory)
    with contextlib.suppress(FileNotFoundError):
        found = sorted(os.listdir(directory))
        if found:
            raise MisuseError(
                f"{show_text(directory)} has no ledger, but is not empty ({show_text(found[0])} is in it); "
                "put its ledger back, or name an empty directory for a new space"
            )
    paths = SpacePaths(os.path.realpath(directory))
    paths.make()
    with contextlib.suppress(FileExistsError):
        create_ledger(paths.ledger, Header(LEDGER_FORMAT, ids.new_id().hex(), 1))
    return paths


class StandaloneSpace:
    """One handle on a space of local processes (see `recovery.space.port.Space`)."""

    def __init__(self, paths: SpacePaths, setting: MarkSetting, clock: Clock, host: Host) -> None:
        self._paths = paths
        self._setting = setting
        self._clock = clock
        self._host = host
        self._ledger = Ledger(paths.ledger, clock)
        self._local: LocalSpace | None = None
        self._epoch = 0

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(CAPABILITIES)

    def facts(self) -> SpaceFacts:
        state = self._refresh()
        header = state.header
        if header is None:
            raise MisuseError(f"{self._ledger.name}: the ledger has no header; use the version that wrote it")
        return SpaceFacts(header.ledger_id, header.generation, state.floor, self._setting.kind)

    def advance(self, epoch: int, claim: Collection[str] = ()) -> Advanced:
        with self._ledger.transaction() as transaction:
            state = transaction.state
            check_epoch(epoch, state.floor)
            transaction.check_floor(epoch)
            if epoch == state.floor:
                raise EpochTakenError(f"{self._ledger.name}: epoch {epoch} is held by another; take {epoch + 1}")
            for key in claim:
                _find(state, key)
            fates = {
                key: self._choose_fate(attempt, key in claim)
                for key, attempt in state.attempts.items()
                if attempt.is_open and not attempt.is_proved_dead
            }
            # A session's log is not seen from here: what the ledger remembers of it stays as it is.
            transaction.append(Advance(epoch, "", state.log_seq, state.log_hash, fates, sorted(state.helpers)))
        greet_claimed(self._ledger, epoch, self._paths)
        kill_condemned(self._ledger, epoch, self._clock, self._host)
        state = self._refresh()
        claimed = tuple(key for key in fates if state.attempts[key].fate == "claimed")
        return Advanced(epoch, claimed, tuple(key for key in fates if key not in claimed))

    def _choose_fate(self, attempt: Attempt, is_wanted: bool) -> Fate:
        is_claimed = is_wanted and attempt.fate != "condemned" and attempt.start is not None and is_alive(attempt.start.identity, self._host)
        return "claimed" if is_claimed else "condemned"

    def start(self, epoch: int, request: CommandRequest) -> How:
        digest = digest_request(request)
        with self._ledger.transaction() as transaction:
            state = transaction.state
            transaction.check_floor(epoch)
            if epoch > state.floor:
                raise MisuseError(f"epoch {epoch} is above the floor {state.floor}; raise it first: recovery space advance --epoch {epoch}")
            attempt = state.attempts.get(request.key)
            if attempt is None:
                leaf = "h" + blake3(request.key.encode("utf-8", "surrogateescape")).hexdigest(12)
                mark = self._local_at(epoch).mark(leaf)
                transaction.append(Prepare(request.key, "command", epoch, None, 1, digest, mark, None, state.log_seq, state.log_hash))
            else:
                check_same_request(request.key, attempt.prepared.digest, digest)
                mark = attempt.prepared.mark
                if word_of(attempt) not in ("prepared", "running"):
                    return "replayed"
                if attempt.start is not None:
                    return "attached"
        # Prepared and not begun: whoever announced it may be gone. Of two that start it now, the ledger lets one begin (S4).
        self._local_at(epoch).start_command(request, mark)
        return "started" if attempt is None else "attached"

    def _local_at(self, epoch: int) -> LocalSpace:
        if self._local is None or self._epoch != epoch:
            self._close_local()
            check = lambda: self._check_fence(epoch)  # noqa: E731
            self._local = LocalSpace(
                fork_spawner(self._clock, self._host), self._paths, self._ledger, self._setting, epoch, self._clock, self._host, check,
                name=f"-{os.getpid()}",
            )  # fmt: skip
            self._epoch = epoch
        return self._local

    def _check_fence(self, epoch: int) -> None:
        floor = self._refresh().floor
        if floor > epoch:
            raise StaleEpochError(f"{self._ledger.name}: epoch {epoch} is below the floor {floor}; a newer one has the space")

    def wait(self, epoch: int, key: str, sink: Sink | None = None) -> Ended:
        self._check_fence(epoch)
        deadline = self._clock.monotonic() + START_SECS
        while (ended := self.look(key)) is None:
            start = _find(self._ledger.state, key).start
            if start is None:
                if self._clock.monotonic() >= deadline:
                    raise LostProcessError(f"{show_text(key)} was prepared and did not begin in {START_SECS:g} s; start it again")
                self._clock.pause(POLL_SECS / 10)
            else:
                self._wait_for(epoch, key, start, sink)
            self._check_fence(epoch)
        return ended

    def _wait_for(self, epoch: int, key: str, start: Start, sink: Sink | None) -> None:
        """Wait until the shim has ended; LostProcessError when it ends without an exit record."""
        with open_process(start.identity, self._host) as descriptor:
            poll = select.poll()
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
            while descriptor is not None and not is_dead(descriptor):
                poll.poll(int(POLL_SECS * 1000))
                self._check_fence(epoch)
                if self.look(key) is not None:
                    return
        if self.look(key) is None:
            self._check_fence(epoch)
            raise LostProcessError(
                f"{show_text(key)}: its shim ended without an exit record, so what it did is not known; an advance of the epoch proves it dead"
            )

    def look(self, key: str) -> Ended | None:
        attempt = _find(self._refresh(), key)
        word = word_of(attempt)
        if word in ("prepared", "running"):
            return None
        return self._ended(key, word, attempt)

    def _ended(self, key: str, word: AttemptWord, attempt: Attempt) -> Ended:
        exited = attempt.exit
        if exited is None:
            return Ended(key, word, attempt.epoch, None)
        leaf = attempt.prepared.mark.rpartition("/")[2]
        out = read_kept(self._paths.directory, leaf)
        err = read_kept(self._paths.directory, leaf + ".stderr")
        return Ended(
            key, word, attempt.epoch, exited.exit, out, err, exited.output_total, exited.stderr_total, exited.digest, exited.held_output
        )  # fmt: skip

    def list(self) -> list[Listed]:
        return [self._list_one(key, attempt) for key, attempt in self._refresh().attempts.items() if attempt.prepared.kind == "command"]

    def _list_one(self, key: str, attempt: Attempt) -> Listed:
        word, start, exited = word_of(attempt), attempt.start, attempt.exit
        if word == "running" and start is not None and not is_alive(start.identity, self._host):
            word = "lost"
        pid = start.identity.pid if start is not None and word == "running" else 0
        at_ms, ended_ms = (start.at_ms if start is not None else 0), (exited.at_ms if exited is not None else 0)
        return Listed(key, word, attempt.epoch, pid, at_ms, ended_ms, exited.exit if exited is not None else None)

    def end(self, epoch: int, key: str) -> Ended:
        self._check_fence(epoch)
        attempt = _find(self._ledger.state, key)
        if word_of(attempt) == "prepared":
            raise MisuseError(f"{show_text(key)} has not begun; an advance of the epoch condemns it")
        if word_of(attempt) == "running" and attempt.start is not None:
            end_command(attempt.prepared.mark, attempt.start.identity, self._host, self._clock)
        return self.wait(epoch, key)

    def close(self) -> None:
        self._close_local()
        self._ledger.close()

    def _close_local(self) -> None:
        if self._local is not None:
            self._local.close()
            self._local = None

    def _refresh(self) -> LedgerState:
        self._ledger.refresh()
        return self._ledger.state


def _find(state: LedgerState, key: str) -> Attempt:
    attempt = state.attempts.get(key)
    if attempt is None:
        raise MisuseError(f"the space knows no key {show_text(key)!r}; `recovery space show` lists what it knows")
    return attempt
