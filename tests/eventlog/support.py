"""A small log with everything in it, for the tests of eventlog; and processes to use and kill it in."""

import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import apsw
from blake3 import blake3
from msgspec.structs import replace

from eventlog import codec, connection, events, steps
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.fork import fork_record
from eventlog.image import Change, Entry, diff, encode_xattrs, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.records import Appended, Dropped, Record
from eventlog.show import encode_bytes
from eventlog.values import CHUNK_BYTES, ContentId, Epoch, Seq, StreamId
from eventlog.writer import Writer

ROOT = Path(__file__).resolve().parents[2]
STREAM = StreamId("nightly")
HELLO = b"hello\n" * 40
BIG = bytes(range(256)) * 4096 + b"one chunk and a little more"
OUTPUT = b"\x1b[2J\xff output"
assert len(BIG) > CHUNK_BYTES

IMAGE: dict[bytes, Entry] = {
    b"": Entry("d", 0o755, mtime_ns=1),
    b"a": Entry("f", 0o644, codec.content_id(HELLO), len(HELLO), link=b"a", mtime_ns=2),
    b"b": Entry("f", 0o644, codec.content_id(HELLO), len(HELLO), link=b"a", mtime_ns=2),
    b"caf\xe9\n": Entry("d", 0o2770, mtime_ns=3),
    b"caf\xe9\n/big": Entry("f", 0o4711, codec.content_id(BIG), len(BIG), xattrs=b"\0\0\0\6user.a\0\0\0\1v", mtime_ns=-4),
    b"l": Entry("l", 0o777, target=b"caf\xe9\n", mtime_ns=5),
    b"p": Entry("p", 0o600, mtime_ns=6),
}
LATER: dict[bytes, Entry] = {
    **{path: entry for path, entry in IMAGE.items() if path not in (b"l", b"p")},
    b"p": Entry("p", 0o600, mtime_ns=66),
    b"z": Entry("f", 0o600, codec.content_id(b""), 0, mtime_ns=7),
}


def opened(name: str = "nightly", image: dict[bytes, Entry] | None = None) -> Record:
    """The first event of a session, with its image."""
    found = IMAGE if image is None else image
    identity = events.RootIdentity("root-1", 7, None, "ef53")
    script = [{"tool": "bash", "run": "echo one >> log.txt"}]
    event = events.SessionOpened(
        1, name, {"b64": "Y2Fm6Q=="}, "transactional", "reissue", script, root_hash(found).hex(), identity, "ledger-1", 1, [], [], [],
        None, None,
    )  # fmt: skip
    return Record(event, diff({}, found))


def started(nonce: str = "n1") -> events.DriverStarted:
    """What a driver writes first."""
    return events.DriverStarted(2, events.DriverIdentity(nonce, 41, 99, "boot-1", 1), "ledger-1", 1, "cgroup")


def note(text: str) -> Record:
    """An event that says only `text`."""
    return Record(events.Noted(3, text))


def attempt(call: int) -> Record:
    """The intent of a call."""
    key = f"log/nightly/{call}/1/1"
    return Record(events.AttemptStarted(4, call, 1, call - 1, "bash", {"run": "true"}, "never", key, "d" * 64, False, ""))


def settled(call: int, image: dict[bytes, Entry], changes: tuple[Change, ...]) -> Record:
    """The outcome of a call, with what it changed."""
    output = events.Output(len(OUTPUT), len(OUTPUT), False, codec.content_id(OUTPUT).hex())
    ended = events.Exit("exited", code=0)
    event = events.CallSettled(5, call, 1, "finished", "finished", "", ended, output, root_hash(image).hex(), [])
    return Record(event, changes)


def blobs() -> list[codec.Blob]:
    """Every content of the sample images, and the output."""
    return [blob for data in (HELLO, BIG, b"", OUTPUT) for blob in encode_content([data])]


def create(directory: Path, *, name: str = "log.sqlite") -> str:
    """A log with its first event only; its path."""
    path = str(directory / name)
    create_log(path, STREAM, opened(), blobs(), CountingIds())
    return path


