"""Workspace images beside a bare walk and git, restic, borg, in one run: `python -m benchmarks.image [--json FILE] [--quick]`.

Budgets stand beside what is measured (benchmarks/README); a missed one is printed as such and fails nothing. `--docs DIR` writes the growth
curves as a table and two plots there. Figures of a busy machine mean little.
"""

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from benchmarks import image_peers, image_trees, image_work
from benchmarks.image_plot import plot
from benchmarks.measure import Report, Work, interleave, interleave_prepared

SIZES = (1_000, 10_000, 100_000)
CURVE_FILES = (1_000, 3_000, 10_000, 30_000, 100_000)
CURVE_BYTES = tuple(number << 20 for number in (1, 16, 128, 512, 2048))


def bench_unchanged(report: Report, base: str, files: int, rounds: int) -> None:
    """An unchanged tree: the bare walk, the scan without and with a watcher, git status."""
    root = os.path.join(base, f"tree-{files}")
    plain, watched = image_work.Scanned(root, watched=False), image_work.Scanned(root, watched=True)
    works: dict[str, Work] = {"bare scandir + stat walk": lambda: image_trees.walk(root), "scan": plain.scan, "scan, watcher": watched.scan}
    if shutil.which("git"):
        repository = os.path.join(base, f"status-{files}")
        os.mkdir(repository)
        image_peers.PEERS[0].prepare(repository)
        image_peers.git(repository, root, "add", "--all")
        image_peers.git(repository, root, "commit", "--quiet", "-m", "one")
        works["git status"] = lambda: image_peers.git(repository, root, "status", "--porcelain")
    seconds = interleave(works, rounds, warm=2)
    report.compare(f"unchanged tree, {files:,} files", seconds, "bare scandir + stat walk", {"scan": 1.15})
    if "git status" in seconds and files >= 10_000:
        middle = {name: statistics.median(values) for name, values in seconds.items()}
        report.figure(f"{files:,} files: watcher / git status", middle["scan, watcher"] / middle["git status"], "x", 1.0)
        report.figure(f"{files:,} files: scan / git status", middle["scan"] / middle["git status"], "x")
    if files == max(SIZES):
        bench_one_changed(report, watched, rounds)
    plain.close()
    watched.close()


def bench_one_changed(report: Report, watched: image_work.Scanned, rounds: int) -> None:
    """One file written, then a look by the watcher: scan, diff, root hash."""
    seconds = []
    watched.look()
    for number in range(rounds + 2):
        write_one(watched.root, number)
        before = time.perf_counter()
        changed = watched.look()
        seconds.append(time.perf_counter() - before)
        if not 1 <= changed <= 4:
            raise RuntimeError(f"one file was written and {changed} changes were found")
    report.figure("one changed file of 100,000, watcher: scan, diff, root", statistics.median(seconds[2:]) * 1e3, "ms", 20)


def write_one(root: str, number: int) -> None:
    with open(os.path.join(root, "d0", "d0", "f7"), "wb") as file:
        file.write(b"changed %d" % number)


def fresh(base: str, name: str) -> str:
    """A new directory. What was there goes aside and is deleted at the end: where an ext4 without a journal has deleted files in the last
    minutes, each file that is made costs half a millisecond more, and the round that pays would be whichever comes next."""
    path, aside = os.path.join(base, name), os.path.join(base, "aside")
    os.makedirs(aside, exist_ok=True)
    if os.path.lexists(path):
        os.rename(path, os.path.join(aside, f"{name}-{len(os.listdir(aside))}"))
    os.mkdir(path)
    return path


def bench_first(report: Report, base: str, rounds: int) -> None:
    """The first image of 10,000 x 4 KiB, its log made with it, beside the peers' first store into a repository that exists: with the files
    in memory, as a workspace that is worked in has them, and with none of them there. That is made so before each subject: borg takes
    what it has read out of the page cache, and whoever came after it would read the disk."""
    root = fresh(base, "first")
    image_trees.make_tree(root, 10_000, 4096, seed=3)
    image_trees.sync(root)
    peers, missing = image_peers.find_peers()
    for title, place in (("", image_trees.read_all), (", files not in memory", image_trees.forget_all)):
        compare_first(report, base, root, rounds, peers, title, place)
    for name, word in missing.items():
        report.note(name, word)


