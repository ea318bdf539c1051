"""`recovery space start | advance | claim | show`, and `recovery ps | attach | logs | kill`: commands and spaces by hand.

A key that is started by hand has no intent in any log and is never part of a decision; it is fenced, recorded and ended like every other.
"""

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from eventlog.errors import CrashworthyError, MisuseError
from eventlog.events import Exit
from eventlog.show import encode_bytes, show_text
from recovery.calls import describe_exit
from recovery.command_log import state_of
from recovery.opening import space_paths
from recovery.space.local import SpacePaths
from recovery.space.port import Ended, Listed, Space, Stream
from recovery.space.request import CommandRequest, LeftBehind
from recovery.space.standalone import StandaloneSpace, find_ledger


@dataclass(frozen=True, slots=True)
class StartOrder:
    """What `space start` was asked for. `stdin` is a path, "" for none."""

    directory: str
    key: str
    epoch: int
    arguments: tuple[str, ...]
    where: str
    stdin: str
    separate: bool
    timeout_secs: float | None
    left_behind: LeftBehind
    as_json: bool


def start(order: StartOrder, open_space: "SpaceOpener") -> int:
    """Start a command, wait for its end, tell how it ended; the exit code is not the command's. Output comes live, or in the JSON."""
    if not order.arguments:
        raise MisuseError("there is no command; write it after --, for example `-- bash -c 'echo hello'`")
    stdin = _read_input(order.stdin) if order.stdin else None
    environment = sorted(os.environb.items())
    request = CommandRequest(
        order.key, [os.fsencode(word) for word in order.arguments], os.fsencode(os.path.abspath(order.where)), environment, stdin,
        order.separate, order.timeout_secs, order.left_behind,
    )  # fmt: skip
    space = open_space(order.directory, may_create=order.epoch)
    try:
        how = space.start(order.epoch, request)
        ended = _wait(space, order.epoch, order.key, order.as_json)
    finally:
        space.close()
    _tell_end(ended, order.as_json, {"how": how})
    return 0


