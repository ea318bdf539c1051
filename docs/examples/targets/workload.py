"""One step of the standard workload (chaos/README, Targets), for the Python programs beside this file."""

import os

from crash_steps import step

STEPS = int(os.environ.get("CHAOS_WORKLOAD", "3"))
OUTSIDE = os.environ.get("CHAOS_OUTSIDE", ".")
WORK = os.environ.get("CHAOS_WORK", ".")


def append(path: str, line: str) -> None:
    """One write at the end of a file."""
    with open(path, "ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def do_step(number: int) -> None:
    """An effect outside that nothing takes back, and a change of the workspace in two parts."""
    step(f"{number}.begin")
    append(f"{OUTSIDE}/witness", f"did {number}")
    step(f"{number}.witnessed")
    append(f"{WORK}/left", str(number))
    step(f"{number}.half")
    append(f"{WORK}/right", str(number))
    step(f"{number}.done")


def acknowledge(number: int) -> None:
    """Whoever runs the steps has been told that this one is done."""
    step(f"{number}.recorded")
    append(f"{OUTSIDE}/witness", f"ack {number}")
    step(f"{number}.acknowledged")
