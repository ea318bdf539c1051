"""A space whose commands are run by a `cua-spacesd`, another machine's or this one's (`recovery.space.port.Space`).

The daemon has a ledger of keyed commands and an epoch; what it does not check is checked here, in a record of this space's own: the
project's ledger of keys, requests, floor and exits, in a directory that its handles share. Order of every act (each line is synced
before the next):

  start    record: prepare, start; then the daemon is asked. The record's lock is held meanwhile: a start without the daemon's record
           was cut short or lost by the daemon, and is told as lost, never run again.
  advance  record: the exits that stand, then floor and fates; then the daemon's epoch. Dead in between, the next start or advance
           raises the daemon's epoch first.
  exit     is recorded here when somebody first sees it, by the daemon's record of the key, and after a condemnation it is cut.

What it cannot do stands in recovery.space.cua_limits. The package `cua` is imported when a space is opened, and by nothing else.
"""

import errno
import os
from collections.abc import Collection, Sequence

import msgspec
from blake3 import blake3

from eventlog.errors import FenceIncompleteError, InternalError, LostProcessError, MisuseError, StaleEpochError
from eventlog.events import Exit
from eventlog.ports import Clock, Host, Ids
from eventlog.process_identity import ProcessIdentity
from eventlog.show import show_text
from recovery.space.advance import choose_fates, find_lost
from recovery.space.allowance import Allowance
from recovery.space.attach import read_output
from recovery.space.cua_client import POLL_SECS, Collected, Daemon, ExecRecord, RefusedError
from recovery.space.cua_limits import UNAVAILABLE, judge_probe, list_unavailable
from recovery.space.epochs import check_advance, check_epoch
from recovery.space.file_request import FileRequest
from recovery.space.keys import Attach, Replay, prepare_in
from recovery.space.ledger import Ledger, LedgerTransaction, create_ledger
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.listing import AttemptWord, ListedAttempt, list_attempts, word_of
from recovery.space.output import STDERR_SUFFIX, Kept, output_path, save_output
from recovery.space.port import Advanced, Capability, Ended, How, Sink, SpaceFacts
from recovery.space.protocol import StreamName
from recovery.space.records import Advance, Attempt, Exited, Header, LedgerState, Prepare, ProvedDead, Start
from recovery.space.request import CommandRequest, digest_request

RECORD = "cua-record"
DEATH_SECS = 30.0
NOBODY = ProcessIdentity(0, 0, "", 0)  # no process of this machine watches the command
_APART, _MERGED = "process-group:apart", "process-group:merged"


class Address(msgspec.Struct, frozen=True):
    """A daemon: its URL and its token."""

    url: str
    token: str


def open_cua(directory: str, address: Address, ids: Ids, clock: Clock, host: Host) -> "CuaSpace":
    """One handle on the space whose record is in `directory` (made where that is missing or empty) and whose commands run at `address`.

    Raises MisuseError (exit 78) where the package is missing, the token refused, the daemon unfit or the directory something else;
    LostProcessError (exit 1) where no daemon answers.
    """
    home = os.path.join(directory, "home")
    path = os.path.join(directory, RECORD)
    if not os.path.lexists(path) and os.path.isdir(directory) and (found := sorted(set(os.listdir(directory)) - {"home", "output"})):
        raise MisuseError(f"{show_text(directory)} has no {RECORD}, but is not empty ({show_text(found[0])} is in it); name another one")
    for one in (directory, home, os.path.join(directory, "output")):
        os.makedirs(one, mode=0o700, exist_ok=True)
    daemon = Daemon(address.url, address.token, home)
    try:
        capabilities = judge_probe(daemon.probe(), daemon.name)
        daemon.epoch()
        daemon.record("probe")  # that both can be asked is part of what it must be able to do
        if not os.path.lexists(path):
            try:
                create_ledger(path, Header(LEDGER_FORMAT, ids.new_id().hex(), 1))
            except FileExistsError:
                pass  # another handle made it meanwhile
        return CuaSpace(directory, Ledger(path, clock), daemon, capabilities, clock, host)
    except BaseException:
        daemon.close()
        raise


