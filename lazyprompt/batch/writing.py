r"""JSON as the lines of a file have it: UTF-8, without spaces, without an escape that need not be.

A line's end within a text is written as ``\n``, so a line of a file is a line of JSON. The ends that Unicode knows
beside it (U+0085, U+2028, U+2029) stay as they are: readers of JSON Lines split at ``\n`` alone.

orjson writes text exactly as Python's json does, ten times as fast; numbers it writes otherwise (``1e16``, not
``1e+16``) or not at all. So it is given what is only text, and the lines are the same wherever it is installed.
"""

from __future__ import annotations

from importlib import import_module
from json import JSONEncoder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.json import Json

_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_bytes(value: Json) -> bytes:
    """A JSON value as UTF-8.

    Args:
        value: A value that was checked: a number in it is finite, a text well formed.
    """
    return _encode(value).encode()


def _fastest() -> Callable[[Json], bytes]:
    try:
        fastest: Callable[[Json], bytes] = import_module("orjson").dumps
    except ImportError:
        return json_bytes
    return fastest


text_bytes = _fastest()
"""The same of a value in which there are texts alone, and no number; see above."""
