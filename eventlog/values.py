"""Names for the numbers and bytes of a log, so that two of one shape cannot change places."""

from typing import NewType

LogId = NewType("LogId", str)
StreamId = NewType("StreamId", str)
Seq = NewType("Seq", int)
Epoch = NewType("Epoch", int)
CallNumber = NewType("CallNumber", int)
AttemptNumber = NewType("AttemptNumber", int)
ContentId = NewType("ContentId", bytes)
RootHash = NewType("RootHash", bytes)

ZERO_HASH = bytes(32)
FORMAT = 1
CHUNK_BYTES = 1 << 20
