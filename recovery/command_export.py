"""`recovery export`: a session in a bundle, with what of its files is only in its checkpoint store.

`eventlog export` knows the log and nothing else. A bundle made here holds everything that the session needs to go on elsewhere; it is
imported as any other.
"""

import contextlib
import json
import os

from eventlog.bundle_export import Fetch, export, export_moved
from eventlog.command_bundle import exported_json, exported_line
from eventlog.command_writing import announced
from eventlog.errors import MisuseError
from eventlog.fork import newest_forkable
from eventlog.history import read_upto
from eventlog.preflight import check_writable_place
from eventlog.reader import Reader, StreamRow
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.values import Seq
from eventlog.writer import Writer
from recovery.command_log import state_of
from recovery.driver.order import Ports
from recovery.elsewhere import find_elsewhere
from recovery.opening import check_log_exists, log_path
from recovery.settings import Settings


def export_session(
    log: str, to: str, upto: int | None, move: bool, session: str | None, as_json: bool, settings: Settings, ports: Ports
) -> int:
    """Write the bundle. Raises as `eventlog.bundle_export.export` and `export_moved`, and as `find_elsewhere`; nothing was made then."""
    if move and upto is not None:
        raise MisuseError("--move takes all of a session; leave out --upto, or export without --move")
    state = state_of(log)
    check_log_exists(state)
    path = log_path(state)

    def find(reader: Reader, row: StreamRow, at: Seq) -> Fetch | None:
        return find_elsewhere(reader, row.id, at, settings.checkpoints, ports.clock)

    if move:
        check_writable_place(os.path.dirname(path), allow_network=settings.allow_network)
        with announced(path, "move"), contextlib.closing(Writer.open(path, ports.ids)) as writer:
            row = choose_stream(writer.reader, session)
            made = export_moved(writer, row.id, to, ports.ids, ports.clock, find(writer.reader, row, row.head_seq))
    else:
        with contextlib.closing(Reader.open(path)) as reader:
            row = choose_stream(reader, session)
            head = row.head_seq if upto is None else Seq(upto)
            if not 1 <= head <= row.head_seq:
                raise MisuseError(f"{path}: session {show_text(row.id)} has no event {head}; its events are 1 to {row.head_seq}")
            fetch = find(reader, row, newest_forkable(read_upto(reader, row.id, head)))
            made = export(reader, row.id, to, ports.ids, head, fetch)
    said = exported_json(path, to, row.id, made, move)
    print(json.dumps(said) if as_json else exported_line(to, row.id, made, move))
    return 0
