"""Logs of trees: a directory as the first image of a session, and images as ones that only a hostile log holds."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import apsw

from eventlog import codec, events
from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.image import Entry, diff, root_hash
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Seq
from recovery.workspace.content import read_verified
from recovery.workspace.scan import scan
from tests.eventlog import support
from tests.eventlog.support import STREAM


def scan_tree(root: str) -> dict[bytes, Entry]:
    """The image of a directory."""
    return scan(root, side_directory_name=None).image


def log_of_tree(root: str, path: str) -> dict[bytes, Entry]:
    """Make a log at `path` whose first image is the directory `root`; that image."""
    image = scan_tree(root)

    def contents() -> Iterable[codec.Blob]:
        for at, entry in image.items():
            if entry.content is not None:
                yield from encode_content(read_verified(root, at, entry.content, entry.size))

    create_log(path, STREAM, support.opened(image=image), contents(), CountingIds())
    return image


def log_of_image(image: Mapping[bytes, Entry], contents: Iterable[bytes], path: str) -> None:
    """Make a log at `path` whose first image is `image`, valid or not."""
    blobs = [blob for data in contents for blob in encode_content([data])]
    name = support.opened().event
    assert isinstance(name, events.SessionOpened)
    create_log(path, STREAM, Record(name, diff({}, image)), blobs, CountingIds())


def file_of(data: bytes, mode: int = 0o644, **columns: object) -> Entry:
    """The entry of a file with these bytes."""
    return Entry("f", mode, codec.content_id(data), len(data), **columns)  # type: ignore[arg-type]


def read_image_of(path: str) -> dict[bytes, Entry]:
    """The first image of the log's session."""
    reader = Reader.open(path)
    try:
        return dict(reader.image(STREAM, Seq(1)))
    finally:
        reader.close()


def root_of(image: Mapping[bytes, Entry]) -> str:
    return root_hash(image).hex()


def import_stream(source: str, path: str, name: str) -> None:
    """Put the stream of the log `source` into the log at `path` as an imported one, by hand. Nobody has either open."""
    handle = apsw.Connection(path)
    handle.execute("ATTACH ? AS other", (source,))
    handle.execute("BEGIN")
    handle.execute(
        "INSERT INTO stream SELECT ?, NULL, NULL, floor, head_seq, head_hash, (SELECT value FROM other.meta WHERE key = 'log_id'), id"
        " FROM other.stream WHERE id = ?",
        (name, STREAM),
    )
    columns = "seq, id, epoch, kind, version, payload, prev_hash, hash"
    handle.execute(f"INSERT INTO event (stream, {columns}) SELECT ?, {columns} FROM other.event WHERE stream = ?", (name, STREAM))
    columns = "seq, idx, path, op, kind, mode, content, size, target, link, xattrs, uid, gid, acl, mtime_ns"
    handle.execute(
        f"INSERT INTO image_change (stream, {columns}) SELECT ?, {columns} FROM other.image_change WHERE stream = ?", (name, STREAM)
    )
    handle.execute("INSERT OR IGNORE INTO main.blob SELECT * FROM other.blob")
    handle.execute("COMMIT")
    handle.close()


def remove_tree(root: str | Path) -> None:
    """Take a directory away, whatever its modes and depth."""
    if os.path.lexists(root):
        subprocess.run(["chmod", "-R", "u+rwx", os.fspath(root)], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", os.fspath(root)], check=True)
