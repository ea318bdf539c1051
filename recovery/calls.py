"""One call, exactly once (rules C1 to C3): scan; commit intent and outside changes; prepare; spawn; wait; exit; scan; commit
outcome and difference.

Ordering invariants: intent committed before the ledger may hold the attempt (I1); prepared before a shim exists (S4); the outcome
and the image changes it caused are one commit (I2); ACK after it; ledger records collected after that.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from blake3 import blake3

from eventlog import events
from eventlog.blobs import encode_content
from eventlog.codec import Blob, content_id
from eventlog.errors import InternalError, NeedsPersonError
from eventlog.records import Appended, Record
from eventlog.show import show_text
from recovery.capture import Capture, capture_after_call, capture_outside, commit_look, list_untracked
from recovery.context import Context
from recovery.files import ready_side
from recovery.labels import Label
from recovery.left_behind import find_unstable, handle_outsiders, is_stale, list_unstable, refuse_unstable
from recovery.modes import commit_image
from recovery.script import TOOL_RUN, BashCall, Call, EditCall, WriteCall, call_from_json, call_to_json, parse_left_behind
from recovery.space.keys import announce
from recovery.space.ledger import append_fenced, compact_if_large
from recovery.space.output import is_cut
from recovery.space.protocol import EditFile, WriteFile
from recovery.space.records import Collect, Exited, Prepare, Void
from recovery.space.request import CommandRequest, LeftBehind, digest_request
from recovery.state import AttemptState, CallState

LIVE = "live"
KEY_VARIABLE = "CALL_KEY"
PROVIDER_VARIABLE = "CALL_IDEMPOTENCY_KEY"


def request_digest(call: Call) -> str:
    """What the log remembers of a call as it was asked for. What its command is in the ledger is `digest_request` (S3)."""
    return blake3(json.dumps(call_to_json(call), sort_keys=True).encode()).hexdigest()


def run_call(context: Context, script_index: int | None, call: Call, request_id: str = "", asked: Call | None = None) -> None:
    """Run one new call to its end, under its caller's own id; `asked` is what its caller asked for, where a person edited it.

    Its number is one above every call the log or the ledger has seen (S3).
    """
    state = context.journal.state
    number = max(len(state.calls), context.ledger.state.highest_call) + 1
    if number != len(state.calls) + 1:
        raise InternalError(f"the ledger has seen call {number - 1}, the log only {len(state.calls)}: recovery should have met this first")
    start_attempt(context, number, 1, script_index, call, request_id, request_digest(asked or call))
    finish_attempt(context, LIVE)


def run_again(context: Context) -> None:
    """Start the open call's next attempt (after a restore or a void) and run it to its end."""
    call = _open_call(context)
    if not (call.last.is_restored or call.last.is_void):
        raise InternalError(
            f"call {call.number} attempt {call.last.number} was neither restored nor voided: a second attempt would break I4"
        )
    again = call_from_json(call.input, f"call {call.number}")
    start_attempt(context, call.number, call.last.number + 1, call.script_index, again, call.request_id, call.request_digest)
    finish_attempt(context, LIVE)


def start_attempt(context: Context, number: int, attempt: int, script_index: int | None, call: Call, request_id: str, digest: str) -> None:
    """Commit the intent, with outside changes found before it, then announce the attempt to the ledger.

    Raises NeedsPersonError, with nothing done, for a Python tool whose program is not this one."""
    check_tool(context, number, call)
    if not isinstance(call, BashCall):
        ready_side(context)  # before the intent: a side directory that cannot be had leaves no call open
    key, started, place = commit_look(lambda: _commit_intent(context, number, attempt, script_index, call, request_id, digest))
    intent = {
        "id": place.id.hex(),
        "seq": place.seq,
        "kind": started.kind,
        "version": started.version,
        "payload": events.encode(started).decode(),
    }
    if isinstance(call, BashCall):
        _prepare(context, key, "command", number, attempt, digest_request(command_request(context, number, call, key)), intent)
    else:
        _prepare(context, key, "file", number, attempt, request_digest(call), intent)


def check_tool(context: Context, number: int, call: Call) -> None:
    """Raise NeedsPersonError for a Python tool whose program is not this one."""
    elsewhere = describe_tool_elsewhere(context.environment, number, call)
    if elsewhere:
        raise NeedsPersonError(elsewhere)


def describe_tool_elsewhere(environment: Mapping[str, str], number: int, call: Call) -> str:
    """Why a call is not begun by a driver with this environment: it is a Python tool, and its program is another; "" for none. Pure."""
    if isinstance(call, BashCall) and call.run.startswith(TOOL_RUN.encode()) and "TOOL_PYTHON" not in environment:
        return f"call {number} is a Python tool of the program that opened this session; start that program again, and it goes on from here"
    return ""


def is_confined(context: Context, call: BashCall) -> bool:
    """Whether the command of a call may write its workspace only: the environment says so, else the call or its session."""
    return (context.space_override or call.space) == "namespaced"


