"""`recovery space start | advance | claim | show`, and `recovery ps | attach | logs | kill`: commands and spaces by hand.

A key that is started by hand has no intent in any log and is never part of a decision; it is fenced, recorded and ended like every other.
"""

import contextlib
import errno
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_never

import msgspec

from eventlog.errors import FullError, MisuseError, SpaceFileError
from eventlog.events import Exit
from eventlog.ports import Clock, Host, Ids
from eventlog.show import as_word, encode_bytes, show_text, show_word
from recovery.calls import describe_exit
from recovery.space.bubblewrap import Bubblewrap, choose_bubblewrap, parse_space
from recovery.space.condemned import NO_TRUST, Trust
from recovery.space.holders import Holders
from recovery.space.listing import AttemptWord, ListedAttempt
from recovery.space.marks import choose_marks
from recovery.space.port import Ended, Space
from recovery.space.protocol import StreamName
from recovery.space.request import CommandRequest, LeftBehind
from recovery.space.standalone import StandaloneSpace, find_space, make_space

_RUNS = (AttemptWord.PREPARED, AttemptWord.RUNNING)


class Opener(msgspec.Struct, frozen=True):
    """How a command opens the space in a directory: with which kill mark, and on which ports."""

    mark: str
    clock: Clock
    ids: Ids
    host: Host
    holders: str
    silent_secs: float

    def open(self, directory: str) -> StandaloneSpace:
        """The space that is there. Raises MisuseError, CorruptError."""
        setting = choose_marks(self.mark)
        return StandaloneSpace(find_space(directory), setting, self.clock, self.host, None, self._registry(), self.silent_secs)

    def make(self, directory: str, bubblewrap: Bubblewrap | None = None, trust: Trust = NO_TRUST) -> StandaloneSpace:
        """The same, made where the directory is missing or empty; with `bubblewrap` what is started by it is confined. Raises FullError
        and MisuseError where it cannot be made."""
        setting = choose_marks(self.mark)  # before anything is made
        registry = self._registry(is_made=True)
        with telling_of(directory):
            paths = make_space(directory, self.ids)
            return StandaloneSpace(paths, setting, self.clock, self.host, bubblewrap, registry, self.silent_secs, trust)

    def _registry(self, *, is_made: bool = False) -> Holders | None:
        return Holders(self.holders, self.clock) if is_made or os.path.isdir(self.holders) else None


class StartOrder(msgspec.Struct, frozen=True):
    """What `space start` was asked for. `stdin` is a path, "" for none; `space` the kind of space, in which `where` is the workspace."""

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
    space: str = "local"


