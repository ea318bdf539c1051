"""Bundles as their enemies make them: refused in one sentence, within bounds, and nothing of them is left in the log."""

import random
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import zstandard
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventlog import bundle_format, events
from eventlog.bundle_import import import_bundle, import_into_new
from eventlog.errors import CorruptError, CrashworthyError, FullError, MisuseError
from eventlog.image import Change, Entry, delete_change, diff, put_change, root_hash
from eventlog.ports import CountingIds, FakeClock
from eventlog.values import StreamId
from tests.eventlog import bundles, support
from tests.eventlog.test_bundle import make_target

ROOT = {b"": support.IMAGE[b""]}
DATA = b"a content of the bundle"
FILE = Entry("f", 0o600, blake3(DATA).digest(), len(DATA))
HOSTILE_NAME = "evil"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small, sound bundle."""
    return make_small(tmp_path_factory.mktemp("small"))


def make_small(directory: Path) -> Path:
    file = directory / "small.bundle"
    image = {**ROOT, b"d": Entry("d", 0o755), b"d/f": FILE}
    history: list[bundles.Forged] = [opened(image), (events.Noted(3, "one"), ()), started(2), (events.Noted(4, "two"), ())]
    file.write_bytes(bundles.pack(bundles.forge(history, [DATA], epochs=[0, 0, 2, 2], floor=2)))
    return file


def opened(image: dict[bytes, Entry], changes: tuple[Change, ...] | None = None) -> bundles.Forged:
    record = support.opened(HOSTILE_NAME, image)
    return record.event, record.changes if changes is None else changes


def started(_: int) -> bundles.Forged:
    return support.started(), ()


class Target:
    """A log to import into; whatever is refused must leave every row of it as it is. What was taken needs a new one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._watch: apsw.Connection | None = None
        self.renew()

    def renew(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        directory = self._directory.with_name(f"{self._directory.name}-{self._count}")
        self._count += 1
        self.log = make_target(directory)
        self.file = directory / "evil.bundle"
        self.before = bundles.dump(self.log)

    def refuse(self, data: bytes, words: str = ": ", kind: type[Exception] = CorruptError) -> None:
        self.file.write_bytes(data)
        with pytest.raises(kind, match=words) as caught:
            bundles.take(self.log, self.file, "new")
        assert str(self.file) in str(caught.value) and str(caught.value).isprintable()
        assert bundles.dump(self.log) == self.before

    def try_to_take(self, data: bytes) -> bool:
        """Whether it was taken; when it was refused, nobody has committed anything."""
        if self._watch is None:
            assert bundles.dump(self.log) == self.before
            self._watch = apsw.Connection(self.log, flags=apsw.SQLITE_OPEN_READONLY)
        version = self._watch.pragma("data_version")
        self.file.write_bytes(data)
        try:
            bundles.take(self.log, self.file, "new")
        except CrashworthyError:
            assert self._watch.pragma("data_version") == version
            return False
        assert self._watch.pragma("data_version") != version
        return True


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "there")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """One log for many attempts."""
    return Target(tmp_path_factory.mktemp("shared") / "there")


def assert_equal_content(target: Target, small: Path) -> None:
    """What was taken from a changed file is what the intact file holds."""
    again = target.file.with_suffix(".again")
    bundles.make(target.log, again, f"{HOSTILE_NAME}@{bundles.LOG_ID[:12]}:4")
    assert bundles.unpack(again) == bundles.unpack(small)
    target.renew()


def test_the_forged_bundle_is_sound_where_nothing_is_wrong(target: Target, small: Path) -> None:
    assert target.try_to_take(small.read_bytes())
    bundles.assert_sound(target.log)
    assert_equal_content(target, small)


def test_every_flipped_byte_of_the_file_is_refused_or_harmless(small: Path, target: Target) -> None:
    data = small.read_bytes()
    taken = []
    for offset in range(len(data)):
        changed = bytearray(data)
        changed[offset] ^= 1 << (offset % 8)
        if target.try_to_take(bytes(changed)):
            assert_equal_content(target, small)
            taken.append(offset)
    assert len(taken) <= 8, f"too many flips are harmless: {taken}"


