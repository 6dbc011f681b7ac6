"""``python -m lazyprompt``: the same as the command ``lazyprompt``."""

from __future__ import annotations

import sys

from lazyprompt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
