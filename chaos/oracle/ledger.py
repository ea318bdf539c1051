"""The one thing an oracle takes from the ledger: how many victims the file worker says it moved for each restore.

The ledger lies at `space/ledger` beside the log, one record a line: 32 hex digits, a blank, a JSON object (recovery/README, Ledger). The
end of one round of a restore is an `exit` record whose key is `<log id>/<session>/d<decision seq>/<round>` and whose `detail` has
`displaced`; a worker that was killed left none. It is a second witness beside the log, in which the driver writes what it found when it
looked into the quarantine. A `compacted` record stands for the lines before it and holds their counts in `moved`, by decision.

A round whose record has another `boot_id` than the last one of its restore proves no move: the machine was restarted in between, and with
the power gone its renames may be undone although the record is on disk.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any


def ledger_of(log: str) -> str:
    """Where the ledger of a log's session lies."""
    return os.path.join(os.path.dirname(log), "space", "ledger")


def read_moved(path: str) -> Mapping[int, int] | None:
    """Moves by seq of the decision; None without a ledger. Raises OSError, also for what is no ledger."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        *lines, _torn = file.read().split(b"\n")
    moved: Counter[int] = Counter()
    rounds: dict[int, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line.partition(b" ")[2])
            if record["op"] == "compacted":
                moved.update({int(decision): count for decision, count in record["moved"].items()})
            if record["op"] == "exit":
                for decision, count in moves_of(record).items():
                    boot = str(record.get("boot_id", ""))
                    last, before = rounds.get(decision, (boot, 0))
                    rounds[decision] = (boot, count + (before if boot == last else 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OSError(f"line {number} is no record ({type(error).__name__}: {error})") from error
    moved.update({decision: count for decision, (_, count) in rounds.items()})
    return moved


def moves_of(record: Mapping[str, Any]) -> Mapping[int, int]:
    """The moves of one exit record; none when it is no round of a restore."""
    parts = record["key"].split("/")
    detail = record.get("detail") or {}
    return {int(parts[-2][1:]): detail["displaced"]} if parts[-2].startswith("d") and "displaced" in detail else {}
