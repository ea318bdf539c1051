"""An agent that survives SIGKILL at any instant: start it again, as often as it takes. `python agent.py STATE_DIR WORKSPACE [MODE]`."""

import sys
from typing import Any

from eventlog.errors import CrashworthyError
from eventlog.events import Mode
from recovery.results import CallResult
from recovery.session import open_session

TASKS = ["echo one >> log.txt", "echo two >> log.txt; wc -l < log.txt"]


def think(history: list[CallResult]) -> dict[str, Any]:
    """Stands for a model: what to run next, given what came of everything so far. An interrupted command left nothing behind."""
    done = sum(result.ended == "finished" for result in history)
    return {"run": TASKS[done]} if done < len(TASKS) else {"done": True}


def main(state: str, workspace: str, mode: Mode | None = None) -> None:
    """Go on from wherever the program was killed: what was answered and what has ended is in the log, under the same ids."""
    with open_session(state, workspace, name="agent", mode=mode) as session:
        history: list[CallResult] = []
        while "run" in (answer := session.ask(f"step-{len(history) + 1}", lambda: think(history))):
            history.append(session.bash(answer["run"], key=f"step-{len(history) + 1}"))
        session.finish()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CrashworthyError as error:
        sys.exit(f"{error}; start the agent again")
