"""The judge of the standard workload: each kind of violation is seen by its own name, and a sound end by none."""


from dataclasses import replace

import pytest

from chaos.results import Verdict
from chaos.target.workload import VIOLATIONS, End, find_blind, judge_end

SOUND = End(2, ("did 1", "ack 1", "did 2", "ack 2"), ("1", "2"), ("1", "2"))


def failed(end: End) -> dict[str, str]:
    return {one.oracle: one.detail for one in judge_end(end) if one.verdict is Verdict.FAIL}


def test_a_sound_end_has_no_violation_and_every_kind_is_asked() -> None:
    assert failed(SOUND) == {}
    assert [one.oracle for one in judge_end(SOUND)] == list(VIOLATIONS)
    assert find_blind(SOUND) == ""


@pytest.mark.parametrize(
    ("end", "kinds"),
    [
        (replace(SOUND, witness=("did 1", "did 1", "ack 1", "did 2", "ack 2")), {"ran-twice": "step 1 ran 2 times"}),
        (replace(SOUND, witness=("did 1", "ack 1", "ack 2")), {"step-lost": "step 2 is not in witness"}),
        (replace(SOUND, left=("1", "1", "2")), {"half-applied": "step 1 stands 2 times in left and 1 times in right"}),
        (replace(SOUND, left=("1", "1", "2"), right=("1", "2", "1")), {"applied-twice": "step 1 was applied 2 times"}),
        (replace(SOUND, right=("1", "2", "x")), {"half-applied": "right holds 'x', which no step writes"}),
        (
            replace(SOUND, witness=("did 1", "ack 1", "did 1", "did 2", "ack 2")),
            {"ran-twice": "step 1 ran 2 times", "acknowledged-lost": "step 1 ran again after it was acknowledged"},
        ),
        (
            replace(SOUND, left=("1",), right=("1",)),
            {"step-lost": "step 2 is not in left", "acknowledged-lost": "step 2 was acknowledged and is not in the workspace"},
        ),
    ],
)
def test_each_violation_has_its_kind(end: End, kinds: dict[str, str]) -> None:
    assert failed(end) == kinds


def test_an_acknowledgement_that_a_crash_cut_off_is_no_violation() -> None:
    assert failed(replace(SOUND, witness=("did 1", "ack 1", "did 2"))) == {}


def test_nothing_at_all_is_lost_steps() -> None:
    assert failed(End(2, (), (), ())) == {"step-lost": "step 1 is not in witness"}


def test_a_target_that_never_acknowledges_cannot_be_judged_by_what_it_acknowledged() -> None:
    assert find_blind(replace(SOUND, witness=("did 1", "did 2"))) == "acknowledged-lost"