def compare_first(
    report: Report, base: str, root: str, rounds: int, peers: Iterable[image_peers.Peer], title: str, place: Callable[[str], None]
) -> None:
    """The first image beside the peers' first stores, `place` called with the tree before each."""

    def prepare_own() -> None:
        fresh(base, "store-own")
        place(root)

    subjects: dict[str, tuple[Work, Work]] = {
        "first image": (prepare_own, lambda: image_work.take_first_image(os.path.join(base, "store-own"), root))
    }
    for peer in peers:

        def prepare(peer: image_peers.Peer = peer) -> None:
            peer.prepare(fresh(base, f"store-{peer.name}"))
            place(root)

        def store(peer: image_peers.Peer = peer) -> None:
            peer.store(os.path.join(base, f"store-{peer.name}"), root)

        subjects[image_peers.STORES[peer.name]] = prepare, store
    seconds = interleave_prepared(subjects, rounds)
    report.compare(f"first image of 10,000 x 4 KiB{title}", seconds, "first image", {})
    tell_faster(report, "first image", seconds, title)


def bench_rebuild(report: Report, base: str, rounds: int) -> None:
    """1,000 x 16 KiB out of the log, beside the bare write of the same files with the same sync and the peers."""
    root = fresh(base, "source")
    image_trees.make_tree(root, 1_000, 16_384, seed=4)
    log = fresh(base, "kept-own")
    image_work.take_first_image(log, root)
    peers, missing = image_peers.find_peers()

    def target(name: str) -> Work:
        return lambda: (fresh(base, name), image_trees.sync(base))

    subjects: dict[str, tuple[Work, Work]] = {
        "bare write, one sync": (target("to-bare"), lambda: image_trees.write_bare(root, os.path.join(base, "to-bare"))),
        "rebuild": (target("to-own"), lambda: image_work.rebuild(log, os.path.join(base, "to-own"))),
    }
    for peer in peers:
        store = fresh(base, f"kept-{peer.name}")
        peer.prepare(store)
        peer.store(store, root)

        def write_out(peer: image_peers.Peer = peer, store: str = store) -> None:
            into = os.path.join(base, f"to-{peer.name}")
            peer.rebuild(store, into)
            image_trees.sync(into)

        subjects[image_peers.REBUILDS[peer.name]] = target(f"to-{peer.name}"), write_out
    seconds = interleave_prepared(subjects, rounds)
    report.compare("rebuild of 1,000 x 16 KiB, each with one sync at its end", seconds, "bare write, one sync", {})
    more = statistics.median(seconds["rebuild"]) - statistics.median(seconds["bare write, one sync"])
    report.figure("rebuild over the bare write", more * 1e3, "ms", 80)
    tell_faster(report, "rebuild", seconds)
    for name, word in missing.items():
        report.note(name, word)


def tell_faster(report: Report, own: str, seconds: dict[str, list[float]], title: str = "") -> None:
    base = statistics.median(seconds[own])
    for name, values in seconds.items():
        if name != own and not name.startswith("bare"):
            report.figure(f"{own} / {name}{title}", base / statistics.median(values), "x", 1.0)


def bench_growth(report: Report, base: str, sizes: Iterable[int], lengths: Iterable[int], rounds: int) -> dict[str, list[dict[str, float]]]:
    """What grows with the number of files, and with bytes: the rows of two tables."""
    by_files = [grow_files(base, files, rounds) for files in sizes]
    by_bytes = [grow_bytes(base, length) for length in lengths]
    for title, rows in (("growth by files: milliseconds", by_files), ("growth by bytes of one file: milliseconds", by_bytes)):
        report.head(title)
        print("  " + "".join(f"{name:>24}" for name in rows[0]))
        for row in rows:
            print("  " + "".join(f"{value:>24,.1f}" for value in row.values()))
    report.found["growth"] = {"files": by_files, "bytes": by_bytes}
    return {"files": by_files, "bytes": by_bytes}


def grow_files(base: str, files: int, rounds: int) -> dict[str, float]:
    root = os.path.join(base, f"tree-{files}")
    if not os.path.isdir(root):
        image_trees.make_tree(root, files, 256, seed=files)
    log = fresh(base, "grow")
    row: dict[str, float] = {"files": files}
    row["first image"] = once(lambda: image_work.take_first_image(log, root))
    image_work.start_driver(log)
    row["bare walk"] = statistics.median(once(lambda: image_trees.walk(root)) for _ in range(rounds))
    for name, watched in (("unchanged scan", False), ("unchanged scan, watcher", True)):
        one = image_work.Scanned(root, watched=watched)
        row[name] = statistics.median(once(one.scan) for _ in range(rounds))
        row[name.replace("unchanged scan", "whole call")] = statistics.median(whole_call(one, log, number) for number in range(rounds))
        one.close()
    return row


