"""What a redriver says that it has started, and what was begun: its record and the files of its drivers' output.

The record `redriver` lies beside the log: 64 hex digits (BLAKE3 of what follows the blank), a blank, a JSON object, a newline
(recovery/README, Redriver). Its `attempts` have a `number`, an `epoch` and a `driver`, the identity of the process. The first thing that a
process does when it is told to become the driver of an epoch is to make `redrive/out-EPOCH`.
"""

import json
import os
from dataclasses import dataclass

from blake3 import blake3

DRIVER = ("boot_id", "pid_namespace", "pid", "start_ticks")
OUTPUT = "out-"


@dataclass(frozen=True, slots=True)
class Counted:
    """One start as the record counts it. `driver` names one process for good."""

    number: int
    epoch: int
    driver: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Redriven:
    """The starts in the order of the record, and the epochs whose drivers were begun."""

    counted: tuple[Counted, ...]
    begun: frozenset[int]


def record_of(log: str) -> str:
    """Where the redriver of a log's session keeps its record."""
    return os.path.join(os.path.dirname(log), "redriver")


def read_redriven(path: str) -> Redriven | None:
    """What stands there; None without a record. Raises OSError, also for what is no record."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        digits, _, body = file.read().removesuffix(b"\n").partition(b" ")
    if digits != blake3(body).hexdigest().encode():
        raise OSError("its digits are not those of what it says")
    try:
        counted = tuple(
            Counted(one["number"], one["epoch"], tuple(one["driver"][name] for name in DRIVER)) for one in json.loads(body)["attempts"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"it is no record ({type(error).__name__}: {error})") from error
    outputs = os.path.join(os.path.dirname(path), "redrive")
    names = os.listdir(outputs) if os.path.isdir(outputs) else []
    begun = {int(name.removeprefix(OUTPUT)) for name in names if name.startswith(OUTPUT)}
    return Redriven(counted, frozenset(begun))
