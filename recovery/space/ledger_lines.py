"""The lines of a ledger: their check digits, and the state that is read from them. Opens nothing.

One record a line: 32 hex digits, a blank, a JSON object, a newline. The digits are the first 16 bytes of BLAKE3 over the digits of the
line before (nothing for the first line) followed by the JSON bytes.
"""

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


class Reading:
    """What has been read of one ledger file: the state, the digits of the last line, and how many lines that makes.

    `lines` counts those of this file (it names them in messages); `written` counts every line ever appended, also those that a compaction
    folded into one, so that it never falls.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LedgerState()
        self.last = b""
        self.lines = 0
        self.written = 0

    def take(self, line: bytes) -> None:
        """Verify and fold one line, given without its newline. Raises CorruptError."""
        digits, _, body = line.partition(b" ")
        where = f"{self._name}: line {self.lines + 1}"
        if len(digits) != 32 or digits != _check(self.last, body):
            raise CorruptError(
                f"{where}: damaged; line {self.lines} is the last good one; the ledger is not read past it, put a whole copy back"
            )
        try:
            record = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptError(f"{where}: not a record this version knows ({error}); use the version that wrote it") from error
        if isinstance(record, Header) and record.format != LEDGER_FORMAT:
            raise CorruptError(f"{where}: ledger format {record.format} is not known here; use the version that wrote it")
        fold_record(self.state, record, where)
        self.last = digits
        self.lines += 1
        self.written += record.lines if isinstance(record, Compacted) else 1
