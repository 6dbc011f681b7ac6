"""How much memory a call takes."""

import tracemalloc
from collections.abc import Callable


def peak_of(call: Callable[[], object]) -> int:
    """Return the most memory that a call holds at once, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
