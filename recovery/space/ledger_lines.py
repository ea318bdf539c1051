"""The lines of a ledger: their check digits, and the state that is read from them. Opens nothing.

One record a line: 32 hex digits, a blank, a JSON object, a newline. The digits are the first 16 bytes of BLAKE3 over the digits of the
line before (nothing for the first line) followed by the JSON bytes.
"""

from collections import deque

import msgspec
from blake3 import blake3

from eventlog.errors import CorruptError
from recovery.space.records import Compacted, Header, LedgerState, Record, fold_record

LEDGER_FORMAT = 1
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def _check(previous: bytes, body: bytes) -> bytes:
    return blake3(previous + body).hexdigest(16).encode()


def encode_line(previous: bytes, record: Record) -> bytes:
    """The line of `record` after a line with the digits `previous` (b"" for the first)."""
    body = _encoder.encode(record)
    return _check(previous, body) + b" " + body + b"\n"


_QUIET = tuple(b'{"op":"%s"' % tag.encode() for tag in ("prepare", "start", "exit"))
"""How the lines begin that say something of one key and nothing of the ledger: the encoder writes the tag first."""


class Reading:
    """What has been read of one ledger file: the state, the digits of the last line, and how many lines that makes.

    `lines` counts those of this file (it names them in messages); `written` counts every line ever appended, also those that a compaction
    folded into one, so that it never falls.

    Every line is verified when it is taken. Lines of single keys are folded when the state is asked for: most who follow a ledger, the
    shims above all, want to know its floor and no other's keys. Whatever else there is, and what is not known, is folded at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._state = LedgerState()
        self._unfolded: deque[tuple[int, bytes]] = deque()
        self.last = b""
        self.lines = 0
        self.written = 0

    @property
    def state(self) -> LedgerState:
        """What all lines taken come to. Raises CorruptError for one that no sound ledger holds."""
        self._fold()
        return self._state

    @property
    def folded(self) -> LedgerState:
        """What the lines folded so far come to, also of a file that turned out to be damaged further on."""
        return self._state

    @property
    def floor(self) -> int:
        """`state.floor`, for which no line of a single key has to be folded."""
        return self._state.floor

    @property
    def header(self) -> Header | None:
        """`state.header`, also of a file that turned out to be damaged further on."""
        return self._state.header

    def take(self, line: bytes) -> None:
        """Verify one line, given without its newline, and see to it that it is folded. Raises CorruptError."""
        digits, _, body = line.partition(b" ")
        if len(digits) != 32 or digits != _check(self.last, body):
            raise CorruptError(
                f"{self._name}: line {self.lines + 1}: damaged; line {self.lines} is the last good one; "
                "the ledger is not read past it, put a whole copy back"
            )
        self._unfolded.append((self.lines + 1, body))
        self.written += 1
        if not body.startswith(_QUIET):
            self._fold()
        self.last = digits
        self.lines += 1

    def _fold(self) -> None:
        while self._unfolded:
            number, body = self._unfolded[0]  # one that cannot be folded stays: whoever asks again is told again
            where = f"{self._name}: line {number}"
            try:
                record = _decoder.decode(body)
            except msgspec.MsgspecError as error:
                raise CorruptError(f"{where}: not a record this version knows ({error}); use the version that wrote it") from error
            if isinstance(record, Header) and record.format != LEDGER_FORMAT:
                raise CorruptError(f"{where}: ledger format {record.format} is not known here; use the version that wrote it")
            fold_record(self._state, record, where)
            self.written += record.lines - 1 if isinstance(record, Compacted) else 0
            self._unfolded.popleft()
