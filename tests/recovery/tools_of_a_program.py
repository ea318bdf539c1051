"""Tools of a program, for test_tools.py."""

import os
import sys
from pathlib import Path

from recovery.tools import tool


@tool(policy="after-restore")
def add_line(path: str, text: str, times: int = 1) -> dict[str, object]:
    """Writes the workspace, prints, returns."""
    print("printed")
    with open(os.environ["WITNESS"], "a") as witness:
        witness.write(f"{os.environ['CALL_IDEMPOTENCY_KEY']} {os.environ['CALL_KEY']}\n")
    with open(path, "a") as file:
        file.write(f"{text}\n" * times)
    return {"size": Path(path).stat().st_size, "where": os.path.basename(os.getcwd())}


@tool
def fail(how: str) -> None:
    """Ends in some other way."""
    if how == "exit":
        sys.exit(3)
    raise ValueError(f"no {how}")
