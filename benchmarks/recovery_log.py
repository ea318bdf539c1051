"""A session of many calls, as its driver would have written it: each call changed one file of a small tree."""

import os

from eventlog import events
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.image import Entry, diff, root_hash
from eventlog.ports import LinuxHost, RandomIds
from eventlog.process_identity import identify_self
from eventlog.records import Record
from eventlog.show import encode_bytes
from eventlog.values import ContentId, Epoch, StreamId
from eventlog.writer import Writer
from recovery.journal import Journal
from recovery.opening import fold_cache_of, log_path, space_paths
from recovery.space.ledger import create_ledger
from recovery.space.ledger_lines import LEDGER_FORMAT
from recovery.space.records import Header
from recovery.workspace.scan import Scanner
from recovery.workspace.side import read_root_identity

NAME = StreamId("bench")
BATCH = 500
FILES = 50


def make_session(state: str, root: str, calls: int) -> None:
    """A session of so many calls that have all finished, without its end, in `state`, over the workspace `root`."""
    os.makedirs(state)
    os.makedirs(root)
    for number in range(FILES):
        with open(os.path.join(root, f"f{number}"), "wb") as file:
            file.write(b"%d\n" % number)
    image = dict(Scanner(root).scan().image.items())
    identity = read_root_identity(root)
    script = [{"tool": "bash", "run": f"echo {number} > f{number % FILES}"} for number in range(calls)]
    found = events.RootIdentity(identity.id or "", identity.inode, identity.birth_ns, identity.filesystem)
    opened = events.SessionOpened(
        at_ms=1, name=NAME, workspace=encode_bytes(os.fsencode(root)), mode="transactional", on_interrupted="stop", script=script,
        root=root_hash(image).hex(), root_identity=found, ledger_id="bench-ledger", generation=1, untracked=[], excludes=[], track=[],
        limits=None, checkpoints=None,
    )  # fmt: skip
    contents = [blob for number in range(FILES) for blob in encode_content([b"%d\n" % number])]
    create_log(log_path(state), NAME, Record(opened, diff({}, image)), contents, RandomIds())
    space_paths(state).make()
    create_ledger(space_paths(state).ledger, Header(LEDGER_FORMAT, "bench-ledger", 1))
    _write_calls(state, image, calls)


def _write_calls(state: str, image: dict[bytes, Entry], calls: int) -> None:
    me = identify_self(LinuxHost())
    driver = events.DriverIdentity("bench", me.pid, me.start_ticks, me.boot_id, me.pid_namespace)
    writer = Writer.open(log_path(state), RandomIds())
    journal = Journal(writer, NAME, Epoch(1), cache=fold_cache_of(state))  # keeps the fold as a driver's does
    journal.raise_floor(events.DriverStarted(1, driver, "bench-ledger", 1, "cgroup"))
    root = root_hash(image).hex()
    records: list[Record] = []
    kept = {number: list(encode_content([b"%d\n" % number])) for number in range(FILES)}
    for number in range(1, calls + 1):
        path = b"f%d" % (number % FILES)
        # Content and back: the image at the end is the workspace's, and every call has a change.
        other = kept[(number + number // FILES) % FILES if number <= calls - FILES else number % FILES]
        entry = Entry("f", image[path].mode, ContentId(other[0].content), other[0].size, mtime_ns=image[path].mtime_ns)
        before, image = {path: image[path]}, {**image, path: entry}
        changes = diff(before, {path: entry})
        root = root_hash(image).hex()
        key = f"bench/{NAME}/{number}/1/1"
        call = {"tool": "bash", "run": f"echo {number} > f{number % FILES}", "timeout_secs": None, "policy": "never"}
        records.append(
            Record(
                events.AttemptStarted(
                    1, number, 1, number - 1, "bash", call, "never", key, "d" * 64, redacted=False, request_id=""
                )
            )
        )
        output = events.Output(0, 0, False, ContentId(kept[0][0].content).hex(), "d" * 64)
        ended = events.Exit("exited", code=0)
        records.append(Record(events.CallSettled(1, number, 1, "finished", "live", "", ended, output, root, []), changes))
        if len(records) >= BATCH or number == calls:
            journal.append(records, (), "bench")
            records = []
    journal.close()
