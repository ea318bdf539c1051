"""The suite of spaces is judged too: each of these wrong spaces, one line away from the space in memory, fails the test of the rule it
breaks."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from eventlog.errors import CrashworthyError, InternalError
from recovery.space import memory
from recovery.space.conformance import memory_subject, test_epochs, test_exits, test_files, test_keys
from recovery.space.conformance.subject import Subject

SOURCE = Path(memory.__file__).read_text("utf-8")
Test = Callable[..., object]
FAILS = (AssertionError, pytest.fail.Exception, CrashworthyError, InternalError)

WRONG: dict[str, tuple[str, str, Test]] = {
    "a key runs again": (
        "        digest = digest_request(request)\n        if (how := self._judge",
        "        digest = digest_request(request)\n"
        "        if judge_key(self._world.state, request.key, None, digest).__class__ is Replay:\n"
        '            self._world.begin(request)\n            return "started"\n        if (how := self._judge',
        test_keys.test_rule_S4_a_key_that_ended_is_replayed_with_the_same_bytes,
    ),
    "another request passes": (
        "judge_key(self._world.state, key, None, digest)",
        "(lambda known: judge_key(self._world.state, key, None, known.prepared.digest if known else digest))"
        "(self._world.state.find(key))",
        test_keys.test_rule_S4_the_same_key_with_another_request_is_refused_and_nothing_runs,
    ),
    "a stale start passes": (
        "check_at_floor(epoch, self._world.state.floor, NAME)",
        "check_epoch(epoch)",
        test_epochs.test_rule_S4_below_the_floor_nothing_is_started_or_ended,
    ),
    "a start raises the floor": (
        "check_at_floor(epoch, self._world.state.floor, NAME)",
        "check_at_floor(max(epoch, 0) and min(epoch, self._world.state.floor), self._world.state.floor, NAME)",
        test_epochs.test_only_an_advance_raises_the_floor,
    ),
    "an epoch is shared": (
        "check_advance(epoch, state.floor, NAME)",
        "check_epoch(epoch)\n        if epoch == state.floor:\n            return Advanced(epoch, (), ())",
        test_epochs.test_two_never_have_one_epoch,
    ),
    "what is condemned lives on": (
        "            self._world.kill(key, is_recorded=False)",
        "            pass",
        test_epochs.test_rule_T2_what_is_not_claimed_is_dead_when_the_advance_returns,
    ),
    "what is claimed dies": (
        'if fate == "condemned")\n        for key in condemned:',
        'if fate in ("condemned", "claimed"))\n        for key in condemned:',
        test_epochs.test_rule_T2_what_is_claimed_goes_on_and_its_exit_is_clean,
    ),
    "what cannot be claimed is said to be": (
        "return frozenset(CAPABILITIES)",
        'return frozenset(CAPABILITIES) - {"claim"}',
        test_epochs.test_a_running_key_is_claimed_or_the_claim_is_refused_before_anything,
    ),
    "a child that left its group lives on": (
        "            self._world.kill(key, is_recorded=False)",
        "            pass",
        test_epochs.test_what_left_its_group_and_session_is_dead_when_the_advance_returns,
    ),
    "a stale end passes": (
        "        self._check_not_stale(epoch)\n        self._find(key)\n        self._world.kill(key, is_recorded=True)",
        "        self._find(key)\n        self._world.kill(key, is_recorded=True)",
        test_epochs.test_rule_S4_below_the_floor_nothing_is_asked_for_in_vain,
    ),
    "a stale wait goes on": (
        "            self._check_not_stale(epoch)\n            self._find(key)\n            self._world.run()",
        "            self._find(key)\n            self._world.run()\n            if self._world.state.floor > epoch:\n"
        '                return Ended(key, AttemptWord.EXITED, epoch, Exit("exited", code=0))',
        test_epochs.test_a_waiting_handle_notices_a_newer_epoch,
    ),
    "a signal becomes a code": (
        "                case Finish(exit_):\n                    return exit_",
        '                case Finish(exit_):\n                    return Exit("exited", code=exit_.code or 128 + (exit_.signal or 0))',
        test_exits.test_case_33_a_signal_is_no_code,
    ),
    "what was never executed has a code": (
        'Exit("start_failed", error="ENOENT: no such program")',
        'Exit("exited", code=127)',
        test_exits.test_what_cannot_be_executed_never_ran_and_says_why,
    ),
    "a time limit is no exit of its own": (
        'return Exit("timed_out", signal=15)',
        'return Exit("signaled", signal=15)',
        test_exits.test_a_time_limit_ends_a_command_and_says_so,
    ),
    "streams run together": (
        'stream if process.request.separate else "out"',
        '"out"',
        test_exits.test_the_streams_are_kept_apart_when_asked,
    ),
    "a change of files is made again": (
        "            self._world.change(request)\n        return how",
        "            self._world.change(request)\n        change_file(self._world.files, request.act)\n        return how",
        test_files.test_rule_S4_a_change_that_is_asked_for_again_is_replayed_without_a_second_effect,
    ),
    "a change of files is fenced by its key alone": (
        "        digest = digest_files(request)\n        if (how := self._judge(epoch, ",
        "        digest = digest_files(request)\n        if (how := self._judge(self._world.state.floor, ",
        test_files.test_rule_S4_below_the_floor_no_file_is_changed,
    ),
    "another change passes": (
        "        digest = digest_files(request)\n",
        '        digest = "files"\n',
        test_files.test_rule_S4_the_same_key_with_another_change_is_refused,
    ),
    "a change that cannot be is a success": (
        "code=1 if refusal else 0",
        "code=0",
        test_files.test_what_cannot_be_changed_is_recorded_with_its_reason_and_changes_nothing,
    ),
    "output is held back": (
        "            while sink is not None and heard < len(said):",
        "            while sink is not None and heard < len(said) and self.look(key) is not None:",
        test_exits.test_output_comes_while_the_command_runs,
    ),
}


def make_subject(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """The suite's subject over a space of this source; its waits give up after a bounded number of naps."""
    spec = spec_from_loader(name, loader=None)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, name, "exec"), vars(module))
    finally:
        del sys.modules[name]
    for one in ("Await", "Finish", "MemorySpace", "MemoryWorld", "Say"):
        monkeypatch.setattr(memory_subject, one, getattr(module, one))
    subject = memory_subject.MemorySubject()
    naps = iter(range(1000))
    pause = subject.clock.pause

    def nap(seconds: float) -> None:
        if next(naps, None) is None:
            pytest.fail("waited 1,000 naps")
        pause(seconds)

    monkeypatch.setattr(subject.clock, "pause", nap)
    return subject


def run(test: Test, subject: Subject, **values: object) -> None:
    names = test.__code__.co_varnames[: test.__code__.co_argcount]  # type: ignore[attr-defined]
    space = subject.open()
    given: dict[str, object] = {"subject": subject, "space": space, **values}
    if "space" in names:
        space.advance(1)
    test(**{name: given[name] for name in names})


VALUES: dict[str, object] = {"number": 9, "code": 137, "epoch": 0}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_space_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, test = WRONG[name]
    assert SOURCE.count(right) == 1, f"{name}: the line it changes is there {SOURCE.count(right)} times"
    run(test, make_subject("right_space", SOURCE, monkeypatch), **VALUES)
    subject = make_subject("wrong_space", SOURCE.replace(right, wrong), monkeypatch)
    with pytest.raises(FAILS):
        run(test, subject, **VALUES)
