"""What stands in for a head image of which no checkpoint is whole: an older image, and what the decision says of it. Values only."""

from dataclasses import dataclass
from typing import Any

from eventlog.image import Image


@dataclass(frozen=True, slots=True)
class Fallback:
    """The image at the event `seq`, of this root; `facts` join those of the decision."""

    seq: int
    root: str
    image: Image
    facts: dict[str, Any]
