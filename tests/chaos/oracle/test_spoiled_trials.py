"""Every oracle has spoiled trials that turn it, and nothing else, to fail. The good trial's events are listed in conftest.py."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable

import pytest

from chaos.oracle.listing_json import listing_to_json
from chaos.oracle.tree import list_tree
from tests.chaos.oracle.log_builder import LOG_ID, STREAM, Draft, Trial, root_hash, scan, tamper

Spoil = Callable[[Trial], object]
OPENED, DRIVER_1, START_1, SETTLED_1, START_2, DRIVER_2, DECIDED = range(7)
QUARANTINED, RESTORED, START_2_AGAIN, SETTLED_2, SYNCED, FINISHED = range(7, 13)


def payload(place: int, **fields: object) -> Spoil:
    """Set payload fields of an event."""
    return lambda trial: trial.events[place].payload.update(fields)


def drop(*places: int) -> Spoil:
    """Leave events out."""

    def spoil(trial: Trial) -> None:
        trial.events = [draft for place, draft in enumerate(trial.events) if place not in places]

    return spoil


def add(place: int, draft: Callable[[Trial], Draft]) -> Spoil:
    """Put one more event in."""
    return lambda trial: trial.events.insert(place, draft(trial))


def copy_of(place: int) -> Callable[[Trial], Draft]:
    """The same event once more."""
    return lambda trial: Draft(trial.events[place].kind, trial.events[place].epoch, dict(trial.events[place].payload))


def witness(change: Callable[[list[str]], list[str]]) -> Spoil:
    """Change the witness lines (in order: 1.1 start, 1.1 end, 2.1 start, 2.2 start, 2.2 end)."""

    def spoil(trial: Trial) -> None:
        trial.witness_lines = change(trial.witness_lines)

    return spoil


def asked(**fields: object) -> Spoil:
    """Set request fields."""
    return lambda trial: trial.request.update(fields)


def void_decided(trial: Trial) -> None:
    """The first attempt of call 2 is declared void instead of restored; later ACKs move with their events."""
    payload(DECIDED, label="void_and_run", obligation=False, target_seq=None, target_root=None)(trial)
    drop(QUARANTINED, RESTORED)(trial)
    trial.outputs[1] = [f"ACK 2 9 {trial.events[8].payload['root']}"]


def begun_again(trial: Trial) -> None:
    """The second attempt starts without decision and restore, and the witness saw only that one."""
    drop(DECIDED, QUARANTINED, RESTORED)(trial)
    trial.outputs[1] = [f"ACK 2 8 {trial.events[7].payload['root']}"]
    trial.witness_lines.pop(2)


def carry(place: int) -> Spoil:
    """Let an event carry an (idle) image change: the put of an entry as it is."""

    def spoil(trial: Trial) -> None:
        trial.events[place].changes = [next(row for row in trial.events[OPENED].changes if row["path"] == b"notes/a.txt")]

    return spoil


def acknowledge(*lines: str) -> Spoil:
    """Replace the second driver's output; {one} and {two} are the roots of the two settlements."""

    def spoil(trial: Trial) -> None:
        roots = {"one": trial.events[SETTLED_1].payload["root"], "two": trial.events[SETTLED_2].payload["root"]}
        trial.outputs[1] = [line.format(**roots) for line in lines]

    return spoil


