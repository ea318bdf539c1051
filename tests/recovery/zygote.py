"""A warm process that forks `recovery` commands, and Python programs (`program` in the request): what one costs is then a fork, not the
import of everything.

Run as a file. Each line on stdin is a request (JSON: arguments, environment, directory, out, error, status, user, boot); the answer is the
pid. When the process has ended, its wait status appears in the file `status`.
"""

import codecs
import contextlib
import io
import json
import os
import runpy
import select
import sys
import traceback
from typing import Any

import pyfastcdc

from eventlog import console
from eventlog.ports import LinuxHost
from recovery import session
from recovery.__main__ import app, main


def fork_command(request: dict[str, Any]) -> int:
    """Fork one `recovery` command; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code: object = 70
    try:
        become_command(request)
        if request.get("program"):
            runpy.run_path(request["program"], run_name="__main__")
            code = 0
        else:
            main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):  # as the interpreter would
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # noqa: BLE001 - the child must never run on into the loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def become_command(request: dict[str, Any]) -> None:
    """Take over streams, environment, directory, arguments, user and, where one is given, another boot id: for it and all that it
    forks the machine was started again."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, descriptor in enumerate(
        (os.open("/dev/null", os.O_RDONLY), os.open(request["out"], flags), os.open(request["error"], flags))
    ):
        os.dup2(descriptor, number)
    os.closerange(3, 64)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    if request["user"]:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    if request["boot"]:
        LinuxHost.boot_id = lambda self: str(request["boot"])  # type: ignore[method-assign]
    sys.argv = [request.get("program") or "recovery", *request["arguments"]]


def warm_up() -> None:
    """Have everything imported that a command imports late: a child that changes its user may not read it any more."""
    with contextlib.redirect_stderr(io.StringIO()):
        console.run(app, "recovery", 78, lambda error: error.exit_code, ["plan", "/nowhere"])
        codecs.lookup("ascii")  # by whatever opens a file of the kernel's
        assert session  # for programs
        pyfastcdc.FastCDC()  # imported by the engine where a content is large


def serve() -> None:
    """Answer requests and collect ends until stdin closes."""
    warm_up()
    children: dict[int, tuple[int, str]] = {}
    while True:
        ready = select.select([0, *children], [], [])[0]
        for descriptor in ready:
            if descriptor:
                report_end(*children.pop(descriptor))
                os.close(descriptor)
        if 0 in ready:
            line = sys.stdin.readline()
            if not line:
                return
            request = json.loads(line)
            pid = fork_command(request)
            children[os.pidfd_open(pid)] = (pid, request["status"])
            print(pid, flush=True)


def report_end(pid: int, path: str) -> None:
    """Write a wait status whole, or not at all."""
    status = os.waitpid(pid, 0)[1]
    try:
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(os.waitstatus_to_exitcode(status)))
        os.rename(f"{path}.new", path)
    except FileNotFoundError:
        pass  # the test is over and its directory gone


if __name__ == "__main__":
    serve()
