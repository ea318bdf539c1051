"""Where this environment's third-party packages lie, as the harness hands them to its processes."""

import sys
from pathlib import Path

SITE_PACKAGES = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
