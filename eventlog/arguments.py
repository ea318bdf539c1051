"""What the commands of `eventlog` take in common."""

import os
from pathlib import Path
from typing import Annotated

import typer

LogArgument = Annotated[Path, typer.Argument(help="log.sqlite, or the state directory that holds it")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object per line (eventlog/README)")]


def log_path(given: Path) -> str:
    """The log file for what a person named: the file itself, or the state directory around it."""
    return os.path.join(given, "log.sqlite") if os.path.isdir(given) else str(given)
