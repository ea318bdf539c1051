"""Work that makes hundreds of thousands of values that live on: Python's cyclic collector would go through all of them again and again.

None of them is in a cycle; what is no longer referred to is freed as ever.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic collection inside, of this process as a whole; afterwards as before. Not for work without end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
