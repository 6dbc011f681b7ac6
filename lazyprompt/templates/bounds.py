"""Cost limits for templates, and a meter for the cost of one rendering; see :mod:`lazyprompt.templates.sandbox`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from itertools import permutations
from string import Formatter
from time import monotonic, thread_time
from typing import Any, TypeGuard, TypeVar, cast

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

from lazyprompt._base.json import is_mapping, is_sequence

_T = TypeVar("_T")

MAX_OUTPUT = 20_000_000
"""The maximum length of an intermediate or final text, in characters. No model has a larger context window."""

MAX_TEMPLATE = 5_000_000
"""The maximum length of a template, in characters."""

MAX_TOKENS = 50_000
"""The maximum number of Jinja tokens in a template, such as names, numbers, punctuation and text between tags."""

MAX_SCOPED = 2_000_000
"""The maximum product of variable count and scope count. Jinja's compiler copies all variables for each scope."""

MAX_CODE = 10_000_000
"""The maximum length of a template's compiled Python code, in characters."""

MAX_STEPS = 1_000_000
"""The default limit for the number of loop iterations and calls in one rendering."""

MAX_SECONDS = 10
"""The maximum CPU time for ``MAX_STEPS`` steps, in seconds. Ordinary steps take a tenth of this time."""

MAX_PIECES = 2_000_000
"""The maximum number of literal texts and values that one rendering may write."""

MAX_RANGE = 100_000
"""The default limit for how many numbers ``range()`` may return, in one call and in one rendering."""

MAX_OPERAND = 1_000_000
"""The maximum length of a text or list that ``*``, ``replace`` or ``join`` creates."""

MAX_WIDTH = 10_000
"""The maximum value of an argument that sets a size, such as a width, an indent or a number of columns."""

MAX_EXPONENT = 64
"""The maximum exponent of ``**``."""

MAX_BITS = 10_000
"""The maximum size of an integer, in bits. Without this limit, a power of a power could exhaust memory."""

