"""Being attached to a running command (cases 31, 34, 35): all of the output as it comes, from any offset, whoever reads how slowly; cut off
by a newer epoch; the end told only with the record."""

import contextlib
import hashlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
from blake3 import blake3

from eventlog.errors import LostProcessError, MisuseError, StaleEpochError
from eventlog.events import Exit
from eventlog.ports import FakeClock
from eventlog.process_identity import identify_self
from recovery.space import attach as attaching
from recovery.space import protocol
from recovery.space.attach import Taken, attach, cut_from, end_command
from recovery.space.floor_poll import FLOOR_POLL_SECS, FloorPoll
from recovery.space.ledger import LedgerView, append_fenced
from recovery.space.output import HEAD_BYTES, TAIL_BYTES, OutputKeeper
from recovery.space.protocol import Attach, Hello, HelloAnswer, OutputFrame, Stale
from recovery.space.readers import MOST_CONNECTIONS
from recovery.space.records import Exited, Prepare, Start
from recovery.space.silence import SilenceWatch
from tests.helpers import DEADLINE_SECS, is_running, kill_process, wait_until
from tests.recovery.space.spaces import CLOCK, HOST, LooseSpace, open_space

GATE = 'until [ -e "$BASE/gate" ]; do sleep 0.01; done'


@pytest.fixture
def space() -> Iterator[LooseSpace]:
    with open_space() as made:
        yield made


class Reader:
    """One who is attached, in a thread of its own, with a view of the ledger of its own."""

    def __init__(self, space: LooseSpace, key: str, epoch: int = 1, taken: Taken | None = None) -> None:
        self.out, self.err, self.skipped = bytearray(), bytearray(), 0
        self.exited: Exited | None = None
        self.error: Exception | None = None
        self._space, self._key, self._epoch, self._taken = space, key, epoch, taken
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        view = LedgerView(self._space.paths.ledger)
        try:
            directory = self._space.paths.directory
            self.exited = attach(directory, view, self._key, self._epoch, CLOCK, HOST, self._take, self._skip, self._taken)
        except Exception as error:  # noqa: BLE001 - what it was is asked for by the test
            self.error = error
        finally:
            view.close()

    def _take(self, stream: str, data: bytes) -> None:
        (self.out if stream == "out" else self.err).extend(data)

    def _skip(self, stream: str, count: int) -> None:
        self.skipped += count

    def end(self) -> "Reader":
        wait_until(lambda: not self._thread.is_alive(), "the end of a reader")
        return self


def connect_shim(directory: str, name: str) -> socket.socket:
    """A connection on which nothing is waited for for ever."""
    connection = attaching.connect_shim(directory, name)
    connection.settimeout(DEADLINE_SECS)
    return connection


def start(space: LooseSpace, run: str, **more: object) -> tuple[str, object]:
    """Start a command, and go on once its starting mark stands."""
    request = space.request(run, **more)
    shim = space.start(request)

    def has_started() -> bool:
        space.ledger.refresh()
        return space.ledger.state.attempts[request.key].start is not None

    wait_until(has_started, "the starting mark")
    return request.key, shim


def finish(space: LooseSpace, key: str, shim: object) -> Exited:
    return space.space.wait_command(key, shim)  # type: ignore[arg-type]


def open_gate(space: LooseSpace) -> None:
    (space.base / "gate").touch()


def test_case_34_output_reaches_readers_while_the_command_runs(space: LooseSpace) -> None:
    """Streams apart, in time: the first words are there before the command goes on."""
    key, shim = start(space, f"echo one; echo two >&2; {GATE}; echo three; exit 3", separate=True)
    reader = Reader(space, key)
    wait_until(lambda: reader.out == b"one\n" and reader.err == b"two\n", "the first words")
    assert reader.exited is None
    open_gate(space)
    exited = finish(space, key, shim)
    assert reader.end().error is None and (bytes(reader.out), bytes(reader.err)) == (b"one\nthree\n", b"two\n")
    assert reader.exited == exited and exited.exit == Exit("exited", code=3)
    assert (exited.output_total, exited.stderr_total) == (10, 4) and space.output(exited) == (b"one\nthree\n", b"two\n")
    assert (exited.digest, exited.stderr_digest) == (blake3(b"one\nthree\n").hexdigest(), blake3(b"two\n").hexdigest())


