"""`recovery note`: what completed, may have partly run, was restored, lies in quarantine, and must be done; from the log alone."""

import os
import sys

from eventlog.errors import MisuseError
from eventlog.reader import Reader
from eventlog.show import show_text, show_word
from eventlog.values import StreamId
from recovery.command_log import state_of
from recovery.fold_cache import Known
from recovery.journal import only_stream, read_state
from recovery.note import DEFAULT_BYTES, fit_note, make_note, write_json, write_text
from recovery.opening import log_missing, log_path, should_exist
from recovery.story import tell_story


def print_note(log: str, limit: int, as_json: bool) -> int:
    """Print the note of the session in a state directory. Raises MisuseError, LogMissingError, CorruptError."""
    state = state_of(log)
    if not os.path.exists(log_path(state)):
        if should_exist(state):
            raise log_missing(state)
        raise MisuseError(f"{show_text(log)}: no log is there; name the state directory of a session")
    reader = Reader.open(log_path(state))
    try:
        stream = only_stream(reader)
        known = read_state(reader, stream, is_placed=False)
        text = note_of(reader, stream, known, limit, as_json=as_json, place=show_word(state))
    finally:
        reader.close()
    sys.stdout.write(text)
    return 0


def note_of(
    reader: Reader, stream: StreamId, known: Known, limit: int = DEFAULT_BYTES, *, as_json: bool = False, place: str = "STATE_DIR"
) -> str:
    """The note of a session, in at most `limit` bytes. Raises CorruptError, MisuseError for too few bytes."""
    note = make_note(known[0], tell_story(reader.events(stream)), place)
    return fit_note(note, limit, write_json if as_json else write_text)
