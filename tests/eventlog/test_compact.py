"""Compaction inside the file: what it gives up and keeps, that it leaves every handle good, and what a crash or a lack of room leaves."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.oracle.chain import reference_defects
from chaos.oracle.load import load_log
from eventlog import codec, compact, connection, errors, steps, wal
from eventlog.blobs import encode_content
from eventlog.bundle_export import Exported, export_moved
from eventlog.compact import Compacted, compact_log, plan_compaction
from eventlog.creation import create_log
from eventlog.errors import BusyError, CompactedError, ContentGoneError, CorruptError, FullError, ReplacedError, UncertainCommitError
from eventlog.pins import add_pin, remove_pin
from eventlog.ports import CountingIds, FakeClock, RandomIds
from eventlog.reader import Reader, StoredEvent
from eventlog.retention import Policy, choose_points, keep_outputs, outline_stream
from eventlog.survey import read_pins
from eventlog.values import CHUNK_BYTES, ContentId, Seq, StreamId
from eventlog.verify import Verified, verify
from eventlog.writer import Writer
from tests.eventlog import bundles, growing, support
from tests.eventlog.growing import Session, contents_of, noise, read_whole
from tests.eventlog.support import ROOT, STREAM
from tests.helpers import wait_until
from tests.recovery.workspace.support import run_with_own_mounts

KIB, MIB = 1 << 10, 1 << 20
GOLDEN_1 = Path(__file__).with_name("golden") / "format-1.sqlite"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On tmpfs where there is one: these tests sync thousands of times, and no test here is about power."""
    with tempfile.TemporaryDirectory(prefix="eventlog-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        yield Path(directory)


def grown(directory: Path, calls: int = 6, size: int = 200_000) -> str:
    """A log whose one file was written anew by every call, each call with an output of its own; its path."""
    session = growing.begin(support.create_small(directory))
    for number in range(calls):
        session.call({b"file": noise(number, size)}, b"said %d" % number)
    session.writer.close()
    return str(directory / "log.sqlite")


def run(path: str, keep: int = 1, outputs: int | None = None) -> Compacted:
    return compact_log(path, Policy(keep, outputs), FakeClock(), RandomIds())


def check(path: str) -> Verified:
    reader = Reader.open(path)
    try:
        found = verify(reader)
        assert found.findings == ()
        return found
    finally:
        reader.close()


def all_events(path: str) -> dict[StreamId, list[StoredEvent]]:
    reader = Reader.open(path)
    try:
        return {row.id: list(reader.events(row.id)) for row in reader.streams()}
    finally:
        reader.close()


def dropped(path: str) -> set[ContentId]:
    reader = Reader.open(path)
    try:
        rows = reader.rows("SELECT hash FROM dropped WHERE reason = 'compacted'")
        return {ContentId(name) for (name,) in rows if isinstance(name, bytes)}
    finally:
        reader.close()


def content_of(*numbers: int, size: int = 200_000) -> set[ContentId]:
    return {codec.content_id(noise(number, size)) for number in numbers}


def test_old_contents_go_on_record_and_their_room_comes_back(tmp_path: Path) -> None:
    path = grown(tmp_path)
    before = all_events(path)
    done = run(path, keep=2)
    assert dropped(path) == content_of(0, 1, 2, 3)
    assert done.given_up.by_session == {STREAM: pytest.approx(4 * 200_000, rel=0.01)} and done.given_up.contents == 4
    assert done.free_pages == 0 and done.note == "" and isinstance(done.wal, wal.Tidied)
    assert done.after_bytes == os.path.getsize(path) < done.before_bytes - 4 * 190_000
    assert all_events(path) == before and check(path).blobs == 2 + 6
    reader = Reader.open(path)
    with pytest.raises(CompactedError, match="belongs to old images only and was given up by compaction"):
        list(reader.content(codec.content_id(noise(0, 200_000))))
    reader.close()


def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path) -> None:
    path = grown(tmp_path)
    run(path)
    before = Path(path).read_bytes()
    again = run(path)
    assert (again.given_up.contents, again.given_up.total_bytes) == (0, 0)
    assert Path(path).read_bytes() == before


def test_the_append_only_triggers_hold_again_after_a_compaction(tmp_path: Path) -> None:
    path = grown(tmp_path)
    sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name"
    writer = support.open_writer(path)
    before = writer.reader.rows(sql)
    run(path)
    assert writer.reader.rows(sql) == before
    with pytest.raises(apsw.ConstraintError, match="blobs are append-only"):
        writer._handle.execute("DELETE FROM blob").fetchall()
    writer.close()


