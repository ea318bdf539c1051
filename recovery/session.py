"""Sessions from Python: each call takes effect exactly once, whatever kills this process, and whoever asks for it again gets its result.

    with open_session("state", "work") as session:
        built = session.bash("make", key="build")
        session.write("notes/done.txt", built.text, key="note")
        session.finish()

A program that is killed is simply started again: it asks for the same calls under the same keys, is given the recorded results of those
that have ended, and goes on with the first that has none.

What must hold. A key names one call of a session, for good: a settled one never runs again, and another call under its key is refused.
One call at a time (S2). The calling process writes no workspace path: commands run under their shims, files are changed by the file
worker (S6). An error that ends what this process may do with the session (a newer epoch, a lost process, a failed scan, an interrupt)
ends the session object, never becomes a result, and leaves everything to whoever opens the session next (I6, S7).

Threads and forks: the spawner is executed as a program of its own (space/helper), so that the calling process may have threads, event
loops and open files. A session object belongs to the process that opened it and is used by one thread at a time. A process forked from
that one is refused whatever it asks, and ends nothing of the session.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from eventlog import events, steps
from eventlog.errors import InternalError, MisuseError, NeedsPersonError, StaleEpochError
from eventlog.events import Mode
from eventlog.ports import LinuxHost, RandomIds, SystemClock
from eventlog.reader import Reader
from eventlog.show import encode_bytes, show_text, show_word
from eventlog.values import StreamId
from recovery import calls
from recovery.behind import is_unknown
from recovery.command_note import note_of
from recovery.context import Context
from recovery.driver.begin import Begun, begin
from recovery.driver.epoch import under_epoch
from recovery.driver.order import Order, Ports, say_nothing
from recovery.driver.work import ask_about, describe_request, finish, pause, resume
from recovery.fold_cache import Known
from recovery.note import DEFAULT_BYTES
from recovery.opening import log_path
from recovery.perform import recover
from recovery.results import CallResult, describe_rejected, read_result
from recovery.script import Call, Effects, Policy, call_from_json
from recovery.session_file import parse_replay
from recovery.session_options import WHERE, describe_session
from recovery.settings import read_settings
from recovery.space.helper import Helper, start_helper
from recovery.space.request import LeftBehind
from recovery.state import CallState, RejectedRequest, SessionState
from recovery.tools import T, ToolRequest, ToolResult, tool_environment
from recovery.words import name_state, naming_state

MOST_KEY = 200
"""Characters of a key: it stands in every intent, and names a step, not its content."""
Text = str | bytes


@contextlib.contextmanager
def open_session(
    state: str | os.PathLike[str], workspace: str | os.PathLike[str] | None = None, *, name: str = "session",
    exclude: Sequence[str] = (), track: Sequence[str] = (), mode: Mode | None = None, store: str | os.PathLike[str] | None = None,
    lost_work_bound: int | None = None, limits: Mapping[str, int] | None = None, replay: Mapping[str, Policy] | None = None,
    environ: Mapping[str, str] | None = None, tell: Callable[[str], None] = say_nothing, accept_lost_keys: Collection[int] = (),
) -> Iterator["Session"]:  # fmt: skip
    """Open the session in the state directory `state`, begin it there when there is none, and hold it until the body ends.

    It is taken over under the next epoch and what a crash left is recovered before the body begins. `workspace` (it must exist), `name`,
    `exclude`, `track`, `mode` (None: transactional), `store`, `lost_work_bound` (finished calls) and `limits` (`bytes`, `paths`,
    `file_bytes`) mean what the keys of a session file do (recovery/README, "Session file", "Modes") and are fixed when a session begins;
    without `workspace` one must be there. `replay` has the policy of each tool (`bash`, `write`, `edit`) for the calls of this object that
    say none. `environ` is the driver contract's environment (None: the process's own), of which commands get what is not the contract's;
    `tell` gets lines for people.
    `accept_lost_keys` are the numbers of calls that the log lost with their keys: a person's word that a key without a result may run,
    although it may be one of theirs.

    A finished session can be opened: it gives its recorded results and takes no new call. An exception of the body's own ends the epoch
    as a clean end does; the session stays, to be opened again. Without `finish` it is parked, and keeps its workspace.

    Raises MisuseError (also where another session has the workspace), NeedsPersonError, StaleEpochError, FenceIncompleteError,
    CorruptError and the other errors of eventlog.errors: each has `exit_code`, the one that `recovery drive` would end with.
    """
    given = {**(os.environ if environ is None else environ), **tool_environment()}
    hook = steps.hook_from_environment(given)
    if hook is not None:
        steps.install(hook)
    settings = read_settings(given)
    steps.enter("driver", settings.epoch or 0)
    ports = Ports(SystemClock(), RandomIds(), LinuxHost())
    modes = {"mode": mode, "store": store, "lost_work_bound": lost_work_bound, "limits": limits}
    asked = describe_session(state, workspace, name, exclude, track, {key: value for key, value in modes.items() if value is not None})
    policies = parse_replay(replay or {}, WHERE)
    order = Order(os.fspath(state), asked, takes_calls=True)
    with naming_state(order.state), contextlib.closing(start_helper(given)) as helper:
        begun = begin(order, settings, ports)
        accepted = frozenset(accept_lost_keys)
        opened = _opened_finished(begun) if begun.known[0].is_finished else _held(begun, helper, tell, accepted, policies)
        with opened as session:
            yield session


@contextlib.contextmanager
def _opened_finished(begun: Begun) -> Iterator["Session"]:
    begun.release()
    with contextlib.closing(Reader.open(log_path(begun.order.state))) as reader:
        session = Session(None, reader, begun.known, begun.order.state)
        yield session
        session.end("it is closed")


@contextlib.contextmanager
def _held(
    begun: Begun, helper: Helper, tell: Callable[[str], None], accepted: frozenset[int], policies: Mapping[str, Policy]
) -> Iterator["Session"]:
    """The body's own exception is kept back until the epoch has ended as a clean one does: nothing of it is in question then."""
    raised: BaseException | None = None
    owner = os.getpid()
    with under_epoch(begun, helper.connection, say_nothing, tell) as context:
        if context is None:
            raise MisuseError(f"session {begun.name} was finished by another driver just now; open it again for its results")
        try:
            recover(context)
            resume(context)
            session = Session(context, context.journal.reader, None, begun.order.state, accepted, policies)
            try:
                yield session
            except BaseException as error:
                if session.is_broken or os.getpid() != owner:
                    raise
                raised = error
            session.check_process()
            session.end("it is closed")
            _check_still_ours(context, raised)
        except BaseException:
            if os.getpid() == owner:
                context.space.drop()
            raise
    if session.is_finished:
        begun.release()
    if raised is not None:
        raise raised


