"""What a walk of a log can find wrong: one value for each piece of damage."""

from typing import Literal

import msgspec

from eventlog.values import ContentId, Seq, StreamId

FindingKind = Literal["database", "chain", "image", "fork", "content", "tail"]
"""`database`: SQLite's own structure, or rows that belong to nothing. `chain`: events or cache rows of a stream. `image`: a claimed root.
`fork`: a first event that disagrees with its parent. `content`: a blob. `tail`: events that were seen once are gone or are others."""


class Finding(msgspec.Struct, frozen=True):
    """One piece of damage: where it is, what is wrong, the last good record before it."""

    where: str
    what: str
    kind: FindingKind = "database"
    stream: StreamId | None = None
    seq: Seq | None = None
    content: ContentId | None = None
