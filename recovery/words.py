"""What each decision means, for people. recovery/README has a row for each label, with the crash that leaves it."""

import contextlib
from collections.abc import Iterator

from eventlog.errors import CrashworthyError
from eventlog.show import show_word
from recovery.labels import Label


def word_of(label: str) -> str:
    """What a label out of a log means."""
    return WORDS[Label(label)]


def name_state(text: str, state: str) -> str:
    """A sentence with the commands in it to be copied: most are written where nobody knows under which name the state directory was
    given, and say STATE_DIR."""
    return text.replace("STATE_DIR", show_word(state))


@contextlib.contextmanager
def naming_state(state: str) -> Iterator[None]:
    """Errors that leave here name the state directory in their commands."""
    try:
        yield
    except CrashworthyError as error:
        error.args = tuple(name_state(one, state) if isinstance(one, str) else one for one in error.args)
        raise


def describe_way_on(has_script: bool, place: str) -> str:
    """What drives a session on whose state directory is `place` (a word of a command line): a driver of its script, or the program that
    asks for its calls."""
    return f"`recovery drive {place}`" if has_script else "the program that opened it, started again (`open_session`),"


WORDS: dict[Label, str] = {
    Label.COMPLETE_RESTORE: "a restore was begun and not ended; it is carried out to its end before anything else",
    Label.COMPLETE_REBUILD: "a restore was begun and the workspace root is gone: it is made anew and the restore carried out to its end",
    Label.COMPLETE_WITHOUT_LEDGER: "a restore was begun and the ledger is not sound: it is made anew, then the restore is carried out",
    Label.LEDGER_LOST: "the ledger is missing: it is made anew, and what an open call did is taken for unknown",
    Label.LEDGER_EXCHANGED: "the ledger is not the one in force: it is kept aside, made anew, and an open call taken for unknown",
    Label.LEDGER_DAMAGED: "the ledger is damaged: it is kept aside and made anew, and what an open call did is taken for unknown",
    Label.LOG_BEHIND_ADOPT: "the log lost one call with a clean exit: it is taken back from the ledger and adopted, nothing runs again",
    Label.LOG_BEHIND_RESTORE: "the log lost its tail: the head image is restored, and every lost call ends interrupted",
    Label.ROOT_LOST_BY_CALL: "the call ended and the workspace root is gone: it is rebuilt as it was before, and the call ends interrupted",
    Label.ROOT_LOST: "the workspace root is missing, or an empty directory is in its place: it is rebuilt from the log",
    Label.ROOT_UNMOUNTED: "nothing is where the workspace was, and its file system may not be mounted: a person says which it is",
    Label.ROOT_REPLACED: "another directory with content is where the workspace was: a person says what it is",
    Label.RERUN_RESTORED: "the call was cut, the workspace is restored, and its policy allows another attempt: it runs again",
    Label.INTERRUPT_RESTORED: "the call was cut and the workspace is restored; its policy allows no other attempt: it ends interrupted",
    Label.RUN_VOIDED: "the attempt was declared void because it never started: the call runs",
    Label.ADOPT_EXIT: "the command ended by itself and its exit stands in the ledger: the outcome is recorded, nothing runs again",
    Label.REATTACH: "the command still runs under its shim: this driver waits for its end",
    Label.VOID_AND_RUN: "the attempt provably never started: it is voided and the call runs",
    Label.RESTORE_AND_RERUN: "what the call did is not known whole: the workspace is restored to the image before it, then it runs again",
    Label.RESTORE_AND_INTERRUPT: "what the call did is not known whole: the image before it is restored, and the call ends interrupted",
    Label.ASK: "what the call did is not known, and its policy is to ask a person",
    Label.SETTLED: "nothing to recover",
    Label.RESTORE_UNSYNCED_HEAD: "the machine was restarted and the newest image was not known to be on disk: every difference is restored",
    Label.OUTSIDE_DELETION: "most of the workspace is gone outside any call: a person says whether that was meant",
    Label.RECORD_OUTSIDE: "the workspace was changed outside any call: the change is recorded",
    Label.REBUILD_BY_PERSON: "a person had the workspace rebuilt from the log in the directory that is there",
    Label.RAN_BY_PERSON: "a person says that the call ran: what is there is its result, how it ended is not known",
    Label.NOT_RUN_BY_PERSON: "a person says that the call did not run: the image before it is restored, then it runs",
    Label.UNDO_BY_PERSON: "a person had the call undone: the image before it is restored, and it ends interrupted",
    Label.ACCEPT_BY_PERSON: "a restore did not end, and a person took the workspace as it was found",
    Label.EXCLUDE_BY_PERSON: "a person excluded a path, which no image holds from then on",
    Label.DISCARD_BY_PERSON: "a person had what the call made deleted, for want of room to keep it",
    Label.RESTORE_BY_PERSON: "a person had the image of an earlier event restored: the calls after it are undone",
}
