"""Rule S1: one locked record per resolved root; equal, ancestor and descendant roots are refused by the holder's name."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import MisuseError
from eventlog.ports import SystemClock
from recovery.opening import check_places
from recovery.space.holders import Holders
from recovery.space.places import Place, locate, look_at, overlap
from tests.recovery.space.ledgers import fork
from tests.recovery.workspace.support import run_with_own_mounts


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
    state = tmp_path / "s1"
    says = f"is held by session:one.*; finish it with `recovery drive {state}`.*, or free .* `recovery release {state}`"
    with pytest.raises(MisuseError, match=says):
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


def refused(holders: Holders, root: str) -> None:
    with pytest.raises(MisuseError, match="is held by session:one"):
        holders.claim(root, "two", "/s2", running)


def spell(base: Path, held: Path) -> dict[str, str]:
    """Other ways to say the held directory, one above it and one in it."""
    (base / "link").symlink_to(held)
    (base / "over").symlink_to(held.parent)
    (base / "chain").symlink_to("link")
    return {
        "slashes": f"{held}///",
        "dots": f"{held}/inner/../../{held.name}/.",
        "a link": f"{base}/link",
        "a link to a link": f"{base}/chain",
        "in a linked directory": f"{base}/over/{held.name}/inner",
        "through an outer link and back": f"{base}/over/{held.name}/..",
        "inner through a link": f"{base}/link/inner/deep",
        "not there yet": f"{base}/link/new/newer",
    }


@pytest.mark.parametrize("way", ["slashes", "dots", "a link", "a link to a link", "in a linked directory", "through an outer link and back",
                                 "inner through a link", "not there yet"])  # fmt: skip
def test_rule_S1_one_root_by_any_spelling_is_held(tmp_path: Path, holders: Holders, way: str) -> None:
    held = tmp_path / "tree" / "w"
    (held / "inner" / "deep").mkdir(parents=True)
    ways = spell(tmp_path, held)
    holders.claim(str(held), "one", "/s1", running)
    refused(holders, ways[way])
    holders.release(str(held), "one", "/s1")
    assert holders.claim(ways[way], "one", "/s1", running)
    assert holders.held_by("one", "/s1") == [os.path.realpath(ways[way])]
    refused(holders, str(held))


def test_rule_S1_names_that_differ_in_case_are_free_where_case_counts(tmp_path: Path, holders: Holders) -> None:
    for name in ("w", "W"):
        (tmp_path / name).mkdir(exist_ok=True)
    if os.path.samefile(tmp_path / "w", tmp_path / "W"):
        pytest.skip("this file system knows no case")
    holders.claim(str(tmp_path / "w"), "one", "/s1", running)
    assert holders.claim(str(tmp_path / "W"), "two", "/s2", running)


def test_rule_S1_a_bind_mount_of_a_held_tree_is_held(tmp_path: Path, holders: Holders) -> None:
    """The root itself, an ancestor, something in it, and something in a bind mount of a part of it: no path leads from one to the other."""
    held = tmp_path / "tree" / "w"
    (held / "inner" / "deep").mkdir(parents=True)
    for name in ("same", "above", "inside", "beside"):
        (tmp_path / name).mkdir()
    (tmp_path / "tree" / "free").mkdir()

    def work() -> None:
        for source, target in ((held, "same"), (held.parent, "above"), (held / "inner", "inside"), (held.parent / "free", "beside")):
            subprocess.run(["mount", "--bind", str(source), str(tmp_path / target)], check=True)
        holders.claim(str(held), "one", "/s1", running)
        for root in ("same", "same/inner", "above", "above/w", "above/w/inner/deep", "inside", "inside/deep"):
            refused(holders, str(tmp_path / root))
        assert holders.claim(str(tmp_path / "beside"), "two", "/s2", running)
        assert not overlap(look_at(str(tmp_path / "beside")), look_at(str(held)))
        inner = ((held, "same/s"), (held, "inside/s"), (tmp_path / "inside", "tree/w/inner/s"), (tmp_path / "same", "tree/w/s"))
        for workspace, state in inner:
            with pytest.raises(MisuseError, match="the state directory .* lies inside the workspace"):
                check_places(str(tmp_path / state), str(workspace))
        with pytest.raises(MisuseError, match="the workspace .* lies inside the state directory"):
            check_places(str(held), str(tmp_path / "inside"))

    run_with_own_mounts(work)


TABLE = [
    b"1 0 8:1 / / rw - ext4 /dev/a rw\n",
    b"2 1 8:2 /part /mnt/in\\040ner rw - ext4 /dev/b rw\n",
    b"3 1 8:3 / /mnt rw - ext4 /dev/c rw\n",
    b"4 1 8:4 /old /twice rw - ext4 /dev/d rw\n",
    b"5 4 8:5 /new /twice rw - ext4 /dev/e rw\n",
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/w/a", (b"8:1", b"/w/a")),
        (b"/", (b"8:1", b"/")),
        (b"/mnt/in ner/x", (b"8:2", b"/part/x")),
        (b"/mnt/in ner", (b"8:2", b"/part")),
        (b"/mnt/inner", (b"8:3", b"/inner")),
        (b"/mntx", (b"8:1", b"/mntx")),
        (b"/twice/x", (b"8:5", b"/new/x")),
    ],
)
def test_the_nearest_mount_says_where_a_path_lies_and_the_last_at_one_point(path: bytes, expected: tuple[bytes, bytes]) -> None:
    assert locate(path, TABLE) == expected
    assert locate(path, []) == (b"", b"")


A = Place(b"/w/a", ((1, 5), (1, 4), (1, 2)), b"8:1", b"/w/a")


@pytest.mark.parametrize(
    "other",
    [
        Place(b"/w/a", (None, (1, 4), (1, 2)), b"", b""),
        Place(b"/w/a/new", (None, None, (1, 4), (1, 2)), b"", b""),
        Place(b"/w", (None, (1, 2)), b"", b""),
        Place(b"/W/A", ((1, 5), (1, 4), (1, 2)), b"", b""),
        Place(b"/W/A/b", ((1, 6), (1, 5), (1, 4), (1, 2)), b"", b""),
        Place(b"/elsewhere", ((1, 4), (1, 2)), b"", b""),
        Place(b"/mnt/x", ((2, 9), (2, 8)), b"8:1", b"/w/a"),
        Place(b"/mnt/x", ((2, 9), (2, 8)), b"8:1", b"/w/a/b/c"),
        Place(b"/mnt/x", ((2, 9), (2, 8)), b"8:1", b"/w"),
    ],
    ids=["path", "path below", "path above", "inode", "inode below", "inode above", "place", "place below", "place above"],
)
def test_rule_S1_each_witness_is_enough(other: Place) -> None:
    assert overlap(A, other) and overlap(other, A)


@pytest.mark.parametrize(
    "other",
    [
        Place(b"/w/ab", ((1, 7), (1, 4), (1, 2)), b"8:1", b"/w/ab"),
        Place(b"/w/b", (None, (1, 4), (1, 2)), b"8:1", b"/w/b"),
        Place(b"/mnt/x", ((2, 5), (2, 4)), b"8:2", b"/w/a"),
        Place(b"/x", (None, None), b"", b""),
    ],
    ids=["begins alike", "beside", "another file system", "nothing known"],
)
def test_rule_S1_what_shares_nothing_is_free(other: Place) -> None:
    assert not overlap(A, other) and not overlap(other, A)
    assert not overlap(Place(b"/y", (None,), b"", b""), Place(b"/x", (None,), b"", b""))


def test_rule_S1_of_many_that_claim_overlapping_roots_at_once_one_holds(tmp_path: Path) -> None:
    """Again and again: the tree, an ancestor, a descendant and a link to it, each by a process of its own."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "l").symlink_to("a/b")
    for turn in range(25):
        told, tell = os.pipe()

        def work(number: int, root: str, directory: str = str(tmp_path / f"holders{turn}"), tell: int = tell) -> None:
            try:
                Holders(directory, SystemClock()).claim(str(tmp_path / root), f"n{number}", f"/s{number}", running)
            except MisuseError as error:
                assert "is held by session:n" in str(error)
                return
            os.write(tell, b".")

        children = [fork(lambda number=number, root=root: work(number, root)) for number, root in enumerate(("a", "a/b", "a/b/c", "l"))]  # type: ignore[misc]
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
        assert os.read(told, 10) == b"."
        assert len(list((tmp_path / f"holders{turn}").glob("*.json"))) == 1
        os.close(told)
        os.close(tell)


def test_case_22_a_record_cut_at_any_byte_or_with_zeros_in_it_is_named_and_blocks(tmp_path: Path, holders: Holders) -> None:
    holders.claim("/w/caf\u00e9", "one", "/s1", running)
    (record,) = (tmp_path / "holders").glob("*.json")
    data = record.read_bytes()
    spoiled = [data[:length] for length in range(len(data))] + [data[:9] + bytes(512) + data[9:], data[:9] + bytes(9) + data[18:]]
    for text in spoiled:
        record.write_bytes(text)
        with pytest.raises(MisuseError, match=f"{record}: not a holder record; look at it, and remove it when no session uses"):
            holders.claim("/elsewhere", "two", "/s2", running)
        assert record.read_bytes() == text


def test_a_record_that_is_a_directory_is_named(tmp_path: Path, holders: Holders) -> None:
    (tmp_path / "holders" / "0.json").mkdir()
    with pytest.raises(MisuseError, match="0.json: not a holder record"):
        holders.claim("/w", "one", "/s1", running)
