"""`recovery rerun`: run a recorded session again from a settled event, or from each, and compare every image with the recorded one."""

import json
import os
import sys
from collections.abc import Mapping

from eventlog.errors import CrashworthyError, MisuseError
from eventlog.history import find_point, parse_point
from eventlog.reader import Reader
from eventlog.show import show_text
from eventlog.streams import choose_stream
from eventlog.values import Seq, StreamId
from recovery.command_log import state_of
from recovery.driver.order import Ports
from recovery.elsewhere import find_elsewhere
from recovery.opening import log_missing, log_path, should_exist
from recovery.rerun import History, Rerun, forkable, read_history, rerun_from, show_point
from recovery.settings import read_settings


def rerun(log: str, at: str | None, every: bool, session: str | None, as_json: bool, environ: Mapping[str, str], ports: Ports) -> int:
    """Run again and report; 1 when anything came out otherwise. Raises MisuseError, and what reading the log raises."""
    if (at is None) != every:
        raise MisuseError("recovery rerun: say from where: --at POINT, or --all for every settled event")
    state = state_of(log)
    path = log_path(state)
    if not os.path.exists(path):
        if should_exist(state):
            raise log_missing(state)
        raise MisuseError(f"{show_text(log)}: no log is there; name the state directory of a session")
    stream, history, points, passed = _read(path, at, session, environ, ports)
    for point, why in passed:
        _say(as_json, f"{show_point(stream, point)}: not run: {why}")
    done = []
    for point in points:
        done.append(rerun_from(path, stream, point, history, environ, ports, lambda line: None))
        _say(as_json, *_lines(stream, done[-1]))
    if as_json:
        runs = [{"at": one.at, "ran": one.ran, "equal": not one.differs, "differs": one.differs} for one in done]
        print(json.dumps({"session": stream, "runs": runs, "not_run": [{"at": seq, "why": why} for seq, why in passed]}))
    if passed and not points:
        raise MisuseError(f"session {show_text(stream)} cannot be run again from any of its events: {passed[-1][1]}")
    return 1 if any(one.differs for one in done) else 0


def _read(
    path: str, at: str | None, session: str | None, environ: Mapping[str, str], ports: Ports
) -> tuple[StreamId, History, list[int], list[tuple[int, str]]]:
    """The session, and from where it is run again: the point asked for, or every one that can be; with those that cannot, and why."""
    reader = Reader.open(path)
    try:
        row = choose_stream(reader, session)
        history = read_history(reader.events(row.id))
        if at is not None:
            return row.id, history, [int(find_point(reader, row, parse_point(at)))], []
        points = forkable(reader, row.id, history.points)
        said = read_settings(environ).checkpoints
        found = {point: history.obstacle(point) or _describe_elsewhere(reader, row.id, point, said, ports) for point in points}
    finally:
        reader.close()
    return row.id, history, [point for point, why in found.items() if not why], [(point, why) for point, why in found.items() if why]


def _describe_elsewhere(reader: Reader, stream: StreamId, point: int, said: str, ports: Ports) -> str:
    """Why no fork can go on from a point whose files are not all in the log, "" when it can."""
    try:
        find_elsewhere(reader, stream, Seq(point), said, ports.clock)
    except CrashworthyError as error:
        return str(error)
    return ""


def _lines(stream: StreamId, done: Rerun) -> list[str]:
    ran = f"{show_point(stream, done.at)}: {done.ran} calls ran again"
    return [f"{ran}: equal"] if not done.differs else [f"{ran}: different", *done.differs]


def _say(as_json: bool, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
