"""Every bad input of issue 2: one sentence that names the thing and the next step, the right exit code, nothing modified."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventlog.preflight import filesystem_of, is_refused
from tests.helpers import read_tree, wait_until
from tests.recovery.sessions import PROJECT, Driver, Sandbox, bash

NFS = "36 35 98:0 / /mnt/shared rw,noatime - nfs4 server:/export rw"
DISK = "25 0 254:0 / / rw - ext4 /dev/vda rw"


def refuse(sandbox: Sandbox, *arguments: str | Path, code: int = 78, says: str, **environment: Any) -> Driver:
    """Run a command that must be refused in one sentence, and compare everything before and after."""
    outside = {name: node for name, node in read_tree(sandbox.base).items() if is_kept(name)}
    driver = sandbox.run(*arguments, **environment)
    assert driver.code == code, driver.err
    assert says in driver.sentence()
    assert {name: node for name, node in read_tree(sandbox.base).items() if is_kept(name)} == outside
    return driver


def is_kept(name: str) -> bool:
    """What a refusal must leave alone: all but the base's own time, the test's output files, the registry's directory and lock, and the
    index that SQLite makes of a killed log when it is first read."""
    return not name.endswith("-shm") and name not in (".", "holders", "holders/lock") and not name.startswith(("out-", "err-", "status-"))


def interrupt_session(sandbox: Sandbox, **settings: str) -> Path:
    """A session whose driver was lost in its first call."""
    session = sandbox.session(bash("kill -9 $PPID"), **settings)
    assert sandbox.run("run", session).code == 1
    return session


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "not valid TOML"),
        ('name = "a"\nstate = "state"\n', "workspace is missing or not a string"),
        ('name = "a"\nworkspace = "work"\nstate = "state"\n', "no [[call]] found"),
        ('name = "a/b"\nworkspace = "work"\nstate = "state"\n', "must be 1 to 64 letters"),
    ],
)
def test_a_malformed_session_file_is_refused(sandbox: Sandbox, text: str, says: str) -> None:
    (sandbox.base / "bad.toml").write_text(text)
    refuse(sandbox, "run", "bad.toml", says=says)


def test_a_session_file_that_is_not_there_is_refused(sandbox: Sandbox) -> None:
    refuse(sandbox, "run", "missing.toml", says="missing.toml: no such file")


def test_bad_usage_is_refused(sandbox: Sandbox) -> None:
    refuse(sandbox, "run", says="(`recovery run --help` shows what there is)")
    refuse(sandbox, "space", "start", says="(`recovery space start --help` shows what there is)")
    refuse(sandbox, "fly", says="No such command")
    refuse(sandbox, "run", sandbox.session(bash("true")), "--on-interrupted", "maybe", says="unknown on_interrupted 'maybe'")


def test_bad_settings_are_refused(sandbox: Sandbox) -> None:
    session = sandbox.session(bash("true"))
    refuse(sandbox, "run", session, says="SESSION_EPOCH='none' is not a number from 1 to 9007199253692415", SESSION_EPOCH="none")
    refuse(sandbox, "run", session, says="SESSION_HEARTBEAT_SECS='-1' is not a number", SESSION_HEARTBEAT_SECS="-1")
    refuse(sandbox, "run", session, says="SESSION_KILL_MARK='magic' is unknown; use auto, pid-namespace, cgroup", SESSION_KILL_MARK="magic")


def test_a_directory_that_is_no_state_directory_is_refused(sandbox: Sandbox) -> None:
    for command in ("drive", "plan"):
        refuse(sandbox, command, sandbox.root, says="is not the state directory of a session; start one with `recovery run")


def test_a_state_directory_that_is_a_file_is_refused(sandbox: Sandbox) -> None:
    sandbox.state.write_text("mine")
    refuse(sandbox, "run", sandbox.session(bash("true")), says="is not a directory; name another in the session file")


def test_the_missing_workspace_of_a_new_session_is_refused(sandbox: Sandbox) -> None:
    sandbox.root.rmdir()
    refuse(sandbox, "run", sandbox.session(bash("true")), says="work is not a directory; create it, or correct `workspace`")
    assert not sandbox.state.exists() and not list(sandbox.holders.glob("*.json"))


def test_a_file_as_workspace_is_refused(sandbox: Sandbox) -> None:
    sandbox.root.rmdir()
    sandbox.root.write_text("a file")
    refuse(sandbox, "run", sandbox.session(bash("true")), says="work is not a directory; create it, or correct `workspace`")


@pytest.mark.parametrize("through_link", [False, True])
def test_rule_S1_a_state_directory_inside_the_workspace_is_refused(sandbox: Sandbox, through_link: bool) -> None:
    """A session would find its own log in its image. Links are resolved."""
    inner = sandbox.root / "state"
    if through_link:
        (sandbox.base / "elsewhere").symlink_to(sandbox.root)
        inner = sandbox.base / "elsewhere" / "state"
    session = sandbox.session(bash("true"), state=str(inner))
    refuse(sandbox, "run", session, says=f"the state directory {sandbox.root}/state lies inside the workspace {sandbox.root}; move one")


@pytest.mark.parametrize("through_link", [False, True])
def test_rule_S1_a_workspace_inside_the_state_directory_is_refused(sandbox: Sandbox, through_link: bool) -> None:
    inner = sandbox.state / "work"
    inner.mkdir(parents=True)
    named = inner
    if through_link:
        named = sandbox.base / "link"
        named.symlink_to(inner)
    session = sandbox.session(bash("true"), workspace=str(named))
    refuse(sandbox, "run", session, says=f"the workspace {inner} lies inside the state directory {sandbox.state}; move one of them out")


def test_rule_S1_the_workspace_as_its_own_state_directory_is_refused(sandbox: Sandbox) -> None:
    refuse(sandbox, "run", sandbox.session(bash("true"), state=str(sandbox.root)), says="lies inside the workspace")


@pytest.mark.parametrize("where", ["same", "symlink", "below", "above"])
def test_rule_S1_a_second_session_on_a_held_root_is_refused_by_name(sandbox: Sandbox, where: str) -> None:
    """Equal, ancestor and descendant roots, links resolved: two sessions would each take the other's changes for outside changes."""
    held = sandbox.root / "project"
    (held / "sub").mkdir(parents=True)
    interrupt_session(sandbox, workspace=str(held))
    (sandbox.base / "link").symlink_to(held)
    root = {"same": held, "symlink": sandbox.base / "link", "below": held / "sub", "above": sandbox.root}[where]
    second = sandbox.session(bash("true"), file="second.toml", name="second", workspace=str(root), state=str(sandbox.base / "state-2"))
    refused = refuse(sandbox, "run", second, says="is held by session:nightly")
    assert f"or free the workspace of it with `recovery release {sandbox.state}`" in refused.sentence()


