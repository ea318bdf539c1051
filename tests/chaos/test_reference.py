"""The plain run that exactly-once is measured against: bash and Python, no engine."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.drivers import base_environment
from chaos.judging import OracleProcess
from chaos.plain import PlainEnd
from chaos.reference import make_reference, run_script
from chaos.scenario import SeedEntry
from recovery.script import BashCall, EditCall, WriteCall
from tests.chaos.fakes import make_scenario
from tests.chaos.places import SITE_PACKAGES

SEED = (SeedEntry(b"old.txt", "file", b"one\n", 0o600), SeedEntry(b"dir/x", "file", b""))
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


def test_the_calls_of_a_script_run_plainly(tmp_path: Path) -> None:
    ends = run_script(make_scenario(seed=SEED, calls=CALLS), tmp_path / "plain", base_environment())
    work = tmp_path / "plain" / "work"
    assert (work / "old.txt").read_bytes() == b"two\n"
    assert (work / "made" / "here.txt").read_bytes() == b"\0bytes"
    assert stat.S_IMODE((work / "old.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((work / "made" / "here.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((work / "dir" / "x").stat().st_mode) == 0o700
    assert ends == [PlainEnd(b"out\nerr\n", 3), *[PlainEnd(b"", 0)] * 3]
    assert (tmp_path / "plain" / "witness").read_text() == "plain\n"


def test_a_reference_holds_listing_outputs_and_exits_and_leaves_no_tree(tmp_path: Path, oracle: OracleProcess) -> None:
    calls = (*CALLS, BashCall(b"kill -KILL $$"), EditCall(b"old.txt", b"nowhere in it", b""))
    reference = make_reference(make_scenario(seed=SEED, calls=calls), tmp_path / "plain", base_environment(), oracle)
    assert {"old.txt", "made/here.txt", "dir/x"} < set(reference.listing)
    assert reference.outputs == {"0": b"out\nerr\n".hex(), "4": ""}
    exits = [(3, None), (0, None), (0, None), (0, None), (None, 9), (1, None)]
    assert reference.exits == {
        str(index): {"kind": "exited" if signal is None else "signaled", "code": code, "signal": signal}
        for index, (code, signal) in enumerate(exits)
    }
    assert list(tmp_path.iterdir()) == []


def test_a_call_finds_nothing_alive_of_the_one_before_it(tmp_path: Path) -> None:
    """What a daemon wrote is chance; that it writes no more after its call is not."""
    daemon = b"( setsid bash -c 'until read -r -t 0.001 <> <(:); do echo x >> ticks; done' & ) ; until [ -s ticks ]; do :; done"
    then = b"rm ticks; read -r -t 0.05 <> <(:); ls"
    assert run_script(make_scenario(calls=(BashCall(daemon), BashCall(then))), tmp_path / "plain", base_environment())[1].output == b""


def test_an_edit_whose_text_is_not_there_exactly_once_changes_nothing(tmp_path: Path) -> None:
    calls = (EditCall(b"twice", b"one", b"two"), EditCall(b"twice", b"three", b"two"))
    scenario = make_scenario(seed=(SeedEntry(b"twice", "file", b"one one"),), calls=calls)
    assert [end.code for end in run_script(scenario, tmp_path / "plain", base_environment())] == [1, 1]
    assert (tmp_path / "plain" / "work" / "twice").read_bytes() == b"one one"


def test_a_command_that_waits_for_the_gate_finds_it_open(tmp_path: Path, oracle: OracleProcess) -> None:
    call = BashCall(b'[ -e "$OUTSIDE/gate" ] && echo open')
    reference = make_reference(make_scenario(calls=(call,), gate="gate", ready="ready"), tmp_path / "plain", base_environment(), oracle)
    assert reference.outputs == {"0": b"open\n".hex()}
