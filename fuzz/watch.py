"""One run of a target, watched: what may leave it, how long it takes, and how much memory."""

from __future__ import annotations

import resource
import traceback
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

import lazyprompt
from fuzz.judge import BrokenError
from lazyprompt.errors import LazyPromptError

if TYPE_CHECKING:
    from fuzz.chance import Chance
    from fuzz.target import Target

MAX_MEMORY = 500 * 1024
"""How much more memory a run may take, in KiB."""

_PACKAGE = str(Path(lazyprompt.__file__).parent)


class Finding(NamedTuple):
    """A property that does not hold.

    Attributes:
        kind: What left the run, or ``slow`` or ``large``.
        place: Where: the last place within the package, or the property.
        what: All that is known.
    """

    kind: str
    place: str
    what: str


def watched(target: Target, chance: Chance) -> Finding | None:
    """Run a target once.

    Args:
        target: The target.
        chance: What it is given.

    Returns:
        What did not hold; None where all did.
    """
    before, high, low = thread_time(), peak(), held()
    try:
        target.run(chance)
    except LazyPromptError:
        pass  # It says no, in its own words.
    except BrokenError as error:
        return Finding("broken", _without_numbers(str(error)), traceback.format_exc())
    except Exception as error:  # noqa: BLE001 - whatever leaves is what is looked for
        return Finding(type(error).__name__, _place(error), traceback.format_exc())
    took = thread_time() - before
    if took > target.seconds:
        return Finding("slow", target.name, f"the run took {took:.1f} s; the target allows {target.seconds:g}")
    if peak() > high and peak() - low > MAX_MEMORY:
        return Finding("large", target.name, f"the run took {(peak() - low) // 1024} MB")
    return None


def peak() -> int:
    """The most memory that this process held at any time, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def held() -> int:
    """How much memory is held now, in KiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * (resource.getpagesize() // 1024)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    last = (own or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno} {last.name}"


def _without_numbers(text: str) -> str:
    """The property, without what differs from one run to another."""
    return text.split(" at ", 1)[0].split("\n", 1)[0]