def test_every_flipped_byte_of_the_records_is_refused_even_when_the_trailer_fits(small: Path, target: Target) -> None:
    """Nothing but the chain, the names of contents and the header's own checks stands against an author who seals the bundle again."""
    records = bundles.unpack(small)
    for index, (kind, body) in enumerate(records[:-1]):
        for offset in range(len(body)):
            changed = bytearray(body)
            changed[offset] ^= 1 << (offset % 8)
            forged = bundles.sealed([*records[:index], (kind, bytes(changed)), *records[index + 1 : -1]])
            assert not target.try_to_take(bundles.pack(forged)), (kind, offset)
    for offset in range(72):
        changed = bytearray(records[-1][1])
        changed[offset] ^= 1
        assert not target.try_to_take(bundles.pack([*records[:-1], ("T", bytes(changed))])), ("T", offset)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_damage_is_refused_or_harmless(shared: Target, small: Path, data: st.DataObject) -> None:
    whole = small.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 40))
    damaged = whole[:at] + data.draw(st.binary(max_size=40)) + whole[at + cut :]
    if shared.try_to_take(damaged):
        assert_equal_content(shared, small)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_records_are_refused_or_harmless(shared: Target, small: Path, data: st.DataObject) -> None:
    """Records dropped, doubled, moved, cut and filled with anything, under a trailer that fits."""
    records = bundles.unpack(small)[:-1]
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(records) - 1))
        kind, body = records[index]
        match data.draw(st.sampled_from(["drop", "double", "move", "cut", "fill", "kind"])):
            case "drop" if len(records) > 1:
                del records[index]
            case "double":
                records.insert(index, (kind, body))
            case "move":
                records.insert(data.draw(st.integers(0, len(records) - 1)), records.pop(index))
            case "cut":
                records[index] = (kind, body[: data.draw(st.integers(0, len(body)))])
            case "fill":
                records[index] = (kind, data.draw(st.binary(max_size=80)))
            case _:
                records[index] = (data.draw(st.sampled_from("HECDPGTx")), body)
    if shared.try_to_take(bundles.pack(bundles.sealed(records))):
        assert_equal_content(shared, small)


def test_a_bundle_cut_anywhere_is_refused(small: Path, target: Target) -> None:
    data = small.read_bytes()
    for length in range(len(data)):
        assert not target.try_to_take(data[:length]), length


def test_a_large_bundle_cut_anywhere_is_refused(tmp_path: Path, target: Target) -> None:
    bundles.make(support.make_log(tmp_path), tmp_path / "a.bundle")
    data = (tmp_path / "a.bundle").read_bytes()
    for length in sorted(random.Random(4).sample(range(len(data)), 40)):
        assert not target.try_to_take(data[:length]), length


@pytest.mark.parametrize(
    "more",
    [b"\0", b"garbage" * 1000, zstandard.ZstdCompressor().compress(b"more"), b"\x50\x2a\x4d\x18\x04\0\0\0skip"],
    ids=["zero", "garbage", "second frame", "skippable frame"],
)
def test_what_follows_the_stream_is_refused(small: Path, target: Target, more: bytes) -> None:
    target.refuse(small.read_bytes() + more, "something follows its compressed stream")


def test_what_follows_the_trailer_is_refused(small: Path, target: Target) -> None:
    records = bundles.unpack(small)
    for more in [("P", b"more"), ("T", records[-1][1])]:
        target.refuse(bundles.pack([*records, more]), "something follows its last record")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a bundle"),
        (b"crashworthy bundle", "not a bundle"),
        (b"crashworthy bundle x\n", "not a bundle"),
        (b"SQLite format 3\0" + bytes(100), "not a bundle"),
        (b"crashworthy bundle 2\n" + bytes(100), "bundle format 2 is not known here .this version reads 1."),
        (b"crashworthy bundle 12 moved\n", "bundle format 12 is not known here"),
    ],
)
def test_other_files_and_newer_formats_are_refused_by_name(target: Target, data: bytes, words: str) -> None:
    target.refuse(data, words, MisuseError)


def test_what_is_no_file_is_refused(target: Target, tmp_path: Path) -> None:
    for name, words in (("there-0", "not a regular file"), ("nowhere", "cannot be opened"), ("nul\0", "cannot be opened")):
        with pytest.raises(MisuseError, match=words):
            bundles.take(target.log, tmp_path / name, "new")