# Types whose values need no size check. Python itself limits the number of digits when it converts an integer to text.
BRIEF = (str, int, float, type(None), Undefined)
# The maximum nesting depth to which a value is measured. A limit is required because a Jinja namespace may contain
# itself.
_DEEPEST = 100_000
# Types whose values operators such as `*` and `+` can enlarge.
LONG: tuple[type[Sized], ...] = (str, list, tuple, bytes)
# The builtin `type`, annotated for type checkers.
kind_of: Callable[[object], type[object]] = type
_LOOK = 32
# The overhead per buffered text, in characters.
_PIECE = 16
# The maximum number of list items that the filter ``sum`` may copy. Copying this many items takes about a second.
_MAX_COPIED = 1_000_000_000
# Filters and methods with numeric arguments that determine the size of the result.
_SIZED = frozenset(("batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "to_bytes", "zfill"))
# Maps a filter or method that inserts text to the character at which it inserts text; "" stands for every character.
_REPEATED = {"indent": "\n", "expandtabs": "\t", "wordwrap": "", "urlize": ""}
_PERCENT = re.compile(r"%(?:\([^)]*\))?([-+ #.*\d]*)")
_BRACKETS_IN_KEY = re.compile(r"%\([^)]*\(")
_NUMBER = re.compile(r"\d+")
_WIDTH = re.compile(r"\d{5}")


class Meter:
    """A counter for the cost of one rendering.

    Args:
        most: The maximum number of template steps.
        numbers: The maximum number of values that ``range()`` may return in total.
    """

    __slots__ = ("_again", "_end", "_made", "_most", "_numbers", "_numbers_left", "_seconds", "_steps", "left")

    def __init__(self, most: int, numbers: int) -> None:
        # The number of steps until the next check, initially zero so that the first step triggers a check.
        self.left = 0
        self._steps = -_LOOK
        self._most = most
        self._seconds = MAX_SECONDS * most / MAX_STEPS
        # The value of ``monotonic()`` at which the thread's CPU time is read next.
        self._again = monotonic() + self._seconds / 100
        self._end = 0.0
        self._numbers = self._numbers_left = numbers
        self._made = 0

    def step(self) -> None:
        """Count one step.

        Raises:
            SecurityError: Rendering took too many steps or too much time.
        """
        self.left -= 1
        if self.left < 0:
            self.look()

    def stepped(self, value: _T) -> _T:
        """Count one step for a filter, and return the filter's result unchanged."""
        self.step()
        return value

    def kept(self, text: str) -> str:
        """Add the length of a buffered text to the total, and return the text.

        All buffered texts stay in memory until they are joined.

        Raises:
            SecurityError: The total length of the buffered texts exceeds the limit.
        """
        self._made += len(text) + _PIECE
        if self._made > MAX_OUTPUT:
            check_length(self._made)
        return text

    def look(self) -> None:
        """Check that the number of template steps and the CPU time of the rendering are within their limits.

        Call this method when ``left``, the number of steps until the next check, becomes negative.

        Raises:
            SecurityError: Rendering took too many steps or too much time.
        """
        self._steps += _LOOK - self.left
        self.left = _LOOK
        if self._steps > self._most:
            raise SecurityError(f"the loops and calls took more than {self._most} steps in one rendering")
        now = monotonic()
        if now < self._again:
            return
        # Measure CPU time, which excludes time when the machine sleeps or a debugger pauses the thread.
        # Read the CPU time only occasionally, because reading the CPU time takes much longer than counting a step.
        used = thread_time()
        self._end = self._end or used + self._seconds
        if used > self._end:
            raise SecurityError(f"rendering took more than {self._seconds:g} seconds of CPU time")
        self._again = now + self._end - used

    def counted(self, items: Iterable[object]) -> Iterator[object]:
        """Iterate over items, and count one step for each item."""
        for item in items:
            self.step()
            yield item

    def numbers(self, *bounds: int) -> range:
        """Return a ``range`` whose length is within the limits; this method replaces ``range()`` in templates."""
        numbers = range(*bounds)
        if len(numbers) > MAX_RANGE:
            raise SecurityError(f"range() returned more than {MAX_RANGE} numbers at once")
        self._numbers_left -= len(numbers)
        if self._numbers_left < 0:
            raise SecurityError(f"range() returned more than {self._numbers} numbers in one rendering")
        return numbers


def check_length(length: int, most: int = MAX_OUTPUT) -> None:
    """Check the length of a value before the value is created.

    Args:
        length: The number of characters or items.
        most: The maximum length.

    Raises:
        SecurityError: The length exceeds the maximum.
    """
    if length > most:
        raise SecurityError(f"a value would become longer than {most} characters or items")


def size_of(value: object, most: int = MAX_OUTPUT) -> int:
    """Estimate the length of a value's text from its strings and its number of items.

    This check is necessary because a list that contains another list many times needs little memory, but its text can
    be arbitrarily long.

    Args:
        value: The value to measure.
        most: The maximum length.

    Returns:
        The estimated length of the value's text, in characters.

    Raises:
        SecurityError: The length exceeds the maximum.
    """
    total = 0
    level: list[Any] = [value]
    # Traverse level by level to detect an excessive size before visiting all items.
    for _ in range(_DEEPEST):
        inside: list[Any] = []
        for item in level:
            kind = kind_of(item)
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, int):
                total += item.bit_length() // 3
            elif kind not in BRIEF:
                inside += item if kind is dict or kind is list else _items_of(item)
                if kind is dict:
                    inside += item.values()
                # Count three characters per item for the separator and quotes.
                if total + 3 * len(inside) > most:
                    check_length(total + 3 * len(inside), most)
        total += 3 * len(inside)
        if not inside:
            break
        level = inside
    check_length(total, most)
    return total


def _items_of(value: object) -> Collection[object]:
    """Return the items that ``str(value)`` would contain: the keys and values of a mapping, or a collection's items."""
    if isinstance(value, Namespace):
        # Read the private attribute, because a namespace has no public method that returns its values.
        value = object.__getattribute__(value, "_Namespace__attrs")
    if is_mapping(value):
        return [*value, *value.values()]
    return value if _is_collection(value) else ()


def _is_collection(value: object) -> TypeGuard[Collection[object]]:
    """Return True for a collection whose ``str()`` contains all items of the collection."""
    return isinstance(value, Collection) and not isinstance(value, (bytes, range, Undefined))


def as_text(value: object) -> str:
    """Convert a value to text. A string is returned unchanged.

    Raises:
        SecurityError: The text would exceed the maximum length.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, BRIEF):
        size_of(value)
    return str(value)


def check_operator(operator: str, left: object, right: object) -> None:
    """Check the operands of an operator before it is evaluated.

    Args:
        operator: ``*``, ``**`` or ``%``.
        left: The left operand.
        right: The right operand.

    Raises:
        SecurityError: The result would exceed a limit.
    """
    if operator == "%":
        if isinstance(left, bytes):
            raise SecurityError("'%' is not supported for bytes")
        if isinstance(left, str):
            arguments = cast("tuple[object, ...]", right) if isinstance(right, tuple) else (right,)
            _check_format("%", _percent_specs(left), arguments)
        return
    if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
        raise SecurityError(f"the exponent of '**' must not exceed {MAX_EXPONENT}")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise SecurityError(f"the result of {operator!r} would have more than {MAX_BITS} bits")
    elif operator == "*":
        for long, times in ((left, right), (right, left)):
            if isinstance(long, LONG) and isinstance(times, int):
                check_length(len(long) * times, MAX_OPERAND)


def check_method(
    name: str, subject: str | float | bytes, args: tuple[object, ...], named: tuple[object, ...]
) -> tuple[object, ...]:
    """Check the arguments of a method before it is called.

    Args:
        name: The name of the method.
        subject: The object that the method is called on.
        args: The method's positional arguments.
        named: The values of the method's keyword arguments.

    Returns:
        The positional arguments to pass to the method. Iterators are converted to lists.

    Raises:
        SecurityError: The result would exceed a limit.
    """
    if name == "translate" or (isinstance(subject, bytes) and name != "decode"):
        raise SecurityError(f"the method {name} is not available in templates; use replace")
    if isinstance(subject, str):
        if name == "join" and args:
            items = _listed(args[0], len(subject))
            check_length(size_of(items))
            return (items, *args[1:])
        if name in ("format", "format_map"):
            specs = [spec for _, found, spec, _ in Formatter().parse(subject) if found is not None and spec is not None]
            _check_format("format", specs, (*args, *named))
    _check_arguments(name, subject, (*args, *named))
    return args


def check_filter(name: str, subject: object, arguments: Sequence[object]) -> object:
    """Check the subject and arguments of a filter before it is applied.

    Args:
        name: The name of the filter.
        subject: The value that the filter is applied to.
        arguments: The values of all arguments.

    Returns:
        The value to pass to the filter. An iterator is converted to a list.

    Raises:
        SecurityError: The result would exceed a limit.
    """
    if name in ("join", "sum"):
        subject = _listed(subject, max(map(len, map(as_text, arguments)), default=0) if name == "join" else 0)
    if not isinstance(subject, str):
        length = size_of(subject)
        if name == "tojson" and arguments:
            # Indenting lengthens JSON by at most the indent width per item, so multiply the item count by the width.
            check_length(length * max(1, *map(_size, arguments)))
        elif name == "sum" and isinstance(subject, Sized) and any(isinstance(one, list | tuple) for one in arguments):
            # Limit the number of copied items, because each addition copies all preceding lists.
            check_length(length * len(subject), _MAX_COPIED)
    if name in ("format", "replace"):
        # The `format` and `replace` filters convert their input to text.
        subject = as_text(subject)
        if name == "format":
            _check_format(name, _percent_specs(subject), arguments)
    _check_arguments(name, subject, arguments)
    return subject


def _check_arguments(what: str, subject: object, arguments: Sequence[object]) -> None:
    """Check the arguments that determine the length of the result of a filter or method."""
    if what == "replace" and isinstance(subject, str):
        # The keyword arguments of ``replace`` may be in any order, so try each ordered pair of arguments as the old and
        # the new text.
        for old, new in permutations(map(as_text, arguments), 2):
            check_length(subject.count(old) * len(new), MAX_OPERAND)
    elif what in _SIZED or what in _REPEATED:
        numbers = [abs(argument) for argument in arguments if isinstance(argument, int)]
        if what in _SIZED and max(numbers, default=0) > MAX_WIDTH:
            raise SecurityError(f"{what} accepts only numbers up to {MAX_WIDTH}")
        if what in _REPEATED and isinstance(subject, str):
            sizes = [len(one) for one in arguments if isinstance(one, str)] + (numbers if what in _SIZED else [])
            check_length(subject.count(_REPEATED[what]) * max(sizes, default=0))


def _size(argument: object) -> int:
    if is_sequence(argument):
        return max(map(_size, argument), default=0)
    return abs(argument) if isinstance(argument, int) else len(argument) if isinstance(argument, str) else 0


def _check_format(what: str, specs: Sequence[str], arguments: Sequence[object]) -> None:
    """Check the widths in a format string and the number of its fields."""
    given = [spec for spec in specs if spec]
    if any(map(_WIDTH.search, given)):
        raise SecurityError(f"{what} accepts only widths up to {MAX_WIDTH}")
    if any("*" in spec or "{" in spec for spec in given):
        if any(isinstance(one, int) and abs(one) > MAX_WIDTH for one in arguments):
            raise SecurityError(f"{what} accepts only numbers up to {MAX_WIDTH}")
        if any("{" in spec for spec in given):
            raise SecurityError(
                f"{what} does not support nested replacement fields like '{{:{{width}}}}'; write the width as a number"
            )
    widths = [int(width) for spec in given for width in _NUMBER.findall(spec)]
    check_length(sum(widths) + len(specs) * max(map(size_of, arguments), default=0))


def _percent_specs(pattern: str) -> list[str]:
    """Return the text between ``%`` and the letter for each ``%`` field of a format string."""
    # Reject keys that contain parentheses, because the key's end would be ambiguous.
    if _BRACKETS_IN_KEY.search(pattern):
        raise SecurityError("'%' does not support mapping keys that contain parentheses")
    return _PERCENT.findall(pattern)


def _listed(items: object, separator: int = 0) -> object:
    """Check the items of a join or sum, and convert an iterator to a list.

    Args:
        items: The items to join or sum.
        separator: The length of the separator in characters.

    Raises:
        SecurityError: The items exceed a limit.
    """
    if isinstance(items, Iterator):
        items = list(cast("Iterator[object]", items))
    if isinstance(items, Sized):
        check_length(separator * len(items), MAX_OPERAND)
        size_of(items)
    return items
