"""From sizes to trials: what is enumerated, what the seed draws, what would change nothing."""

import random

import pytest

from chaos.corrupt.damage import Damage
from chaos.corrupt.draw import DULL, FRAME_BYTES, PAGE_BYTES, enumerate_damage, format_size, list_damage, list_dull, required_of_damage
from chaos.results import Recording, Trial, TrialResult, Verdict
from eventlog.errors import MisuseError
from tests.chaos.fakes import make_scenario

RESULT = TrialResult(Trial(0, "small", ()), Verdict.PASS, "", (), (), (), {}, 0, 0, 0.0)


def test_every_page_and_frame_is_zeroed_swapped_and_stale() -> None:
    log = list_damage("log", 3 * PAGE_BYTES, random.Random(1))
    assert [one.numbers[0] for one in log if one.kind == "zero"] == [0, PAGE_BYTES, 2 * PAGE_BYTES]
    assert Damage("swap", (0, PAGE_BYTES, PAGE_BYTES)) in log and Damage("stale") in log and Damage("cut", (3 * PAGE_BYTES,)) in log
    wal = list_damage("wal", 32 + 2 * FRAME_BYTES, random.Random(1))
    assert [one.numbers for one in wal if one.kind == "stale" and one.numbers] == [(32, FRAME_BYTES), (32 + FRAME_BYTES, FRAME_BYTES)]


def test_the_seed_draws_bits_and_nothing_else() -> None:
    recording = Recording("small", (format_size("log", 2 * PAGE_BYTES), format_size("manifest.1", 900)), RESULT)
    plans = [[trial.plan for trial in enumerate_damage(recording, 1, seed).trials] for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2] and len(plans[0]) == len(plans[2])
    still = [[plan for plan in one if not str(plan[-1].content).startswith("flip")] for one in plans]
    assert still[0] == still[2]
    assert all(trial.fault == trial.entry == "corrupt" for trial in enumerate_damage(recording, 1, 1).trials)


def test_what_would_change_nothing_is_named_and_no_trial() -> None:
    data = bytes(512) + b"x" * 512
    dull = list_dull("content.1", data, data)
    assert "content.1: zero 0 512" in dull and "content.1: stale" in dull and "content.1: zero 512 512" not in dull
    made = enumerate_damage(Recording("small", (format_size("content.1", 1024), *dull), RESULT), 1, 1)
    tried = {f"content.1: {trial.plan[-1].content}" for trial in made.trials}
    assert not tried.intersection(dull) and "content.1: zero 512 512" in tried
    assert [(one.step, one.reason) for one in made.unreachable] == [(one, DULL) for one in dull]


def test_a_recording_that_is_not_understood_is_refused() -> None:
    with pytest.raises(MisuseError, match="does not say what can be damaged"):
        enumerate_damage(Recording("small", ("driver@1:start:1",), RESULT), 1, 1)


def test_a_trial_of_damage_must_be_judged_by_the_oracles_of_damage() -> None:
    plan = enumerate_damage(Recording("small", (format_size("log", 10),), RESULT), 1, 1).trials[0].plan
    assert required_of_damage(make_scenario(), plan) == {"damage", "looked-only", "driven"}
    assert required_of_damage(make_scenario()) == {"sound"}


def test_of_a_record_or_a_blob_only_what_is_its_own_is_damaged() -> None:
    kinds = {name: {one.kind for one in list_damage(name, 400, random.Random(1))} for name in ("record.1", "blob.1", "content.1")}
    assert kinds["record.1"] == {"flip"} and kinds["blob.1"] == {"flip", "zero", "stale"} and "cut" in kinds["content.1"]