def _commit_intent(
    context: Context, number: int, attempt: int, script_index: int | None, call: Call, request_id: str, digest: str
) -> tuple[str, events.AttemptStarted, Appended]:
    found = capture_outside(context)
    refuse_unstable(find_unstable(context, found.scan.image, KEY_VARIABLE), number)
    key = context.key(str(number), attempt, "1")
    started = events.AttemptStarted(
        context.clock.now_ms(),
        number,
        attempt,
        script_index,
        call_to_json(call)["tool"],
        call_to_json(call),
        call.policy,
        key,
        digest,
        redacted=False,
        request_id=request_id,
    )
    records = [*_outside(context, found), Record(started)]
    place = commit_image(context, found, records, "intent")[-1]
    return key, started, place


def _outside(context: Context, found: Capture) -> list[Record]:
    """What was changed outside any call; also that an image that was stale is true again."""
    if not found.differs and not is_stale(context.journal.state.untracked):
        return []
    return [Record(events.WorkspaceObserved(context.clock.now_ms(), found.root, found.untracked), found.changes)]


def _prepare(context: Context, key: str, kind: Any, call: int, attempt: int, digest: str, intent: dict[str, Any]) -> None:
    mark = context.space.mark(f"c{call}-a{attempt}")
    state = context.journal.state
    record = Prepare(key, kind, context.epoch, call, attempt, digest, mark, intent, state.head_seq, state.head_hash)
    announce(context.ledger, record)


def finish_attempt(context: Context, label: str) -> None:
    """Execute the open call's newest, prepared attempt and commit its outcome."""
    call = _open_call(context)
    request = call_from_json(call.input, f"call {call.number}")
    key = call.last.key
    match request:
        case BashCall():
            mark = context.ledger.state.attempts[key].prepared.mark
            shim = context.space.start_command(command_request(context, call.number, request, key), mark)
            settle_command(context, context.space.wait_command(key, shim), label)
        case WriteCall():
            settle_files(context, WriteFile(context.epoch, key, request.path, request.content, request.mode))
        case EditCall():
            settle_files(context, EditFile(context.epoch, key, request.path, request.old, request.new))


def command_request(context: Context, number: int, call: BashCall, key: str) -> CommandRequest:
    """The command of the bash call of this number under its ledger key."""
    keys = {KEY_VARIABLE: key, PROVIDER_VARIABLE: provider_key(context, number)}
    environment = [(os.fsencode(name), os.fsencode(value)) for name, value in {**context.environment, **keys}.items()]
    arguments = [b"bash", b"-c", call.run]
    left = choose_left_behind(context, call)
    return CommandRequest(
        key, arguments, os.fsencode(context.root), environment, call.stdin, call.separate, call.timeout_secs, left,
        is_confined=is_confined(context, call),
    )  # fmt: skip


def provider_key(context: Context, number: int) -> str:
    """The key of a call, the same whenever it is done, by whatever attempt or decision: log id / session / call. Whoever is asked for
    something outside twice under it can tell that it was asked for once (rule D)."""
    return f"{context.journal.log_id}/{context.journal.stream}/{number}"


def choose_left_behind(context: Context, call: BashCall) -> LeftBehind:
    """What becomes of what a command leaves running (S11): the environment, else the call or its session, else it is killed."""
    return parse_left_behind(context.left_behind or call.left_behind, "SESSION_LEFT_BEHIND") or "kill"


def settle_command(context: Context, exited: Exited, label: str) -> None:
    """Adopt a command's exit: end what of it is outside its mark, scan, and commit the outcome with what it changed."""
    attempt = context.ledger.state.attempts[exited.key]
    mark = attempt.prepared.mark
    out, err = context.space.read_output(mark, exited)
    data = out + err
    output = describe_output(exited, data)
    call = _open_call(context)
    asked = call_from_json(call.input, f"call {call.number}")
    policy = choose_left_behind(context, asked) if isinstance(asked, BashCall) else "kill"
    outside = handle_outsiders(context, attempt, KEY_VARIABLE, policy)
    has_failed = policy == "fail" and exited.survivors + len(outside) > 0
    left = f"left {exited.survivors + len(outside)} processes running, which were ended" if has_failed else ""
    kept = f"{exited.left} processes that it left running were kept" if exited.left else ""
    _settle(context, exited.exit, output, tuple(encode_content([data])), label, left or kept, left or kept)
    context.space.forget_attempt(mark)
    if has_failed:
        who = ", ".join(filter(None, (exited.named, *outside))) or "ended before they could be named"
        raise NeedsPersonError(
            f"call {call.number} {left} (left_behind = fail): {who}; its outcome is recorded, `recovery drive STATE_DIR` goes on after it"
        )


def describe_output(exited: Exited, data: bytes) -> events.Output:
    """What the log says of a command's output; `data` is what is kept of it, standard error last. Pure."""
    request_had_two = bool(exited.stderr_digest)
    stderr = events.Stderr(exited.stderr_total, exited.stderr_kept, is_cut(exited.stderr_total), exited.stderr_digest)
    return events.Output(
        exited.output_total + exited.stderr_total,
        len(data),
        bool(exited.missing) or is_cut(exited.output_total) or is_cut(exited.stderr_total),
        content_id(data).hex(),
        exited.digest,
        stderr if request_had_two else None,
        exited.held_output,
        exited.missing,
    )


