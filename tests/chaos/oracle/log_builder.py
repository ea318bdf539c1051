"""Builds logs straight from eventlog/README, sharing no code with the oracle nor with the engine.

A `Trial` is a list of event drafts, a real workspace directory and everything else a judge request names. Tests change the drafts
and `write` the log (so that its chain is right), or write it and then `tamper` with rows (so that it is not).
"""

import base64
import hashlib
import json
import os
import sqlite3
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from blake3 import blake3

from chaos.oracle.judging import judge

LOG_ID = "00112233445566778899aabbccddeeff"
STREAM = "session-1"
BOOT = "boot-1"
CHUNK = 1 << 20
COLUMNS = ("path", "op", "kind", "mode", "content", "size", "target", "link", "xattrs", "uid", "gid", "acl", "mtime_ns")
Row = dict[str, Any]
Image = dict[bytes, Row]

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE stream (id TEXT PRIMARY KEY, parent TEXT, forked_at INTEGER, floor INTEGER, head_seq INTEGER, head_hash BLOB);
CREATE TABLE event (stream TEXT, seq INTEGER, id BLOB UNIQUE, epoch INTEGER, kind TEXT, version INTEGER, payload TEXT,
  prev_hash BLOB, hash BLOB, PRIMARY KEY (stream, seq));
CREATE TABLE image_change (stream TEXT, seq INTEGER, idx INTEGER, path BLOB, op TEXT, kind TEXT, mode INTEGER, content BLOB,
  size INTEGER, target BLOB, link BLOB, xattrs BLOB, uid INTEGER, gid INTEGER, acl BLOB, mtime_ns INTEGER,
  PRIMARY KEY (stream, seq, idx)) WITHOUT ROWID;
CREATE TABLE blob (hash BLOB PRIMARY KEY, codec TEXT, size INTEGER, bytes BLOB);
"""
REFUSE = "BEGIN SELECT RAISE(ABORT, 'refused'); END;"
TRIGGERS = {
    **{f"{table}_no_update": f"BEFORE UPDATE ON {table} {REFUSE}" for table in ("event", "image_change", "blob", "meta")},
    **{f"{table}_no_delete": f"BEFORE DELETE ON {table} {REFUSE}" for table in ("event", "image_change", "blob", "meta", "stream")},
    "stream_floor": f"BEFORE UPDATE ON stream WHEN NEW.floor < OLD.floor {REFUSE}",
    "stream_head": f"BEFORE UPDATE ON stream WHEN NEW.head_seq NOT IN (OLD.head_seq, OLD.head_seq + 1) {REFUSE}",
}


def digest(data: bytes) -> bytes:
    """H of the README."""
    return blake3(data).digest()


def length_first(data: bytes) -> bytes:
    """b of the README."""
    return struct.pack(">I", len(data)) + data


def maybe(data: bytes | None) -> bytes:
    """opt of the README."""
    return b"\x00" if data is None else b"\x01" + length_first(data)


def scan(workspace: Path) -> tuple[Image, dict[bytes, bytes]]:
    """The image of a real directory as `put` rows, and the contents of its files by hash."""
    root = os.fsencode(workspace)
    rows: Image = {}
    contents: dict[bytes, bytes] = {}
    groups: dict[tuple[int, int], list[bytes]] = {}
    found = [b""]
    for place, directories, files in os.walk(root):
        found += [os.path.relpath(os.path.join(place, name), root) for name in directories + files]
    for path in found:
        full = os.path.join(root, path) if path else root
        status = os.lstat(full)
        if stat.S_ISSOCK(status.st_mode):
            continue
        rows[path] = row_of(full, path, status, contents)
        if not stat.S_ISDIR(status.st_mode):
            groups.setdefault((status.st_dev, status.st_ino), []).append(path)
    for paths in groups.values():
        for path in paths if len(paths) > 1 else []:
            rows[path]["link"] = min(paths)
    return rows, contents


def row_of(full: bytes, path: bytes, status: os.stat_result, contents: dict[bytes, bytes]) -> Row:
    """The `put` row of one path; a file's bytes go to `contents`."""
    row = bare_row(path, "put") | {"mode": stat.S_IMODE(status.st_mode), "mtime_ns": status.st_mtime_ns}
    if stat.S_ISREG(status.st_mode):
        data = Path(os.fsdecode(full)).read_bytes()
        contents[digest(data)] = data
        row |= {"kind": "f", "content": digest(data), "size": len(data), "xattrs": pairs_of(full, path)}
    elif stat.S_ISDIR(status.st_mode):
        row |= {"kind": "d", "xattrs": pairs_of(full, path)}
    elif stat.S_ISLNK(status.st_mode):
        row |= {"kind": "l", "mode": 0o777, "target": os.readlink(full)}
    else:
        row["kind"] = "p"
    return row


