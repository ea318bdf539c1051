"""What SQLite alone costs for an append, by layout of the rows and size of the pages, beside the bare insert:
`python -m benchmarks.log_layouts [--json FILE] [--quick] [--where DIR]`.

The floor under the budgets of an append: nothing of the log's own runs here (benchmarks/log_rows.py). Each ratio is to the bare insert at
the same size of page, in turns in the same run; the pages and bytes that a commit puts into the WAL depend on no machine.
"""

import argparse
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable

import apsw

from benchmarks.log_rows import Opened, open_bare, open_placed, open_rows, warm_wal
from benchmarks.measure import Report, interleave

PAGES = (16384, 8192, 4096)
COUNTED_COMMITS = 400
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
LAYOUTS: dict[str, Callable[[str, int], Opened]] = {
    "bare insert": open_bare,
    "rows of an append": functools.partial(open_rows, has_change=False),
    "rows with a change and a blob": functools.partial(open_rows, has_change=True),
    "placed: append": functools.partial(open_placed, has_change=False),
    "placed: change and blob": functools.partial(open_placed, has_change=True),
    "placed: change in the event's row": functools.partial(open_placed, has_change=True, is_inline=True),
    "placed: change, no index of ids": functools.partial(open_placed, has_change=True, has_id_index=False),
}


def count_frames(directory: str, layout: Callable[[str, int], Opened], page_bytes: int) -> float:
    """Pages that a commit puts into the WAL, new pages with them: the mean of COUNTED_COMMITS behind as many."""
    path = os.path.join(directory, "counted.sqlite")
    handle, work = layout(path, page_bytes)
    with contextlib.closing(handle):
        for _ in range(COUNTED_COMMITS):
            work()
        handle.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        handle.pragma("wal_autocheckpoint", 0)
        for _ in range(COUNTED_COMMITS):
            work()
        frames = (os.stat(path + "-wal").st_size - WAL_HEADER_BYTES) / (page_bytes + FRAME_HEADER_BYTES)
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    return frames / COUNTED_COMMITS


def bench_pages(report: Report, directory: str, page_bytes: int, rounds: int) -> None:
    opened, works = [], {}
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        frames = count_frames(directory, layout, page_bytes)
        report.figure(f"{page_bytes // 1024} KiB: {name}, bytes into the WAL ({frames:.1f} pages)", frames * page_bytes / 1024, "KiB")
        place = os.path.join(directory, f"{page_bytes}-{number}")
        os.mkdir(place)
        path = os.path.join(place, "log.sqlite")
        handle, works[name] = layout(path, page_bytes)
        opened.append(handle)
        warm_wal(path, works[name])
    seconds = interleave(works, rounds)
    report.compare(f"pages of {page_bytes // 1024} KiB, synchronous=FULL, statements alone", seconds, "bare insert", {})
    for handle in opened:
        handle.close()


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="log_layouts", description="The statements of an append alone, by layout and size of page.")
    parser.add_argument("--json", metavar="FILE", help="also write what was found as one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--where", metavar="DIR", default=".", help="directory whose disk is measured (default: the current one)")
    return parser.parse_args(list(arguments))


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    report = Report()
    report.note("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, SQLite {apsw.sqlite_lib_version()}")
    with tempfile.TemporaryDirectory(prefix="bench-layouts-", dir=options.where) as directory:
        for page_bytes in PAGES:
            bench_pages(report, directory, page_bytes, 40 if options.quick else 400)
    if options.json:
        report.write(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
