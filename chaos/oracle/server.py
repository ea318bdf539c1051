"""Answering requests: one JSON object per line in, one JSON object per line out.

`{"op": "list", "tree": DIR}` is answered by `{"listing": {escaped path: entry}}` (`paths.py`, `listing_json.py`), empty when DIR
does not exist. `{"op": "head", "log": FILE, "scratch": DIR, "stream": ID}` is answered by `{"head": SEQ}`, the seq of the stream's
newest event, 0 when there is no such log or stream; `{"op": "kinds", ...}` with the same fields by `{"kinds": [[SEQ, KIND], ...]}`.
`{"op": "state", ...}` with `STATE_FIELDS` is answered by `{"state": HEX}` (`state.py`).
`{"op": "judge", ...}` (`request.py`) is answered by these fields:

| field | value |
|---|---|
| `verdicts` | one object an oracle: `oracle`, `verdict`, `detail`, `path`, `expected`, `found`, `event` |
| `decisions`, `labels` | the labels of `recovery_decided` in order; `{label: how often}` |
| `restored`, `displaced` | sums over all `restore_finished` |
| `lost_calls`, `bound` | acknowledged calls that are lost, and how many may be (`lost_work.py`); absent where that is not known |
| `digest` | hex of the history (`history_digest.py`), or null |
| `final`, `final_parts` | hex of the state the session ended in, and what it is the digest of (`final.py`), or null |
| `events` | the history itself, only when `history` asked for it |

A request that cannot be understood or carried out is answered by `{"error": TEXT}`, for a judge request with one `unknown` verdict of the
oracle `request` beside it.
"""

import json
import os
from typing import Any, BinaryIO, TextIO

from .judging import judge, merge, verdict_to_json
from .listing_json import listing_to_json
from .load import read_head, read_kinds
from .request import RequestError
from .state import digest_state
from .tree import list_tree
from .values import Verdict, unknown

STATE_FIELDS = ("log", "scratch", "stream", "workspace", "quarantine", "ledger")
EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 2}


def serve(requests: BinaryIO, answers: BinaryIO) -> int:
    """Answer every line until end of file; returns the exit code 0."""
    for line in iter(requests.readline, b""):
        answers.write(json.dumps(answer_line(line)).encode() + b"\n")
        answers.flush()
    return 0


def answer_once(path: str, out: TextIO) -> int:
    """Answer the one request in a file, for people; returns 0 pass, 1 fail, 2 unknown. A listing or head that was read is a pass."""
    with open(path, "rb") as file:
        answer = answer_line(file.read())
    out.write(json.dumps(answer, indent=2) + "\n")
    if answer.keys() & {"listing", "head", "kinds"}:
        return EXIT_CODES[Verdict.PASS]
    return EXIT_CODES[merge([verdict["verdict"] for verdict in answer.get("verdicts", [])])]


def answer_line(line: bytes) -> dict[str, Any]:
    """The answer to one request; a wrong request gives an answer too, so that the next one can be asked."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"error": f"the request is no JSON: {error}"}
    try:
        return answer(request)
    except (RequestError, OSError) as error:
        refusal = unknown(f"{type(error).__name__}: {error}")
        is_judge = isinstance(request, dict) and request.get("op") == "judge"
        verdicts = {"verdicts": [verdict_to_json("request", refusal)]} if is_judge else {}
        return {"error": refusal.detail, **verdicts}


def answer(request: Any) -> dict[str, Any]:
    """The answer to a decoded request. Raises RequestError, OSError."""
    if not isinstance(request, dict):
        raise RequestError("the request is no JSON object")
    match request.get("op"):
        case "judge":
            return judge(request)
        case "list" if isinstance(request.get("tree"), str):
            return {"listing": listing_to_json(list_tree(os.fsencode(request["tree"])))}
        case "head" if all(isinstance(request.get(field), str) for field in ("log", "scratch", "stream")):
            return {"head": read_head(request["log"], request["scratch"], request["stream"])}
        case "state" if all(isinstance(request.get(field), str) for field in STATE_FIELDS):
            return {"state": digest_state(request)}
        case "kinds" if all(isinstance(request.get(field), str) for field in ("log", "scratch", "stream")):
            return {"kinds": read_kinds(request["log"], request["scratch"], request["stream"])}
        case operation:
            raise RequestError(f"op {operation!r} is unknown or lacks its fields; there are list, head, kinds, state and judge")
