"""A key names one call, which runs once and has one result; a fork is a session of its own."""

import os

import pytest

from eventlog.errors import LostProcessError, MisuseError
from recovery.conformance.places import places
from recovery.workspace.side import read_root_identity

CUT = "kill -9 $PPID; while :; do sleep 0.1; done"
ATTRIBUTE = b"user.crashworthy.root"


def test_a_settled_key_never_runs_again() -> None:
    """Not in the object that ran it, not in one that is opened later."""
    with places() as place:
        for _ in range(2):
            with place.open() as session:
                results = [session.bash("echo ran >> log", key="one") for _ in range(2)]
            assert [result.ok for result in results] == [True, True] and results[1].is_recorded
            assert (place.work() / "log").read_text() == "ran\n"


def test_another_call_under_a_key_is_refused() -> None:
    with places() as place, place.open() as session:
        session.bash("echo one > a", key="one")
        with pytest.raises(MisuseError):
            session.bash("echo two > a", key="one")
        assert (place.work() / "a").read_text() == "one\n"


def test_rule_C3_a_cut_call_ends_interrupted_and_leaves_nothing() -> None:
    with places() as place:
        with pytest.raises(LostProcessError), place.open() as session:
            session.bash(f"echo half > half; {CUT}", key="one")
        with place.open() as session:
            result = session.bash(f"echo half > half; {CUT}", key="one")
            assert (result.ended, result.exit) == ("interrupted", None)
            assert session.bash("ls", key="two").stdout == b""


def test_rule_R6_a_fork_takes_no_directory_for_its_own_because_it_was_its_parents() -> None:
    """An empty directory with the parent's identity (a copy made with attributes, then emptied) is no workspace that was emptied."""
    with places() as place:
        with place.open() as session:
            session.bash("echo one > a; echo two > b", key="one")
        parent = read_root_identity(str(place.work())).id
        if parent is None:
            pytest.skip("this file system keeps no attributes, and an identity without them never belongs to two directories")
        place.work("fork").mkdir()
        os.setxattr(place.work("fork"), ATTRIBUTE, parent.encode())
        place.fork("head", "fork")
        with place.open("fork") as session:
            assert session.bash("cat a b", key="two").stdout == b"one\ntwo\n"
            assert read_root_identity(str(place.work("fork"))).id != parent
        assert (place.work() / "a").read_text() == "one\n"


def test_rule_C9_a_fork_knows_its_parents_results_and_leaves_the_parent_alone() -> None:
    with places() as place:
        with place.open() as session:
            first = session.bash("echo out; echo one > a", key="one")
        place.fork("call:1", "fork")
        with place.open("fork") as session:
            assert session.bash("echo out; echo one > a", key="one").stdout == first.stdout
            session.bash("echo fork > b", key="two")
        with place.open() as session:
            assert session.result("two") is None and not (place.work() / "b").exists()
