"""Programs a scenario needs: without one of them it is unavailable, which is neither a pass nor a failure. Pure."""

import shutil
from collections.abc import Callable, Sequence

from chaos.scenario import Scenario


def find_missing(needs: Sequence[str], find: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """Those of `needs` that `find` (a search of PATH) does not find, in order."""
    return tuple(program for program in needs if find(program) is None)


def describe_missing(scenario: Scenario, find: Callable[[str], str | None] = shutil.which) -> str:
    """Why a scenario is unavailable here, in words; "" when it is available."""
    missing = find_missing(scenario.needs, find)
    return f"unavailable: it needs {', '.join(missing)}, not found on PATH" if missing else ""
