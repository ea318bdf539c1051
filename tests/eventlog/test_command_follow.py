"""`eventlog tail` and `eventlog append` as processes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import console, events
from eventlog.__main__ import app
from eventlog.command_tail import Lag, describe_lag, lag_as_json
from eventlog.follow import Followed
from eventlog.image import root_hash
from eventlog.reader import Reader, StoredEvent
from eventlog.records import Record
from eventlog.values import Epoch, Seq, StreamId
from eventlog.verify import verify
from tests.eventlog import support
from tests.eventlog.support import ROOT, STREAM
from tests.eventlog.test_command import assert_one_sentence, lines, run
from tests.eventlog.test_held_files import hold_lock

ROOT_HASH = root_hash({b"": support.IMAGE[b""]}).hex()


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A session that goes on, at epoch 1."""
    path = support.create_small(tmp_path)
    writer = support.open_writer(path)
    writer.raise_floor(STREAM, Epoch(1), support.started())
    writer.close()
    return path


def start_tail(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "eventlog", "tail", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=support.ROOT)


def read_line(tail: "subprocess.Popen[str]") -> str:
    assert tail.stdout is not None
    return tail.stdout.readline()


def second_session(path: str) -> None:
    writer = support.open_writer(path, first_id=3_000_000)
    writer.open_stream(StreamId("second"), support.opened("second", image={b"": support.IMAGE[b""]}), "open")
    writer.close()


def test_tail_prints_what_show_prints_and_ends_with_the_session(tmp_path: Path) -> None:
    path = support.make_log(tmp_path)
    done = run("tail", path, "--from", "1", "--until-end")
    assert (done.returncode, done.stderr) == (0, b"")
    *shown, last = lines(done.stdout)
    assert shown == lines(run("show", path).stdout)
    assert last == "tail: 9 events, 0 of them new, no lag to measure, 1 polls"
    *objects, lag = lines(run("tail", path, "--from", "8", "--until-end", "--json").stdout)
    assert objects == lines(run("show", path, "--json").stdout)[7:]
    assert json.loads(lag) == {"lag": {"events": 2, "new": 0, "p50_ms": None, "max_ms": None, "polls": 1}}


def test_tail_shows_each_event_as_it_comes_until_the_session_ends_and_then_the_lag(log: str) -> None:
    tail = start_tail(log, "--from", "2", "--until-end")
    assert "driver_started" in read_line(tail)
    for number in range(3):
        assert run("append", "--kind", "noted", log, "--text", f"note {number}").returncode == 0
        assert f"note {number}" in read_line(tail)
    writer = support.open_writer(log, first_id=5_000_000)
    writer.append(STREAM, Epoch(1), [Record(events.SessionFinished(1, ROOT_HASH))], (), "finish")
    writer.close()
    out, error = tail.communicate()
    assert tail.returncode == 0 and error == "" and "session_finished" in out
    found = re.fullmatch(r"tail: 5 events, 4 of them new, lag p50 (\d+) ms, max \d+ ms, (\d+) polls", out.splitlines()[-1])
    assert found and int(found[2]) >= 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_ends_well_when_it_is_interrupted(log: str, number: int) -> None:
    tail = start_tail(log, "--from", "1", "--json")
    assert [json.loads(read_line(tail))["kind"] for _ in range(2)] == ["session_opened", "driver_started"]
    tail.send_signal(number)
    out, error = tail.communicate()
    assert (tail.returncode, error) == (0, "")
    assert json.loads(out)["lag"]["events"] == 2 and len(out.splitlines()) == 1


def test_tail_of_several_sessions_shows_all_or_the_one_that_is_named(log: str) -> None:
    second_session(log)
    assert_one_sentence(run("tail", log, "--from", "1", "--until-end"), 2, "2 sessions in this log", "--session: nightly, second")
    done = run("tail", log, "--session", "second", "--from", "1", "--for", "0")
    assert [line.split()[0] for line in lines(done.stdout)] == ["second", "tail:"]
    assert lines(run("tail", log, "--for", "0.2").stdout)[-1].startswith("tail: 0 events")
    assert_one_sentence(run("tail", log, "--session", "other"), 2, "no session other", "nightly, second")


