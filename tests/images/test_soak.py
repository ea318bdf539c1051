"""The long runs of `make soak`: times are printed, never asserted."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.images.stories import cut_call, damage_command, digest
from tests.recovery.sessions import PROJECT, Sandbox
from tests.recovery.workspace.support import make_tree

FILES, FILES_IN_A_DIRECTORY = 100_000, 1_000
LARGE_BYTES = 2 << 30
ADDRESS_SPACE_BYTES = 1 << 30
LOG_GROWTH_BYTES = 4 << 20
"""A changed byte costs a content-defined chunk (1 MiB at most, eventlog/README) and what an event costs."""


def drive_within_limit(sandbox: Sandbox, *arguments: str | Path) -> tuple[float, int]:
    """Run `recovery` in an address space of ADDRESS_SPACE_BYTES; seconds and peak resident bytes of what it started."""
    limit = "import resource, runpy, sys\n" f"resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE_BYTES},) * 2)\n"
    program = limit + "sys.argv = ['recovery', *sys.argv[1:]]\nrunpy.run_module('recovery', run_name='__main__')"
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, *map(str, arguments)],
        env=sandbox.environment(None, ()) | {"PYTHONPATH": str(PROJECT)},
        cwd=sandbox.base,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def log_bytes(sandbox: Sandbox) -> int:
    return sum(path.stat().st_size for path in sandbox.state.glob("log.sqlite*"))


@pytest.mark.soak
def test_one_byte_changed_in_two_gibibytes_costs_a_chunk_and_bounded_memory(sandbox: Sandbox) -> None:
    sandbox.root.mkdir()
    large = sandbox.root / "large"
    with open(large, "wb") as file:
        for _ in range(LARGE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    image = ("image", sandbox.state, "--workspace", sandbox.root)
    seconds, peak = drive_within_limit(sandbox, *image, "--new")
    print(f"2 GiB imaged in {seconds:.1f} s, {peak >> 20} MiB resident")
    size = log_bytes(sandbox)
    assert size > LARGE_BYTES
    with open(large, "r+b") as file:
        file.seek(LARGE_BYTES // 2)
        file.write(b"X")
    seconds, peak = drive_within_limit(sandbox, *image)
    print(f"2 GiB with one byte changed imaged in {seconds:.1f} s, {peak >> 20} MiB resident, log {log_bytes(sandbox) - size} bytes more")
    assert log_bytes(sandbox) - size < LOG_GROWTH_BYTES
    changed = digest(sandbox.root)
    large.unlink()
    seconds, peak = drive_within_limit(sandbox, "restore", sandbox.state, "--at", "1", "--workspace", sandbox.root)
    print(f"2 GiB written back in {seconds:.1f} s, {peak >> 20} MiB resident")
    assert large.stat().st_size == LARGE_BYTES and digest(sandbox.root) != changed


@pytest.mark.soak
def test_a_hundred_thousand_files_are_imaged_twice_and_restored(sandbox: Sandbox) -> None:
    sandbox.root.mkdir()
    for number in range(FILES):
        directory = sandbox.root / f"{number // FILES_IN_A_DIRECTORY:03}"
        if number % FILES_IN_A_DIRECTORY == 0:
            directory.mkdir()
        (directory / f"{number:06}").write_bytes(b"%d\n" % number * 50)
    before = digest(sandbox.root)
    begun = time.monotonic()
    cut_call(sandbox, "rm -r 0[0-4]?; for file in 09?/*0; do echo changed > $file; done; mkdir extra; echo x > extra/y")
    print(f"{FILES} files imaged, and half of them removed, in {time.monotonic() - begun:.1f} s")
    assert digest(sandbox.root) != before
    begun = time.monotonic()
    sandbox.drive()
    print(f"{FILES} files restored in {time.monotonic() - begun:.1f} s")
    assert digest(sandbox.root) == before


@pytest.mark.soak
def test_a_sparse_file_of_four_gibibytes_comes_back_with_its_holes(sandbox: Sandbox) -> None:
    make_tree("sparse-huge", str(sandbox.root))
    before = digest(sandbox.root)
    cut_call(sandbox, damage_command(sandbox, "sparse-huge"))
    sandbox.drive()
    assert digest(sandbox.root) == before
    assert sum(path.stat().st_blocks for path in sandbox.root.iterdir()) * 512 < 64 << 20