def grow_bytes(base: str, length: int) -> dict[str, float]:
    root = fresh(base, "large")
    image_trees.make_large(os.path.join(root, "d"), length)
    log = fresh(base, "grow")
    row: dict[str, float] = {"MiB": length >> 20}
    row["first image"] = once(lambda: image_work.take_first_image(log, root))
    image_work.start_driver(log)
    one = image_work.Scanned(root, watched=False)
    row["unchanged scan"] = statistics.median(once(one.scan) for _ in range(5))
    size = settled_size(log)
    row["whole call, one byte"] = whole_call(one, log, 1, at=os.path.join(root, "d"))
    row["log grew KiB"] = (settled_size(log) - size) / 1024
    shutil.rmtree(root)
    return row


def settled_size(log: str) -> int:
    """Bytes of a log that nobody has open, its WAL emptied into it."""
    path = os.path.join(log, "log.sqlite")
    handle = apsw.Connection(path)
    handle.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # before it has read, a connection has no WAL to bring in
    handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    handle.close()
    return os.path.getsize(path)


def whole_call(one: image_work.Scanned, log: str, number: int, at: str | None = None) -> float:
    """Milliseconds of a call without its command: the scan and commit before it, the scan and commit after it."""
    writer = image_work.Writer.open(os.path.join(log, "log.sqlite"), image_work.RandomIds())

    def look_and_commit() -> None:
        found = one.scan()
        image_work.commit(writer, one.scanner, one.root, one.image, found)
        one.image = found.image

    spent = once(look_and_commit)
    if at is None:
        write_one(one.root, number)
    else:
        with open(at, "r+b") as file:
            file.seek(os.path.getsize(at) // 2)
            file.write(b"%d" % (number % 10))
    spent += once(look_and_commit)
    writer.close()
    return spent


def once(work: Work) -> float:
    before = time.perf_counter()
    work()
    return (time.perf_counter() - before) * 1e3


def write_docs(directory: str, growth: dict[str, list[dict[str, float]]], machine: str) -> None:
    """The growth curves as docs: a table of each, and the plots beside it."""
    made = f"Made by `make bench-image OPTIONS='--docs docs'` ({machine}): milliseconds, medians of one run."
    text = ["# How images grow", "", f"{made} A whole call is its two scans and two commits, without the command.", ""]
    for name, title in (("files", "By the number of files"), ("bytes", "By the bytes of one file")):
        rows = growth[name]
        columns = list(rows[0])
        text += [f"## {title}", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        text += ["| " + " | ".join(f"{value:,.0f}" if value >= 100 else f"{value:.2g}" for value in row.values()) + " |" for row in rows]
        text += ["", f"![{title}](image-growth-{name}.svg)", ""]
        curves = {key: [(row[columns[0]], max(row[key], 1e-3)) for row in rows] for key in columns[1:] if "KiB" not in key}
        unit = "files" if name == "files" else "MiB"
        Path(directory, f"image-growth-{name}.svg").write_text(plot(title, unit, "milliseconds", curves), "utf-8")
    Path(directory, "image-growth.md").write_text("\n".join(text), "utf-8")


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-image", description="Workspace images beside a bare walk, git, restic and borg.")
    parser.add_argument("--json", metavar="FILE", help="also write what was found as one JSON object")
    parser.add_argument("--quick", action="store_true", help="few rounds, no growth above 10,000 files and 16 MiB")
    parser.add_argument("--where", metavar="DIR", default=".", help="directory whose disk is measured (default: the current one)")
    parser.add_argument("--docs", metavar="DIR", help="write the growth curves there")
    parser.add_argument("--only", choices=("unchanged", "first", "rebuild", "growth"), action="append", help="these parts alone")
    return parser.parse_args(list(arguments))


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    parts = options.only or ["unchanged", "first", "rebuild", "growth"]
    rounds = 5 if options.quick else 15
    report = Report()
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, Python {sys.version.split()[0]}"
    report.note("machine", machine)
    with tempfile.TemporaryDirectory(prefix="bench-image-", dir=os.path.abspath(options.where)) as base:
        for files in SIZES if "unchanged" in parts else ():
            image_trees.make_tree(os.path.join(base, f"tree-{files}"), files, 256, seed=files)
            bench_unchanged(report, base, files, rounds)
        if "first" in parts:
            bench_first(report, base, max(3, rounds // 3))
        if "rebuild" in parts:
            bench_rebuild(report, base, max(3, rounds // 2))
        if "growth" in parts:
            sizes, lengths = (CURVE_FILES[:3], CURVE_BYTES[:2]) if options.quick else (CURVE_FILES, CURVE_BYTES)
            growth = bench_growth(report, base, sizes, lengths, 3 if options.quick else 5)
            if options.docs:
                os.makedirs(options.docs, exist_ok=True)
                write_docs(options.docs, growth, machine)
    report.note("peak resident of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if options.json:
        report.write(options.json)
        print(f"\nwritten: {Path(options.json)}")


if __name__ == "__main__":
    main(sys.argv[1:])
