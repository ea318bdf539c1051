"""Programs a scenario needs: without one of them it is unavailable, which is neither a pass nor a failure. """

import os
from collections.abc import Callable, Sequence

from chaos.scenario import Scenario
from chaos.volume import PROGRAMS, find_lack


def find_program(name: str) -> str | None:
    """The first executable of this name on PATH. (`shutil.which` would bring six modules into the zygote, which every fork copies.)"""
    places = [os.path.join(place, name) for place in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def find_missing(needs: Sequence[str], find: Callable[[str], str | None] = find_program) -> tuple[str, ...]:
    """Those of `needs` that `find` (a search of PATH) does not find, in order."""
    return tuple(program for program in needs if find(program) is None)


def describe_missing(scenario: Scenario, find: Callable[[str], str | None] = find_program) -> str:
    """Why a scenario is unavailable here, in words; "" when it is available."""
    missing = find_missing((*scenario.needs, *(PROGRAMS if scenario.mount else ())), find)
    if missing:
        return f"unavailable: it needs {', '.join(missing)}, not found on PATH"
    lack = find_lack() if scenario.mount else ""
    return f"unavailable: {lack}" if lack else ""
