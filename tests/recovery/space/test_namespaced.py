"""The namespaced space: what a command can reach in there, how its end is told, and that nothing of it outlives it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog import events
from eventlog.errors import MisuseError
from eventlog.events import Exit
from eventlog.image import root_hash
from recovery.space.bubblewrap import Bubblewrap, choose_bubblewrap, explain_bubblewrap
from recovery.space.confined import Confined, make_inside
from recovery.space.marks import choose_marks
from recovery.workspace.scan import Scanner
from tests.helpers import is_running, kill_process, read_contents, wait_until
from tests.recovery.sessions import PROJECT, Sandbox, bash, write
from tests.recovery.space.spaces import LooseSpace, open_space

REFUSAL = explain_bubblewrap(os.path.dirname(__file__), os.environ.get("PATH"))
needs_bubblewrap = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
DAEMON = "( env -i /usr/bin/setsid /bin/sh -c 'echo $0 >> here; cd /; while :; do /bin/sleep 1; done' {token} & ) &"
"""Forked twice, in a session of its own, its environment cleaned and its directory left; known by its last argument."""


def bubblewrap() -> Bubblewrap:
    made = choose_bubblewrap(["namespaced"], str(PROJECT), os.environ.get("PATH"))
    assert made is not None
    return made


@pytest.fixture
def space() -> Iterator[LooseSpace]:
    with open_space(bubblewrap=bubblewrap()) as made:
        yield made


def find_processes(token: str) -> list[int]:
    """Running processes with `token` as an argument, seen from outside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes().split(b"\0") and is_running(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def after_daemon(token: str, then: str) -> str:
    """A command that starts the daemon and waits until it has begun."""
    return f"{DAEMON.format(token=token)} until [ -e here ]; do sleep 0.01; done; {then}"


@needs_bubblewrap
def test_the_workspace_can_be_written_and_nothing_else(space: LooseSpace) -> None:
    # Opened and never written: a hole in the walls must do no harm to the machine that runs the tests.
    outside = ["/usr/x", "/var/tmp/x", "/etc/passwd", "/proc/sys/kernel/hostname", "/sys/kernel/profiling", str(PROJECT / "README.md")]
    outside = [path for path in outside if not path.startswith("/tmp/")]  # what is there is not to be seen at all
    tries = "; ".join(f"(: >> {path}) 2>/dev/null && echo {path}" for path in outside)
    remount = "mount -o remount,rw / 2>/dev/null && echo remounted"
    device = "mknod device c 1 3 2>/dev/null && echo device"
    ended = space.run(
        f"echo spoiled | tee ../x ../space/ledger >/dev/null 2>&1; echo kept > made; mkdir below; echo kept > below/made; "
        f"{tries}; {remount}; {device}; true"
    )
    assert (ended.exit, space.output(ended)[0]) == (Exit("exited", code=0), b"")
    assert not (space.base / "x").exists() and b"spoiled" not in (space.base / "space" / "ledger").read_bytes()
    assert read_contents(space.work) == {"made": b"kept\n", "below": None, "below/made": b"kept\n"}


@needs_bubblewrap
def test_pids_tmp_and_devices_are_its_own_and_the_rest_is_as_in_the_local_space(space: LooseSpace) -> None:
    ended = space.run(
        f"echo $(ls /proc | grep -c '^[0-9]*$'); [ $$ -lt 50 ] && echo low; echo x > /tmp/{space.id} && echo temporary;"
        "pwd; echo $BASE; : < /dev/tty; ls -l /proc/self/fd | wc -l; cat",
        stdin=b"given", separate=True,
    )  # fmt: skip
    out, err = space.output(ended)
    lines = out.decode().splitlines()
    assert int(lines[0]) < 10 and lines[1] == "low" and "temporary" in lines
    assert lines[-4:] == [str(space.work), str(space.base), lines[-2], "given"] and int(lines[-2]) == 5, "total, 0, 1, 2 and ls's own"
    assert b"/dev/tty: No such device or address" in err
    assert not os.path.exists(f"/tmp/{space.id}")


@needs_bubblewrap
def test_case_33_code_137_is_a_code_and_signal_9_a_signal(space: LooseSpace) -> None:
    assert space.run("exit 137").exit == Exit("exited", code=137)
    assert space.run("kill -KILL $$").exit == Exit("signaled", signal=9)
    assert space.run("kill -TERM 0").exit == Exit("signaled", signal=15), "its group is its own, and its first process not in it"


@needs_bubblewrap
@pytest.mark.parametrize(
    ("request_parts", "error"),
    [
        ({"arguments": [b"/no/such"]}, "ENOENT: No such file or directory: /no/such"),
        ({"arguments": [b"/etc"]}, "EACCES: Permission denied: /etc"),
        ({"arguments": [b"true", b"x" * (1 << 18)]}, "E2BIG: Argument list too long: true"),
        ({"directory": b"/no/where"}, "ENOENT: No such file or directory: /no/where"),
    ],
    ids=["no such program", "not executable", "too long", "no such directory"],
)
def test_what_cannot_be_executed_is_told_as_in_the_local_space(space: LooseSpace, request_parts: dict[str, object], error: str) -> None:
    assert space.run("true", **request_parts).exit == Exit("start_failed", error=error)
    with open_space() as local:
        assert local.run("true", **request_parts).exit == Exit("start_failed", error=error)


@needs_bubblewrap
def test_an_argument_list_that_the_local_space_takes_is_taken(space: LooseSpace) -> None:
    """The request goes in by a descriptor: bubblewrap's own arguments take nothing of the limit."""
    arguments = [b"true", *([b"x" * 100_000] * 15)]
    assert space.run("", arguments=arguments).exit == Exit("exited", code=0)


@needs_bubblewrap
def test_a_time_limit_asks_with_term_first_and_the_answer_is_the_command_s(space: LooseSpace) -> None:
    ended = space.run("trap 'echo asked > asked; exit 7' TERM; while :; do sleep 0.1; done", timeout_secs=3.0)
    assert ended.exit == Exit("timed_out", code=7) and (space.work / "asked").read_text() == "asked\n"


@needs_bubblewrap
def test_a_time_limit_kills_who_ignores_term_and_all_that_it_started(space: LooseSpace) -> None:
    token = f"{space.id}-ignoring"
    run = f"trap '' TERM; {DAEMON.format(token=token)} while :; do sleep 0.1; done"
    ended = space.run(run, timeout_secs=3.0)
    assert ended.exit == Exit("timed_out", signal=signal.SIGKILL) and find_processes(token) == []


@needs_bubblewrap
def test_what_a_command_leaves_behind_ends_with_it_and_is_counted(space: LooseSpace) -> None:
    token = f"{space.id}-daemon"
    ended = space.run(after_daemon(token, "echo done"))
    assert find_processes(token) == []
    assert (ended.exit, space.output(ended)[0]) == (Exit("exited", code=0), b"done\n") and ended.survivors >= 1


@needs_bubblewrap
def test_everything_in_there_dies_with_the_shim() -> None:
    """Nobody sweeps here, and the mark in force kills nothing by itself: the first process of the namespace ends with its shim, and the
    kernel ends the rest."""
    with open_space("environment", bubblewrap()) as space:
        token = f"{space.id}-orphan"
        shim = space.start(space.request(f"{DAEMON.format(token=token)} sleep 300"))
        wait_until(lambda: find_processes(token), "the daemon")
        kill_process(shim.pid)
        wait_until(lambda: not find_processes(token), "the end of the daemon")


@needs_bubblewrap
def test_a_kill_of_the_namespace_s_first_process_is_a_kill_of_the_command(space: LooseSpace) -> None:
    request = space.request("echo > begun; sleep 300")
    shim = space.start(request)
    wait_until((space.work / "begun").exists, "the command's start")
    outer = int(Path(f"/proc/{shim.pid}/task/{shim.pid}/children").read_text().split()[0])
    kill_process(outer)
    assert space.space.wait_command(request.key, shim).exit == Exit("signaled", signal=9)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'bwrap: No space left' >&2; exit 1", "bubblewrap ended (exit 1) before it started the command: bwrap: No space left"),
        ("kill -KILL $$", "bubblewrap ended (signal 9) before it started the command: it said nothing"),
        ("exit 0", "bubblewrap ended (exit 0) before it started the command: it said nothing"),
    ],
    ids=["refusal", "killed", "nothing"],
)
def test_bubblewrap_s_own_failure_is_a_failed_start_and_no_exit_of_the_command(tmp_path: Path, script: str, told: str) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with open_space(bubblewrap=Bubblewrap(str(program), "")) as space:
        ended = space.run("echo ran")
        assert (ended.exit, space.output(ended)[0]) == (Exit("start_failed", error=told), b"")
        program.unlink()
        gone = space.run("echo ran")
        assert gone.exit == Exit("start_failed", error=f"ENOENT: No such file or directory: {program}")


