"""Whether a lock's holder may be ended: the whole table."""

import pytest

from eventlog.events import Exit
from eventlog.identity_files import Purpose, Writing
from eventlog.process_identity import ProcessIdentity
from recovery.holder_judgement import End, Leave, Suspect, judge_holder
from recovery.space.records import Attempt, Exited, Fate, Header, Helper, Kind, LedgerState, Prepare, Register, Start

WHO = ProcessIdentity(10, 1000, "boot", 1)
OTHERS = {
    "another pid": ProcessIdentity(11, 1000, "boot", 1),
    "another start": ProcessIdentity(10, 1001, "boot", 1),
    "another boot": ProcessIdentity(10, 1000, "before", 1),
    "another namespace": ProcessIdentity(10, 1000, "boot", 2),
}
MINE = 5


def left(identity: ProcessIdentity, epoch: int, purpose: Purpose = "drive") -> list[Writing]:
    return [Writing("0a", identity, epoch, purpose)]


def make_ledger(helper: tuple[ProcessIdentity, int] | None = None, attempt: Attempt | None = None) -> LedgerState:
    state = LedgerState(Header(1, "1f", 1))
    if helper is not None:
        state.helpers["m"] = Helper(Register("spawner", helper[1], "m", helper[0]))
    if attempt is not None:
        state.attempts["k"] = attempt
    return state


def make_attempt(
    epoch: int, mark: str = "cgroup:/c", kind: Kind = "command", exited: bool = False, fate: Fate | None = None
) -> Attempt:  # fmt: skip
    start = Start("k", WHO, "s")
    exit_ = Exited("k", Exit("exited", code=0), "boot") if exited else None
    return Attempt(Prepare("k", kind, epoch, 1, 1, "d", mark, None, 1, "h"), epoch, start, exit_, fate)


@pytest.mark.parametrize("ledger", [None, make_ledger()], ids=["log", "ledger"])
@pytest.mark.parametrize(
    ("epoch", "ends"), [(1, True), (MINE - 1, True), (MINE, False), (MINE + 1, False)], ids=["oldest", "older", "mine", "newer"]
)
def test_rule_L4_a_driver_is_ended_when_its_intended_epoch_is_older(epoch: int, ends: bool, ledger: LedgerState | None) -> None:
    found = judge_holder(Suspect(WHO), left(WHO, epoch), ledger, MINE)
    assert found == (End(WHO, epoch) if ends else Leave(f"it belongs to epoch {epoch}, which is not older than {MINE}"))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_rule_L4_only_the_very_process_of_the_file_is_ended(other: ProcessIdentity) -> None:
    assert judge_holder(Suspect(other), left(WHO, 1), None, MINE) == Leave()
    assert judge_holder(Suspect(other), left(WHO, 1), make_ledger((WHO, 1), make_attempt(1)), MINE) == Leave()


def test_rule_L4_who_cannot_be_told_is_left_alone() -> None:
    assert judge_holder(Suspect(None, 1), left(WHO, 1), make_ledger((WHO, 1)), MINE) == Leave()
    assert judge_holder(Suspect(WHO), [], make_ledger(), MINE) == Leave()


@pytest.mark.parametrize("purpose", ["append", "fork", "import", "compact", "move"])
def test_rule_L4_a_command_has_no_epoch_and_is_left_alone(purpose: Purpose) -> None:
    found = judge_holder(Suspect(WHO), left(WHO, 0, purpose), None, MINE)
    assert isinstance(found, Leave) and found.reason.startswith("it is a command at work on this log")


@pytest.mark.parametrize(
    ("suspect", "ledger", "epoch"),
    [
        (Suspect(WHO), make_ledger(helper=(WHO, 2)), 2),
        (Suspect(WHO), make_ledger(attempt=make_attempt(3)), 3),
        (Suspect(WHO), make_ledger(attempt=make_attempt(3, kind="file", mark="environment:m")), 3),
        (Suspect(WHO), make_ledger(attempt=make_attempt(3, exited=True, mark="environment:m")), 3),
        (Suspect(WHO, 4), make_ledger(), 4),
        (Suspect(WHO, 1), make_ledger(attempt=make_attempt(3)), 3),
    ],
    ids=["helper", "shim", "file worker", "exit stands", "not registered yet", "claimed by a later epoch"],
)
def test_rule_L4_who_holds_the_ledger_s_lock_is_known_by_the_ledger_or_by_the_mark(
    suspect: Suspect, ledger: LedgerState, epoch: int
) -> None:  # fmt: skip
    assert judge_holder(suspect, [], ledger, MINE) == End(WHO, epoch)
    assert isinstance(judge_holder(suspect, [], ledger, epoch), Leave)


def test_rule_S8_a_shim_whose_death_would_leave_its_command_unprovable_is_left_alone() -> None:
    ledger = make_ledger(attempt=make_attempt(3, mark="environment:m"))
    found = judge_holder(Suspect(WHO, 3), [], ledger, MINE)
    assert isinstance(found, Leave) and found.reason.endswith("(environment mark); let it go on")
