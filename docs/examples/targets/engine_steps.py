"""The standard workload on this engine: each step is a command of a session, in a call of its own. A cut one is issued again."""

import os
import sys

from workload import STEPS, acknowledge

from eventlog.errors import CrashworthyError
from recovery.session import Session, open_session

STEP = """"$CHAOS_ANNOUNCE" {0}.begin; echo did {0} >> "$CHAOS_OUTSIDE/witness"; "$CHAOS_ANNOUNCE" {0}.witnessed
echo {0} >> left; "$CHAOS_ANNOUNCE" {0}.half; echo {0} >> right; "$CHAOS_ANNOUNCE" {0}.done"""


def run_step(session: Session, number: int) -> None:
    """The first try that ends. An interrupted one has left nothing in the workspace; what it did outside stands."""
    attempt = 1
    while session.bash(STEP.format(number), key=f"{number}-{attempt}").ended != "finished":
        attempt += 1


def main() -> None:
    # The instants at which this program is killed are the workload's, the same as for every other program; not this engine's own steps.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CRASHWORTHY_STEP_")}
    with open_session(os.environ["CHAOS_STATE"], os.environ["CHAOS_WORK"], name="workload", environ=environ) as session:
        for number in range(1, STEPS + 1):
            run_step(session, number)
            acknowledge(number)
        session.finish()


if __name__ == "__main__":
    try:
        main()
    except CrashworthyError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