def test_what_was_told_is_heard_although_a_signal_came_too_late() -> None:
    """Linux says once that the other end closed with something unread, and gives what it sent after that."""
    with open_space() as space:
        opened: list[int] = []
        inside = make_inside([], space.request("true"), {}, opened)
    os.write(inside.control_end, b"begun")
    os.write(inside.control_end, b"ended 256 3")
    child = subprocess.Popen(["true"])
    os.set_blocking(inside.control, False)
    os.write(inside.control, bytes([signal.SIGTERM]))
    for descriptor in inside.given:
        os.close(descriptor)
    held = Confined(child.pid, os.pidfd_open(child.pid), -1, None, inside.control, inside.complaints, ("true", "/"))
    assert held.end(timed_out=True) == (Exit("timed_out", code=1), 3)


def test_a_confined_request_never_runs_where_nothing_confines() -> None:
    with open_space() as space, pytest.raises(MisuseError, match="SESSION_SPACE=namespaced"):
        space.start(space.request("touch ran", is_confined=True))


@needs_bubblewrap
@pytest.mark.parametrize("mark", ("pid-namespace", "cgroup", "cgroup1", "uts", "environment"))
def test_every_kill_mark_holds_a_confined_command(mark: str) -> None:
    try:
        choose_marks(mark)
    except MisuseError as error:
        pytest.skip(str(error))
    with open_space(mark, bubblewrap()) as space:
        token = f"{space.id}-marked"
        ended = space.run(after_daemon(token, "exit 3"))
        assert ended.exit == Exit("exited", code=3) and ended.survivors >= 1 and find_processes(token) == []


