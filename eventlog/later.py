"""Modules that are imported when something of them is first used: what few drivers ever touch is not waited for when one is started.

One way for all of them, so that mypy, the import contract and whoever reads the top of a module see what it uses:

    if TYPE_CHECKING:
        from recovery.checkpoints import directory
    else:
        directory = later("recovery.checkpoints.directory")

Not for what shims and file workers run: they are forked from a process that has imported it once for all of them. Other packages, and parts
of the standard library, that are only needed now and then are imported where they are used.
"""

import importlib
from typing import Any


class Later:
    """Stands in a module's place. What is asked of it is asked of the module, which is imported for that."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def later(name: str) -> Later:
    """The module `name`, imported at its first use."""
    return Later(name)
