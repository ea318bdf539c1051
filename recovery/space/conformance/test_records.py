"""What a space says of a command is what its record says, and a record is of one process for ever (S5, I8)."""

import contextlib

import pytest

from eventlog.errors import FenceIncompleteError, LostProcessError
from recovery.space.conformance.fixtures import command, require
from recovery.space.conformance.owners import number_given_away
from recovery.space.conformance.subject import Subject
from recovery.space.listing import AttemptWord
from recovery.space.port import Space


def test_rule_S5_an_end_is_told_only_once_its_record_stands(space: Space, subject: Subject) -> None:
    """In another system exit 0 was told to the caller though the record could not be written: here whoever asks finds what was told."""
    require(space, "live output")
    other = subject.open()
    space.start(1, command("k", subject.blocks("k", b"said")))
    try:
        told = space.wait(1, "k", lambda stream, data: subject.release("k"))  # attached before it ends
    except LostProcessError as error:
        pytest.fail(f"the end was told and there is no record of it: {error}")
    found = other.look("k")
    assert found is not None, "one handle was told of the end, another finds no record of it"
    assert (found.word, found.exit) == (told.word, told.exit) and told.word is AttemptWord.EXITED
    other.close()


def test_case_29_a_number_that_is_a_strangers_now_is_no_owner(space: Space, subject: Subject) -> None:
    """Another system reattached by pid: after a restart it returned another command's output and exit. The record's process is dead, though
    its number lives: the command is lost, and the stranger is not signalled."""
    with number_given_away(subject, "k") as stranger:
        ended = space.look("k")
        assert ended is not None and ended.word is AttemptWord.LOST, "a stranger passes for the owner of the command"
        with contextlib.suppress(FenceIncompleteError):  # under the environment mark nothing is proved of one whose owner is dead
            assert space.advance(2, claim=["k"]).claimed == ()
        assert stranger.poll() is None, "the stranger was signalled"