def settle_and_compare(sandbox: Sandbox) -> None:
    """The session has finished, and its workspace is the head image of its log."""
    finished = sandbox.of_kind(events.SessionFinished)
    assert len(finished) == 1 and finished[0].root == root_hash(Scanner(str(sandbox.root)).scan().image).hex()


@needs_bubblewrap
def test_a_command_outlives_its_driver_and_is_claimed_by_the_next(sandbox: Sandbox) -> None:
    run = "echo x > ../outside; echo $$ > pid; until [ -e gate ]; do sleep 0.01; done; rm gate; echo kept"
    session = sandbox.session(write("first", "1\n"), bash(run, timeout_secs=200.0), bash("cat pid > second; exit 3"), space="namespaced")
    driver = sandbox.start("run", session, epoch=1)
    wait_until((sandbox.root / "pid").exists, "the command's start")
    driver.kill()
    second = sandbox.start("drive", sandbox.state, epoch=2)
    wait_until(lambda: sandbox.labels() == ["reattach"], "the decision to reattach")
    (sandbox.root / "gate").touch()
    assert second.end() == 0, second.err
    assert [ended for _, _, ended, _ in sandbox.settled()] == ["finished"] * 3
    assert int((sandbox.root / "pid").read_text()) < 50 and not (sandbox.base / "outside").exists()
    assert sandbox.output(2) == b"kept\n" and (sandbox.root / "second").read_text() == (sandbox.root / "pid").read_text()
    settle_and_compare(sandbox)


