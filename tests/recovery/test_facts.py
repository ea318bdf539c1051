"""What gather makes of log and ledger, without processes: when "never started" is proved, whose boot counts, what a mass deletion is."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventlog.errors import CorruptError, LogMissingError
from eventlog.events import Exit
from eventlog.image import Change, Entry, Image, diff
from eventlog.ports import FakeHost
from eventlog.process_identity import ProcessIdentity
from recovery.capture import MASS_DELETION_PATHS, count_removed
from recovery.facts import AttemptFact, BootFact, LedgerFact, LogFact
from recovery.gather import Evidence, attempt_fact, gather, open_ledger_fact
from recovery.space.ledger import LedgerView, create_ledger
from recovery.space.records import Advance, Collect, Condemn, Exited, Header, LedgerState, Prepare, Record, Sealed, Start, Void, fold_record
from recovery.state import CallState
from tests.recovery.histories import History


def prepare(key: str, call: int | None = 1, kind: str = "command", epoch: int = 1) -> Prepare:
    return Prepare(key, kind, epoch, call, 1, "digest", f"cgroup:/x/{key}", None, 3, (3).to_bytes(32, "big").hex())  # type: ignore[arg-type]


def start(key: str, boot: str = "boot-1") -> Start:
    return Start(key, ProcessIdentity(4, 4, boot, 1), "socket")


def leave(key: str, boot: str = "boot-1") -> Exited:
    return Exited(key, Exit("exited", code=0), boot)


def advance(epoch: int, **fates: str) -> Advance:
    return Advance(epoch, "log", 2, (2).to_bytes(32, "big").hex(), dict(fates), [])  # type: ignore[arg-type]


def ledger(*records: Record) -> LedgerState:
    """The state after a header, a first epoch and these records."""
    state = LedgerState()
    for record in (Header(1, "ledger", 1), advance(1), *records):
        fold_record(state, record, "ledger")
    return state


KEY = "log/n/1/1/1"


def open_call(**changes: Any) -> CallState:
    history = History()
    history.attempt()
    call = history.state().open_call
    assert call is not None
    return msgspec.structs.replace(call, attempts=(msgspec.structs.replace(call.last, **changes),))


def fact(*records: Record, call: CallState | None = None) -> AttemptFact:
    state = ledger(*records)
    return attempt_fact(call or open_call(), state.attempts.get(KEY), state)


def test_never_started_is_proved_by_a_prepared_key_without_a_mark() -> None:
    assert fact(prepare(KEY)) is AttemptFact.NEVER_STARTED
    assert fact() is AttemptFact.NEVER_STARTED, "killed between intent and prepare"
    assert fact(prepare(KEY), Void(KEY, 1)) is AttemptFact.NEVER_STARTED, "killed between the ledger's void and the log's"


def test_never_started_is_not_said_of_a_marked_attempt() -> None:
    assert fact(prepare(KEY), start(KEY)) is AttemptFact.UNKNOWN


def test_case_22_never_started_is_not_said_after_a_torn_record() -> None:
    """What was torn may have been the starting mark of anything prepared then; what is prepared later is not touched by it."""
    assert fact(prepare(KEY), Sealed(9, "")) is AttemptFact.UNKNOWN
    assert fact(Sealed(9, ""), prepare(KEY)) is AttemptFact.NEVER_STARTED


def test_a_void_stands_though_a_record_is_torn_later() -> None:
    """The void itself is the proof: no start can stand after it."""
    assert fact(prepare(KEY), Void(KEY, 1), Sealed(9, "")) is AttemptFact.NEVER_STARTED


def test_never_started_needs_a_call_above_the_high_water_mark() -> None:
    """S3: what was collected is no longer known, so its absence proves nothing."""
    assert fact(Collect(1, 1, 4, "x")) is AttemptFact.UNKNOWN


def test_never_started_needs_a_ledger() -> None:
    assert attempt_fact(open_call(), None, None) is AttemptFact.UNKNOWN


def test_an_exit_is_clean_when_it_was_recorded_before_any_condemnation() -> None:
    assert fact(prepare(KEY), start(KEY), leave(KEY)) is AttemptFact.EXIT_CLEAN
    assert fact(prepare(KEY), start(KEY), leave(KEY), advance(2)) is AttemptFact.EXIT_CLEAN
    assert fact(prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}), leave(KEY)) is AttemptFact.EXIT_CLEAN
    assert fact(prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"}), leave(KEY)) is AttemptFact.EXIT_CUT


def test_a_running_attempt_is_claimed_or_unknown() -> None:
    assert fact(prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"})) is AttemptFact.CLAIMED
    assert fact(prepare(KEY), start(KEY), advance(2, **{KEY: "condemned"})) is AttemptFact.UNKNOWN
    assert fact(prepare(KEY), start(KEY), advance(2, **{KEY: "claimed"}), Condemn(2, [KEY])) is AttemptFact.UNKNOWN


def test_rule_R1_the_logs_restore_or_void_beats_whatever_the_ledger_says() -> None:
    records = (prepare(KEY), start(KEY), leave(KEY))
    assert fact(*records, call=open_call(is_restored=True)) is AttemptFact.RESTORED
    assert fact(*records, call=open_call(is_void=True)) is AttemptFact.VOID


def look_at(tmp_path: Path, history: History, state: LedgerState | None, boot: str = "boot-1") -> Evidence:
    """Gather with the root missing: facts about boot and log need no workspace."""
    hashes = [stored.hash.hex() for stored in history.stored]
    return gather(history.state(), hashes, state, LedgerFact.SOUND, str(tmp_path / "missing"), FakeHost(boot), "")


@pytest.mark.parametrize(
    ("exit_boot", "now", "expected"),
    [("boot-1", "boot-1", BootFact.SAME), ("boot-1", "boot-2", BootFact.OTHER), (None, "boot-1", BootFact.SAME)],
)
def test_the_boot_of_an_exit_counts(tmp_path: Path, exit_boot: str | None, now: str, expected: BootFact) -> None:
    history = History()
    history.attempt()
    records: list[Record] = [prepare(KEY), start(KEY), *([leave(KEY, exit_boot)] if exit_boot else [])]
    assert look_at(tmp_path, history, ledger(*records), now).facts.boot is expected


def test_a_command_of_this_boot_is_claimed_though_the_head_image_is_of_an_older_one(tmp_path: Path) -> None:
    """After a reboot with nothing to recover, the next call's shim lives in this boot: claiming it is no contradiction."""
    history = History()
    history.attempt()
    history.settle(changes=(Change(b"a", "put", Entry("f", 0o644, bytes(32)), 0),))
    history.driver("boot-2")
    key = history.attempt()
    state = ledger(prepare(key, call=2), start(key, "boot-2"), advance(2, **{key: "claimed"}))
    facts = look_at(tmp_path, history, state, "boot-2").facts
    assert (facts.attempt, facts.boot) == (AttemptFact.CLAIMED, BootFact.SAME)


