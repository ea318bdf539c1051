"""Finding what a suite judges by its name, `module:factory`, in this process or in another one: stores here, spaces in recovery."""

import importlib
from typing import Any

from eventlog.errors import MisuseError
from eventlog.store import StoreFactory

DEFAULT = "eventlog.sqlite_store:make"


def find_factory(name: str) -> StoreFactory:
    """The store factory of this name. Raises MisuseError in one sentence when there is none."""
    found: StoreFactory = find_named(name, "store", DEFAULT)
    return found


def find_named(name: str, what: str, default: str) -> Any:
    """What stands under this name; `what` is a word for it and `default` an example. Raises MisuseError in one sentence."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise MisuseError(f"{name!r} is not the name of a {what}; write it as module:factory, for example {default}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MisuseError(f"the {what} {name} cannot be had: {error}; check the name, and that Python finds the module") from error