class CuaSpace:
    """One handle on a space at a `cua-spacesd` (see the module)."""

    def __init__(
        self, directory: str, ledger: Ledger, daemon: Daemon, capabilities: frozenset[Capability], clock: Clock, host: Host
    ) -> None:  # fmt: skip
        self._directory = directory
        self._ledger = ledger
        self._daemon = daemon
        self._capabilities = capabilities
        self._clock = clock
        self._host = host
        self._is_closed = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    def unavailable(self) -> dict[str, str]:
        """What this space cannot do, each with what is so instead."""
        return list_unavailable(self._capabilities)

    def facts(self) -> SpaceFacts:
        header = self._header(self._refresh())
        floor = max(self._ledger.state.floor, self._daemon.epoch())
        return SpaceFacts(header.ledger_id, header.generation, floor, "process-group")

    def advance(self, epoch: int, claim: Collection[str] = ()) -> Advanced:
        with self._ledger.transaction() as transaction:
            check_advance(epoch, max(transaction.state.floor, self._daemon.epoch()), self._ledger.name)
            for key in claim:
                self._find(transaction.state, key)
            running = self._settle_open(transaction)
            if refused := [key for key in running if key in claim]:
                raise MisuseError(
                    f"{self._daemon.name}: {show_text(refused[0])} runs and cannot be claimed: there an advance kills whatever is older; "
                    "wait for its end, or advance without it"
                )
            state = transaction.state
            before = {key for key, attempt in state.attempts.items() if attempt.fate == "condemned"}
            fates = choose_fates(state, (), ())
            transaction.append(Advance(epoch, "", 0, "", fates, [], find_lost(state, set(running))))
            self._daemon.advance(epoch)
            self._wait_dead(transaction, fates)
        return Advanced(epoch, (), tuple(key for key in fates if key not in before))

    def _wait_dead(self, transaction: LedgerTransaction, condemned: Collection[str]) -> None:
        """Wait for the daemon's word on every condemned command, and record it. What it has no word on may live."""
        allowance = Allowance(self._clock, DEATH_SECS)
        while (running := self._settle_open(transaction)) and not allowance.is_spent():
            self._clock.pause(POLL_SECS)
        unproved = [
            key for key, attempt in transaction.state.attempts.items()
            if key in condemned and attempt.is_open and attempt.start is not None and not attempt.is_proved_dead
        ]  # fmt: skip
        if unproved:
            why = "did not end" if unproved[0] in running else "was lost by the daemon, and may live"
            raise FenceIncompleteError(
                f"{self._daemon.name}: {show_text(unproved[0])} {why} ({len(unproved)} so); see that nothing of it lives, say so with "
                "take_for_dead, then advance again"
            )

    def take_for_dead(self, epoch: int, keys: Collection[str]) -> None:
        """A person's word that nothing of these condemned attempts lives. Raises StaleEpochError, MisuseError."""
        with self._ledger.transaction() as transaction:
            transaction.check_floor(epoch)
            for key in keys:
                if self._find(transaction.state, key).fate != "condemned":
                    raise MisuseError(f"{show_text(key)} is not condemned: only an advance decides that it is over")
            transaction.append(ProvedDead(epoch, sorted(keys), [], sorted(keys), "person"))

    def start(self, epoch: int, request: CommandRequest) -> How:
        check_epoch(epoch)
        leaf = "h" + blake3(request.key.encode("utf-8", "surrogateescape")).hexdigest(12)
        mark = f"{_APART if request.separate else _MERGED}/{leaf}"
        with self._ledger.transaction() as transaction:
            transaction.check_floor(epoch)
            _check_not_stale(epoch, reached := self._daemon.epoch(), self._daemon.name)
            known = transaction.state.find(request.key)
            if known is None:
                _check_request(request)
            else:
                self._settle_in(transaction, known)
            record = Prepare(request.key, "command", epoch, None, 1, digest_request(request), mark, None, 0, "")
            answer = prepare_in(transaction, self._ledger.name, record)
            if isinstance(answer, Replay):
                return "replayed"
            if isinstance(answer, Attach):
                if answer.attempt.start is not None:
                    return "attached"
                record = answer.attempt.prepared  # whoever announced it died before its mark: the daemon was not asked
            if reached < epoch:  # an advance was cut short between the record and the daemon
                self._daemon.advance(epoch)
            self._begin(transaction, epoch, request, self._exec_id(record))
        return "started"

    def change(self, epoch: int, request: FileRequest) -> How:
        raise MisuseError(f"{self._daemon.name}: file changes are unavailable: {UNAVAILABLE['file changes']}")

    def _begin(self, transaction: LedgerTransaction, epoch: int, request: CommandRequest, exec_id: str) -> None:
        transaction.append(Start(request.key, NOBODY, "", self._clock.now_ms()))
        try:
            self._daemon.start(exec_id, request, epoch)
        except RefusedError as error:
            transaction.append(
                Exited(request.key, Exit("start_failed", error=str(error)), self._host.boot_id(), at_ms=self._clock.now_ms())
            )

    def wait(self, epoch: int, key: str, sink: Sink | None = None) -> Ended:
        self._check_fence(epoch)
        attempt = self._find(self._ledger.state, key)
        collected: Collected | None = None
        followed = False
        while (ended := self.look(key, collected)) is None:
            if followed:
                self._clock.pause(POLL_SECS)
                self._check_fence(epoch)
            else:
                collected = self._follow(epoch, attempt, sink)
                followed = True
        self._check_fence(epoch)
        if ended.word is AttemptWord.LOST:
            raise LostProcessError(f"{self._daemon.name}: how {show_text(key)} ended nobody knows; an advance of the epoch condemns it")
        return ended

    def _follow(self, epoch: int, attempt: Attempt, sink: Sink | None) -> Collected | None:
        """Hear a running command out; what was heard, None where the daemon has it no more."""
        collected = Collected(_is_apart(attempt))

        def hear(stream: StreamName, data: bytes) -> None:
            name = collected.add(stream, data)
            if sink is not None:
                sink(name, data)

        heard = self._daemon.follow(self._exec_id(attempt.prepared), hear, lambda: self._check_fence(epoch))
        return collected if heard == "ended" else None

    def look(self, key: str, collected: Collected | None = None) -> Ended | None:
        """See the port. `collected` is what this handle has heard of the output already."""
        attempt = self._find(self._refresh(), key)
        is_running = False
        if attempt.is_open and attempt.start is not None:
            with self._ledger.transaction() as transaction:  # with its lock nobody is between a start's record and its daemon
                is_running = self._settle_in(transaction, self._find(transaction.state, key), collected)
            attempt = self._find(self._ledger.state, key)
        word = word_of(attempt, is_running)
        if word in (AttemptWord.PREPARED, AttemptWord.RUNNING):
            return None
        exited = attempt.exit
        if exited is None:
            return Ended(key, word, attempt.epoch, None)
        out, err = read_output(self._directory, attempt.prepared.mark, exited)
        return Ended(key, word, attempt.epoch, exited.exit, out, err, exited.output_total, exited.stderr_total, exited.digest)

    def list(self) -> list[ListedAttempt]:
        with self._ledger.transaction() as transaction:
            running = self._settle_open(transaction)
            return [msgspec.structs.replace(one, shim=None) for one in list_attempts(transaction.state, running)]

    def end(self, epoch: int, key: str) -> Ended:
        with self._ledger.transaction() as transaction:  # the daemon compares no epoch with a signal: under the lock nobody advances
            _check_not_stale(epoch, transaction.state.floor, self._ledger.name)
            attempt = self._find(transaction.state, key)
            if attempt.is_open and attempt.start is None:
                raise MisuseError(f"{show_text(key)} has not begun; an advance of the epoch condemns it")
            if attempt.is_open:
                self._daemon.kill(self._exec_id(attempt.prepared))
        return self.wait(epoch, key)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._ledger.close()
            self._daemon.close()

    def _settle_open(self, transaction: LedgerTransaction) -> Sequence[str]:
        """Record every exit that the daemon knows; the keys that run."""
        started = [attempt for attempt in transaction.state.attempts.values() if attempt.is_open and attempt.start is not None]
        return [attempt.prepared.key for attempt in started if self._settle_in(transaction, attempt)]

    def _settle_in(self, transaction: LedgerTransaction, attempt: Attempt, collected: Collected | None = None) -> bool:
        """Record the exit of an attempt when the daemon knows one; whether it runs."""
        if not attempt.is_open or attempt.start is None:
            return False
        record = self._daemon.record(self._exec_id(attempt.prepared))
        exit_ = None if record is None else record.to_exit()
        if record is None or exit_ is None:
            return record is not None and record.is_running
        if collected is None or collected.count_missing(record) != 0:
            collected = self._collect(attempt, record)
        transaction.append(self._save(attempt, exit_, collected, record))
        return False

    def _collect(self, attempt: Attempt, record: ExecRecord) -> Collected:
        """The output of a command that ended, as much of it as the daemon still has."""
        replayed = Collected(_is_apart(attempt))

        def hear(stream: StreamName, data: bytes) -> None:
            replayed.add(stream, data)

        heard = self._daemon.follow(self._exec_id(attempt.prepared), hear, lambda: None)
        if heard == "ended" and replayed.count_missing(record) is not None:
            return replayed
        tail = Collected(_is_apart(attempt))
        for chunk in record.tail:
            if chunk.stdout:
                tail.add("out", chunk.stdout)
            if chunk.stderr:
                tail.add("err", chunk.stderr)
        return tail

    def _save(self, attempt: Attempt, exit_: Exit, collected: Collected, record: ExecRecord) -> Exited:
        """Keep the output in its files; the record that tells of it. Bytes that are missing are those before what is there; of streams
        kept apart they are counted as standard output's."""
        kept = {name: keeper.kept() for name, keeper in collected.keepers.items()}
        out, err = kept["out"], kept.get("err", Kept(0, b""))
        if missing := collected.count_missing(record) or 0:
            out = Kept(out.total + missing, b"[%d bytes not kept]\n" % missing + out.data)
            err = msgspec.structs.replace(err, digest="")
        reason = ""
        path = output_path(self._directory, attempt.prepared.mark.rpartition("/")[2])
        try:
            save_output(path, out)
            save_output(path + STDERR_SUFFIX, err)
        except OSError as error:
            reason = f"{errno.errorcode.get(error.errno or errno.EIO, 'EIO')}: {error.strerror}"
            out, err = msgspec.structs.replace(out, data=b""), msgspec.structs.replace(err, data=b"")
        return Exited(
            attempt.prepared.key, exit_, self._host.boot_id(), out.total, len(out.data), digest=out.digest, stderr_total=err.total,
            stderr_kept=len(err.data), stderr_digest=err.digest, at_ms=self._clock.now_ms(), missing=reason,
        )  # fmt: skip

    def _exec_id(self, prepared: Prepare) -> str:
        """The daemon's name for a key of this space: several records may stand at one daemon."""
        return f"{self._header(self._ledger.state).ledger_id}-{prepared.mark.rpartition('/')[2]}"

    def _header(self, state: LedgerState) -> Header:
        if state.header is None:
            raise InternalError(f"{self._ledger.name}: opened without a header")
        return state.header

    def _refresh(self) -> LedgerState:
        self._ledger.refresh()
        return self._ledger.state

    def _check_fence(self, epoch: int) -> None:
        _check_not_stale(epoch, self._refresh().floor, self._ledger.name)

    def _find(self, state: LedgerState, key: str) -> Attempt:
        attempt = state.find(key)
        if attempt is None:
            raise MisuseError(f"{self._ledger.name}: the space knows no key {show_text(key)!r}; list what it knows")
        return attempt


def _check_not_stale(epoch: int, floor: int, name: str) -> None:
    if check_epoch(epoch) < floor:
        raise StaleEpochError(f"{name}: epoch {epoch} is below the floor {floor}; a newer one has the space")


def _is_apart(attempt: Attempt) -> bool:
    return attempt.prepared.mark.startswith(_APART)


def _check_request(request: CommandRequest) -> None:
    """Refuse what the daemon would not do as it is asked for."""
    if request.stdin is not None:
        raise MisuseError(f"{show_text(request.key)}: a command of this space cannot be given standard input; let it read a file")
    if request.left_behind == "fail":
        raise MisuseError(f"{show_text(request.key)}: this space does not see what a command leaves running; ask for `kill` or `keep`")
    if not request.arguments:
        raise MisuseError(f"{show_text(request.key)}: there is no command; give its arguments, the program first")
    for text in (*request.arguments, request.directory, *(one for pair in request.environment for one in pair)):
        try:
            text.decode()
        except UnicodeDecodeError as error:
            shown = show_text(text.decode(errors="surrogateescape"))
            raise MisuseError(f"{show_text(request.key)}: {shown} is not UTF-8; this space takes no other bytes") from error