def create_small(directory: Path) -> str:
    """A log with its first event only, over an empty workspace; its path."""
    path = str(directory / "log.sqlite")
    create_log(path, STREAM, opened(image={b"": IMAGE[b""]}), (), CountingIds())
    return path


def open_writer(path: str, *, first_id: int = 1_000_000, busy_ms: int = 0, vfs: str | None = None) -> Writer:
    """A writer that does not wait for the lock, unless told to. Two writers of one log need ids of their own."""
    handle = connection.open_writable(path) if vfs is None else apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    handle.set_busy_timeout(busy_ms)
    return Writer(handle, path, CountingIds(first_id), busy_ms=busy_ms)


def add(writer: Writer, epoch: int, *texts: str) -> list[Appended]:
    """Append notes."""
    return writer.append(STREAM, Epoch(epoch), [note(text) for text in texts], (), "note")


def fill(writer: Writer) -> None:
    """Two drivers, a call with changes, the end: nine events in all."""
    writer.raise_floor(STREAM, Epoch(1), started())
    writer.append(STREAM, Epoch(1), [attempt(1)], (), "intent")
    writer.append(STREAM, Epoch(1), [settled(1, LATER, diff(IMAGE, LATER))], blobs(), "outcome")
    writer.raise_floor(STREAM, Epoch(4), started("n4"))
    add(writer, 4, "caf\u00e9 \u202e \x1b[31m", "two\nlines")
    root = root_hash(LATER).hex()
    writer.append(STREAM, Epoch(4), [Record(events.Synced(6, root, "boot-1")), Record(events.SessionFinished(7, root))], (), "finish")


def make_log(directory: Path) -> str:
    """The whole sample log, closed, its newest events in the WAL; its path."""
    path = create(directory)
    writer = open_writer(path)
    fill(writer)
    writer.close()
    return path


def as_format_2(path: str) -> str:
    """The log at `path` as a writer of format 2 would have left it, its rows the same; its path."""
    old = path + ".format-3"
    os.rename(path, old)
    for suffix in ("-wal", "-shm"):
        os.rename(path + suffix, old + suffix)
    handle = connection.create(path, 2)
    handle.execute("ATTACH ? AS old", (old,)).fetchall()
    handle.execute("BEGIN").fetchall()
    for table in ("meta", "stream", "event", "image_change", "blob", "dropped", "pin"):
        changed = "SELECT key, iif(key = 'format', '2', value) FROM old.meta" if table == "meta" else f"SELECT * FROM old.{table}"
        handle.execute(f"INSERT INTO main.{table} {changed}").fetchall()
    handle.execute("COMMIT").fetchall()
    handle.execute("DETACH old").fetchall()
    handle.close()
    for suffix in ("", "-wal", "-shm"):
        os.unlink(old + suffix)
    return path


def make_golden(directory: Path) -> str:
    """The log that stands as golden/format-N.sqlite for the format of today: every kind of event, a fork, an imported input."""
    path = make_log(directory)
    writer = open_writer(path, first_id=2_000_000)
    fork, root = StreamId("fork"), root_hash(LATER).hex()
    parent_hash = next(stored.hash for stored in writer.reader.events(STREAM) if stored.seq == 4)
    script = [{"tool": "bash", "run": "true"}]
    calls = [events.ForkedCall(1, 0, "bash", "finished", root, "", "", None, None)]
    forked = events.SessionForked(
        20, "fork", "forked", writer.log_id, STREAM, 4, parent_hash.hex(), "transactional", "stop", script, calls, root, [], [], [],
        None, None, [],
    )  # fmt: skip
    writer.open_stream(fork, Record(forked, diff({}, LATER)), "fork", STREAM, Seq(4))
    writer.raise_floor(fork, Epoch(2), started("n2"))
    key, digest = "log/fork/2/1/1", "e" * 64
    kinds: list[events.Event] = [
        events.InputAdmitted(21, "request-1", {"say": "hello"}),
        events.AttemptStarted(22, 2, 1, 0, "bash", {"run": "[redacted]"}, "never", key, digest, redacted=True, request_id=""),
        events.RecoveryDecided(23, "restore_and_interrupt", 2, 1, True, 1, root, "transactional", {"exit": "unknown"}),
        events.Quarantined(24, 5, "log-5", ["a", {"b64": "/w=="}]),
        events.RestoreFinished(25, 5, root, 1, 2, 1, 1, 0, accepted=False),
        events.CallSettled(26, 2, 1, "interrupted", "restore_and_interrupt", "killed", None, None, root, []),
        events.CallUndone(27, 1, "its checkpoint was lost", 5),
        events.CallReplayed(28, 1, 2, root),
        events.CheckpointTaken(29, digest, root, 3),
        events.ModeSwitched(30, "checkpoint", "above the limit", digest),
        events.SessionPaused(31, root, "asked"),
        events.SessionResumed(32),
        events.SessionFailed(33, root, "no room"),
        events.SessionMoved(34, digest),
    ]
    writer.append(fork, Epoch(2), [Record(kind) for kind in kinds], (), "golden")
    writer.close()
    checkpoint(path)
    return path