def test_case_34_whoever_attaches_later_has_all_of_it_and_one_that_comes_back_has_the_rest(space: LooseSpace) -> None:
    key, shim = start(space, f"printf 0123456789; {GATE}; printf abc")
    first = Reader(space, key)
    wait_until(lambda: len(first.out) == 10, "the first part")
    later, back = Reader(space, key), Reader(space, key, taken=Taken({"out": 7, "err": 0}))
    wait_until(lambda: (later.out, back.out) == (b"0123456789", b"789"), "what was written before they came")
    open_gate(space)
    finish(space, key, shim)
    assert [bytes(one.end().out) for one in (first, later, back, Reader(space, key))] == [
        b"0123456789abc", b"0123456789abc", b"789abc", b"0123456789abc",
    ]  # fmt: skip


def test_case_34_a_stopped_reader_stops_no_command_and_is_told_what_it_missed(space: LooseSpace) -> None:
    """One that takes nothing while 8 MiB are written: the command ends by itself; then what is held no more is counted, not left out."""
    key, shim = start(space, f"{GATE}; head -c 8388608 /dev/zero | tr '\\0' x; echo end")
    stopped = connect_shim(space.paths.directory, space.ledger.state.attempts[key].start.socket)  # type: ignore[union-attr]
    protocol.send(stopped, Attach(1, key))
    reader = Reader(space, key)
    open_gate(space)
    exited = finish(space, key, shim)
    assert exited.exit == Exit("exited", code=0) and exited.output_total == 8388612
    frames = []
    while (frame := protocol.receive(stopped)) is not None:
        frames.append(frame)
    stopped.close()
    assert all(isinstance(frame, OutputFrame) for frame in frames), "no end was told to one that had not taken all before it"
    assert sum(len(frame.data) for frame in frames if isinstance(frame, OutputFrame)) < 8388612
    assert reader.end().error is None and len(reader.out) + reader.skipped == exited.output_total
    assert bytes(reader.out[-4:]) == b"end\n"


def test_output_is_bounded_in_memory_however_much_is_written(space: LooseSpace) -> None:
    """The shim's largest size is read back from the kernel: 64 MiB of output would show in it."""
    size = 64 << 20
    key, shim = start(space, f"{GATE}; head -c {size} /dev/zero; : > \"$BASE/written\"; {GATE.replace('gate', 'gate2')}")
    pid = shim.pid  # type: ignore[attr-defined]

    def peak() -> int:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

    before = peak()
    open_gate(space)
    wait_until((space.base / "written").exists, "64 MiB to be written", 4 * DEADLINE_SECS)
    grown = peak() - before
    (space.base / "gate2").touch()
    exited = finish(space, key, shim)
    assert exited.output_total == size and exited.output_kept < 2 << 20
    assert exited.digest == blake3(bytes(size)).hexdigest(), "the digest is over every byte, kept or not"
    assert grown < 16 << 10, f"the shim grew by {grown} KiB"


def test_a_reader_of_an_older_epoch_is_cut_off_by_the_shim_within_a_poll(space: LooseSpace) -> None:
    """What is written after a newer epoch exists reaches nobody of the older one; one of the newer one gets all of it."""
    key, shim = start(space, f'echo one; {GATE}; touch "$BASE/said"; echo two; {GATE.replace("gate", "gate2")}')
    old = connect_shim(space.paths.directory, space.ledger.state.attempts[key].start.socket)  # type: ignore[union-attr]
    protocol.send(old, Attach(1, key))
    assert protocol.receive(old) == OutputFrame("out", 0, b"one\n")
    space.advance(**{key: "claimed"})
    cut = protocol.receive(old)
    assert isinstance(cut, Stale) and "superseded by epoch 2" in cut.message
    assert protocol.receive(old) is None
    open_gate(space)
    new = Reader(space, key, epoch=2)
    wait_until(lambda: new.out == b"one\ntwo\n", "all of it under the newer epoch")
    refused = Reader(space, key, epoch=1).end()
    assert isinstance(refused.error, StaleEpochError) and not refused.out
    (space.base / "gate2").touch()
    assert new.end().exited is not None
    assert isinstance(shim, object)