def test_the_head_image_of_another_boot_is_synced_or_not(tmp_path: Path) -> None:
    history = History()
    history.attempt()
    history.settle(changes=(Change(b"a", "put", Entry("f", 0o644, bytes(32)), 0),))
    assert look_at(tmp_path, history, ledger(), "boot-2").facts.boot is BootFact.OTHER
    history.restore("restore_unsynced_head", call=None)
    assert look_at(tmp_path, history, ledger(), "boot-2").facts.boot is BootFact.SYNCED
    assert look_at(tmp_path, history, ledger(), "boot-1").facts.boot is BootFact.SAME


def test_case_20_a_log_that_lost_its_tail_is_told_by_the_ledger(tmp_path: Path) -> None:
    """The newest log event the ledger has seen must stand in the log, with its hash."""
    history = History()
    history.attempt()
    assert look_at(tmp_path, history, ledger(prepare(KEY))).facts.log is LogFact.ABREAST
    shorter = History()
    assert look_at(tmp_path, shorter, ledger(prepare(KEY))).facts.log is LogFact.BEHIND
    assert look_at(tmp_path, shorter, ledger(prepare(KEY), start(KEY))).facts.log is LogFact.BEHIND
    assert look_at(tmp_path, shorter, ledger(prepare(KEY), start(KEY), leave(KEY))).facts.log is LogFact.BEHIND, "no bytes of its intent"
    known = msgspec.structs.replace(prepare(KEY), intent={"payload": "{}"})
    assert look_at(tmp_path, shorter, ledger(known, start(KEY), leave(KEY))).facts.log is LogFact.BEHIND_ONE_CLEAN
    assert look_at(tmp_path, shorter, ledger(known, start(KEY), leave(KEY)), "boot-2").facts.log is LogFact.BEHIND
    two = ledger(known, start(KEY), leave(KEY), prepare("log/n/2/1/1", call=2))
    assert look_at(tmp_path, shorter, two).facts.log is LogFact.BEHIND