EXITED = {"kind": "exited", "code": 0, "signal": None}
DRAFT_SPOILS: list[tuple[str, str, Spoil]] = [
    ("order", "call numbers with a hole", lambda trial: renumber(trial)),
    ("order", "a call that is settled twice", add(SYNCED, copy_of(SETTLED_2))),
    ("order", "no end of the session", drop(FINISHED)),
    ("order", "an event after the end", lambda trial: trial.append("noted", text="late")),
    ("order", "two ends", lambda trial: trial.end()),
    ("order", "too few script calls", asked(script_length=3)),
    ("order", "script calls out of order", lambda trial: reindex(trial, {START_1: 1, START_2: 0, START_2_AGAIN: 0})),
    ("order", "one call with two script indexes", lambda trial: reindex(trial, {START_2: 0})),
    ("order", "an attempt of a settled call", add(SYNCED, lambda trial: start_draft(trial, attempt=3))),
    ("order", "a finish of an older attempt", lambda trial: settle_older(trial)),
    ("order", "a skipped script call with continue", asked(on_interrupted="continue", script_length=3, reference=None)),
    ("order", "a second attempt without restore or void", begun_again),
    ("witness", "a key that starts twice", witness(lambda lines: [*lines, lines[0]])),
    ("witness", "a key that ends twice", witness(lambda lines: [*lines, lines[1]])),
    ("witness", "a key without an intent", witness(lambda lines: [*lines, "unheard/of start"])),
    ("witness", "a finished call without an end", witness(lambda lines: lines[:-1])),
    ("witness", "a finished call without a start", witness(lambda lines: lines[2:])),
    ("witness", "an empty witness file", witness(lambda lines: [])),
    ("witness", "a torn line", witness(lambda lines: [*lines, "torn st"])),
    ("witness", "an end without a start", witness(lambda lines: [*lines, f"{LOG_ID}/{STREAM}/9/1/1 end"])),
    ("witness", "two starts of a call that was declared void", void_decided),
    ("witness", "two starts of a call that may not be repeated", lambda trial: [payload(p, policy="never")(trial) for p in (4, 9)]),
    ("witness", "two attempts with one key", lambda trial: share_key(trial)),
    ("fencing", "an event of a superseded driver", asked(superseded=[[1, 4]])),
    ("laundering", "an interrupted call carries changes", lambda trial: carrying_interrupted(trial)),
    ("laundering", "a restore carries changes", carry(RESTORED)),
    ("laundering", "a decision carries changes", carry(DECIDED)),
    ("laundering", "an intent carries changes", carry(START_2_AGAIN)),
    ("laundering", "a sync carries changes", carry(SYNCED)),
    ("laundering", "the end carries changes", carry(FINISHED)),
    ("laundering", "a driver's start carries changes", carry(DRIVER_2)),
    ("laundering", "an unplanned outside change", lambda trial: observe_nothing(trial)),
    ("laundering", "a target that is another image", lambda trial: payload(DECIDED, target_seq=1)(trial)),
    ("laundering", "a target in the future", payload(DECIDED, target_seq=11)),
    ("laundering", "a restore without an obligation", payload(DECIDED, obligation=False)),
    ("laundering", "a call that goes on under an open obligation", lambda trial: open_late(trial)),
    ("quarantine", "a victim that is gone", lambda trial: shutil.rmtree(trial.home / "quarantine")),
    ("quarantine", "another count", payload(RESTORED, displaced=3)),
    ("quarantine", "a victim that nobody recorded", lambda trial: stray_victim(trial)),
    ("quarantine", "a path that leads out", payload(QUARANTINED, paths=["1/notes/b.txt", "../../outside/log.txt"])),
    ("quarantine", "another directory", payload(QUARANTINED, directory=f"{LOG_ID}-1")),
    ("quarantine", "fewer victims than the worker moved", lambda trial: write_ledger(trial, 3)),
    ("quarantine", "fewer victims than the worker moved in all rounds", lambda trial: write_ledger(trial, 1, 2)),
    ("quarantine", "a path recorded twice", payload(QUARANTINED, paths=["1/other", "1/other"])),
    ("acknowledged", "another seq", acknowledge("ACK 2 10 {two}")),
    ("acknowledged", "a seq beyond the head", acknowledge("ACK 2 99 {two}")),
    ("acknowledged", "a call twice in one output", acknowledge("ACK 2 11 {two}", "ACK 2 11 {two}")),
    ("acknowledged", "falling calls", acknowledge("ACK 2 11 {two}", "ACK 1 4 {one}")),
    ("acknowledged", "a malformed line", acknowledge("ACK two 11 {two}")),
    ("output", "another output", asked(reference_outputs={"0": b"first\n".hex(), "1": b"other\n".hex()})),
    ("output", "an output that is missing", asked(reference_outputs={"0": b"first\n".hex(), "7": b"".hex()})),
    ("exits", "another code", payload(SETTLED_2, exit={"kind": "exited", "code": 1})),
    ("exits", "a signal for a code", payload(SETTLED_1, exit={"kind": "signaled", "signal": 9})),
    ("exits", "no exit", payload(SETTLED_1, exit=None)),
    ("exits", "a time limit that was none", payload(SETTLED_1, exit={"kind": "timed_out", "code": 0})),
    ("exits", "a call that should be there", lambda trial: trial.request["reference_exits"].update({"7": EXITED})),
]


