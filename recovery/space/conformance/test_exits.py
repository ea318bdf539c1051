"""How a command ended, and what it said: distinct, and never invented (I8, cases 31, 33 to 36)."""

import signal

import pytest
from blake3 import blake3

from recovery.space.conformance.fixtures import command, require
from recovery.space.conformance.subject import Subject
from recovery.space.listing import AttemptWord
from recovery.space.port import Space
from recovery.space.protocol import StreamName

KEPT_BYTES = 1 << 20
"""Of an output no longer than this every byte is kept."""


@pytest.mark.parametrize("code", (0, 1, 126, 127, 128 + 9, 255))
def test_case_33_a_code_is_a_code(space: Space, subject: Subject, code: int) -> None:
    space.start(1, command("k", subject.exits(code)))
    exit_ = space.wait(1, "k").exit
    assert exit_ is not None and (exit_.kind, exit_.code, exit_.signal) == ("exited", code, None)


@pytest.mark.parametrize("number", (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV))
def test_case_33_a_signal_is_no_code(space: Space, subject: Subject, number: int) -> None:
    space.start(1, command("k", subject.dies(number)))
    exit_ = space.wait(1, "k").exit
    assert exit_ is not None and (exit_.kind, exit_.code, exit_.signal) == ("signaled", None, number)


def test_what_cannot_be_executed_never_ran_and_says_why(space: Space, subject: Subject) -> None:
    space.start(1, command("k", subject.missing()))
    exit_ = space.wait(1, "k").exit
    assert exit_ is not None and (exit_.kind, exit_.code, exit_.signal) == ("start_failed", None, None) and exit_.error
    space.start(1, command("next", subject.exits(0)))
    assert space.wait(1, "next").word is AttemptWord.EXITED


def test_a_time_limit_ends_a_command_and_says_so(space: Space, subject: Subject) -> None:
    require(space, "time limit")
    space.start(1, command("k", subject.blocks("k", b"begun"), timeout_secs=2.0))
    ended = space.wait(1, "k")
    assert ended.exit is not None and (ended.word.value, ended.exit.kind) == ("exited", "timed_out") and b"begun".startswith(ended.out)
    assert not subject.is_alive("k")


def test_what_is_killed_by_key_ends_by_a_signal(space: Space, subject: Subject) -> None:
    space.start(1, command("k", subject.blocks("k", b"begun")))
    subject.until(lambda: subject.witnessed("k") == 1, "the command's start")
    ended = space.end(1, "k")
    assert ended.exit is not None and (ended.word.value, ended.exit.kind, ended.exit.code) == ("exited", "signaled", None)
    assert not subject.is_alive("k")
    assert space.end(1, "k") == ended == space.wait(1, "k")


def test_what_a_command_leaves_running_is_ended_when_its_request_says_so(space: Space, subject: Subject) -> None:
    require(space, "left behind")
    space.start(1, command("k", subject.leaves("k")))
    assert space.wait(1, "k").word is AttemptWord.EXITED
    assert subject.witnessed("k") == 1 and not subject.is_alive("k")


def test_case_35_bytes_are_bytes(space: Space, subject: Subject) -> None:
    data = b"\xe2\x82\xac" * 5000 + bytes(range(256)) + b"\x00\x1b[2J\xe2"
    space.start(1, command("k", subject.prints(data)))
    ended = space.wait(1, "k")
    assert (ended.out, ended.out_total) == (data, len(data))
    assert ended.digest in ("", blake3(data).hexdigest())


def test_the_streams_are_kept_apart_when_asked(space: Space, subject: Subject) -> None:
    require(space, "stderr apart")
    space.start(1, command("apart", subject.prints(b"to out", b"to err"), separate=True))
    apart = space.wait(1, "apart")
    assert (apart.out, apart.err, apart.out_total, apart.err_total) == (b"to out", b"to err", 6, 6)
    space.start(1, command("merged", subject.prints(b"to out", b"to err")))
    merged = space.wait(1, "merged")
    assert sorted((merged.out[:6], merged.out[6:])) == [b"to err", b"to out"] and merged.err == b""


def test_output_beyond_the_bound_keeps_head_and_tail_and_the_digest_of_all(space: Space, subject: Subject) -> None:
    size = 3 * KEPT_BYTES
    data = b"".join(b"%08d\n" % number for number in range(size // 9))
    space.start(1, command("k", subject.prints(data)))
    ended = space.wait(1, "k")
    assert ended.out_total == len(data) and len(ended.out) < KEPT_BYTES + 200
    assert ended.out[:1000] == data[:1000] and ended.out[-1000:] == data[-1000:]
    assert ended.digest in ("", blake3(data).hexdigest())


def test_case_36_input_is_at_its_end(space: Space, subject: Subject) -> None:
    space.start(1, command("k", subject.reads()))
    ended = space.wait(1, "k")
    assert ended.exit is not None and (ended.exit.code, ended.out) == (0, b"")


def test_a_command_reads_what_it_is_given(space: Space, subject: Subject) -> None:
    require(space, "standard input")
    data = bytes(range(256)) * 1024
    space.start(1, command("k", subject.reads(), stdin=data))
    assert space.wait(1, "k").out == data


def test_output_comes_while_the_command_runs(space: Space, subject: Subject) -> None:
    require(space, "live output")
    space.start(1, command("k", subject.blocks("k", b"early")))
    heard: list[tuple[StreamName, bytes]] = []

    def hear(stream: StreamName, data: bytes) -> None:
        heard.append((stream, data))
        subject.release("k")  # only what was heard lets the command end

    ended = space.wait(1, "k", hear)
    assert b"".join(data for _, data in heard) == b"early" == ended.out


def test_a_sink_that_fails_does_not_end_the_command(space: Space, subject: Subject) -> None:
    require(space, "live output")
    space.start(1, command("k", subject.blocks("k", b"early")))

    def refuse(stream: StreamName, data: bytes) -> None:
        raise BrokenPipeError("the reader is gone")

    with pytest.raises(BrokenPipeError):
        space.wait(1, "k", refuse)
    assert subject.is_alive("k")
    subject.release("k")
    assert space.wait(1, "k").out == b"early"
