"""The event log beside a bare SQLite insert and its peers, in one run: `python -m benchmarks.log [--json FILE] [--quick] [--where DIR]`.

Budgets stand beside what is measured (benchmarks/README); a missed one is printed as such and fails nothing. Figures of a busy machine
mean little: the ratios are taken in turns in one run, and still want a quiet one.
"""

import argparse
import itertools
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import zstandard
from blake3 import blake3

from benchmarks.log_rows import STREAM, TEXT, make_content, open_bare, open_rows, warm_wal
from benchmarks.measure import Report, Work, interleave
from benchmarks.peers import open_peers
from eventlog import codec, events
from eventlog.creation import create_log
from eventlog.image import Change, Entry, diff, root_hash
from eventlog.ports import RandomIds
from eventlog.reader import Reader
from eventlog.records import Record
from eventlog.values import Epoch
from eventlog.writer import Writer

ROOT: dict[bytes, Entry] = {b"": Entry("d", 0o755, mtime_ns=1)}
WARM_ROUNDS = 5
MEMORY_LIMIT_KIB = 600_000  # for `ulimit -v`: what verify needs must not grow with the log


def open_log(directory: str, name: str = "log.sqlite") -> Writer:
    path = os.path.join(directory, name)
    identity = events.RootIdentity("r", 1, None, "0")
    opened = events.SessionOpened(
        1, "bench", "w", "transactional", "stop", [], root_hash(ROOT).hex(), identity, "l", 1, [], [], [], None, None
    )  # fmt: skip
    create_log(path, STREAM, Record(opened, diff({}, ROOT)), (), RandomIds())
    writer = Writer.open(path, RandomIds())
    driver = events.DriverIdentity("n", 1, 1, "b", 1)
    writer.raise_floor(STREAM, Epoch(1), events.DriverStarted(1, driver, "l", 1, "cgroup"))
    return writer


def note() -> Record:
    return Record(events.Noted(1, TEXT))


def with_change(number: int, data: bytes) -> tuple[Record, codec.Blob]:
    """An event with one changed file: its content is named and packed here, as a scan does."""
    blob = codec.encode_blob(data)
    entry = Entry("f", 0o644, blob.content, blob.size, mtime_ns=number)
    return Record(events.Noted(1, TEXT), (Change(b"file-%d" % number, "put", entry),)), blob


WARMED = ("bare", "append", "changing", "rows", "changing-rows")
"""The directories of the bare insert, of appends, of those with a change, and of the statements of both alone: each has one to itself, as
a session's log has, where nothing else comes and goes (a peer makes and removes a journal with each commit)."""


def bench_append(report: Report, directory: str, rounds: int) -> None:
    places = [os.path.join(directory, name) for name in WARMED]
    for place in places:
        os.mkdir(place)
    handle, insert = open_bare(os.path.join(places[0], "log.sqlite"))
    writer, changing = open_log(places[1]), open_log(places[2])
    alone, write = open_rows(os.path.join(places[3], "log.sqlite"), has_change=False)
    alone_changing, write_changing = open_rows(os.path.join(places[4], "log.sqlite"), has_change=True)
    made = ((number, make_content(number)) for number in itertools.count())
    ready: list[tuple[int, bytes]] = []  # made beforehand: no part of an append, and not timed

    def append() -> None:
        writer.append(STREAM, Epoch(1), [note()], (), "bench")

    def append_change() -> None:
        record, blob = with_change(*(ready.pop() if ready else next(made)))
        changing.append(STREAM, Epoch(1), [record], [blob], "bench")

    peers, words = open_peers(directory, TEXT)
    ours: dict[str, Work] = {
        "bare apsw insert commit": insert,
        "append: fenced, chained": append,
        "append: with a change and a 1 KiB blob": append_change,
        "an append's statements alone": write,
        "the same with a change and a blob": write_changing,
    }
    warmed = [warm_wal(os.path.join(place, "log.sqlite"), work) for place, work in zip(places, ours.values(), strict=True)]
    report.note("commits before the first that counts, WALs grown", ", ".join(map(str, warmed)))
    ready += itertools.islice(made, rounds + WARM_ROUNDS)
    seconds = interleave({**ours, **peers}, rounds, WARM_ROUNDS)
    budgets = {"append: fenced, chained": 1.25, "append: with a change and a 1 KiB blob": 1.5}
    report.compare("commits, synchronous=FULL where not said otherwise", seconds, "bare apsw insert commit", budgets)
    for name, word in words.items():
        report.note(name, word)
    for one in (writer, changing, handle, alone, alone_changing):
        one.close()


