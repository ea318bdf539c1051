"""Damage as a value: its text, its bytes, and what is no damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.actions import format_plan, parse_plan
from chaos.corrupt.damage import FORMS, Damage, apply_damage, apply_near, format_damage, parse_damage
from eventlog.errors import MisuseError

DATA = bytes(range(100))
OLDER = b"older" * 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flip 3 0", DATA[:3] + b"\x02" + DATA[4:]),
        ("flip 103 0", DATA[:3] + b"\x02" + DATA[4:]),
        ("zero 90 20", DATA[:90] + bytes(10)),
        ("cut 1", DATA[:-1]),
        ("cut 1000", b""),
        ("swap 0 50 10", DATA[50:60] + DATA[10:50] + DATA[:10] + DATA[60:]),
        ("stale 10 5", DATA[:10] + b"older" + DATA[15:]),
        ("stale", OLDER),
    ],
)
def test_each_kind_does_what_its_text_says(text: str, expected: bytes) -> None:
    assert format_damage(parse_damage(text)) == text
    assert apply_damage(parse_damage(text), DATA, OLDER) == expected


@pytest.mark.parametrize("text", ["", "flip", "flip 1", "flip -1 2", "stale 1", "melt 1 2", "cut x"])
def test_what_is_no_damage_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(MisuseError, match="is no damage; use 'flip OFFSET BIT'"):
        parse_damage(text)


@pytest.mark.parametrize(("text", "data"), [("zero 0 4", bytes(8)), ("cut 0", DATA), ("swap 0 4 4", b"abcdabcd"), ("stale", OLDER)])
def test_damage_that_changes_no_byte_is_none(text: str, data: bytes) -> None:
    assert apply_damage(parse_damage(text), data, OLDER) is None


def test_a_block_that_is_already_so_is_passed_over_for_the_next() -> None:
    done = apply_near(parse_damage("zero 0 4"), bytes(4) + b"full" + bytes(4), b"")
    assert done == (Damage("zero", (4, 4)), bytes(12))
    assert apply_near(parse_damage("zero 0 4"), bytes(12), b"") is None


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=200), st.sampled_from(sorted(FORMS)), st.tuples(*[st.integers(0, 500)] * 3))
def test_damage_is_never_silent_about_having_changed_nothing(data: bytes, older: bytes, kind: str, numbers: tuple[int, int, int]) -> None:
    for count in FORMS[kind].counts:
        damage = Damage(kind, numbers[:count])
        changed = apply_damage(damage, data, older)
        assert changed is None or changed != data
        near = apply_near(damage, data, older)
        assert near is None or apply_damage(near[0], data, older) == near[1] != data


def test_a_plan_with_damage_is_read_back_and_wrong_names_are_told() -> None:
    text = 'kill driver@1:outcome.commit.before:2; corrupt "blob.2" "flip 100 3"'
    assert format_plan(parse_plan(text)) == text
    for wrong in ('corrupt "blob" "flip 1 1"', 'corrupt "clock" "cut 1"', 'corrupt "log"', 'corrupt "log" "cut"'):
        with pytest.raises(MisuseError, match="cannot be damaged|is no damage"):
            parse_plan(wrong)
