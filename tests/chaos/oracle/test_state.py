"""The state that a crash left: equal where recovery finds the same, whatever differs by nature; another where anything else does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.oracle.state import digest_state
from tests.chaos.oracle.log_builder import LOG_ID, Trial

RECORDS = (
    '{"op":"ledger","format":1,"ledger_id":"%(id)s","generation":1}',
    '{"op":"register","role":"spawner","epoch":1,"mark":"cgroup:/x.%(id)s/e1","identity":{"pid":%(pid)s}}',
    '{"op":"start","key":"%(log)s/small/1/1/1","socket":"c1.%(pid)s","at_ms":%(pid)s}',
    '{"op":"exit","key":"%(log)s/small/1/1/1","exit":{"kind":"exited","code":0},"detail":{"side":"/t/.crashworthy-%(id)s"}}',
)


def digest_of(home: Path, spoil: Callable[[Trial, Path], object] = lambda trial, ledger: None, chance: int = 1) -> str:
    """The state of a session of one call, made in `home`, after `spoil`; `chance` stands for pids and random names."""
    trial = Trial(home)
    trial.open()
    trial.drive()
    trial.start(1)
    (trial.work / "log.txt").write_text("one\n")
    trial.finish(1)
    trial.write()
    ledger = home / "ledger"
    lines = [record % {"id": f"{chance:032x}", "pid": chance, "log": LOG_ID} for record in RECORDS]
    ledger.write_text("".join(f"{chance:032x} {line}\n" for line in lines))
    spoil(trial, ledger)
    (home / "state-scratch").mkdir()
    names = {"workspace": trial.work, "quarantine": home / "quarantine", "ledger": ledger, "scratch": home / "state-scratch"}
    paths = {name: str(path) for name, path in names.items()}
    return digest_state({"log": trial.request["log"], "stream": trial.request["stream"], **paths})


def test_states_that_differ_by_nature_alone_are_equal(tmp_path: Path) -> None:
    assert digest_of(tmp_path / "one") == digest_of(tmp_path / "other", chance=77)


def append(ledger: Path, line: str) -> None:
    ledger.write_text(ledger.read_text() + line)


OTHERS: dict[str, Callable[[Trial, Path], object]] = {
    "a file more in the workspace": lambda trial, ledger: (trial.work / "more").write_text("x"),
    "another content": lambda trial, ledger: (trial.work / "log.txt").write_text("two\n"),
    "a victim in quarantine": lambda trial, ledger: (trial.home / "quarantine" / "x").mkdir(parents=True),
    "a record more in the ledger": lambda trial, ledger: append(ledger, '0 {"op":"advance","epoch":2}\n'),
    "a torn record in the ledger": lambda trial, ledger: append(ledger, '0 {"op":"adv'),
    "another exit": lambda trial, ledger: ledger.write_text(ledger.read_text().replace('"code":0', '"code":1')),
    "no ledger": lambda trial, ledger: ledger.unlink(),
}


@pytest.mark.parametrize("spoil", OTHERS.values(), ids=OTHERS)
def test_whatever_recovery_could_find_makes_another_state(spoil: Callable[[Trial, Path], object], tmp_path: Path) -> None:
    assert digest_of(tmp_path / "one") != digest_of(tmp_path / "other", spoil)
