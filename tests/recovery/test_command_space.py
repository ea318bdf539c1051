"""Commands and spaces by hand, seen from outside: real processes, one JSON object each."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.ports import LinuxHost, SystemClock
from recovery.space.advance import advance_ledger
from recovery.space.ledger import Ledger
from tests.helpers import is_running, wait_until

RECOVERY = [sys.executable, "-m", "recovery"]


class Hand:
    """A person at a space in `directory`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.directory = str(base / "space")
        self.environment = {**os.environ, "SESSION_HOLDERS_DIR": str(base / "holders")}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*RECOVERY, *words], cwd=self.base, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        child = self.begin(*words)
        out, err = child.communicate(timeout=120)
        return child.returncode, out, err

    def ask(self, *words: str) -> Any:
        code, out, err = self.run(*words)
        assert code == 0, err
        return json.loads(out)

    def start(self, key: str, script: str, epoch: int = 1, *more: str) -> Any:
        return self.ask(
            "space", "start", "--dir", self.directory, "--key", key, "--epoch", str(epoch), "--json", *more, "--", "bash", "-c", script
        )

    def refused(self, code: int, *words: str) -> str:
        found, out, err = self.run(*words)
        assert (found, out) == (code, ""), err
        assert "Traceback" not in err and err.count("\n") == 1
        return err

    def running(self) -> dict[str, Any]:
        return {row["key"]: row for row in self.ask("ps", self.directory, "--json")} if Path(self.directory, "ledger").exists() else {}

    def close(self) -> None:
        """Nothing that a test started goes on."""
        if Path(self.directory, "ledger").exists():
            self.ask("space", "advance", "--dir", self.directory, "--epoch", "100", "--json")


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    made = Hand(tmp_path)
    yield made
    made.close()


def test_a_key_runs_once_and_tells_how_it_ended_without_becoming_it(hand: Hand) -> None:
    script = f"echo ran >> {hand.base}/runs; echo said; echo cried >&2; exit 3"
    first = hand.start("k", script, 1, "--separate")
    assert (first["how"], first["state"], first["exit"]["kind"], first["exit"]["code"]) == ("started", "exited", "exited", 3)
    assert (first["out"], first["err"]) == ("said\n", "cried\n")
    again = hand.start("k", script, 1, "--separate")
    assert again.pop("how") == "replayed" and first.pop("how") and again == first
    assert (hand.base / "runs").read_text() == "ran\n"


