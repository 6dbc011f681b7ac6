"""How much memory a call takes."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def peak_of(call: Callable[[], object]) -> int:
    """Return the most memory that a call holds at once, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