def put(path: bytes, entry: Entry = FILE) -> Change:
    return put_change(path, entry)


ESCAPES = {
    "parent": (put(b".."),),
    "above": (put(b"../x"),),
    "absolute": (put(b"/etc/passwd"),),
    "absolute over a root-like directory": (put(b"d/"), put(b"d//x")),
    "nul": (put(b"a\0b"),),
    "dot": (put(b"./x"),),
    "inside": (put(b"d", Entry("d", 0o755)), put(b"d/../../x")),
    "through a link": (put(b"l", Entry("l", 0o777, target=b"/etc")), put(b"l/passwd")),
    "through a file": (put(b"f"), put(b"f/x")),
    "below nothing": (put(b"x/y"),),
    "the root as a link": (put(b"", Entry("l", 0o777, target=b"/")),),
    "an unknown kind": (put(b"b", Entry("b", 0o600)),),  # type: ignore[arg-type]
    "a link with nul": (put(b"l", Entry("l", 0o777, target=b"a\0b")),),
    "more bits than a mode has": (put(b"x", replace(FILE, mode=0o17777)),),
    "attributes that are none": (put(b"x", replace(FILE, xattrs=b"\0\0\0\x09a")),),
    "not in order": (put(b"b"), put(b"a")),
    "twice": (put(b"a"), put(b"a")),
    "removed before it was": (delete_change(b"a"),),
    "a group of one": (put(b"a", replace(FILE, link=b"a")),),
    "a content id that is none": (put(b"a", Entry("f", 0o600, b"short", 5)),),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_changes_that_lead_out_or_fit_no_image_are_refused(target: Target, name: str) -> None:
    for at_first in (True, False):
        event = support.opened(HOSTILE_NAME, ROOT).event
        whole = diff({}, ROOT)
        if at_first and not any(change.path == b"" for change in ESCAPES[name]):
            history: list[bundles.Forged] = [(event, (*whole, *ESCAPES[name]))]
        else:
            history = [(event, whole), (events.WorkspaceObserved(5, root_hash(ROOT).hex(), []), ESCAPES[name])]
        target.refuse(bundles.pack(bundles.forge(history, [DATA])))


def test_a_link_is_followed_by_no_later_event(target: Target) -> None:
    image = {**ROOT, b"l": Entry("l", 0o777, target=b"/etc")}
    history = [opened(image), (events.Noted(5, "later"), (put(b"l/passwd"),))]
    target.refuse(bundles.pack(bundles.forge(history, [DATA])), "parent is not a directory")


def test_a_claimed_root_is_that_of_the_image(target: Target) -> None:
    event = support.opened(HOSTILE_NAME, {**ROOT, b"x": FILE}).event
    target.refuse(bundles.pack(bundles.forge([(event, diff({}, ROOT))])), "is claimed, but the image there has root")


def test_what_a_bundle_calls_itself_bends_no_terminal(target: Target) -> None:
    claim = events.WorkspaceObserved(5, "\x1b[31m\nroot", [])
    target.refuse(bundles.pack(bundles.forge([opened(ROOT), (claim, ())])), "is claimed")
    domain, nothing = bundles.codec.event_domain(bundles.LOG_ID, HOSTILE_NAME), bundles.changes_digest(())
    digest = bundles.codec.hash_event(domain, 1, b"1" * 16, 0, b"\x1b[31m", 1, b"{}", nothing, bytes(32))
    event = ("E", bundles.event_record(1, b"1" * 16, 0, "\x1b[31m", 1, b"{}", digest, 0))
    target.refuse(bundles.pack(bundles.sealed([("H", bundles.header_record(HOSTILE_NAME, 1, digest)), event])), "unknown event kind")


def test_an_image_that_nobody_claims_is_checked_too(target: Target) -> None:
    link = replace(FILE, link=b"a")
    history = [opened(ROOT), support_attempt(), (events.Noted(5, "x"), (put(b"a", link),))]  # the fork would begin before it
    target.refuse(bundles.pack(bundles.forge(history, [DATA])), "hard-link group of one")


def history_of(*more: bundles.Forged) -> list[bundles.Forged]:
    return [opened(ROOT), *more]


STREAMS: dict[str, tuple[Callable[[], bundles.Records], str]] = {
    "no beginning": (lambda: bundles.forge([(events.Noted(1, "x"), ())]), "is the first event and no other"),
    "two beginnings": (lambda: bundles.forge(history_of(opened(ROOT, ()))), "is the first event and no other"),
    "after the move": (
        lambda: bundles.forge(history_of((events.SessionMoved(1, "ab" * 32), ()), (events.Noted(1, "x"), ()))),
        "follows session_moved",
    ),
    "a falling epoch": (
        lambda: bundles.forge(history_of(started(3), started(2)), epochs=[0, 3, 2], floor=2),
        "not above the floor",
    ),
    "an epoch of nobody": (lambda: bundles.forge(history_of((events.Noted(1, "x"), ())), epochs=[0, 7], floor=7), "epoch 7 where"),
    "another floor": (lambda: bundles.forge(history_of(), floor=1), "states another head"),
    "one id twice": (lambda: bundles.forge(history_of((events.Noted(1, "x"), ())), ids=[b"i" * 16] * 2), "its id is that of"),
    "one request twice": (
        lambda: bundles.forge(history_of((events.InputAdmitted(1, "r", {}), ()), (events.InputAdmitted(2, "r", {}), ()))),
        "was admitted twice",
    ),
    "settled and never open": (
        lambda: bundles.forge(history_of((support.settled(1, ROOT, ()).event, ())), [support.OUTPUT]),
        "was not open",
    ),
    "a wanted content is missing": (lambda: bundles.forge([opened({**ROOT, b"x": FILE})]), "are not in it"),
    "a content nobody wants": (lambda: bundles.forge(history_of(), [DATA]), "no event refers to"),
    "two sizes of one content": (
        lambda: bundles.forge([opened({**ROOT, b"x": FILE, b"y": replace(FILE, size=1)})], [DATA]),
        "is stated with",
    ),
    "an output that names nothing": (
        lambda: bundles.forge(history_of(support_attempt(), settled_with(events.Output(1, 1, False, "zz")))),
        "output names no content",
    ),
    "an output of less than nothing": (
        lambda: bundles.forge(history_of(support_attempt(), settled_with(events.Output(1, -1, False, "ab" * 32)))),
        "payload of call_settled is damaged",
    ),
    "more kept than there was": (
        lambda: bundles.forge(history_of(support_attempt(), settled_with(events.Output(1, 2, False, "ab" * 32)))),
        "more of its output is kept than there was",
    ),
    "a call below zero": (
        lambda: bundles.forge(history_of((replace(support_attempt()[0], call=-1), ()))),
        "payload of attempt_started is damaged",
    ),
    "an instant beyond all clocks": (lambda: bundles.forge(history_of((events.Noted(1 << 62, "x"), ()))), "payload of noted is damaged"),
    "a decision that was not taken yet": (
        lambda: bundles.forge(history_of((events.RestoreFinished(1, 2, root_hash(ROOT).hex(), 0, 0, 1, 0, 0, False), ()))),
        "the decision at seq 2, which does not precede it",
    ),
}


def support_attempt() -> bundles.Forged:
    return support.attempt(1).event, ()


def settled_with(output: events.Output) -> bundles.Forged:
    event = events.CallSettled(5, 1, 1, "finished", "finished", "", events.Exit("exited", code=0), output, root_hash(ROOT).hex(), [])
    return event, ()


@pytest.mark.parametrize("name", STREAMS)
def test_a_chain_that_is_right_around_what_is_wrong_is_refused(target: Target, name: str) -> None:
    make, words = STREAMS[name]
    target.refuse(bundles.pack(make()), words)


def with_payload(payload: bytes, kind: str = "input_admitted", version: int = 1) -> bundles.Records:
    """A session whose second event has this payload, its hash right."""
    records = bundles.forge(history_of())
    previous = records[1][1][-36:-4]
    hasher = bundles.codec.hash_event(
        bundles.codec.event_domain(bundles.LOG_ID, HOSTILE_NAME), 2, b"2" * 16, 0, kind.encode(), version, payload,
        bundles.changes_digest(()), previous,
    )  # fmt: skip
    event = ("E", bundles.event_record(2, b"2" * 16, 0, kind, version, payload, hasher, 0))
    return bundles.sealed([("H", bundles.header_record(HOSTILE_NAME, 2, hasher)), *records[1:-1], event])


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (with_payload(b'{"at_ms":1,"request_id":"a","request_id":"b","input":{}}'), "has a key twice"),
        (with_payload(b"{}"), "payload of input_admitted is damaged"),
        (with_payload(b'{"at_ms":1,"text":"\xff"}', "noted"), "not UTF-8"),
        (with_payload(b'{"at_ms":1,"text":"' + b"[" * 100_000, "noted"), "damaged"),
        (with_payload(b'{"at_ms":1,"request_id":"a","input":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"), "damaged"),
        (with_payload(b"{}", "brand_new"), "written by a newer version"),
        (with_payload(b'{"at_ms":1,"text":""}', "noted", 99), "version 99 is not known"),
    ],
    ids=["key twice", "no fields", "not utf-8", "not json", "deep", "unknown kind", "newer version"],
)
def test_payloads_that_are_none_are_refused(target: Target, records: bundles.Records, words: str) -> None:
    target.refuse(bundles.pack(records), words)


@pytest.mark.parametrize("depth", [800, 900, 960, 990])
def test_a_payload_nested_nearly_too_deep_is_refused_or_taken(target: Target, depth: int) -> None:
    """How deep is too deep depends on the stack; it must not end in a traceback, whoever finds it first."""
    target.try_to_take(bundles.pack(with_payload(b'{"at_ms":1,"request_id":"a","input":{"x":' + b"[" * depth + b"]" * depth + b"}}")))


def test_nothing_is_taken_of_the_origins_own_names(small: Path, target: Target) -> None:
    """The chain is checked under the names in the header: another name there is another chain."""
    records = bundles.unpack(small)
    digest = records[0][1][-40:-8]
    for header in (bundles.header_record("evil2", 4, digest, 2), bundles.header_record("evil", 4, digest, 2, log_id="cd" * 16)):
        target.refuse(bundles.pack(bundles.sealed([("H", header), *records[1:]])), "its hash does not fit")
    for header, words in (
        (bundles.header_record("", 4, digest, 2), "id of its session"),
        (bundles.header_record("a\0b", 4, digest, 2), "id of its session"),
        (bundles.header_record("e" * 5000, 4, digest, 2), "id of its session"),
        (bundles.header_record("evil", 4, digest, 2, log_id="../../x"), "id of its log"),
        (bundles.header_record("evil", 0, digest, 0), "holds no events"),
        (bundles.header_record("evil", 1 << 63, digest, 2), "out of range"),
        (bundles.header_record("evil", 5, digest, 2), "where 'E' belongs"),
        (bundles.header_record("evil", 4, digest, 2, version=2), "states format 2"),
    ):
        target.refuse(bundles.pack(bundles.sealed([("H", header), *records[1:]])), words)


def test_lengths_that_lie_are_refused_before_anything_is_allocated(small: Path, target: Target) -> None:
    records = bundles.unpack(small)
    for kind in "HECDPGT":
        head = kind.encode() + struct.pack(">I", 0xFFFFFFFF)
        begun = bundles.plain(records[: {"H": 0, "E": 1, "C": 2}.get(kind, 0)])
        if kind in "HEC":
            target.refuse(bundles.MAGIC + zstandard.ZstdCompressor().compress(begun + head + bytes(100)), "states 4294967295 bytes")
        else:
            target.refuse(bundles.MAGIC + zstandard.ZstdCompressor().compress(head + bytes(100)), "where 'H' belongs")
    event = bytearray(records[1][1])
    event[-4:] = b"\xff\xff\xff\xff"  # four thousand million changes
    target.refuse(bundles.pack(bundles.sealed([records[0], ("E", bytes(event)), *records[2:-1]])), "where 'C' belongs")
    change = bytearray(records[2][1])
    change[:4] = b"\xff\xff\xff\xff"
    target.refuse(bundles.pack(bundles.sealed([*records[:2], ("C", bytes(change)), *records[3:-1]])), "ends inside a field")


def test_contents_keep_to_what_was_announced(target: Target) -> None:
    history: list[bundles.Forged] = [opened({**ROOT, b"x": FILE})]
    whole = bundles.forge(history, [DATA])
    begun, name = [record for record in whole if record[0] in "HEC"], FILE.content or b""
    for contents, words in (
        ([("D", name + struct.pack(">Q", 5)), ("P", DATA[:5])], "where events state"),
        ([("D", name + struct.pack(">Q", len(DATA))), ("P", DATA + b"more")], "another length than its place"),
        ([("D", name + struct.pack(">Q", len(DATA))), ("P", DATA[:5]), ("P", DATA[5:])], "another length than its place"),
        ([("D", name + struct.pack(">Q", len(DATA))), ("P", DATA[::-1])], "do not hash to its name"),
        ([("D", name + struct.pack(">Q", len(DATA)))], "where 'P' belongs"),
        ([("G", name + struct.pack(">Q", 5) + bundles.codec.sized(b"lost"))], "where events state"),
        ([("G", name + struct.pack(">Q", len(DATA)) + bundles.codec.sized(b"eaten"))], "unknown reason"),
        ([*bundles.content_records(name, DATA), *bundles.content_records(name, DATA)], "not in byte order"),
    ):
        target.refuse(bundles.pack(bundles.sealed([*begun, *contents])), words)


def limited(work: Callable[[], None], extra: int) -> int:
    """Run in a child that may take `extra` bytes more than it has."""

    def go() -> None:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + extra, now + extra))
        work()

    return support.run_in_child(go)