def test_without_json_the_output_is_the_command_s_own(hand: Hand) -> None:
    code, out, err = hand.run("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "printf", "a\\nb")
    assert (code, out, err) == (0, "a\nb", "k: exit 0\n")
    assert hand.run("logs", hand.directory, "k") == (0, "a\nb", "")


def test_rule_S4_another_command_under_the_key_is_refused(hand: Hand) -> None:
    hand.start("k", "true")
    words = ("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "touch", str(hand.base / "made"))
    assert "another" in hand.refused(78, *words)
    assert not (hand.base / "made").exists()


def test_a_command_outlives_who_started_it_and_is_followed_by_somebody_else(hand: Hand) -> None:
    script = f"echo early; until [ -e {hand.base}/gate ]; do sleep 0.01; done; echo late"
    words = ("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "bash", "-c", script)
    starter = hand.begin(*words)
    wait_until(lambda: hand.running().get("k", {}).get("state") == "running", "the command's start")
    starter.kill()
    starter.communicate()
    assert hand.running()["k"]["state"] == "running"
    assert "recovery attach" in hand.refused(78, "logs", hand.directory, "k")
    follower = hand.begin("attach", hand.directory, "k")
    assert follower.stdout is not None and follower.stdout.readline() == "early\n"
    (hand.base / "gate").touch()
    out, err = follower.communicate(timeout=60)
    assert (follower.returncode, out, err) == (0, "late\n", "k: exit 0\n")


def test_what_is_killed_by_hand_ends_by_a_signal_and_all_of_it(hand: Hand) -> None:
    script = f"sleep 1000 & echo $! > {hand.base}/child.new; mv {hand.base}/child.new {hand.base}/child; wait"
    starter = hand.begin("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--json", "--", "bash", "-c", script)
    wait_until((hand.base / "child").exists, "the command's child")
    ended = hand.ask("kill", hand.directory, "k", "--json")
    assert (ended["state"], ended["exit"]["kind"], ended["exit"]["code"]) == ("exited", "signaled", None)
    assert not is_running(int((hand.base / "child").read_text()))
    out, _ = starter.communicate(timeout=60)
    told = json.loads(out)
    assert told.pop("how") == "started" and told == ended


def test_rule_T2_an_advance_ends_what_nobody_claims_and_fences_older_epochs(hand: Hand) -> None:
    script = f"echo $$ >> {hand.base}/pids; until [ -e {hand.base}/gate ]; do sleep 0.01; done; echo done"
    starters = [
        hand.begin("space", "start", "--dir", hand.directory, "--key", key, "--epoch", "1", "--json", "--", "bash", "-c", script)
        for key in ("kept", "other")
        if not key == "other" or wait_until(lambda: (hand.base / "pids").exists(), "the first command's start") is not None
    ]
    wait_until(lambda: len((hand.base / "pids").read_text().split()) == 2, "both commands' start")
    done = hand.ask("space", "claim", "--dir", hand.directory, "--key", "kept", "--epoch", "2", "--json")
    assert done == {"floor": 2, "claimed": ["kept"], "condemned": ["other"]}
    kept, other = map(int, (hand.base / "pids").read_text().split())
    assert is_running(kept) and not is_running(other)
    for starter in starters:
        _, err = starter.communicate(timeout=60)
        assert starter.returncode == 75 and "epoch 1 " in err
    assert "below" in hand.refused(75, "space", "start", "--dir", hand.directory, "--key", "new", "--epoch", "1", "--", "true")
    assert "above" in hand.refused(78, "space", "start", "--dir", hand.directory, "--key", "new", "--epoch", "3", "--", "true")
    (hand.base / "gate").touch()
    ended = hand.ask("attach", hand.directory, "kept", "--json")
    assert (ended["state"], ended["epoch"], ended["out"]) == ("exited", 2, "done\n")
    rows = {row["key"]: row["state"] for row in hand.ask("space", "show", "--dir", hand.directory, "--json")["keys"]}
    assert rows == {"kept": "exited", "other": "cut"}


def test_rule_S10_a_lost_ledger_is_not_a_new_space(hand: Hand) -> None:
    hand.start("k", "true")
    os.unlink(Path(hand.directory, "ledger"))
    for words in (
        ("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "true"),
        ("space", "show", "--dir", hand.directory),
    ):
        assert hand.directory in hand.refused(78, *words)
    assert not Path(hand.directory, "ledger").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ps", "nowhere"), "no space is there"),
        (("space", "show", "--dir", "nowhere"), "no space is there"),
        (("attach", "space", "no-such-key"), "no-such-key"),
        (("kill", "space", "no-such-key"), "no-such-key"),
        (("logs", "space", "no-such-key"), "no-such-key"),
        (("space", "advance", "--dir", "space", "--epoch", "0"), "epoch 0"),
        (("space", "advance", "--dir", "space", "--epoch", "99999999999"), "advance to 2"),
        (("space", "claim", "--dir", "space", "--key", "no-such-key", "--epoch", "2"), "no-such-key"),
        (("space", "start", "--dir", "space", "--key", "x", "--epoch", "1", "--policy", "maybe", "--", "true"), "kill, keep, fail"),
        (("space", "start", "--dir", "space", "--key", "x", "--epoch", "1", "--stdin", "nowhere", "--", "cat"), "nowhere"),
        (("space", "start", "--dir", "space", "--key", "x", "--epoch", "1", "--mark", "magic", "--", "true"), "magic"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(hand: Hand, words: tuple[str, ...], said: str) -> None:
    hand.start("k", "true")
    before = Path(hand.directory, "ledger").read_bytes()
    assert said in hand.refused(78, *words)
    assert Path(hand.directory, "ledger").read_bytes() == before


def test_files_of_a_space_by_hand_are_changed_by_key(hand: Hand) -> None:
    work, source = hand.base / "work", hand.base / "source"
    work.mkdir()
    source.write_bytes(b"one\x00two")
    words = ("space", "change", "--dir", hand.directory, "--epoch", "1", "--json", "--key")
    done = hand.ask(*words, "w", "--workspace", str(work), "--write", str(source), "a/b")
    assert (done["how"], done["state"], done["exit"]["code"], done["out"]) == ("started", "exited", 0, "made a/b (7 bytes)")
    (work / "a/b").write_bytes(b"by hand")
    assert hand.ask(*words, "w", "--write", str(source), "a/b")["how"] == "replayed" and (work / "a/b").read_bytes() == b"by hand"
    assert hand.ask(*words, "e", "--old", "by", "--new", "with", "a/b")["exit"]["code"] == 0
    assert hand.ask(*words, "x", "--delete", "../source")["exit"]["code"] == 1 and source.exists()
    assert (work / "a/b").read_bytes() == b"with hand"
    assert hand.ask(*words, "d", "--delete", "a/b")["exit"]["code"] == 0 and not (work / "a/b").exists()
    shown = hand.ask("space", "show", "--dir", hand.directory, "--json")
    assert (shown["workspace"], shown["holder"]) == (str(work), f"space:{shown['space']}")
    assert [(row["key"], row["kind"]) for row in shown["keys"]] == [(key, "file") for key in ("w", "e", "x", "d")]
    assert "--write" in hand.refused(78, *words, "n", "--old", "x", "f")
    hand.ask("space", "advance", "--dir", f"{hand.base}/bare", "--epoch", "1", "--json")
    assert "--workspace" in hand.refused(78, "space", "change", "--dir", f"{hand.base}/bare", "--key", "k", "--epoch", "1", "--delete", "f")
    assert hand.ask("release", hand.directory, "--json")["released"] == [str(work)]
    assert "not held" in hand.refused(78, "space", "change", "--dir", hand.directory, "--key", "n", "--epoch", "2", "--delete", "f")


def test_rule_S5_a_stopped_shim_is_named_to_who_waits_for_its_command(hand: Hand) -> None:
    """Both used to wait for as long as it was stopped."""
    starter = hand.begin("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "sleep", "1000")
    wait_until(lambda: hand.running().get("k", {}).get("state") == "running", "the command's start")
    pid = hand.running()["k"]["pid"]
    hand.environment["SESSION_SILENT_SECS"] = "0.5"
    os.kill(pid, signal.SIGSTOP)
    try:
        for words in (("attach", hand.directory, "k"), ("kill", hand.directory, "k")):
            said = hand.refused(1, *words)
            assert f"its shim, process {pid}, is stopped" in said and f"`kill -CONT {pid}`" in said
            assert f"recovery space advance --dir {hand.directory} --epoch 2" in said
    finally:
        os.kill(pid, signal.SIGCONT)
    hand.environment.pop("SESSION_SILENT_SECS")
    assert hand.ask("kill", hand.directory, "k", "--json")["exit"]["kind"] == "signaled"
    starter.communicate(timeout=60)


# Found by attack from outside


def test_rule_I7_an_advance_that_was_killed_is_finished_before_anything_begins_under_its_epoch(hand: Hand) -> None:
    """The floor is up and the older command lives: whoever starts next ends it first."""
    script = f"echo $$ > {hand.base}/pid; sleep 300"
    first = hand.begin("space", "start", "--dir", hand.directory, "--key", "old", "--epoch", "1", "--", "bash", "-c", script)
    wait_until(lambda: (hand.base / "pid").exists() and (hand.base / "pid").read_text().endswith("\n"), "the command's start")
    ledger = Ledger(str(Path(hand.directory, "ledger")), SystemClock())
    with ledger.transaction() as transaction:  # all that an advance does before its kills
        advance_ledger(transaction, 2, "", (0, ""), (), LinuxHost())
    ledger.close()
    old = int((hand.base / "pid").read_text())
    assert is_running(old)
    hand.ask("space", "start", "--dir", hand.directory, "--key", "new", "--epoch", "2", "--json", "--", "true")
    assert not is_running(old)
    first.communicate(timeout=60)


def test_a_time_limit_of_a_month_is_one(hand: Hand) -> None:
    """A selector takes no more than 32 bits of milliseconds; the shim must not end over that."""
    ended = hand.start("k", "sleep 0.2", 1, "--timeout", "1e7")
    assert (ended["state"], ended["exit"]["code"]) == ("exited", 0)


def test_kept_output_that_was_changed_is_not_given_out(hand: Hand) -> None:
    hand.start("k", "echo true")
    [output] = [path for path in Path(hand.directory, "output").rglob("*") if path.is_file() and path.stat().st_size]
    output.write_bytes(b"fals\n")
    assert "is not what was written" in hand.refused(78, "logs", hand.directory, "k")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--key", "\udcff", "--epoch", "1"), "UTF-8"),
        (("--key", "", "--epoch", "1"), "UTF-8"),
        (("--key", "k", "--epoch", "1", "--timeout", "nan"), "positive number of seconds"),
        (("--key", "k", "--epoch", "1", "--timeout", "0"), "positive number of seconds"),
        (("--key", "k", "--epoch", "1", "--mark", "environment", "--policy", "keep"), "stronger kill mark"),
        (("--key", "k", "--epoch", "1", "--stdin", "/dev/zero"), "not a regular file"),
    ],
)
def test_what_cannot_be_started_is_one_sentence_and_starts_nothing(hand: Hand, more: tuple[str, ...], said: str) -> None:
    made = hand.base / "made"
    assert said in hand.refused(78, "space", "start", "--dir", hand.directory, *more, "--", "touch", str(made))
    assert not made.exists()


def test_no_space_or_state_of_a_session_is_a_workspace(hand: Hand) -> None:
    hand.start("k", "true")
    other = str(hand.base / "other")
    content = hand.base / "content"
    content.write_text("mine")
    before = Path(hand.directory, "ledger").read_bytes()
    for root in (hand.directory, str(Path(hand.directory, "output"))):
        words = ("space", "change", "--dir", other, "--epoch", "1", "--workspace", root, "--key", "c", "--write", str(content), "ledger")
        assert "is the directory of a space or the state of a session" in hand.refused(78, *words)
    assert Path(hand.directory, "ledger").read_bytes() == before


def test_a_claim_of_what_has_ended_says_so_and_fails_and_the_floor_has_risen(hand: Hand) -> None:
    hand.start("k", "exit 4")
    code, out, err = hand.run("space", "claim", "--dir", hand.directory, "--key", "k", "--epoch", "2")
    assert code == 1 and "floor 2" in out and err == "k is not claimed: exit 4; the floor is 2 all the same\n"
    assert hand.ask("space", "show", "--dir", hand.directory, "--json")["floor"] == 2


def test_rule_S11_policy_fail_says_what_was_left_and_fails(hand: Hand) -> None:
    script = "sleep 1000 > /dev/null 2>&1 & true"
    words = ("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--policy", "fail", "--", "bash", "-c", script)
    code, _, err = hand.run(*words)
    assert (code, err) == (1, "k: exit 0; 1 process left behind by it, ended\n")
    assert hand.run(*words) == (code, "", err), "a replay says the same"
    quiet = hand.start("q", script)
    assert (quiet["survivors"], quiet["exit"]["code"]) == (1, 0), "policy kill ends it too, and is no failure"


def test_case_34_output_that_could_not_be_kept_is_said_by_start_and_by_logs(hand: Hand) -> None:
    script = f"rm -r {hand.directory}/output; echo said"
    first = hand.start("k", script)
    assert first["out"] == "" and first["out_total"] == 5 and first["missing"].startswith("ENOENT"), first
    code, out, err = hand.run("logs", hand.directory, "k")
    assert (code, out) == (1, "") and err == f"k: of its 5 bytes of output nothing could be kept ({first['missing']})\n"
    os.mkdir(f"{hand.directory}/output", 0o700)


def test_a_space_whose_files_cannot_be_made_is_not_called_a_failure_of_the_output(hand: Hand) -> None:
    (hand.base / "file").write_text("in the way")
    words = ("space", "start", "--dir", f"{hand.base}/file/space", "--key", "k", "--epoch", "1", "--", "true")
    said = hand.refused(1, *words)
    assert said.startswith(f"recovery: {hand.base}/file/space: Not a directory; mend that") and "the output" not in said


def test_rule_S9_what_nothing_proves_dead_is_taken_for_dead_on_a_word_that_stands_in_the_ledger(hand: Hand) -> None:
    script = f"touch {hand.base}/begun; read -r < {hand.base}/gate"
    os.mkfifo(hand.base / "gate")
    words = ("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--mark", "environment", "--", "bash", "-c", script)
    starter = hand.begin(*words)
    wait_until((hand.base / "begun").exists, "the command's start")
    os.kill(hand.running()["k"]["pid"], signal.SIGKILL)
    starter.communicate(timeout=60)
    said = hand.refused(1, "space", "advance", "--dir", hand.directory, "--epoch", "2")
    assert "FenceIncomplete" in said and f"recovery space advance --dir {hand.directory} --epoch 3 --processes-dead" in said
    code, out, _ = hand.run("space", "advance", "--dir", hand.directory, "--epoch", "3", "--processes-dead")
    assert (code, out) == (0, "floor 3: 0 claimed, 0 condemned and dead\n")
    assert '"by":"person"' in Path(hand.directory, "ledger").read_text()
    assert hand.run("space", "advance", "--dir", hand.directory, "--epoch", "4")[0] == 0


def test_the_socket_of_a_shim_is_its_own(hand: Hand) -> None:
    """Two handles that start one prepared key have a shim each: the one that comes too late must not take the other's socket."""
    starter = hand.begin("space", "start", "--dir", hand.directory, "--key", "k", "--epoch", "1", "--", "sleep", "1000")
    wait_until(lambda: hand.running().get("k", {}).get("state") == "running", "the command's start")
    (name,) = os.listdir(os.path.join(hand.directory, "sockets"))
    assert name.endswith(f".{hand.running()['k']['pid']}")
    hand.ask("kill", hand.directory, "k", "--json")
    starter.communicate(timeout=60)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system read-only needs root")
def test_a_space_on_a_file_system_that_can_only_be_read_is_read(hand: Hand) -> None:
    """A snapshot, or a disk that turned read-only after an error: what ran there, and what it said, is to be had all the same."""
    hand.start("k", "echo said")
    subprocess.run(["mount", "--bind", hand.directory, hand.directory], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", hand.directory], check=True)
        assert [row["state"] for row in hand.ask("ps", hand.directory, "--all", "--json")] == ["exited"]
        assert hand.ask("space", "show", "--dir", hand.directory, "--json")["floor"] == 1
        assert hand.run("logs", hand.directory, "k")[:2] == (0, "said\n")
        assert hand.run("attach", hand.directory, "k")[0] == 0
        said = hand.refused(1, "space", "advance", "--dir", hand.directory, "--epoch", "2")
        assert "ledger: Read-only file system" in said
    finally:
        subprocess.run(["umount", hand.directory], check=True)
    assert hand.running() == {}