def test_tail_says_mistakes_in_one_sentence(log: str, tmp_path: Path) -> None:
    assert_one_sentence(run("tail", str(tmp_path / "no")), 2, "there is no log here")
    assert_one_sentence(run("tail", log, "--from", "9"), 2, "no event 8 yet", "its head is 2")
    support.tamper(log, "UPDATE event SET payload = replace(payload, 'n1', 'n2') WHERE seq = 2")
    done = run("tail", log, "--from", "1", "--for", "0")
    assert done.returncode == 1 and b"seq 2" in done.stderr and len(lines(done.stdout)) == 1


def test_tail_of_a_log_that_vanishes_or_is_exchanged_says_so(log: str) -> None:
    tail = start_tail(log, "--from", "1")
    read_line(tail)
    Path(log).rename(log + ".away")
    _, error = tail.communicate()
    assert tail.returncode == 2 and "the log is gone from its path" in error and len(error.splitlines()) == 1


def test_the_lag_is_that_of_new_events() -> None:
    lag = Lag()
    for at_ms, seen_ms, is_new in ((0, 9000, False), (100, 110, True), (100, 130, True), (100, 190, True), (100, 240, True)):
        stored = StoredEvent(Seq(1), bytes(16), Epoch(0), bytes(32), events.Noted(at_ms, "x"), ())
        lag.note(Followed(STREAM, stored, seen_ms, is_new))
    assert describe_lag(lag, 7) == "tail: 5 events, 4 of them new, lag p50 90 ms, max 140 ms, 7 polls"
    assert json.loads(lag_as_json(lag, 7)) == {"lag": {"events": 5, "new": 4, "p50_ms": 90, "max_ms": 140, "polls": 7}}


def newest(path: str) -> events.Event:
    reader = Reader.open(path)
    try:
        assert not verify(reader).findings
        return list(reader.events(STREAM))[-1].event
    finally:
        reader.close()


def test_append_notes_a_text(log: str) -> None:
    done = run("append", "--kind", "noted", log, "--text", "caf\u00e9 \x1b[2J")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"nightly 3 noted\n", b"")
    event = newest(log)
    assert isinstance(event, events.Noted) and event.text == "caf\u00e9 \x1b[2J" and event.at_ms > 1_600_000_000_000


def test_append_admits_an_input_once(log: str) -> None:
    order = ("append", "--kind", "input_admitted", log, "--request", "r-1", "--input")
    first = json.loads(run(*order, '{"say": "hello", "n": 1}', "--json").stdout)
    again = json.loads(run(*order, '{"n": 1, "say": "hello"}', "--json").stdout)
    assert first == {**again, "is_new": True} and not again["is_new"]
    assert set(first) == {"stream", "seq", "kind", "id", "hash", "is_new"} and (first["stream"], first["seq"]) == ("nightly", 3)
    assert run(*order, '{"n": 1, "say": "hello"}').stdout == b"nightly 3 input_admitted (it was admitted before)\n"
    assert_one_sentence(run(*order, '{"say": "bye"}'), 2, "request r-1 was admitted with another input at seq 3")
    event = newest(log)
    assert isinstance(event, events.InputAdmitted) and event.input == {"say": "hello", "n": 1}


MISTAKES: dict[str, tuple[tuple[str | bytes, ...], str]] = {
    "a note without text": (("noted",), "a note has --text"),
    "a note with a request": (("noted", "--text", "x", "--request", "r"), "neither --request nor --input"),
    "an input without request": (("input_admitted", "--input", "{}"), "an input has --request and --input"),
    "an input with text": (("input_admitted", "--input", "{}", "--request", "r", "--text", "x"), "no --text"),
    "an empty request": (("input_admitted", "--input", "{}", "--request", ""), "--request is empty"),
    "a list": (("input_admitted", "--input", "[1]", "--request", "r"), "not a JSON object"),
    "no JSON": (("input_admitted", "--input", "{\x1b", "--request", "r"), "not a JSON object"),
    "deep": (("input_admitted", "--input", '{"a":' * 5000, "--request", "r"), "not a JSON object"),
    "half a letter": (("input_admitted", "--input", '{"a": "\\ud800"}', "--request", "r"), "not a JSON object"),
    "not UTF-8": (("noted", "--text", b"caf\xe9"), "caf\\xe9: not UTF-8"),
    "another kind": (("session_finished", "--text", "x"), "--kind"),
    "another session": (("noted", "--text", "x", "--session", "other"), "no session other in this log; there are: nightly"),
}


