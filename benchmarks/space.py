"""Keyed commands beside a bare spawn and cua-spacesd, in one run: `python -m benchmarks.space [--json FILE] [--quick] [--where DIR]`.

Budgets stand beside what is measured (benchmarks/README); a missed one is printed as such and fails nothing. Figures of a busy machine
mean little: what is compared is taken in turns in one run, and still wants a quiet one.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.measure import Report, Work, interleave
from benchmarks.space_client import CLOCK, HOST, TRUE, Client, run_clients
from benchmarks.space_peer import CuaPeer, open_cua
from eventlog.events import Exit
from eventlog.process_identity import identify_self
from recovery.space.attach import connect_shim
from recovery.space.epochs import check_advance
from recovery.space.keys import Attach, New, Replay, prepare
from recovery.space.ledger import Ledger, create_ledger
from recovery.space.ledger_lines import encode_line
from recovery.space.local import SpacePaths
from recovery.space.protocol import Attach as AttachMessage
from recovery.space.protocol import receive, send
from recovery.space.records import Advance, Exited, Header, Prepare, Record, Start
from recovery.space.request import CommandRequest, digest_request

CLIENTS = 8
KEYS = (1_000, 20_000)
LONG = [b"/bin/sh", b"-c", b"echo begun; sleep 600"]


class Bench(Client):
    """A client on a space of its own: a ledger with so many keys that have ended, one epoch, one spawner."""

    def __init__(self, directory: str, keys: int = 0, mark: str = "auto") -> None:
        self.keys = keys
        paths = SpacePaths(os.path.join(directory, "space"))
        paths.make()
        create_ledger(paths.ledger, Header(1, f"bench{os.getpid()}{os.path.basename(directory)}", 1))
        fill(paths.ledger, keys)
        super().__init__(directory, mark=mark)


def fill(path: str, keys: int) -> None:
    """So many keys by hand that have ended, their lines written at once, and compacted as a space in use would have them."""
    lines = [Path(path).read_bytes()]

    def add(record: Record) -> None:
        lines.append(encode_line(lines[-1][:32], record))

    me = identify_self(HOST)
    add(Advance(1, "log", 0, "", {}, []))
    for number in range(keys):
        key = f"log/filled/{number}/1/1"
        add(Prepare(key, "command", 1, None, 1, "d" * 64, f"cgroup:/x/c{number}", None, 0, ""))
        add(Start(key, me, f"c{number}", 1))
        add(Exited(key, Exit("exited", code=0), me.boot_id, digest="d" * 64, at_ms=1))
    Path(path).write_bytes(b"".join(lines))
    ledger = Ledger(path, CLOCK)
    with ledger.transaction() as transaction:
        transaction.compact()
    ledger.close()


def spawn_bare() -> None:
    """posix_spawn and wait: what a command costs without anything around it."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)


