"""From a record of events to operations and cuts: what is not announced is seen, and a sync covers what stood before it began."""

import pytest

from chaos.powerloss.device import KEPT, STRICT, Entry, Names, Sync, SyncAll, Write, build, cut_after
from chaos.powerloss.events import Event, Kind, Look, encode_event, read_events
from chaos.powerloss.history import History, find_strange, read_history
from chaos.powerloss.recorder import name_point
from chaos.powerloss.vfs import name_file

DIRECTORY = Look("d", 0o700, 1, 0)
LOG = Look("f", 0o600, 2, 0)


def event(kind: Kind, path: str, *, end: bool = False, at: int = 0, data: bytes = b"", output: int = 0, **looks: object) -> Event:
    changed, removed = looks.get("changed", {}), looks.get("removed", [])
    assert isinstance(changed, dict) and isinstance(removed, list)
    return Event("driver@1", kind, path.rpartition("/")[2] or "top", path, end, at, data, output, 0, changed, removed)


BEGINNING = event("look", "", changed={})
MADE = event("write", "state/log", data=b"text", changed={"state": DIRECTORY, "state/log": LOG})


def build_all(history: History) -> dict[str, bytes | None]:
    cut = cut_after(history.operations, len(history.operations), STRICT)
    return build(cut, (KEPT,) * len(cut.pending)).list_paths(history.is_directory)


def test_a_directory_that_nobody_announced_is_a_pending_name() -> None:
    history = read_history([BEGINNING, MADE])
    names = [one for one in history.operations if isinstance(one, Names)]
    assert [one.entries[0].name for one in names] == ["state", "log"]
    assert build_all(history) == {"state": None, "state/log": b"text"}


def test_a_rename_is_one_operation_of_both_names() -> None:
    renamed = event("name", "state/log", end=True, changed={"state/new": LOG}, removed=["state/log"])
    history = read_history([BEGINNING, MADE, renamed])
    last = history.operations[-1]
    assert isinstance(last, Names) and len(last.entries) == 2
    assert build_all(history) == {"state": None, "state/new": b"text"}


def test_what_lies_in_a_renamed_directory_goes_with_it() -> None:
    looks = {"other": DIRECTORY, "other/log": LOG}
    moved = event(
        "name", "state", end=True, changed={f"holders{path[5:]}": look for path, look in looks.items()}, removed=["state", "state/log"]
    )
    history = read_history([BEGINNING, MADE, moved])
    assert build_all(history) == {"holders": None, "holders/log": b"text"}


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    between = event("write", "state/log", at=4, data=b"more")
    history = read_history([BEGINNING, MADE, event("sync", "state/log"), between, event("sync", "state/log", end=True)])
    sync = next(one for one in history.operations if isinstance(one, Sync))
    covered = [one for one in history.operations[: sync.begun] if isinstance(one, Write)]
    assert [one.data for one in covered] == [b"text"]
    assert history.points == {"log": 1}


def test_what_stood_there_from_the_beginning_is_on_disk() -> None:
    first = event("look", "", changed={"state": DIRECTORY, "state/log": Look("f", 0o600, 2, 4, b"", b"text")})
    history = read_history([first])
    assert isinstance(history.operations[-1], SyncAll)
    assert cut_after(history.operations, len(history.operations), STRICT).pending == ()
    assert build_all(history) == {"state": None, "state/log": b"text"}


def test_the_workspace_is_as_it_was_when_its_last_sync_began() -> None:
    def work(text: bytes) -> dict[str, Look]:
        return {"work": DIRECTORY, "work/a": Look("f", 0o644, 9, len(text), text, text)}

    events = [BEGINNING, event("syncfs", "work", changed=work(b"one")), event("syncfs", "work", end=True, changed=work(b"two"))]
    last = read_history(events).moments[-1]
    assert (last.old["work/a"].content, last.new["work/a"].content) == (b"one", b"two")


def test_a_cut_at_a_write_before_another_one_is_that_one_s() -> None:
    more = [event("write", "state/log", at=number, data=b"x") for number in range(3)]
    names = [one.name for one in read_history([BEGINNING, MADE, *more, event("sync", "state/log")]).moments]
    assert names == ["driver@1:cut.sync.log:1", "driver@1:cut.end:1"]
    said = [event("write", "state/log", at=0, data=b"x", output=5)]
    names = [one.name for one in read_history([BEGINNING, MADE, *said, event("sync", "state/log")]).moments]
    assert names[0] == "driver@1:cut.write.log:1", "an acknowledgement lies between: there the disk has to hold more"


def test_what_was_written_past_the_recorder_is_told() -> None:
    history = read_history([BEGINNING, MADE])
    assert find_strange(build_all(history), {"state": None, "state/log": b"text"}) == []
    assert find_strange(build_all(history), {"state": None, "state/log": b"other", "state/more": b""}) == ["state/log", "state/more"]


def test_a_write_to_what_was_never_seen_is_trouble() -> None:
    history = read_history([BEGINNING, event("write", "state/log", data=b"x")])
    assert history.trouble == ["state/log was written and never seen"]


def test_events_are_read_back_and_a_torn_record_is_refused() -> None:
    data = encode_event(BEGINNING) + encode_event(MADE)
    assert list(read_events(data)) == [BEGINNING, MADE]
    with pytest.raises(ValueError, match="torn"):
        list(read_events(data[:-1]))


@pytest.mark.parametrize(
    ("step", "path", "is_directory", "name"),
    [
        ("identity", "state/identity/x.json", False, "identity"),
        ("identity", "state/identity", True, "identity.directory"),
        ("", "state/space/ledger", False, "ledger"),
        ("", "state/space/0123456789abcdef", False, "n"),
    ],
)
def test_sync_points_have_names_that_stay_the_same(step: str, path: str, is_directory: bool, name: str) -> None:
    assert name_point(step, path, is_directory=is_directory) == name


def test_the_files_of_sqlite_have_their_names() -> None:
    names = [name_file(f"state/log.sqlite{more}") for more in ("", "-wal", ".new-12-ab", ".new-12-ab-journal")]
    assert names == ["log", "wal", "new-log", "new-journal"]


def test_an_entry_tells_what_a_name_stands_for() -> None:
    history = read_history([BEGINNING, MADE])
    assert Names((Entry(0, "state", 1),)) in history.operations
