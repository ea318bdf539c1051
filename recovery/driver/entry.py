"""A driver from its first line to its exit code.

Order: fork the spawner (before any thread or log handle); claim the workspace; open or find the session; the ledger; the identity
file; raise the log's floor (T1); ledger fates (T2); kill (T3); gather, decide, act (T4 to T6); run the script; finish. Exit codes:
0 finished, 75 fenced, 78 needs a person or another configuration, 1 try again, 70 a bug.
"""

import contextlib
import errno
import os
import socket

from eventlog import steps
from eventlog.errors import CrashworthyError, tell_bug
from eventlog.show import show_text, show_word
from recovery.driver.begin import Begun, begin
from recovery.driver.epoch import under_epoch
from recovery.driver.order import Order, Ports, finished_error, say, say_nothing, tell
from recovery.driver.work import run_script
from recovery.settings import Settings
from recovery.space.spawner import fork_spawner
from recovery.words import name_state

BUG = 70
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def drive(order: Order, settings: Settings, ports: Ports) -> int:
    """Drive a session to its end; the exit code. Prints one sentence on stderr for every error."""
    steps.enter("driver", settings.epoch or 0)
    try:
        with contextlib.closing(fork_spawner(ports.clock, ports.host)) as spawner:
            return _drive(order, settings, ports, spawner)
    except CrashworthyError as error:
        tell(f"recovery: {advise(order, str(error))}")
        return error.exit_code
    except OSError as error:
        tell(f"recovery: {advise(order, _describe_system_error(error, order.state))}")
        return 1
    except KeyboardInterrupt:
        again = f"recovery drive {show_word(order.state)}" if order.act is None else order.act.command
        tell(f"recovery: interrupted; `{again}` goes on")
        return 130
    except Exception as error:  # noqa: BLE001
        # A bug: keep the evidence, and let no session go on from here.
        tell_bug(error)
        return BUG


def _describe_system_error(error: OSError, state: str) -> str:
    where = show_text(os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else state)
    if error.errno in _NO_ROOM:
        text = "nothing recorded is lost and nothing more was done: make room there and drive again"
        return f"{where}: no room is left ({error.strerror}); {text}"
    return f"{where}: {error.strerror or error}; nothing more was done, drive again when that is mended"


def advise(order: Order, text: str) -> str:
    """A message with the command to be run next: for an act its own, where that has the option, because a drive runs the script on, and
    ends the session."""
    if order.act is not None:
        if order.act.accepts_outside:
            text = text.replace("recovery drive STATE_DIR --accept-outside", f"{order.act.command} --accept-outside")
        text = text.replace("drive again", f"run `{order.act.command}` again")
    return name_state(text, order.state)


def _drive(order: Order, settings: Settings, ports: Ports, spawner: socket.socket) -> int:
    begun = begin(order, settings, ports)
    act = order.act
    if begun.known[0].is_finished:
        return _say_finished(begun)
    with under_epoch(begun, spawner, say if act is None else say_nothing) as context:  # an act prints its own answer on stdout
        if context is not None:
            code = run_script(context, order) if act is None else act.work(context)
    if context is None:
        return _say_finished(begun)
    if code == 0 and act is None:
        begun.release()
    return code


def _say_finished(begun: Begun) -> int:
    """Nothing follows the end of a session, and its workspace is free."""
    if begun.order.act is not None:
        raise finished_error(begun.order.state, begun.name)
    begun.release()
    tell(f"session {begun.name} has finished; `eventlog show {show_word(begun.order.state)}` prints its history")
    return 0
