"""Strings that record the origin of each character, and keep this record when a template transforms them.

A chat template may, for example, strip a text, split it at a tag, and join the pieces with its own text. A
:class:`Traced` text behaves like plain text, but each of its characters keeps its origin, which is a message or the
template itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import accumulate, groupby
from os.path import commonprefix
from typing import Any, NamedTuple, Self, SupportsIndex, TypeAlias, TypeGuard, TypeVar

from lazyprompt._base.json import JsonText, is_dict, is_mapping, is_sequence, to_json
from lazyprompt._base.trusted import is_trusted
from lazyprompt.messages.prompt import MARKERS, FilledText, Text
from lazyprompt.safety.neutralised import Neutralised, NeutralisedJson


class TextOrigin(NamedTuple):
    """The origin of a text.

    Attributes:
        slot: The name of the text's slot in a :class:`~lazyprompt.messages.prompt.Segment`.
        message: The index of the message that the text comes from; None if the text comes from no message.
        trusted: True if the developer or the template wrote the text.
        json: True if the template wrote the text as JSON, with the filter ``tojson``.
        generated: True if the template marks the text as the model's own (``{% generation %}``).
        mixed: True if the text may also contain the template's own text.
        raw: The original control sequence if the text is a neutralised control sequence, else empty.
    """

    slot: str
    message: int | None = None
    trusted: bool = False
    json: bool = False
    generated: bool = False
    mixed: bool = False
    raw: str = ""


OWN = TextOrigin(MARKERS, trusted=True)

_BEGUN = re.compile(r"<[^<>]*\Z")

_PUNCTUATION = re.compile(r"[^\w\s]")
_LISTS = (list, tuple, KeysView, ValuesView, ItemsView)
_PLAIN = (int, float, type(None), range)

_Text = TypeVar("_Text", bound=str)
# The length of a run of characters, and the origin of these characters.
Run: TypeAlias = "tuple[int, TextOrigin]"


class Traced(str):
    """A string that records the origin of each character."""

    __slots__ = ("runs",)
    runs: tuple[Run, ...]

    def __new__(cls, text: str, runs: Iterable[Run]) -> Self:
        """Create a text from a string and the length and origin of each run; the runs must cover the whole string."""
        made = super().__new__(cls, text)
        made.runs = tuple(runs)
        return made

    @classmethod
    def of(cls, text: str, origin: TextOrigin) -> Self:
        """Create a text whose characters all have the same origin."""
        return cls(text, ((len(text), origin),))

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> Traced:
        return Traced(str.__add__(self, other), (*self.runs, *runs_of(other)))

    def __radd__(self, other: str) -> Traced:
        return Traced(str.__add__(other, self), (*runs_of(other), *self.runs))

    def __mul__(self, times: SupportsIndex) -> Traced:
        return Traced(str.__mul__(self, times), self.runs * max(times.__index__(), 0))

    def __rmul__(self, times: SupportsIndex) -> Traced:
        return self * times

    def __getitem__(self, key: SupportsIndex | slice) -> Traced:
        if not isinstance(key, slice):
            text = str.__getitem__(self, key)
            at = key.__index__() % len(self)
            return Traced(text, cut_runs(self.runs, at, at + 1))
        start, stop, step = key.indices(len(self))
        if step == 1:
            return self._from(start, max(start, stop))
        places = range(start, stop, step)
        origins = [origin for length, origin in self.runs for _ in range(length)]
        return Traced(str.__getitem__(self, key), [(1, origins[at]) for at in places])

    def __iter__(self) -> Iterator[Traced]:
        return (self._from(at, at + 1) for at in range(str.__len__(self)))

    def _from(self, start: int, stop: int) -> Traced:
        return Traced(str.__getitem__(self, slice(start, stop)), cut_runs(self.runs, start, stop))

    def _pieces(self, pieces: Iterable[str], gap: int | None = None) -> list[Traced]:
        """Return consecutive pieces of this text with their origins.

        Args:
            pieces: The pieces of this text as plain strings.
            gap: The number of characters between two consecutive pieces in this text; None if any white space may
                separate the pieces.
        """
        found: list[Traced] = []
        at = 0
        for piece in pieces:
            start = str.find(self, piece, at) if gap is None else at
            found.append(self._from(start, start + len(piece)))
            at = start + len(piece) + (gap or 0)
        return found

    def lstrip(self, chars: str | None = None, /) -> Traced:
        """Strip the start of the text like ``str.lstrip``, and keep the origins of the characters."""
        return self._from(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Traced:
        """Strip the end of the text like ``str.rstrip``, and keep the origins of the characters."""
        return self._from(0, len(str.rstrip(self, chars)))

    def strip(self, chars: str | None = None, /) -> Traced:
        """Strip both ends of the text like ``str.strip``, and keep the origins of the characters."""
        return self.rstrip(chars).lstrip(chars)

    def removeprefix(self, prefix: str, /) -> Traced:
        """Remove a prefix, as ``str.removeprefix`` does, and keep the origin of each remaining character."""
        return self._from(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> Traced:
        """Remove a suffix, as ``str.removesuffix`` does, and keep the origin of each remaining character."""
        return self._from(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # a list of Traced is a list of str
        """Split the text like ``str.split``, and keep the origins of the characters."""
        return self._pieces(str.split(self, sep, maxsplit), None if sep is None else len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # a list of Traced is a list of str
        """Split the text like ``str.rsplit``, and keep the origins of the characters."""
        pieces = str.rsplit(self, sep, maxsplit)
        if sep is not None or not pieces:
            return self._pieces(pieces, None if sep is None else len(sep))
        # If ``sep`` is None and ``maxsplit`` is reached, only the first piece can contain white space.
        first = self._from(0, len(str.rstrip(pieces[0])) + str.find(self, pieces[0]))
        rest = self._from(len(first), len(self))
        begin = len(first) - len(pieces[0])
        return [first._from(begin, len(first)), *rest._pieces(pieces[1:])]  # noqa: SLF001 - of its own kind

    def splitlines(self, keepends: bool = False) -> list[Traced]:  # type: ignore[override]  # noqa: FBT001, FBT002 - as in str
        """Split the text like ``str.splitlines``, and keep the origins of the characters."""
        whole = self._pieces(str.splitlines(self, keepends=True), 0)
        bare = str.splitlines(self)
        return whole if keepends else [line._from(0, len(text)) for line, text in zip(whole, bare, strict=True)]  # noqa: SLF001 - of its own kind

    def partition(self, sep: str, /) -> tuple[Traced, Traced, Traced]:
        """Split the text like ``str.partition``, and keep the origins of the characters."""
        before, separator, after = self._pieces(str.partition(self, sep), 0)
        return before, separator, after

    def rpartition(self, sep: str, /) -> tuple[Traced, Traced, Traced]:
        """Split the text like ``str.rpartition``, and keep the origins of the characters."""
        before, separator, after = self._pieces(str.rpartition(self, sep), 0)
        return before, separator, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        """Replace text like ``str.replace``; plain replacement text gets the origin of the replaced text."""
        if not old:
            return trace_opaque(str.replace(self, old, new, count), (self, new))
        pieces = self._pieces(str.split(self, old, count), len(old))
        joined: list[Run] = []
        at = 0
        for index, piece in enumerate(pieces):
            if index:
                joined += new.runs if isinstance(new, Traced) else [(len(new), cut_runs(self.runs, at, at + 1)[0][1])]
                at += len(old)
            joined += piece.runs
            at += len(piece)
        return Traced(str.replace(self, old, new, count), joined)

    def join(self, texts: Iterable[str], /) -> Traced:
        """Join texts like ``str.join``, and keep the origins of the characters."""
        items = list(texts)
        runs: list[Run] = []
        for index, item in enumerate(items):
            runs += (*(self.runs if index else ()), *runs_of(item))
        return Traced(str.join(self, items), runs)

    def _convert(self, text: str) -> Traced:
        """Return ``text`` with this object's origins, or with a single origin if ``text`` has a different length."""
        return Traced(text, self.runs) if len(text) == len(self) else trace_opaque(text, (self,))

    def upper(self) -> Traced:
        """Convert the text to upper case like ``str.upper``, and keep the origins of the characters."""
        return self._convert(str.upper(self))

    def lower(self) -> Traced:
        """Convert the text to lower case like ``str.lower``, and keep the origins of the characters."""
        return self._convert(str.lower(self))

    def title(self) -> Traced:
        """Convert the text to title case like ``str.title``, and keep the origins of the characters."""
        return self._convert(str.title(self))

    def capitalize(self) -> Traced:
        """Capitalize the text like ``str.capitalize``, and keep the origins of the characters."""
        return self._convert(str.capitalize(self))


