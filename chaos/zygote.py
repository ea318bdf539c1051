"""The zygote's first lines: run by path, isolated and without site, it puts the given directories on the path and becomes `chaos.runner`.

    python -I -S zygote.py --path DIR [--path DIR ...]

It imports little on purpose: half of a trial's CPU is fork, page faults and exit, and the size of the zygote is the lever.
"""

import runpy
import sys

if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.path[:0] = [place for flag, place in zip(arguments[::2], arguments[1::2], strict=True) if flag == "--path"]
    # msgspec takes it when it is there and does without when it is not: a tenth of the zygote's own memory, which every fork copies.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    runpy.run_module("chaos.runner", run_name="__main__")
