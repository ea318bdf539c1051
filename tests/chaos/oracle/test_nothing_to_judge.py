"""Nothing judged is never a pass: empty logs, empty inputs, broken requests. The program as it is run."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from chaos.oracle import judge as program
from chaos.oracle.judging import judge
from chaos.oracle.server import answer_line
from chaos.oracle.suspicion import run_oracle
from chaos.oracle.values import Finding, Verdict
from tests.chaos.oracle.log_builder import Trial, create_log, tamper

PROGRAM = [sys.executable, "-I", "-S", str(Path(program.__file__)), "--path", sysconfig.get_path("purelib")]
READS_THE_LOG = {"workspace-equals-log", "order", "witness", "fencing", "laundering", "quarantine", "acknowledged", "output", "exits"}


def make_missing(trial: Trial) -> None:
    """No log."""


def make_zero_bytes(trial: Trial) -> None:
    """An empty file."""
    trial.log.touch()


def make_noise(trial: Trial) -> None:
    """No database."""
    trial.log.write_bytes(b"noise" * 1000)


def make_schema_only(trial: Trial) -> None:
    """Tables and nothing in them."""
    create_log(trial.log).close()
    trial.log.with_name("building.sqlite").rename(trial.log)


def make_without_events(trial: Trial) -> None:
    """The stream's row is there, its events are gone."""
    trial.write()
    tamper(trial, "DELETE FROM event", "DELETE FROM image_change")


def make_other_stream(trial: Trial) -> None:
    """A good log of another stream."""
    trial.write()
    trial.request["stream"] = "unheard of"


@pytest.mark.parametrize(
    "make", [make_missing, make_zero_bytes, make_noise, make_schema_only, make_without_events, make_other_stream]
)
def test_a_log_without_events_never_passes(trial: Trial, make: Any) -> None:
    make(trial)
    trial.request["acknowledged"] = []
    verdicts = {name: verdict["verdict"] for name, verdict in trial.verdicts().items()}
    assert verdicts["chain"] == "fail"
    assert {verdicts[name] for name in READS_THE_LOG & verdicts.keys()} == {"unknown"}
    assert judge(trial.request)["digest"] is None


def test_a_session_without_calls_is_unknown_to_the_oracles_of_calls(trial: Trial) -> None:
    del trial.events[2:]
    trial.outputs, trial.witness_lines = [["HEARTBEAT 1 1 0"]], []
    trial.request |= {"expect_finished": False, "reference": None, "superseded": []}
    trial.write()
    verdicts = {name: verdict["verdict"] for name, verdict in trial.verdicts().items()}
    assert {name for name, verdict in verdicts.items() if verdict == "unknown"} == {"order", "witness", "acknowledged", "output", "exits"}


@pytest.mark.parametrize(
    ("fields", "oracle"),
    [
        ({"witness": None}, "witness"),
        ({"witnessed": []}, "witness"),
        ({"reference": None}, "reference"),
        ({"reference_outputs": None}, "output"),
        ({"reference_exits": None}, "exits"),
    ],
)
def test_an_oracle_that_was_given_nothing_is_left_out(trial: Trial, fields: dict[str, Any], oracle: str) -> None:
    trial.write()
    trial.request |= fields
    assert oracle not in trial.verdicts()


@pytest.mark.parametrize(
    ("fields", "oracle"),
    [
        ({"reference": {}}, "reference"),
        ({"reference_outputs": {}}, "output"),
        ({"reference_exits": {}}, "exits"),
        ({"quarantine": None}, "quarantine"),
        ({"acknowledged": []}, "acknowledged"),
        ({"acknowledged": ["/nowhere/stdout"]}, "acknowledged"),
    ],
)
def test_an_oracle_with_empty_input_is_unknown(trial: Trial, fields: dict[str, Any], oracle: str) -> None:
    trial.write()
    trial.request |= fields
    assert trial.verdicts()[oracle]["verdict"] == "unknown"


def test_a_torn_acknowledgement_is_ignored(trial: Trial) -> None:
    trial.write()
    with open(trial.home / "stdout-1", "a", encoding="ascii") as output:
        output.write("ACK 9 9 00")
    assert trial.failing() == set()


def test_a_torn_witness_line_fails(trial: Trial) -> None:
    trial.write()
    with open(trial.home / "witness", "a", encoding="ascii") as noted:
        noted.write("key sta")
    assert trial.failing() == {"witness"}


def test_a_witness_file_that_was_never_made_fails_when_calls_finished(trial: Trial) -> None:
    trial.write()
    (trial.home / "witness").unlink()
    assert trial.failing() == {"witness"}


def test_an_oracle_that_crashes_is_unknown_and_says_why() -> None:
    def crash(evidence: object) -> Finding:
        raise KeyError("lost")

    finding = run_oracle(crash, None)  # type: ignore[arg-type]
    assert finding is not None
    assert (finding.verdict, finding.detail) == (Verdict.UNKNOWN, "the oracle crashed: KeyError: 'lost'")


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"op":"sing"}', b'{"op":"list"}', b"\xff", b"[" * 100_000])
def test_a_request_that_cannot_be_understood_is_answered(line: bytes) -> None:
    assert list(answer_line(line)) == ["error"]


def test_a_judge_request_that_lacks_a_field_is_unknown(trial: Trial) -> None:
    trial.write()
    for field in trial.request.keys() - {"op"}:
        request = {name: value for name, value in trial.request.items() if name != field}
        answer = answer_line(json.dumps(request).encode())
        assert [verdict["verdict"] for verdict in answer["verdicts"]] == ["unknown"]
        assert field in answer["error"]


def test_a_scratch_directory_that_is_not_empty_is_refused(trial: Trial) -> None:
    trial.write()
    (trial.home / "scratch" / "mine").touch()
    assert "scratch" in answer_line(json.dumps(trial.request).encode())["error"]


def test_the_program_answers_line_by_line(trial: Trial) -> None:
    trial.write()
    requests = [trial.request, {"op": "list", "tree": str(trial.work)}, {"op": "sing"}, trial.request]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(PROGRAM, input=lines, capture_output=True, text=True, timeout=300, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [next(iter(answer)) for answer in answers] == ["verdicts", "listing", "error", "verdicts"]
    assert answers[0] == answers[3]
    assert {verdict["verdict"] for verdict in answers[0]["verdicts"]} == {"pass"}
    assert answers[1]["listing"] == trial.request["reference"]


@pytest.mark.parametrize(
    ("fields", "code"), [({}, 0), ({"script_length": 3}, 1), ({"quarantine": None}, 2), ({"log": None}, 2)], ids=str
)
def test_once_exits_by_the_worst_verdict(trial: Trial, fields: dict[str, Any], code: int) -> None:
    trial.write()
    request = trial.home / "request.json"
    request.write_text(json.dumps(trial.request | fields))
    done = subprocess.run([*PROGRAM, "--once", str(request)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert json.loads(done.stdout)["verdicts"]


def test_wrong_usage_exits_254() -> None:
    done = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1][:6]) == (254, "usage:")


def test_the_program_imports_no_project_code() -> None:
    for module in Path(program.__file__).parent.glob("*.py"):
        words = [line.split() for line in module.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]
        roots = {line[1].split(".")[0] for line in words}
        assert not roots & {"eventlog", "recovery", "chaos", "reports", "apsw", "msgspec"}, module