def start(order: StartOrder, opener: Opener) -> int:
    """Start a command, wait for its end, tell how it ended; the exit code is not the command's. Output comes live, or in the JSON."""
    if not order.arguments:
        raise MisuseError("there is no command; write it after --, for example `-- bash -c 'echo hello'`")
    _check_order(order, opener)
    stdin = read_input("--stdin", order.stdin) if order.stdin else None
    environment = sorted(os.environb.items())
    request = CommandRequest(
        order.key, [os.fsencode(word) for word in order.arguments], os.fsencode(os.path.abspath(order.where)), environment, stdin,
        order.separate, order.timeout_secs, order.left_behind,
    )  # fmt: skip
    bubblewrap = choose_bubblewrap([parse_space(order.space, "--space")], order.where, os.environ.get("PATH"), order.left_behind)
    space = opener.make(order.directory, bubblewrap)
    try:
        with telling_of(order.directory):
            if space.facts().floor == 0:
                space.advance(order.epoch)  # a new space: there is nobody to take it from
            how = space.start(order.epoch, request)
        ended = _wait(space, order.epoch, order.key, order.as_json)
    finally:
        space.close()
    _tell_end(ended, order.as_json, {"how": how})
    if order.left_behind == "fail" and ended.survivors:
        if order.as_json:
            print(f"{show_text(order.key)}: {_count_left(ended)}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def telling_of(directory: str) -> Iterator[None]:
    """What the system refuses in here is told as what it is: a space whose files cannot be written. What is printed is not in here."""
    try:
        yield
    except OSError as error:
        named = isinstance(error.filename, str | bytes)
        where = show_text(os.fsdecode(error.filename)) if named else f"the space in {show_text(directory)}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FullError(f"{where}: no room is left ({error.strerror}); make room there and run the same command again") from error
        raise SpaceFileError(f"{where}: {error.strerror or error}; mend that and run the same command again") from error


def parse_left_behind(value: str) -> LeftBehind:
    """The policy of this name. Raises MisuseError."""
    match value:
        case "kill" | "keep" | "fail":
            return value
        case other:
            raise MisuseError(f"--policy {show_text(other)} is none of kill, keep, fail; leave it out for kill")


def _check_order(order: StartOrder, opener: Opener) -> None:
    """Raise MisuseError for what could not be done, before anything is made."""
    limit = order.timeout_secs
    if limit is not None and not 0 < limit < math.inf:
        raise MisuseError(f"--timeout {limit}: a time limit is a positive number of seconds; leave it out for none")
    if order.left_behind == "keep" and choose_marks(opener.mark).kind == "environment":
        raise MisuseError("--policy keep needs a stronger kill mark than environment: nothing is provable of what outlives its shim")


def read_input(option: str, path: str) -> bytes:
    """The content of a regular file; a pipe or a device might never end. Raises MisuseError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise MisuseError(f"{option} {show_text(path)} is not a regular file; name one that has an end")
            return file.read()
    except OSError as error:
        raise MisuseError(f"{option} {show_text(path)}: {error.strerror}; name a file that can be read") from error


def _wait(space: Space, epoch: int, key: str, as_json: bool) -> Ended:
    heard: dict[StreamName, int] = {"out": 0, "err": 0}

    def hear(stream: StreamName, data: bytes) -> None:
        heard[stream] += len(data)
        _write(stream, data)

    if as_json:
        return space.wait(epoch, key)
    ended = space.wait(epoch, key, hear)
    if not heard["out"] and not heard["err"]:
        _write("out", ended.out)
        _write("err", ended.err)
    return ended


def _write(stream: StreamName, data: bytes) -> None:
    file = sys.stdout if stream == "out" else sys.stderr
    if file is None:  # closed by whoever started us: nobody wants it
        return
    file.flush()
    file.buffer.write(data)
    file.buffer.flush()


def advance(directory: str, epoch: int, claim: tuple[str, ...], as_json: bool, opener: Opener, trust: Trust = NO_TRUST) -> int:
    """Raise the floor; what is claimed goes on, everything else is ended. Exit 1 where a key to claim does not go on: the floor has risen
    all the same. With `trust` what cannot be proved dead is taken for dead on a person's word, which the ledger records."""
    space = opener.make(directory, trust=trust)
    try:
        with telling_of(directory):
            done = space.advance(epoch, claim)
            missed = {key: space.look(key) for key in claim if key not in done.claimed}
    finally:
        space.close()
    if as_json:
        print(json.dumps({"floor": done.floor, "claimed": list(done.claimed), "condemned": list(done.condemned)}))
    else:
        print(f"floor {done.floor}: {_count(done.claimed, 'claimed')}, {_count(done.condemned, 'condemned and dead')}")
    for key, ended in missed.items():
        how = "did not answer" if ended is None else describe_end(ended)
        print(f"{show_text(key)} is not claimed: {how}; the floor is {done.floor} all the same", file=sys.stderr)
    return 1 if missed else 0


def _count(keys: tuple[str, ...], word: str) -> str:
    named = ": " + ", ".join(show_text(key) for key in keys) if keys else ""
    return f"{len(keys)} {word}{named}"


def show(directory: str, as_json: bool, opener: Opener) -> int:
    """Print the space and every key it holds; nothing is changed."""
    space = opener.open(directory)
    try:
        facts, listed = space.facts(), space.list()
    finally:
        space.close()
    if as_json:
        print(
            json.dumps(
                {
                    "space": facts.space_id, "generation": facts.generation, "floor": facts.floor, "mark": facts.mark,
                    "workspace": show_text(facts.workspace), "holder": show_text(facts.holder), "keys": [_row(one) for one in listed],
                }
            )
        )  # fmt: skip
        return 0
    print(f"space {facts.space_id}, generation {facts.generation}, floor {facts.floor}, kill mark {facts.mark}")
    if facts.holder:
        print(f"workspace {show_text(facts.workspace)}, held by {show_text(facts.holder)}")
    for one in listed:
        print(_line(one))
    return 0


def list_running(directory: str, every: bool, as_json: bool, opener: Opener) -> int:
    """Print the commands that run, or every key; nothing is changed."""
    space = opener.open(directory)
    try:
        listed = [one for one in space.list() if every or one.word in _RUNS]
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


def attach(directory: str, key: str, as_json: bool, opener: Opener) -> int:
    """Follow a command's output until it ends, and tell how. Ctrl-C ends the following, not the command."""
    space = opener.open(directory)
    try:
        ended = _wait(space, space.facts().floor, key, as_json)
    finally:
        space.close()
    _tell_end(ended, as_json, {})
    return 0


def logs(directory: str, key: str, stream: StreamName, as_json: bool, opener: Opener) -> int:
    """Print what is kept of the output of a command that ended."""
    space = opener.open(directory)
    try:
        ended = space.look(key)
    finally:
        space.close()
    if ended is None:
        raise MisuseError(
            f"{show_text(key)} has not ended; follow it with `recovery attach {show_word(directory)} "
            f"{as_word(show_text(key), is_path=False)}`"
        )
    if as_json:
        _tell_end(ended, True, {})
    else:
        _write("out", ended.err if stream == "err" else ended.out)
        if ended.missing:
            print(f"{show_text(key)}: {_say_missing(ended)}", file=sys.stderr)
    return 1 if ended.missing else 0


def kill(directory: str, key: str, as_json: bool, opener: Opener) -> int:
    """End a running command and all it started. Its exit says by which signal; a session's driver settles the call with it."""
    space = opener.open(directory)
    try:
        ended = space.end(space.facts().floor, key)
    finally:
        space.close()
    if ended.word is AttemptWord.KEPT:
        raise MisuseError(
            f"{show_text(key)}: its command has ended, and what it left behind was kept by policy; "
            f"`recovery space advance --dir {show_word(directory)} --epoch {ended.epoch + 1}` ends that"
        )
    _tell_end(ended, as_json, {})
    return 0


def _tell_end(ended: Ended, as_json: bool, more: dict[str, Any]) -> None:
    if as_json:
        print(json.dumps({**more, **ended_json(ended)}))
    else:
        print(f"{show_text(ended.key)}: {describe_end(ended)}", file=sys.stderr)


def describe_end(ended: Ended) -> str:
    """How an attempt ended, in words (case 33: none of them for another)."""
    held = "; something still holds its output open" if ended.held_output else ""
    held += f"; {_say_missing(ended)}" if ended.missing else ""
    held += f"; {_count_left(ended)}" if ended.survivors else ""
    match ended.word:
        case AttemptWord.EXITED | AttemptWord.KEPT:
            kept = "; processes it left behind were kept" if ended.word is AttemptWord.KEPT else ""
            return (describe_exit(ended.exit) if ended.exit is not None else "ended") + kept + held
        case AttemptWord.CUT:
            return "cut by a newer epoch" + (f" ({describe_exit(ended.exit)})" if ended.exit is not None else "")
        case AttemptWord.VOID:
            return "never started"
        case AttemptWord.LOST:
            return "lost: its shim ended without a record, nobody knows what its command did"
        case AttemptWord.TORN:
            return "unknown: a record was torn that may have been its start"
        case AttemptWord.PREPARED | AttemptWord.RUNNING:
            return "running"
        case other:
            assert_never(other)


def _say_missing(ended: Ended) -> str:
    return f"of its {ended.out_total + ended.err_total} bytes of output nothing could be kept ({ended.missing})"


def _count_left(ended: Ended) -> str:
    return f"{ended.survivors} process{'es' if ended.survivors > 1 else ''} left behind by it, ended"


def _exit(exit_: Exit | None) -> dict[str, Any] | None:
    return None if exit_ is None else {"kind": exit_.kind, "code": exit_.code, "signal": exit_.signal, "error": exit_.error}


def ended_json(ended: Ended) -> dict[str, Any]:
    """How an attempt ended, as `--json` prints it."""
    return {
        "key": ended.key, "state": ended.word.value, "epoch": ended.epoch, "exit": _exit(ended.exit),
        "out": encode_bytes(ended.out), "err": encode_bytes(ended.err), "out_total": ended.out_total, "err_total": ended.err_total,
        "digest": ended.digest, "held_output": ended.held_output, "missing": ended.missing, "survivors": ended.survivors,
        "left": ended.left,
    }  # fmt: skip


def _row(one: ListedAttempt) -> dict[str, Any]:
    return {
        "key": one.key, "kind": one.kind, "state": one.word.value,
        "epoch": one.epoch, "call": one.call, "attempt": one.attempt, "cut_by": one.cut_by,
        "pid": one.shim.pid if one.shim is not None and one.word in _RUNS else None,
        "started_ms": one.started_ms, "ended_ms": one.ended_ms, "exit": _exit(one.exit),
        "out_total": one.output_total, "out_kept": one.output_kept, "err_total": one.stderr_total, "err_kept": one.stderr_kept,
        "survivors": one.survivors, "left": one.left, "held_output": one.held_output, "mark": one.mark,
    }  # fmt: skip


def _line(one: ListedAttempt) -> str:
    pid = f" shim {one.shim.pid}" if one.shim is not None and one.word in _RUNS else ""
    since = f" since {_time(one.started_ms)}" if one.started_ms else ""
    how = f": {describe_exit(one.exit)}" if one.exit is not None else ""
    return f"{show_text(one.key)}  {one.word.value}{pid} epoch {one.epoch}{since}{how}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