def write_ledger(trial: Trial, *displaced: int) -> None:
    """A ledger in which the file worker says how many victims each round of the restore decided at seq 7 moved."""
    ledger = trial.home / "state" / "space" / "ledger"
    ledger.parent.mkdir()
    lines = [{"op": "ledger", "format": 1}, {"op": "exit", "key": f"{LOG_ID}/{STREAM}/2/1/1", "detail": None}]
    lines += [
        {"op": "exit", "key": f"{LOG_ID}/{STREAM}/d7/{number}", "detail": {"displaced": count}}
        for number, count in enumerate(displaced, 1)
    ]
    ledger.write_text("".join(f"{'0' * 32} {json.dumps(line)}\n" for line in lines) + "torn")


def test_a_ledger_that_agrees_with_the_quarantine_fails_nothing(trial: Trial) -> None:
    write_ledger(trial, 1, 1)
    trial.write()
    assert trial.failing() == set()


def test_a_ledger_that_is_none_is_unknown_to_the_quarantine_alone(trial: Trial) -> None:
    write_ledger(trial)
    (trial.home / "state" / "space" / "ledger").write_text("no ledger\n")
    trial.write()
    assert {one["oracle"] for one in trial.verdicts().values() if one["verdict"] != "pass"} == {"quarantine"}


def renumber(trial: Trial) -> None:
    """Call 2 is number 3 everywhere."""
    for place in (START_2, START_2_AGAIN, SETTLED_2):
        trial.events[place].payload["call"] = 3
    trial.outputs[1] = [f"ACK 3 11 {trial.events[SETTLED_2].payload['root']}"]


def reindex(trial: Trial, indexes: dict[int, int]) -> None:
    """Other places in the script; whose output and exit is whose can then not be said."""
    for place, index in indexes.items():
        trial.events[place].payload["script_index"] = index
    trial.request |= {"reference_outputs": None, "reference_exits": None}


def start_draft(trial: Trial, attempt: int) -> Draft:
    """One more intent of call 2, never started."""
    fields = trial.events[START_2_AGAIN].payload | {"attempt": attempt, "key": f"more/{attempt}"}
    return Draft("attempt_started", 2, fields)


def settle_older(trial: Trial) -> None:
    """A third attempt is open when the second finishes."""
    trial.events.insert(SETTLED_2, start_draft(trial, attempt=3))
    trial.outputs[1] = [f"ACK 2 12 {trial.events[12].payload['root']}"]


def share_key(trial: Trial) -> None:
    """Both attempts of call 2 have the second one's key; the witness knows it only."""
    trial.events[START_2].payload["key"] = trial.events[START_2_AGAIN].payload["key"]
    trial.witness_lines.pop(2)


def observe_nothing(trial: Trial) -> None:
    """An outside change, of nothing, that nobody planned."""
    trial.events.insert(FINISHED, Draft("workspace_observed", 2, {"at_ms": 1, "root": root_hash(trial.image), "untracked": []}))