@needs_bubblewrap
def test_a_condemned_confined_command_dies_and_is_undone(sandbox: Sandbox) -> None:
    token = f"{sandbox.base.name}-condemned"
    run = f"echo spoiled > first; {after_daemon(token, 'sleep 300')}"
    session = sandbox.session(write("first", "1\n"), bash(run), space="namespaced")
    driver = sandbox.start("run", session, epoch=1)
    wait_until((sandbox.root / "here").exists, "the daemon")
    driver.kill()
    for name in (sandbox.state / "space" / "sockets").iterdir():
        name.unlink()  # the shim does not answer: nothing is claimed
    second = sandbox.run("drive", "--on-interrupted", "continue", sandbox.state)
    assert second.code == 0, second.err
    assert find_processes(token) == [] and read_contents(sandbox.root) == {"first": b"1\n"}
    settle_and_compare(sandbox)


@needs_bubblewrap
def test_the_environment_beats_the_session_file(sandbox: Sandbox) -> None:
    session = sandbox.session(bash('echo x > "$WITNESS"; echo x > here'))
    assert sandbox.run("run", session, SESSION_SPACE="namespaced").code == 0
    assert read_contents(sandbox.root) == {"here": b"x\n"} and sandbox.witnessed() == []


def test_a_call_s_own_space_beats_the_session_s(sandbox: Sandbox) -> None:
    session = sandbox.session(bash('echo x > "$WITNESS"', space="local"), space="namespaced")
    assert sandbox.run("run", session, PATH="/nowhere:" + os.environ["PATH"]).code == 0
    assert sandbox.witnessed() == ["x"]


