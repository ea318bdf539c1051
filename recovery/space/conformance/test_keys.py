"""A key runs once (S4)."""

import pytest

from eventlog.errors import MisuseError, RequestMismatchError
from recovery.space.conformance.fixtures import command, require
from recovery.space.conformance.subject import Subject
from recovery.space.listing import AttemptWord
from recovery.space.port import Space


def test_a_new_key_starts_and_ends_with_its_code(space: Space, subject: Subject) -> None:
    assert space.start(1, command("k", subject.exits(3))) == "started"
    ended = space.wait(1, "k")
    assert ended.exit is not None and (ended.word.value, ended.exit.kind, ended.exit.code, ended.exit.signal) == (
        "exited",
        "exited",
        3,
        None,
    )
    assert space.look("k") == ended


def test_rule_S4_a_key_that_ended_is_replayed_with_the_same_bytes(space: Space, subject: Subject) -> None:
    data = bytes(range(256)) * 20
    request = command("k", subject.prints(data))
    assert space.start(1, request) == "started"
    first = space.wait(1, "k")
    assert space.start(1, request) == "replayed"
    assert space.wait(1, "k") == first
    assert (first.out, first.out_total) == (data, len(data))


def test_rule_S4_a_key_that_runs_is_attached_to_and_runs_once(space: Space, subject: Subject) -> None:
    request = command("k", subject.blocks("one"))
    space.start(1, request)
    subject.until(lambda: subject.witnessed("one") == 1, "the command's start")
    assert space.start(1, request) == "attached"
    assert space.look("k") is None
    subject.release("one")
    assert space.wait(1, "k").word is AttemptWord.EXITED
    assert space.start(1, request) == "replayed"
    assert subject.witnessed("one") == 1


def test_rule_S4_the_same_key_with_another_request_is_refused_and_nothing_runs(space: Space, subject: Subject) -> None:
    space.start(1, command("k", subject.exits(0)))
    space.wait(1, "k")
    for other in (
        command("k", subject.blocks("other")),
        command("k", subject.exits(0), timeout_secs=9.0),
        command("k", subject.exits(0), stdin=b"x"),
    ):
        with pytest.raises(RequestMismatchError):
            space.start(1, other)
    assert subject.witnessed("other") == 0
    assert [one.key for one in space.list()] == ["k"]


def test_an_unknown_key_is_named(space: Space) -> None:
    with pytest.raises(MisuseError, match="no-such-key"):
        space.look("no-such-key")
    with pytest.raises(MisuseError, match="no-such-key"):
        space.wait(1, "no-such-key")
    with pytest.raises(MisuseError, match="no-such-key"):
        space.end(1, "no-such-key")


def test_keys_are_listed_in_order_with_their_state(space: Space, subject: Subject) -> None:
    for number in range(5):
        space.start(1, command(f"k{number}", subject.exits(number)))
        space.wait(1, f"k{number}")
    space.start(1, command("last", subject.blocks("b")))
    subject.until(lambda: subject.witnessed("b") == 1, "the last command's start")
    listed = space.list()
    assert [(one.key, one.word.value, one.epoch) for one in listed] == [(f"k{number}", "exited", 1) for number in range(5)] + [
        ("last", "running", 1)
    ]
    assert [one.exit.code for one in listed if one.exit is not None] == [0, 1, 2, 3, 4]
    subject.release("b")
    space.wait(1, "last")


def test_a_running_key_is_not_forgotten_behind_many_later_ones(space: Space, subject: Subject) -> None:
    """Another system evicted keys after a few thousand newer ones although their command still ran: a retry ran beside it."""
    request = command("long", subject.blocks("long"))
    space.start(1, request)
    subject.until(lambda: subject.witnessed("long") == 1, "the long command's start")
    for number in range(30):
        space.start(1, command(f"k{number}", subject.exits(0)))
        space.wait(1, f"k{number}")
    assert space.start(1, request) == "attached"
    subject.release("long")
    assert space.wait(1, "long").word is AttemptWord.EXITED
    assert subject.witnessed("long") == 1


def test_another_handle_sees_the_same_keys(space: Space, subject: Subject) -> None:
    require(space, "durable")
    request = command("k", subject.blocks("one", b"before"))
    space.start(1, request)
    subject.until(lambda: subject.witnessed("one") == 1, "the command's start")
    space.close()
    other = subject.open()
    assert other.start(1, request) == "attached"
    subject.release("one")
    assert other.wait(1, "k").out == b"before"
    assert subject.witnessed("one") == 1
    other.close()
