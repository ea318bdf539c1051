"""A drive with a watcher: its log tells what a drive without one tells."""

import pytest

from eventlog import events
from eventlog.image import root_hash
from recovery.workspace.scan import Scanner
from tests.recovery.sessions import Sandbox, bash, edit, write

WATCHED = (
    'if grep -qs "ino:$(printf %x "$(stat -c %i .)") " /proc/[0-9]*/fdinfo/*; then echo watched > seen; else echo not > seen; fi'
)


@pytest.mark.parametrize(("hints", "seen"), [("watch", b"watched\n"), ("full", b"not\n")])
def test_a_drive_records_the_same_with_a_watcher(sandbox: Sandbox, hints: str, seen: bytes) -> None:
    calls = [
        bash("mkdir -p a/b; echo one > a/b/file; echo one > top"),
        bash(WATCHED),
        edit("a/b/file", "one", "two"),
        bash("mv a moved; ln moved/b/file second; echo three >> second"),
        write("moved/b/new", "hello"),
        bash("rm -r moved/b/new; chmod 700 moved; exit 3"),
    ]
    driver = sandbox.run("run", sandbox.session(*calls), SESSION_HINTS=hints)
    assert driver.code == 0, driver.err
    settled = sandbox.of_kind(events.CallSettled)
    assert [event.exit.code for event in settled] == [0, 0, 0, 0, 0, 3]
    assert (sandbox.root / "seen").read_bytes() == seen
    assert not sandbox.of_kind(events.WorkspaceObserved), "the last scan, which is whole, found what the log has"
    assert sandbox.of_kind(events.SessionFinished)[0].root == settled[-1].root


def test_what_nobody_is_told_is_found_before_the_session_finishes(sandbox: Sandbox) -> None:
    """A second name that comes and goes within a call changes a file without a word to its directory. The scan after the call finds it only
    when somebody makes a mount meanwhile, which has everything read."""
    other = f"../second-{sandbox.root.name}"
    calls = [
        bash("mkdir a; echo one > a/file"),
        bash("sleep 0.1"),  # long enough for the file to be older than the clock's tick at the scan that follows
        bash(f"ln a/file {other}; echo two >> {other}; rm {other}"),
    ]
    driver = sandbox.run("run", sandbox.session(*calls), SESSION_HINTS="watch")
    assert driver.code == 0, driver.err
    found = root_hash(Scanner(str(sandbox.root)).scan().image).hex()
    assert sandbox.of_kind(events.SessionFinished)[0].root == found
    assert [sandbox.of_kind(events.CallSettled)[-1], *sandbox.of_kind(events.WorkspaceObserved)][-1].root == found


def test_unknown_hints_are_a_usage_error(sandbox: Sandbox) -> None:
    driver = sandbox.run("run", sandbox.session(bash("true")), SESSION_HINTS="sometimes")
    assert driver.code == 78 and "SESSION_HINTS='sometimes' is none of full, watch" in driver.err
