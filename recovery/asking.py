"""What a person adds to a session's log beside its driver: that it is to pause, and answers (rule L2).

An append stands only while what was read is still all there is; where the head moved it is read and judged again. So of two answers given
at once one stands, and the other is told of it.
"""

import contextlib
from collections.abc import Callable

from eventlog import events, steps
from eventlog.command_writing import announced
from eventlog.errors import HeadMovedError, MisuseError
from eventlog.ports import Ids
from eventlog.records import Record
from eventlog.show import show_text
from eventlog.values import Seq
from eventlog.writer import Writer
from recovery.journal import only_stream, read_state
from recovery.opening import check_log_exists, log_path
from recovery.state import SessionState

Judge = Callable[[SessionState], events.PauseRequested | events.ApprovalAnswered | None]


def append_judged(state_directory: str, ids: Ids, judge: Judge, purpose: str) -> SessionState:
    """Append what `judge` makes of the session as it stands, or nothing (None); the state that was judged.

    Raises what `judge` raises, LogMissingError, MisuseError, CorruptError, BusyError.
    """
    steps.enter("person", 0)
    check_log_exists(state_directory)
    path = log_path(state_directory)
    with announced(path, "append"), contextlib.closing(Writer.open(path, ids)) as writer:
        while True:
            state = read_state(writer.reader, stream := only_stream(writer.reader))[0]
            event = judge(state)
            if event is None:
                return state
            with contextlib.suppress(HeadMovedError):
                writer.append_unfenced(stream, [Record(event)], purpose, after=Seq(state.head_seq))
                return state


def check_going_on(state: SessionState, state_directory: str) -> None:
    """Raise MisuseError for a session that has ended: nothing follows its end."""
    if state.is_finished:
        raise MisuseError(f"session {state.opened.name} in {show_text(state_directory)} has finished; nothing is left to do in it")