_UNKNOWN = Traced.of("", TextOrigin("unknown"))


def runs_of(text: str) -> tuple[Run, ...]:
    """Return the runs of a text, each with its length and origin. A plain string is the template's own text."""
    return text.runs if isinstance(text, Traced) else ((len(text), OWN),)


def cut_runs(runs: Iterable[Run], start: int, stop: int) -> list[Run]:
    """Return the runs (spans of one origin) between two character indexes, with the first and last run truncated."""
    found: list[Run] = []
    at = 0
    for length, origin in runs:
        inside = min(at + length, stop) - max(at, start)
        if inside > 0:
            found.append((inside, origin))
        at += length
        if at >= stop:
            break
    return found


def common_prefix(*texts: str) -> str:
    """Return the longest common prefix of texts."""
    return commonprefix(texts)  # noqa: RUF071 - the texts are not paths


def common_start(*texts: str) -> str:
    """Return the common prefix of texts, without an incomplete ``<…>`` token at its end."""
    return _BEGUN.sub("", common_prefix(*texts))


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value; for each object of any other type, yield a text of unknown origin."""
    if isinstance(value, str):
        yield value
    elif is_mapping(value):
        for pair in value.items():
            yield from _texts_in(pair)
    elif _is_collection(value):
        for item in value:
            yield from _texts_in(item)
    elif not isinstance(value, _PLAIN):
        yield _UNKNOWN


def _is_collection(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, _LISTS)


def find_traced(value: object) -> Iterator[Traced]:
    """Yield the traced texts in a value."""
    return (text for text in _texts_in(value) if isinstance(text, Traced))


def contains_traced(value: object) -> bool:
    """Return True if a value contains traced text."""
    return any(True for _ in find_traced(value))


def trace_opaque(text: str, given: object, *, json: bool = False) -> Traced:
    """Assign a single origin to a text that was computed from other values by an operation that can't be traced.

    Args:
        text: The text that the untraceable operation returned.
        given: The values from which ``text`` was computed.
        json: True if the template wrote the text as JSON, with the filter ``tojson``.

    Returns:
        ``text`` with a single origin, which is trusted only if all texts in ``given`` are trusted.
    """
    found = [*find_traced(given)]
    origins = [origin for one in found for length, origin in one.runs if length or not str.__len__(one)]
    outside = [origin for origin in origins if not origin.trusted] or origins or [OWN]
    first = outside[0]
    if any(origin.message != first.message for origin in outside):
        first = first._replace(message=None)
    # Ignore untraced strings in dumped JSON, because only JSON keys are untraced, and keys are not control sequences.
    plain = () if json else (one for one in _texts_in(given) if not isinstance(one, Traced))
    own = any(map(_PUNCTUATION.search, plain)) or any(
        each.trusted for one in found for length, each in one.runs if length
    )
    mixed = own and not first.trusted
    origin = first._replace(json=json or first.json, mixed=mixed or first.mixed, raw="")
    return Traced(text, _with_raw(text, origin, found))


def _with_raw(text: str, origin: TextOrigin, given: Iterable[Traced]) -> Iterator[Run]:
    """Yield the runs of a text with one origin; each neutralised sequence from ``given`` becomes a separate run."""
    done = 0
    for one in given:
        at = 0
        for length, each in one.runs:
            at += length
            if each.raw:
                piece = str.__getitem__(one, slice(at - length, at))
                start, form = max((text.find(form, done), form) for form in (piece, to_json(piece)[1:-1]))
                if start >= 0:
                    yield start - done, origin
                    yield len(form), origin._replace(raw=each.raw)
                    done = start + len(form)
    yield len(text) - done, origin


def trace(value: object, origin: TextOrigin) -> Any:  # noqa: ANN401 - the type of the value
    """Copy plain data, and add an origin to its texts and keys; traced texts keep their origins."""
    return _map_values(value, str, lambda text: _trace_text(text, origin))


def _trace_text(text: str, origin: TextOrigin) -> Traced:
    if isinstance(text, Traced):
        return text
    return trace_parts(text.origins) if isinstance(text, FilledText) else Traced.of(text, origin)


def trace_parts(text: Text) -> Traced:
    """Convert a text to traced text that records the slots of its parts."""
    runs = [
        (len(part), TextOrigin(slot, trusted=is_trusted(at, part)))
        for at, (part, slot) in enumerate(zip(text.parts, text.slots, strict=True))
    ]
    return Traced(str(text), runs)


def trace_message(message: Mapping[str, Any], origin: TextOrigin) -> dict[str, Any]:
    """Add an origin to all texts in a message except the role, because templates compare roles."""
    return {name: value if name == "role" else trace(value, origin) for name, value in message.items()}


def map_texts(value: Any, change: Callable[[Traced], str]) -> Any:  # noqa: ANN401 - the type of the value
    """Copy plain data, and apply a function to its traced texts and keys."""
    return _map_values(value, Traced, change)


def _map_values(value: Any, kind: type[_Text], change: Callable[[_Text], str]) -> Any:  # noqa: ANN401 - the type of the value
    if isinstance(value, kind):
        return change(value)
    if is_dict(value):
        return {_map_values(key, kind, change): _map_values(item, kind, change) for key, item in value.items()}
    if is_sequence(value):
        made = [_map_values(item, kind, change) for item in value]
        return tuple(made) if isinstance(value, tuple) else made
    return value


def map_origins(text: str, change: Callable[[TextOrigin], TextOrigin]) -> Traced:
    """Apply a function to each origin in a text."""
    return Traced(text, [(length, change(origin)) for length, origin in runs_of(text)])


def parts_of(text: str) -> tuple[list[str], list[TextOrigin]]:
    """Split a traced text into alternating trusted and untrusted parts.

    Args:
        text: The text.

    Returns:
        The parts of the text, and the origin of each part. Adjacent characters with the same origin are in one part.
    """
    parts, origins = [""], [OWN]
    at = 0
    for _, group in groupby((run for run in runs_of(text) if run[0]), key=lambda run: run[1][:-1]):
        runs = [*group]
        length = sum(run[0] for run in runs)
        origin = runs[0][1]._replace(raw="") if runs[0][1].raw else runs[0][1]
        piece = _part(str.__getitem__(text, slice(at, at + length)), runs, is_json=origin.json and not origin.trusted)
        at += length
        of_its_kind = (len(parts) % 2 == 1) == origin.trusted
        if not of_its_kind or parts[-1]:
            # Trusted and untrusted parts must alternate, so insert an empty part between two parts of the same kind.
            fill = 2 if of_its_kind else 1
            parts += [""] * fill
            origins += [OWN] * fill
        parts[-1] = piece
        origins[-1] = origin
    if len(parts) % 2 == 0:
        parts.append("")
        origins.append(OWN)
    return parts, origins


def _part(text: str, runs: Sequence[Run], *, is_json: bool) -> str:
    """Create a part that records the positions of its neutralised sequences."""
    if not any(origin.raw for _, origin in runs):
        return JsonText(text) if is_json else text
    ends = accumulate(length for length, _ in runs)
    marks = [(end - length, end, origin.raw) for end, (length, origin) in zip(ends, runs, strict=True) if origin.raw]
    return (NeutralisedJson if is_json else Neutralised)(text, marks.copy)
