"""The rule of the mode `corrupt`, on answers made by hand: each way to break it is a failure, and nothing compared is unknown."""


from dataclasses import replace

import pytest

from chaos.corrupt.commands import Said
from chaos.corrupt.judge import judge_answers, judge_drive, judge_untouched
from chaos.results import Verdict

SHOW = Said("eventlog show", 0, "one\ntwo\nthree\n", "")
VERIFY = Said("eventlog verify", 0, "sound: 3 events\n", "")
ANCHORED = Said("eventlog verify", 0, "sound: 3 events\nanchor: unchanged\n", "")
DIFF = Said("eventlog diff", 1, "M a\n", "")
CHECKOUT = Said("eventlog checkout", 0, "", "", {"a": "1"})
PLAN = Said("recovery plan", 2, "adopt_exit\n", "")
INTACT = (SHOW, VERIFY, ANCHORED, DIFF, CHECKOUT, PLAN)
TOLD = "eventlog: log.sqlite: seq 3 does not hash to its name; run `eventlog doctor log.sqlite`\n"
TRACE = 'Traceback (most recent call last)\n  File "x.py"\nValueError: x\n'


def put(name: int, **changes: object) -> tuple[Said, ...]:
    return tuple(replace(one, **changes) if number == name else one for number, one in enumerate(INTACT))  # type: ignore[arg-type]


def test_equal_answers_are_harmless_and_an_error_with_a_way_out_is_detection() -> None:
    verdict, end = judge_answers(INTACT, INTACT)
    assert (verdict.verdict, end) == (Verdict.PASS, "harmless")
    for number in range(len(INTACT)):
        name = INTACT[number].command.partition(" ")[0]
        verdict, end = judge_answers(INTACT, put(number, code=1, out="", err=TOLD.replace("eventlog:", f"{name}:")))
        assert (verdict.verdict, end) == (Verdict.PASS, "detected"), (number, verdict)


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (0, {"out": "one\ntwo\n"}),  # shorter, and no anchor has said so
        (0, {"out": "one\nTWO\nthree\n"}),
        (3, {"out": "M b\n"}),
        (4, {"tree": {"a": "2"}}),
        (4, {"tree": None}),
        (0, {"code": 1, "err": TRACE}),
        (0, {"code": 1, "out": "", "err": "eventlog: oh\n"}),
        (0, {"code": 1, "out": "", "err": ""}),
        (0, {"code": -11, "out": ""}),
        (5, {"code": 70, "out": "", "err": "recovery: a bug; look\n"}),
        (5, {"code": 75, "out": "", "err": "recovery: below the floor, a newer epoch exists; stop\n"}),
        (5, {"code": 0, "out": "nothing to recover\n"}),
    ],
)
def test_each_silent_or_broken_answer_is_a_failure(number: int, changes: dict[str, object]) -> None:
    verdict, _ = judge_answers(INTACT, put(number, **changes))
    assert verdict.verdict is Verdict.FAIL


def test_a_shorter_history_passes_only_where_it_is_a_beginning_and_the_anchor_says_so() -> None:
    cut = replace(ANCHORED, code=1, out="cut tail: the anchor names seq 3\n")
    short = (replace(SHOW, out="one\ntwo\n"), replace(VERIFY, out="sound: 2 events\n"), cut, *INTACT[3:])
    verdict, end = judge_answers(INTACT, short)
    assert (verdict.verdict, end) == (Verdict.PASS, "cut tail")
    for wrong in ((replace(SHOW, out="one\nthree\n"), *short[1:]), (short[0], short[1], ANCHORED, *short[3:])):
        assert judge_answers(INTACT, wrong)[0].verdict is Verdict.FAIL


@pytest.mark.parametrize("show", [SHOW, replace(SHOW, out=""), replace(SHOW, code=1, out="", err=TOLD)])
def test_other_files_are_no_cut_tail_where_the_history_is_not_a_shorter_one(show: Said) -> None:
    told = replace(ANCHORED, code=1, out="a content is another one\n")
    for wrong in (replace(CHECKOUT, tree={"a": "2"}), replace(DIFF, out="M b\n")):
        now = (show, VERIFY, told, *(wrong if one.command == wrong.command else one for one in INTACT[3:]))
        assert judge_answers(INTACT, now)[0].verdict is Verdict.FAIL


def test_an_empty_comparison_is_unknown() -> None:
    assert judge_answers((), ())[0].verdict is Verdict.UNKNOWN
    assert judge_untouched({}, {}).verdict is Verdict.UNKNOWN


def test_a_command_that_only_looks_and_changed_a_file_is_a_failure() -> None:
    assert judge_untouched({"log": "1"}, {"log": "1"}).verdict is Verdict.PASS
    for after in ({"log": "2"}, {}, {"log": "1", "new": "3"}):
        assert judge_untouched({"log": "1"}, after).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("code", "err", "tree", "verdict"),
    [
        (0, "", {"a": "1"}, Verdict.PASS),
        (0, "", {"a": "2"}, Verdict.FAIL),
        (0, "", {}, Verdict.FAIL),
        (78, TOLD.replace("eventlog:", "recovery:"), {}, Verdict.PASS),
        (78, "recovery: no\n", {}, Verdict.FAIL),
        (70, TRACE, {"a": "1"}, Verdict.FAIL),
        (75, TOLD, {"a": "1"}, Verdict.FAIL),
    ],
)
def test_a_driver_reaches_the_same_end_or_refuses_with_a_sentence(code: int, err: str, tree: dict[str, str], verdict: Verdict) -> None:
    assert judge_drive(Said("recovery drive", code, "", err), "detected", tree, {"a": "1"}).verdict is verdict


def test_a_driver_that_refuses_what_no_other_command_tells_of_is_a_failure() -> None:
    refused = Said("recovery drive", 78, "", TOLD.replace("eventlog:", "recovery:"))
    assert judge_drive(refused, "harmless", {}, {"a": "1"}).verdict is Verdict.FAIL
