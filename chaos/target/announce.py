"""Announce a step, so that a harness can kill this program there. Standard library only: import it, or copy it into your program.

In Python `step("paid")`; in a shell `"$CHAOS_ANNOUNCE" paid`. Outside of a harness both do nothing. The protocol is that of the step socket
(chaos/README): a line in the trace, and at a step where the harness waits a line on its socket, then one byte that lets this process go on.
"""

import os
import socket
import sys


def step(name: str) -> None:
    """Pass the step `name` (small letters, digits, `.`, `-`, `_`). May not return: the process can be killed while it waits here."""
    trace = os.environ.get("CHAOS_STEP_TRACE")
    if not trace:
        return
    begin = f"driver@{os.environ['CHAOS_ATTEMPT']}:{name}:"
    with open(trace, "a+b", buffering=0) as file:
        file.seek(0)
        passed = begin + str(1 + sum(line.startswith(begin.encode()) for line in file.read().splitlines()))
        file.write(f"{passed} {os.getpid()}\n".encode())
    if passed in os.environ["CHAOS_STEP_WAIT"].split():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.environ["CHAOS_STEP_SOCKET"])
            connection.sendall(f"{passed} {os.getpid()}\n".encode())
            connection.recv(1)


if __name__ == "__main__":
    step(sys.argv[1])