def zeros(begun: bytes, count: int, **options: Any) -> bytes:
    """A bundle that goes on with `count` zero bytes (as pieces of 1 MiB, whose heads come with them)."""
    stream = zstandard.ZstdCompressor(level=1, **options).compressobj()
    piece = b"P" + struct.pack(">I", 1 << 20) + bytes(1 << 20)
    parts = [stream.compress(begun), *(stream.compress(piece) for _ in range(count >> 20)), stream.flush()]
    return bundles.MAGIC + b"".join(parts)


def test_a_small_file_that_expands_without_end_is_refused_in_bounded_memory(tmp_path: Path, target: Target) -> None:
    """A content of 4 TiB of zeros is announced, and a gigabyte of them is there: the announcement alone is more than there is room for."""
    huge = Entry("f", 0o600, b"\7" * 32, 1 << 42)
    records = bundles.forge([opened({**ROOT, b"x": huge})])[:-1]
    begun = bundles.plain([*records, ("D", b"\7" * 32 + struct.pack(">Q", 1 << 42))])
    target.file.write_bytes(zeros(begun, 1 << 30))
    assert target.file.stat().st_size < 1 << 18

    def work() -> None:
        with pytest.raises(FullError, match="all the room there is"):
            bundles.take(target.log, target.file, "new")

    assert limited(work, 100 << 20) == 0
    assert bundles.dump(target.log) == target.before


