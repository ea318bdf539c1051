"""`recovery image` and `recovery restore`: killed at their steps, over calls in every state, and refused in one sentence."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3

from eventlog import events
from eventlog.errors import ScanError
from eventlog.image import root_hash
from eventlog.ports import LinuxHost
from recovery.capture import Capture
from recovery.command_image import LOOKS, look_at_rest
from recovery.opening import read_log, scan_cache_path
from recovery.workspace.observe import key_of
from recovery.workspace.scan import Scanner
from recovery.workspace.side import RESERVED_NAME
from recovery.workspace.stat_cache import Binding, load, save
from recovery.workspace.watch import Watch
from tests.crash.person import begun, restore
from tests.helpers import is_running, read_contents, wait_until
from tests.recovery.sessions import Sandbox, bash, write
from tests.recovery.workspace.support import run_with_own_mounts

WAITS = 'echo half > a; echo $$ > "$WITNESS"; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo late > a'


def seqs(sandbox: Sandbox, kind: str) -> list[int]:
    return [stored.seq for stored in sandbox.events() if stored.event.kind == kind]


def files_of(*directories: Path) -> dict[str, bytes]:
    """Every regular file but what a reader of SQLite makes (shared memory, an empty WAL): what a refusal must leave as it is. A directory
    may be a file, or missing."""
    found = [path for directory in directories for path in (directory, *directory.rglob("*"))]
    read = {str(path): path.read_bytes() for path in found if path.is_file() and not path.name.endswith("-shm")}
    return {name: content for name, content in read.items() if content or not name.endswith("-wal")}


def image(sandbox: Sandbox, *more: str, expect: int = 0) -> str:
    done = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, *more)
    assert done.code == expect, done.out + done.err
    return done.out


# Killed at a step


@pytest.mark.parametrize(("step", "recorded"), [("observed.commit.before", 0), ("observed.commit.after", 1)])
def test_an_image_killed_at_its_commit_is_whole_or_not_there(sandbox: Sandbox, step: str, recorded: int) -> None:
    begun(sandbox)
    (sandbox.root / "mine").write_text("by hand\n")
    name = f"driver@2:{step}:1"
    driver = sandbox.start("image", sandbox.state, "--workspace", sandbox.root, epoch=2, wait=(name,))
    sandbox.steps.kill(name, driver)
    driver.end()
    assert len(seqs(sandbox, "workspace_observed")) == recorded
    image(sandbox)
    assert len(seqs(sandbox, "workspace_observed")) == 1
    assert json.loads(image(sandbox, "--json"))["changed"] == 0


def worker_steps(sandbox: Sandbox, seq: int) -> list[str]:
    """Every step that the file worker passes in a restore to `seq`, recorded on a twin."""
    trace = sandbox.base / "trace"
    done = sandbox.run("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root, epoch=2, CRASHWORTHY_STEP_TRACE=str(trace))
    assert done.code == 0, done.err
    return [line.split()[0].partition(":")[2] for line in trace.read_text().splitlines() if line.startswith("worker@2:")]


@pytest.mark.parametrize("next_one", ["drive", "image", "restore"])
@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_restore_whose_worker_is_killed_is_completed_by_whoever_comes_next(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, next_one: str, place: float
) -> None:
    twin = Sandbox(tmp_path_factory.mktemp("t"))
    try:
        moves = [step for step in worker_steps(twin, begun(twin)) if ".move." in step or ".place." in step or ".rename." in step]
    finally:
        twin.close()
    moves = [step for step in moves if not step.startswith("side.")]
    step = f"worker@2:{moves[round(place * (len(moves) - 1))]}"
    seq = begun(sandbox)
    driver = sandbox.start("restore", sandbox.state, "--at", str(seq), "--workspace", sandbox.root, epoch=2, wait=(step,))
    sandbox.steps.kill(step, driver)
    assert driver.end() == 1 and "Traceback" not in driver.err
    match next_one:
        case "drive":
            sandbox.drive("--on-interrupted", "continue")
        case "image":
            image(sandbox)
        case "restore":
            restore(sandbox, seq)
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3]
    kept = [path.read_bytes() for path in sandbox.base.glob(".crashworthy-*/quarantine/*/*/[ab]")]
    assert sorted(kept) in ([b"new\n", b"two\n"], [b"new\n", b"one\n", b"two\n"])


# Looking: everything again, and until the tree rests


def test_rehash_believes_nothing_that_was_remembered(sandbox: Sandbox) -> None:
    """What is remembered is made wrong by hand, as a store that moves no time makes it wrong: only `--rehash` asks the file."""
    begun(sandbox)
    image(sandbox)
    path = sandbox.root / "a"
    path.write_text("new\n")
    cache, root = scan_cache_path(str(sandbox.state)), os.stat(sandbox.root)
    binding = Binding(LinuxHost().boot_id(), root.st_dev, root.st_ino, RESERVED_NAME, ())
    known = load(cache, binding)
    known[b""].keys[b"a"] = key_of(os.stat(path))
    save(cache, binding, known)
    assert json.loads(image(sandbox, "--json"))["changed"] == 0, "what is remembered is believed"
    assert json.loads(image(sandbox, "--rehash", "--json"))["changed"] == 1
    assert read_log(str(sandbox.state)).image[b"a"].content == blake3(b"new\n").digest()
    assert json.loads(image(sandbox, "--json"))["changed"] == 0


def test_an_image_with_a_watcher_is_that_of_a_tree_at_rest(sandbox: Sandbox) -> None:
    begun(sandbox)
    (sandbox.root / "d").mkdir()
    (sandbox.root / "d" / "mine").write_text("by hand")
    answer = json.loads(image(sandbox, "--hints", "watch", "--json"))
    assert answer["changed"] == 3, "the root's time among them"
    assert json.loads(image(sandbox, "--json"))["root"] == answer["root"]


def test_a_tree_that_never_rests_has_no_image_with_a_watcher(tmp_path: Path) -> None:
    """Real watches, real scans; the tree moves at each look, so that no pair of looks is of a tree at rest."""
    watch, scanner, looks = Watch(str(tmp_path)), Scanner(str(tmp_path)), 0

    def look(moves: int) -> Capture:
        nonlocal looks
        looks += 1
        if looks <= moves:
            (tmp_path / f"{moves}-{looks}").symlink_to("somewhere")
        scan = scanner.scan(hints=watch.drain())
        return Capture(scan, root_hash(scan.image).hex(), (), ())

    with pytest.raises(ScanError, match="did not rest during 20 looks"):
        look_at_rest(str(tmp_path), lambda: look(LOOKS + 1), watch.drain)
    looks = 0
    found = look_at_rest(str(tmp_path), lambda: look(5), watch.drain)
    assert looks == 6 and len(found.scan.image) == 1 + LOOKS + 1 + 5, "the last that moved it, and one more"


MEANINGLESS = [(["--hints", "often"], "neither full nor watch"), (["--hints", "watch", "--new"], "with --new")]


@pytest.mark.parametrize(("more", "words"), MEANINGLESS)
def test_hints_that_mean_nothing_are_refused(sandbox: Sandbox, more: list[str], words: str) -> None:
    refused = sandbox.run("image", sandbox.base / "new", "--workspace", sandbox.root, *more)
    assert refused.code == 78 and words in refused.sentence() and not (sandbox.base / "new").exists()


# Over calls in every state


def test_a_running_command_is_ended_and_its_call_interrupted(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"), bash(WAITS))
    driver = sandbox.start("run", session, epoch=1)
    wait_until(lambda: bool(sandbox.witnessed()), "the second call's command")
    driver.kill()
    restore(sandbox, seqs(sandbox, "call_settled")[0])
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    assert not is_running(int(sandbox.witnessed()[0]))
    assert sandbox.settled()[-1][2:] == ("interrupted", "restore_by_person")
    refused = sandbox.run("drive", sandbox.state)
    assert refused.code == 78 and "was undone by the restore decided at seq" in refused.sentence()


def test_an_open_call_whose_file_worker_died_is_interrupted(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"), write("b", "new\n"))
    driver = sandbox.start("run", session, epoch=1, wait=("driver@1:outcome.commit.before:2",))
    sandbox.steps.kill("driver@1:outcome.commit.before:2", driver)
    driver.end()
    restore(sandbox, 1)
    assert read_contents(sandbox.root) == {}
    assert [end[2] for end in sandbox.settled()] == ["finished", "interrupted"]
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [1]


def test_a_live_driver_elsewhere_is_fenced(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("echo one > a"), bash(WAITS))
    driver = sandbox.start("run", session, epoch=1)
    wait_until(lambda: bool(sandbox.witnessed()), "the second call's command")
    restore(sandbox, 1)
    assert driver.end() == 75
    assert read_contents(sandbox.root) == {}


def test_a_restore_goes_forward_again_and_undoes_no_call_twice(sandbox: Sandbox) -> None:
    first = begun(sandbox)
    last = seqs(sandbox, "call_settled")[-1]
    restore(sandbox, first)
    assert read_contents(sandbox.root) == {"a": b"one\n"}
    restore(sandbox, last)
    assert read_contents(sandbox.root) == {"a": b"two\n", "b": b"new\n"}
    restore(sandbox, first)
    assert [event.call for event in sandbox.of_kind(events.CallUndone)] == [2, 3]
    head = sandbox.of_kind(events.RestoreFinished)[-1].root
    assert json.loads(image(sandbox, "--json"))["root"] == head


def test_contents_that_were_compacted_away_are_refused_before_the_decision(sandbox: Sandbox) -> None:
    first = begun(sandbox, (write("a", "1" * 5000), write("a", "2" * 5000), bash("true")))
    environment = {**os.environ, **sandbox.environment(None, ())}
    command = ["eventlog", "compact", str(sandbox.state), "--keep", "1"]
    from_module = [sys.executable, "-m", *command]
    subprocess.run(from_module, env=environment, check=True, capture_output=True)
    before = len(seqs(sandbox, "recovery_decided"))
    refused = sandbox.run("restore", sandbox.state, "--at", str(first), "--workspace", sandbox.root)
    assert refused.code == 78 and "compact" in refused.sentence()
    assert len(seqs(sandbox, "recovery_decided")) == before and (sandbox.root / "a").read_text() == "2" * 5000


# Refused in one sentence, nothing modified


def not_a_log(sandbox: Sandbox) -> list[str]:
    sandbox.log.write_bytes(b"not a database " * 500)
    return [str(sandbox.state), str(sandbox.root)]


def no_state(sandbox: Sandbox) -> list[str]:
    return [str(sandbox.base / "nothing"), str(sandbox.root)]


def a_file(sandbox: Sandbox) -> list[str]:
    sandbox.root.rename(sandbox.base / "elsewhere")
    sandbox.root.write_text("a file")
    return [str(sandbox.state), str(sandbox.root)]


def another_directory(sandbox: Sandbox) -> list[str]:
    sandbox.root.rename(sandbox.base / "elsewhere")
    sandbox.root.mkdir()
    (sandbox.root / "x").touch()
    return [str(sandbox.state), str(sandbox.root)]


REFUSALS: list[tuple[Callable[[Sandbox], list[str]], str]] = [
    (not_a_log, "log.sqlite"),
    (no_state, "no log is there"),
    (a_file, "is not a directory"),
    (another_directory, "root_replaced: "),
]


@pytest.mark.parametrize("command", ["image", "restore", "restore --dry-run"])
@pytest.mark.parametrize(("spoil", "words"), REFUSALS, ids=[spoil.__name__ for spoil, _ in REFUSALS])
def test_bad_input_is_one_sentence_and_touches_no_path(
    sandbox: Sandbox, command: str, spoil: Callable[[Sandbox], list[str]], words: str
) -> None:
    begun(sandbox)
    state, workspace = spoil(sandbox)
    places = (sandbox.root, sandbox.base / "elsewhere", sandbox.base / "nothing")
    before = files_of(*places)
    verb, *more = command.split()
    at = ["--at", "1"] if verb == "restore" else []
    refused = sandbox.run(verb, state, "--workspace", workspace, *at, *more)
    assert refused.code == 78 and words in refused.sentence(), refused.err
    assert files_of(*places) == before and not (sandbox.base / "nothing").exists()


@pytest.mark.parametrize("how", ["imported", "moved"])
@pytest.mark.parametrize("verb", ["image", "restore", "quarantine list", "quarantine empty"])
def test_an_imported_or_moved_session_is_refused_by_name(sandbox: Sandbox, how: str, verb: str) -> None:
    begun(sandbox)
    environment = {**os.environ, **sandbox.environment(None, ())}
    bundle, other = str(sandbox.base / "bundle"), sandbox.base / "other"
    arguments = [["export", str(sandbox.state), "--to", bundle, *(["--move"] if how == "moved" else [])]]
    if how == "imported":
        arguments.append(["import", str(other), bundle, "--new"])
    for one in arguments:
        subprocess.run([sys.executable, "-m", "eventlog", *one], env=environment, check=True, capture_output=True)
    state = sandbox.state if how == "moved" else other
    before = files_of(state, sandbox.root)
    where = [] if verb.startswith("quarantine") else ["--workspace", str(sandbox.root)]
    refused = sandbox.run(*verb.split(), state, *where, *(["--at", "1"] if verb == "restore" else []))
    words = "lives on where its bundle was imported" if how == "moved" else f"`recovery place {other} --workspace DIR` gives it one"
    assert refused.code == 78 and words in refused.sentence(), refused.err
    assert files_of(state, sandbox.root) == before


@pytest.mark.parametrize("verb", ["image", "restore"])
def test_a_stale_epoch_exits_75(sandbox: Sandbox, verb: str) -> None:
    begun(sandbox)
    image(sandbox)
    events_before = len(sandbox.events())
    at = ["--at", "1"] if verb == "restore" else []
    refused = sandbox.run(verb, sandbox.state, "--workspace", sandbox.root, *at, epoch=1)
    assert refused.code == 75 and "epoch" in refused.sentence()
    assert len(sandbox.events()) == events_before and read_contents(sandbox.root) == {"a": b"two\n", "b": b"new\n"}


@pytest.mark.parametrize("verb", ["image", "restore"])
def test_an_unreadable_file_is_named_and_nothing_is_recorded(sandbox: Sandbox, verb: str) -> None:
    sandbox.user = 65534 if os.geteuid() == 0 else 0
    if sandbox.user:
        for path in (sandbox.base, sandbox.root):
            os.chown(path, sandbox.user, sandbox.user)
            os.chmod(path, 0o700)
    first = sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new")
    assert first.code == 0, first.err
    (sandbox.root / "closed").write_text("secret")
    os.chmod(sandbox.root / "closed", 0)
    at = ["--at", "1"] if verb == "restore" else []
    refused = sandbox.run(verb, sandbox.state, "--workspace", sandbox.root, *at)
    assert refused.code == 1 and "closed" in refused.sentence(), refused.err
    assert not seqs(sandbox, "workspace_observed") and not seqs(sandbox, "recovery_decided") and (sandbox.root / "closed").exists()


def test_rule_C4_a_mass_deletion_is_recorded_only_when_it_is_meant(sandbox: Sandbox) -> None:
    for number in range(60):
        (sandbox.root / f"f{number}").write_text(str(number))
    assert sandbox.run("image", sandbox.state, "--workspace", sandbox.root, "--new").code == 0
    for number in range(59):
        (sandbox.root / f"f{number}").unlink()
    refused = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
    words = refused.sentence()
    assert refused.code == 78 and "59 tracked paths are gone" in words and not seqs(sandbox, "workspace_observed")
    way_out = words.partition("`recovery ")[2].partition("`")[0].split()
    assert way_out[0] == "image" and way_out[-2] == "--accept-outside", words
    wrong = sandbox.run(*way_out[:-1], "0" * 64)
    assert wrong.code == 78 and not seqs(sandbox, "workspace_observed")
    assert sandbox.run(*way_out).code == 0 and len(seqs(sandbox, "workspace_observed")) == 1
    restore(sandbox, 1)
    assert len(read_contents(sandbox.root)) == 60


def test_state_inside_the_workspace_is_refused(sandbox: Sandbox) -> None:
    refused = sandbox.run("image", sandbox.root / "state", "--workspace", sandbox.root, "--new")
    assert refused.code == 78 and "lies inside the workspace" in refused.sentence() and not list(sandbox.root.iterdir())


def test_a_full_state_directory_is_one_sentence_and_changes_nothing(sandbox: Sandbox) -> None:
    def on_a_small_disk() -> None:
        sandbox.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(sandbox.state)], check=True)
        environment = {**os.environ, **sandbox.environment(None, ())}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "recovery", *arguments, "--workspace", str(sandbox.root)]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        (sandbox.root / "a").write_text("one\n")
        assert run("image", str(sandbox.state), "--new").returncode == 0
        (sandbox.root / "big").write_bytes(os.urandom(4 << 20))
        full = run("image", str(sandbox.state))
        assert full.returncode == 1 and len(full.stderr.splitlines()) == 1 and "Traceback" not in full.stderr, full.stderr
        assert sorted(path.name for path in sandbox.root.iterdir()) == ["a", "big"]
        (sandbox.root / "big").unlink()
        subprocess.run(["mount", "-o", "remount,size=32m", str(sandbox.state)], check=True)  # as a person makes room
        again = run("image", str(sandbox.state), "--json")
        assert again.returncode == 0 and json.loads(again.stdout)["changed"] == 0, again.stderr

    run_with_own_mounts(on_a_small_disk)


# R6: lost, replaced, unmounted


@pytest.mark.parametrize("gone", ["unmounted", "unmounted above", "emptied"])
def test_rule_R6_an_unmounted_root_is_told_apart_from_one_that_was_emptied(sandbox: Sandbox, gone: str) -> None:
    def with_mounts() -> None:
        mount = sandbox.root if gone != "unmounted above" else sandbox.base / "disk"
        mount.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=True)
        workspace = sandbox.root if mount == sandbox.root else mount / "work"
        workspace.mkdir(exist_ok=True)
        environment = {**os.environ, **sandbox.environment(None, ())}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "recovery", *arguments]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        (workspace / "a").write_text("one\n")
        first = run("image", str(sandbox.state), "--workspace", str(workspace), "--new")
        assert first.returncode == 0, first.stderr
        if gone == "emptied":
            (workspace / "a").unlink()
        else:
            subprocess.run(["umount", str(mount)], check=True)
        for arguments in (["image"], ["restore", "--at", "1"], ["restore", "--at", "1", "--dry-run"]):
            head = len(sandbox.events())
            done = run(arguments[0], str(sandbox.state), "--workspace", str(workspace), *arguments[1:])
            if gone == "emptied":
                assert done.returncode in (0, 2) and "mounted" not in done.stderr, done.stderr
                continue
            assert done.returncode == 78 and "root_unmounted" in done.stderr and "may not be mounted" in done.stderr, done.stderr
            assert len(done.stderr.splitlines()) == 1
            seen = {stored.event.kind for stored in sandbox.events()[head:]}
            assert seen <= {"driver_started"} and not os.path.exists(workspace / "a")

    run_with_own_mounts(with_mounts)


def test_rule_R6_an_empty_directory_on_the_same_disk_is_lost_and_not_called_unmounted(sandbox: Sandbox) -> None:
    """So it is rebuilt before the image is taken: what is empty is nobody's."""
    begun(sandbox)
    sandbox.root.rename(sandbox.base / "elsewhere")
    sandbox.root.mkdir()
    taken = sandbox.run("image", sandbox.state, "--workspace", sandbox.root)
    assert taken.code == 0 and "root_lost: workspace rebuilt" in taken.err and "mounted" not in taken.err
    assert read_contents(sandbox.root) == read_contents(sandbox.base / "elsewhere")