@pytest.mark.parametrize(("arguments", "words"), MISTAKES.values(), ids=MISTAKES)
def test_append_says_mistakes_in_one_sentence_and_writes_nothing(
    log: str, arguments: tuple[str | bytes, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["append", log, "--kind", *(os.fsdecode(argument) for argument in arguments)]
    assert console.run(app, "eventlog", 2, lambda error: 2, given) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and len(said.err.splitlines()) == 1 and said.err.rstrip("\n").isprintable()
    assert support.head(log) == (2, 1)


def test_append_needs_a_session_where_there_are_several(log: str) -> None:
    second_session(log)
    assert_one_sentence(run("append", log, "--kind", "noted", "--text", "x"), 2, "2 sessions in this log", "--session: nightly, second")
    assert run("append", log, "--kind", "noted", "--text", "x", "--session", "second").stdout == b"second 2 noted\n"


def test_invariant_I9_append_makes_no_log(tmp_path: Path) -> None:
    assert_one_sentence(run("append", str(tmp_path / "log.sqlite"), "--kind", "noted", "--text", "x"), 2, "there is no log here")
    assert list(tmp_path.iterdir()) == []


def test_rule_L4_append_to_a_held_log_names_the_holder_and_exits_1(log: str) -> None:
    holder = hold_lock(log)
    done = run("append", log, "--kind", "noted", "--text", "x")
    assert_one_sentence(done, 1, f"LogBusy: held by pid {holder.pid} (", "); try again, or end that process")
    holder.communicate("\n")
    assert support.head(log) == (2, 1)


@pytest.mark.parametrize("depth", [101, 977, 979, 5000])
def test_an_input_nested_too_deeply_for_any_reader_is_misuse(log: str, depth: int) -> None:
    given = '{"a":' * depth + "1" + "}" * depth
    before = support.texts(log)
    assert_one_sentence(run("append", log, "--kind", "input_admitted", "--request", "d", "--input", given), 2)
    deep = '{"a":' * 98 + "1" + "}" * 98  # with the payload's own levels: the deepest
    assert run("append", log, "--kind", "input_admitted", "--request", "d", "--input", deep).returncode == 0
    assert support.texts(log) == before and run("verify", log).returncode == 0


@pytest.mark.parametrize("arguments", [("tail", "--from", "9" * 23), ("pin", "--at", "9" * 23), ("pin", "--at", "1", "--note", b"\xff")])
def test_numbers_and_texts_that_no_log_takes_are_one_sentence(log: str, arguments: tuple[str | bytes, ...]) -> None:
    done = run(arguments[0], log, *arguments[1:])  # type: ignore[arg-type]
    assert done.returncode == 2 and b"Traceback" not in done.stderr and done.stderr.count(b"\n") == 1


def test_a_reader_that_has_had_enough_ends_a_command_with_141(log: str) -> None:
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" -m eventlog show --json "$1" | true', sys.executable, log], cwd=ROOT, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 141) and done.stderr == b"", "0 when all was written before the pipe was closed"


def test_a_full_device_behind_the_output_is_one_sentence(log: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "eventlog", "show", log], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"the output: No space left" in done.stderr


def test_a_bundle_where_a_log_belongs_is_told(log: str, tmp_path: Path) -> None:
    bundle = str(tmp_path / "a.bundle")
    assert run("export", log, "--to", bundle).returncode == 0
    assert_one_sentence(run("verify", bundle), 2, "this is a bundle", "--new --dry-run")


def test_tail_until_the_end_waits_for_no_fork_that_nobody_drives(log: str) -> None:
    writer = support.open_writer(log, first_id=5_000_000)
    writer.append(STREAM, Epoch(1), [Record(events.SessionFailed(1, root_hash(support.IMAGE).hex(), "x"))], (), "end")
    writer.close()
    assert run("fork", log, "--at", "1", "--name", "other").returncode == 0
    done = run("tail", log, "--session", "nightly", "--from", "1", "--until-end", "--for", "20")
    assert lines(done.stdout)[-1].startswith("tail: ")
    began = run("tail", log, "--until-end", "--for", "5")
    assert began.returncode == 0 and lines(began.stdout)[-1].endswith(", 1 polls")