def test_a_reader_that_is_attached_when_its_epoch_ends_stops_by_itself(space: LooseSpace) -> None:
    key, _ = start(space, f"echo one; {GATE}")
    reader = Reader(space, key)
    wait_until(lambda: reader.out == b"one\n", "the first word")
    space.advance(**{key: "claimed"})
    assert isinstance(reader.end().error, StaleEpochError)
    open_gate(space)


def test_the_floor_is_looked_at_ten_times_a_second_at_most_and_noticed_within_a_tenth() -> None:
    clock, looks, floor = FakeClock(), 0, 1

    def look() -> int:
        nonlocal looks
        looks += 1
        return floor

    poll = FloorPoll(clock, look)
    for _ in range(1000):  # one second in steps of a millisecond
        poll.floor()
        clock.pause(0.001)
    assert looks == 10
    while poll.floor() and looks == 10:  # just looked: the longest that can be before the next
        clock.pause(0.001)
    floor, waited = 2, 0
    while poll.floor() < 2:
        waited += 1
        clock.pause(0.001)
    assert 90 <= waited <= 1000 * FLOOR_POLL_SECS + 1


def test_case_31_the_end_of_the_process_decides_and_who_holds_the_output_is_told(space: LooseSpace) -> None:
    held = space.run("sleep 300 & echo word")
    assert (held.exit, held.held_output, held.survivors, space.output(held)[0]) == (Exit("exited", code=0), True, 1, b"word\n")
    limited = space.run("sleep 300 & echo word; wait", timeout_secs=0.5)
    assert (limited.exit, limited.held_output) == (Exit("timed_out", signal=signal.SIGTERM), False), "TERM went to the whole group"
    apart = space.run("setsid sleep 300 & echo word; wait", timeout_secs=0.5)
    assert (apart.exit, apart.held_output, apart.survivors) == (Exit("timed_out", signal=signal.SIGTERM), True, 1)
    free = space.run("sleep 300 > /dev/null 2>&1 & echo word")
    assert (free.held_output, free.survivors) == (False, 1)


def test_case_35_bytes_are_what_they_were_in_each_stream_live_and_replayed(space: LooseSpace) -> None:
    """Binary, NULs, terminal codes, a lone lead byte at the end, three-byte characters across the pieces of a pipe."""
    out = b"\0\x1b[2J" + os.urandom(200_000) + "€".encode() * 50_000 + b"\xe2"
    err = "ä".encode() * 60_001 + b"\xff\0"
    (space.base / "out").write_bytes(out)
    (space.base / "err").write_bytes(err)
    key, shim = start(space, f'{GATE}; cat "$BASE/out" & cat "$BASE/err" >&2; wait', separate=True)
    live = Reader(space, key)
    open_gate(space)
    exited = finish(space, key, shim)
    replayed = Reader(space, key).end()
    for reader in (live.end(), replayed):
        assert (bytes(reader.out), bytes(reader.err), reader.skipped) == (out, err, 0)
    assert space.output(exited) == (out, err)
    assert (exited.digest, exited.stderr_digest) == (blake3(out).hexdigest(), blake3(err).hexdigest())


