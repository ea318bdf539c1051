"""Several processes, real ones: a race, and SIGKILL at any moment."""

import random
from pathlib import Path

import pytest

from eventlog import events
from eventlog.conformance import processes
from eventlog.conformance.fixtures import require
from eventlog.conformance.formula import check_chain
from eventlog.conformance.samples import STREAM, begin, drive, read, read_texts, started
from eventlog.ports import RandomIds
from eventlog.store import Store
from eventlog.values import Epoch

WORKER = "eventlog.conformance.worker"
RACED = 150
"""Appends of each of two racers."""
KILLS = 6


def check_acknowledged(store: Store, said: list[str]) -> int:
    """Fail unless each acknowledged append stands where its process said, in a sound chain; the number of events."""
    reader = store.open_reading()
    stored = read(reader)
    check_chain(reader.log_id, STREAM, stored)
    texts = {int(one.seq): one.event.text for one in stored if isinstance(one.event, events.Noted)}
    lost = [line for line in said if texts.get(int(line.split()[1])) != line.split()[0]]
    assert not lost, f"acknowledged, and not there: {lost}"
    assert list(reader.events(STREAM)) == stored
    reader.close()
    return len(stored)


def test_rule_L2_two_processes_that_race_lose_nothing_and_agree_on_one_order(store: Store, store_name: str, place: Path) -> None:
    require(store, "processes")
    begin(store)
    drive(store).close()
    racers = [processes.start(WORKER, store_name, str(place), who, str(RACED)) for who in ("a", "b")]
    assert [processes.hear(racer) for racer in racers] == ["ready", "ready"]
    for racer in racers:
        processes.tell(racer)
    said = [processes.end(racer) for racer in racers]
    for lines in said:
        seqs = [int(line.split()[1]) for line in lines]
        assert len(lines) == RACED and seqs == sorted(seqs), "a process's own appends stand in its own order"
    assert check_acknowledged(store, [line for lines in said for line in lines]) == 2 + 2 * RACED
    reader = store.open_reading()
    assert sorted(read_texts(reader)) == sorted(line.split()[0] for lines in said for line in lines)


def test_rule_L2_a_floor_raised_in_one_process_fences_a_handle_of_another(store: Store, store_name: str, place: Path) -> None:
    require(store, "processes")
    begin(store)
    worker = processes.start(WORKER, store_name, str(place), "w", "1")
    assert processes.hear(worker) == "ready"  # its handle is open, before the floor is raised
    handle = drive(store, 5)
    processes.tell(worker)
    assert processes.end(worker) == ["w:0 3"]
    assert [(one.epoch, one.event.kind) for one in read(handle.reader)] == [(0, "session_opened"), (5, "driver_started"), (5, "noted")]


@pytest.mark.parametrize("seed", range(KILLS))
def test_rule_I1_what_was_acknowledged_stands_after_sigkill_at_any_moment(store: Store, store_name: str, place: Path, seed: int) -> None:
    require(store, "processes", "durable")
    draw = random.Random(seed)
    begin(store)
    drive(store).close()
    worker = processes.start(WORKER, store_name, str(place), "w", "100000")
    assert processes.hear(worker) == "ready"
    processes.tell(worker)
    said = [processes.hear(worker) for _ in range(draw.randrange(1, 60))]
    for _ in range(draw.randrange(100_000)):
        pass  # by some part of an append: the kill must fall anywhere in it
    said += processes.kill(worker)
    count = check_acknowledged(store, said)
    assert count - 2 - len(said) in (0, 1), "beyond what was acknowledged at most the one append that was cut may stand"
    handle = store.open_writing(RandomIds())
    handle.raise_floor(STREAM, Epoch(2), started("n2"))
    handle.close()
    assert check_acknowledged(store, said) == count + 1
