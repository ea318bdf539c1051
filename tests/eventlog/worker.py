"""A writer in a process of its own, told what to do line by line: `python -m tests.eventlog.worker LOG FIRST_ID BUSY_MS`.

One JSON object per line in: `{"op": "append" | "raise", "epoch": N, "text": T, "hold": STEP or null}`. With `hold` the process says
`held` when it passes the step of that name and waits there for a line. Then, always, one line: `ok SEQ`, or the name of the error.
"""

import json
import sys
from typing import Any

from eventlog import steps
from eventlog.errors import CrashworthyError, InternalError
from eventlog.values import Epoch
from tests.eventlog import support
from tests.eventlog.support import STREAM, Calling


def say(line: str) -> None:
    print(line, flush=True)


def wait_at_step() -> None:
    """Say so and wait for a line."""
    say("held")
    sys.stdin.readline()


def main(path: str, first_id: int, busy_ms: int) -> None:
    writer = support.open_writer(path, first_id=first_id, busy_ms=busy_ms)
    say("ready")
    for line in iter(sys.stdin.readline, ""):
        order: dict[str, Any] = json.loads(line)
        steps.install(None if order["hold"] is None else Calling(order["hold"], wait_at_step))
        try:
            if order["op"] == "raise":
                done = writer.raise_floor(STREAM, Epoch(order["epoch"]), support.started(order["text"]))
            else:
                done = support.add(writer, order["epoch"], order["text"])[0]
        except (CrashworthyError, InternalError) as error:
            say(type(error).__name__)
        else:
            say(f"ok {done.seq}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
