"""Names for the numbers and bytes of a log, so that two of one shape cannot change places."""

import re
from typing import NewType

LogId = NewType("LogId", str)
StreamId = NewType("StreamId", str)
Seq = NewType("Seq", int)
Epoch = NewType("Epoch", int)
CallNumber = NewType("CallNumber", int)
AttemptNumber = NewType("AttemptNumber", int)
ContentId = NewType("ContentId", bytes)
RootHash = NewType("RootHash", bytes)
JsonBytes = str | dict[str, str]
"""Bytes as JSON has them: text, or `{"b64": ...}` for what is not UTF-8."""

HIGHEST_EPOCH = (1 << 53) - 1  # the largest whole number that every reader of JSON keeps as it is
HIGHEST_GIVEN_EPOCH = HIGHEST_EPOCH - (1 << 20)
"""The highest epoch anybody may ask for. What lies above is reached only one by one, by drivers that take the next: so nobody who asks for
the highest takes it from all who come after."""
ZERO_HASH = bytes(32)
FORMAT = 2
READABLE_FORMATS = (1, 2)
"""A log of format 1 is read as it stands, and made one of format 2 when it is first opened for writing."""
CHUNK_BYTES = 1 << 20
"""The largest content of one blob; what is larger is cut into chunks of at most this."""

SESSION_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
"""What a session may be called; the name is the id of its stream."""
