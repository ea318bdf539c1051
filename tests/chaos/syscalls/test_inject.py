"""The command that kills in a system call, and what counts as proof that it did."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.stage import wait_until
from chaos.syscalls.calls import KINDS, Aim, Moment, Target, format_aim, parse_aim
from chaos.syscalls.inject import TraceError, build_attaching, build_command, find_doubt, parse_trace
from chaos.syscalls.traced import Attached, TracedRun, run_traced
from tests.chaos.syscalls.support import needs_strace

TARGET = Target("pwrite64", 2)
AFTER = Target("pwrite64", 2, "after")
SOUND = """\
clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7fa09f5fae50) = 10451
pwrite64(6, ""..., 512, 0)              = 512
--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=10451, si_uid=0, si_status=0, si_utime=0, si_stime=0} ---
fdatasync(6)                            = 0
pwrite64(6, ""..., 12, 0)               = ?
+++ killed by SIGKILL +++
"""


HELD = SOUND[: SOUND.index("+++")].replace("= ?", "= 12 (DELAYED)")


def doubt(text: str, code: int | None = -9, target: Target = TARGET) -> str:
    return find_doubt(parse_trace(text), target, code)


def test_a_trace_is_read_with_an_ordinal_for_each_call() -> None:
    trace = parse_trace(SOUND)
    assert [(one.name, one.count, one.finished) for one in trace.passes] == [
        ("clone", 1, True),
        ("pwrite64", 1, True),
        ("fdatasync", 1, True),
        ("pwrite64", 2, False),
    ]
    assert trace.end == "killed by SIGKILL"


def test_a_kill_in_the_call_it_was_aimed_at_is_proved() -> None:
    assert doubt(SOUND) == ""


def test_a_call_that_was_not_even_printed_whole_is_as_good() -> None:
    assert doubt(SOUND.replace('(6, ""..., 12, 0)               = ?', "(6 <unfinished ...>) = ?")) == ""
    assert doubt(SOUND.replace("= ?\n", "= ? <unavailable>\n")) == ""


def test_a_process_that_was_held_after_the_call_and_died_of_nine_was_killed_after_it() -> None:
    assert doubt(HELD, target=AFTER) == ""
    assert doubt(HELD, code=None, target=AFTER) == "nobody read the wait status of the process"
    assert doubt(HELD, code=0, target=AFTER) == "the wait status is 0, not the one of signal 9"
    assert "the process died in its pwrite64 2, not in its pwrite64 3" in doubt(HELD, target=Target("pwrite64", 3, "after"))
    assert "the trace ends with 'killed by SIGKILL'" in doubt(SOUND, target=AFTER)
    assert "the trace ends with '(DELAYED)'" in doubt(HELD)


def test_of_a_helper_the_tracer_has_read_the_status() -> None:
    assert doubt(SOUND, code=None) == ""
    assert "the trace ends with 'exited with 0'" in doubt(SOUND.replace("killed by SIGKILL", "exited with 0"), code=None)


def test_the_files_of_a_call_are_named_without_their_directories() -> None:
    lines = [
        'pwrite64(6</a/b/log.sqlite-wal>, ""..., 12, 0) = 12',
        'rename("/a/one.new", "/b/one") = 0',
        'openat(7</a>, "made", O_WRONLY|O_CREAT, 0600) = 8</a/made>',
        'clone(child_stack=NULL, flags=SIGCHLD) = 10',
        "+++ exited with 0 +++",
    ]
    assert [one.what for one in parse_trace("\n".join(lines) + "\n").passes] == ["log.sqlite-wal", "one.new to one", "made", ""]


def test_of_opens_only_those_count_that_may_make_a_file_and_none_once_the_process_has_looked_at_others() -> None:
    lines = [
        'openat(AT_FDCWD, "there", O_RDONLY) = 3',
        'openat(AT_FDCWD, "made", O_WRONLY|O_CREAT, 0600) = 3',
        'openat(AT_FDCWD, "/proc/self/stat", O_RDONLY) = 3',
        'openat(AT_FDCWD, "made too", O_WRONLY|O_CREAT, 0600) = 3',
        'openat(AT_FDCWD, "/proc/17/environ", O_RDONLY) = 3',
        'openat(AT_FDCWD, "made late", O_WRONLY|O_CREAT, 0600) = 3',
        'unlink("made") = 0',
        "+++ exited with 0 +++",
    ]
    passes = parse_trace("\n".join(lines) + "\n").passes
    assert [(one.count, one.what) for one in passes if one.counts] == [(2, "made"), (4, "made too"), (1, "made")]
    cut = [*lines[:4], 'openat(AT_FDCWD, "there", O_RDONLY) = ?', "+++ killed by SIGKILL +++"]
    assert doubt("\n".join(cut) + "\n", target=Target("openat", 5)) == "its openat 5 makes no file"


FIRST = 'pwrite64(6, ""..., 512, 0)              = 512\n'
SYNC = "fdatasync(6)                            = 0\n"
LAST = 'pwrite64(6, ""..., 12, 0)               = ?\n'
NO_KILLS = {
    "killed after the call": (SOUND.replace(LAST, LAST.replace("?", "12")), -9, "the trace ends outside of any call"),
    "killed before any call": ("+++ killed by SIGKILL +++\n", -9, "the trace ends outside of any call"),
    "only an earlier call was left open": (SOUND.replace("= 512", "= ?").replace(LAST, LAST.replace("?", "12")), -9, "outside of any call"),
    "killed a call too early": (SOUND.replace(FIRST, ""), -9, "died in its pwrite64 1, not in its pwrite64 2"),
    "killed in another call": (SOUND.replace(SYNC + LAST, SYNC.replace("= 0", "= ?")), -9, "died in its fdatasync 1, not in"),
    "a call to be restarted": (SOUND.replace("= ?\n", "= ? ERESTARTSYS (To be restarted)\n"), -9, "outside of any call"),
    "the trace says exited": (SOUND.replace("killed by SIGKILL", "exited with 0"), -9, "the trace ends with 'exited with 0'"),
    "the trace says another signal": (SOUND.replace("SIGKILL", "SIGTERM"), -9, "the trace ends with 'killed by SIGTERM'"),
    "the status says exited": (SOUND, 0, "the wait status is 0, not the one of signal 9"),
    "the status says another signal": (SOUND, -15, "the wait status is -15, not the one of signal 9"),
}


@pytest.mark.parametrize(("text", "code", "why"), NO_KILLS.values(), ids=NO_KILLS)
def test_anything_less_is_no_kill(text: str, code: int, why: str) -> None:
    assert why in doubt(text, code)


@pytest.mark.parametrize("text", ["", "\n", SOUND[:-1], SOUND[: -len("+++ killed by SIGKILL +++\n")], "strace: error\n" + SOUND])
def test_a_trace_that_is_cut_or_strange_is_not_read(text: str) -> None:
    with pytest.raises(TraceError, match="the trace"):
        parse_trace(text)


def test_steps_name_a_role_a_call_and_its_moment() -> None:
    assert format_aim(Aim("driver", TARGET)) == "driver@1:syscall.pwrite64.before:2"
    assert format_aim(Aim("shim.1", AFTER)) == "shim.1@1:syscall.pwrite64.after:2"
    for step in ("driver@1:syscall.pwrite64.before:2", "driver@1:syscall.pwrite64:2"):
        assert parse_aim(step) == Aim("driver", TARGET)
    assert parse_aim("worker@1:syscall.renameat.after:1") == Aim("worker", Target("renameat", 1, "after"))
    for step in (
        "driver@2:syscall.pwrite64:2", "shim.2@1:syscall.write.before:2", "driver@1:syscall.read.before:1",
        "driver@1:syscall.write.within:1", "driver@1:outcome.commit.before:1",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="no system call of the first driver or one of its helpers"):
            parse_aim(step)


def test_the_command_never_filters_in_the_kernel_and_never_follows_forks() -> None:
    """With --seccomp-bpf the signal would not fire; with -f ordinals of several processes would mix in one file."""
    command = build_command("strace", "out", ["recovery", "run"], TARGET)
    assert command[:2] == ["strace", "-D"] and command[command.index("-o") + 1] == "out"
    assert command[command.index("--") + 1 :] == ["recovery", "run"]
    assert "inject=pwrite64:signal=KILL:when=2" in command
    attaching = build_attaching("strace", "out", 17, AFTER)
    assert attaching[-2:] == ["-p", "17"] and any(word.startswith("inject=pwrite64:delay_exit=") for word in attaching)
    assert not {"--seccomp-bpf", "-f", "-ff"} & {*command, *attaching}
    assert not any(word.startswith("inject=") for word in build_command("strace", "out", ["recovery"], None))


PROGRAM = """
import os
if len(os.sys.argv) > 1:
    open("ready", "x").close()
    with open(os.sys.argv[1]) as gate:
        gate.read()
    os.unlink("ready")
