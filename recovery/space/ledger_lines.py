"""The lines of a ledger: their check digits, and the state that is read from them. Opens nothing.

One record a line: 32 hex digits, a blank, a JSON object, a newline. The digits are the first 16 bytes of BLAKE3 over the digits of the
line before (nothing for the first line) followed by the JSON bytes.
"""

import msgspec
from blake3 import blake3

from eventlog.errors import CorruptError
from recovery.space.records import Compacted, Header, LedgerState, Record, fold_record

LEDGER_FORMAT = 1
DIGITS = 33
"""Bytes before the JSON of a line."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def _check(previous: bytes, body: bytes) -> bytes:
    return blake3(previous + body).hexdigest(16).encode()


def encode_line(previous: bytes, record: Record) -> bytes:
    """The line of `record` after a line with the digits `previous` (b"" for the first)."""
    body = _encoder.encode(record)
    return _check(previous, body) + b" " + body + b"\n"


_QUIET = tuple(b'{"op":"%s","key":"' % tag.encode() for tag in ("prepare", "start", "exit"))
"""How the lines begin that say something of one key and nothing of the ledger: the encoder writes the tag first, and then the key."""


def find_key(body: bytes) -> bytes | None:
    """The key of a line that says something of one key and nothing of the ledger, as it stands there; None for any other, and for a key
    with an escape in it, which may be written in more than one way. Pure."""
    for begin in _QUIET:
        if body.startswith(begin):
            key, end, _ = body[len(begin) :].partition(b'"')
            return None if b"\\" in key or not end else key
    return None


class Reading:
    """What has been read of one ledger file: the state, the digits of the last line, and how many lines that makes.

    `lines` counts those of this file (it names them in messages); `written` counts every line ever appended, also those that a compaction
    folded into one, so that it never falls.

    Every line is verified when it is taken. Lines of single keys are folded when their key, or the whole state, is asked for: most who
    follow a ledger want to know its floor and one key, and with many writers most lines are of others. Whatever else there is, and what is
    not known, is folded at once, with all before it: what lines of single keys say of the ledger itself does not depend on their order.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._state = LedgerState()
        self._unfolded: dict[int, bytes] = {}
        self._numbers: dict[bytes, list[int]] = {}  # by key, of those lines
        self.last = b""
        self.lines = 0
        self.written = 0
        self.size = 0  # of these lines in bytes, newlines and all

    @property
    def state(self) -> LedgerState:
        """What all lines taken come to. Raises CorruptError for one that no sound ledger holds."""
        self._fold()
        return self._state

    def state_of(self, key: str) -> LedgerState:
        """The state as far as it concerns one key: floor, marks of what was collected, its attempt. Of other keys it may lack the newest
        lines. Raises as `state` does."""
        for number in self._numbers.get(name := key.encode("utf-8", "surrogatepass"), ()):
            if number in self._unfolded:
                self._fold_line(number)
        self._numbers.pop(name, None)
        return self._state

    @property
    def folded(self) -> LedgerState:
        """What the lines folded so far come to, also of a file that turned out to be damaged further on."""
        return self._state

    def check_before(self, body: bytes) -> None:
        """Raise as `state` does where a line with this JSON cannot follow, as it concerns the ledger and not all lines so far do fold."""
        if find_key(body) is None:
            self._fold()

    @property
    def floor(self) -> int:
        """`state.floor`, for which no line of a single key has to be folded."""
        return self._state.floor

    @property
    def header(self) -> Header | None:
        """`state.header`, also of a file that turned out to be damaged further on."""
        return self._state.header

    def take(self, line: bytes) -> None:
        """Verify one line, given without its newline, and see to it that it is folded. Raises CorruptError: then the line is not taken, and
        may be given again."""
        digits, _, body = line.partition(b" ")
        if len(digits) != 32 or digits != _check(self.last, body):
            raise CorruptError(
                f"{self._name}: line {self.lines + 1}: damaged; line {self.lines} is the last good one; "
                "the ledger is not read past it, put a whole copy back"
            )
        number = self.lines + 1
        self._unfolded[number] = body
        key = find_key(body)
        if key is None:
            self._fold()
        else:
            self._numbers.setdefault(key, []).append(number)
        self.last = digits
        self.lines = number
        self.written += 1
        self.size += len(line) + 1

    def _fold(self) -> None:
        for number in list(self._unfolded):
            self._fold_line(number)
        self._numbers.clear()

    def _fold_line(self, number: int) -> None:
        body = self._unfolded[number]  # one that cannot be folded stays: whoever asks again is told again
        where = f"{self._name}: line {number}"
        try:
            record = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{where}: not a record this version knows ({error}); use the version that wrote it") from error
        if isinstance(record, Header) and record.format != LEDGER_FORMAT:
            raise CorruptError(f"{where}: ledger format {record.format} is not known here; use the version that wrote it")
        fold_record(self._state, record, where)
        self.written += record.lines - 1 if isinstance(record, Compacted) else 0
        del self._unfolded[number]
