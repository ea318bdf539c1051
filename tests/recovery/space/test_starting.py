"""What can be asked of a kernel and what cannot: arguments near and over the limits, places that are not there. Each is a recorded end."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from eventlog.events import Exit
from recovery.space import command, vfork
from tests.recovery.space.spaces import LooseSpace, open_space

ARGUMENT_LIMIT = 128 << 10
"""MAX_ARG_STRLEN of Linux, the NUL at the end included."""


@pytest.fixture(params=["without a fork", "by a fork"])
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LooseSpace]:
    """Both ways in which a command is started tell the same."""
    if request.param == "by a fork":
        monkeypatch.setattr(vfork, "is_available", lambda: False)
    elif not vfork.is_available():
        pytest.skip("this machine starts programs by a fork: no list of calls for it")
    with open_space() as made:
        yield made


def failed(space: LooseSpace, **request: object) -> str:
    """Run what cannot be started; the reason on record. The space goes on: the next command runs."""
    exited = space.run(":", **request)
    assert exited.exit.kind == "start_failed" and exited.exit.code is None and exited.exit.signal is None
    assert space.run("exit 3").exit == Exit("exited", code=3), "the next command"
    return exited.exit.error or ""


def test_arguments_at_the_limit_are_given_whole(space: LooseSpace) -> None:
    """A single argument of 128 KiB, its NUL included; one byte more is refused by the kernel."""
    longest = b"x" * (ARGUMENT_LIMIT - 1)
    exited = space.run("", arguments=[b"bash", b"-c", b'echo "${#1}"', b"bash", longest])
    assert (exited.exit, space.output(exited)[0]) == (Exit("exited", code=0), b"%d\n" % len(longest))
    assert failed(space, arguments=[b"bash", b"-c", b":", b"bash", longest + b"x"]) == "E2BIG: Argument list too long: bash"


def test_too_many_arguments_and_too_much_environment_are_told_by_name(space: LooseSpace) -> None:
    whole = resource.getrlimit(resource.RLIMIT_STACK)[0] // 4
    count = min(whole, 8 << 20) // 1000 + 100
    assert failed(space, arguments=[b"true", *([b"y" * 1000] * count)]) == "E2BIG: Argument list too long: true"
    environment = [(b"PATH", os.environb[b"PATH"]), *((b"V%d" % number, b"y" * 1000) for number in range(count))]
    assert failed(space, environment=environment) == "E2BIG: Argument list too long: bash"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"arguments": [b"bash", b"-c", b"echo a\0b"]}, "EINVAL: Invalid argument: a NUL byte in an argument"),
        ({"directory": b"/tmp\0x"}, "EINVAL: Invalid argument: a NUL byte in the directory"),
        ({"environment": [(b"A", b"\0")]}, "EINVAL: Invalid argument: a NUL byte in the environment"),
        ({"environment": [(b"A=B", b"")]}, "EINVAL: Invalid argument: a name in the environment is empty or holds ="),
        ({"arguments": []}, "EINVAL: Invalid argument: the argument list is empty"),
        ({"directory": b"/no/such/place"}, "ENOENT: No such file or directory: /no/such/place"),
        ({"directory": b"/dev/null"}, "ENOTDIR: Not a directory: /dev/null"),
        ({"arguments": [b"no-such-program"]}, "ENOENT: No such file or directory: no-such-program"),
        ({"arguments": [b"/dev/null"]}, "EACCES: Permission denied: /dev/null"),
        ({"arguments": [b"n" * 300]}, f"ENAMETOOLONG: File name too long: {'n' * 300}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_executed_is_told_by_name(space: LooseSpace, request_: dict[str, object], reason: str) -> None:
    assert failed(space, **request_) == reason


def test_a_program_of_no_known_format_is_told_by_name(space: LooseSpace) -> None:
    program = Path(space.base, "program")
    program.write_bytes(b"\x01\x02\x03")
    program.chmod(0o755)
    assert failed(space, arguments=[os.fsencode(program)]) == f"ENOEXEC: Exec format error: {program}"


def test_a_process_that_is_not_to_be_had_is_a_failed_start(space: LooseSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for another process: the start failed, by name, and the shim lives on."""
    assert failed(space, arguments=[b"no-such-program"])

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(command, "fork_under", refuse)
    monkeypatch.setattr(vfork, "start_calls", refuse)
    with pytest.raises(command.StartError) as caught:
        command.start(space.request("true"), "environment:x/y")
    assert caught.value.reason == "EAGAIN: Resource temporarily unavailable: bash"


def test_a_start_that_failed_is_an_end_and_a_new_command_runs_once_its_cause_is_gone(space: LooseSpace) -> None:
    """An exec failure is not replayed for ever: its key has its exit; another key runs."""
    assert failed(space, arguments=[b"./tool"]) == "ENOENT: No such file or directory: ./tool"
    tool = space.work / "tool"
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    assert space.run("", arguments=[b"./tool"]).exit == Exit("exited", code=7)
