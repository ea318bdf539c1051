"""Rule S1: one locked record per resolved root; equal, ancestor and descendant roots are refused by the holder's name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from eventlog.ports import SystemClock
from recovery.space.holders import Holders


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Holders]:
    made = Holders(str(tmp_path / "holders"), SystemClock())
    yield made
    made.close()


def running(_: str) -> bool:
    return False


def records(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "holders").glob("*.json"))


def test_rule_S1_a_root_is_held_once_and_again_by_the_same_session(tmp_path: Path, holders: Holders) -> None:
    assert holders.claim("/w", "one", "/s1", running)
    assert not holders.claim("/w", "one", "/s1", running)
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize("root", ["/w/a", "/w/a/b", "/w", "/"])
def test_rule_S1_equal_inner_and_outer_roots_are_refused(tmp_path: Path, holders: Holders, root: str) -> None:
    (tmp_path / "s1").mkdir()
    holders.claim("/w/a", "one", str(tmp_path / "s1"), running)
    with pytest.raises(MisuseError, match=f"is held by session:one.*; finish it first with `recovery drive {tmp_path}/s1`"):
        holders.claim(root, "two", "/s2", running)
    assert len(records(tmp_path)) == 1


def test_rule_S1_siblings_and_names_that_begin_alike_are_free(holders: Holders) -> None:
    for number, root in enumerate(("/w/a", "/w/ab", "/w/b", "/v")):
        assert holders.claim(root, f"s{number}", f"/s{number}", running)


def test_rule_S1_the_same_name_in_another_state_directory_is_another_session(holders: Holders) -> None:
    holders.claim("/w", "one", "/s1", running)
    with pytest.raises(MisuseError, match="is held by session:one, whose state directory /s1 is gone; put it back, or remove"):
        holders.claim("/w", "one", "/s2", running)


def test_rule_S1_a_finished_session_gives_way(holders: Holders) -> None:
    holders.claim("/w/a", "one", "/s1", running)
    assert holders.claim("/w", "two", "/s2", lambda state: state == "/s1")
    with pytest.raises(MisuseError, match="is held by session:two"):
        holders.claim("/w/a", "one", "/s1", running)


def test_rule_S1_only_the_holder_releases(tmp_path: Path, holders: Holders) -> None:
    holders.claim("/w", "one", "/s1", running)
    holders.release("/w", "two", "/s1")
    holders.release("/w", "one", "/s2")
    assert len(records(tmp_path)) == 1
    holders.release("/w", "one", "/s1")
    assert not records(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"root": 1}', '{"root": "/w", "session": "s"}'])
def test_a_record_that_is_none_is_named_and_kept(tmp_path: Path, holders: Holders, text: str) -> None:
    """Fail closed: what cannot be read might hold the root."""
    spoiled = tmp_path / "holders" / "0.json"
    spoiled.write_text(text)
    with pytest.raises(MisuseError, match=f"{spoiled}: not a holder record; look at it, and remove it when no session uses"):
        holders.claim("/w", "one", "/s1", running)
    assert spoiled.read_text() == text


def test_roots_that_are_not_utf_8_are_held_too(holders: Holders) -> None:
    holders.claim("/w/caf\udce9", "one", "/s1", running)
    with pytest.raises(MisuseError, match=r"/w/caf\\xe9 is held by session:one"):
        holders.claim("/w/caf\udce9", "two", "/s2", running)
