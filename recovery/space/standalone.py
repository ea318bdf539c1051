"""A space of local processes by itself, without a session: what `recovery space` and the conformance suite use.

Handles share nothing but the space's directory. Each forks a spawner of its own when it first starts a command; a handle that is closed,
or whose process dies, leaves its commands running. Where a session's driver has the space, its ledger fences both alike.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Collection

import msgspec
from blake3 import blake3

from eventlog.errors import CrashworthyError, InternalError, LostProcessError, MisuseError, StaleEpochError
from eventlog.ports import Clock, Host, Ids
from eventlog.process_identity import is_alive
from eventlog.show import show_text, show_word
from recovery.space.advance import advance_ledger, claimed_shims, greet_claimed
from recovery.space.attach import attach, end_command, read_output
from recovery.space.bubblewrap import Bubblewrap
from recovery.space.condemned import NO_TRUST, Sweep, Trust
from recovery.space.epochs import check_advance, check_at_floor
from recovery.space.file_changes import FileChanges
from recovery.space.file_request import FileRequest
from recovery.space.holders import SPACE_HOLDER, Holders
from recovery.space.keys import Attach, Replay, prepare
from recovery.space.ledger import Ledger, LedgerView, compact_if_large, create_ledger
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.listing import AttemptWord, ListedAttempt, list_attempts, word_of
from recovery.space.local import LocalSpace, SpacePaths
from recovery.space.marks import MarkSetting
from recovery.space.port import CAPABILITIES, Advanced, Capability, Ended, How, Sink, SpaceFacts
from recovery.space.protocol import StreamName
from recovery.space.records import Attempt, Header, LedgerState, Prepare
from recovery.space.request import CommandRequest, digest_request
from recovery.space.silence import DEFAULT_SILENT_SECS
from recovery.space.spawner import fork_spawner
from recovery.space.workspaces import Workspace, bind_workspace, find_workspace


def find_space(directory: str) -> SpacePaths:
    """The space in a directory: its own, or the one of a session whose state directory this is. Raises MisuseError."""
    for path in (directory, os.path.join(directory, "space")):
        if os.path.lexists(os.path.join(path, "ledger")):
            return SpacePaths(os.path.realpath(path))
    raise MisuseError(
        f"{show_text(directory)}: no space is there; name the state directory of a session, or make a space with `recovery space start`"
    )


def make_space(directory: str, ids: Ids) -> SpacePaths:
    """The space in a directory, made where the directory is missing or empty. Raises MisuseError where something else is in it: a ledger
    that is lost is not a new one (S10)."""
    with contextlib.suppress(MisuseError):
        return find_space(directory)
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


def _open_ledger(path: str, clock: Clock) -> LedgerView:
    """The ledger; of a file system that can only be read, such as a snapshot, a view of it."""
    try:
        return Ledger(path, clock)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return LedgerView(path)


class StandaloneSpace:
    """One handle on a space of local processes (see `recovery.space.port.Space`), or with `bubblewrap` of namespaced ones: what it starts
    is confined."""

    def __init__(
        self, paths: SpacePaths, setting: MarkSetting, clock: Clock, host: Host, bubblewrap: Bubblewrap | None = None,
        holders: Holders | None = None, silent_secs: float = DEFAULT_SILENT_SECS, trust: Trust = NO_TRUST,
    ) -> None:  # fmt: skip
        self._bubblewrap = bubblewrap
        self._holders = holders
        self._silent_secs = silent_secs
        self._trust = trust
        self._paths = paths
        self._setting = setting
        self._clock = clock
        self._host = host
        self._ledger = _open_ledger(paths.ledger, clock)
        self._local: LocalSpace | None = None
        self._epoch = 0
        self._swept = 0
        self._is_closed = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(CAPABILITIES) if self._find_workspace() else frozenset(CAPABILITIES) - {"file changes"}

    @property
    def _writable(self) -> Ledger:
        if not isinstance(self._ledger, Ledger):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._paths.ledger)
        return self._ledger

    def _find_workspace(self) -> Workspace | None:
        return None if self._holders is None else find_workspace(self._paths.directory, self._header().ledger_id, self._holders)

    def _header(self) -> Header:
        header = self._refresh().header
        if header is None:
            raise MisuseError(f"{self._ledger.name}: the ledger has no header; use the version that wrote it")
        return header

    def facts(self) -> SpaceFacts:
        header = self._header()
        places = [self._paths.directory, os.path.dirname(self._paths.directory)]  # a session's is in its state directory
        holder, root = (self._holders.holder_of(places) if self._holders is not None else None) or ("", "")
        prefix = "session:" if holder and not holder.startswith(SPACE_HOLDER) else ""
        return SpaceFacts(header.ledger_id, header.generation, self._ledger.state.floor, self._setting.kind, root, prefix + holder)

    def use_workspace(self, root: str, ids: Ids, is_finished: Callable[[str], bool]) -> None:
        """Have the space hold `root`, its one workspace, so that files below it can be changed. Raises what `bind_workspace` does."""
        if self._holders is None:
            raise InternalError("a handle without a registry of holders has no workspace")
        bind_workspace(self._paths.directory, self._header().ledger_id, root, self._holders, ids, is_finished)

    def give_up_workspace(self, epoch: int) -> bool:
        """Advance to `epoch`, so that nothing of the space lives, and let its workspace go; False when it held none."""
        workspace = self._find_workspace()
        self.advance(epoch)
        return workspace is not None and workspace.give_up()

    def advance(self, epoch: int, claim: Collection[str] = ()) -> Advanced:
        with self._writable.transaction() as transaction:
            state = transaction.state
            check_advance(epoch, state.floor, self._ledger.name)
            for key in claim:
                _find(state, key)
            # A session's log is not seen from here: what the ledger remembers of it stays as it is.
            before = {key for key, attempt in state.attempts.items() if attempt.fate == "condemned"}
            fates = advance_ledger(transaction, epoch, "", (state.log_seq, state.log_hash), set(claim), self._host)
        greet_claimed(self._writable, epoch, self._paths)
        self._sweep(epoch)
        attempts = self._refresh().attempts
        claimed = tuple(key for key in fates if key in attempts and attempts[key].fate == "claimed")
        return Advanced(epoch, claimed, tuple(key for key in fates if key not in claimed and key not in before))

    def _sweep(self, epoch: int) -> None:
        """Have what the advance to `epoch` condemned killed and proved dead, once for a handle. Before anything begins under that epoch:
        whoever advanced may have died in the middle, or could not prove it (I7). Raises FenceIncompleteError."""
        if self._swept != epoch:
            way_out = f"recovery space advance --dir {show_word(self._paths.directory)} --epoch {epoch + 1} --processes-dead"
            sweep = Sweep(self._paths.directory, self._clock, self._host, self._trust, way_out=way_out)
            sweep.kill_condemned(self._writable, epoch, claimed_shims(self._ledger.state))
            self._swept = epoch

    def start(self, epoch: int, request: CommandRequest) -> How:
        request = msgspec.structs.replace(request, is_confined=self._bubblewrap is not None)
        leaf = "h" + blake3(request.key.encode("utf-8", "surrogateescape")).hexdigest(12)
        self._check_fence(epoch)
        check_at_floor(epoch, self._ledger.state.floor, self._ledger.name)
        self._sweep(epoch)
        local = self._local_at(epoch)
        state = self._ledger.state
        record = Prepare(
            request.key, "command", epoch, None, 1, digest_request(request), local.mark(leaf), None, state.log_seq, state.log_hash
        )
        answer = prepare(self._writable, record, is_told=False)
        if isinstance(answer, Replay):
            return "replayed"
        if isinstance(answer, Attach) and answer.attempt.start is not None:
            return "attached"
        # Prepared and not begun: whoever announced it may be gone. Of two that start it now, the ledger lets one begin (S4).
        local.start_command(request, record.mark)
        self._ledger.sync()
        return "attached" if isinstance(answer, Attach) else "started"

    def change(self, epoch: int, request: FileRequest) -> How:
        workspace = self._find_workspace()
        if workspace is None:
            raise MisuseError(
                f"the space in {show_text(self._paths.directory)} has no workspace of its own, so it changes no files: "
                "one by hand gets it with --workspace, in a session's space its driver has files changed"
            )
        self._check_fence(epoch)
        check_at_floor(epoch, self._ledger.state.floor, self._ledger.name)
        self._sweep(epoch)
        changes = FileChanges(workspace, self._writable)
        known = changes.find(request)
        if known is not None:
            return known
        try:
            return changes.carry_out(self._local_at(epoch), epoch, request)
        except (CrashworthyError, OSError):
            # No exit stands: the worker ends, so that the key is lost, or was never begun, and is not waited for (S7).
            self._close_local()
            raise

    def _local_at(self, epoch: int) -> LocalSpace:
        if self._local is None or self._epoch != epoch:
            self._close_local()
            self._local = LocalSpace(
                fork_spawner(self._clock, self._host), self._paths, self._writable, self._setting, epoch, self._clock, self._host,
                lambda: self._check_fence(epoch), name=f"-{os.getpid()}", bubblewrap=self._bubblewrap,
            )  # fmt: skip
            self._epoch = epoch
        return self._local

    def _check_fence(self, epoch: int) -> None:
        floor = self._refresh().floor
        if floor > epoch:
            raise StaleEpochError(f"{self._ledger.name}: epoch {epoch} is below the floor {floor}; a newer one has the space")

    def wait(self, epoch: int, key: str, sink: Sink | None = None) -> Ended:
        self._check_fence(epoch)
        if (ended := self.look(key)) is None:
            attach(
                self._paths.directory, self._ledger, key, epoch, self._clock, self._host, sink or _hear_nothing,
                silent_secs=self._silent_secs,
            )  # fmt: skip
            ended = self.look(key)
        self._check_fence(epoch)  # a sweep of a newer epoch: what looks lost or cut is fenced
        if ended is None or ended.word is AttemptWord.LOST:
            raise LostProcessError(f"{show_text(key)} has ended without a record; an advance of the epoch proves it dead")
        return ended

    def look(self, key: str) -> Ended | None:
        attempt = _find(self._refresh(), key)
        word = self._word_of(attempt)
        if word in (AttemptWord.PREPARED, AttemptWord.RUNNING):
            return None
        self._ledger.sync()
        return self._ended(key, word, attempt)

    def _word_of(self, attempt: Attempt) -> AttemptWord:
        return word_of(attempt, attempt.start is not None and is_alive(attempt.start.identity, self._host))

    def _ended(self, key: str, word: AttemptWord, attempt: Attempt) -> Ended:
        exited = attempt.exit
        if exited is None:
            return Ended(key, word, attempt.epoch, None)
        if attempt.prepared.kind != "command":
            said = exited.message.encode("utf-8", "surrogateescape")
            return Ended(key, word, attempt.epoch, exited.exit, said, out_total=len(said))
        out, err = read_output(self._paths.directory, attempt.prepared.mark, exited)
        return Ended(
            key, word, attempt.epoch, exited.exit, out, err, exited.output_total, exited.stderr_total, exited.digest, exited.held_output,
            exited.missing, exited.survivors, exited.left,
        )  # fmt: skip

    def list(self) -> list[ListedAttempt]:
        state = self._refresh()
        alive = {
            key for key, attempt in state.attempts.items() if attempt.start is not None and is_alive(attempt.start.identity, self._host)
        }
        return [one for one in list_attempts(state, alive) if one.kind != "work"]

    def end(self, epoch: int, key: str) -> Ended:
        self._check_fence(epoch)
        attempt = _find(self._ledger.state, key)
        if self._word_of(attempt) is AttemptWord.PREPARED:
            raise MisuseError(f"{show_text(key)} has not begun; an advance of the epoch condemns it")
        if attempt.is_open and attempt.prepared.kind != "command":
            raise MisuseError(f"{show_text(key)} is a change of files, which is not ended by hand; an advance of the epoch ends it")
        if self._word_of(attempt) is AttemptWord.RUNNING and not end_command(self._paths.directory, attempt, epoch):
            self._check_fence(epoch)
        return self.wait(epoch, key)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._close_local()
            with contextlib.suppress(StaleEpochError):  # a newer epoch has it, and the compaction with it
                if self._epoch:
                    compact_if_large(self._writable, self._epoch)
            self._ledger.close()

    def _close_local(self) -> None:
        if self._local is not None:
            self._local.close([key for key, attempt in self._refresh().attempts.items() if attempt.is_open])
            self._local = None

    def _refresh(self) -> LedgerState:
        self._ledger.refresh()
        return self._ledger.state


def _hear_nothing(stream: StreamName, data: bytes) -> None:
    """For who waits for the end alone."""


def _find(state: LedgerState, key: str) -> Attempt:
    attempt = state.find(key)
    if attempt is None:
        raise MisuseError(f"the space knows no key {show_text(key)!r}; `recovery space show` lists what it knows")
    return attempt