@needs_bubblewrap
def test_an_ordinary_user_s_commands_are_confined_too(sandbox: Sandbox) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming another user needs root and setpriv")
    session = sandbox.session(bash("id -u; kill -KILL $$"), bash(": > /var/tmp/x || echo $$ > pid"), space="namespaced")
    for path in (sandbox.base, sandbox.root):
        os.chown(path, 65534, 65534)
    done = subprocess.run(
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-m", "recovery", "run", str(session)],
        env=sandbox.environment(None, ()), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "is not to be had here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert sandbox.output(1) == b"65534\n" and int((sandbox.root / "pid").read_text()) < 50
    assert [event.exit for event in sandbox.of_kind(events.CallSettled)] == [Exit("signaled", signal=9), Exit("exited", code=0)]
    settle_and_compare(sandbox)


@needs_bubblewrap
def test_a_space_by_hand_confines_to_the_directory_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    begun = [sys.executable, "-m", "recovery", "space", "start", "--dir", str(tmp_path / "space"), "--key", "k", "--epoch", "1"]
    begun += ["--where", str(tmp_path / "work"), "--json"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "SESSION_SPACE": "local"}

    def start(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = ["--", "bash", "-c", "echo x > ../outside; echo x > inside; echo $$"]
        return subprocess.run([*begun, *words, *command], env=environment | more, capture_output=True, text=True, check=False)

    made = start("--space", "namespaced")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["how"], told["exit"]["code"]) == ("started", 0) and int(told["out"]) < 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["space", "work"] and (tmp_path / "work" / "inside").exists()
    assert json.loads(start(SESSION_SPACE="namespaced").stdout)["how"] == "replayed"
    other = start("--space", "local")
    assert other.returncode == 78 and "another" in other.stderr, "where it runs is of what the key stands for"
    assert start("--space", "jail").stderr.endswith("use local or namespaced\n")


def refused(sandbox: Sandbox, path: str) -> str:
    """What `run` says without anything having been made."""
    driver = sandbox.run("run", sandbox.session(bash("touch ran"), space="namespaced"), PATH=path)
    assert driver.code == 78, driver.err
    assert not sandbox.state.exists() and not sandbox.holders.exists() and read_contents(sandbox.root) == {}
    return driver.sentence()


def test_where_bubblewrap_is_missing_the_package_is_named_before_anything_is_made(sandbox: Sandbox) -> None:
    assert "install the package bubblewrap (on Debian: apt-get install bubblewrap)" in refused(sandbox, str(sandbox.base))


def test_where_bubblewrap_is_not_allowed_its_own_words_are_told(sandbox: Sandbox) -> None:
    program = sandbox.base / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    said = refused(sandbox, str(program.parent))
    assert "(bwrap: No permissions to create new namespace); allow user namespaces" in said


@needs_bubblewrap
def test_where_no_namespace_can_be_made_the_real_bubblewrap_is_refused(sandbox: Sandbox) -> None:
    """Without rights, and with user namespaces limited to none."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "capsh"))):
        pytest.skip("taking the right to make namespaces away needs root, unshare and capsh")
    limited = "echo 0 > /proc/sys/user/max_user_namespaces && exec capsh --drop=cap_sys_admin -- -c 'exec \"$@\"' - \"$@\""
    before = ["unshare", "-Ur", "sh", "-c", limited, "-"]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    session = sandbox.session(bash("touch ran"), space="namespaced")
    made = subprocess.run(
        [*before, sys.executable, "-m", "recovery", "run", str(session)],
        env=sandbox.environment(None, ()), capture_output=True, text=True, check=False, cwd=sandbox.base,
    )  # fmt: skip
    assert (made.returncode, made.stderr.count("\n")) == (78, 1) and "not to be had here (bwrap: " in made.stderr, made.stderr
    assert not sandbox.state.exists()


@pytest.mark.parametrize(("place", "says"), [("session", "session.toml: unknown space 'jail'"), ("call", "call 1: unknown space 'jail'")])
def test_an_unknown_space_is_refused_by_name(sandbox: Sandbox, place: str, says: str) -> None:
    jail = {"space": "jail"}
    session = sandbox.session(bash("true", **jail)) if place == "call" else sandbox.session(bash("true"), **jail)
    driver = sandbox.run("run", session)
    assert driver.code == 78 and f"{says}; use local or namespaced" in driver.sentence()


def test_an_unknown_space_in_the_environment_is_refused_by_name(sandbox: Sandbox) -> None:
    driver = sandbox.run("run", sandbox.session(bash("true")), SESSION_SPACE="jail")
    assert driver.code == 78 and "SESSION_SPACE: unknown space 'jail'; use local or namespaced" in driver.sentence()
    assert not sandbox.state.exists()


@pytest.mark.parametrize("environment", ({}, {"SESSION_LEFT_BEHIND": "keep"}), ids=["call", "environment"])
def test_rule_S11_nothing_can_be_kept(sandbox: Sandbox, environment: dict[str, str]) -> None:
    call = bash("true") if environment else bash("true", left_behind="keep")
    driver = sandbox.run("run", sandbox.session(call, space="namespaced"), **environment)
    assert driver.code == 78 and "left_behind = keep: in the namespaced space everything ends" in driver.sentence()
    assert not sandbox.state.exists()


def test_the_root_of_all_is_no_workspace() -> None:
    with pytest.raises(MisuseError, match="/ cannot be one"):
        choose_bubblewrap(["namespaced"], "/", os.environ.get("PATH"))


@needs_bubblewrap
def test_a_person_may_let_commands_write_more_but_never_the_log(sandbox: Sandbox) -> None:
    cache, other = sandbox.base / "cache", sandbox.base / "other"
    cache.mkdir()
    other.mkdir()
    script = f"echo kept > {cache}/f; echo lost 2>/dev/null > {other}/f; true"
    writable = {"SESSION_SPACE": "namespaced", "SESSION_SPACE_WRITABLE": str(cache)}
    assert sandbox.run("run", sandbox.session(bash(script)), **writable).code == 0
    assert (cache / "f").read_text() == "kept\n" and not (other / "f").exists()
    for path, why in (
        (str(sandbox.state), "contain each other"), (str(sandbox.base), "contain each other"),
        ("relative", "is not the absolute path"), (str(sandbox.base / "none"), "is not the absolute path"),
    ):  # fmt: skip
        refused = sandbox.run("run", sandbox.session(bash("true"), name="next"), **{**writable, "SESSION_SPACE_WRITABLE": path})
        assert refused.code == 78 and why in refused.sentence()
