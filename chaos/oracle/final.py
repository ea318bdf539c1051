"""The final state of a session: what its workspace holds and how its script's calls ended. Two runs that converged have the same.

How a run came there is not in it: neither epochs, decisions, attempts nor how often a call was issued again. Times are not in it either.
"""

import json
from collections.abc import Mapping
from typing import Any

from .calls import Call, calls_of
from .encoding import counted, digest, optional, unsigned
from .evidence import Evidence, known
from .excludes import known_tree
from .history_digest import Normaliser, normaliser_for
from .values import Entry, Listing

HEADING = b"crashworthy final 1\0"
TREE_HEADING = b"crashworthy tree 1\0"
NOT_STARTED = "not started"
OPEN = "open"
FinalParts = Mapping[str, Any]


def final_parts(evidence: Evidence) -> FinalParts:
    """`{"tree": hex, "calls": [{"index", "ended", "exit", "output"}]}`, one call for each script index: the last one of it.

    `ended` is `finished`, `interrupted`, `open` or `not started`; `exit` as in the log, or null; `output` the hex name of the output's
    blob, or null. Raises EvidenceMissing.
    """
    stream = evidence.stream()
    normaliser = normaliser_for(known(evidence.log).log_id, stream)
    newest = {call.script_index(): call for call in calls_of(stream)}
    calls = [call_end(index, newest.get(index), normaliser) for index in range(evidence.request.script_length)]
    return {"tree": tree_digest(known_tree(evidence)), "calls": calls}


def call_end(index: int, call: Call | None, normaliser: Normaliser) -> dict[str, Any]:
    """How the last call of a script index ended."""
    if call is None or not call.settlements:
        return {"index": index, "ended": NOT_STARTED if call is None else OPEN, "exit": None, "output": None}
    settled = call.settlements[-1].payload
    output = settled["output"] and settled["output"]["blob"]
    return {"index": index, "ended": settled["ended"], "exit": normaliser.normalise(settled["exit"]), "output": output}


def tree_digest(tree: Listing) -> str:
    """The hex digest of a tree's listing."""
    return digest(TREE_HEADING + b"".join(encode_listed(path, tree[path]) for path in sorted(tree))).hex()


def encode_listed(path: bytes, entry: Entry) -> bytes:
    """One path of a listing in bytes."""
    head = counted(path) + counted(entry.kind.encode()) + unsigned(entry.mode, 2) + unsigned(entry.size, 8)
    owner = None if entry.owner is None else unsigned(entry.owner[0], 4) + unsigned(entry.owner[1], 4)
    marks = (owner, entry.acl) if owner is not None or entry.acl is not None else ()
    return head + b"".join(map(optional, (entry.content, entry.target, entry.link, entry.xattrs, *marks)))


def final_digest(parts: FinalParts) -> str:
    """The hex digest of a final state, over its parts `tree` and `calls`."""
    return digest(HEADING + json.dumps({"tree": parts["tree"], "calls": parts["calls"]}, sort_keys=True).encode()).hex()
