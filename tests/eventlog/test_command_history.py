"""`eventlog diff`, `checkout`, `fork` and the options of `show`, as processes: exit codes, lines, JSON, one sentence for every mistake."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eventlog.blobs import encode_content
from eventlog.creation import create_log
from eventlog.image import Entry, diff
from eventlog.ports import CountingIds
from eventlog.reader import Reader
from eventlog.values import Epoch
from tests.eventlog import support
from tests.eventlog.support import IMAGE, LATER, STREAM
from tests.eventlog.test_command import assert_one_sentence, lines, run
from tests.eventlog.tree_logs import file_of, remove_tree, root_of, scan_tree

ONE, TWO = b"one\nkept\n", b"two\nkept\nlast"
TEXTS: dict[bytes, Entry] = {b"": IMAGE[b""], b"caf\xe9\x1b.txt": file_of(ONE), b"bin": file_of(b"\0"), b"gone": file_of(b"gone\n")}
AFTER: dict[bytes, Entry] = {
    b"": IMAGE[b""], b"caf\xe9\x1b.txt": file_of(TWO, 0o755), b"bin": file_of(b"\xff12"), b"new": file_of(b"\ttab \\\n")
}  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The golden log: the sessions `nightly` and `fork`."""
    (tmp_path / "state").mkdir()
    return support.make_golden(tmp_path / "state")


@pytest.fixture
def texts(tmp_path: Path) -> str:
    """A log of one session whose one call changes text, bytes, names."""
    path = str(tmp_path / "log.sqlite")
    blobs = [blob for data in (ONE, TWO, b"\0", b"\xff12", b"gone\n", b"\ttab \\\n", support.OUTPUT) for blob in encode_content([data])]
    create_log(path, STREAM, support.opened(image=TEXTS), blobs, CountingIds())
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.append(STREAM, Epoch(1), [support.attempt(1)], (), "intent")
    writer.append(STREAM, Epoch(1), [support.settled(1, AFTER, diff(TEXTS, AFTER))], (), "outcome")
    writer.close()
    return path


def objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(output)]


def test_diff_lists_what_differs_and_exits_1(texts: str) -> None:
    done = run("diff", texts, "call:1:before", "call:1")
    assert (done.returncode, done.stderr) == (1, b"")
    assert lines(done.stdout) == [
        "changed bin: content 1 -> 3 bytes",
        "changed caf\\xe9\\x1b.txt: content 9 -> 13 bytes, mode 0644 -> 0755",
        "removed gone: file, 5 bytes, mode 0644",
        "added   new: file, 7 bytes, mode 0644",
    ]
    back = lines(run("diff", texts, "head", "1").stdout)
    assert back[0] == "changed bin: content 3 -> 1 bytes" and back[2].startswith("added   gone") and back[3].startswith("removed new")


def test_diff_of_equal_points_says_nothing_and_exits_0(texts: str) -> None:
    for points in (("1", "call:1:before"), ("head", "head"), ("call:1", "4")):
        done = run("diff", texts, *points, "--text")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_diff_shows_text_line_by_line_and_other_contents_by_size(texts: str) -> None:
    done = run("diff", texts, "1", "head", "--text")
    assert done.returncode == 1
    assert lines(done.stdout) == [
        "changed bin: content 1 -> 3 bytes",
        "binary, 1 -> 3 bytes",
        "changed caf\\xe9\\x1b.txt: content 9 -> 13 bytes, mode 0644 -> 0755",
        "--- caf\\xe9\\x1b.txt",
        "+++ caf\\xe9\\x1b.txt",
        "@@ -1,2 +1,3 @@",
        "-one",
        "+two",
        " kept",
        "+last",
        "\\ no newline at the end",
        "removed gone: file, 5 bytes, mode 0644",
        "--- gone",
        "+++ nothing",
        "@@ -1 +0,0 @@",
        "-gone",
        "added   new: file, 7 bytes, mode 0644",
        "--- nothing",
        "+++ new",
        "@@ -0,0 +1 @@",
        "+\ttab \\\\",
    ]


def test_diff_as_json_is_one_object_per_path(texts: str) -> None:
    plain = objects(run("diff", texts, "1", "head", "--json").stdout)
    compared = objects(run("diff", texts, "1", "head", "--json", "--text").stdout)
    assert [set(one) for one in plain] == [{"path", "what", "aspects", "before", "after"}] * 4
    assert [one["path"] for one in plain] == ["bin", {"b64": "Y2Fm6RsudHh0"}, "gone", "new"]
    assert [one["aspects"] for one in plain] == [["content"], ["content", "mode"], [], []]
    assert plain[1]["before"]["size"] == 9 and plain[1]["after"]["mode"] == 0o755 and plain[2]["after"] is None
    assert [one["text"] if isinstance(one["text"], str) else len(one["text"]) for one in compared] == ["binary", 6, 2, 2]


