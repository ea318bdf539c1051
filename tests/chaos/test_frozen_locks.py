"""Every step at which the ledger's lock is held is frozen somewhere: in the gate, in a test of its own, or it is named here with a reason.

What there is comes from the ledger's own records and from the steps of the module that writes; what is frozen from the sets of trials of
the gate, recorded anew, and from the tests of lock holders.
"""

from pathlib import Path
from typing import get_args

from chaos.catalogue import load_mode
from chaos.enumeration import enumerate_trials
from chaos.step import Step, lock_of, parse_step, role_of
from recovery.space.records import Record
from tests.chaos.real import open_zygote
from tests.recovery.driver.test_lock_holders import FIRST_EPOCH, LATER

Place = tuple[str, str]

APPENDERS = {
    "advance": ("driver",),
    "condemn": ("driver",),
    "proved_dead": ("driver",),
    "prepare": ("driver",),
    "register": ("spawner", "worker"),
    "start": ("shim", "worker"),
    "exit": ("shim", "worker"),
    "void": ("driver",),
    "rejoin": ("driver",),
    "collect": ("driver",),
    "scan_failed": ("driver",),
}
"""Who appends which record under the lock."""
OTHERWISE = {
    "ledger": "made with its file, before anybody else can want its lock",
    "sealed": "written over a torn end by whoever takes the lock next",
    "compacted": "published with a whole new file",
}
APPEND = ("append.before", "append.unsynced")
SEAL = ("seal.tail.before", "seal.tail.after")
COMPACT = (
    "compact.write.half", "compact.sync.before", "compact.sync.after", "compact.rename.before", "compact.rename.after",
    "leftover.unlink.before", "leftover.unlink.after",
)  # fmt: skip
ROLES = ("driver", "spawner", "shim", "worker")

NOT_FROZEN: dict[Place, str] = {
    **{(role, f"ledger.{at}"): "a torn end is met first by the driver that takes over" for role in ROLES[1:] for at in SEAL},
    **{("driver", f"ledger.rejoin.{at}"): "only after the log lost its tail, which no set with freezes brings about" for at in APPEND},
}
"""Steps with the ledger's lock at which nobody is frozen, with the reason. Who holds it there is known and killed like any other holder."""


def list_locked() -> set[Place]:
    """Every step, by role, at which the ledger's lock is held."""
    appended = {(role, f"ledger.{tag}.{at}") for tag, roles in APPENDERS.items() for role in roles for at in APPEND}
    sealed = {(role, f"ledger.{at}") for role in ROLES for at in SEAL}
    return {place for place in appended | sealed | {("driver", f"ledger.{at}") for at in COMPACT} if is_locked(place)}


def place_of(step: str) -> Place:
    parsed = parse_step(step)
    return role_of(parsed), parsed.name


def frozen_in_gate(home: Path) -> tuple[set[Place], set[Place]]:
    """Steps with the ledger's lock at which a trial of the gate freezes a process, and all that its recordings pass."""
    frozen: set[Place] = set()
    passed: set[Place] = set()
    with open_zygote(home) as zygote:
        for scenario in load_mode("ci"):
            for number, one in enumerate(scenario.trials):
                if not one.freeze:
                    continue
                directory = home / f"{scenario.name}-{number}"
                directory.mkdir()
                recording = zygote.record(scenario, one.before, directory)
                found = enumerate_trials(recording, scenario, one)
                frozen |= {place_of(step) for step in found.frozen}
                passed |= {place_of(step) for step in found.steps}
    return frozen, passed


def is_locked(place: Place) -> bool:
    return lock_of(Step(place[0], 1, place[1], 1)) == "ledger"


def test_every_record_is_known_by_who_appends_it() -> None:
    tags = {str(record.__struct_config__.tag) for record in get_args(Record)}
    assert tags == APPENDERS.keys() | OTHERWISE.keys()
    assert {(role, f"ledger.{tag}.append.before") for tag, roles in APPENDERS.items() for role in roles} <= list_locked()


def test_every_step_that_holds_the_ledgers_lock_is_frozen_somewhere_or_named(tmp_path: Path) -> None:
    gate, passed = frozen_in_gate(tmp_path)
    tests = {place_of(step) for step in (*FIRST_EPOCH, *LATER)}
    locked = list_locked()
    assert {place for place in passed if is_locked(place)} <= locked, "a step that nobody has listed"
    assert tests <= locked
    assert locked - gate - tests == NOT_FROZEN.keys(), "what is named as not frozen is what nobody freezes"