def test_older_outputs_go_where_that_is_asked_for(tmp_path: Path) -> None:
    path = grown(tmp_path)
    run(path, keep=9)
    assert dropped(path) == set()
    run(path, keep=9, outputs=2)
    assert dropped(path) == {codec.content_id(b"said %d" % number) for number in range(4)}
    check(path)


def test_a_content_that_comes_back_is_held_again_and_stays_on_record(tmp_path: Path) -> None:
    path = grown(tmp_path)
    run(path)
    session = Session(support.open_writer(path), STREAM, {}, 1, epoch=2)
    session.image = dict(session.writer.reader.image(STREAM, Seq(99)))
    session.calls = 6
    session.call({b"file": noise(0, 200_000)})
    read_whole(session.writer.reader, session.image)
    session.call({b"file": b"small"})
    session.writer.close()
    assert run(path).given_up.contents == 2  # of call 5, and that one again
    assert dropped(path) == content_of(0, 1, 2, 3, 4, 5)
    check(path)


def test_pinned_events_and_forks_keep_their_contents(tmp_path: Path) -> None:
    session = growing.begin(support.create_small(tmp_path))
    seqs = [session.call({b"file": noise(number)}) for number in range(6)]
    fork = session.fork("fork", seqs[1])
    for number in range(10, 13):
        fork.call({b"file": noise(number)})
    assert add_pin(session.writer, STREAM, Seq(seqs[3]), "good") and not add_pin(session.writer, STREAM, Seq(seqs[3]), "again")
    path = session.writer.path
    session.writer.close()
    run(path)
    assert dropped(path) == content_of(0, 2, 4, 10, 11, size=20_000)
    writer = support.open_writer(path)
    assert remove_pin(writer, STREAM, Seq(seqs[3])) and not remove_pin(writer, STREAM, Seq(seqs[3]))
    writer.close()
    run(path)
    assert dropped(path) == content_of(0, 2, 3, 4, 10, 11, size=20_000)
    check(path)


def test_chunks_are_shared_across_images_sessions_and_forks(tmp_path: Path) -> None:
    """A large file that grows at its beginning: its old images go, the chunks that the newest one shares with them stay."""
    body = noise(1, 3 * CHUNK_BYTES)
    session = growing.begin(support.create_small(tmp_path))
    seq = session.call({b"big": body})
    session.call({b"big": b"one " + body, b"small": noise(7)})
    fork = session.fork("fork", seq)
    fork.call({b"big": b"two" + body, b"small": noise(7)})
    session.call({b"big": None, b"small": noise(8)})
    path = session.writer.path
    session.writer.close()
    done = run(path)
    assert dropped(path) == {codec.content_id(b"one " + body)}  # noise(7) is in the fork's head
    assert done.given_up.chunks >= 1 and done.given_up.by_session[STREAM] < CHUNK_BYTES + 400
    reader = Reader.open(path)
    for image in (fork.image, session.images[seq], session.image):
        read_whole(reader, image)
    reader.close()
    check(path)


