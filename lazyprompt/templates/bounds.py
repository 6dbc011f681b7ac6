"""Bounds of a template's cost, and its measure: see :mod:`lazyprompt.templates.sandbox`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import permutations
from string import Formatter
from time import monotonic, thread_time
from typing import Any, TypeVar, cast

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

_T = TypeVar("_T")

MAX_OUTPUT = 20_000_000
"""The longest text a template may make, on its way or in the end: more than any model reads."""

MAX_TEMPLATE = 5_000_000
"""The longest template, in characters."""

MAX_TOKENS = 50_000
"""The number of tokens of a template in Jinja: names, numbers, signs, own text between tags."""

MAX_SCOPED = 2_000_000
"""The product of the variables and the scopes of a template in Jinja, whose compiler copies all for each scope."""

MAX_CODE = 10_000_000
"""The longest Python code that a template may be compiled to, in characters."""

MAX_STEPS = 1_000_000
"""Default limit of loop steps and calls in one rendering."""

MAX_SECONDS = 10
"""How long so many steps may compute: honest ones take a tenth of it."""

MAX_PIECES = 2_000_000
"""Of how many pieces an output may be."""

MAX_RANGE = 100_000
"""Default limit of numbers that ``range`` gives at once, and in one rendering."""

MAX_OPERAND = 1_000_000
"""How long ``*``, ``replace`` and ``join`` may make a text or list."""

MAX_WIDTH = 10_000
"""The largest number that a filter or method takes as a size: a width, an indent, a count of columns."""

MAX_EXPONENT = 64
"""How far ``**`` goes."""

MAX_BITS = 10_000
"""How long a number may become: with a power of a power it would take but a line to fill the memory."""

# What is written as what it is; Python itself bounds how many digits of a number it writes.
BRIEF = (str, int, float, type(None), Undefined)
# Deeper than this nothing can be written; a namespace that holds itself is.
_DEEPEST = 100_000
# Whose length operators make longer.
LONG: tuple[type[Sized], ...] = (str, list, tuple, bytes)
# Python's ``type``, which says what kind of value something is.
kind_of: Callable[[object], type[object]] = type
# After how many steps it is looked whether there are too many, and at the clock.
_LOOK = 32
# The characters that each piece of a buffer counts as, beside its own.
_PIECE = 16
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
    """Cost of one rendering so far."""

    __slots__ = ("_again", "_end", "_made", "_most", "_numbers", "_numbers_left", "_seconds", "_steps", "left")

    def __init__(self, most: int, numbers: int) -> None:
        # How many steps are left until the next look, and how many were taken until the last one: the first step looks.
        self.left = 0
        self._steps = -_LOOK
        self._most = most
        # At what time the clock of this thread is asked, and how far it may go.
        self._seconds = MAX_SECONDS * most / MAX_STEPS
        self._again = monotonic() + self._seconds / 100
        self._end = 0.0
        self._numbers = self._numbers_left = numbers
        self._made = 0

    def step(self) -> None:
        """Count a step.

        Raises:
            SecurityError: The steps are too many, or took too long.
        """
        self.left -= 1
        if self.left < 0:
            self.look()

    def stepped(self, value: _T) -> _T:
        """Count the value of a filter as a step, and return it."""
        self.step()
        return value

    def kept(self, text: str) -> str:
        """Count a text that is put aside, and return it: many lie in the memory side by side before they are joined.

        Raises:
            SecurityError: They are too long together.
        """
        self._made += len(text) + _PIECE
        if self._made > MAX_OUTPUT:
            check_length(self._made)
        return text

    def look(self) -> None:
        """Check the steps and the time whenever no step is ``left``.

        Raises:
            SecurityError: The steps are too many, or took too long.
        """
        self._steps += _LOOK - self.left
        self.left = _LOOK
        if self._steps > self._most:
            raise SecurityError(
                f"the loops went round more than {self._most} times in one rendering, what they call counted too"
            )
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

    def counted(self, items: Iterable[object]) -> Iterator[object]:
        """Iterate over values, counting each step."""
        for item in items:
            self.step()
            yield item

    def numbers(self, *bounds: int) -> range:
        """``range`` for templates, which gives so many numbers in one rendering and no more."""
        numbers = range(*bounds)
        if len(numbers) > MAX_RANGE:
            raise SecurityError(f"range() gave more than {MAX_RANGE} numbers at once")
        self._numbers_left -= len(numbers)
        if self._numbers_left < 0:
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


def size_of(value: object, most: int = MAX_OUTPUT) -> int:
    """Estimate the length of a value when it is written: its texts, and a few characters for each item.

    A list that holds another one many times is short in memory, and of any length when written.

    Args:
        value: The value.
        most: The largest length.

    Returns:
        The length.

    Raises:
        SecurityError: It is longer.
    """
    total = 0
    level: list[Any] = [value]
    # Level by level: what holds too much is found out before all of it is gone through.
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
                # Each is written with a separator.
                if total + 3 * len(inside) > most:
                    check_length(total + 3 * len(inside), most)
        total += 3 * len(inside)
        if not inside:
            break
        level = inside
    check_length(total, most)
    return total


def _items_of(value: object) -> Collection[object]:
    """Return what a value holds and shows."""
    if isinstance(value, Namespace):
        # None of its names can be asked for them.
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        many = cast("Mapping[object, object]", value)
        return [*many, *many.values()]
    # A tuple, or one of the views of a dict.
    is_shorter = isinstance(value, (bytes, range, Undefined))
    return cast("Collection[object]", value) if isinstance(value, Collection) and not is_shorter else ()


def as_text(value: object) -> str:
    """A value as text, where that is not too long.

    Args:
        value: The value.

    Returns:
        Its text; text is left as it is.

    Raises:
        SecurityError: It would be.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, BRIEF):
        size_of(value)
    return str(value)


