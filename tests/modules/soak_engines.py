"""Start an engine and stop it, again and again: python tests/modules/soak_engines.py [CYCLES]; says what was left."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.engines import cycles, tiny_model


def main(number: int) -> int:
    """Run the cycles.

    Args:
        number: How many.

    Returns:
        The exit code: 0 if nothing was left.
    """
    with TemporaryDirectory() as folder:
        model = tiny_model(Path(folder))
        begin = time.monotonic()
        left = cycles(model, number)
        seconds = time.monotonic() - begin
    print(f"{number} cycles in {seconds:.0f} s ({seconds / number * 1000:.0f} ms each), {left} things left")  # noqa: T201 - a program
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
