"""What tests of real trials share: a zygote, trials from plans as text, and the log that a trial leaves."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from chaos.actions import parse_plan
from chaos.drivers import Place
from chaos.results import Trial, TrialResult
from chaos.scenario import Scenario
from chaos.zygote_client import ProcessZygote, zygote_command
from eventlog import events
from eventlog.reader import Reader
from eventlog.values import StreamId
from recovery.script import BashCall, WriteCall
from tests.chaos.fakes import make_scenario

WITNESSED = b"""printf '%s start\\n' "$CALL_KEY" >> "$WITNESS"; echo one >> one.txt; printf '%s end\\n' "$CALL_KEY" >> "$WITNESS" """
WAITING = b"""
echo half > result.txt
exec {silent}<> <(:)
: > "$OUTSIDE/ready"
until [ -e "$OUTSIDE/gate" ]; do read -r -t 0.01 -u "$silent" || :; done
echo whole >> result.txt
"""

TWO_CALLS = make_scenario(calls=(BashCall(WITNESSED), BashCall(b"echo two >> one.txt")), witnessed=(0,))
EDITED = make_scenario("edited", calls=TWO_CALLS.calls, on_interrupted="continue")
A_FILE = make_scenario("a-file", calls=(WriteCall(b"notes/a.txt", b"hello\n", None),))
LIVING = make_scenario(
    "living", calls=(BashCall(WAITING), BashCall(b"echo two >> one.txt")), ready="ready", gate="gate", on_interrupted="continue"
)
"""Of each name there is one: a zygote keeps the reference run of a scenario by its name."""


@contextlib.contextmanager
def open_zygote(home: Path) -> Iterator[ProcessZygote]:
    """A real zygote that says its errors in `home`."""
    zygote = ProcessZygote(zygote_command(None), home / "errors.txt")
    try:
        yield zygote
    finally:
        zygote.close()


def play(zygote: ProcessZygote, scenario: Scenario, directory: Path, plan: str, saved: int = 0) -> TrialResult:
    """The result of one trial with this plan in an empty directory, made here."""
    directory.mkdir()
    return zygote.run(scenario, Trial(1, scenario.name, parse_plan(plan), saved=saved), directory, {})


def read_events(scenario: Scenario, directory: Path) -> list[events.Event]:
    """All events of the log that a trial left in its directory."""
    reader = Reader.open(str(Place(directory).state / "log.sqlite"))
    try:
        return [stored.event for stored in reader.events(StreamId(scenario.name))]
    finally:
        reader.close()


def read_exits(scenario: Scenario, directory: Path) -> list[events.Exit | None]:
    """The exit of each call that was settled, in order."""
    return [event.exit for event in read_events(scenario, directory) if isinstance(event, events.CallSettled)]