def test_case_36_input_is_given_whole_or_at_its_end_and_is_never_the_drivers(space: LooseSpace) -> None:
    data = os.urandom(1 << 20)
    given = space.run("sha256sum; exec 3<>/dev/tty", stdin=data)
    assert space.output(given)[0].split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert given.exit == Exit("exited", code=1), "there is no terminal"
    assert space.run("read answer", stdin=None).exit == Exit("exited", code=1)
    assert space.output(space.run("cat; echo end", stdin=b""))[0] == b"end\n"
    assert space.output(space.run("head -c 3", stdin=b"one two"))[0] == b"one"
    assert space.output(space.run("cat; cat", stdin=b"once"))[0] == b"once"
    changed = space.run("printf x 2> /dev/null 1<> /proc/self/fd/0; cat", stdin=b"kept")
    assert space.output(changed)[0] == b"kept", "what one process of it reads no other can change"


def test_a_shim_owns_its_command_whatever_comes_in_at_its_socket(space: LooseSpace) -> None:
    """Noise, half a message, a frame that is too long, many that only connect, a wrong key, an old epoch: the command goes on."""
    key, shim = start(space, f"{GATE}; echo end")
    name = space.ledger.state.attempts[key].start.socket  # type: ignore[union-attr]
    silent = [connect_shim(space.paths.directory, name) for _ in range(3)]
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0", b"\0\0\0\x05{}{}{", b"\xff" * 70_000):
        with connect_shim(space.paths.directory, name) as noisy:
            noisy.sendall(noise)
    for message, answer in ((Attach(1, "another"), "not of another"), (Hello(0), "below the ledger's floor")):
        with connect_shim(space.paths.directory, name) as asking:
            protocol.send(asking, message)
            assert answer in getattr(protocol.receive(asking), "message", "")
    with connect_shim(space.paths.directory, name) as asking:
        protocol.send(asking, Hello(1))
        assert protocol.receive(asking) == HelloAnswer(key, shim)  # type: ignore[arg-type]
    crowd = [connect_shim(space.paths.directory, name) for _ in range(MOST_CONNECTIONS)]
    open_gate(space)
    assert finish(space, key, shim).exit == Exit("exited", code=0)
    for one in (*silent, *crowd):
        one.close()


def test_a_command_is_ended_on_request_with_all_it_started(space: LooseSpace) -> None:
    key, shim = start(space, f'sleep 300 & echo $! > "$BASE/sleeper"; {GATE}')
    sleeper = int(wait_until(lambda: (space.base / "sleeper").exists() and (space.base / "sleeper").read_text(), "the sleeper"))
    attempt = space.ledger.state.attempts[key]
    assert end_command(space.paths.directory, attempt, 1)
    assert finish(space, key, shim).exit == Exit("signaled", signal=signal.SIGKILL)
    assert not is_running(sleeper) and not end_command(space.paths.directory, attempt, 1)


def test_attaching_to_what_is_not_there_or_lost_says_so(space: LooseSpace) -> None:
    assert isinstance(Reader(space, "no/such/key").end().error, MisuseError)
    key, shim = start(space, f"echo one; {GATE}")
    reader = Reader(space, key)
    wait_until(lambda: reader.out == b"one\n", "the first word")
    kill_process(shim.pid)  # type: ignore[attr-defined]
    assert isinstance(reader.end().error, LostProcessError) and reader.exited is None


def test_rule_S3_an_exit_that_its_shim_has_not_synced_yet_is_synced_before_it_is_told(
    space: LooseSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record can be read as soon as it is written; a power cut may still take it."""
    request = space.request("never")
    append_fenced(space.ledger, 1, Prepare(request.key, "command", 1, 99, 1, "", space.space.mark("fake"), None, 0, ""))
    append_fenced(space.ledger, 1, Start(request.key, identify_self(HOST), "fake"))
    view, told, real = LedgerView(space.paths.ledger), [], os.fdatasync

    def note(descriptor: int) -> None:
        told.append("synced")
        real(descriptor)

    def answer() -> None:
        monkeypatch.setattr(os, "fdatasync", note)
        told.append(attach(space.paths.directory, view, request.key, 1, CLOCK, HOST, lambda stream, data: None).exit.code)
        monkeypatch.setattr(os, "fdatasync", real)

    try:
        with space.ledger.transaction() as transaction:
            transaction.append_shared(Exited(request.key, Exit("exited", code=7), "boot", 0, 0, 0, digest=blake3().hexdigest()))
            view.refresh()
            answer()
        answer()
    finally:
        view.close()
    assert told == ["synced", 7, 7], "the second time it is known to be on disk"


def test_a_shim_whose_queue_is_full_holds_nobody_up_who_would_ask_it(space: LooseSpace) -> None:
    """One that was stopped takes no connection; who comes last is refused at once, and does not wait to be let in."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(space.paths.directory, "sockets", "full"))
        listener.listen(0)
        waiting = []
        with pytest.raises(BlockingIOError):
            for _ in range(10):
                waiting.append(attaching.connect_shim(space.paths.directory, "full"))
        clock = FakeClock()
        watch = SilenceWatch(lambda: attaching.connect_shim(space.paths.directory, "full"), clock, 60.0)
        clock.advance(6)
        assert not watch.is_silent(), "its first question could not be put"
        for _ in range(59):
            clock.advance(1)
            assert not watch.is_silent(), "a look counts for a second at most"
        clock.advance(1)
        assert watch.is_silent()
        for connection in waiting:
            connection.close()


def test_rule_T2_a_reader_whose_shim_a_newer_epoch_killed_is_fenced_and_not_told_of_a_loss(space: LooseSpace) -> None:
    """The sweep is quicker than the next look at the floor is due: under a clock that stands still none ever is."""
    key, shim = start(space, f"echo one; {GATE}")
    view = LedgerView(space.paths.ledger)

    def take(stream: str, data: bytes) -> None:
        space.advance(**{key: "condemned"})
        kill_process(shim.pid)  # type: ignore[attr-defined]

    try:
        with pytest.raises(StaleEpochError, match="superseded by epoch 2"):
            attach(space.paths.directory, view, key, 1, FakeClock(), HOST, take)
    finally:
        view.close()


@pytest.mark.parametrize("total", [0, 5, HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 1, 3 * HEAD_BYTES])
@pytest.mark.parametrize("offset", [0, 3, HEAD_BYTES, HEAD_BYTES + 7, 2 * HEAD_BYTES + 9, 3 * HEAD_BYTES])
def test_a_kept_stream_is_taken_from_any_offset_on(total: int, offset: int) -> None:
    """Nothing twice, nothing left out unsaid: bytes given and bytes missing add up, and each given byte is the right one."""
    data = bytes(number * 7 % 251 for number in range(total))
    keeper = OutputKeeper()
    keeper.add(data)
    at = min(offset, total)
    for missing, piece in cut_from(keeper.kept().data, total, offset):
        at += missing
        assert data[at : at + len(piece)] == piece
        at += len(piece)
    assert at == max(total, min(offset, total))


def test_a_reader_passes_nothing_on_once_a_newer_epoch_exists_even_from_a_shim_that_does_not_look(space: LooseSpace) -> None:
    """Both ends look. Here the other end is a socket that goes on sending whatever the floor is."""
    request = space.request("never")
    prepared = Prepare(request.key, "command", 1, 99, 1, "", space.space.mark("fake"), None, 0, "")
    append_fenced(space.ledger, 1, prepared)
    append_fenced(space.ledger, 1, Start(request.key, identify_self(HOST), "fake"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(space.paths.directory, "sockets", "fake"))
        listener.listen()
        reader = Reader(space, request.key)
        listener.settimeout(DEADLINE_SECS)
        connection, _ = listener.accept()
        with connection:
            assert isinstance(protocol.receive(connection), Attach)
            protocol.send(connection, OutputFrame("out", 0, b"one"))
            wait_until(lambda: reader.out == b"one", "the first word")
            space.advance(**{request.key: "claimed"})
            seen = CLOCK.monotonic() + 2 * FLOOR_POLL_SECS
            wait_until(lambda: CLOCK.monotonic() > seen, "the next look at the floor")
            with contextlib.suppress(OSError):
                protocol.send(connection, OutputFrame("out", 3, b"two"))
            assert isinstance(reader.end().error, StaleEpochError) and reader.out == b"one"