def open_late(trial: Trial) -> None:
    """A planned outside change is recorded before the restore is finished; later ACKs move with their events."""
    trial.request["outside_edits"] = True
    root = trial.events[DECIDED].payload["target_root"]
    trial.events.insert(RESTORED, Draft("workspace_observed", 2, {"at_ms": 1, "root": root, "untracked": []}))
    trial.outputs[1] = [f"ACK 2 12 {trial.events[11].payload['root']}"]


def carrying_interrupted(trial: Trial) -> None:
    """Call 2 ends interrupted and its half-done work is recorded: workspace and log agree, and are wrong."""
    trial.events[SETTLED_2].payload.update(ended="interrupted", exit=None, output=None)
    trial.outputs[1] = []
    trial.request |= {"on_interrupted": "continue", "reference_outputs": None}


def stray_victim(trial: Trial) -> None:
    """Something was displaced that the log does not know."""
    (trial.home / "quarantine" / f"{LOG_ID}-7" / "2").mkdir()
    (trial.home / "quarantine" / f"{LOG_ID}-7" / "2" / "stray").touch()


@pytest.mark.parametrize(("oracle", "spoil"), [pytest.param(o, s, id=f"{o}: {name}") for o, name, s in DRAFT_SPOILS])
def test_exactly_one_oracle_fails(trial: Trial, oracle: str, spoil: Spoil) -> None:
    spoil(trial)
    trial.write()
    assert trial.failing() == {oracle}


@pytest.mark.parametrize("line", ["ACK 2 11 {one}", "ACK 3 11 {two}"])
def test_what_was_acknowledged_and_stands_nowhere_is_a_false_word_and_lost_work(trial: Trial, line: str) -> None:
    acknowledge(line)(trial)
    trial.write()
    assert trial.failing() == {"acknowledged", "lost-work"}


TREE_SPOILS: list[tuple[str, Spoil, str, str]] = [
    ("other bytes", lambda trial: (trial.work / "log.txt").write_text("other"), "log.txt", "4 call_settled call 1"),
    ("another mode", lambda trial: (trial.work / "notes").chmod(0o700), "notes", "1 session_opened"),
    ("the root's mode", lambda trial: trial.work.chmod(0o711), "", "1 session_opened"),
    ("a missing path", lambda trial: (trial.work / "notes" / "b.txt").unlink(), "notes/b.txt", "11 call_settled call 2"),
    ("another target", lambda trial: relink(trial), "link", "4 call_settled call 1"),
    ("a link group", lambda trial: group(trial), "log.txt", "4 call_settled call 1"),
    ("a symlink's group", lambda trial: group(trial, "link"), "link", "4 call_settled call 1"),
    ("an attribute", lambda trial: os.setxattr(trial.work / "notes", "user.x", b""), "notes", "1 session_opened"),
    ("another kind", lambda trial: become_pipe(trial), "log.txt", "4 call_settled call 1"),
]


def relink(trial: Trial) -> None:
    """The symlink points elsewhere."""
    (trial.work / "link").unlink()
    (trial.work / "link").symlink_to("notes")


def group(trial: Trial, name: str = "log.txt") -> None:
    """A file or symlink gets a second name."""
    os.link(trial.work / name, trial.work / "zz", follow_symlinks=False)


def become_pipe(trial: Trial) -> None:
    """A FIFO, which must not be opened, stands for a file."""
    (trial.work / "log.txt").unlink()
    os.mkfifo(trial.work / "log.txt")


@pytest.mark.parametrize(("spoil", "path", "event"), [pytest.param(*rest, id=name) for name, *rest in TREE_SPOILS])
def test_a_tree_that_differs_fails_by_its_first_path(trial: Trial, spoil: Spoil, path: str, event: str) -> None:
    spoil(trial)
    trial.request["reference"] = listing_to_json(list_tree(bytes(trial.work)))
    trial.write()
    assert trial.failing() == {"workspace-equals-log"}
    verdict = trial.verdicts()["workspace-equals-log"]
    assert (verdict["path"], verdict["event"]) == (path, event)
    assert verdict["expected"] != verdict["found"]


