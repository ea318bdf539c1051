"""Pins: events whose image compaction keeps. The one thing of a log that people put in and take out again."""

import apsw

from eventlog.errors import MisuseError
from eventlog.show import as_word, show_text
from eventlog.values import Seq, StreamId
from eventlog.writer import Writer


def add_pin(writer: Writer, stream: StreamId, seq: Seq, note: str) -> bool:
    """Pin an event; False when it is pinned already (its note stays). Raises MisuseError when there is no such event."""

    def work(handle: apsw.Connection) -> bool:
        if not writer.reader.rows("SELECT 1 FROM event WHERE stream = ? AND seq = ?", (stream, seq)):
            raise MisuseError(
                f"{writer.name}: session {show_text(stream)} has no event {seq}; `eventlog show {as_word(writer.name)}` lists what there is"
            )
        handle.execute("INSERT INTO pin (stream, seq, note) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (stream, seq, note)).fetchall()
        return handle.changes() > 0

    return writer.maintain("pin", work)


def remove_pin(writer: Writer, stream: StreamId, seq: Seq) -> bool:
    """Take a pin away; False when there was none."""

    def work(handle: apsw.Connection) -> bool:
        handle.execute("DELETE FROM pin WHERE stream = ? AND seq = ?", (stream, seq)).fetchall()
        return handle.changes() > 0

    return writer.maintain("pin", work)
