"""`recovery/redrive/idle.py [PATH]...`: the first lines of a process that becomes a driver (`become`), and what makes its start short.

With PATHs modules are looked for there, as in the process that started this one, which then started it without `site` (`starting`).
Under a cold redriver this is what a session waits for when its driver has died. So the collector of garbage does not go over what is being
imported, of which nothing is garbage, and msgspec does without typing_extensions, which brings `inspect`, `ast` and `tokenize` along.
"""

import gc
import importlib
import sys

if __name__ == "__main__":
    gc.disable()
    sys.path[:] = sys.argv[1:] or sys.path
    del sys.argv[1:]
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # taken by msgspec where it is there
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]  # a driver that cuts a large content needs it
    main = importlib.import_module("recovery.redrive.become").main
    gc.enable()
    sys.exit(main())
