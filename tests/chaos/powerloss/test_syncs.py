"""The list of sync points: each is named with the planted bug that removes it, or with the reason why none is there."""

from chaos.planted.bug import load_bugs
from chaos.powerloss.syncs import NEEDLESS, bug_name, find_syncs

STEPS = (
    "driver@1:cut.sync.wal:1",
    "shim.2@1:cut.sync.ledger:1",
    "driver@1:cut.sync.ledger:2",
    "driver@1:cut.syncfs.finish:1",
    "driver@1:cut.sync.log.create.directory:1",
    "driver@1:cut.name.identity:1",
    "driver@1:cut.end:1",
)


def test_syncs_are_counted_by_their_point_with_the_roles_that_pass_them() -> None:
    points = find_syncs([STEPS], ["unsynced-wal", "unsynced-log-create-directory", "kill-removed"])
    assert [(one.name, one.count, one.roles, one.bugs) for one in points] == [
        ("finish", 1, ("driver",), ()),
        ("ledger", 2, ("shim", "driver"), ()),
        ("log.create.directory", 1, ("driver",), ("unsynced-log-create-directory",)),
        ("wal", 1, ("driver",), ("unsynced-wal",)),
    ]


def test_no_point_has_both_a_bug_that_is_caught_and_a_reason_for_none() -> None:
    names = {bug.name for bug in load_bugs()}
    assert [point for point in NEEDLESS if bug_name(point) in names] == []


def test_every_bug_that_removes_a_sync_is_hunted_by_power_losses() -> None:
    bugs = [bug for bug in load_bugs() if bug.name.startswith("unsynced-")]
    assert bugs and {bug.selection.mode for bug in bugs} == {"powerloss"}