def check_operator(operator: str, left: object, right: object) -> None:
    """Refuse to calculate what would become out of bounds.

    Args:
        operator: ``*``, ``**`` or ``%``.
        left: What is before it.
        right: What is behind it.

    Raises:
        SecurityError: It would.
    """
    if operator == "%":
        if isinstance(left, bytes):
            raise SecurityError("% is not for bytes")
        if isinstance(left, str):
            arguments = cast("tuple[object, ...]", right) if isinstance(right, tuple) else (right,)
            _check_format("%", _percent_specs(left), arguments)
        return
    if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
        raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise SecurityError(f"{operator!r} would make a number of more than {MAX_BITS} bits")
    elif operator == "*":
        for long, times in ((left, right), (right, left)):
            if isinstance(long, LONG) and isinstance(times, int):
                check_length(len(long) * times, MAX_OPERAND)


def check_method(
    name: str, subject: str | float | bytes, args: tuple[object, ...], named: tuple[object, ...]
) -> tuple[object, ...]:
    """Refuse to call a method that would make its subject grow out of bounds.

    Args:
        name: The name of the method.
        subject: What has it.
        args: What it is given by place.
        named: What it is given by name.

    Returns:
        What to give it by place.

    Raises:
        SecurityError: It would.
    """
    if name == "translate" or (isinstance(subject, bytes) and name != "decode"):
        raise SecurityError(f"{name} is not for templates; use replace")
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
    """Refuse to apply a filter that would make its subject grow out of bounds, or write more than a text may be.

    Args:
        name: The name of the filter.
        subject: What it is applied to.
        arguments: What it is given.

    Returns:
        What to apply it to.

    Raises:
        SecurityError: It would.
    """
    if name in ("join", "sum"):
        subject = _listed(subject, max(map(len, map(as_text, arguments)), default=0) if name == "join" else 0)
    if not isinstance(subject, str):
        length = size_of(subject)
        if name == "tojson" and arguments:
            # Each item may have an indent before it and a separator behind it.
            check_length(length * max(1, *map(_size, arguments)))
        elif name == "sum" and any(isinstance(one, list | tuple) for one in arguments):
            # Each list that is added copies all before it.
            check_length(length * len(cast("Sequence[object]", subject)), _MAX_COPIED)
    if name in ("format", "replace"):
        # They begin with that themselves.
        subject = as_text(subject)
        if name == "format":
            _check_format(name, _percent_specs(subject), arguments)
    _check_arguments(name, subject, arguments)
    return subject


def _check_arguments(what: str, subject: object, arguments: Sequence[object]) -> None:
    """Refuse the arguments that would make a filter or method grow its subject out of bounds."""
    if what == "replace" and isinstance(subject, str):
        # Any of them may take the place of any other: they may come by name, in any order.
        for old, new in permutations(map(as_text, arguments), 2):
            check_length(subject.count(old) * len(new), MAX_OPERAND)
    elif what in _SIZED or what in _REPEATED:
        numbers = [abs(argument) for argument in arguments if isinstance(argument, int)]
        if what in _SIZED and max(numbers, default=0) > MAX_WIDTH:
            raise SecurityError(f"{what} takes numbers up to {MAX_WIDTH}")
        if what in _REPEATED and isinstance(subject, str):
            sizes = [len(one) for one in arguments if isinstance(one, str)] + (numbers if what in _SIZED else [])
            check_length(subject.count(_REPEATED[what]) * max(sizes, default=0))


def _size(argument: object) -> int:
    if isinstance(argument, list | tuple):
        return max(map(_size, cast("Sequence[object]", argument)), default=0)
    return abs(argument) if isinstance(argument, int) else len(argument) if isinstance(argument, str) else 0


def _check_format(what: str, specs: Sequence[str], arguments: Sequence[object]) -> None:
    """Refuse what would make a formatted text grow out of bounds: its widths, and how often it shows a value."""
    # Most fields have none: ``%s``, ``{}``.
    given = [spec for spec in specs if spec]
    if any(map(_WIDTH.search, given)):
        raise SecurityError(f"{what} takes widths up to {MAX_WIDTH}")
    if any("*" in spec or "{" in spec for spec in given):
        if any(isinstance(one, int) and abs(one) > MAX_WIDTH for one in arguments):
            raise SecurityError(f"{what} takes numbers up to {MAX_WIDTH}")
        if any("{" in spec for spec in given):
            raise SecurityError(f"{what} takes no widths out of values")
    widths = [int(width) for spec in given for width in _NUMBER.findall(spec)]
    check_length(sum(widths) + len(specs) * max(map(size_of, arguments), default=0))


def _percent_specs(pattern: str) -> list[str]:
    """The specification of each field before ``%``: what stands between the sign and the letter."""
    # The end of a field's name is unknown if it has brackets in it.
    if _BRACKETS_IN_KEY.search(pattern):
        raise SecurityError("% takes no keys with brackets")
    return _PERCENT.findall(pattern)


def _listed(items: object, separator: int = 0) -> object:
    """Return values to be joined or summed as a list, since their lengths must be known.

    Args:
        items: The items.
        separator: How long the text is that will stand between them.

    Returns:
        The items.

    Raises:
        SecurityError: They are out of bounds.
    """
    if isinstance(items, Iterator):
        items = list(cast("Iterator[object]", items))
    if isinstance(items, Sized):
        check_length(separator * len(items), MAX_OPERAND)
        size_of(items)
    return items
