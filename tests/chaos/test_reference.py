"""The plain run that exactly-once is measured against: bash and Python, no engine."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.drivers import base_environment
from chaos.judging import OracleProcess
from chaos.reference import make_reference
from chaos.scenario import SeedEntry
from recovery.script import BashCall, EditCall, WriteCall
from tests.chaos.fakes import make_scenario
from tests.chaos.places import SITE_PACKAGES

SEED = (SeedEntry(b"old.txt", "file", b"one one\n", 0o600), SeedEntry(b"dir/x", "file", b""))
CALLS = (
    BashCall(b'echo out; echo err >&2; printf \'%s\\n\' "$CALL_KEY" >> "$WITNESS"; cat dir/x; exit 3'),
    EditCall(b"old.txt", b"one", b"two"),
    WriteCall(b"made/here.txt", b"\0bytes", None),
    WriteCall(b"dir/x", b"over", 0o700),
)


@pytest.fixture
def oracle() -> Iterator[OracleProcess]:
    process = OracleProcess(SITE_PACKAGES)
    yield process
    process.close()


def test_the_calls_of_a_script_run_plainly(tmp_path: Path, oracle: OracleProcess) -> None:
    reference = make_reference(make_scenario(seed=SEED, calls=CALLS), tmp_path / "plain", base_environment(), oracle)
    work = tmp_path / "plain" / "work"
    assert (work / "old.txt").read_bytes() == b"two one\n"
    assert (work / "made" / "here.txt").read_bytes() == b"\0bytes"
    assert stat.S_IMODE((work / "old.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((work / "made" / "here.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((work / "dir" / "x").stat().st_mode) == 0o700
    assert reference.outputs == {"0": b"out\nerr\n".hex()}
    assert (tmp_path / "plain" / "witness").read_text() == "plain\n"
    assert reference.listing == oracle.list_tree(work)
    assert {"old.txt", "made/here.txt", "dir/x"} < set(reference.listing)


def test_a_command_that_waits_for_the_gate_finds_it_open(tmp_path: Path, oracle: OracleProcess) -> None:
    call = BashCall(b'[ -e "$OUTSIDE/gate" ] && echo open')
    reference = make_reference(make_scenario(calls=(call,), gate="gate", ready="ready"), tmp_path / "plain", base_environment(), oracle)
    assert reference.outputs == {"0": b"open\n".hex()}
