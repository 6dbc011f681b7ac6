"""Text that carries its origins through a template's operations on strings.

A chat template is a program: it may strip a text, search it for a tag, split it there and join the pieces with its own
text. A :class:`Traced` text behaves like the plain text, and the output still has an origin for each character: a
message, or the template itself.
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
        slot: The name of its slot in a :class:`~lazyprompt.messages.prompt.Segment`.
        message: The index of its message; None if it belongs to no message.
        trusted: True if the developer or the template wrote it.
        json: True if it was dumped as JSON.
        generated: True if the template marks it as the model's text (``{% generation %}``).
        mixed: True if it may contain the template's own text, too.
        raw: The original control sequence, if the text is a neutralised one.
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
# A number of consecutive characters, and their origin.
Run: TypeAlias = "tuple[int, TextOrigin]"


class Traced(str):
    """A string that carries its origins."""

    __slots__ = ("runs",)
    runs: tuple[Run, ...]

    def __new__(cls, text: str, runs: Iterable[Run]) -> Self:
        """Create a text with its runs, whose lengths add up to its length."""
        made = super().__new__(cls, text)
        made.runs = tuple(runs)
        return made

    @classmethod
    def of(cls, text: str, origin: TextOrigin) -> Self:
        """Create a text with a single origin."""
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
        """Trace consecutive pieces of this text, which are ``gap`` characters or any white space apart."""
        found: list[Traced] = []
        at = 0
        for piece in pieces:
            start = str.find(self, piece, at) if gap is None else at
            found.append(self._from(start, start + len(piece)))
            at = start + len(piece) + (gap or 0)
        return found

    def lstrip(self, chars: str | None = None, /) -> Traced:
        """Strip as ``str.lstrip`` does, with origins."""
        return self._from(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Traced:
        """Strip as ``str.rstrip`` does, with origins."""
        return self._from(0, len(str.rstrip(self, chars)))

    def strip(self, chars: str | None = None, /) -> Traced:
        """Strip as ``str.strip`` does, with origins."""
        return self.rstrip(chars).lstrip(chars)

    def removeprefix(self, prefix: str, /) -> Traced:
        """Remove as ``str.removeprefix`` does, with origins."""
        return self._from(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> Traced:
        """Remove as ``str.removesuffix`` does, with origins."""
        return self._from(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # a list of these is one of texts
        """Split as ``str.split`` does, with origins."""
        return self._pieces(str.split(self, sep, maxsplit), None if sep is None else len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # a list of these is one of texts
        """Split as ``str.rsplit`` does, with origins."""
        pieces = str.rsplit(self, sep, maxsplit)
        if sep is not None or not pieces:
            return self._pieces(pieces, len(sep or ""))
        # Only the first piece may begin with or contain white space.
        first = self._from(0, len(str.rstrip(pieces[0])) + str.find(self, pieces[0]))
        rest = self._from(len(first), len(self))
        begin = len(first) - len(pieces[0])
        return [first._from(begin, len(first)), *rest._pieces(pieces[1:])]  # noqa: SLF001 - of its own kind

    def splitlines(self, keepends: bool = False) -> list[Traced]:  # type: ignore[override]  # noqa: FBT001, FBT002 - str's own form
        """Split as ``str.splitlines`` does, with origins."""
        whole = self._pieces(str.splitlines(self, keepends=True), 0)
        bare = str.splitlines(self)
        return whole if keepends else [line._from(0, len(text)) for line, text in zip(whole, bare, strict=True)]  # noqa: SLF001 - of its own kind

    def partition(self, sep: str, /) -> tuple[Traced, Traced, Traced]:
        """Split as ``str.partition`` does, with origins."""
        before, separator, after = self._pieces(str.partition(self, sep), 0)
        return before, separator, after

    def rpartition(self, sep: str, /) -> tuple[Traced, Traced, Traced]:
        """Split as ``str.rpartition`` does, with origins."""
        before, separator, after = self._pieces(str.rpartition(self, sep), 0)
        return before, separator, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        """Replace as ``str.replace`` does; a new text without origins gets those of the replaced text."""
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
        """Join as ``str.join`` does, with origins."""
        items = list(texts)
        runs: list[Run] = []
        for index, item in enumerate(items):
            runs += (*(self.runs if index else ()), *runs_of(item))
        return Traced(str.join(self, items), runs)

    def _convert(self, text: str) -> Traced:
        """Return the converted text with the origins of this one; it usually has the same length."""
        return Traced(text, self.runs) if len(text) == len(self) else trace_opaque(text, (self,))

    def upper(self) -> Traced:
        """Convert as ``str.upper`` does, with origins."""
        return self._convert(str.upper(self))

    def lower(self) -> Traced:
        """Convert as ``str.lower`` does, with origins."""
        return self._convert(str.lower(self))

    def title(self) -> Traced:
        """Convert as ``str.title`` does, with origins."""
        return self._convert(str.title(self))

    def capitalize(self) -> Traced:
        """Convert as ``str.capitalize`` does, with origins."""
        return self._convert(str.capitalize(self))


_UNKNOWN = Traced.of("", TextOrigin("unknown"))


def runs_of(text: str) -> tuple[Run, ...]:
    """Return the runs of a text; a text without runs is the template's own."""
    return text.runs if isinstance(text, Traced) else ((len(text), OWN),)


