"""The suite is judged too: each of these wrong stores, one line away from the store in memory, fails the test of the rule it breaks."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from eventlog import memory_store
from eventlog.conformance import test_appends, test_chain, test_handles, test_histories, test_reading, test_repeats
from eventlog.errors import CrashworthyError, InternalError
from eventlog.store import Store

SOURCE = Path(memory_store.__file__).read_text("utf-8")
Test = Callable[..., object]
FAILS = (AssertionError, pytest.fail.Exception, CrashworthyError, InternalError)
"""A test fails by its own word, or by an error that it did not ask for."""

WRONG: dict[str, tuple[str, str, Test]] = {
    "a stale append stands": (
        "        raise _stale(found.id, epoch, found.floor)\n    if epoch > found.floor:",
        "        return found.floor\n    if epoch > found.floor:",
        test_appends.test_rule_I5_an_append_below_the_floor_is_refused_and_nothing_is_written,
    ),
    "an equal epoch is shared": (
        "    if epoch == found.floor:\n        raise EpochTakenError(",
        "    if epoch == -1:\n        raise EpochTakenError(",
        test_appends.test_rule_L1_an_equal_epoch_is_taken_and_a_lower_one_is_stale,
    ),
    "a moved head is overlooked": (
        "if after is not None and len(found.rows) != after:",
        "if after is not None and len(found.rows) > after:",
        test_appends.test_rule_L2_a_driver_that_expects_another_head_raises_nothing,
    ),
    "blobs of a refused append stay": (
        "        rows = _chain(log, found, epoch, prepared)\n        _check_contents(log, prepared, blobs)",
        "        _insert_blobs(log, blobs)\n        rows = _chain(log, found, epoch, prepared)\n"
        "        _check_contents(log, prepared, blobs)",
        test_appends.test_rule_I2_an_append_is_whole_or_not_at_all,
    ),
    "contents are not asked for": (
        "            if content not in log.blobs and content not in given:",
        "            if content not in log.blobs and content not in given and not item.changes:",
        test_appends.test_rule_I2_an_event_comes_in_only_with_every_content_it_names,
    ),
    "anything may be unfenced": (
        "if record.event.kind not in events.UNFENCED_KINDS:",
        "if record.event.kind == 'never':",
        test_repeats.test_rule_L2_unfenced_are_notes_and_inputs_only_and_stand_under_the_floor_of_then,
    ),
    "something follows session_moved": (
        "if found.rows[-1].kind == events.SessionMoved.kind:",
        "if found.rows[-1].kind == 'never':",
        test_appends.test_rule_L8_nothing_follows_session_moved,
    ),
    "an input is admitted twice": (
        "        if found is None or prepared.request_id not in found.requests:",
        "        if True:",
        test_repeats.test_rule_L2_an_input_is_admitted_once_for_each_request_whoever_sends_it,
    ),
    "a repeated append stands twice": (
        "        if recorded:\n            return recorded",
        "        if recorded:\n            prepared = [self._prepare(Record(events.Noted(0, 'again')))]",
        test_repeats.test_rule_L7_records_with_ids_are_written_once_and_answered_with_where_they_stand,
    ),
    "an id is used for two events": (
        "if (stream, row.kind, row.payload, row.changes) != (found.id, item.kind, item.payload, item.changes):",
        "if stream != found.id:",
        test_repeats.test_rule_L7_an_id_belongs_to_one_event_for_ever,
    ),
    "events of one append are not chained": (
        "        previous, floor = digest, epoch",
        "        floor = epoch",
        test_chain.test_rule_I9_every_hash_is_that_of_the_formula,
    ),
    "changes are not hashed": (
        "changed = changes_digest(item.changes) if item.changes else NO_CHANGES",
        "changed = NO_CHANGES",
        test_chain.test_rule_I9_every_hash_is_that_of_the_formula,
    ),
    "other ids than the given ones": (
        "        ids.new_id()  # the",
        "        # the",
        test_chain.test_rule_I9_equal_ids_and_records_make_equal_events_and_hashes_in_every_store,
    ),
    "the redaction comes late": (
        'event = redact_event(record.event, self._redact, "memory")',
        'event = redact_event(record.event, None, "memory")',
        test_chain.test_a_redaction_sees_every_event_first_and_a_redacted_call_says_so,
    ),
    "events are given again": (
        "found.rows[after.seq :], after.seq + 1)",
        "found.rows[max(0, after.seq - 1) :], max(1, after.seq))",
        test_reading.test_events_after_a_position_continue_there,
    ),
    "another event is continued": (
        "if after != BEGINNING and _position(found, after.seq) != after:",
        "if False:",
        test_reading.test_rule_I9_events_do_not_continue_after_an_event_that_is_another_one,
    ),
    "an image lacks its newest change": (
        "found.rows[: max(0, upto)]",
        "found.rows[: max(0, upto - 1)]",
        test_reading.test_an_image_is_the_fold_of_the_changes_up_to_an_event,
    ),
    "the newest blob wins": (
        "log.blobs.setdefault(blob.content, blob)",
        "log.blobs[blob.content] = blob",
        test_reading.test_contents_are_addressed_by_what_they_are_and_the_first_blob_stays,
    ),
    "a missing log is made": (
        '            raise LogMissingError("memory: there is no log here; a missing log is never made anew")',
        '            self._log = _Log(LogId("0" * 32))',
        test_handles.test_rule_L9_a_log_that_is_not_there_is_missing_and_is_never_made_by_opening,
    ),
    "a log is made over another": (
        "        if self._log is not None:\n            raise FileExistsError",
        "        if self._log == 0:\n            raise FileExistsError",
        test_handles.test_rule_L9_a_log_is_not_made_over_one_that_is_there,
    ),
    "a closed handle writes on": (
        "        self._log = None\n        self._reader.close()",
        "        self._reader.close()",
        test_handles.test_a_closed_handle_refuses_and_does_nothing,
    ),
}


def load_store(name: str, source: str) -> Store:
    """A new store of a module with this source."""
    spec = spec_from_loader(name, loader=None)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, name, "exec"), vars(module))
    finally:
        del sys.modules[name]
    store: Store = module.make(Path("nowhere"))
    return store


def arguments_of(test: Test, store: Store, directory: Path) -> dict[str, object]:
    given: dict[str, object] = {"store": store, "tmp_path": directory}
    return {name: given[name] for name in test.__code__.co_varnames[: test.__code__.co_argcount]}


@pytest.mark.parametrize(("old", "new", "test"), WRONG.values(), ids=WRONG)
def test_a_wrong_store_fails_the_test_of_its_rule(old: str, new: str, test: Test, tmp_path: Path) -> None:
    assert SOURCE.count(old) == 1
    for name in ("sound", "wrong"):
        (tmp_path / name).mkdir()
    test(**arguments_of(test, load_store("sound_store", SOURCE), tmp_path / "sound"))
    with pytest.raises(FAILS):
        test(**arguments_of(test, load_store("wrong_store", SOURCE.replace(old, new)), tmp_path / "wrong"))


@pytest.mark.parametrize("wrong", ["a stale append stands", "an equal epoch is shared", "an input is admitted twice"])
def test_drawn_histories_find_wrong_stores_by_themselves(wrong: str) -> None:
    old, new, _ = WRONG[wrong]
    drawn = test_histories.test_rule_I5_any_history_of_two_handles_is_what_the_model_says
    failed = 0
    for seed in test_histories.SEEDS:
        drawn(load_store("sound_store", SOURCE), seed)
        try:
            drawn(load_store("wrong_store", SOURCE.replace(old, new)), seed)
        except AssertionError:
            failed += 1
    assert failed >= 1
