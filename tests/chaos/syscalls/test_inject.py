"""The command that kills in a system call, and what counts as proof that it did."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.stage import wait_until
from chaos.syscalls.available import find_tracer
from chaos.syscalls.inject import KINDS, Pass, TraceError, build_command, find_doubt, format_pass, parse_target, parse_trace
from tests.chaos.syscalls.support import needs_strace

TARGET = Pass("pwrite64", 2, finished=False)
SOUND = """\
clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7fa09f5fae50) = 10451
pwrite64(6, ""..., 512, 0)              = 512
--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=10451, si_uid=0, si_status=0, si_utime=0, si_stime=0} ---
fdatasync(6)                            = 0
pwrite64(6, ""..., 12, 0)               = ?
+++ killed by SIGKILL +++
"""


def doubt(text: str, code: int = -9) -> str:
    return find_doubt(parse_trace(text), TARGET, code)


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


def test_steps_name_calls_of_the_first_driver() -> None:
    assert format_pass(TARGET) == "driver@1:syscall.pwrite64:2"
    assert parse_target("driver@1:syscall.pwrite64:2") == TARGET
    for step in ("driver@2:syscall.pwrite64:2", "shim.1@1:syscall.pwrite64:2", "driver@1:outcome.commit.before:1"):
        with pytest.raises(ValueError, match="no system call of the first driver"):
            parse_target(step)


def test_the_command_never_filters_in_the_kernel_and_never_follows_forks() -> None:
    """With --seccomp-bpf the signal would not fire; with -f ordinals of several processes would mix in one file."""
    command = build_command("strace", "out", ["recovery", "run"], TARGET)
    assert command[:4] == ["strace", "-D", "-o", "out"]
    assert command[command.index("--") + 1 :] == ["recovery", "run"]
    assert "inject=pwrite64:signal=KILL:when=2" in command
    assert not {"--seccomp-bpf", "-f", "-ff"} & set(command)
    assert not any(word.startswith("inject=") for word in build_command("strace", "out", ["recovery"], None))


PROGRAM = """
import os
file = os.open("file", os.O_RDWR | os.O_CREAT)
for place in range(4):
    os.pwrite(file, b"x", place)
    os.fdatasync(file)
os.rename("file", "renamed")
if os.fork() == 0:
    open("child", "x")
    os._exit(0)
os.wait()
"""


@needs_strace
@pytest.mark.parametrize(
    ("kind", "count", "files"),
    [("pwrite64", 3, {"file": 2}), ("fdatasync", 2, {"file": 2}), ("rename", 1, {"file": 4}), ("clone", 1, {"renamed": 4})],
)
def test_the_process_dies_on_entering_the_call_which_takes_no_effect(kind: str, count: int, files: dict[str, int], tmp_path: Path) -> None:
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    passes = parse_trace(run_program(clean, None)[1]).passes
    target = [one for one in passes if one.name in KINDS[kind]][count - 1]
    assert sorted(path.name for path in clean.iterdir()) == ["child", "renamed"]

    code, text = run_program(killed, target)
    assert find_doubt(parse_trace(text), target, code) == ""
    assert {path.name: path.stat().st_size for path in killed.iterdir()} == files


@needs_strace
def test_an_ordinal_that_is_never_reached_proves_nothing(tmp_path: Path) -> None:
    target = Pass("pwrite64", 60000, finished=False)
    code, text = run_program(tmp_path / "place", target)
    assert code == 0
    assert find_doubt(parse_trace(text), target, code) == "the wait status is 0, not the one of signal 9"


def run_program(place: Path, target: Pass | None) -> tuple[int, str]:
    """The program's wait status and its trace. The tracer is not our child: its last line says that it has written all."""
    place.mkdir()
    trace = place.with_suffix(".trace")
    command = build_command(find_tracer() or "strace", str(trace), [sys.executable, "-I", "-S", "-c", PROGRAM], target)
    done = subprocess.run(command, cwd=place, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, timeout=300, check=False)
    wait_until(lambda: trace.read_text().endswith(" +++\n"), 20.0, "strace to end its trace")
    return done.returncode, trace.read_text()
