"""What a tool's command executes (tools.py): `run_tool.py MODULE:FUNCTION`, arguments as JSON on standard input.

A program of its own that imports nothing of the project, so that it starts fast. TOOL_PATH (a JSON list) becomes its module path and
TOOL_PROGRAM is the file of the program whose own functions `__main__:FUNCTION` means, run here under another name, as `multiprocessing`
does. Standard output gets the value, whatever the function and its children print goes to standard error.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
from typing import Any

PROGRAM_NAME = "__tool_program__"


def find_function(where: str) -> Any:
    """The function `MODULE:FUNCTION` names, out of its decorator."""
    module, _, name = where.partition(":")
    if module == "__main__":
        found: Any = runpy.run_path(os.environ["TOOL_PROGRAM"], run_name=PROGRAM_NAME)[name]
    else:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    return getattr(found, "function", found)


def main() -> int:
    """Run it and print its value; 1 when it raises."""
    given = json.load(sys.stdin)
    value = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[:] = json.loads(os.environ["TOOL_PATH"])
    try:
        returned = find_function(sys.argv[1])(*given["arguments"], **given["named"])
        text = json.dumps(returned, allow_nan=False)
    except Exception:  # noqa: BLE001 - it is the tool's own, and its result
        traceback.print_exc()
        return 1
    sys.stdout.flush()
    value.write(text)
    value.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