def pairs_of(full: bytes, path: bytes) -> bytes | None:
    """The `pairs` of a path's user attributes."""
    names = sorted(os.fsencode(name) for name in os.listxattr(full) if name.startswith("user."))
    wanted = [name for name in names if path or name != b"user.crashworthy.root"]
    return b"".join(length_first(name) + length_first(os.getxattr(full, name)) for name in wanted) or None


def bare_row(path: bytes, op: str) -> Row:
    """A row with nothing but its path and op."""
    row: Row = dict.fromkeys(COLUMNS)
    return row | {"path": path, "op": op, "kind": "", "mode": 0, "size": 0, "mtime_ns": 0}


def changes_between(old: Image, new: Image) -> list[Row]:
    """The rows that lead from one image to the other, in byte order of path."""
    rows = []
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            rows.append(bare_row(path, "del"))
        elif path not in old or {**old[path], "mtime_ns": 0} != {**new[path], "mtime_ns": 0}:
            rows.append(new[path])
        elif old[path] != new[path]:
            rows.append(bare_row(path, "times") | {"mtime_ns": new[path]["mtime_ns"]})
    return rows


def root_hash(image: Image, excludes: list[str] | None = None) -> str:
    """The root hash of an image, by plain recursion."""
    lines = b"".join(length_first(line.encode()) for line in excludes or [])
    tail = marks(image[b""]) + maybe(digest(b"crashworthy excludes 1\0" + lines) if lines else None)
    return digest(b"crashworthy image 1\0" + struct.pack(">H", image[b""]["mode"]) + tail + directory_hash(image, b"")).hex()


def marks(row: Row) -> bytes:
    """Attributes, owner and acl of an entry (the last two are not tracked)."""
    return maybe(None if row["xattrs"] is None else digest(b"crashworthy xattrs 1\0" + row["xattrs"])) + b"\0\0"


def directory_hash(image: Image, above: bytes) -> bytes:
    """The hash of one directory of an image."""
    names = {}
    for path, row in image.items():
        parent, _, name = path.rpartition(b"/")
        if path and parent == above:
            names[name] = entry(image, path, name, row)
    count = struct.pack(">Q", len(names))
    if len(names) <= 4096:
        return digest(b"crashworthy directory 1\0" + count + b"".join(names[name] for name in sorted(names)))
    buckets = []
    for number in range(256):
        members = [name for name in sorted(names) if digest(name)[0] == number]
        inside = struct.pack(">Q", len(members)) + b"".join(names[name] for name in members)
        buckets.append(digest(b"crashworthy bucket 1\0" + inside))
    return digest(b"crashworthy buckets 1\0" + count + b"".join(buckets))


def entry(image: Image, path: bytes, name: bytes, row: Row) -> bytes:
    """One entry of a directory."""
    body: bytes = b""
    if row["kind"] == "f":
        body = bytes(row["content"]) + struct.pack(">Q", row["size"])
    elif row["kind"] == "d":
        body = directory_hash(image, path)
    elif row["kind"] == "l":
        body = length_first(row["target"])
    head: bytes = length_first(name) + row["kind"].encode() + struct.pack(">H", row["mode"])
    return head + body + maybe(row["link"]) + marks(row)


