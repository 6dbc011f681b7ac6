"""What a template may cost, and how that is measured: see :mod:`lazyprompt.text.sandbox`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from string import Formatter
from time import monotonic, thread_time
from typing import TYPE_CHECKING, cast

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_OUTPUT = 20_000_000
"""The longest text a template may make, on its way or in the end: more than any model reads."""

MAX_STEPS = 1_000_000
"""How often loops may go round and things be called in one rendering that nothing else is said of."""

MAX_SECONDS = 10
"""How long so many steps may compute: honest ones take a tenth of it."""

MAX_PIECES = 4_000_000
"""Of how many pieces an output may be."""

MAX_RANGE = 100_000
"""How many numbers ``range`` gives at once, and in one rendering where nothing else is said."""

MAX_OPERAND = 1_000_000
"""How long ``*``, ``replace`` and ``join`` may make a text or list."""

MAX_WIDTH = 10_000
"""The largest number that a filter or method takes as a size: a width, an indent, a count of columns."""

MAX_EXPONENT = 64
"""How far ``**`` goes."""

MAX_BITS = 10_000
"""How long a number may become: with a power of a power it would take but a line to fill the memory."""

# How many items of a loop are counted at once.
PORTION = 32
# What is written with a few signs.
_SHORT = frozenset((type(None), bool, float))
# After how many steps the clock is looked at.
_LOOK = 8
# How much a sum of lists may copy: about a second's work.
_MAX_COPIED = 1_000_000_000
# Filters and methods whose numbers are sizes of what they make.
_SIZED = frozenset(("batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "to_bytes", "zfill"))
# The same for each sign of this kind in the text, or for each sign at all.
_REPEATED = {"indent": "\n", "expandtabs": "\t", "wordwrap": "", "urlize": ""}
_PERCENT = re.compile(r"%(?:\([^)]*\))?([-+ #.*\d]*)")
_BRACKETS_IN_KEY = re.compile(r"%\([^)]*\(")
_NUMBER = re.compile(r"\d+")
_WIDTH = re.compile(r"\d{5}")


class Meter:
    """What one rendering has cost so far."""

    __slots__ = ("_again", "_due", "_end", "_left", "_made", "_most", "_numbers", "_seconds", "_steps")

    def __init__(self, most: int, numbers: int) -> None:
        self._steps = self._made = 0
        self._most = most
        self._numbers = self._left = numbers
        # At which step the next look is due, at what time the clock of this thread is asked, and how far it may go.
        self._due = min(_LOOK, most)
        self._seconds = MAX_SECONDS * most / MAX_STEPS
        self._again = monotonic() + self._seconds / 100
        self._end = 0.0

    def step(self, steps: int = 1) -> None:
        """Count what a template does.

        Args:
            steps: How many steps it is.

        Raises:
            SecurityError: They are too many, or took too long.
        """
        self._steps += steps
        if self._steps > self._due:
            self._look()

    def _look(self) -> None:
        if self._steps > self._most:
            raise SecurityError(
                f"the loops went round more than {self._most} times in one rendering, what they call counted too"
            )
        self._due = min(self._steps + _LOOK, self._most)
        now = monotonic()
        if now < self._again:
            return
        # The time this thread computes: a machine that sleeps, or a debugger, counts nothing. To ask for it takes as
        # long as many steps, and it is never more than the time that goes by: so it is asked for seldom.
        used = thread_time()
        self._end = self._end or used + self._seconds
        if used > self._end:
            raise SecurityError(f"the rendering took more than {self._seconds:g} seconds")
        self._again = now + self._end - used

    def made(self, text: str) -> None:
        """Count a text of which many may lie in the memory side by side.

        Args:
            text: The text.

        Raises:
            SecurityError: They are too long all together.
        """
        self._made += len(text)
        check_length(self._made)

    def portions(self, items: Sequence[object]) -> Iterator[Sequence[object]]:
        """What a loop goes over, a few items at a time: they are counted before they are given.

        Args:
            items: All of it.

        Yields:
            A few items.
        """
        for at in range(0, len(items), PORTION):
            portion = items[at : at + PORTION]
            self.step(len(portion))
            yield portion

    def numbers(self, *bounds: int) -> range:
        """``range`` for templates, which gives so many numbers in one rendering and no more.

        Args:
            bounds: What ``range`` takes.

        Returns:
            The numbers.

        Raises:
            SecurityError: They are too many.
        """
        numbers = range(*bounds)
        if len(numbers) > MAX_RANGE:
            raise SecurityError(f"range() gave more than {MAX_RANGE} numbers at once")
        self._left -= len(numbers)
        if self._left < 0:
            raise SecurityError(f"range() gave more than {self._numbers} numbers in one rendering")
        return numbers


def check_length(length: int, most: int = MAX_OUTPUT) -> None:
    """Refuse what would become too long.

    Args:
        length: How many characters or items it would be of.
        most: How many it may be of.

    Raises:
        SecurityError: It would be of more.
    """
    if length > most:
        raise SecurityError(f"a value would become longer than {most} characters or items")


def weigh(value: object) -> int:
    """About how long a value is when written: the characters of its texts, and a few for each item of lists and dicts.

    A list that holds another one many times is short in memory, and of any length when written.

    Args:
        value: The value.

    Returns:
        The length.

    Raises:
        SecurityError: It is more than any output may be.
    """
    total = 0
    level = [value]
    # Level by level: what holds too much is found out before all of it is gone through.
    while level:
        inside: list[object] = []
        for item in level:
            kind = type(item)
            if kind is str:
                total += len(cast("str", item))
            elif kind not in _SHORT:
                total += _put_in(item, inside)
                # Each is written with a separator.
                check_length(total + 3 * len(inside))
        total += 3 * len(inside)
        level = inside
    check_length(total)
    return total


def _put_in(item: object, inside: list[object]) -> int:
    """Put what a value holds to the rest that is to be weighed; what it weighs itself."""
    if isinstance(item, dict):
        inside += cast("dict[object, object]", item)
        inside += cast("dict[object, object]", item).values()
    elif isinstance(item, (list, tuple)):
        inside += cast("Sequence[object]", item)
    elif isinstance(item, str):
        return len(item)
    elif isinstance(item, int):
        return item.bit_length() // 3
    elif isinstance(item, Namespace):
        inside.append(_attributes(item))
    elif isinstance(item, Mapping):
        inside += cast("Mapping[object, object]", item).keys()
        inside += cast("Mapping[object, object]", item).values()
    elif isinstance(item, Collection) and not isinstance(item, (bytes, range)):
        # One of the views of a dict.
        inside += cast("Collection[object]", item)
    return 0


def _attributes(namespace: Namespace) -> object:
    """What a namespace shows of itself as text; none of its names can be asked for it."""
    return object.__getattribute__(namespace, "_Namespace__attrs")


def check_arguments(what: str, subject: object, arguments: Sequence[object]) -> None:
    """Refuse the arguments that would make a filter or method grow its subject out of bounds.

    Args:
        what: The name of the filter or method.
        subject: What it is applied to.
        arguments: What it is given.

    Raises:
        SecurityError: An argument is out of bounds.
    """
    numbers = [abs(argument) for argument in arguments if isinstance(argument, int)]
    if what in _SIZED and max(numbers, default=0) > MAX_WIDTH:
        raise SecurityError(f"{what} takes numbers up to {MAX_WIDTH}")
    if not isinstance(subject, str):
        return
    texts = [argument for argument in arguments if isinstance(argument, str)]
    if what == "replace" and len(texts) > 1:
        check_length(subject.count(texts[0]) * len(texts[1]), MAX_OPERAND)
    elif what in _REPEATED:
        sizes = [len(text) for text in texts] + (numbers if what in _SIZED else [])
        check_length(subject.count(_REPEATED[what]) * max(sizes, default=0))


def check_writing(what: str, subject: object, arguments: Sequence[object]) -> None:
    """Refuse a filter that would write more than a text may be, of all there is in its subject.

    Args:
        what: The name of the filter.
        subject: What it is applied to.
        arguments: What it is given.

    Raises:
        SecurityError: It would be too much.
    """
    weight = weigh(subject)
    if what == "tojson":
        # Each item may have an indent before it and a separator behind it.
        check_length(weight * max([1, *map(_size, arguments)]))
    elif what == "sum" and any(isinstance(one, list | tuple) for one in arguments):
        # Each list that is added copies all before it.
        check_length(weight * len(cast("Sequence[object]", subject)), _MAX_COPIED)


def _size(argument: object) -> int:
    if isinstance(argument, list | tuple):
        return max(map(_size, cast("Sequence[object]", argument)), default=0)
    return abs(argument) if isinstance(argument, int) else len(argument) if isinstance(argument, str) else 0


def check_format(what: str, specs: Sequence[str], arguments: Sequence[object]) -> None:
    """Refuse what would make a formatted text grow out of bounds: its widths, and how often it shows a value.

    Args:
        what: How the error names the operator, filter or method.
        specs: The specification of each field.
        arguments: The values.

    Raises:
        SecurityError: A width is out of bounds, or the text would be.
    """
    if any(map(_WIDTH.search, specs)):
        raise SecurityError(f"{what} takes widths up to {MAX_WIDTH}")
    if any("*" in spec or "{" in spec for spec in specs):
        if any(isinstance(one, int) and abs(one) > MAX_WIDTH for one in arguments):
            raise SecurityError(f"{what} takes numbers up to {MAX_WIDTH}")
        if any("{" in spec for spec in specs):
            raise SecurityError(f"{what} takes no widths out of values")
    widths = [int(width) for spec in specs for width in _NUMBER.findall(spec)]
    check_length(sum(widths) + len(specs) * max(map(weigh, arguments), default=0))


def percent_specs(pattern: str) -> list[str]:
    """The specifications of a pattern's fields: what stands between ``%`` and the letter.

    Args:
        pattern: The text before ``%``.

    Returns:
        A specification for each field.

    Raises:
        SecurityError: There are brackets in the name of a field, so that it cannot be told where the name ends.
    """
    if _BRACKETS_IN_KEY.search(pattern):
        raise SecurityError("% takes no keys with brackets")
    return _PERCENT.findall(pattern)


def brace_specs(pattern: str) -> list[str]:
    """The specifications of a pattern's fields: what stands behind the colon in ``{...}``.

    Args:
        pattern: The text that has a method ``format``.

    Returns:
        A specification for each field.
    """
    return [spec for _, field, spec, _ in Formatter().parse(pattern) if field is not None and spec is not None]


def check_number(operator: str, left: int, right: int) -> None:
    """Refuse what would make a number too long.

    Args:
        operator: The operator.
        left: The number before it.
        right: The number behind it.

    Raises:
        SecurityError: The number would have too many bits.
    """
    if operator == "**" and abs(right) > MAX_EXPONENT:
        raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
    bits = left.bit_length(), right.bit_length()
    if operator in ("*", "**") and (bits[0] * abs(right) if operator == "**" else sum(bits)) > MAX_BITS:
        raise SecurityError(f"{operator!r} would make a number of more than {MAX_BITS} bits")


def listed(items: object, separator: int = 0) -> object:
    """What is to be joined or added up, as a list: only when the items are there can their lengths be known.

    Args:
        items: A list, what ``map`` gives, or anything else, which is left as it is.
        separator: How long the text is that will stand between the items.

    Returns:
        The items.

    Raises:
        SecurityError: They are out of bounds.
    """
    found: object = list(cast("Iterator[object]", items)) if isinstance(items, Iterator) else items
    if isinstance(found, list | tuple):
        check_length(separator * len(cast("Sequence[object]", found)), MAX_OPERAND)
        weigh(cast("Sequence[object]", found))
        return cast("Sequence[object]", found)
    return found