def test_rule_S1_a_finished_session_holds_nothing(sandbox: Sandbox) -> None:
    assert sandbox.run("run", sandbox.session(bash("echo one > a"))).code == 0
    second = sandbox.session(bash("echo two > b"), file="second.toml", name="second", state=str(sandbox.base / "state-2"))
    assert sandbox.run("run", second).code == 0


def damage_page(sandbox: Sandbox) -> None:
    with contextlib.closing(sqlite3.connect(sandbox.log)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(sandbox.log.read_bytes())
    at = data.index(b"kill -9 $PPID")
    data[at] ^= 1
    sandbox.log.write_bytes(data)


def damage_header(sandbox: Sandbox) -> None:
    sandbox.log.write_bytes(b"not a database at all" * 1000)


def lower_floor(sandbox: Sandbox) -> None:
    """A flipped bit that lowers the fence in silence (L3)."""
    # Closed here and now: a connection that is collected later removes the side files under the test.
    with contextlib.closing(sqlite3.connect(sandbox.log)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE stream SET floor = 0")


@pytest.mark.parametrize("damage", [damage_page, damage_header, lower_floor])
@pytest.mark.parametrize("command", ["run", "drive", "plan"])
def test_a_corrupt_log_is_refused_by_name(sandbox: Sandbox, damage: Callable[[Sandbox], None], command: str) -> None:
    """I9: damage is an error that names the log and the next command; nothing is written, no workspace path is touched."""
    session = interrupt_session(sandbox)
    damage(sandbox)
    kept = {name: node[3] for name, node in read_tree(sandbox.state).items() if not name.endswith(("-shm", "-wal"))}
    tree = read_tree(sandbox.root)
    refused = sandbox.run(command, session if command == "run" else sandbox.state)
    assert refused.code == 78, refused.err
    assert "log.sqlite" in refused.sentence()
    assert {name: node[3] for name, node in read_tree(sandbox.state).items() if not name.endswith(("-shm", "-wal"))} == kept
    assert read_tree(sandbox.root) == tree


def test_the_missing_root_of_a_session_is_rebuilt_by_its_session_file_too(sandbox: Sandbox) -> None:
    """D3: a person is not told to create it."""
    session = interrupt_session(sandbox)
    sandbox.root.rename(sandbox.base / "moved")
    again = sandbox.run("run", session)
    assert again.code == 78 and "root_lost: workspace rebuilt" in again.err, again.err
    assert sandbox.root.is_dir() and sandbox.settled() == [(1, 1, "interrupted", "interrupt_restored")]


def test_another_directory_as_root_ends_with_its_label(sandbox: Sandbox) -> None:
    interrupt_session(sandbox)
    sandbox.root.rename(sandbox.base / "moved")
    sandbox.root.mkdir()
    (sandbox.root / "precious").write_text("not the session's")
    before = read_tree(sandbox.root)
    refused = sandbox.run("drive", sandbox.state)
    assert (refused.code, refused.sentence().split(":")[1].strip()) == (78, "root_replaced")
    assert read_tree(sandbox.root) == before


def test_a_root_replaced_by_a_command_is_never_adopted(sandbox: Sandbox) -> None:
    """D3: the call stays open, exit 78 by name, and the directory in its place is left alone."""
    run = f"cd /; mv {sandbox.root} {sandbox.base}/moved; mkdir {sandbox.root}; echo x > {sandbox.root}/x"
    refused = sandbox.run("run", sandbox.session(bash(run)))
    assert refused.code == 78
    assert "root_replaced: " in refused.sentence()
    assert not sandbox.settled() and (sandbox.root / "x").read_text() == "x\n"


def mount_command(kind: str, place: Path, then: str) -> list[str]:
    """Run `then` where a file system of its own is mounted at `place`, seen by nobody else."""
    return ["unshare", "-m", "sh", "-c", f"mount --make-rprivate / && mount -t {kind} none '{place}' {then}"]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@needs_root
@pytest.mark.parametrize("exists", [False, True], ids=["new session", "existing session"])
def test_a_log_on_a_read_only_mount_is_refused(sandbox: Sandbox, exists: bool) -> None:
    """One sentence, exit 78, nothing modified: neither there nor in the workspace."""
    session = interrupt_session(sandbox) if exists else sandbox.session(bash("echo one > a"))
    sandbox.state.mkdir(exist_ok=True)
    shutil.copytree(sandbox.state, sandbox.base / "copy", ignore=shutil.ignore_patterns("sockets"))
    before = read_tree(sandbox.root)
    for arguments in [f"run {session}", f"drive {sandbox.state}"][: 2 if exists else 1]:
        filled = f"cp -a {sandbox.base}/copy/. {sandbox.state} && mount -o remount,ro none {sandbox.state}"
        then = f"&& {filled} && exec $PYTHON -m recovery {arguments}"
        done = run_mounted(sandbox, mount_command("tmpfs", sandbox.state, then))
        assert (done.returncode, done.stdout) == (78, ""), done.stderr
        assert len(done.stderr.splitlines()) == 1 and "state" in done.stderr, done.stderr
        assert "read-only" in done.stderr or "cannot be opened here" in done.stderr
    assert read_tree(sandbox.root) == before
    assert bool(list(sandbox.holders.glob("*.json"))) == exists


@needs_root
def test_a_new_state_directory_on_a_read_only_mount_is_refused(sandbox: Sandbox) -> None:
    place = sandbox.base / "place"
    place.mkdir()
    session = sandbox.session(bash("echo one > a"), state=str(place / "deep" / "state"))
    done = run_mounted(sandbox, mount_command("tmpfs", place, f"-o ro && exec $PYTHON -m recovery run {session}"))
    assert done.returncode == 78, done.stderr
    assert f"{place} is read-only here; name a writable state directory" in done.stderr
    assert not list(sandbox.holders.glob("*.json")) and not list(sandbox.root.iterdir())


def run_mounted(sandbox: Sandbox, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = sandbox.environment(None, ()) | {"PYTHON": sys.executable}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if "unshare failed" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    return done


def test_a_network_file_system_is_told_by_its_longest_mount_point() -> None:
    """Pure: the text of /proc/self/mountinfo decides, with its escapes, and a path that only begins alike is not inside."""
    table = "\n".join(
        [DISK, NFS, r"40 25 0:50 / /people/me/my\040cloud rw - fuse.sshfs host: rw", "41 36 0:51 / /mnt/shared/local rw - xfs /dev/vdb rw"]
    )
    assert filesystem_of("/mnt/shared/team/state", table) == "nfs4"
    assert filesystem_of("/mnt/shared", table) == "nfs4"
    assert filesystem_of("/mnt/shared2/state", table) == "ext4"
    assert filesystem_of("/mnt/shared/local/state", table) == "xfs"
    assert filesystem_of("/people/me/my cloud/state", table) == "fuse.sshfs"
    assert [kind for kind in ("nfs4", "fuse.sshfs", "fuse", "cifs", "9p", "ext4", "tmpfs", "xfs", "btrfs") if is_refused(kind)] == [
        "nfs4", "fuse.sshfs", "fuse", "cifs", "9p",
    ]  # fmt: skip


@needs_root
def test_a_log_on_a_fuse_file_system_is_refused(sandbox: Sandbox) -> None:
    """A real FUSE mount, whose daemon never answers: the file system's type alone must do. SESSION_ALLOW... is named as the way out."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse here")
    place = sandbox.base / "fuse"
    place.mkdir()
    session = sandbox.session(bash("echo one > a"), state=str(place))
    code = (
        "import ctypes, os, subprocess, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.unshare(0x20000) == 0 or sys.exit(77)\n"
        "subprocess.run(['mount', '--make-rprivate', '/'], check=True)\n"
        "fd = os.open('/dev/fuse', os.O_RDWR)\n"
        "place, session = sys.argv[1].encode(), sys.argv[2]\n"
        "options = b'fd=%d,rootmode=40755,user_id=0,group_id=0' % fd\n"
        "libc.mount(b'cloud', place, b'fuse', 0, options) == 0 or sys.exit(77)\n"
        "child = subprocess.Popen([sys.executable, sys.argv[3], 'run', session])\n"
        "sys.exit(answer(fd, child))\n"
    )
    script = sandbox.base / "mount.py"
    script.write_text(FUSE_DAEMON + code)
    command = [sys.executable, str(script), str(place), str(session), str(PROJECT / "recovery" / "__main__.py")]
    done = run_mounted(sandbox, command)
    if done.returncode == 77:
        pytest.skip("a FUSE file system cannot be mounted here")
    assert done.returncode == 78, done.stderr
    assert "is on a fuse file system, where SQLite's WAL corrupts; put the state directory on a local disk" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(sandbox.holders.glob("*.json")) and not list(sandbox.root.iterdir())


# The smallest FUSE server: an empty root directory; everything else is ENOSYS or ENOENT.
FUSE_DAEMON = """
import os, select, struct, sys
def answer(fd, child):
    while child.poll() is None:
        if not select.select([fd], [], [], 0.05)[0]:
            continue
        request = os.read(fd, 1 << 20)
        length, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        error, body = -38, b""
        if opcode == 26:  # INIT
            error, body = 0, struct.pack("<IIIIHHI", 7, 31, 0, 0, 0, 0, 4096) + bytes(40)
        elif opcode == 3:  # GETATTR of the root
            attributes = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
            error, body = 0, struct.pack("<QII", 1, 0, 0) + attributes
        elif opcode == 17:  # STATFS
            error, body = 0, struct.pack("<QQQQQIIII", 1, 1, 1, 1, 1, 4096, 255, 4096, 0) + bytes(24)
        elif opcode in (27, 28):  # OPENDIR, READDIR: no entries
            error, body = 0, (struct.pack("<QII", 0, 0, 0) if opcode == 27 else b"")
        elif opcode in (29, 14, 18, 25):  # RELEASEDIR and the like
            error = 0
        elif opcode == 1:  # LOOKUP
            error = -2
        elif opcode in (2, 42, 36):  # FORGET, BATCH_FORGET, INTERRUPT: no answer
            continue
        os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    return child.returncode
"""


def test_two_sessions_begun_at_once_on_one_root_give_one_holder(sandbox: Sandbox) -> None:
    """Both claims go through one lock: exactly one session begins, the other is refused by the name of the first."""
    names = ("left", "right")
    run = 'until [ -e "$GATE" ]; do sleep 0.01; done'
    files = [sandbox.session(bash(run), file=f"{name}.toml", name=name, state=str(sandbox.base / f"state-{name}")) for name in names]
    drivers = [sandbox.start("run", file) for file in files]
    wait_until(lambda: any(driver.code is not None for driver in drivers), "the end of one driver")
    sandbox.open_gate()
    assert sorted(driver.end() for driver in drivers) == [0, 78]
    winner, loser = sorted(drivers, key=lambda driver: driver.end())
    assert f"is held by session:{names[drivers.index(winner)]}" in loser.sentence()