def test_an_extra_path_fails_without_an_event(trial: Trial) -> None:
    (trial.work / "extra\n").touch()
    trial.request["reference"] = None
    trial.write()
    verdict = trial.verdicts()["workspace-equals-log"]
    assert (verdict["verdict"], verdict["path"], verdict["expected"], verdict["event"]) == ("fail", "extra%0A", "absent", None)


def test_a_workspace_that_is_gone_fails(trial: Trial) -> None:
    shutil.rmtree(trial.work)
    trial.write()
    assert trial.failing() == {"workspace-equals-log", "reference"}


def test_a_tree_that_differs_from_the_reference_fails_there_only(trial: Trial) -> None:
    trial.request["reference"][""]["mode"] = 0o700
    trial.write()
    assert trial.failing() == {"reference"}
    assert trial.verdicts()["reference"]["path"] == ""


def test_the_reference_is_left_out_unless_calls_are_issued_again(trial: Trial) -> None:
    trial.request |= {"on_interrupted": "continue"}
    trial.write()
    assert "reference" not in trial.verdicts()


def test_an_epoch_that_falls_fails_fencing_and_chain(trial: Trial) -> None:
    trial.events[SYNCED].epoch = 1
    trial.write()
    assert trial.failing() == {"fencing", "chain"}


def test_an_interrupted_call_with_an_outside_change_in_it_fails(trial: Trial) -> None:
    """The half-done work is recorded as an outside change, then the call as interrupted: the classic laundering."""
    settled = trial.events[SETTLED_2]
    observed = Draft("workspace_observed", 2, {"at_ms": 1, "root": settled.payload["root"], "untracked": []}, settled.changes)
    settled.changes = []
    settled.payload.update(ended="interrupted", exit=None, output=None)
    trial.events.insert(SETTLED_2, observed)
    trial.outputs[1] = []
    trial.request |= {"on_interrupted": "continue", "reference_outputs": None}
    trial.write()
    assert trial.failing() == {"laundering"}


def test_a_root_that_is_not_the_folded_image_fails_the_chain(trial: Trial) -> None:
    trial.events[SYNCED].payload["root"] = trial.events[OPENED].payload["root"]
    trial.write()
    assert trial.failing() == {"chain"}
    assert trial.verdicts()["chain"]["event"] == "12 synced"


def put(row: dict[str, object], **fields: object) -> dict[str, object]:
    """A row with other fields."""
    return row | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"path": b"/absolute"},
        {"path": b"a/../b"},
        {"path": b"nowhere/child"},
        {"kind": "x"},
        {"kind": "d"},
        {"op": "move"},
        {"op": "del"},
        {"link": b"another"},
        {"target": b"somewhere"},
        {"content": None},
        {"size": 1},
        {"xattrs": b""},
        {"xattrs": b"\0\0\0\1a"},
        {"acl": b"x", "uid": 1},
    ],
    ids=str,
)
def test_a_change_row_of_a_wrong_form_fails_the_chain(trial: Trial, fields: dict[str, object]) -> None:
    """Hashes are right: the writer itself made the row."""
    rows = trial.events[SETTLED_1].changes
    place = next(number for number, row in enumerate(rows) if row["path"] == b"log.txt")
    rows[place] = put(rows[place], **fields)
    trial.write()
    assert "chain" in trial.failing()


