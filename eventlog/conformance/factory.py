"""Finding a store's factory by its name, `module:factory`, in this process or in another one."""

import importlib

from eventlog.errors import MisuseError
from eventlog.store import StoreFactory

DEFAULT = "eventlog.sqlite_store:make"


def find_factory(name: str) -> StoreFactory:
    """The factory of this name. Raises MisuseError in one sentence when there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise MisuseError(f"{name!r} is not the name of a store; write it as module:factory, for example {DEFAULT}")
    try:
        found: StoreFactory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MisuseError(f"the store {name} cannot be had: {error}; check the name, and that Python finds the module") from error
    return found