def open_sync(directory: str) -> Work:
    descriptor = os.open(os.path.join(directory, "sync"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    line = b"x" * 400 + b"\n"

    def sync() -> None:
        os.write(descriptor, line)
        os.fdatasync(descriptor)

    return sync


def bench_start(report: Report, warm: Bench, forked: Bench, rounds: int, peer: CuaPeer | None) -> None:
    """What a keyed command costs over the bare spawn: with a warm shim, with one forked for it."""
    subjects: dict[str, Work] = {
        "bare posix_spawn and wait": spawn_bare,
        "bare append and fdatasync": open_sync(warm.work),
        f"keyed, warm shim ({warm.setting.kind})": warm.run,
        f"keyed, shim forked for it ({forked.setting.kind})": forked.run_fresh,
    }
    if peer is not None:
        subjects["cua-spacesd, keyed"] = peer.run
    seconds = interleave(subjects, rounds)
    report.compare("one command, `true`", seconds, "bare posix_spawn and wait", {})
    base = statistics.median(seconds["bare posix_spawn and wait"])
    budgets = {f"keyed, warm shim ({warm.setting.kind})": 1.5, f"keyed, shim forked for it ({forked.setting.kind})": 3.0}
    for name, budget in budgets.items():
        report.figure(f"over the bare spawn: {name}", (statistics.median(seconds[name]) - base) * 1e3, "ms", budget)
    warm.close()
    forked.close()


def bench_again(report: Report, bench: Bench, rounds: int, peer: CuaPeer | None) -> None:
    """The same key again, ended or running."""
    keys = bench.keys
    ended = bench.request(TRUE)
    mark = bench.start(ended)
    bench.space.wait_command(ended.key, bench.shim)
    running = bench.request(LONG)
    running_mark = bench.start(running)

    def again(request: CommandRequest, its_mark: str) -> Attach | Replay | New:
        return prepare(bench.ledger, Prepare(request.key, "command", 1, None, 1, digest_request(request), its_mark, None, 0, ""))

    def replay() -> None:
        answer = again(ended, mark)
        if not isinstance(answer, Replay) or answer.attempt.exit is None:
            raise RuntimeError(f"{answer}")
        bench.space.read_output(mark, answer.attempt.exit)

    def attach() -> None:
        answer = again(running, running_mark)
        if not isinstance(answer, Attach) or answer.attempt.start is None:
            raise RuntimeError(f"{answer}")
        with connect_shim(bench.paths.directory, answer.attempt.start.socket) as connection:
            send(connection, AttachMessage(1, running.key, 0, 0))
            receive(connection)

    subjects: dict[str, Work] = {"replay": replay, "attach, to the first frame": attach, "bare append and fdatasync": open_sync(bench.work)}
    if peer is not None:
        subjects |= {"cua-spacesd, replay": peer.replay, "cua-spacesd, attach": peer.attach}
    wait_begun(bench, running)
    seconds = interleave(subjects, rounds)
    report.compare(f"the same key again, {keys} keys", seconds, "bare append and fdatasync", {})
    report.figure(f"replay, {keys} keys", statistics.median(seconds["replay"]) * 1e3, "ms", 0.5)
    report.figure(f"attach, {keys} keys", statistics.median(seconds["attach, to the first frame"]) * 1e3, "ms", 0.7)
    os.kill(bench.shim.pid, 9)
    bench.close()


def wait_begun(bench: Bench, request: CommandRequest) -> None:
    """Until its starting mark stands."""
    while (found := bench.ledger.state.find(request.key)) is None or found.start is None:
        CLOCK.pause(0.01)
        bench.ledger.refresh()


def bench_advance(report: Report, bench: Bench, rounds: int, peer: CuaPeer | None) -> None:
    """The floor raised in one transaction, as a takeover of a space without anything running does."""

    def advance() -> None:
        with bench.ledger.transaction() as transaction:
            epoch = transaction.state.floor + 1
            check_advance(epoch, transaction.state.floor, "bench")
            transaction.append(Advance(epoch, "log", 0, "", {}, []))

    subjects: dict[str, Work] = {"advance, nothing running": advance, "bare append and fdatasync": open_sync(bench.work)}
    if peer is not None:
        subjects["cua-spacesd, advance"] = peer.advance
    seconds = interleave(subjects, rounds)
    report.compare("advance", seconds, "bare append and fdatasync", {})
    report.figure("advance", statistics.median(seconds["advance, nothing running"]) * 1e3, "ms", 1.0)
    bench.close()


def bench_clients(report: Report, bench: Bench, count: int, peer: CuaPeer | None) -> None:
    """Throughput with so many clients, each with one command after the other, and so many keys in the ledger; then of one client alone that
    has as many in flight."""
    keys = bench.keys
    report.figure(f"{CLIENTS} clients, {keys} keys", run_clients(bench.work, count, CLIENTS), "commands/s", 1000, at_least=True)
    bench.run_many(2 * CLIENTS, CLIENTS)
    report.figure(f"one client, {CLIENTS} in flight, {keys} keys", bench.run_many(count, CLIENTS), "commands/s")
    bench.close()
    if peer is not None:
        report.figure(f"cua-spacesd, {CLIENTS} clients, its keys so far", peer.run_many(count, CLIENTS), "commands/s")


def bench_opening(report: Report, directory: Callable[[str], str]) -> None:
    for keys in KEYS:
        path = os.path.join(directory(f"open{keys}"), "ledger")
        create_ledger(path, Header(1, "open", 1))
        fill(path, keys)
        began = time.perf_counter()
        Ledger(path, CLOCK).close()
        report.figure(f"opening a ledger of {keys} keys, {os.path.getsize(path) >> 10} KiB", (time.perf_counter() - began) * 1e3, "ms")


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.space", description=__doc__)
    parser.add_argument("--json", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--where", help="a directory on the disk to be measured", default=None)
    return parser.parse_args(list(arguments))


def main(arguments: Iterable[str]) -> None:
    options = parse(arguments)
    rounds = 40 if options.quick else 400
    report = Report()
    report.note("machine", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="bench-space-", dir=options.where) as base:

        def directory(name: str) -> str:
            os.makedirs(path := os.path.join(base, name))
            return path

        # Every spawner is forked before the peer's client makes threads.
        warm, forked = Bench(directory("warm")), Bench(directory("forked"))
        again = [Bench(directory(f"again{keys}"), keys) for keys in KEYS]
        advancing = Bench(directory("advance"))
        clients = [Bench(directory(f"clients{keys}"), keys) for keys in KEYS]
        peer, word = open_cua(directory("peer"))
        report.note("cua-spacesd", word)
        bench_start(report, warm, forked, rounds, peer)
        for bench in again:
            bench_again(report, bench, rounds, peer if bench is again[0] else None)
        bench_advance(report, advancing, rounds, peer)
        for bench in clients:
            bench_clients(report, bench, 10 * rounds, peer if bench is clients[0] else None)
        bench_opening(report, directory)
        if peer is not None:
            peer.close()
    if options.json:
        report.write(options.json)
        print(f"\nwritten: {Path(options.json)}")


if __name__ == "__main__":
    main(sys.argv[1:])