EXCLUDES = ("*.o", "caf\udce9/")


def with_owners(image: dict[bytes, Entry]) -> dict[bytes, Entry]:
    """The image as a session has it that tracks owners and ACLs; one entry has an ACL."""
    acl = b"\2\0\0\0" + b"".join(struct.pack("<HHI", tag, 6, number) for tag, number in ((1, 2**32 - 1), (2, 12), (4, 2**32 - 1)))
    pairs = encode_xattrs([(b"system.posix_acl_access", acl)])
    owned = {path: replace(entry, owner=(12, 34)) for path, entry in image.items()}
    return {**owned, b"caf\xe9\n": replace(owned[b"caf\xe9\n"], acl=pairs)}


def make_golden_with_excludes(directory: Path) -> str:
    """The log that stands as golden/format-2-excludes.sqlite: a session that excludes paths and tracks owners and ACLs, and its fork."""
    path = str(directory / "log.sqlite")
    before, after = with_owners(IMAGE), with_owners(LATER)
    first, root = opened(image=before).event, root_hash(after, EXCLUDES).hex()
    assert isinstance(first, events.SessionOpened)
    lines = [encode_bytes(line.encode("utf-8", "surrogateescape")) for line in EXCLUDES]
    first = replace(first, root=root_hash(before, EXCLUDES).hex(), excludes=lines, track=["owners", "acls"])
    create_log(path, STREAM, Record(first, diff({}, before)), blobs(), CountingIds())
    writer = open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), started())
    writer.append(STREAM, Epoch(1), [attempt(1)], (), "intent")
    outcome = settled(1, after, diff(before, after))
    assert isinstance(outcome.event, events.CallSettled)
    writer.append(STREAM, Epoch(1), [Record(replace(outcome.event, root=root), outcome.changes)], (), "outcome")
    parent = list(writer.reader.events(STREAM))
    forked = fork_record(parent, Seq(4), name="fork", reason="forked", parent_log=writer.log_id, parent=STREAM, now_ms=20)
    writer.open_stream(StreamId("fork"), forked, "fork", STREAM, Seq(4))
    writer.close()
    checkpoint(path)
    return path


