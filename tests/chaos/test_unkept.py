"""What lay in quarantine lies there to the end; that more comes to it is no loss."""

from typing import Any

import pytest

from chaos.played import Listing
from chaos.unkept import find_unkept


def file(content: str = "c", link: str | None = None) -> dict[str, Any]:
    return {"kind": "f", "mode": 420, "content": content, "link": link}


ALONE: Listing = {"1/a": file()}
PAIR: Listing = {"1/b": file(link="1/b"), "1/c": file(link="1/b"), "1/d": file("d")}


def test_the_other_half_of_a_pair_may_come_later() -> None:
    assert find_unkept(ALONE, {"1/a": file(link="1/a"), "1/b": file(link="1/a")}) == ""


def test_a_group_may_have_another_first_path() -> None:
    assert find_unkept(PAIR, {"1/a": file(link="1/a"), "1/b": file(link="1/a"), "1/c": file(link="1/a"), "1/d": file("d")}) == ""
    assert find_unkept(PAIR, PAIR) == ""


@pytest.mark.parametrize(
    ("final", "path"),
    [
        ({**PAIR, "1/d": file("other")}, "1/d"),
        ({name: entry for name, entry in PAIR.items() if name != "1/d"}, "1/d"),
        ({**PAIR, "1/c": file()}, "1/c"),
        ({**PAIR, "1/b": file(), "1/c": file()}, "1/b"),
        ({**PAIR, "1/d": {**file("d"), "mode": 0}}, "1/d"),
    ],
    ids=["another content", "gone", "one is a copy now", "both are copies now", "another mode"],
)
def test_what_is_gone_changed_or_parted_is_named(final: Listing, path: str) -> None:
    assert find_unkept(PAIR, final) == path


def test_directories_are_not_looked_at() -> None:
    assert find_unkept({"1": {"kind": "d", "mode": 448}}, {}) == ""