def encode_row(row: Row) -> bytes:
    """`row` of the README, for rows whose owner is not tracked."""
    parts = [length_first(row["path"]), length_first(row["op"].encode()), length_first(row["kind"].encode())]
    parts += [struct.pack(">H", row["mode"]), maybe(row["content"]), struct.pack(">Q", row["size"])]
    parts += [maybe(row["target"]), maybe(row["link"]), maybe(row["xattrs"]), maybe(None), maybe(row["acl"])]
    return b"".join(parts) + struct.pack(">q", row["mtime_ns"])


def text_or_b64(data: bytes) -> Any:
    """A JSON value for bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


@dataclass
class Draft:
    """An event that is not written yet. `changes` are rows."""

    kind: str
    epoch: int
    payload: dict[str, Any]
    changes: list[Row] = field(default_factory=list)


@dataclass
class Trial:
    """One trial under construction; the fields below `log` are those of a judge request."""

    home: Path
    events: list[Draft] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    image: Image = field(default_factory=dict)
    epoch: int = 0
    witness_lines: list[str] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)
    excludes: list[str] = field(default_factory=list)
    omitted: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("work", "scratch", "quarantine", "state"):
            (self.home / name).mkdir(parents=True)
        self.request = {
            "op": "judge",
            "log": str(self.log),
            "scratch": str(self.home / "scratch"),
            "stream": STREAM,
            "workspace": str(self.work),
            "witness": str(self.home / "witness"),
            "witnessed": [0, 1],
            "acknowledged": [],
            "reference": None,
            "reference_outputs": None,
            "reference_exits": None,
            "on_interrupted": "reissue",
            "script_length": 2,
            "expect_finished": True,
            "outside_edits": False,
            "superseded": [],
            "quarantine": str(self.home / "quarantine"),
        }

    @property
    def log(self) -> Path:
        """Where the log is written."""
        return self.home / "state" / "log.sqlite"

    @property
    def work(self) -> Path:
        """The workspace."""
        return self.home / "work"

    def append(self, kind: str, changes: list[Row] | None = None, **payload: Any) -> int:
        """Add an event; returns its seq."""
        self.events.append(Draft(kind, self.epoch, {"at_ms": 1, **payload}, changes or []))
        return len(self.events)

    def observe(self) -> list[Row]:
        """The changes since the last look at the workspace."""
        new, contents = scan(self.work)
        new = {path: row for path, row in new.items() if not any((path + b"/").startswith(one + b"/") for one in self.omitted)}
        rows = changes_between(self.image, new)
        self.image = new
        self.contents |= contents
        return rows

    def root(self) -> str:
        """The root of the image as it is now."""
        return root_hash(self.image, self.excludes)

    def open(self, untracked: list[Any] | None = None) -> int:
        """`session_opened` with the workspace as it is."""
        rows = self.observe()
        return self.append(
            "session_opened",
            rows,
            name="nightly",
            workspace=str(self.work),
            mode="transactional",
            on_interrupted=self.request["on_interrupted"],
            script=[],
            root=self.root(),
            root_identity={"id": "r", "inode": 1, "birth_ns": 1, "filesystem": "f"},
            ledger_id="l",
            generation=1,
            untracked=untracked or [],
            **({"excludes": self.excludes, "track": []} if self.excludes else {}),
        )

    def drive(self) -> int:
        """`driver_started` of the next epoch, with an output file of its own."""
        self.epoch += 1
        self.outputs.append([f"HEARTBEAT {self.epoch} 1 0"])
        identity = {"nonce": f"n{self.epoch}", "pid": 10 + self.epoch, "start_ticks": 1, "boot_id": BOOT, "pid_namespace": 1}
        return self.append(
            "driver_started", identity=identity, ledger_id="l", generation=1, kill_mark={"cgroup": None, "environment": "m"}
        )

    def start(self, call: int, attempt: int = 1, index: int | None = None, policy: str = "after-restore", note: str = "") -> int:
        """`attempt_started`; `note` is what the command writes to the witness (`start`, `start end`)."""
        key = f"{LOG_ID}/{STREAM}/{call}/{attempt}/1"
        self.witness_lines += [f"{key} {word}" for word in note.split()]
        return self.append(
            "attempt_started",
            call=call,
            attempt=attempt,
            script_index=call - 1 if index is None else index,
            tool="bash",
            input={"run": "x"},
            policy=policy,
            key=key,
            request_digest="d",
        )

    def finish(self, call: int, attempt: int = 1, output: bytes = b"", untracked: list[Any] | None = None, ack: bool = True) -> int:
        """`call_settled` finished, with what changed in the workspace, and the driver's ACK."""
        rows = self.observe()
        root = self.root()
        kept = {"total": len(output), "kept": len(output), "cut": False, "blob": self.keep(output)}
        ended = {"kind": "exited", "code": 0}
        seq = self.append(
            "call_settled",
            rows,
            call=call,
            attempt=attempt,
            ended="finished",
            label=None,
            reason=None,
            exit=ended,
            output=kept,
            root=root,
            untracked=untracked or [],
        )
        if ack:
            self.outputs[-1].append(f"ACK {call} {seq} {root}")
        return seq

    def note_outside(self) -> int:
        """`workspace_observed` with what changed since the last look."""
        rows = self.observe()
        return self.append("workspace_observed", rows, root=self.root(), untracked=[])

    def interrupt(self, call: int, attempt: int = 1) -> int:
        """`call_settled` interrupted, with the image unchanged."""
        return self.append(
            "call_settled",
            call=call,
            attempt=attempt,
            ended="interrupted",
            label="restore",
            reason="unknown",
            exit=None,
            output=None,
            root=self.root(),
            untracked=[],
        )

    def restore(self, call: int, target: int, displaced: list[str], restored: int = 1) -> int:
        """Decision, quarantine and end of a restore to the image as it is now, `target` its seq."""
        root = self.root()
        decided = self.append(
            "recovery_decided",
            label="restore-and-rerun",
            call=call,
            attempt=1,
            obligation=True,
            target_seq=target,
            target_root=root,
            mode="transactional",
            facts={"exit": "unknown"},
        )
        directory = f"{LOG_ID}-{decided}"
        for path in displaced:
            victim = self.home / "quarantine" / directory / path
            victim.parent.mkdir(parents=True, exist_ok=True)
            victim.write_text("victim")
        self.append("quarantined", decision_seq=decided, directory=directory, paths=displaced)
        self.append("restore_finished", decision_seq=decided, root=root, restored=restored, displaced=len(displaced), rounds=1,
                    reverted=restored, reimaged=0, accepted=False)  # fmt: skip
        return decided

    def end(self) -> int:
        """`session_finished`."""
        return self.append("session_finished", root=self.root())

    def keep(self, data: bytes) -> str:
        """Keep a content as a blob; returns its hex name."""
        self.contents[digest(data)] = data
        return digest(data).hex()

    def write(self) -> None:
        """Write the log and the files beside it. Everything after the first event stays in the WAL."""
        (self.home / "witness").write_text("".join(line + "\n" for line in self.witness_lines))
        paths = [self.home / f"stdout-{number}" for number in range(len(self.outputs))]
        for path, lines in zip(paths, self.outputs, strict=True):
            path.write_text("".join(line + "\n" for line in lines))
        self.request["acknowledged"] = [str(path) for path in paths]
        connection = create_log(self.log)
        for content in self.contents.values():
            insert_content(connection, content)
        previous = bytes(32)
        for seq, draft in enumerate(self.events, 1):
            previous = insert_event(connection, seq, draft, previous)
        copy_live(connection, self.log)

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """Judge the trial; the verdicts by oracle."""
        return {verdict["oracle"]: verdict for verdict in judge(self.request)["verdicts"]}

    def failing(self) -> set[str]:
        """The oracles that say fail; every other one must not have crashed."""
        verdicts = self.verdicts()
        crashed = [verdict["detail"] for verdict in verdicts.values() if "crashed" in verdict["detail"]]
        assert not crashed, crashed
        return {name for name, verdict in verdicts.items() if verdict["verdict"] == "fail"}


