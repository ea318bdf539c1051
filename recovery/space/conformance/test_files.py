"""A change of files has a key, runs once, under the fence, and never leaves the workspace (S4, S6)."""

import pytest

from eventlog.errors import KeySpentError, MisuseError, RequestMismatchError, StaleEpochError
from recovery.space.conformance.fixtures import command, require
from recovery.space.conformance.subject import Subject
from recovery.space.file_request import Delete, Edit, FileRequest, Write
from recovery.space.listing import AttemptWord
from recovery.space.port import Space


def change(space: Space, key: str, act: Write | Edit | Delete, epoch: int = 1) -> tuple[str, int | None]:
    """How it was answered, and its recorded code."""
    how = space.change(epoch, FileRequest(key, act))
    ended = space.wait(epoch, key)
    assert ended.word is AttemptWord.EXITED and ended.exit is not None and ended.exit.kind == "exited" and ended.out
    return how, ended.exit.code


def test_files_are_written_edited_and_deleted_by_key(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    assert change(space, "w", Write(b"a/b", b"one two")) == ("started", 0)
    assert subject.read("a/b") == b"one two"
    assert change(space, "e", Edit(b"a/b", b"two", b"three")) == ("started", 0)
    assert subject.read("a/b") == b"one three"
    assert change(space, "d", Delete(b"a/b")) == ("started", 0)
    assert subject.read("a/b") is None
    assert [(one.key, one.word.value, one.kind) for one in space.list()] == [(key, "exited", "file") for key in ("w", "e", "d")]


def test_rule_S4_a_change_that_is_asked_for_again_is_replayed_without_a_second_effect(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    subject.lay("f", b"ab")
    assert change(space, "e", Edit(b"f", b"b", b"bb")) == ("started", 0)
    first = space.look("e")
    subject.lay("f", b"by hand")
    other = subject.open()
    assert change(other, "e", Edit(b"f", b"b", b"bb")) == ("replayed", 0)
    assert other.look("e") == first and subject.read("f") == b"by hand"
    other.close()


def test_rule_S4_the_same_key_with_another_change_is_refused(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    change(space, "k", Write(b"f", b"x"))
    for other in (Write(b"f", b"y"), Write(b"g", b"x"), Write(b"f", b"x", 0o600), Delete(b"f")):
        with pytest.raises(RequestMismatchError):
            space.change(1, FileRequest("k", other))
    with pytest.raises(RequestMismatchError):
        space.start(1, command("k", subject.exits(0)))
    assert subject.read("f") == b"x" and subject.read("g") is None


def test_what_cannot_be_changed_is_recorded_with_its_reason_and_changes_nothing(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    subject.lay("f", b"aa")
    asked: list[Write | Edit | Delete] = [
        Edit(b"f", b"no", b""), Edit(b"f", b"a", b""), Edit(b"none", b"a", b""), Delete(b"none"), Write(b"f/g", b""),
    ]  # fmt: skip
    for number, act in enumerate(asked):
        assert change(space, f"k{number}", act) == ("started", 1)
    assert subject.read("f") == b"aa"
    change(space, "below", Write(b"d/f", b"x"))
    assert change(space, "full", Delete(b"d")) == ("started", 1) and subject.read("d/f") == b"x"


def test_rule_S6_nothing_is_written_outside_the_workspace(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    change(space, "below", Write(b"d/f", b"in"))
    subject.lay("out", leads_to="../outside")
    subject.lay("far", leads_to="/tmp")
    subject.lay("d/up", leads_to="../..")
    names = (b"../outside", b"d/../../outside", b"out", b"far/outside", b"d/up/outside", b"/outside", b"..", b".", b"")
    for number, path in enumerate(names):
        assert change(space, f"w{number}", Write(path, b"escaped")) == ("started", 1), path
        assert change(space, f"e{number}", Edit(path, b"a", b"b")) == ("started", 1), path
    for number, path in enumerate(name for name in names if name != b"out"):
        assert change(space, f"d{number}", Delete(path)) == ("started", 1), path
    assert subject.read("../outside") is None and subject.read("d/f") == b"in"


def test_a_link_is_followed_inside_the_workspace_and_deleted_itself(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    subject.lay("f", b"old")
    subject.lay("link", leads_to="f")
    assert change(space, "w", Write(b"link", b"new")) == ("started", 0) and subject.read("f") == b"new"
    assert change(space, "d", Delete(b"link")) == ("started", 0)
    assert subject.read("f") == b"new" and subject.read("link") is None
    change(space, "below", Write(b"d/f", b"below"))
    subject.lay("way", leads_to="d/../d")
    assert change(space, "through", Delete(b"way/f")) == ("started", 0) and subject.read("d/f") is None


def test_rule_S4_below_the_floor_no_file_is_changed(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    change(space, "k", Write(b"f", b"x"))
    subject.open().advance(2)
    for key in ("k", "new"):
        with pytest.raises(StaleEpochError):
            space.change(1, FileRequest(key, Write(b"f", b"stale")))
    assert subject.read("f") == b"x"
    with pytest.raises(MisuseError):
        space.change(3, FileRequest("new", Write(b"f", b"above")))
    assert change(space, "new", Write(b"f", b"y"), epoch=2) == ("started", 0) and subject.read("f") == b"y"


def test_what_ended_before_an_advance_is_replayed_after_it(space: Space, subject: Subject) -> None:
    require(space, "file changes")
    change(space, "k", Write(b"f", b"x"))
    assert space.advance(2).condemned == ()
    subject.lay("f", b"later")
    assert change(space, "k", Write(b"f", b"x"), epoch=2) == ("replayed", 0) and subject.read("f") == b"later"


def test_a_space_with_a_workspace_says_which_and_who_holds_it(space: Space) -> None:
    require(space, "file changes")
    facts = space.facts()
    assert facts.workspace and facts.holder == f"space:{facts.space_id}"


def test_a_space_without_file_changes_refuses_them_in_words(space: Space) -> None:
    if "file changes" not in space.capabilities:
        with pytest.raises(MisuseError) as refused:
            space.change(1, FileRequest("k", Write(b"f", b"x")))
        assert not isinstance(refused.value, KeySpentError) and "file" in str(refused.value)
    assert space.list() == []
