"""The oracle as the runner sees it: a process of its own that shares no code with the engine, asked over a pipe."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaos.drivers import Place
from chaos.results import OracleVerdict, Verdict
from eventlog.errors import required

_ABSENT = "absent"
_SHOWN = 200
JUDGE = Path(__file__).resolve().parent / "oracle" / "judge.py"


class Judgement(msgspec.Struct, frozen=True):
    """The oracle's answer to one trial (chaos/oracle/server.py has its fields). `final_parts` and `events` are handed on as they came."""

    verdicts: tuple[OracleVerdict, ...] = ()
    labels: dict[str, int] = {}
    restored: int = 0
    displaced: int = 0
    digest: str | None = None
    error: str | None = None
    decisions: tuple[str, ...] = ()
    final: str | None = None
    final_parts: dict[str, Any] | None = None
    events: tuple[dict[str, Any], ...] = ()
    lost_calls: int = 0
    bound: int = 0


class OracleProcess:
    """One warm oracle process, started at the first question and again when it died."""

    def __init__(self, places: Sequence[str]) -> None:
        self._command = [sys.executable, "-I", "-S", str(JUDGE)]
        for place in places:
            self._command += ["--path", place]
        self._process: subprocess.Popen[bytes] | None = None

    def judge(self, request: Mapping[str, Any]) -> Judgement:
        """Judge one trial. An oracle that fails to answer is unknown, never a pass."""
        try:
            answer = _decode(self._ask({"op": "judge", **request}))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self.close()
            answer = Judgement(error=f"{type(error).__name__}: {error}")
        if answer.error is not None or not answer.verdicts:
            detail = answer.error or "the oracle judged nothing"
            return Judgement((*answer.verdicts, OracleVerdict("oracle-process", Verdict.UNKNOWN, detail)), answer.labels)
        return answer

    def list_tree(self, tree: Path) -> dict[str, Any]:
        """The oracle's listing of a directory tree."""
        listing: dict[str, Any] = json.loads(self._ask({"op": "list", "tree": str(tree)}))["listing"]
        return listing

    def read_head(self, log: Path, scratch: Path, stream: str) -> int:
        """The seq of a stream's newest event, 0 when there is no such log or stream yet. `scratch` is empty and stays so; nobody may
        write the log meanwhile. Raises OSError."""
        answer = json.loads(self._ask({"op": "head", "log": str(log), "scratch": str(scratch), "stream": stream}))
        if "head" not in answer:
            raise OSError(f"the head of {log} cannot be read: {answer.get('error')}")
        return int(answer["head"])

    def digest_state(self, place: Place, stream: str) -> str:
        """A digest of the state that a crash left in a place where nothing lives any more. Raises OSError."""
        paths = {"log": place.state / "log.sqlite", "scratch": place.directory / "scratch", "workspace": place.work,
                 "quarantine": place.find_quarantine(), "ledger": place.ledger}  # fmt: skip
        answer = json.loads(self._ask({"op": "state", "stream": stream, **{name: str(path) for name, path in paths.items()}}))
        if "state" not in answer:
            raise OSError(f"the state in {place.directory} cannot be read: {answer.get('error')}")
        return str(answer["state"])

    def read_kinds(self, log: Path, scratch: Path, stream: str) -> list[tuple[int, str]]:
        """Seq and kind of each event of a stream, as `read_head` reads. Raises OSError."""
        answer = json.loads(self._ask({"op": "kinds", "log": str(log), "scratch": str(scratch), "stream": stream}))
        if "kinds" not in answer:
            raise OSError(f"the events of {log} cannot be read: {answer.get('error')}")
        return [(seq, kind) for seq, kind in answer["kinds"]]

    def _ask(self, request: Mapping[str, Any]) -> bytes:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        requests = required(self._process.stdin, "the oracle was started without a pipe for its questions")
        answers = required(self._process.stdout, "the oracle was started without a pipe for its answers")
        requests.write(json.dumps(request).encode() + b"\n")
        requests.flush()
        line = answers.readline()
        if not line:
            raise OSError("the oracle process ended")
        return line

    @property
    def pid(self) -> int:
        """The oracle's pid, which is no process of any trial; 0 when it is not running."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _decode(line: bytes) -> Judgement:
    """The oracle says null where it has nothing to name."""
    answer = json.loads(line)
    for verdict in answer.get("verdicts", []):
        verdict.update({name: "" for name, value in verdict.items() if value is None})
    return msgspec.convert(answer, Judgement)


def find_first_difference(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str:
    """Where two histories (`Judgement.events`) first differ, in one sentence; "" when they are equal. Pure."""
    for left, right in zip(one, other, strict=False):
        if left != right:
            return f"seq {left['seq']} {left['kind']}: {_describe_difference(left, right, '')}"
    if len(one) == len(other):
        return ""
    longer = max(one, other, key=len)
    more = longer[min(len(one), len(other))]
    return f"seq {more['seq']} {more['kind']}: only in the {'first' if longer is one else 'second'} history"


def _describe_difference(left: Any, right: Any, place: str) -> str:
    """The first place below two values that differ at which they do, and what stands there."""
    if isinstance(left, dict) and isinstance(right, dict):
        names = [name for name in {**left, **right} if left.get(name, _ABSENT) != right.get(name, _ABSENT)]
        return _describe_difference(left.get(names[0], _ABSENT), right.get(names[0], _ABSENT), f"{place}.{names[0]}".removeprefix("."))
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        number = next(number for number, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
        return _describe_difference(left[number], right[number], f"{place}[{number}]")
    return f"{place} is {_show(left)} in the first and {_show(right)} in the second history"


def _show(value: Any) -> str:
    text = value if value is _ABSENT else json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