def create_log(path: Path) -> sqlite3.Connection:
    """A new empty log, its schema in the main file and later commits in the WAL."""
    building = path.with_name("building.sqlite")
    connection = sqlite3.connect(building, isolation_level=None)
    connection.execute("PRAGMA page_size = 16384")
    connection.execute(f"PRAGMA application_id = {0x43574C31}")
    connection.execute("PRAGMA user_version = 3")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executescript(TABLES)
    for name, body in TRIGGERS.items():
        connection.execute(f"CREATE TRIGGER {name} {body}")
    connection.execute("INSERT INTO meta VALUES ('format', '3'), ('log_id', ?)", (LOG_ID,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return connection


def copy_live(connection: sqlite3.Connection, path: Path) -> None:
    """Take the open log's files as a kill would leave them: the main file and a WAL that nobody checkpointed."""
    building = path.with_name("building.sqlite")
    path.write_bytes(building.read_bytes())
    path.with_name(path.name + "-wal").write_bytes(building.with_name(building.name + "-wal").read_bytes())
    connection.close()
    building.unlink()


def insert_content(connection: sqlite3.Connection, data: bytes) -> None:
    """A blob in the codec its size asks for: chunks above 1 MiB, else zstd when that is shorter, else raw."""
    if len(data) > CHUNK:
        chunks = [data[place : place + CHUNK] for place in range(0, len(data), CHUNK)]
        for chunk in chunks:
            insert_content(connection, chunk)
        row = (digest(data), "chunks", len(data), b"".join(map(digest, chunks)))
    else:
        packed = zstandard.ZstdCompressor().compress(data)
        row = (digest(data), "zstd", len(data), packed) if len(packed) < len(data) else (digest(data), "raw", len(data), data)
    connection.execute("INSERT OR IGNORE INTO blob VALUES (?, ?, ?, ?)", row)


def version_of(draft: Draft) -> int:
    """The version of an event: the first, but for a session that excludes paths."""
    return 2 if "excludes" in draft.payload else 1


def insert_event(connection: sqlite3.Connection, seq: int, draft: Draft, previous: bytes) -> bytes:
    """Append one draft in a transaction; returns its hash."""
    stored = json.dumps(draft.payload)
    identity = hashlib.md5(f"event {seq}".encode()).digest()
    changes = digest(b"crashworthy changes 1\0" + b"".join(map(encode_row, draft.changes)))
    record = [length_first(LOG_ID.encode()), length_first(STREAM.encode()), struct.pack(">Q", seq), length_first(identity)]
    record += [struct.pack(">Q", draft.epoch), length_first(draft.kind.encode()), struct.pack(">I", version_of(draft))]
    record += [length_first(stored.encode()), changes, previous]
    hashed = digest(b"crashworthy event 1\0" + b"".join(record))
    connection.execute("BEGIN IMMEDIATE")
    row = (STREAM, seq, identity, draft.epoch, draft.kind, version_of(draft), stored, previous, hashed)
    connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    marks = ", ".join("?" * (3 + len(COLUMNS)))
    for idx, change in enumerate(draft.changes):
        connection.execute(f"INSERT INTO image_change VALUES ({marks})", (STREAM, seq, idx, *(change[name] for name in COLUMNS)))
    advance(connection, seq, draft, hashed)
    connection.execute("COMMIT")
    return hashed


def advance(connection: sqlite3.Connection, seq: int, draft: Draft, hashed: bytes) -> None:
    """Move the stream's cache to a new head."""
    if seq == 1:
        connection.execute("INSERT INTO stream VALUES (?, NULL, NULL, 0, 1, ?)", (STREAM, hashed))
        return
    connection.execute("UPDATE stream SET head_seq = ?, head_hash = ?", (seq, hashed))
    if draft.kind == "driver_started":
        connection.execute("UPDATE stream SET floor = max(floor, ?)", (draft.epoch,))


def tamper(trial: Trial, *statements: str) -> None:
    """Change rows behind the triggers' back, which are there again afterwards."""
    connection = sqlite3.connect(trial.log, isolation_level=None)
    for name in TRIGGERS:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for name, body in TRIGGERS.items():
        connection.execute(f"CREATE TRIGGER {name} {body}")
    connection.close()
