"""Identity files: who is about to write says so before it asks for a lock (rule L4)."""

import json
import os
import stat
from pathlib import Path

import pytest

from eventlog import steps
from eventlog.errors import CorruptError
from eventlog.identity_files import (
    Writing,
    forget_dead,
    has_driver_file,
    highest_intended,
    leave_identity,
    leaving_identity,
    read_identities,
)
from eventlog.ports import CountingIds, FakeHost, LinuxHost
from eventlog.process_identity import ProcessIdentity, identify_self

HOST = LinuxHost()
ME = identify_self(HOST)
DEAD = ProcessIdentity(ME.pid, ME.start_ticks - 1, ME.boot_id, ME.pid_namespace)


def leave(directory: Path, nonce: str, identity: ProcessIdentity, epoch: int = 0, purpose: str = "append") -> None:
    leave_identity(str(directory), Writing(nonce, identity, epoch, purpose))  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "identity"))


def test_rule_L4_a_command_leaves_its_file_synced_and_takes_it_away(tmp_path: Path) -> None:
    passed: list[str] = []

    class Hook:
        def pass_step(self, step: str) -> None:
            passed.append(step.split(":")[1])

    steps.install(Hook())
    try:
        with leaving_identity(str(tmp_path), "compact", HOST, CountingIds()) as path:
            assert passed == [f"identity.{name}" for name in (
                "write.half", "sync.before", "sync.after", "rename.before", "rename.after", "sync.before", "sync.after"
            )]  # fmt: skip
            assert read_identities(str(tmp_path)) == [Writing(f"{1:032x}", ME, 0, "compact")]
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
            body = json.loads(Path(path).read_text())
    finally:
        steps.install(None)
    assert body == {
        "nonce": f"{1:032x}", "pid": ME.pid, "start_ticks": ME.start_ticks, "boot_id": ME.boot_id, "pid_namespace": ME.pid_namespace,
        "epoch": 0, "purpose": "compact",
    }  # fmt: skip
    assert names(tmp_path) == []


def test_the_file_goes_when_the_command_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), leaving_identity(str(tmp_path), "append", HOST, CountingIds()):
        raise KeyError
    assert names(tmp_path) == []


def test_a_command_sweeps_away_the_files_of_dead_commands_and_no_driver_s(tmp_path: Path) -> None:
    """Beside a log without a state directory no driver ever comes to do it."""
    leave(tmp_path, "0a", DEAD)
    leave(tmp_path, "0b", ME)
    leave(tmp_path, "0c", DEAD, epoch=1, purpose="drive")
    with leaving_identity(str(tmp_path), "import", HOST, CountingIds()):
        assert names(tmp_path) == [f"{1:032x}.json", "0b.json", "0c.json"]


def test_a_process_of_another_pid_namespace_is_not_taken_for_dead(tmp_path: Path) -> None:
    leave(tmp_path, "0a", ProcessIdentity(DEAD.pid, DEAD.start_ticks, DEAD.boot_id, DEAD.pid_namespace + 1))
    with leaving_identity(str(tmp_path), "import", HOST, CountingIds()):
        assert "0a.json" in names(tmp_path)
    forget_dead(str(tmp_path), 9, FakeHost("another boot"))
    assert names(tmp_path) == []


def test_rule_L1_the_highest_intended_epoch_counts_living_and_dead(tmp_path: Path) -> None:
    assert highest_intended(str(tmp_path)) == 0
    leave(tmp_path, "0a", DEAD, epoch=7, purpose="drive")
    leave(tmp_path, "0b", ME, epoch=3, purpose="drive")
    leave(tmp_path, "0c", ME)
    assert highest_intended(str(tmp_path)) == 7
    forget_dead(str(tmp_path), 7, HOST)
    assert highest_intended(str(tmp_path)) == 7
    forget_dead(str(tmp_path), 8, HOST)
    assert highest_intended(str(tmp_path)) == 3


def test_rule_L9_only_a_driver_s_file_says_that_there_should_be_a_log(tmp_path: Path) -> None:
    assert not has_driver_file(str(tmp_path))
    leave(tmp_path, "0a", ME, purpose="import")
    assert not has_driver_file(str(tmp_path))
    leave(tmp_path, "0b", DEAD, epoch=1, purpose="drive")
    assert has_driver_file(str(tmp_path))


@pytest.mark.parametrize("text", ["", "{}", '{"epoch": 1}'])
def test_rule_L9_a_damaged_file_may_be_a_driver_s(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity").mkdir()
    (tmp_path / "identity" / "0a.json").write_text(text)
    assert has_driver_file(str(tmp_path))
    with pytest.raises(CorruptError, match=r"0a.json: not an identity file \(.*if nobody writes the log beside it, remove it"):
        highest_intended(str(tmp_path))


@pytest.mark.parametrize(("field", "value"), [("purpose", "swim"), ("epoch", -1), ("pid", True), ("boot_id", 1), ("nonce", 2)])
def test_a_field_that_is_not_what_it_must_be_is_damage(tmp_path: Path, field: str, value: object) -> None:
    leave(tmp_path, "0a", ME)
    file = tmp_path / "identity" / "0a.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(CorruptError, match="a field is not what it must be"):
        read_identities(str(tmp_path))
