"""The zygote's first lines: run by path, isolated and without site, it puts the given directories on the path and becomes a runner
(`chaos.runner` when no other is named).

    python -I -S zygote.py --path DIR [--path DIR ...] [--runner MODULE]

It imports little on purpose: half of a trial's CPU is fork, page faults and exit, and the size of the zygote is the lever.
"""

import runpy
import sys

if __name__ == "__main__":
    arguments = list(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    sys.path[:0] = [place for flag, place in arguments if flag == "--path"]
    # msgspec takes it when it is there and does without when it is not: a tenth of the zygote's own memory, which every fork copies.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]  # a driver that cuts a large content needs it
    runpy.run_module(dict(arguments).get("--runner", "chaos.runner"), run_name="__main__")
