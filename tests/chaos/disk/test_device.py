"""The disk under a driver counts what all its processes do as one: each number is given once, and the fault is met once."""

import os
from collections import Counter
from pathlib import Path

from chaos.disk.device import Device
from chaos.disk.fault import DiskFault
from chaos.disk.rules import parse_trace

PROCESSES = 4
EACH = 500


def test_processes_that_count_at_once_give_each_number_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    begin, held = os.pipe()
    device = Device(tmp_path, DiskFault("ledger", "write", PROCESSES * EACH // 2, "EIO"), tmp_path / "flag", trace)
    children = []
    for _ in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            os.close(held)
            os.read(begin, 1)  # until the parent lets all of them go
            for _ in range(EACH):
                device.ask("write", str(tmp_path / "state" / "space" / "ledger"))
            os._exit(0)
        children.append(pid)
    os.close(held)
    os.close(begin)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * PROCESSES
    done = parse_trace(trace.read_text("utf-8"))
    assert Counter(one.count for one in done) == Counter(range(1, PROCESSES * EACH + 1))
    assert [one.count for one in done] == sorted(one.count for one in done)
    assert [one.count for one in done if one.error] == [PROCESSES * EACH // 2]