def fill(writer: Writer, count: int) -> None:
    """`count` events, a thousand to a commit."""
    for start in range(0, count, 1000):
        writer.append(STREAM, Epoch(1), [note() for _ in range(min(1000, count - start))], (), "bench")


def make_filled(directory: str, count: int) -> str:
    writer = open_log(directory, f"filled-{count}.sqlite")
    fill(writer, count)
    writer._handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    writer.close()
    return writer.path


def bench_read(report: Report, path: str, rounds: int) -> None:
    bare, reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY), Reader.open(path)
    rows = "SELECT seq, id, epoch, kind, version, payload, prev_hash, hash FROM event WHERE stream = ? ORDER BY seq"
    works: dict[str, Work] = {
        "bare SELECT of the same rows": lambda: len(bare.execute(rows, (STREAM,)).fetchall()),
        "read, decoded, chain-checked": lambda: sum(1 for _ in reader.events(STREAM)),
    }
    seconds = interleave(works, rounds, warm=1)
    report.compare("10,000 events", seconds, "bare SELECT of the same rows", {})
    report.figure("10,000 events read, decoded, chain-checked", statistics.median(seconds["read, decoded, chain-checked"]) * 1e3, "ms", 100)
    reader.close()
    bare.close()


def bench_open(report: Report, path: str, rounds: int) -> None:
    works: dict[str, Work] = {
        "bare apsw open and one SELECT": lambda: open_bare_and_look(path),
        "Reader.open": lambda: Reader.open(path).close(),
        "Writer.open": lambda: Writer.open(path, RandomIds()).close(),
    }
    seconds = interleave(works, rounds)
    report.compare("open of a log of 100,000 events", seconds, "bare apsw open and one SELECT", {})
    for name in ("Reader.open", "Writer.open"):
        report.figure(f"{name} of 100,000 events", statistics.median(seconds[name]) * 1e3, "ms", 50)


def open_bare_and_look(path: str) -> None:
    handle = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    handle.execute("SELECT value FROM meta").fetchall()
    handle.close()


def bench_blobs(report: Report, directory: str, rounds: int, mebibytes: int) -> None:
    """Every content of a log read, decoded and compared with its name: what `verify` does for blobs, beside blake3 and beside nothing."""
    for kind, make in (("random", random.Random(1).randbytes), ("text", make_text)):
        contents = [number.to_bytes(8, "big") + make((256 << 10) - 8) for number in range(mebibytes * 4)]
        blobs = [codec.encode_blob(data) for data in contents]
        writer = open_log(directory, f"blobs-{kind}.sqlite")
        for start in range(0, len(blobs), 32):
            writer.insert_blobs(blobs[start : start + 32])
        reader = Reader.open(writer.path)

        def check(reader: Reader = reader, blobs: list[codec.Blob] = blobs) -> int:
            return sum(len(piece) for blob in blobs for piece in reader.content(blob.content))

        def hash_all(contents: list[bytes] = contents) -> list[bytes]:
            return [blake3(data).digest() for data in contents]

        seconds = interleave({"bare blake3 in memory": hash_all, "contents verified": check}, rounds, warm=1)
        report.compare(f"{mebibytes} MiB of {kind} in blobs of 256 KiB", seconds, "bare blake3 in memory", {})
        speed = mebibytes * 1.048576 / statistics.median(seconds["contents verified"])
        report.figure(f"blobs verified, {kind}", speed, "MB/s", 200, at_least=True)
        reader.close()
        writer.close()