ROW_SPOILS = [
    "UPDATE event SET hash = zeroblob(32) WHERE seq = 5",
    "UPDATE event SET prev_hash = zeroblob(32) WHERE seq = 5",
    "UPDATE event SET payload = replace(payload, '\"at_ms\": 1', '\"at_ms\": 2') WHERE seq = 3",
    "UPDATE event SET id = zeroblob(16) WHERE seq = 13",
    "UPDATE image_change SET mtime_ns = mtime_ns + 1 WHERE seq = 4",
    "UPDATE stream SET head_seq = 12",
    "UPDATE stream SET head_hash = zeroblob(32)",
    "UPDATE stream SET floor = 1",
    "UPDATE stream SET floor = 3",
    "UPDATE meta SET value = '2' WHERE key = 'format'",
    "UPDATE meta SET value = '4' WHERE key = 'format'",
    "DELETE FROM meta WHERE key = 'format'",
    "UPDATE meta SET value = 'ffffffffffffffffffffffffffffffff' WHERE key = 'log_id'",
    "INSERT INTO image_change (stream, seq, idx, path, op, kind, mode, size, mtime_ns) "
    "VALUES ('session-1', 99, 0, x'61', 'del', '', 0, 0, 0)",
    "INSERT INTO event SELECT 'other', 1, zeroblob(16), 0, kind, 1, payload, prev_hash, hash FROM event WHERE seq = 1",
    "INSERT INTO stream VALUES ('empty', NULL, NULL, 0, 0, zeroblob(32))",
    "PRAGMA user_version = 2",
    "PRAGMA user_version = 4",
    "PRAGMA application_id = 1",
]


@pytest.mark.parametrize("statement", ROW_SPOILS)
def test_a_changed_row_fails_the_chain(trial: Trial, statement: str) -> None:
    trial.write()
    tamper(trial, statement)
    assert "chain" in trial.failing() <= {"chain", "quarantine"}  # the quarantine's directories carry the log id


HOSTILE = [
    "UPDATE event SET payload = '[]' WHERE seq = 5",
    "UPDATE event SET payload = 'no json' WHERE seq = 5",
    "UPDATE event SET payload = CAST(x'ff' AS TEXT) WHERE seq = 5",
    "UPDATE event SET payload = x'7b7d' WHERE seq = 5",
    "UPDATE event SET payload = '{\"at_ms\": 1, \"call\": \"two\"}' WHERE seq = 5",
    "UPDATE event SET payload = printf('%.*c', 100000, '[') WHERE seq = 5",
    "UPDATE event SET payload = NULL WHERE seq = 5",
    "UPDATE event SET kind = 'invented' WHERE seq = 5",
    "UPDATE event SET kind = 7 WHERE seq = 5",
    "UPDATE event SET version = 2 WHERE seq = 5",
    "UPDATE event SET epoch = -1 WHERE seq = 5",
    "UPDATE event SET epoch = 'many' WHERE seq = 5",
    "UPDATE event SET hash = 'text' WHERE seq = 5",
    "UPDATE event SET id = x'00' WHERE seq = 5",
    "UPDATE event SET seq = 50 WHERE seq = 13",
    "UPDATE event SET seq = 0 WHERE seq = 1",
    "UPDATE event SET seq = 'x' WHERE seq = 5",
    "UPDATE event SET stream = x'00' WHERE seq = 5",
    "DELETE FROM event WHERE seq = 5",
    "UPDATE image_change SET path = 7 WHERE seq = 4",
    "UPDATE image_change SET path = 'text' WHERE seq = 4",
    "UPDATE image_change SET mode = 65535 WHERE seq = 4",
    "UPDATE image_change SET size = -1 WHERE seq = 4",
    "UPDATE image_change SET content = x'00' WHERE seq = 4",
    "UPDATE image_change SET mtime_ns = 1.5 WHERE seq = 4",
    "UPDATE image_change SET idx = idx + 1 WHERE seq = 4 AND idx = (SELECT max(idx) FROM image_change WHERE seq = 4)",
    "UPDATE stream SET head_hash = 'text'",
    "UPDATE stream SET floor = -1",
    "UPDATE stream SET id = 7",
    "DELETE FROM stream",
    "DELETE FROM meta",
    "DELETE FROM blob",
    "UPDATE blob SET codec = 'lzma'",
    "UPDATE blob SET codec = 7",
    "UPDATE blob SET bytes = NULL",
    "UPDATE blob SET size = size + 1",
    "UPDATE blob SET size = 9223372036854775807",
    "UPDATE blob SET codec = 'zstd', bytes = x'28b52ffd'",
    "DROP TABLE image_change",
    "ALTER TABLE event RENAME COLUMN epoch TO era",
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_values_fail_the_chain_and_crash_nothing(trial: Trial, statement: str) -> None:
    trial.write()
    try:
        tamper(trial, statement)
    except sqlite3.OperationalError as error:
        assert "no such table" in str(error)  # triggers cannot come back on a table that is gone
    assert "chain" in trial.failing()


@pytest.mark.parametrize("trigger", ["event_no_update", "event_no_delete", "image_change_no_update", "blob_no_delete", "meta_no_update"])
def test_a_missing_trigger_fails_the_chain(trial: Trial, trigger: str) -> None:
    trial.write()
    tamper_triggers(trial, f"DROP TRIGGER {trigger}")
    assert trial.failing() == {"chain"}
    assert "not refused" in trial.verdicts()["chain"]["detail"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("event_no_update", "BEFORE UPDATE OF payload ON event BEGIN SELECT RAISE(ABORT, 'refused'); END"),
        ("event_no_update", "BEFORE UPDATE ON event BEGIN SELECT 1; END"),
        ("event_no_delete", "BEFORE DELETE ON event WHEN OLD.seq > 1 BEGIN SELECT RAISE(ABORT, 'refused'); END"),
        ("stream_floor", "BEFORE UPDATE ON stream WHEN NEW.floor < 0 BEGIN SELECT RAISE(ABORT, 'refused'); END"),
        ("stream_head", "BEFORE UPDATE ON stream WHEN NEW.head_seq < OLD.head_seq BEGIN SELECT RAISE(ABORT, 'refused'); END"),
        ("stream_no_delete", "BEFORE UPDATE OF id ON stream BEGIN SELECT RAISE(ABORT, 'refused'); END"),
    ],
)
def test_a_trigger_that_refuses_too_little_fails_the_chain(trial: Trial, name: str, body: str) -> None:
    trial.write()
    tamper_triggers(trial, f"DROP TRIGGER {name}", f"CREATE TRIGGER {name} {body}")
    assert trial.failing() == {"chain"}


