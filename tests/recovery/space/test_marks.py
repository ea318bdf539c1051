"""Kill marks as values: which is chosen, what it is called, what is said where it is not to be had."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import events
from eventlog.errors import FenceIncompleteError, MisuseError
from eventlog.ports import LinuxHost, SystemClock
from eventlog.process_identity import identify, identify_self
from recovery.space.marks import KINDS, MarkSetting, choose_marks, find_cgroup_base, kill_mark, name_helper_mark, name_mark
from recovery.space.marks.choose import AUTO, explain_mark
from recovery.space.marks.uts import domain_name
from tests.helpers import wait_until
from tests.recovery.sessions import Sandbox, bash

HOST = LinuxHost()
CLOCK = SystemClock()
TELL = "from recovery.space.marks import choose_marks; import sys; print(choose_marks(sys.argv[1]).kind)"


@pytest.mark.parametrize("kind", KINDS)
def test_each_mark_can_be_forced_or_is_refused_with_the_reason(kind: str) -> None:
    why = explain_mark(kind)
    if not why:
        assert choose_marks(kind).kind == kind
        return
    with pytest.raises(MisuseError) as refused:
        choose_marks(kind)
    assert str(refused.value).startswith(f"SESSION_KILL_MARK={kind}: it is not to be had here ({why})")


def test_an_unknown_mark_is_refused_with_the_list() -> None:
    with pytest.raises(MisuseError, match="='magic' is unknown; use auto, pid-namespace, cgroup, cgroup1, uts or environment"):
        choose_marks("magic")


def test_auto_is_the_first_in_its_order_that_is_to_be_had() -> None:
    assert set(AUTO) == set(KINDS)
    assert choose_marks("auto").kind == next(kind for kind in AUTO if not explain_mark(kind))


def ask(*before: str, wanted: str) -> subprocess.CompletedProcess[str]:
    """What a driver started this way would choose."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run([*before, sys.executable, "-c", TELL, wanted], env=environment, capture_output=True, text=True, check=False)


def test_where_no_namespace_can_be_made_the_reason_is_the_kernel_s() -> None:
    """Without rights, and with user namespaces limited to none."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "capsh"))):
        pytest.skip("taking the right to make namespaces away needs root, unshare and capsh")
    limited = "echo 0 > /proc/sys/user/max_user_namespaces && exec capsh --drop=cap_sys_admin -- -c 'exec \"$@\"' - \"$@\""
    before = ("unshare", "-Ur", "sh", "-c", limited, "-")
    if ask(*before, wanted="environment").stdout != "environment\n":
        pytest.skip("user namespaces are not allowed here")
    for kind in ("pid-namespace", "uts"):
        refused = ask(*before, wanted=kind)
        assert f"SESSION_KILL_MARK={kind}: it is not to be had here (unshare: No space left on device)" in refused.stderr
    assert ask(*before, wanted="auto").stdout.strip() in ("cgroup", "cgroup1", "environment")


def test_an_ordinary_user_gets_the_strongest_that_is_allowed(sandbox: Sandbox) -> None:
    """A session of another user, begun by a program that was executed as that user: the mark is said, and holds."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming another user needs root and setpriv")
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    chosen = ask(*user, wanted="auto").stdout.strip()
    session = sandbox.session(bash('(setsid sleep 300 & echo $! > pid); ls -l /proc/self/ns/pid | sed "s/.*-> //"'))
    for path in (sandbox.base, sandbox.root):
        os.chown(path, 65534, 65534)
    environment = sandbox.environment(None, ())
    done = subprocess.run(
        [*user, sys.executable, "-m", "recovery", "run", str(session)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [event.kill_mark for event in sandbox.of_kind(events.DriverStarted)] == [chosen]
    assert (sandbox.output(1).decode().strip() != os.readlink("/proc/self/ns/pid")) == (chosen == "pid-namespace")


def test_marks_have_telling_names() -> None:
    assert name_mark(MarkSetting("environment", ""), "space", "c1-a1") == "environment:space/c1-a1"
    assert name_mark(MarkSetting("cgroup", "/base"), "space", "c1-a1") == "cgroup:/base/crashworthy.space/c1-a1"
    assert name_mark(MarkSetting("pid-namespace", "/base"), "space", "c1-a1") == "pid-namespace:/base/crashworthy.space/c1-a1"
    assert name_mark(MarkSetting("pid-namespace", ""), "space", "c1-a1") == "pid-namespace:space/c1-a1"


def test_what_a_spawner_forks_is_in_no_namespace_of_its() -> None:
    assert name_helper_mark(MarkSetting("pid-namespace", "/base"), "space", "e1-spawner") == "cgroup:/base/crashworthy.space/e1-spawner"
    assert name_helper_mark(MarkSetting("pid-namespace", ""), "space", "e1-spawner") == "process:space/e1-spawner"
    assert name_helper_mark(MarkSetting("uts", ""), "space", "e1-worker") == "process:space/e1-worker"
    for kind, base in (("cgroup", "/base"), ("cgroup1", "/base"), ("environment", "")):
        setting = MarkSetting(kind, base)  # type: ignore[arg-type]
        assert name_helper_mark(setting, "space", "e1-worker") == name_mark(setting, "space", "e1-worker")


def test_a_mark_of_a_newer_version_is_refused() -> None:
    with pytest.raises(MisuseError, match="kill mark 'magic:x' is of no kind that this version knows"):
        kill_mark("magic:x", None, HOST, CLOCK, has_command=False)


def test_a_pid_namespace_without_its_first_process_on_record_is_no_proof() -> None:
    with subprocess.Popen(["true"]) as process:
        gone = identify(process.pid, HOST)
    with pytest.raises(FenceIncompleteError, match="FenceIncomplete: the starting mark of shim .* names no first process"):
        kill_mark("pid-namespace:space/c1-a1", gone, HOST, CLOCK, has_command=True)
    kill_mark("pid-namespace:space/c1-a1", gone, HOST, CLOCK, has_command=False)


def make_namespace(name: str) -> "subprocess.Popen[bytes]":
    """A process in a UTS namespace with this domain name."""
    code = (
        "import subprocess, sys; from recovery.space.namespaces import *; unshare_private(CLONE_NEWUTS); name_domain(sys.argv[1]);"
        "print('ready', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.skipif(bool(explain_mark("uts")), reason=f"uts: {explain_mark('uts')}")
def test_a_uts_namespace_that_is_called_otherwise_is_a_stranger_s() -> None:
    """Numbers of namespaces are used again: the name decides, and a stranger in one of his own is left alone."""
    mine, stranger = make_namespace(domain_name("space/c1-a1")), make_namespace(domain_name("space/c1-a2"))
    try:
        kill_mark("uts:space/c1-a1", None, HOST, CLOCK, has_command=False)
        wait_until(lambda: mine.poll() is not None, "the death of the member")
        assert (mine.returncode, stranger.poll()) == (-signal.SIGKILL, None)
    finally:
        for process in (mine, stranger):
            process.communicate()


def test_a_kill_under_any_mark_leaves_this_process_alone() -> None:
    """It is recorded as the owner of none of them."""
    base = find_cgroup_base() or "/nowhere"
    for mark in ("environment:x/c1-a1", "uts:x/c1-a1", "process:x/c1-a1", "pid-namespace:x/c1-a1", f"cgroup:{base}/crashworthy.x/c1-a1"):
        kill_mark(mark, None, HOST, CLOCK, has_command=False)
    assert identify_self(HOST).pid == os.getpid()