def bench_memory(report: Report, paths: dict[int, str]) -> None:
    """`eventlog verify` in a process of its own, below the limit of address space: its peak does not grow with the log."""
    report.head(f"peak memory of `eventlog verify` under ulimit -v {MEMORY_LIMIT_KIB}")
    for count, path in paths.items():
        command = f'ulimit -v {MEMORY_LIMIT_KIB}; exec "$0" -c "$1" "$2"'
        code = (
            "import sys\nfrom eventlog.__main__ import app\nfrom eventlog import console\n"
            "code = console.run(app, 'eventlog', 2, lambda error: 1, ['verify', sys.argv[1]])\n"
            "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
            "print(peak, file=sys.stderr)\nsys.exit(code)\n"
        )
        before = time.perf_counter()
        done = subprocess.run(["sh", "-c", command, sys.executable, code, path], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            report.note(f"verify of {count:,} events", f"FAILED: {done.stderr.strip().splitlines()[-1:]}")
            continue
        report.figure(f"verify of {count:,} events, peak resident", int(done.stderr.split()[-1]) / 1024, "MiB")
        report.figure(f"verify of {count:,} events, whole command", (time.perf_counter() - before) * 1e3, "ms")


def make_text(size: int) -> bytes:
    """Text as programs are: a few hundred words in no order, lines of them."""
    source = random.Random(size)
    words = ["".join(source.choices("etaoinshrdlucmfw_().", k=source.randint(2, 9))) for _ in range(400)]
    out = bytearray()
    while len(out) < size:
        out += " ".join(source.choices(words, k=source.randint(3, 12))).encode() + b"\n    "
    return bytes(out[:size])


SIZES = (32, 64, 128, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)


def bench_zstd(report: Report, rounds: int) -> None:
    """What a content costs raw (its name only), and packed at level 1 and 3: the constants of eventlog/codec.py come from here."""
    report.head("zstd: microseconds and size, by content; `raw` is the time of the content's name (blake3), which is paid in any case")
    columns = f"{'raw us':>9} {'level 1 us':>11} {'saves':>7} {'level 3 us':>11} {'saves':>7} {'unpack us':>10}"
    print(f"  {'content':<16} {columns}  kept by encode_blob")
    table: dict[str, object] = {}
    for kind, make in (("text", make_text), ("random", random.Random(2).randbytes)):
        for size in SIZES:
            data = make(size)
            row = measure_zstd(data, rounds)
            table[f"{kind} {size}"] = row
            print(
                f"  {kind:<6} {size:>9} {row['raw_us']:>9.1f} {row['level_1_us']:>11.1f} {row['level_1_saves']:>7.1%}"
                f" {row['level_3_us']:>11.1f} {row['level_3_saves']:>7.1%} {row['unpack_us']:>10.1f}  {codec.encode_blob(data).codec}"
            )
    report.found["zstd"] = table


def measure_zstd(data: bytes, rounds: int) -> dict[str, float]:
    one, three, unpack = zstandard.ZstdCompressor(level=1), zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    packed = three.compress(data)
    works: dict[str, Callable[[], object]] = {
        "raw": lambda: blake3(data).digest(),
        "level_1": lambda: one.compress(data),
        "level_3": lambda: three.compress(data),
        "unpack": lambda: unpack.decompress(packed, max_output_size=len(data)),
    }
    seconds = {name: statistics.median(values) for name, values in interleave(works, rounds).items()}
    return {
        **{f"{name}_us": value * 1e6 for name, value in seconds.items()},
        "level_1_saves": 1 - len(one.compress(data)) / len(data),
        "level_3_saves": 1 - len(packed) / len(data),
    }


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-log", description="The event log beside a bare insert and its peers.")
    parser.add_argument("--json", metavar="FILE", help="also write what was found as one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--where", metavar="DIR", default=".", help="directory whose disk is measured (default: the current one)")
    return parser.parse_args(list(arguments))


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    rounds = 40 if options.quick else 400
    report = Report()
    load = os.getloadavg()[0]
    report.note("machine", f"{os.cpu_count()} cores, load {load:.1f}, SQLite {apsw.sqlite_lib_version()}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=options.where) as directory:
        bench_append(report, directory, rounds)
        paths = {count: make_filled(directory, count) for count in (10_000, 100_000)}
        bench_read(report, paths[10_000], max(5, rounds // 20))
        bench_open(report, paths[100_000], max(10, rounds // 10))
        bench_blobs(report, directory, max(3, rounds // 50), 32)
        bench_memory(report, paths)
    bench_zstd(report, max(20, rounds // 4))
    report.note("peak resident of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if options.json:
        report.write(options.json)
        print(f"\nwritten: {Path(options.json)}")


if __name__ == "__main__":
    main(sys.argv[1:])
