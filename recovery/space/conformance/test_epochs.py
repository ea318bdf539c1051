"""The floor is the fence: nothing below it acts, and raising it decides what lives (T2, S4, S8)."""

import contextlib

import pytest

from eventlog.errors import EpochTakenError, KeySpentError, MisuseError, StaleEpochError
from recovery.space.conformance.fixtures import command, require
from recovery.space.conformance.subject import Subject
from recovery.space.listing import AttemptWord
from recovery.space.port import Space


def begin(space: Space, subject: Subject, key: str, epoch: int = 1) -> None:
    space.start(epoch, command(key, subject.blocks(key, b"said")))
    subject.until(lambda: subject.witnessed(key) == 1, f"the start of {key}")


def test_a_new_space_says_who_it_is(subject: Subject) -> None:
    space = subject.open()
    assert space.advance(3).floor == 3
    facts = space.facts()
    assert (facts.generation, facts.floor) == (1, 3) and facts.space_id and facts.mark
    space.close()


def test_rule_S4_below_the_floor_nothing_is_started_or_ended(space: Space, subject: Subject) -> None:
    require(space, "claim")
    begin(space, subject, "k")
    space.advance(2, claim=["k"])
    for ask in (
        lambda: space.start(1, command("new", subject.blocks("new"))),
        lambda: space.start(1, command("k", subject.blocks("k", b"said"))),
        lambda: space.wait(1, "k"),
        lambda: space.end(1, "k"),
        lambda: space.advance(1),
    ):
        with pytest.raises(StaleEpochError):
            ask()
    assert subject.witnessed("new") == 0 and subject.is_alive("k")
    subject.release("k")
    assert space.wait(2, "k").word is AttemptWord.EXITED


def test_rule_S4_below_the_floor_nothing_is_asked_for_in_vain(space: Space, subject: Subject) -> None:
    """As the test before it, for a space where nothing can be claimed."""
    begin(space, subject, "k")
    space.advance(2)
    for ask in (
        lambda: space.start(1, command("new", subject.blocks("new"))),
        lambda: space.start(1, command("k", subject.blocks("k", b"said"))),
        lambda: space.wait(1, "k"),
        lambda: space.end(1, "k"),
        lambda: space.advance(1),
    ):
        with pytest.raises(StaleEpochError):
            ask()
    assert subject.witnessed("new") == 0 and subject.witnessed("k") == 1


@pytest.mark.parametrize("epoch", (0, -1, 1 << 63))
def test_an_epoch_out_of_bounds_passes_no_fence(space: Space, subject: Subject, epoch: int) -> None:
    """Another system let epoch 0 by, and one bad client burned the epoch at its maximum."""
    with pytest.raises((MisuseError, StaleEpochError)):
        space.start(epoch, command("k", subject.blocks("k")))
    with pytest.raises((MisuseError, StaleEpochError)):
        space.advance(epoch)
    assert space.facts().floor == 1 and subject.witnessed("k") == 0
    assert space.advance(2).floor == 2


def test_only_an_advance_raises_the_floor(space: Space, subject: Subject) -> None:
    require(space, "no epoch gap")
    with pytest.raises(MisuseError):
        space.start(2, command("k", subject.blocks("k")))
    assert space.facts().floor == 1 and subject.witnessed("k") == 0


def test_two_never_have_one_epoch(space: Space) -> None:
    space.advance(2)
    with pytest.raises(EpochTakenError):
        space.advance(2)


def test_rule_T2_what_is_not_claimed_is_dead_when_the_advance_returns(space: Space, subject: Subject) -> None:
    begin(space, subject, "k")
    assert space.advance(2).condemned == ("k",)
    assert not subject.is_alive("k")
    ended = space.wait(2, "k")
    assert ended.word is AttemptWord.CUT and (ended.exit is None or ended.exit.code is None)
    with contextlib.suppress(KeySpentError):
        assert space.start(2, command("k", subject.blocks("k", b"said"))) == "replayed"
    assert subject.witnessed("k") == 1


def test_what_left_its_group_and_session_is_dead_when_the_advance_returns(space: Space, subject: Subject) -> None:
    """In another system setsid, setpgid and ended-leader children escaped the fence."""
    require(space, "proves death")
    space.start(1, command("k", subject.escapes("k")))
    subject.until(lambda: subject.witnessed("k") == 1, "the start of k")
    assert subject.is_alive("k")
    assert space.advance(2).condemned == ("k",)
    assert not subject.is_alive("k")


def test_a_running_key_is_claimed_or_the_claim_is_refused_before_anything(space: Space, subject: Subject) -> None:
    begin(space, subject, "k")
    if "claim" in space.capabilities:
        assert space.advance(2, claim=["k"]).claimed == ("k",)
    else:
        with pytest.raises(MisuseError, match="k runs and cannot be claimed"):
            space.advance(2, claim=["k"])
        assert space.facts().floor == 1
    assert subject.is_alive("k")
    subject.release("k")


def test_rule_T2_what_is_claimed_goes_on_and_its_exit_is_clean(space: Space, subject: Subject) -> None:
    require(space, "claim")
    begin(space, subject, "kept")
    begin(space, subject, "other")
    advanced = space.advance(2, claim=["kept"])
    assert (advanced.claimed, advanced.condemned) == (("kept",), ("other",))
    assert subject.is_alive("kept") and not subject.is_alive("other")
    subject.release("kept")
    ended = space.wait(2, "kept")
    assert (ended.word.value, ended.epoch, ended.out) == ("exited", 2, b"said")
    assert ended.exit is not None and ended.exit.code == 0


def test_rule_T2_condemned_is_final(space: Space, subject: Subject) -> None:
    require(space, "claim")
    begin(space, subject, "k")
    space.advance(2)
    assert "k" not in space.advance(3, claim=["k"]).claimed
    ended = space.look("k")
    assert ended is not None and ended.word is AttemptWord.CUT


def test_what_has_ended_is_neither_claimed_nor_condemned(space: Space, subject: Subject) -> None:
    space.start(1, command("k", subject.exits(4)))
    first = space.wait(1, "k")
    advanced = space.advance(2, claim=["k"])
    assert (advanced.claimed, advanced.condemned) == ((), ())
    assert space.wait(2, "k") == first


def test_a_key_that_is_not_there_cannot_be_claimed_and_the_floor_stays(space: Space) -> None:
    with pytest.raises(MisuseError, match="no-such-key"):
        space.advance(2, claim=["no-such-key"])
    assert space.facts().floor == 1


def test_a_waiting_handle_notices_a_newer_epoch(space: Space, subject: Subject) -> None:
    """The stale owner's wait ends by the fence, not by the command's end."""
    require(space, "claim")
    begin(space, subject, "k")
    other = subject.open()
    other.advance(2, claim=["k"])
    with pytest.raises(StaleEpochError):
        space.wait(1, "k")
    assert subject.is_alive("k")
    subject.release("k")
    assert other.wait(2, "k").word is AttemptWord.EXITED
    other.close()