def test_zeros_where_no_content_was_announced_are_refused_in_bounded_memory(target: Target, small: Path) -> None:
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    target.file.write_bytes(bundles.MAGIC + b"".join([*(stream.compress(bytes(1 << 20)) for _ in range(1 << 10)), stream.flush()]))

    def work() -> None:
        with pytest.raises(CorruptError, match="where 'H' belongs"):
            bundles.take(target.log, target.file, "new")

    assert limited(work, 100 << 20) == 0


def test_changes_that_expand_without_end_are_refused_in_bounded_memory(target: Target) -> None:
    """One event with a hundred thousand changes of a kilobyte, in a file of some kilobytes: no content, so that only the size of the
    file says what is too much."""
    records = bundles.forge([opened({**ROOT, b"x" * 1000: Entry("d", 0o755)})])
    event = records[1][1][:-4] + struct.pack(">I", 100_000)
    change = bundles.plain([("C", records[3][1])])
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    parts = [stream.compress(bundles.plain([records[0], ("E", event)])), *(stream.compress(change * 1000) for _ in range(100))]
    target.file.write_bytes(bundles.MAGIC + b"".join([*parts, stream.flush()]))
    assert target.file.stat().st_size < 1 << 16

    def work() -> None:
        with pytest.raises(CorruptError, match="its events expand to more than"):
            bundles.take(target.log, target.file, "new")

    assert limited(work, 200 << 20) == 0


