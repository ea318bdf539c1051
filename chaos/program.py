"""How this command is called again: for the commands that reports and shrinks hand out."""

import shutil
import sys
from pathlib import Path


def name_program() -> str:
    """`chaos`, as it was called: by its bare name when that leads here."""
    called = Path(sys.argv[0])
    if called.name != "chaos":
        return "python -m chaos"
    found = shutil.which("chaos")
    return "chaos" if found and Path(found).resolve() == called.resolve() else sys.argv[0]
