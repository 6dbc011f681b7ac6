"""The entry point for ``python -m lazyprompt``, which is equivalent to the ``lazyprompt`` command."""

from __future__ import annotations

import sys

from lazyprompt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