def test_a_window_that_costs_memory_is_refused(target: Target, small: Path) -> None:
    plain = bundles.plain(bundles.unpack(small))
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    target.refuse(bundles.MAGIC + stream.compress(plain) + stream.flush(), "more memory than it may")


def test_a_new_log_is_not_begun_for_a_bundle_that_is_refused(small: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    file = tmp_path / "evil.bundle"
    file.write_bytes(small.read_bytes()[:-1])
    with pytest.raises(CorruptError):
        import_into_new(str(tmp_path / "new" / "log.sqlite"), str(file), CountingIds(), FakeClock())
    assert list((tmp_path / "new").iterdir()) == []


def test_names_that_are_none_and_names_that_are_taken_are_refused(small: Path, target: Target) -> None:
    target.file.write_bytes(small.read_bytes())
    for name, words in (("", "is no name"), ("../x", "is no name"), ("a" * 65, "is no name"), ("other", "choose another name")):
        with pytest.raises(MisuseError, match=words):
            bundles.take(target.log, target.file, name)
    assert bundles.dump(target.log) == target.before


class ExchangingClock(FakeClock):
    """A clock that does something when it is first asked: between the two readings of a bundle."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work: Callable[[], None] | None = work

    def now_ms(self) -> int:
        if self._work is not None:
            work, self._work = self._work, None
            work()
        return super().now_ms()


def damage(file: Path, offset: int) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(offset)
        opened_file.write(b"exchanged")


def test_a_bundle_that_changes_under_the_import_makes_no_session(target: Target) -> None:
    """What was checked is read again, and checked again: contents may be left, no row of a session is."""
    data = random.Random(5).randbytes(900_000)
    image = {**ROOT, b"x": Entry("f", 0o600, blake3(data).digest(), len(data))}
    whole = bundles.pack(bundles.forge([opened(image), (events.Noted(3, "one"), ())], [data]))

    def exchange_contents() -> None:
        damage(target.file, len(whole) - 50_000)

    def exchange_events() -> None:
        damage(target.file, len(bundles.MAGIC) + 100)

    for before_contents in (True, False):
        target.file.write_bytes(whole)
        clock = ExchangingClock(exchange_contents) if before_contents else FakeClock()
        support.steps.install(None if before_contents else support.Calling("blobs.commit.after", exchange_events))
        try:
            with pytest.raises(CorruptError, match=str(target.file)):
                import_bundle(target.log, str(target.file), CountingIds(1 << 41), clock, "new")
        finally:
            support.steps.install(None)
        assert {**bundles.dump(target.log), "blob": []} == {**target.before, "blob": []}
    target.file.write_bytes(whole)
    bundles.take(target.log, target.file, "new")


class ExchangingIds(CountingIds):
    """Ids that do something when the first is asked for: a new log is begun between the two readings."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work: Callable[[], object] | None = work

    def new_id(self) -> bytes:
        if self._work is not None:
            work, self._work = self._work, None
            work()
        return super().new_id()


def test_a_sound_bundle_exchanged_for_another_sound_one_makes_no_log(small: Path, tmp_path: Path) -> None:
    """The same events, but their content is said to be given up: only the digest tells the two apart."""
    file, records = tmp_path / "a.bundle", bundles.unpack(small)
    file.write_bytes(small.read_bytes())
    given_up = ("G", (FILE.content or b"") + struct.pack(">Q", len(DATA)) + bundles.codec.sized(b"lost"))
    other = bundles.pack(bundles.sealed([*(record for record in records if record[0] in "HEC"), given_up]))
    (tmp_path / "b.bundle").write_bytes(other)
    with pytest.raises(CorruptError, match="it changed while it was read"):
        import_into_new(str(tmp_path / "log.sqlite"), str(file), ExchangingIds(lambda: file.write_bytes(other)), FakeClock())
    assert not (tmp_path / "log.sqlite").exists()


def test_limits_are_those_of_the_readme() -> None:
    readme = (support.ROOT / "eventlog" / "README.md").read_text("utf-8")
    for number in (bundle_format.MOST_RECORD_BYTES, bundle_format.PIECE_BYTES, bundle_format.WINDOW_BYTES, bundle_format.EVENTS_ALLOWANCE):
        assert f"{number:,}" in readme
    assert StreamId(HOSTILE_NAME) and str(bundle_format.EVENTS_RATIO) in readme
