"""An oracle that cannot fail never lets a trial pass: each is shown spoiled evidence, and a blind one is unknown."""

from pathlib import Path

import pytest

from chaos.oracle import suspicion
from chaos.oracle.evidence import Evidence, gather
from chaos.oracle.judging import ORACLES
from chaos.oracle.request import parse_judge_request
from chaos.oracle.suspicion import SPOILS, Oracle, doubt, run_oracle
from chaos.oracle.values import Finding, Verdict, failed, passed, unknown
from tests.chaos.oracle.conftest import build_restored
from tests.chaos.oracle.log_builder import digest

SAID = passed("all is well")
EACH = [(name, what) for name, spoils in SPOILS.items() for what in spoils]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """The good trial, with everything told that an oracle may ask for."""
    trial = build_restored(tmp_path_factory.mktemp("suspicion") / "trial")
    trial.request |= {"edits": [{"path": "log.txt", "content": digest(b"one\n" * 50).hex()}], "converges_to": "00" * 32}
    trial.write()
    return gather(parse_judge_request(trial.request))


def blind(evidence: Evidence) -> Finding | None:
    """An oracle that compares nothing."""
    return SAID


def absent(evidence: Evidence) -> Finding | None:
    """An oracle that leaves itself out of everything."""
    return None


def broken(evidence: Evidence) -> Finding | None:
    """An oracle that fails at something else whatever it is asked."""
    raise KeyError("spoiled")


def test_every_oracle_has_a_spoil() -> None:
    assert SPOILS.keys() == {name for name in ORACLES if name != "exits"}


@pytest.mark.parametrize(("name", "what"), EACH)
def test_each_spoil_applies_to_the_good_trial_and_its_oracle_notices(evidence: Evidence, name: str, what: str) -> None:
    spoiled = SPOILS[name][what](evidence)
    assert spoiled is not None
    finding = run_oracle(ORACLES[name], spoiled)
    assert finding is not None and finding.verdict is Verdict.FAIL, finding


@pytest.mark.parametrize("name", SPOILS)
@pytest.mark.parametrize("oracle", [blind, absent])
def test_an_oracle_that_cannot_fail_is_unknown(evidence: Evidence, name: str, oracle: Oracle) -> None:
    for finding in (SAID, None):
        doubted = doubt(name, oracle, evidence, finding)
        assert doubted is not None and doubted.verdict is Verdict.UNKNOWN
        assert doubted.detail.startswith("the oracle does not notice ")


@pytest.mark.parametrize(("name", "what"), EACH)
def test_an_oracle_that_misses_one_spoil_is_unknown(
    evidence: Evidence, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspicion, "SPOILS", {name: {what: SPOILS[name][what]}})
    assert doubt(name, blind, evidence, SAID) == unknown(f"the oracle does not notice {what} (all is well)")


def test_an_oracle_that_crashes_on_spoiled_evidence_is_unknown_when_it_had_passed(evidence: Evidence) -> None:
    doubted = doubt("edits", broken, evidence, SAID)
    assert doubted is not None and doubted.verdict is Verdict.UNKNOWN
    assert doubt("edits", broken, evidence, None) is None


@pytest.mark.parametrize("finding", [failed("differs"), unknown("cannot tell")])
def test_what_is_no_pass_is_not_doubted(evidence: Evidence, finding: Finding) -> None:
    assert doubt("order", blind, evidence, finding) is finding


@pytest.mark.parametrize("name", ORACLES)
def test_a_sound_oracle_keeps_its_finding(evidence: Evidence, name: str) -> None:
    finding = run_oracle(ORACLES[name], evidence)
    assert doubt(name, ORACLES[name], evidence, finding) is finding


NOT_APPLICABLE = {"witness": "witness", "acknowledged": "acknowledged", "reference": "reference", "output": "reference_outputs"}


@pytest.mark.parametrize(("name", "field"), NOT_APPLICABLE.items())
def test_a_spoil_that_does_not_apply_blames_nobody(tmp_path: Path, name: str, field: str) -> None:
    trial = build_restored(tmp_path / "trial")
    trial.write()
    trial.request[field] = None
    assert name not in trial.verdicts()
    assert trial.failing() == set()