def test_diff_compares_two_sessions(log: str) -> None:
    done = run("diff", log, "head", "1", "--session", "nightly", "--other-session", "fork")
    assert (done.returncode, done.stdout) == (0, b"")
    done = run("diff", log, "1", "1", "--session", "nightly", "--other-session", "fork")
    assert done.returncode == 1 and lines(done.stdout)[0].startswith("removed l: symlink to caf\\xe9\\x0a")


def test_contents_given_up_are_still_told_apart_by_size(texts: str) -> None:
    support.checkpoint(texts)
    content = TEXTS[b"gone"].content
    assert content is not None
    name = f"x'{content.hex()}'"
    support.tamper(texts, f"INSERT INTO dropped VALUES ({name}, 5, 'compacted', 1)", f"DELETE FROM blob WHERE hash = {name}")
    done = run("diff", texts, "1", "head", "--text")
    assert done.returncode == 1 and "given up, 5 -> 0 bytes" in lines(done.stdout)
    assert_one_sentence(run("checkout", texts, "--at", "1", "--to", texts + ".out"), 1, "gone is not whole", "given up by compaction")
    assert not os.path.exists(texts + ".out")


def test_checkout_writes_the_tree_of_a_point(log: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    done = run("checkout", log, "--at", "call:1:before", "--session", "nightly", "--to", str(target))
    assert (done.returncode, done.stderr) == (0, b"")
    size = len(support.HELLO) + len(support.BIG)
    assert lines(done.stdout) == [f"{target}: session nightly as of seq 3: 6 paths, {size} bytes, image {root_of(IMAGE)[:12]}"]
    assert scan_tree(str(target)) == IMAGE
    done = run("checkout", log, "--at", "head", "--session", "fork", "--to", str(tmp_path / "other"), "--json")
    size = len(support.HELLO) + len(support.BIG)
    expected = {"stream": "fork", "seq": 16, "root": root_of(LATER), "directory": str(tmp_path / "other"), "paths": 6, "bytes": size}
    assert json.loads(done.stdout) == expected
    assert scan_tree(str(tmp_path / "other")) == LATER
    for name in ("out", "other"):
        remove_tree(tmp_path / name)


def test_case_03_checkout_takes_a_directory_that_is_not_utf_8(log: str, tmp_path: Path) -> None:
    target = os.fsencode(tmp_path) + b"/caf\xe9\n"
    done = run("checkout", log, "--at", "1", "--session", "nightly", "--to", target)
    assert done.returncode == 0 and len(lines(done.stdout)) == 1 and b"caf\\xe9\\x0a: session nightly" in done.stdout
    assert scan_tree(os.fsdecode(target)) == IMAGE


def test_fork_begins_a_session_that_checkout_and_diff_know(log: str) -> None:
    done = run("fork", log, "--at", "call:1", "--session", "nightly", "--name", "mine")
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines(done.stdout)[0].startswith(f"session mine goes on from nightly seq 4, 1 calls settled, image {root_of(LATER)[:12]}")
    assert run("verify", log).returncode == 0
    assert run("diff", log, "head", "head", "--session", "nightly", "--other-session", "mine").returncode == 0
    done = run("fork", log, "--at", "head", "--session", "mine", "--name", "mine2", "--json")
    assert json.loads(done.stdout) == {"stream": "mine2", "parent": "mine", "parent_seq": 1, "root": root_of(LATER), "calls": 1}


WRONG: dict[str, tuple[list[str], int, list[str]]] = {
    "diff: several sessions": (["diff", "{}", "1", "head"], 2, ["2 sessions in this log", "--session", "fork, nightly"]),
    "diff: no such session": (["diff", "{}", "1", "head", "--session", "x"], 2, ["no session x", "fork, nightly"]),
    "diff: no such other session": (["diff", "{}", "1", "1", "--session", "fork", "--other-session", "x"], 2, ["no session x"]),
    "diff: no point": (["diff", "{}", "1", "last", "--session", "fork"], 2, ["names no point", "call:3:before"]),
    "diff: one point": (["diff", "{}", "1"], 2, ["after", "`eventlog diff --help`"]),
    "diff: no such event": (["diff", "{}", "1", "99", "--session", "nightly"], 2, ["has no event 99", "1 to 9"]),
    "diff: no log": (["diff", "{}.no", "1", "1"], 2, ["there is no log here"]),
    "checkout: there already": (["checkout", "{}", "--at", "1", "--session", "fork", "--to", "{}"], 2, ["there is something already"]),
    "checkout: no directory": (["checkout", "{}", "--at", "1", "--session", "fork"], 2, ["--to"]),
    "checkout: no such call": (["checkout", "{}", "--at", "call:9", "--session", "fork", "--to", "/x/y"], 2, ["has no call 9"]),
    "fork: inside a call": (["fork", "{}", "--at", "3", "--session", "nightly", "--name", "x"], 2, ["call 1 is open", "is 2", "is 4"]),
    "fork: a restore is owed": (["fork", "{}", "--at", "5", "--session", "fork", "--name", "x"], 2, ["restore decided at seq 5", "is 3"]),
    "fork: taken": (["fork", "{}", "--at", "1", "--session", "nightly", "--name", "fork"], 2, ["a session fork already"]),
    "fork: no name": (["fork", "{}", "--at", "1", "--session", "nightly", "--name", "a/b"], 2, ["is no name of a session"]),
    "fork: no log": (["fork", "{}.no", "--at", "1", "--name", "x"], 2, ["there is no log here"]),
    "show: no such session": (["show", "{}", "--session", "x"], 2, ["no session x"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_sentence_and_changes_nothing(log: str, name: str) -> None:
    arguments, code, words = WRONG[name]
    before = Path(log).read_bytes()
    assert_one_sentence(run(*(word.replace("{}", log) for word in arguments)), code, *words)
    assert Path(log).read_bytes() == before
    reader = Reader.open(log)
    assert len(reader.streams()) == 2
    reader.close()


@pytest.mark.parametrize(
    "arguments",
    [["diff", "{}", "1", "head"], ["checkout", "{}", "--at", "head", "--to", "{}.out"], ["fork", "{}", "--at", "head", "--name", "x"]],
)
def test_invariant_I9_damage_is_one_sentence_and_exit_1(texts: str, arguments: list[str]) -> None:
    support.tamper(texts, "UPDATE image_change SET mode = 511 WHERE seq = 4 AND op = 'put'")
    assert_one_sentence(run(*(word.replace("{}", texts) for word in arguments)), 1, "seq 4", "the last good event is 3")
    assert not os.path.exists(texts + ".out")


@pytest.mark.parametrize(
    "arguments", [["diff", "{}", "1", "head", "--text"], ["checkout", "{}", "--at", "head", "--to", "{}.out"], ["show", "{}", "--calls"]]
)
def test_looking_back_modifies_no_log(texts: str, arguments: list[str]) -> None:
    os.unlink(texts + "-shm")
    before = {suffix: (Path(texts + suffix).read_bytes(), os.stat(texts + suffix).st_mtime_ns) for suffix in ("", "-wal")}
    assert run(*(word.replace("{}", texts) for word in arguments)).returncode in (0, 1)
    assert {suffix: (Path(texts + suffix).read_bytes(), os.stat(texts + suffix).st_mtime_ns) for suffix in ("", "-wal")} == before


def test_show_of_one_session_shows_no_other(log: str) -> None:
    everything = lines(run("show", log).stdout)
    fork, nightly = (lines(run("show", log, "--session", name).stdout) for name in ("fork", "nightly"))
    assert fork + nightly == everything and len(fork) == 16 and len(nightly) == 9


def test_show_calls_is_one_line_for_each_call(texts: str, log: str) -> None:
    size = sum(len(data) for data in (TWO, b"\xff12", b"\ttab \\\n"))
    assert lines(run("show", texts, "--calls").stdout) == [f"nightly call    1 bash   attempts 1 finished (finished) {size} bytes 1 ms"]
    found = objects(run("show", log, "--calls", "--json").stdout)
    assert [(one["stream"], one["call"], one["tool"], one["decision"], one["ended"]) for one in found] == [
        ("fork", 2, "bash", "restore_and_interrupt", "interrupted"),
        ("nightly", 1, "bash", "finished", "finished"),
    ]
    fields = {"stream", "call", "tool", "attempts", "decision", "ended", "undone", "size", "duration_ms", "started_seq", "settled_seq"}
    assert [set(one) for one in found] == [fields] * 2 and found[0]["duration_ms"] == 4 and found[0]["settled_seq"] == 8


def test_show_as_json_says_call_tool_decision_size_and_duration_where_they_apply(texts: str) -> None:
    found = objects(run("show", texts, "--json").stdout)
    common = {"stream", "seq", "epoch", "kind", "hash", "changes", "payload"}
    assert [set(one) - common for one in found] == [{"size"}, set(), {"call", "tool"}, {"call", "tool", "decision", "size", "duration_ms"}]
    assert (found[0]["size"], found[3]["size"], found[3]["duration_ms"]) == (15, 23, 1)
    assert (found[2]["call"], found[2]["tool"], found[3]["decision"]) == (1, "bash", "finished")
