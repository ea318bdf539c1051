"""The history and its digest: what is volatile is replaced, everything else counts, and the README says so."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.oracle.history_digest import VOLATILE, history_digest, word
from chaos.oracle.judging import judge
from eventlog.events import EVENT_TYPES
from tests.chaos.oracle.conftest import build_restored
from tests.chaos.oracle.log_builder import LOG_ID, Trial, digest, text_or_b64

README = Path(__file__).resolve().parents[3] / "chaos" / "README.md"
OPENED, DRIVER_1, START_1, SETTLED_1 = range(4)
DRIVER_2, DECIDED, QUARANTINED = 5, 6, 7
SYNCED = 11


def history_of(trial: Trial) -> dict[str, Any]:
    """Write and judge, with the history asked for."""
    trial.write()
    return judge(trial.request | {"history": True})


def test_the_readme_lists_exactly_what_is_volatile_with_a_reason() -> None:
    section = README.read_text("utf-8").partition("## History digest")[2].partition("\n## ")[0]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(names) == sorted(VOLATILE)
    assert all(len(row) == 3 and row[1] and row[2] for row in rows)


def test_every_volatile_field_is_one_of_some_event_and_none_of_what_decides() -> None:
    fields = {field for event in EVENT_TYPES for field in event.__struct_fields__}  # type: ignore[attr-defined]
    named = {name for name in VOLATILE if "." not in name and not name.startswith("<")}
    assert named <= fields
    telling = {"label", "facts", "exit", "output", "root", "target_root", "reason", "ended", "rounds", "kill_mark", "request_digest"}
    assert not named & telling


def test_events_are_given_only_when_asked_for(trial: Trial) -> None:
    trial.write()
    assert "events" not in judge(trial.request)
    answer = judge(trial.request | {"history": True})
    assert [(event["seq"], event["kind"]) for event in answer["events"]] == [(n, d.kind) for n, d in enumerate(trial.events, 1)]


def test_the_digest_covers_exactly_the_events_given(trial: Trial) -> None:
    answer = history_of(trial)
    assert history_digest(answer["events"]) == answer["digest"]
    for number, event in enumerate(answer["events"]):
        for name in event:
            spoiled = [*answer["events"][:number], event | {name: "other"}, *answer["events"][number + 1 :]]
            assert history_digest(spoiled) != answer["digest"]


def test_an_event_is_readable_without_what_is_volatile(trial: Trial) -> None:
    events = history_of(trial)["events"]
    assert events[DRIVER_2] == {
        "seq": 6,
        "epoch": 2,
        "kind": "driver_started",
        "version": 1,
        "payload": {
            "identity": "identity#2",
            "ledger_id": "ledger_id#1",
            "generation": 1,
            "kill_mark": {"cgroup": None, "environment": "m"},
        },
        "changes": [],
    }
    assert events[START_1]["payload"]["key"] == "<log id>/session-1/1/1/1"
    assert events[QUARANTINED]["payload"]["directory"] == "<log id>-7"
    assert events[OPENED]["payload"]["workspace"] == "<workspace>"
    content = digest(b"one\n" * 50).hex()
    assert events[SETTLED_1]["changes"] == [
        "put path=link kind=l mode=0777 target=log.txt",
        f"put path=log.txt kind=f mode=0644 content={content} size=200",
    ]


def test_a_change_is_one_line_whose_values_hold_no_blank(trial: Trial) -> None:
    name = b"a b%\xff\n"
    put = next(row for row in trial.events[SETTLED_1].changes if row["path"] == b"log.txt")
    pairs = b"\0\0\0\6user.x\0\0\0\1y"
    trial.events[START_1].changes = [put | {"path": name, "link": name, "xattrs": pairs, "uid": 1, "gid": 2, "acl": b"acl"}]
    line = history_of(trial)["events"][START_1]["changes"][0]
    assert word(name) == "a%20b%25%FF%0A"
    xattrs = digest(b"crashworthy xattrs 1\0" + pairs).hex()
    rest = f"link=a%20b%25%FF%0A xattrs={xattrs} uid=1 gid=2 acl={digest(b'acl').hex()}"
    assert line == f"put path=a%20b%25%FF%0A kind=f mode=0644 content={put['content'].hex()} size=200 {rest}"


def in_identity(**fields: object) -> Callable[[Trial], object]:
    """Another driver."""
    return lambda trial: trial.events[DRIVER_2].payload["identity"].update(fields)


def set_field(place: int, **fields: object) -> Callable[[Trial], object]:
    """Other payload fields."""
    return lambda trial: trial.events[place].payload.update(fields)


def set_times(trial: Trial) -> None:
    """Times of which others are equal than before."""
    for number, draft in enumerate(trial.events):
        draft.payload["at_ms"] = 1000 + number // 3


def set_ledger(trial: Trial) -> None:
    """The same other ledger in all events."""
    for place in (OPENED, DRIVER_1, DRIVER_2):
        trial.events[place].payload["ledger_id"] = "another"


def set_boot(trial: Trial) -> None:
    """Another boot."""
    in_identity(boot_id="other")(trial)
    set_field(SYNCED, boot_id="other")(trial)


def set_mtimes(trial: Trial) -> None:
    """Other times of files, and a row that is nothing but times."""
    for row in trial.events[SETTLED_1].changes:
        row["mtime_ns"] += 1
    times = trial.events[SETTLED_1].changes[0] | {"op": "times", "path": b"", "kind": "", "mode": 0, "target": None}
    trial.events[SETTLED_1].changes.insert(0, times)


VOLATILES: dict[str, Callable[[Trial], object]] = {
    "times": set_times,
    "a driver's pid": in_identity(pid=999),
    "a driver's nonce": in_identity(nonce="other"),
    "the ledger": set_ledger,
    "the boot": set_boot,
    "the root's identity": set_field(OPENED, root_identity={"id": "s", "inode": 2, "birth_ns": None, "filesystem": "g"}),
    "times of files": set_mtimes,
}


@pytest.mark.parametrize("change", VOLATILES.values(), ids=VOLATILES)
def test_what_is_volatile_does_not_change_the_digest(tmp_path: Path, change: Callable[[Trial], object]) -> None:
    one, two = build_restored(tmp_path / "one"), build_restored(tmp_path / "two")
    change(two)
    first, second = history_of(one), history_of(two)
    assert first["events"] == second["events"]
    assert first["digest"] == second["digest"]


TELLING: dict[str, Callable[[Trial], object]] = {
    "a label": set_field(DECIDED, label="adopt_exit"),
    "a fact": set_field(DECIDED, facts={"exit": "clean"}),
    "a kill mark": set_field(DRIVER_2, kill_mark="environment"),
    "a request": set_field(START_1, request_digest="e"),
    "an exit": set_field(SETTLED_1, exit={"kind": "exited", "code": 1}),
    "a policy": set_field(START_1, policy="safe"),
    "a second ledger": set_field(DRIVER_2, ledger_id="another"),
    "one driver twice": lambda trial: trial.events[DRIVER_2].payload.update(identity=trial.events[DRIVER_1].payload["identity"]),
    "a generation": set_field(DRIVER_2, generation=2),
    "a count": set_field(8, restored=2),
    "a mode of a file": lambda trial: trial.events[SETTLED_1].changes[1].update(mode=0o600),
    "a content": lambda trial: trial.events[SETTLED_1].changes[1].update(content=bytes(32)),
    "an epoch": lambda trial: setattr(trial.events[SYNCED], "epoch", 1),
    "a kind": lambda trial: setattr(trial.events[-1], "kind", "noted") or trial.events[-1].payload.update(text=""),  # type: ignore[func-returns-value]
    "an event less": lambda trial: trial.events.pop(),
}


@pytest.mark.parametrize("change", TELLING.values(), ids=TELLING)
def test_everything_else_changes_the_digest(tmp_path: Path, change: Callable[[Trial], object]) -> None:
    one, two = build_restored(tmp_path / "one"), build_restored(tmp_path / "two")
    change(two)
    assert history_of(one)["digest"] != history_of(two)["digest"]


@pytest.mark.parametrize("name", [b"work", b"w\xffrk"])
def test_log_id_and_workspace_are_marked_also_in_bytes_that_are_no_text(trial: Trial, name: bytes) -> None:
    workspace = b"/somewhere/" + name
    trial.events[OPENED].payload["workspace"] = text_or_b64(workspace)
    trial.events[START_1].payload["input"] = {
        "run": [text_or_b64(b"ls \xfe" + workspace), text_or_b64(b"ls " + workspace), f"echo {LOG_ID}"],
        "b64": "no base64",
    }
    events = history_of(trial)["events"]
    assert events[OPENED]["payload"]["workspace"] == "<workspace>"
    assert events[START_1]["payload"]["input"] == {
        "run": [text_or_b64(b"ls \xfe<workspace>"), "ls <workspace>", "echo <log id>"],
        "b64": "no base64",
    }


def test_a_field_of_a_volatile_name_inside_another_is_not_volatile(trial: Trial) -> None:
    trial.events[START_1].payload["input"] = {"identity": "mine", "at_ms": 5}
    assert history_of(trial)["events"][START_1]["payload"]["input"] == {"identity": "mine", "at_ms": 5}


def test_a_payload_nested_beyond_reason_has_no_history(trial: Trial) -> None:
    nested: Any = 1
    for _ in range(900):
        nested = [nested]
    trial.events[START_1].payload["input"] = nested
    answer = history_of(trial)
    assert (answer["digest"], answer["events"]) in ((None, []), (history_digest(answer["events"]), answer["events"]))
    assert {verdict["oracle"] for verdict in answer["verdicts"]} >= {"chain", "order"}