def test_a_dry_run_says_the_same_and_changes_no_byte(tmp_path: Path) -> None:
    path = grown(tmp_path)
    support.open_writer(path).insert_blobs([codec.encode_blob(noise(99))])
    before = [Path(path + suffix).read_bytes() for suffix in ("", "-wal")]
    shown = subprocess.run(
        [sys.executable, "-m", "eventlog", "compact", path, "--keep", "2", "--dry-run", "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [Path(path + suffix).read_bytes() for suffix in ("", "-wal")] == before
    planned = json.loads(shown.stdout)
    assert planned["dry_run"] and planned["given_up"]["contents"] == 4 and planned["given_up"]["orphans"] == 1
    done = run(path, keep=2).given_up
    assert (planned["given_up"]["total_bytes"], planned["given_up"]["by_session"]) == (done.total_bytes, done.by_session)


def test_a_blob_that_is_away_and_not_on_record_is_damage_and_the_oracle_agrees(tmp_path: Path) -> None:
    path = grown(tmp_path)
    name, other = content_of(0).pop().hex(), content_of(1).pop().hex()
    (tmp_path / "scratch").mkdir()
    run(path, keep=5)
    assert dropped(path) == content_of(0) and load_log(path, str(tmp_path / "scratch")).blobs.given_up == content_of(0)
    assert judge_chain(path, tmp_path) == []
    support.tamper(path, f"DELETE FROM blob WHERE hash = x'{other}'")
    reader = Reader.open(path)
    assert [(finding.where, other in finding.what) for finding in verify(reader).findings] == [("stream nightly seq 6", True)]
    reader.close()
    assert [other in text for text in judge_chain(path, tmp_path)] == [True]
    support.tamper(path, f"INSERT INTO dropped VALUES (x'{other}', 200000, 'lost', 1)")
    check(path)
    assert judge_chain(path, tmp_path) == []
    support.tamper(path, f"DELETE FROM dropped WHERE hash = x'{name}'")
    reader = Reader.open(path)
    assert [name in finding.what for finding in verify(reader).findings] == [True]
    reader.close()
    assert [name in text for text in judge_chain(path, tmp_path)] == [True]


def judge_chain(path: str, directory: Path) -> list[str]:
    """What the independent oracle says of a log's references to blobs."""
    log = load_log(path, str(directory / "scratch"))
    return [defect.text for stream in log.streams.values() for event in stream.events for defect in reference_defects(log.blobs, event)]


def test_a_damaged_log_is_left_as_it_is(tmp_path: Path) -> None:
    path = grown(tmp_path)
    support.tamper(path, "UPDATE event SET payload = replace(payload, 'live', 'life') WHERE seq = 4")
    support.checkpoint(path)
    before = Path(path).read_bytes()
    with pytest.raises(CorruptError, match="its hash does not fit"):
        run(path)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("step", ["compact.commit.before", "vacuum.commit.before", None])
def test_rule_L5_a_log_that_is_exchanged_under_the_handle_is_not_compacted(tmp_path: Path, step: str | None) -> None:
    """Before it begins, or between one of its transactions and the next."""
    path = grown(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "other")
    writer = support.open_writer(path)

    def exchange() -> None:
        os.replace(tmp_path / "other" / "log.sqlite", path)

    steps.install(None if step is None else support.Calling(step, exchange))
    try:
        if step is None:
            exchange()
        with pytest.raises(ReplacedError):
            compact.compact(writer, Policy(1), FakeClock(), takes_orphans=True)
    finally:
        steps.install(None)
    is_begun = step == "vacuum.commit.before"  # nothing of the transaction after the exchange has come into the file that is held
    assert writer.reader.rows("SELECT count(*) FROM dropped") == [(5 if is_begun else 0,)]
    assert (writer.reader.rows("PRAGMA freelist_count") != [(0,)]) == is_begun
    writer.close()


def test_every_handle_stays_good_through_a_compaction(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer, reader = support.open_writer(path), Reader.open(path)
    half = reader.events(STREAM)
    first = next(half)
    run(path)
    assert [first, *half] == all_events(path)[STREAM]
    read_whole(reader, dict(reader.image(STREAM, Seq(99))))
    support.add(writer, 1, "still here")
    assert support.texts(path) == ["still here"]
    reader.close()
    writer.close()
    check(path)


# What a concurrent commit names is never lost.


def test_an_append_that_names_a_content_given_up_meanwhile_is_refused_whole(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer = support.open_writer(path)
    old = noise(0, 200_000)
    assert writer.reader.has_blob(codec.content_id(old))  # so a driver would not send it again
    run(path)
    session = Session(writer, STREAM, {}, 1, epoch=2)
    session.image, session.calls = dict(writer.reader.image(STREAM, Seq(99))), 6
    session.begin()
    before = all_events(path)
    after = growing.change(session.image, {b"back": old})
    record = support.settled(7, after, support.diff(session.image, after))
    with pytest.raises(ContentGoneError, match=f"the content {codec.content_id(old).hex()} that this append needs is not in the log"):
        writer.append(STREAM, session.epoch, [record], [codec.encode_blob(support.OUTPUT)], "outcome")
    assert all_events(path) == before
    with pytest.raises(ContentGoneError, match=codec.content_id(support.OUTPUT).hex()):
        writer.append(STREAM, session.epoch, [support.settled(7, session.image, ())], (), "outcome")
    writer.append(STREAM, session.epoch, [record], [codec.encode_blob(old), codec.encode_blob(support.OUTPUT)], "outcome")
    writer.close()
    check(path)


def test_blobs_ahead_of_their_commit_stay_while_their_writer_has_the_log_open(tmp_path: Path) -> None:
    path = grown(tmp_path)
    ahead = codec.encode_blob(noise(50))
    order = subprocess.Popen(
        [sys.executable, "-c", AHEAD, path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert order.stdin is not None and order.stdout is not None
    assert order.stdout.readline() == "ahead\n"
    done = run(path)
    assert (done.given_up.orphans, done.given_up.orphans_left, done.given_up.contents) == (0, True, 5)
    order.stdin.write("\n")
    order.stdin.flush()
    assert order.stdout.readline() == "named\n" and order.wait() == 0
    order.stdin.close()
    order.stdout.close()
    reader = Reader.open(path)
    assert codec.decode_blob(reader.blob(ahead.content)) == noise(50)
    reader.close()
    check(path)
    assert not run(path).given_up.orphans_left


AHEAD = """
import sys
from eventlog import codec
from tests.eventlog import growing, support
session = growing.Session(support.open_writer(sys.argv[1], busy_ms=5000), support.STREAM, {}, 1, epoch=2)
session.image, session.calls = dict(session.writer.reader.image(support.STREAM, 99)), 6
session.begin()
session.writer.insert_blobs([codec.encode_blob(growing.noise(50))])
print("ahead", flush=True)
sys.stdin.readline()
after = growing.change(session.image, {b"new": growing.noise(50)})
record = support.settled(7, after, support.diff(session.image, after))
session.writer.append(support.STREAM, session.epoch, [record], [codec.encode_blob(support.OUTPUT)], "outcome")
print("named", flush=True)
"""


def test_blobs_that_nothing_names_go_when_nobody_has_the_log_open(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer = support.open_writer(path)
    writer.insert_blobs([codec.encode_blob(noise(50)), *list(encode_content([noise(51, 2 * MIB)]))])
    writer.close()
    done = run(path)
    assert done.given_up.orphans >= 4 and done.given_up.orphan_bytes > 2 * MIB
    assert dropped(path) == content_of(0, 1, 2, 3, 4)  # nothing names them: nothing is said of them
    assert check(path).blobs == 1 + 6


def test_a_list_of_chunks_does_not_come_in_without_its_chunks(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer = support.open_writer(path)
    *chunks, names = encode_content([noise(51, 2 * MIB)])
    writer.insert_blobs(chunks)
    compact.compact(writer, Policy(1), FakeClock(), takes_orphans=True)
    with pytest.raises(ContentGoneError):
        writer.insert_blobs([names])
    assert not writer.reader.has_blob(names.content)
    writer.insert_blobs([*chunks, names])
    writer.close()
    check(path)


def test_what_is_appended_between_the_survey_and_the_lock_keeps_its_contents(tmp_path: Path) -> None:
    """A fork and a call made just before the lock is taken: both name what the policy had given up."""
    path = grown(tmp_path)
    session = Session(support.open_writer(path), STREAM, {}, 1, epoch=2)
    session.image, session.calls = dict(session.writer.reader.image(STREAM, Seq(99))), 6

    def append_more() -> None:
        session.fork("late", 4)
        session.call({b"old": noise(2, 200_000)}, b"said again")

    steps.install(support.Calling("compact.commit.before", append_more))
    try:
        run(path)
    finally:
        steps.install(None)
    session.writer.close()
    assert dropped(path) == content_of(1, 3, 4) | (content_of(0) - contents_of(support.image_at(path, 4)))
    found = check(path)
    assert found.streams == 2
    reader = Reader.open(path)
    read_whole(reader, dict(reader.image(StreamId("late"), Seq(1))))
    read_whole(reader, dict(reader.image(STREAM, Seq(99))))
    reader.close()


def test_a_pin_that_comes_between_the_survey_and_the_lock_is_heeded(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer = support.open_writer(path)
    steps.install(support.Calling("compact.commit.before", lambda: add_pin(writer, STREAM, Seq(6), "") and None))
    try:
        run(path)
    finally:
        steps.install(None)
    writer.close()
    assert dropped(path) == content_of(0, 2, 3, 4) | (content_of(1) - contents_of(support.image_at(path, 6)))


def test_a_restore_decided_between_the_survey_and_the_lock_keeps_its_target(tmp_path: Path) -> None:
    path = grown(tmp_path)
    session = Session(support.open_writer(path), STREAM, {}, 1, epoch=2)
    session.calls = 6
    target = next(seq for seq in range(99) if content_of(1) == contents_of(support.image_at(path, seq)))
    session.images[target] = support.image_at(path, target)
    steps.install(support.Calling("compact.commit.before", lambda: session.decide(target)))
    try:
        run(path)
    finally:
        steps.install(None)
    session.writer.close()
    assert dropped(path) == content_of(0, 2, 3, 4)


def test_rule_L8_a_move_between_the_survey_and_the_lock_keeps_all_so_that_its_bundle_comes_again(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer = support.open_writer(path, first_id=8_000_000)
    moved: list[Exported] = []
    steps.install(
        support.Calling(
            "compact.commit.before",
            lambda: moved.append(export_moved(writer, STREAM, str(tmp_path / "a.bundle"), RandomIds(), FakeClock())),
        )
    )
    try:
        run(path)
    finally:
        steps.install(None)
    again = export_moved(writer, STREAM, str(tmp_path / "b.bundle"), RandomIds(), FakeClock())
    writer.close()
    assert [again.digest] == [one.digest for one in moved]
    assert (tmp_path / "a.bundle").read_bytes() == (tmp_path / "b.bundle").read_bytes()


def test_contents_that_a_compaction_takes_from_under_an_import_are_sent_again(tmp_path: Path) -> None:
    """The importer has sent its contents ahead; a compaction that believed itself alone takes them before they are named."""
    path = grown(tmp_path)
    create_log(str(tmp_path / "other.sqlite"), StreamId("other"), support.opened("other"), support.blobs(), CountingIds(9_000_000))
    bundles.make(str(tmp_path / "other.sqlite"), tmp_path / "a.bundle", "other")
    taken: list[int] = []

    def take_orphans() -> None:
        writer = support.open_writer(path, first_id=19_000_000)
        taken.append(compact.compact(writer, Policy(), FakeClock(), takes_orphans=True).given_up.orphans)
        writer.close()

    steps.install(support.Calling("import.commit.before", take_orphans))
    try:
        bundles.take(path, tmp_path / "a.bundle", "mine")
    finally:
        steps.install(None)
    assert taken[0] > 0
    check(path)


def test_a_log_that_lost_a_trigger_is_named_and_not_compacted(tmp_path: Path) -> None:
    path = grown(tmp_path)
    handle = apsw.Connection(path)
    handle.execute("DROP TRIGGER blob_no_delete")
    handle.close()
    with pytest.raises(CorruptError, match="lacks its trigger blob_no_delete"):
        run(path)
    reader = Reader.open(path)
    assert [finding.what for finding in verify(reader).findings] == [
        "the trigger blob_no_delete is missing: what it refuses could be done since"
    ]
    reader.close()


def test_a_content_read_while_it_is_given_up_is_said_to_be_given_up(tmp_path: Path) -> None:
    session = growing.begin(support.create_small(tmp_path))
    body = noise(1, 3 * CHUNK_BYTES)
    session.call({b"big": body})
    session.call({b"big": b"small"})
    session.writer.close()
    reader = Reader.open(session.writer.path)
    pieces = reader.content(codec.content_id(body))
    next(pieces)
    run(session.writer.path)
    with pytest.raises(CompactedError):
        list(pieces)
    reader.close()


# Random histories.

CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9))),
        st.tuples(st.just("big"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("open"), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(st.just("decide"), st.integers(1, 12), st.none()),
        st.tuples(st.just("fork"), st.integers(1, 12), st.none()),
        st.tuples(st.just("pin"), st.integers(1, 12), st.none()),
        st.tuples(st.just("orphan"), st.integers(0, 9), st.none()),
        st.tuples(st.just("switch"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)
BIG = noise(77, CHUNK_BYTES + 200_000)


def play(path: str, calls: list[tuple[str, int, int | None]]) -> list[Session]:
    """Make a history; the sessions in it."""
    sessions = [growing.begin(path)]
    at = 0
    stopped: set[int] = set()
    for what, one, two in calls:
        session = sessions[at]
        seq = min(one, max(session.images))
        if what == "switch":
            at = one % len(sessions)
        elif what == "pin":
            add_pin(session.writer, session.stream, Seq(seq), "")
        elif what == "orphan":
            session.writer.insert_blobs([codec.encode_blob(noise(one, 900))])
        elif what == "fork":
            sessions.append(session.fork(f"fork-{len(sessions)}", seq))
        elif at in stopped:
            continue
        elif what == "call":
            session.call({b"%d" % one: None if two is None else noise(two, 900)}, b"said %d" % session.calls)
        elif what == "big":
            session.call({b"%d" % one: b"%d" % (two or 0) + BIG})
        elif what == "open":
            session.begin()
            stopped.add(at)
        elif what == "decide" and session.calls and seq in session.images:
            session.decide(seq)
            stopped.add(at)
    return sessions


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(calls=CALLS, keep=st.integers(1, 4), outputs=st.one_of(st.none(), st.integers(0, 2)))
def test_after_compaction_a_log_is_sound_and_has_lost_exactly_what_the_policy_says(
    calls: list[tuple[str, int, int | None]], keep: int, outputs: int | None
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        path = support.create_small(Path(directory))
        sessions = play(path, calls)
        policy = Policy(keep, outputs)
        reader = sessions[0].writer.reader
        rows = {row.id: row for row in reader.streams()}
        outlines = [outline_stream(row, reader.events(row.id), "log") for row in rows.values()]
        points = choose_points(outlines, read_pins(reader), policy)
        kept = {one.stream: [dict(reader.image(one.stream, seq)) for seq in points[one.stream]] for one in outlines}
        needed = {content for images in kept.values() for image in images for content in contents_of(image)}
        needed |= {content for one in outlines for content in keep_outputs(one, policy)}
        named = {content for one in sessions for image in one.images.values() for content in contents_of(image)}
        named |= {content for one in outlines for content, _ in one.outputs}
        before = {stream: list(reader.events(stream)) for stream in rows}
        sessions[0].writer.close()

        done = compact_log(path, policy, FakeClock(), RandomIds())
        assert done.free_pages == 0 and isinstance(done.wal, wal.Tidied)
        assert dropped(path) == named - needed
        found = check(path)
        reader = Reader.open(path)
        assert {stream: list(reader.events(stream)) for stream in rows} == before
        for images in kept.values():
            for image in images:
                read_whole(reader, image)
        for content in named - needed:
            with pytest.raises(CompactedError):
                list(reader.content(content))
        lists = [codec.decode_chunk_list(reader.blob(content)) for content in needed if reader.blob(content).codec == "chunks"]
        assert found.blobs == len(needed | {chunk for chunks in lists for chunk in chunks})
        reader.close()
        assert run(path, keep, outputs).given_up.total_bytes == 0


# Crashes, lack of room, devices that fail.


def compact_small_pages(path: str) -> None:
    compact.VACUUM_PAGES = 16
    run(path)


STEPS = [
    "wal.tidy.before:1", "wal.tidy.after:1",
    "compact.commit.before:1", "compact.commit.locked:1", "compact.commit.after:1",
    *(f"vacuum.commit.{place}:{number}" for number in range(1, 3) for place in ("before", "locked", "after")),
    "wal.tidy.before:2", "wal.tidy.after:2",
]  # fmt: skip


def make_for_kills(directory: Path) -> str:
    return grown(directory, calls=3, size=200_000)


def test_the_steps_of_a_compaction_are_those_that_are_killed_at(tmp_path: Path) -> None:
    path = make_for_kills(tmp_path)

    def counted_from_zero() -> None:
        steps.enter("driver", 0)
        compact_small_pages(path)

    found = [step.removeprefix("driver@0:") for step in support.record_steps(counted_from_zero)]
    assert found == ["start:1", *STEPS]


class Waiting:
    """Says at one step that it is there, and stays."""

    def __init__(self, at: str, told: int) -> None:
        self._at = at
        self._told = told

    def pass_step(self, step: str) -> None:
        if step == f"driver@0:{self._at}":
            os.write(self._told, b".")
            while True:
                signal.pause()


def stop_at(step: str, path: str) -> int:
    """A process that compacts and stands at a step; its pid."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            steps.enter("driver", 0)  # counts from zero, whatever this process has passed before
            steps.install(Waiting(step, write_end))
            compact_small_pages(path)
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        assert file.read(1) == b".", f"{step} was not reached"
    return child


@pytest.mark.parametrize("step", STEPS)
def test_rule_L5_a_kill_at_any_step_of_a_compaction_with_a_writer_waiting_leaves_a_sound_log(tmp_path: Path, step: str) -> None:
    """The second writer waits for the lock in another process, the WAL is left behind; its append stands, and compaction converges."""
    path = make_for_kills(tmp_path)
    before = all_events(path)
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.eventlog.worker", path, "7000000", "30000"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None and worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    child = stop_at(step, path)
    worker.stdin.write(json.dumps({"op": "append", "epoch": 1, "text": "waited", "hold": "note.commit.before"}) + "\n\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "held\n"
    if ".locked" in step:
        assert select.select([worker.stdout], [], [], 0.05)[0] == []
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert worker.stdout.readline() == f"ok {len(before[STREAM]) + 1}\n"
    worker.stdin.close()
    assert worker.wait() == 0
    worker.stdout.close()
    is_given_up = STEPS.index(step) >= STEPS.index("compact.commit.after:1")
    assert dropped(path) == (content_of(0, 1) if is_given_up else set())
    assert support.texts(path) == ["waited"]
    check(path)
    done = run(path)
    assert dropped(path) == content_of(0, 1) and (done.free_pages, done.note) == (0, "")
    assert [*before[STREAM], all_events(path)[STREAM][-1]] == all_events(path)[STREAM]
    check(path)


def copy_of_format_1(directory: Path) -> str:
    path = str(directory / "log.sqlite")
    shutil.copyfile(GOLDEN_1, path)
    return path


def free_something(path: str) -> None:
    """Make a log of format 1 one of format 2, with something in it that nothing names."""
    writer = Writer.open(path, RandomIds())
    writer.insert_blobs([codec.encode_blob(noise(number, 100_000)) for number in range(5)])
    writer.close()


def test_a_log_that_began_as_format_1_is_rebuilt_once(tmp_path: Path) -> None:
    path = copy_of_format_1(tmp_path)
    free_something(path)
    before = all_events(path)
    done = run(path)
    assert (done.note, done.free_pages) == ("", 0) and done.after_bytes < done.before_bytes - 400_000
    handle = connection.open_readable(path)
    assert handle.pragma("auto_vacuum") == 2
    handle.close()
    assert all_events(path) == before
    check(path)


@pytest.mark.parametrize("step", ["rebuild.commit.before:1", "rebuild.commit.after:1"])
def test_a_kill_before_or_after_the_rebuild_leaves_a_sound_log(tmp_path: Path, step: str) -> None:
    path = copy_of_format_1(tmp_path)
    free_something(path)
    before = all_events(path)
    support.kill_at(f"driver@0:{step}", lambda: compact_small_pages(path))
    assert all_events(path) == before
    check(path)
    assert run(path).free_pages == 0
    check(path)


def test_a_log_of_format_1_keeps_its_free_pages_where_there_is_no_room_to_rebuild_it(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    source = copy_of_format_1(tmp_path)
    free_something(source)
    support.checkpoint(source)
    size = os.path.getsize(source)

    def compact_without_room() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size + MIB}", "tmpfs", str(place)], check=True)
        path = shutil.copy(source, place)
        done = run(str(path))
        assert "must be rebuilt once, which needs" in done.note and done.free_pages > 0 and done.given_up.orphans == 5
        check(str(path))

    run_with_own_mounts(compact_without_room)


@pytest.mark.parametrize("room", [0, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB])
def test_case_17_a_compaction_on_a_nearly_full_disk_is_done_or_changes_nothing(tmp_path: Path, room: int) -> None:
    place = tmp_path / "small"
    place.mkdir()
    source = grown(tmp_path, calls=8, size=300_000)
    support.checkpoint(source)

    def compact_nearly_full() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], check=True)
        path = str(shutil.copy(source, place))
        Reader.open(path).close()  # the index is there
        size = os.path.getsize(path)
        status = os.statvfs(place)
        (place / "filler").write_bytes(bytes(max(0, status.f_bavail * status.f_frsize - room - 32 * KIB)))
        try:
            done = run(path)
        except (FullError, UncertainCommitError):
            assert room < 128 * KIB and dropped(path) == set()
        else:
            assert dropped(path) == content_of(*range(7), size=300_000)
            assert done.note == "" and os.path.getsize(path) < size - 6 * 300_000
        (place / "filler").unlink()
        assert run(path).free_pages == 0
        assert dropped(path) == content_of(*range(7), size=300_000)
        check(path)

    run_with_own_mounts(compact_nearly_full)


class FailingVFS(apsw.VFS):
    """The operating system's files, but for one write, or one sync, that fails."""

    def __init__(self, name: str) -> None:
        self.vfs_name = name
        self.fails_at = -1
        self.count = 0
        super().__init__(name, "")

    def xOpen(self, name: object, flags: list[int]) -> "FailingFile":
        return FailingFile(self, name, flags)

    def pass_operation(self) -> None:
        self.count += 1
        if self.count - 1 == self.fails_at:
            raise apsw.IOError("a device that fails")


class FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingVFS, name: object, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)  # type: ignore[arg-type]

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.pass_operation()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._vfs.pass_operation()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._vfs.pass_operation()
        super().xTruncate(size)


@pytest.fixture
def failing() -> Iterator[FailingVFS]:
    vfs = FailingVFS("failing-compaction")
    yield vfs
    vfs.unregister()


def test_a_device_that_fails_at_any_write_or_sync_leaves_the_old_state_or_the_new(tmp_path: Path, failing: FailingVFS) -> None:
    (tmp_path / "source").mkdir()
    source = grown(tmp_path / "source", calls=2, size=50_000)
    before = all_events(source)
    support.checkpoint(source)
    failed, at = 0, 0
    ends: set[str] = set()
    while failed == at:  # until one went through without a failure
        path = str(shutil.copy(source, tmp_path / f"{at}.sqlite"))
        failing.fails_at, failing.count = at, 0
        writer = support.open_writer(path, vfs=failing.vfs_name)
        connection.set_synchronous_full(writer._handle, path)
        failing.count = 0
        try:
            compact.compact(writer, Policy(1), FakeClock(), takes_orphans=True)
        except (UncertainCommitError, CorruptError) as error:
            ends.add(type(error).__name__)
        failed += failing.count > at
        writer.close()
        assert dropped(path) in (set(), content_of(0, size=50_000))
        check(path)
        assert run(path).free_pages == 0 and dropped(path) == content_of(0, size=50_000)
        assert all_events(path) == before
        at += 1
        for suffix in ("", "-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
    assert at > 15 and ends == {"UncertainCommitError"}


def test_a_reader_that_pins_the_wal_is_named_at_the_end(tmp_path: Path) -> None:
    path = grown(tmp_path)
    code = (
        "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.execute('BEGIN').fetchall()\n"
        "print(c.execute('SELECT count(*) FROM event').fetchall(), flush=True)\nsys.stdin.readline()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
    done = run(path)
    assert isinstance(done.wal, wal.Pinned) and [holder.pid for holder in done.wal.holders] == [process.pid]
    process.communicate("\n")
    wait_until(lambda: not wal.find_openers(path), "nobody with the log open")
    assert isinstance(run(path).wal, wal.Tidied) and wal.wal_bytes(path) == 0
    check(path)


def test_a_log_that_is_locked_is_left_as_it_is(tmp_path: Path) -> None:
    path = grown(tmp_path)
    writer, other = support.open_writer(path), support.open_writer(path)
    other._handle.execute("BEGIN IMMEDIATE").fetchall()
    with pytest.raises(BusyError):
        compact.compact(writer, Policy(1), FakeClock(), takes_orphans=True)
    other._handle.execute("ROLLBACK").fetchall()
    writer.close()
    other.close()
    assert dropped(path) == set() and errors.BusyError.exit_code == 1


def test_a_plan_is_made_by_a_reader(tmp_path: Path) -> None:
    path = grown(tmp_path)
    reader = Reader.open(path)
    assert plan_compaction(reader, Policy(3), takes_orphans=True).contents == 3
    reader.close()


def format_2(directory: Path) -> str:
    return support.as_format_2(grown(directory, calls=3, size=60_000))


def format_of(path: str) -> int:
    reader = Reader.open(path)
    try:
        return reader.format
    finally:
        reader.close()


@pytest.mark.parametrize("step", ["before", "locked", "after"])
def test_a_kill_while_a_log_of_format_2_becomes_one_of_format_3_leaves_one_of_them_whole(tmp_path: Path, step: str) -> None:
    path = format_2(tmp_path)
    before = all_events(path)
    support.kill_at(f"driver@0:cluster.commit.{step}:1", lambda: compact_small_pages(path))
    assert format_of(path) == (3 if step == "after" else 2)
    assert all_events(path) == before
    check(path)
    assert run(path).note == "" and format_of(path) == 3
    assert all_events(path) == before
    check(path)


def test_a_log_of_format_2_stays_one_where_there_is_no_room_for_its_rows_twice(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    source = format_2(tmp_path)
    support.checkpoint(source)
    size = os.path.getsize(source)

    def compact_without_room() -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size + MIB}", "tmpfs", str(place)], check=True)
        path = str(shutil.copy(source, place))
        done = run(path)
        assert "the log stays format 2: to become format 3 it needs" in done.note and format_of(path) == 2
        check(path)

    run_with_own_mounts(compact_without_room)


def test_a_log_of_format_2_that_lacks_a_trigger_does_not_become_one_of_format_3(tmp_path: Path) -> None:
    path = format_2(tmp_path)
    handle = apsw.Connection(path)
    handle.execute("DROP TRIGGER event_no_delete").fetchall()
    handle.close()
    writer = support.open_writer(path)
    with pytest.raises(CorruptError, match="lacks its trigger event_no_delete"):
        writer.cluster()
    assert writer.reader.format == 2 and writer.reader.rows("PRAGMA foreign_keys") == [(1,)]
    writer.close()


def test_a_compacted_log_of_format_2_refuses_and_enforces_what_a_new_one_does(tmp_path: Path) -> None:
    path = format_2(tmp_path)
    run(path)
    writer = support.open_writer(path)
    triggers = {str(name): str(sql) for name, sql in writer.reader.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")}
    assert triggers == connection.expected_triggers(3)
    assert writer.reader.rows("PRAGMA foreign_keys") == [(1,)] and writer.reader.rows("PRAGMA foreign_key_check") == []
    columns = "stream, seq, idx, path, op, kind, mode, size, mtime_ns"
    orphan = f"INSERT INTO image_change ({columns}) VALUES ('nightly', 99, 0, x'61', 'del', '', 0, 0, 0)"
    with pytest.raises(CorruptError, match="FOREIGN KEY"):
        writer.maintain("try", lambda handle: handle.execute(orphan).fetchall())
    writer.close()