def tamper_triggers(trial: Trial, *statements: str) -> None:
    """Run statements on the log as they are."""
    connection = sqlite3.connect(trial.log, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_damaged_blob_of_a_past_image_fails_the_chain_only(trial: Trial) -> None:
    """The content was overwritten since, so the head image does not need it."""
    (trial.work / "notes" / "a.txt").write_text("rewritten")
    content = next(row["content"] for row in trial.events[OPENED].changes if row["path"] == b"notes/a.txt")
    rows, contents = scan(trial.work)
    trial.contents |= contents
    trial.events[SETTLED_2].changes = [rows[b"notes/a.txt"], rows[b"notes/b.txt"]]
    for place in (SETTLED_2, SYNCED, FINISHED):
        trial.events[place].payload["root"] = root_hash(rows)
    trial.outputs[1] = [f"ACK 2 11 {root_hash(rows)}"]
    trial.request["reference"] = None
    trial.write()
    assert trial.failing() == set()
    tamper(trial, f"UPDATE blob SET bytes = x'00' WHERE hash = x'{content.hex()}'")
    assert trial.failing() == {"chain"}
    assert trial.verdicts()["chain"]["path"] == "notes/a.txt"


def test_a_damaged_blob_of_the_head_image_names_the_path(trial: Trial) -> None:
    trial.write()
    content = next(row["content"] for row in trial.events[SETTLED_1].changes if row["path"] == b"log.txt")
    tamper(trial, f"DELETE FROM blob WHERE hash = x'{content.hex()}'")
    assert trial.failing() == {"chain", "workspace-equals-log"}
    assert trial.verdicts()["workspace-equals-log"]["path"] == "log.txt"
