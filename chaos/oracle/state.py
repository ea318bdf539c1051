"""The state that a crash left, as a digest: two crashes after which it is the same leave the same work to recovery.

It covers the history in the log, the workspace, what lies in quarantine and the records of the ledger, each without what differs from run
to run by nature (`history_digest.py`; of the ledger `VOLATILE_RECORDS`). Living processes are not covered: it is taken where none is left.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from .encoding import counted, digest
from .history_digest import normalised_events
from .listing_json import listing_to_json
from .load import load_log
from .tree import list_tree

HEADING = b"crashworthy state 1\0"
VOLATILE_RECORDS = frozenset({"at_ms", "boot_id", "identity", "intent", "ledger_id", "log_hash", "mark", "newest", "socket"})
"""Fields of ledger records that differ between equal runs: identities and times, hashes of what holds them, names made of random ids."""
LOG_ID_MARK = "<log id>"
SIDE = re.compile(r"\.crashworthy-[0-9a-f]+")
"""The name of a side directory, drawn by chance."""


def digest_state(request: Mapping[str, Any]) -> str:
    """Hex of the state in `log` (stream `stream`, copied by way of `scratch`), `workspace`, `quarantine` and `ledger`. Raises OSError."""
    log = load_log(request["log"], request["scratch"])
    stream = log.streams.get(request["stream"])
    history = [] if stream is None else normalised_events(log.log_id, stream)
    trees = [listing_to_json(list_tree(os.fsencode(request[name]))) for name in ("workspace", "quarantine")]
    parts = [json.dumps(history, sort_keys=True)]
    parts += [json.dumps(tree, sort_keys=True).replace(log.log_id or "\0", LOG_ID_MARK) for tree in trees]
    parts += read_records(request["ledger"], log.log_id)
    return digest(HEADING + b"".join(counted(part.encode()) for part in parts)).hex()


def read_records(ledger: str, log_id: str) -> list[str]:
    """The records of a ledger in order, without what is volatile in them; none where there is no ledger."""
    if not os.path.exists(ledger):
        return []
    with open(ledger, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    texts = [SIDE.sub("<side>", line.partition(" ")[2].replace(log_id or "\0", LOG_ID_MARK)) for line in lines]
    return [settle(text) for text in texts]


def settle(text: str) -> str:
    """One record without its volatile fields; a torn one as it is."""
    try:
        record = json.loads(text)
    except ValueError:
        return text
    return json.dumps({name: value for name, value in record.items() if name not in VOLATILE_RECORDS}, sort_keys=True)