def cut_runs(runs: Iterable[Run], start: int, stop: int) -> list[Run]:
    """Return the runs between two indexes."""
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
    """Return the common prefix of texts."""
    return commonprefix(texts)  # noqa: RUF071 - the texts are not paths


def common_start(*texts: str) -> str:
    """Return the common prefix of texts, without an incomplete token at its end."""
    return _BEGUN.sub("", common_prefix(*texts))


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts in a value, and a text of unknown origin for each opaque object."""
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
    """Trace a text that an opaque operation made from others: it gets a single origin.

    Args:
        text: The text.
        given: The values that it was made from.
        json: True if it was dumped as JSON.

    Returns:
        The text with one origin, which is trusted only if those of all values are.
    """
    found = [*find_traced(given)]
    origins = [origin for one in found for length, origin in one.runs if length or not str.__len__(one)]
    outside = [origin for origin in origins if not origin.trusted] or origins or [OWN]
    first = outside[0]
    if any(origin.message != first.message for origin in outside):
        first = first._replace(message=None)
    # Keys that a template dumps as JSON are not control sequences.
    plain = () if json else (one for one in _texts_in(given) if not isinstance(one, Traced))
    own = any(map(_PUNCTUATION.search, plain)) or any(
        each.trusted for one in found for length, each in one.runs if length
    )
    mixed = own and not first.trusted
    origin = first._replace(json=json or first.json, mixed=mixed or first.mixed, raw="")
    return Traced(text, _with_raw(text, origin, found))


def _with_raw(text: str, origin: TextOrigin, given: Iterable[Traced]) -> Iterator[Run]:
    """Yield the runs of a text with a single origin, keeping the neutralised sequences of the given texts."""
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
    """Copy plain data, and give its texts and keys an origin; traced texts keep theirs."""
    return _map_values(value, str, lambda text: _trace_text(text, origin))


def _trace_text(text: str, origin: TextOrigin) -> Traced:
    if isinstance(text, Traced):
        return text
    return trace_parts(text.origins) if isinstance(text, FilledText) else Traced.of(text, origin)


def trace_parts(text: Text) -> Traced:
    """Return a text that carries the slots of its parts."""
    runs = [
        (len(part), TextOrigin(slot, trusted=is_trusted(at, part)))
        for at, (part, slot) in enumerate(zip(text.parts, text.slots, strict=True))
    ]
    return Traced(str(text), runs)


def trace_message(message: Mapping[str, Any], origin: TextOrigin) -> dict[str, Any]:
    """Give the texts of a message an origin, except its role, which templates compare."""
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
    """Apply a function to the origins of a text."""
    return Traced(text, [(length, change(origin)) for length, origin in runs_of(text)])


def parts_of(text: str) -> tuple[list[str], list[TextOrigin]]:
    """Split a traced text into alternating trusted and untrusted parts.

    Args:
        text: The text.

    Returns:
        The parts and their origins; adjoining text of one origin is one part.
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
            # The last part is in use or of the other kind: add an empty part of the other kind where necessary.
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
    """Return a part with the marks of its neutralised sequences."""
    if not any(origin.raw for _, origin in runs):
        return JsonText(text) if is_json else text
    ends = accumulate(length for length, _ in runs)
    marks = [(end - length, end, origin.raw) for end, (length, origin) in zip(ends, runs, strict=True) if origin.raw]
    return (NeutralisedJson if is_json else Neutralised)(text, marks.copy)