def settle_files(context: Context, request: WriteFile | EditFile) -> None:
    """Have the file worker do it, and commit the outcome with what it changed."""
    done = context.space.change_files(request)
    data = done.message.encode("utf-8", "surrogateescape")
    output = events.Output(len(data), len(data), False, content_id(data).hex())
    _settle(context, done.exit, output, tuple(encode_content([data])), LIVE, done.message if done.exit.code else "")


def settle_by_person(context: Context, label: str, reason: str) -> None:
    """Settle the open call as finished on a person's word, with what is found; no exit and no output are made up (I8)."""
    _settle(context, None, None, (), label, "", reason)


def _settle(context: Context, exit_: events.Exit | None, output: events.Output | None, blobs: tuple[Blob, ...], label: str, why: str = "",
            recorded: str = "") -> None:
    call = _open_call(context)
    found, place = commit_look(lambda: _commit_outcome(context, call, exit_, output, blobs, label, recorded))
    acknowledge(context, call, place.seq, found.root)
    reason = f" ({show_text(why)})" if why else ""
    remarks = "".join(f"; {remark}" for remark in describe_remarks(output)) if output is not None else ""
    ended = describe_exit(exit_) if exit_ is not None else "how it ended is not known"
    context.tell(f"call {call.number} {call.tool}: {ended}{reason}, {len(found.changes)} paths changed{remarks}")
    collect(context, call.number)


def _commit_outcome(
    context: Context, call: CallState, exit_: events.Exit | None, output: events.Output | None, blobs: tuple[Blob, ...], label: str,
    reason: str,
) -> tuple[Capture, Appended]:
    before = find_unstable(context, context.journal.state.image, KEY_VARIABLE)
    found = capture_after_call(context, call.number)
    unstable = before | find_unstable(context, found.scan.image, KEY_VARIABLE)
    untracked = [*found.untracked, *list_unstable(unstable)]
    if unstable:
        context.tell(f"the image after call {call.number} is stale: {', '.join(user.describe() for user in list(unstable.values())[:3])}")
    settled = events.CallSettled(
        context.clock.now_ms(), call.number, call.last.number, "finished", label, reason, exit_, output, found.root, untracked
    )
    if found.crossing and context.journal.state.mode == "transactional":
        context.tell(f"the image after call {call.number} is stale: {found.crossing}")
    place = commit_image(context, found, [Record(settled, found.changes)], "outcome", blobs)[0]
    return found, place


def acknowledge(context: Context, call: CallState, seq: int, root: str) -> None:
    """Tell whoever reads stdout that the outcome stands (C1)."""
    context.say(f"ACK {call.number} {seq} {root}")


def collect(context: Context, call: int) -> None:
    """The outcome is in the log: the ledger may forget the call (S3)."""
    state = context.journal.state
    append_fenced(context.ledger, context.epoch, Collect(context.epoch, call, state.head_seq, state.head_hash))
    compact_if_large(context.ledger, context.epoch)


def interrupt_call(context: Context, label: Label, reason: str) -> Record:
    """The record that ends the open call as interrupted: nothing of it is left in the workspace."""
    call = _open_call(context)
    state = context.journal.state
    untracked = list_untracked(state.untracked)
    return Record(
        events.CallSettled(
            context.clock.now_ms(), call.number, call.last.number, "interrupted", label.value, reason, None, None, state.root, untracked
        )
    )


def void_attempt(context: Context) -> None:
    """Make sure in the ledger that the open call's newest attempt never starts. Raises InternalError if it did."""
    call = _open_call(context)
    key = call.last.key
    if key not in context.ledger.state.attempts:
        # The crash fell between intent and prepare: the key is announced first, so that the void has a record to stand on.
        _prepare(context, key, "command", call.number, call.last.number, "", {"seq": call.last.seq})
    append_fenced(context.ledger, context.epoch, Void(key, context.epoch))


def _open_call(context: Context) -> CallState:
    call = context.journal.state.open_call
    if call is None:
        raise InternalError("no call is open")
    return call


def open_attempt(context: Context) -> AttemptState:
    """The open call's newest attempt."""
    return _open_call(context).last


def describe_remarks(output: events.Output) -> list[str]:
    """What a person should know of a command's output besides its size."""
    remarks = []
    if output.held:
        remarks.append("something it started still held its output")
    if output.missing:
        remarks.append(f"its output could not be kept ({output.missing})")
    elif output.cut:
        remarks.append(f"{output.kept} of {output.total} bytes of output kept")
    return remarks


def describe_exit(exit_: events.Exit) -> str:
    """An exit in words."""
    match exit_.kind:
        case "exited":
            return f"exit {exit_.code}"
        case "signaled":
            return f"killed by signal {exit_.signal}"
        case "timed_out":
            return f"timed out, killed by signal {exit_.signal}" if exit_.code is None else f"timed out, exit {exit_.code}"
        case "start_failed":
            return f"not started: {exit_.error}"