def make_golden_with_groups(directory: Path) -> str:
    """The log that stands as golden/format-3-groups.sqlite: hard-link groups of symlinks and FIFOs in each kind that may have changes, an
    output kept by stream, a session whose parent is in the log."""
    path = str(directory / "log.sqlite")
    twice = {**IMAGE, b"l": replace(IMAGE[b"l"], link=b"l"), b"l2": replace(IMAGE[b"l"], link=b"l")}
    pipes = {**twice, b"p": replace(IMAGE[b"p"], link=b"p"), b"p2": replace(IMAGE[b"p"], link=b"p")}
    after = {**{name: entry for name, entry in pipes.items() if name != b"l2"}, b"l": IMAGE[b"l"], b"z": LATER[b"z"]}
    restored = {**after, b"": replace(after[b""], mtime_ns=8)}
    create_log(path, STREAM, opened(image=twice), blobs(), CountingIds())
    writer = open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), started())
    observed = events.WorkspaceObserved(3, root_hash(pipes).hex(), [events.Untracked("s", "socket")])
    writer.append(STREAM, Epoch(1), [Record(observed, diff(twice, pipes))], (), "observe")
    writer.append(STREAM, Epoch(1), [attempt(1)], (), "intent")
    outcome = settled(1, after, diff(pipes, after))
    assert isinstance(outcome.event, events.CallSettled)
    apart = events.Stderr(3, 3, cut=False, digest="3" * 64)
    content = codec.content_id(OUTPUT).hex()
    output = events.Output(len(OUTPUT) + 1, len(OUTPUT), True, content, "4" * 64, apart, held=True, missing="")
    writer.append(STREAM, Epoch(1), [Record(replace(outcome.event, output=output), outcome.changes)], (), "outcome")
    root = root_hash(after).hex()
    decided = events.RecoveryDecided(6, "restore_and_interrupt", 2, 1, True, 5, root, "transactional", {})
    finished = events.RestoreFinished(7, 6, root, 1, 0, 1, 0, 1, accepted=False)
    writer.append(STREAM, Epoch(1), [Record(decided), Record(finished, diff(after, restored))], (), "restore")
    made = events.RootRecorded(8, "rebuilt", events.RootIdentity("r2", 6, None, "0"))
    writer.append(STREAM, Epoch(1), [Record(made)], (), "root")
    parent = list(writer.reader.events(STREAM))
    forked = fork_record(parent, Seq(7), name="fork", reason="forked", parent_log=writer.log_id, parent=STREAM, now_ms=20)
    writer.open_stream(StreamId("fork"), forked, "fork", STREAM, Seq(7))
    placed = events.SessionPlaced(21, "/elsewhere", events.RootIdentity("r3", 0, None, ""), "l2", 1, "/kept")
    writer.append(StreamId("fork"), Epoch(0), [Record(placed)], (), "place")
    writer.close()
    checkpoint(path)
    return path


def make_golden_with_checkpoints(directory: Path) -> str:
    """The log that stands as golden/format-3-checkpoints.sqlite: a session of mode auto that switches, and whose later contents lie in a
    checkpoint store; a fork of it."""
    path, digest = str(directory / "log.sqlite"), "5" * 64
    first = opened().event
    assert isinstance(first, events.SessionOpened)
    limits, checkpoints = events.Limits(1 << 30, 1000, None), events.Checkpoints("/store", 2, "")
    asked = replace(first, mode="auto", limits=limits, checkpoints=checkpoints)
    create_log(path, STREAM, Record(asked, opened().changes), blobs(), CountingIds())
    writer = open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), started())
    writer.append(STREAM, Epoch(1), [attempt(1)], (), "intent")
    outside = replace(LATER[b"z"], content=blake3(b"in the store").digest(), size=12)
    after = {**LATER, b"z": outside}
    writer.record_dropped([Dropped(ContentId(blake3(b"in the store").digest()), 12, "checkpointed", 7)])
    root = root_hash(after).hex()
    switched = [
        settled(1, after, diff(IMAGE, after)),
        Record(events.ModeSwitched(8, "checkpoint", "1001 paths, above the limit of 1000", digest)),
        Record(events.CheckpointTaken(8, digest, root, 3)),
    ]
    writer.append(STREAM, Epoch(1), switched, (), "outcome")
    parent = list(writer.reader.events(STREAM))
    forked = fork_record(parent, Seq(6), name="fork", reason="forked", parent_log=writer.log_id, parent=STREAM, now_ms=20)
    writer.open_stream(StreamId("fork"), forked, "fork", STREAM, Seq(6))
    writer.close()
    checkpoint(path)
    return path


