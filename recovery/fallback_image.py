"""What stands in for a head image of which no checkpoint is whole: an older image, and what the decision says of it. Values only."""

from typing import Any

import msgspec

from eventlog.image import Image


class Fallback(msgspec.Struct, frozen=True):
    """The image at the event `seq`, of this root; `facts` join those of the decision."""

    seq: int
    root: str
    image: Image
    facts: dict[str, Any]