def _check_still_ours(context: Context, raised: BaseException | None) -> None:
    """Raise StaleEpochError, from the body's own exception, where a newer driver has the session: nothing is left to be ended then."""
    if not context.journal.state.is_finished:
        try:
            context.journal.check_fence()
        except StaleEpochError as error:
            raise error from raised


class Session:
    """A session that this process holds. Made by `open_session`, valid until its body ends."""

    def __init__(
        self, context: Context | None, reader: Reader, known: Known | None, place: str, accepted: frozenset[int] = frozenset(),
        policies: Mapping[str, Policy] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._context = context
        self._place = place
        self._reader = reader
        self._read = known
        self._accepted = accepted
        self._policies = policies
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._over = ""
        self.is_broken = False

    @property
    def _known(self) -> Known:
        if self._context is not None:
            return self._context.journal.state, self._context.journal.hashes
        if self._read is None:
            raise InternalError("a session object without a log")
        return self._read

    @property
    def state(self) -> SessionState:
        """What the log says of the session, folded: name, head, calls, image."""
        return self._known[0]

    @property
    def is_finished(self) -> bool:
        """Whether the session has ended, for good."""
        return self.state.is_finished

    def check_process(self) -> None:
        """Raise MisuseError in another process than the one that opened the session: what it holds cannot be shared by a fork."""
        if os.getpid() != self._process:
            raise MisuseError(
                f"this session object belongs to process {self._process}, which opened it; a process forked from it does nothing "
                "with the session: end it with os._exit, or open a session of its own"
            )

    def end(self, why: str) -> None:
        """Take no more requests; `why` is what they are told."""
        self._over = self._over or why

    def bash(
        self, run: Text, *, key: str, timeout_secs: float | None = None, stdin: Text | None = None, separate: bool = False,
        policy: Policy | None = None, effects: Effects = "inside", left_behind: LeftBehind | None = None,
        approve: bool = False,
    ) -> CallResult:  # fmt: skip
        """Run `bash -c RUN` in the workspace (recovery/README, "Commands of a call"), once for each key; its result.

        `separate` keeps standard error apart. `policy` None: what `replay` says, else `never`. Raises MisuseError for what is no call and
        for another call under this key, with nothing done; NeedsPersonError, with nothing done either, while a lost call might be the one
        of this key (`open_session`, `accept_lost_keys`), and while nobody has answered about a call with `approve`: it begins only when a
        person lets it, so ask again under the same key; every other error ends the session object.
        """
        apart = "separate" if separate else None
        said = {"timeout_secs": timeout_secs, "stdin": _encode(stdin), "stderr": apart, "left_behind": left_behind, "approve": approve}
        return self.call(self._make("bash", policy, run=_encode(run), effects=effects, **said), key=key)

    def run(self, request: ToolRequest[T], *, key: str, approve: bool = False) -> ToolResult[T]:
        """Run a tool of the caller's own (recovery/tools), once for each key; its result. `approve` as for `bash`, and raises as it."""
        if not isinstance(request, ToolRequest):
            raise MisuseError(f"run takes a @tool with its arguments, `session.run(mine(1), key=...)`, not {_kind(request)}")
        return ToolResult(self.call(msgspec.structs.replace(request.call, approve=approve), key=key))

    def write(
        self, path: Text, content: Text, *, key: str, mode: int | None = None, policy: Policy | None = None, approve: bool = False
    ) -> CallResult:  # fmt: skip
        """Make or replace a file of the workspace, once for each key; its result. `path` is relative to the workspace. `policy` None: what
        `replay` says, else `safe`. `approve` as for `bash`, and raises as it."""
        fields = {"path": _encode(path), "content": _encode(content), "mode": mode, "approve": approve}
        return self.call(self._make("write", policy, **fields), key=key)

    def edit(
        self, path: Text, old: Text, new: Text, *, key: str, policy: Policy | None = None, approve: bool = False
    ) -> CallResult:  # fmt: skip
        """Replace the single occurrence of `old` in a file by `new`, once for each key; its result. `policy` None: what `replay` says, else
        `after-restore`. `approve` as for `bash`, and raises as it."""
        fields = {"path": _encode(path), "old": _encode(old), "new": _encode(new), "approve": approve}
        return self.call(self._make("edit", policy, **fields), key=key)

    def _make(self, tool: Literal["bash", "write", "edit"], policy: Policy | None, **fields: Any) -> Call:
        """A call as a session file would say it, checked in the same way. Raises MisuseError."""
        return call_from_json({"tool": tool, "policy": policy or self._policies.get(tool), **fields}, tool)

    def call(self, call: Call, *, key: str) -> CallResult:
        """Run one call, once for each key; its result, which is the recorded one where the call is settled. Raises as `bash`."""
        check_key(key)
        if not isinstance(call, Call):
            raise MisuseError(f"a call is one of recovery.script, not {_kind(call)}")
        with self._alone():
            ended = self._find_ended(key, call)
            if ended is not None:
                return ended
            context = self._writing()
            self._check_new(key)
            with self._breaking():
                _pause_if_asked(context)
            ended = self._find_ended(key, call)  # a person may have rejected it since
            if ended is not None:
                return ended
            run = self._await_approval(context, call, key)
            with self._breaking():
                calls.run_call(context, None, run, key, call)
                made = self._find(key)
                if made is None:
                    raise InternalError(f"call {key!r} ran and is not in the log")
                return read_result(self._reader, context.journal.stream, self._known, made, is_recorded=False)

    def result(self, key: str) -> CallResult | None:
        """The recorded result of the call under this key; None where no such call was ever asked for."""
        check_key(key)
        with self._alone():
            found, rejected = self._find(key), self._find_rejected(key)
            if found is None and rejected is not None:
                return describe_rejected(rejected, self.state.root)
            return None if found is None else self._read_result(found)

    @property
    def results(self) -> tuple[CallResult, ...]:
        """The result of every call so far, in order, those without a key too. Each is read from the log, with its output."""
        with self._alone():
            return tuple(self._read_result(call) for call in self.state.calls)

    def note(self, limit: int = DEFAULT_BYTES) -> str:
        """The recovery note (recovery/README, "The recovery note"), plain text of at most `limit` bytes, to be given to a model."""
        with self._alone():
            return note_of(self._reader, StreamId(self.state.opened.name), self._known, limit, place=show_word(self._place))

    def admit(self, request_id: str, given: dict[str, Any]) -> bool:
        """Take an input in, once for each request id of the session; whether it was new. Raises MisuseError for another input under it."""
        check_key(request_id, "request id")
        with self._alone():
            return self._admit(request_id, given)

    def ask(self, request_id: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The input admitted under this id; where there is none, `answer` is called for it and it is admitted. So what a model or a person
        said is asked for once, and a program that is started again acts on the same answer, as JSON brings it back. `answer` may use the
        session, but for this id. Raises as `admit`, and what `answer` raises."""
        check_key(request_id, "request id")
        with self._alone():
            known = self._find_input(request_id)
            if known is None:
                self._writing()
        if known is not None:
            return known
        if not callable(answer):
            raise MisuseError(f"ask takes a function that gives the answer, not {_kind(answer)}")
        given = answer()
        with self._alone():
            self._admit(request_id, given)
            return self._find_input(request_id) or given

    def _admit(self, request_id: str, given: dict[str, Any]) -> bool:
        if self.is_finished and self._find_input(request_id) == given:
            return False
        context = self._writing()
        with self._breaking():
            return context.journal.admit(request_id, given, context.clock.now_ms()).is_new

    def _find_input(self, request_id: str) -> dict[str, Any] | None:
        self._refresh()
        return next((one.input for one in self.state.inputs if one.request_id == request_id), None)

    def _refresh(self) -> None:
        if self._context is not None and not self.is_finished:
            with self._breaking():
                self._context.journal.check_fence()
                self._context.journal.refresh()

    @property
    def inputs(self) -> tuple[events.ForkedInput, ...]:
        """Every input admitted so far, in order, by this process or another (`eventlog append`): each `request_id` and `input`."""
        with self._alone():
            self._refresh()
            return self.state.inputs

    def finish(self) -> str:
        """End the session, for good, on an image that is scanned, recorded and on disk (C6); its root hash. A finished one stays so. A
        pause that was asked for comes first, as before a call (NeedsPersonError)."""
        with self._alone():
            if not self.is_finished:
                context = self._writing()
                with self._breaking():
                    _pause_if_asked(context)
                    finish(context)
            return self.state.root

    def _check_new(self, key: str) -> None:
        """Raise NeedsPersonError while the key may be that of a call which the log has lost and of which nobody knows the key (D2, I4)."""
        lost = [call.number for call in self.state.calls if is_unknown(call) and call.number not in self._accepted]
        if lost:
            calls_lost = f"call {lost[0]}" if len(lost) == 1 else f"calls {', '.join(map(str, lost))}"
            raise NeedsPersonError(
                f"key {show_text(repr(key))}: an older copy of the log was put back, {calls_lost} of this session ran and its key is lost "
                "with the log's end, so that this may have run already; nothing was done. See what it did outside the workspace, then open "
                f"the session with accept_lost_keys={lost} to have the keys without a result run"
            )

    def _find(self, key: str) -> CallState | None:
        return next((call for call in reversed(self.state.calls) if call.request_id == key), None)

    def _find_rejected(self, key: str) -> RejectedRequest | None:
        return next((one for one in self.state.rejected_requests if one.request_id == key), None)

    def _find_ended(self, key: str, call: Call) -> CallResult | None:
        """The result of the call under this key; None where it has none yet. Raises MisuseError where `call` is another one."""
        found, rejected = self._find(key), self._find_rejected(key)
        if found is not None:
            _check_same(key, call, found.request_digest, f"call {found.number} of this session was another one ({found.tool})")
            return self._read_result(found)
        if rejected is not None:
            _check_same(key, call, rejected.request_digest, "a person rejected another call under it")
            return describe_rejected(rejected, self.state.root)
        return None

    def _await_approval(self, context: Context, call: Call, key: str) -> Call:
        """What runs under this key now: `call`, or what a person said in its place. Raises NeedsPersonError while nobody has let it, once
        the question stands in the log; the object goes on, for nothing has begun."""
        number, asked = len(self.state.calls) + 1, self.state.approval
        is_asked = asked is not None and (asked.request_id, asked.call) == (key, number)
        if is_asked and asked is not None:
            _check_same(key, call, asked.request_digest, f"a person is asked about another call under it ({asked.tool})")
        if not call.approve:
            return call
        if not is_asked or asked is None:
            with self._breaking():
                ask_about(context, call, key)
        elif asked.answer is not None:
            return call if asked.edited is None else call_from_json(asked.edited, f"call {number}")
        raise NeedsPersonError(name_state(describe_request(number, key), self._place))

    def _read_result(self, found: CallState) -> CallResult:
        return read_result(self._reader, StreamId(self.state.opened.name), self._known, found, is_recorded=True)

    def _writing(self) -> Context:
        if self._context is None or self.is_finished:
            raise MisuseError(f"session {self.state.opened.name} has finished and nothing follows its end; begin another for more calls")
        return self._context

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One request at a time (S2), and none when the object is over. Raises MisuseError."""
        self.check_process()
        if self._over:
            raise MisuseError(f"this session object takes no more requests: {self._over}; open the session again")
        if not self._busy.acquire(blocking=False):
            raise MisuseError("a call of this session is running; calls of one workspace run one at a time")
        try:
            yield
        finally:
            self._busy.release()

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """Whatever goes wrong in here ends the object (S7): a refusal before anything began (MisuseError) does not."""
        head = self.state.head_seq
        try:
            with naming_state(self._place):
                yield
        except MisuseError:
            if self.state.head_seq != head:
                self._break("a request was refused after it had begun")
            raise
        except BaseException as error:
            self._break(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            raise

    def _break(self, why: str) -> None:
        self.is_broken = True
        self.end(why)


def _pause_if_asked(context: Context) -> None:
    """Raises NeedsPersonError where it is paused now."""
    context.journal.refresh()
    if context.journal.state.pause_asked is not None:
        pause(context, context.journal.state.pause_asked)


def _check_same(key: str, call: Call, digest: str, was: str) -> None:
    """Raise MisuseError where what is asked for under a key is another call than the one with this digest."""
    if digest != calls.request_digest(call):
        raise MisuseError(f"key {show_text(repr(key))}: {was}; a key names one call for good, give this one a key of its own")


def check_key(key: str, what: str = "key") -> None:
    """Raise MisuseError for what names no call: a key is 1 to 200 characters of UTF-8 without NUL."""
    try:
        is_text = isinstance(key, str) and 0 < len(key) <= MOST_KEY and "\0" not in key and bool(key.encode("utf-8"))
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise MisuseError(f"{what} {key!r:.80}: a {what} is a text of 1 to {MOST_KEY} characters, the same one each time this is asked for")


def _encode(value: Text | None) -> Any:
    if value is None:
        return None
    if not isinstance(value, str | bytes):
        raise MisuseError(f"a command, a path or a content is text or bytes, not {_kind(value)}")
    return encode_bytes(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)


def _kind(value: object) -> str:
    return type(value).__name__