def make_golden_with_questions(directory: Path) -> str:
    """The log that stands as golden/format-3-requests.sqlite: a pause that is asked for, and what a person is asked about calls."""
    path = str(directory / "log.sqlite")
    create_log(path, STREAM, opened(), blobs(), CountingIds())
    writer = open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), started())
    writer.append(STREAM, Epoch(1), [attempt(1)], (), "intent")
    writer.append(STREAM, Epoch(1), [settled(1, LATER, diff(IMAGE, LATER))], (), "outcome")
    run = {"tool": "bash", "run": "true"}
    kinds: list[events.Event] = [
        events.PauseRequested(3, "the machine is needed"),
        events.ApprovalAsked(4, 2, 0, "bash", run, "", ""),
        events.ApprovalAnswered(5, 6, "edited", {"tool": "bash", "run": {"b64": "/w=="}}, "other bytes"),
        events.ApprovalAsked(6, 2, None, "bash", run, "key", "digest"),
        events.ApprovalAnswered(7, 8, "rejected", None, "not this one"),
    ]
    writer.append(STREAM, Epoch(1), [Record(kind) for kind in kinds], (), "golden")
    writer.close()
    checkpoint(path)
    return path


def checkpoint(path: str) -> None:
    """Bring everything into the one file and remove the side files."""
    handle = apsw.Connection(path)
    handle.execute("SELECT count(*) FROM event").fetchall()
    assert handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    handle.close()
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)


def tamper(path: str, *statements: str) -> None:
    """Change rows behind the triggers' back; the triggers are there again afterwards. Nobody has the log open."""
    handle = apsw.Connection(path)
    triggers = [str(row[0]) for row in handle.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")]
    for (name,) in handle.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        handle.execute(f"DROP TRIGGER {name}")
    handle.pragma("ignore_check_constraints", True)
    for statement in statements:
        handle.execute(statement).fetchall()
    for sql in triggers:
        handle.execute(sql)
    handle.close()


def texts(path: str) -> list[str]:
    """The notes of a log, in order, the chain checked."""
    reader = Reader.open(path)
    try:
        return [stored.event.text for stored in reader.events(STREAM) if isinstance(stored.event, events.Noted)]
    finally:
        reader.close()


def head(path: str) -> tuple[int, int]:
    """Head seq and floor of a log, the chain checked."""
    reader = Reader.open(path)
    try:
        assert list(reader.events(STREAM))[-1].seq == reader.streams()[0].head_seq
        row = reader.streams()[0]
        return row.head_seq, row.floor
    finally:
        reader.close()


def image_at(path: str, seq: int) -> dict[bytes, Entry]:
    """The image at a seq."""
    reader = Reader.open(path)
    try:
        return dict(reader.image(STREAM, Seq(seq)))
    finally:
        reader.close()


def run_in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; its wait status. No log may be open here: handles do not cross a fork."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - the child must never run on into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


class Recorder:
    """Notes the steps it is told of."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def pass_step(self, step: str) -> None:
        self.steps.append(step)


class Killer:
    """Sends SIGKILL to its own process at one step."""

    def __init__(self, at: str) -> None:
        self._at = at

    def pass_step(self, step: str) -> None:
        if step == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class Calling:
    """Runs something once, at the first pass of a step with this name."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work: Callable[[], None] | None = work

    def pass_step(self, step: str) -> None:
        if self._work is not None and step.split(":")[1] == self._name:
            work, self._work = self._work, None
            work()


def record_steps(work: Callable[[], None]) -> list[str]:
    """The steps that `work` passes in a process of its own, which has just started counting."""
    read_end, write_end = os.pipe()

    def recorded() -> None:
        recorder = Recorder()
        steps._process.counts.clear()  # a test before this one may have counted in the process it is forked from
        steps.install(recorder)
        work()
        os.write(write_end, "\n".join(recorder.steps).encode())

    assert run_in_child(recorded) == 0
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        return file.read().decode().split("\n")


def kill_at(step: str, work: Callable[[], None]) -> None:
    """Run `work` in a child that kills itself at `step`; it must have died of that."""

    def doomed() -> None:
        steps._process.counts.clear()
        steps.install(Killer(step))
        work()

    status = run_in_child(doomed)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"{step} was not reached: wait status {status}"