file = os.open("file", os.O_RDWR | os.O_CREAT)
for place in range(4):
    os.pwrite(file, b"x", place)
    os.fdatasync(file)
os.link("file", "linked")
os.rename("file", "renamed")
os.unlink("linked")
if os.fork() == 0:
    os.close(os.open("child", os.O_CREAT))
    os._exit(0)
os.wait()
os.write(os.open("said", os.O_CREAT | os.O_WRONLY), b"x")
os.kill(os.getpid(), 0)
os.mkdir("end")
"""
CALLS = [
    ("create", 1, {}, {"file": 0}),
    ("pwrite64", 3, {"file": 2}, {"file": 3}),
    ("fdatasync", 2, {"file": 2}, {"file": 2}),
    ("link", 1, {"file": 4}, {"file": 4, "linked": 4}),
    ("rename", 1, {"file": 4, "linked": 4}, {"renamed": 4, "linked": 4}),
    ("unlink", 1, {"linked": 4, "renamed": 4}, {"renamed": 4}),
    ("clone", 1, {"renamed": 4}, {"renamed": 4, "child": 0}),
    ("write", 1, {"renamed": 4, "child": 0, "said": 0}, {"renamed": 4, "child": 0, "said": 1}),
    ("kill", 1, {"renamed": 4, "child": 0, "said": 1}, {"renamed": 4, "child": 0, "said": 1}),
]


@needs_strace
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("kind", "count", "before", "after"), CALLS, ids=[one[0] for one in CALLS])
def test_the_process_dies_on_entering_the_call_or_when_it_is_done(
    kind: str, count: int, before: dict[str, int], after: dict[str, int], moment: Moment, clean_run: TracedRun, tmp_path: Path
) -> None:
    target = [one for one in clean_run.passes if one.name in KINDS[kind]][count - 1]
    killed = run_program(tmp_path / "killed", Target(target.name, target.count, moment))
    assert (killed.doubt, killed.code) == ("", -9)
    wanted = before if moment == "before" else after
    # The child of a fork is not traced: it goes on, and is waited for here.
    wait_until(lambda: read_sizes(tmp_path / "killed") == wanted, 60.0, f"{wanted}, not {read_sizes(tmp_path / 'killed')}")


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> TracedRun:
    """The program to its end."""
    clean = run_program(tmp_path_factory.mktemp("syscalls") / "clean", None)
    assert (clean.code, clean.doubt) == (0, "")
    return clean


@needs_strace
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_ordinal_that_is_never_reached_proves_nothing(moment: Moment, tmp_path: Path) -> None:
    killed = run_program(tmp_path / "place", Target("pwrite64", 60000, moment))
    assert (killed.code, killed.doubt) == (0, "the wait status is 0, not the one of signal 9")


@needs_strace
@pytest.mark.parametrize(
    ("moment", "files"), [("before", {"file": 4, "linked": 4}), ("after", {"renamed": 4, "linked": 4})], ids=["before", "after"]
)
def test_a_process_that_is_not_our_child_is_attached_to_and_killed_alone(moment: Moment, files: dict[str, int], tmp_path: Path) -> None:
    """Its parent, a shell, lives on and takes its status; ordinals count from where it was attached to."""
    os.mkfifo(tmp_path / "gate")
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    program = f"{sys.executable} -I -S {tmp_path}/program.py {tmp_path}/gate"
    script = f"{program} & echo $! > {tmp_path}/pid; wait $!; echo $? > {tmp_path}/status"
    shell = subprocess.Popen(["sh", "-c", script], cwd=place)
    wait_until((place / "ready").exists, 60.0, "the program to wait at its gate")
    attached = Attached(int((tmp_path / "pid").read_text()), tmp_path / "trace", Target("rename", 1, moment))
    try:
        (tmp_path / "gate").write_text("")
        wait_until(attached.has_ended, 60.0, "the program to be killed")
        passes, doubt = attached.read_proof()
    finally:
        attached.close()
    assert doubt == "" and passes[0].what == "ready" and passes[-1].name == "rename"
    assert (shell.wait(60), (tmp_path / "status").read_text()) == (0, "137\n")
    assert read_sizes(place) == files


def read_sizes(place: Path) -> dict[str, int]:
    """The files of a directory with their sizes."""
    return {path.name: path.stat().st_size for path in place.iterdir()}


def run_program(place: Path, target: Target | None) -> TracedRun:
    """The program in a directory of its own, killed at `target`."""
    place.mkdir()
    command = [sys.executable, "-I", "-S", "-c", PROGRAM]
    return run_traced(command, place.with_suffix(".trace"), target, cwd=place, environment=dict(os.environ))