def test_case_20_an_open_call_whose_outcome_the_ledger_has_collected_is_a_log_that_is_behind(tmp_path: Path) -> None:
    """Also where an older obligation that was completed first brought the log up to what the ledger has seen last."""
    history = History()
    history.attempt()
    state = history.state()
    seen = ledger(prepare(KEY), start(KEY), leave(KEY), Collect(1, 1, state.head_seq, state.head_hash))
    assert look_at(tmp_path, history, seen).facts.log is LogFact.BEHIND


def test_a_log_with_another_event_where_the_ledger_saw_one_is_behind(tmp_path: Path) -> None:
    history = History()
    history.attempt()
    seen = ledger()
    seen.log_seq, seen.log_hash = 2, "another hash"
    assert look_at(tmp_path, history, seen).facts.log is LogFact.BEHIND


def test_the_ledger_is_sound_only_with_the_id_and_generation_of_the_session(tmp_path: Path) -> None:
    state = History().state()
    for number, (header, expected) in enumerate(
        [
            (Header(1, "ledger", 1), LedgerFact.SOUND),
            (Header(1, "ledger", 2), LedgerFact.OTHER_GENERATION),
            (Header(1, "other", 1), LedgerFact.OTHER_GENERATION),
        ]
    ):
        create_ledger(str(tmp_path / str(number)), header)
        assert open_ledger_fact(view(tmp_path / str(number)), state) is expected
    (tmp_path / "empty").touch()
    with pytest.raises(CorruptError, match="holds no whole line"):
        view(tmp_path / "empty")
    assert open_ledger_fact(LogMissingError(""), state) is LedgerFact.MISSING
    assert open_ledger_fact(CorruptError(""), state) is LedgerFact.DAMAGED


def view(path: Path) -> LedgerView:
    """A ledger, read and closed."""
    found = LedgerView(str(path))
    found.close()
    return found


def image(*names: str) -> Image:
    files = {name.encode(): Entry("f", 0o644, name.encode().ljust(32), 1) for name in names}
    return {b"": Entry("d", 0o755), **files}


def removed(before: Image, after: Image) -> tuple[int, bool]:
    return count_removed(before, after, diff(before, after))


def test_rule_C4_at_least_fifty_and_more_than_half() -> None:
    names = [f"{number:03}" for number in range(200)]
    assert removed(image(*names[:98]), image(*names[49:98])) == (49, False)
    assert removed(image(*names[:99]), image(*names[50:99])) == (50, False), (
        "50 of 100 entries, the root among them, are not more than half"
    )
    assert removed(image(*names[:98]), image(*names[50:98])) == (50, True)
    assert removed(image(*names), image(*names[60:])) == (60, False)
    assert MASS_DELETION_PATHS == 50


def test_rule_C4_content_found_again_is_not_removed() -> None:
    names = [f"{number:03}" for number in range(60)]
    before = image(*names)
    after = {b"": before[b""], b"m": Entry("d", 0o755), **{b"m/" + path: entry for path, entry in before.items() if path}}
    assert removed(before, after) == (0, False)