def _read_input(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise MisuseError(f"--stdin {show_text(path)}: {error.strerror}; name a file that can be read") from error


def _wait(space: Space, epoch: int, key: str, as_json: bool) -> Ended:
    heard: dict[Stream, int] = {"out": 0, "err": 0}

    def hear(stream: Stream, data: bytes) -> None:
        heard[stream] += len(data)
        _write(stream, data)

    if as_json:
        return space.wait(epoch, key)
    ended = space.wait(epoch, key, hear)
    if not heard["out"] and not heard["err"]:
        _write("out", ended.out)
        _write("err", ended.err)
    return ended


def _write(stream: Stream, data: bytes) -> None:
    file = sys.stdout if stream == "out" else sys.stderr
    file.flush()
    file.buffer.write(data)
    file.buffer.flush()


def advance(directory: str, epoch: int, claim: tuple[str, ...], as_json: bool, open_space: "SpaceOpener") -> int:
    """Raise the floor; what is claimed goes on, everything else is ended."""
    space = open_space(directory, may_create=epoch)
    try:
        done = space.advance(epoch, claim)
    finally:
        space.close()
    if as_json:
        print(json.dumps({"floor": done.floor, "claimed": list(done.claimed), "condemned": list(done.condemned)}))
    else:
        print(f"floor {done.floor}: {_count(done.claimed, 'claimed')}, {_count(done.condemned, 'condemned and dead')}")
    return 0


def _count(keys: tuple[str, ...], word: str) -> str:
    named = ": " + ", ".join(show_text(key) for key in keys) if keys else ""
    return f"{len(keys)} {word}{named}"


def show(directory: str, as_json: bool, open_space: "SpaceOpener") -> int:
    """Print the space and every key it holds; nothing is changed."""
    space = open_space(directory)
    try:
        facts, listed = space.facts(), space.list()
    finally:
        space.close()
    if as_json:
        print(
            json.dumps(
                {
                    "space": facts.space_id, "generation": facts.generation, "floor": facts.floor, "mark": facts.mark,
                    "keys": [_row(one) for one in listed],
                }
            )
        )  # fmt: skip
        return 0
    print(f"space {facts.space_id}, generation {facts.generation}, floor {facts.floor}, kill mark {facts.mark}")
    for one in listed:
        print(_line(one))
    return 0


def list_running(directory: str, every: bool, as_json: bool, open_space: "SpaceOpener") -> int:
    """Print the commands that run, or every key; nothing is changed."""
    space = open_space(directory)
    try:
        listed = [one for one in space.list() if every or one.word in ("prepared", "running")]
    finally:
        space.close()
    if as_json:
        print(json.dumps([_row(one) for one in listed]))
    elif not listed:
        print("no command is running")
    else:
        for one in listed:
            print(_line(one))
    return 0


def attach(directory: str, key: str, as_json: bool, open_space: "SpaceOpener") -> int:
    """Follow a command's output until it ends, and tell how. Ctrl-C ends the following, not the command."""
    space = open_space(directory)
    try:
        ended = _wait(space, space.facts().floor, key, as_json)
    finally:
        space.close()
    _tell_end(ended, as_json, {})
    return 0


def logs(directory: str, key: str, stream: Stream, as_json: bool, open_space: "SpaceOpener") -> int:
    """Print what is kept of the output of a command that ended."""
    space = open_space(directory)
    try:
        ended = space.look(key)
    finally:
        space.close()
    if ended is None:
        raise MisuseError(f"{show_text(key)} has not ended; follow it with `recovery attach {show_text(directory)} {show_text(key)}`")
    if as_json:
        _tell_end(ended, True, {})
    else:
        _write("out", ended.err if stream == "err" else ended.out)
    return 0


def kill(directory: str, key: str, as_json: bool, open_space: "SpaceOpener") -> int:
    """End a running command and all it started. Its exit says by which signal; a session's driver settles the call with it."""
    space = open_space(directory)
    try:
        ended = space.end(space.facts().floor, key)
    finally:
        space.close()
    _tell_end(ended, as_json, {})
    return 0


def _tell_end(ended: Ended, as_json: bool, more: dict[str, Any]) -> None:
    if as_json:
        print(json.dumps({**more, **_ended(ended)}))
    else:
        print(f"{show_text(ended.key)}: {describe_end(ended)}", file=sys.stderr)


def describe_end(ended: Ended) -> str:
    """How an attempt ended, in words (case 33: none of them for another)."""
    held = "; something still holds its output open" if ended.held_output else ""
    match ended.word:
        case "exited":
            return (describe_exit(ended.exit) if ended.exit is not None else "ended") + held
        case "cut":
            return f"cut by a newer epoch ({describe_exit(ended.exit) if ended.exit is not None else 'no exit'})"
        case "void":
            return "never started"
        case "lost":
            return "lost: nobody recorded how it ended"
        case "prepared" | "running":
            return "running"
        case _:
            assert_never(ended.word)


def _exit(exit_: Exit | None) -> dict[str, Any] | None:
    return None if exit_ is None else {"kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "error": exit_.error}


def _ended(ended: Ended) -> dict[str, Any]:
    return {
        "key": ended.key, "state": ended.word, "epoch": ended.epoch, "exit": _exit(ended.exit),
        "out": encode_bytes(ended.out), "err": encode_bytes(ended.err), "out_total": ended.out_total, "err_total": ended.err_total,
        "digest": ended.digest, "held_output": ended.held_output,
    }  # fmt: skip


def _row(one: Listed) -> dict[str, Any]:
    return {
        "key": one.key, "state": one.word, "epoch": one.epoch, "pid": one.pid, "started_ms": one.started_ms, "ended_ms": one.ended_ms,
        "exit": _exit(one.exit),
    }  # fmt: skip


def _line(one: Listed) -> str:
    pid = f" pid {one.pid}" if one.pid else ""
    since = f" since {_time(one.started_ms)}" if one.started_ms else ""
    how = f": {describe_exit(one.exit)}" if one.exit is not None else ""
    return f"{show_text(one.key)}  {one.word}{pid} epoch {one.epoch}{since}{how}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
