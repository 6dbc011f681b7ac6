r"""Control sequences in untrusted text: found, neutralised, refused or left.

A control sequence is whatever a model, or its engine, reads as structure: a marker of its family, a special token, a
thinking or tool tag, or a section header that the developer's own template has. In trusted text it is what the
developer meant. In untrusted text it would open a turn, a role or a tool that nobody gave.

It is neutralised with a backslash behind its first sign: ``<|im_end|>`` becomes ``<\|im_end|>``. No tokenizer knows
that form, no Unicode normalisation folds it back, and a reader still sees what was written. Inside JSON the first sign
becomes JSON's own escape (``\u003c``), so that the value stays the same value.

Where a text stands decides, not what it says: only a sequence that reaches into untrusted text is touched, also one
that begins in the template and ends in a value.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from functools import lru_cache, partial
from itertools import accumulate, islice
from string import digits
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias, get_args
from unicodedata import normalize

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import SafetyError, did_you_mean
from lazyprompt.safety.folding import Folded, fold, places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

Safety: TypeAlias = Literal["neutralize", "raise", "off"]
SAFETIES: tuple[Safety, ...] = get_args(Safety)


class Policy(NamedTuple):
    """Treatment of control sequences in untrusted text.

    Attributes:
        default: The treatment of slots that have none of their own.
        slots: What becomes of them in the text of some slots.
    """

    default: Safety = "neutralize"
    slots: tuple[tuple[str, Safety], ...] = ()

    @property
    def looks(self) -> bool:
        """True if control sequences are looked for."""
        return self.default != "off" or any(safety != "off" for _, safety in self.slots)

    def of(self, slot: str) -> Safety:
        """Return the treatment of control sequences in the text of a slot."""
        return dict(self.slots).get(slot, self.default) if self.slots else self.default


NEUTRALIZE, OFF = Policy(), Policy("off")

# Tags that chat templates and engines of many families read as structure, whichever markers the family has.
COMMON_TAGS = frozenset(
    f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "tools") for slash in ("", "/")
)

# The form of nearly all reserved tokens, <|name|>; a tokenizer may have more of them than its template uses. Others are
# numbered.
_NAME = r"[^<>|\s\\]{1,64}"
_NUMBERED = ("unused", "reserved_", "SPECIAL_", "special_", "extra_id_")
_RESERVED = rf"<(?:\|{_NAME}\||(?:{'|'.join(_NUMBERED)})[0-9]{{1,5}})>"
# The pieces that one of the form <|name|> can be cut into: its beginning, which is its end backwards, without the first
# character; and what is between them.
_RESERVED_BEGUN = rf"(?:\|(?:{_NAME}\|?)?)?"
_RESERVED_INSIDE = re.compile(rf"\|?(?:{_NAME})?\|?")
# One of each form; digits stand for any others.
_RESERVED_SAMPLES = ("<|x|>", *(f"<{name}{'0' * digits}>" for name in _NUMBERED for digits in range(1, 6)))

_LONGEST_RESERVED = f"<|{'x' * 64}|>"
# How many times the longest sequence one may be that has signs within it that do not show.
_WIDEST = 8
# By so many signs a sequence may begin that is then looked up.
_TOLD = 4
# So many literals are remembered.
_LITERALS_KEPT = 1_000
# So many signs are looked at one by one, in plain text, and in text that may have to be folded.
_MOST_FINDS, _MOST_WINDOWS = 16, 50

# The signs that decompose to text with a sign in it, for the signs that nearly all sequences begin with.
_DISGUISES = {
    "<": "\u226e\ufe64\uff1c",
    ">": "\u226f\ufe65\uff1e",
    "[": "\ufe47\uff3b",
    "]": "\ufe48\uff3d",
    "#": "\ufe5f\uff03",
}
_DISGUISED = frozenset((*_DISGUISES, *"".join(_DISGUISES.values())))
# Joins texts that are looked at together: it is part of no sequence.
JOINT = "\0"


_HEADER = re.compile(r"^[ \t]*+(#{2,}+[ \t]++\S(?:.*[^ \t\n])?)", re.MULTILINE)
_DIGITS = re.compile(r"\d")
_BLANKS = re.compile(r"[ \t]+")
# Text that may become shorter when it is folded.
_SHORTENED = re.compile(r"[^\x00-\x7f]|[ \t]{2}")
_ASCII = frozenset(map(chr, range(128)))
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")

# Each pass breaks what it finds; a second one is needed where sequences overlap, more only where somebody tries hard.
_MOST_PASSES = 100


class _Forged(NamedTuple):
    """A control sequence that reaches into untrusted text.

    Attributes:
        part: The first untrusted part that it reaches into.
        begin: Where in the part it begins; 0 where it begins before the part.
        end: Where it ends, counted from the part's beginning.
        crosses: Whether it begins before the part.
        sign: What the sign at its beginning is decomposed to.
        into: At which of these it begins.
        text: The sequence as it is written.
    """

    part: int
    begin: int
    end: int
    crosses: bool
    sign: str
    into: int
    text: str


# A control sequence in a text: where it begins and ends, and True if it is a section header.
_Found: TypeAlias = tuple[int, int, bool]
# What is put in place of what: from one index to another, this text.
_Edit: TypeAlias = tuple[int, int, str]


class _Beginnings:
    """Beginnings of control sequences; of those written backwards, which are their ends.

    Args:
        texts: The sequences.
        reserved: Whether anything of the form ``<|name|>`` counts.
        backwards: Whether all texts are read backwards.
    """

    __slots__ = ("_backwards", "_known", "_reserved", "_signs")

    def __init__(self, texts: Iterable[str], *, reserved: bool, backwards: bool) -> None:
        self._backwards = backwards
        self._reserved = re.compile((">" if backwards else "<") + _RESERVED_BEGUN if reserved else "(?!)")
        self._signs: dict[str, tuple[set[str], int]] = {}
        """By the first character, in plain or in disguise: the characters within sequences, and the longest length."""
        known = {self.plain(text): text[-1 if backwards else 0] for text in texts}
        for plain, first in known.items():
            for sign in {plain[0], first}:
                for form in (sign, *_DISGUISES.get(sign, sign.upper() + sign.lower())):
                    within, length = self._signs.get(form, (set[str](), 0))
                    is_reserved = reserved and sign in "<>"
                    within.update(_ASCII if is_reserved else _in_any_case(plain[:-1]))
                    longest = len(_LONGEST_RESERVED) if is_reserved else 0
                    self._signs[form] = within, max(length, longest, len(plain))
        # Sorted, so that one that begins with a piece is found however many there are.
        self._known = sorted(known)

    def plain(self, text: str) -> str:
        """Return a text as :func:`_plain` does, in the direction of reading."""
        return _plain(text)[::-1] if self._backwards else _plain(text)

    def begin(self, piece: str) -> bool:
        """Return True if a sequence begins with a piece, which is plain, and goes on."""
        return _begins_longer(self._known, piece) or self._reserved.fullmatch(piece) is not None

    def at_end(self, texts: Sequence[str]) -> set[str]:
        """Return the pieces that texts end with, plain, white space aside."""
        joined = JOINT.join(texts)
        # Nobody knows all the disguises of a letter.
        known = joined.isascii()
        signs = {sign for sign in self._signs if sign in joined or not (known or sign in _DISGUISED)}
        if not signs:
            return set()
        # Only a few characters can be the last ones of a piece.
        last = set[str]().union(*(self._signs[sign][0] for sign in signs))
        tails = self._near(texts, last, signs, max(self._signs[sign][1] for sign in signs), ends=True)
        pieces = (tail[at:] for tail in tails for at, sign in enumerate(tail) if sign in self._signs)
        return {piece for piece in pieces if self.begin(piece)}

    def go_on(self, pieces: Iterable[str], texts: Iterable[str]) -> bool:
        """Return True if a sequence that begins with one of some pieces could go on with one of some texts."""
        rests: set[str] = set()
        for piece in pieces:
            if self._reserved.fullmatch(piece):
                return True
            for known in islice(self._known, bisect_right(self._known, piece), None):
                if not known.startswith(piece):
                    break
                rests.add(known[len(piece) :].strip())
        if not rests:
            return False
        firsts = _in_any_case([rest[:1] for rest in rests])
        heads = self._near(texts, firsts, firsts, max(map(len, rests)), ends=False)
        return "" in firsts or any(rest.startswith(head) or head.startswith(rest) for head in heads for rest in rests)

    def _near(
        self, texts: Iterable[str], outermost: set[str], within: set[str], width: int, *, ends: bool
    ) -> Iterator[str]:
        """Yield the ends or the beginnings of texts, plain, with these characters outermost and within them."""
        right = ends != self._backwards
        for text in texts:
            bare = text.rstrip() if right else text.lstrip()
            if bare and (bare[-1 if right else 0] in outermost or not bare.isascii()):
                near = bare[-width:] if right else bare[:width]
                shortened = _SHORTENED.search(near)
                if shortened or not within.isdisjoint(near):
                    plain = self.plain(bare if shortened else near).strip()
                    yield plain[-width:] if ends else plain[:width]


def _in_any_case(plain: Iterable[str]) -> set[str]:
    """Return characters of plain texts in all forms that ASCII has for them."""
    return {*plain, *map(str.upper, plain), *(digits if "0" in plain else "")}


class _Edges:
    """The pieces that control sequences can be cut into. All texts that it is asked about are :func:`_plain`.

    Args:
        texts: The sequences.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    __slots__ = ("_insides", "_reserved", "begun", "ended")

    def __init__(self, texts: Iterable[str], *, reserved: bool) -> None:
        known = (*texts, *(_RESERVED_SAMPLES if reserved else ()))
        self._reserved = reserved
        self._insides = JOINT.join(_plain(text)[1:-1] for text in known)
        self.begun, self.ended = (_Beginnings(known, reserved=reserved, backwards=each) for each in (False, True))

    def is_inside(self, piece: str) -> bool:
        """Return True if a sequence has a piece within it, and more on both sides."""
        return bool(piece) and piece in self._insides

    def is_inside_reserved(self, piece: str) -> bool:
        """Return True if a reserved token could have a piece within it."""
        return self._reserved and _RESERVED_INSIDE.fullmatch(piece) is not None


class _Memo(dict[str, str]):
    """Cache of a function's results for the literals of templates, which are few and come again and again."""

    def __init__(self, function: Callable[[str], str]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, literal: str) -> str:
        if len(self) >= _LITERALS_KEPT:
            self.clear()
        made = self[literal] = self._function(literal)
        return made


def caseless(text: str) -> str:
    """Return a folded text in which letters that differ by case only are the same."""
    return fold(text).casefold().replace("\u0131", "i")


def _plain(text: str) -> str:
    """Return a caseless text in which all digits are the same, and all runs of blanks."""
    return _BLANKS.sub(" ", _DIGITS.sub("0", caseless(text)))


def _begins_longer(known: Sequence[str], piece: str) -> bool:
    """Return True if one of several sorted texts begins with a piece and goes on."""
    at = bisect_right(known, piece)
    return bool(piece) and at < len(known) and known[at].startswith(piece)


class Controls:
    """A set of control sequences, compiled.

    Args:
        sequences: The sequences, as they are written.
        headers: Section headers that are structure at the start of a line, as ``### Response:``.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    __slots__ = (
        "_contexts",
        "_edges",
        "_ends",
        "_has_headers",
        "_longest",
        "_reserved",
        "_searches",
        "texts",
    )

    def __init__(self, sequences: Iterable[str], headers: Iterable[str] = (), *, reserved: bool = True) -> None:
        # The longest first, so that of two sequences with one beginning the whole one is found.
        plain, headers = _longest_first(sequences), _longest_first(headers)
        self._reserved = reserved
        self.texts = (*plain, *headers)
        self._has_headers = bool(headers)
        self._longest = max(map(len, (*self.texts, _LONGEST_RESERVED)))
        # What sequences may end and begin with: made when somebody asks.
        self._edges: _Edges | None = None
        self._ends, self._contexts = _Memo(self._ends_of), _Memo(self._context_of)
        by_sign: dict[str, list[str]] = {}
        for text in plain:
            by_sign.setdefault(text[0], []).append(text)
        if reserved:
            by_sign.setdefault("<", [])
        if headers:
            by_sign.setdefault("#", [])
        known = "|".join(re.sub(r"(?:\\?[ \t])+", r"[ \\t]+", re.escape(text[1:])) for text in headers)
        others = {"<": _RESERVED[1:] if reserved else "", "#": f"(?P<header>(?i:{known}))" if headers else ""}
        # Looking for one sign costs a thirtieth of a search: text without any first sign is clean at once. Values are
        # looked at joined, where a line's start is not to be seen, so a header anywhere counts.
        self._searches = {sign: _Search(sign, texts, others.get(sign, "")) for sign, texts in by_sign.items()}

    def clean(self, text: str) -> bool:
        """Return True if a text surely holds no control sequence, in plain or in disguise."""
        return next(iter(self._places(text)), None) is None

    def _places(self, text: str) -> Iterable[int]:
        """Return where control sequences may begin in a text, in plain or in disguise."""
        if not text.isascii():
            return self._disguised_places(text)
        for sign in self._searches:
            if sign in text:
                return [begin for begin, _, _ in self._plain(text)]
        return ()

    def _plain(self, text: str) -> list[_Found]:
        """Return the control sequences in a folded text, in order."""
        found = [each for search in self._searches.values() if search.sign in text for each in search.occurrences(text)]
        return sorted(found)

    def _disguised_places(self, text: str) -> Iterator[int]:
        whole = ""
        for search in self._searches.values():
            most = _MOST_WINDOWS + 1
            near = [at for form in search.forms if form in text for at in islice(places(text, form), most)]
            if search.forms and len(near) < most:
                for at in near:
                    if self._begins_at(search, text, at):
                        yield at
                continue
            whole = whole or fold(text)
            if any(search.occurrences(whole)):
                folded = Folded.of(text)
                yield from (folded.origin(begin)[0] for begin, _, _ in search.occurrences(folded.text))

    def _begins_at(self, search: _Search, text: str, at: int) -> bool:
        """Return True if one of some sequences begins at a place, in plain or in disguise.

        To fold a long text for the sake of a few signs in it would take most of the time.
        """
        size = self._longest
        near = text[at : at + size]
        if search.match(near, 0):
            return True
        if near.isascii():
            return False
        # Signs that do not show take up room, and may be many.
        while len(folded := fold(near)) < self._longest and at + size < len(text):
            size *= 2
            near = text[at : at + size]
        return search.match(folded, 0) is not None

    def may_cross(self, literal: str) -> bool:
        """Return True if a control sequence could lie partly in this trusted text and partly in a value beside it."""
        return bool(self._ends[literal])

    def _ends_of(self, literal: str) -> str:
        """Return the ends of a trusted text that a control sequence could share with a value beside it."""
        folded, edges = fold(literal), self._pieces()
        whole = _plain(literal)
        # White space at a line's start stands between its end and a header.
        indents = self._has_headers and whole == " "
        if not whole or indents or edges.is_inside(whole) or edges.is_inside_reserved(whole):
            return folded
        head, tail = self._first(folded), self._first(folded[::-1])[::-1]
        head = next((head[:at] for at in range(len(head), 0, -1) if edges.ended.begin(_plain(head[:at])[::-1])), "")
        tail = next((tail[at:] for at in range(len(tail)) if edges.begun.begin(_plain(tail[at:]))), "")
        return f"{head}{JOINT}{tail}" if head or tail else ""

    def _first(self, text: str) -> str:
        """Return the beginning of a text, as far as a sequence could reach; runs of blanks count as one."""
        found = re.match(rf"(?:[ \t]++|[^ \t]){{0,{self._longest}}}", text)
        return found[0] if found else ""

    def _context_of(self, literal: str) -> str:
        """Return the end of a trusted text that shows if a line begins behind it; none if a sequence may cross it."""
        folded = fold(literal)
        return "" if not folded or self._ends[literal] else folded[len(folded.rstrip(" \t")) - 1 :]

    def at_edge(self, texts: Sequence[str], own: Iterable[str] | None = None) -> bool:
        """Return True if a control sequence could lie partly in one of several texts and partly beside it.

        It begins or ends with a piece of a sequence then, white space aside.

        Args:
            texts: The texts.
            own: All texts that may stand beside these, as each of them may beside the others; None is any text.
        """
        edges = self._pieces()
        found = [(side, side.at_end(texts)) for side in (edges.begun, edges.ended)]
        if own is None or not any(pieces for _, pieces in found):
            return any(pieces for _, pieces in found)
        beside = (*texts, *own)
        return any(side.go_on(pieces, beside) for side, pieces in found)

    def within(self, texts: Iterable[str], known: frozenset[str]) -> bool:
        """Return True if one of several texts is the inside of a control sequence, white space aside.

        Args:
            texts: The texts.
            known: Words that are no forgery.
        """
        edges = self._pieces()
        short = [text for text in texts if len(text) <= self._longest and text not in known]
        return any(edges.is_inside(_plain(text).strip()) for text in short)

    def begins_at_end(self, literal: str) -> bool:
        """Return True if a trusted text ends with the beginning of a control sequence."""
        return bool(self._pieces().begun.at_end([literal]))

    def ends_at_start(self, literal: str) -> bool:
        """Return True if a trusted text begins with the end of a control sequence."""
        return bool(self._pieces().ended.at_end([literal]))

    def _pieces(self) -> _Edges:
        self._edges = self._edges or _Edges(self.texts, reserved=self._reserved)
        return self._edges

    def guard(
        self, parts: Sequence[str], slots: Sequence[str], policy: Policy, where: Sequence[str] | None = None
    ) -> list[str]:
        """The parts with every control sequence that reaches into untrusted text neutralised.

        Args:
            parts: Trusted and untrusted text in turn.
            slots: The slot of each part.
            policy: What becomes of the sequences.
            where: How errors call each part; None is by its slot.

        Returns:
            New parts of the same number.

        Raises:
            SafetyError: There is one where it is refused.
        """
        return self.guard_in(self.suspicious(parts), parts, slots, policy, where)

    def suspicious(self, parts: Sequence[str], first: int = 0, *, may_cross: bool = True) -> list[range]:
        """Return the stretches of parts that may have to be guarded; each stands alone.

        Args:
            parts: Trusted and untrusted text in turn.
            first: The trusted part to begin with.
            may_cross: False if :meth:`may_cross` is False for each trusted part.
        """
        near, step = parts[first + 1 :: 2], 2
        if may_cross:
            # Of trusted text only that is looked at which a sequence could share with a value.
            near, step = [*parts[first:]], 1
            near[::2] = map(self._ends.__getitem__, near[::2])
        stretches: list[range] = []
        if places := self._places("".join(near)):
            starts = [*accumulate(map(len, near), initial=0)]
            begin = first + step - 1
            for at in sorted({begin + step * (bisect_right(starts, place) - 1) for place in places}):
                if not stretches or at >= stretches[-1].stop:
                    stretches.append(self._stretch(parts, at, first))
        return stretches

    def _stretch(self, parts: Sequence[str], at: int, first: int) -> range:
        """Return the parts around one of them that a sequence could reach: to where trusted text has a context."""
        begin = end = at - at % 2
        while begin > first and not self._contexts[parts[begin]]:
            begin -= 2
        end += 2
        while end < len(parts) and not self._contexts[parts[end]]:
            end += 2
        return range(begin, min(end, len(parts)))

    def guard_in(
        self,
        stretches: Iterable[range],
        parts: Sequence[str],
        slots: Sequence[str],
        policy: Policy,
        where: Sequence[str] | None = None,
    ) -> list[str]:
        """Guard the stretches that :meth:`suspicious` found; the arguments are those of :meth:`guard`."""
        guarded = [*parts]
        for stretch in stretches:
            begin, end = stretch.start, stretch.stop
            # Of the trusted text before it, the end is enough to see if a line begins here.
            pieces = [self._contexts[parts[begin]] or parts[begin], *parts[begin + 1 : end]]
            names = (where or slots)[begin:end]
            guarded[begin + 1 : end] = self._guarded(pieces, slots[begin:end], policy, names)[1:]
        return guarded

    def _guarded(self, parts: Sequence[str], slots: Sequence[str], policy: Policy, where: Sequence[str]) -> list[str]:
        """Return one stretch of parts with its control sequences neutralised."""
        guarded = list(parts)
        safeties = ["off" if is_trusted(at, part) else policy.of(slots[at]) for at, part in enumerate(parts)]
        for _ in range(_MOST_PASSES):
            by_part: dict[int, list[_Forged]] = {}
            for each in self._forged(guarded, safeties):
                if safeties[each.part] == "raise":
                    raise SafetyError(
                        f"{where[each.part]!r} holds the control sequence {each.text!r}; "
                        'take it out, or use safety="neutralize" to make it harmless'
                    )
                by_part.setdefault(each.part, []).append(each)
            for part, sequences in by_part.items():
                guarded[part] = _broken(guarded[part], sequences)
            if not by_part or self.clean("".join(guarded)):
                return guarded
        raise SafetyError(f"{where[1]!r} and its neighbours hold control sequences that cannot be made harmless")

    def found(self, text: str) -> list[tuple[int, str]]:
        """Return the places and texts of the control sequences in a text, in plain and in disguise."""
        return [(each.begin, each.text) for each in self._forged(("", text, ""), ("off", "neutralize", "off"))]

    def begins_in(self, text: str) -> bool:
        """Return True if a text holds a character that a control sequence may begin with."""
        return any(
            any(form in text for form in each.forms or (each.sign,)) or not (each.forms or text.isascii())
            for each in self._searches.values()
        )

    def restored(self, text: str) -> str:
        """A text that was made harmless, as it was before.

        Args:
            text: The text. A backslash that was there before, in the place of one of ours, goes too.
        """
        width = _WIDEST * self._longest
        pieces: list[str] = []
        # From the end on, since a sequence may have a broken one within it: what stands behind is whole again.
        behind, end = "", len(text)
        for at in reversed([*places(text, "\\")]):
            piece = text[at:end]
            if at and self._begins(text, at - 1, (piece[1 : width + 1] + behind)[:width]):
                piece = piece[1:]
            pieces.append(piece)
            behind, end = (piece[:width] + behind)[:width], at
        return "".join(reversed([*pieces, text[:end]]))

    def _begins(self, text: str, at: int, behind: str) -> bool:
        """Return True if a control sequence begins at a place, with the text that would follow it."""
        folded = fold(text[at] + behind)
        search = self._searches.get(folded[:1])
        found = None if search is None else search.match(folded, 0)
        return found is not None and (not found[2] or _at_line_start(text, at))

    def _forged(self, parts: Sequence[str], safeties: Sequence[Safety]) -> list[_Forged]:
        """Return the sequences that reach into text whose treatment is not ``off``."""
        whole = "".join(parts)
        folded = Folded.of(whole)
        starts = list(accumulate(map(len, parts), initial=0))
        forged: list[_Forged] = []
        at = 0
        for begin, end, is_header in self._plain(folded.text):
            # Another sequence may begin inside one that is not forged.
            if begin < at or (is_header and not _at_line_start(folded.text, begin)):
                continue
            source, into = folded.origin(begin)
            source_end = folded.origin(end - 1)[0] + 1
            first = bisect_right(starts, source) - 1
            for index in range(first, bisect_left(starts, source_end)):
                if safeties[index] != "off" and parts[index]:
                    start, sign = starts[index], fold(whole[source])
                    forged.append(
                        _Forged(
                            index,
                            max(source - start, 0),
                            source_end - start,
                            source < start,
                            sign,
                            into,
                            whole[source:source_end],
                        )
                    )
                    at = end
                    break
        return forged


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(filter(None, set(map(fold, texts))), key=lambda text: (-len(text), text))


def _at_line_start(text: str, at: int) -> bool:
    """Return True if only white space stands before an index in its line."""
    while at and text[at - 1] in " \t":
        at -= 1
    return not at or text[at - 1] in _LINE_ENDS


# The start and end of a neutralised sequence in a text, and the sequence as it was given.
TextMark: TypeAlias = tuple[int, int, str]


class Neutralised(str):
    """Text in which control sequences were neutralised.

    Args:
        text: The text.
        marks: Finds where they are: most prompts are sent, and nobody asks.
    """

    __slots__ = ("_find_marks",)
    _find_marks: Callable[[], Iterable[TextMark]]

    def __new__(cls, text: str, marks: Callable[[], Iterable[TextMark]]) -> Self:
        """Make the text."""
        made = super().__new__(cls, text)
        made._find_marks = marks
        return made

    def __getnewargs__(self) -> tuple[str, Callable[[], Iterable[TextMark]]]:  # type: ignore[override]  # of str, of which there is more here
        return str.__str__(self), self._find_marks

    @property
    def marks(self) -> tuple[TextMark, ...]:
        """The neutralised sequences, in order."""
        return (*self._find_marks(),)


class NeutralisedJson(Neutralised, JsonText):
    """JSON in which control sequences were neutralised."""

    __slots__ = ()


def _broken(text: str, sequences: Iterable[_Forged]) -> Neutralised:
    """Text with its sequences broken, put together in one go."""
    edit = _json_editor(text) if isinstance(text, JsonText) else _edit
    pieces: list[str] = []
    spans: list[tuple[int, int, int]] = []
    done = 0
    for sequence in sequences:
        begin, end, instead = edit(text, sequence)
        pieces += text[done:begin], instead
        spans.append((sequence.begin, min(sequence.end, len(text)), len(instead) - end + begin))
        done = end
    kind = NeutralisedJson if isinstance(text, JsonText) else Neutralised
    return kind("".join(pieces) + text[done:], partial(_marks, text, spans))


def _marks(text: str, spans: Sequence[tuple[int, int, int]]) -> Iterator[TextMark]:
    """Yield the marks of the text that a pass made of another one; sequences that overlap have one mark.

    Args:
        text: The text before the pass.
        spans: The start and end of each sequence that was broken, and its growth.
    """
    known = text.marks if isinstance(text, Neutralised) else ()
    joined: list[tuple[int, int, int]] = []
    for start, end, growth in sorted([*spans, *((start, end, 0) for start, end, _ in known)]):
        if joined and start < joined[-1][1]:
            before = joined.pop()
            joined.append((before[0], max(before[1], end), before[2] + growth))
        else:
            joined.append((start, end, growth))
    moved = 0
    for start, end, growth in joined:
        yield start + moved, end + moved + growth, _given(text, start, end, known)
        moved += growth


def _given(text: str, start: int, end: int, known: Sequence[TextMark]) -> str:
    """Return a stretch of a text as it was given."""
    given, done = "", start
    for begin, stop, raw in known[bisect_left(known, (start,)) :]:
        if begin >= end:
            break
        given += text[done:begin] + raw
        done = stop
    return given + text[done:end]


def _edit(_: str, sequence: _Forged) -> _Edit:
    """A backslash behind a sequence's first sign, or before the first one it takes from the text."""
    begin = sequence.begin
    if sequence.crosses:
        return begin, begin, "\\"
    if len(sequence.sign) > sequence.into + 1:
        # One sign stands for several of the sequence, or for all of it: they are written out, to be broken apart.
        return begin, begin + 1, f"{sequence.sign[: sequence.into + 1]}\\{sequence.sign[sequence.into + 1 :]}"
    return begin + 1, begin + 1, "\\"


def _json_editor(text: str) -> Callable[[str, _Forged], _Edit]:
    """Return an editor that breaks a sequence in JSON without a change of its value, by an escape in a string.

    A sequence of nothing but brackets and the like gets a space, which JSON allows between them.
    """
    # Where strings begin and end, in turn: before an escape in them is an end, too, and behind it a beginning.
    bounds = array("Q")
    for string in _JSON_STRING.finditer(text):
        begin, end = string.span()
        bounds.append(begin + 1)
        for escape in _JSON_ESCAPE.finditer(text, begin + 1, end - 1):
            bounds.extend(escape.span())
        bounds.append(end - 1)

    def edit(text: str, sequence: _Forged) -> _Edit:
        for index in range(sequence.begin, min(sequence.end, len(text))):
            if bisect_right(bounds, index) % 2:
                return index, index + 1, _json_escape(text[index])
        at = 0 if sequence.crosses else sequence.begin + 1
        return at, at, " "

    return edit


def _json_escape(sign: str) -> str:
    """A sign as JSON's escape; one beyond the basic plane as a pair of them."""
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class _Search:
    """The control sequences that begin with one sign.

    A pattern of all of them would take long to compile. So the pattern knows but how they begin, and what is found is
    then looked up by its length.

    Args:
        sign: The sign.
        texts: The sequences.
        others: A pattern of what is behind the sign in further ones; empty if there are none.
    """

    __slots__ = ("_lengths", "_others", "_short_lengths", "_texts", "begun", "forms", "sign")

    def __init__(self, sign: str, texts: Sequence[str], others: str) -> None:
        self.sign = sign
        self._texts = frozenset(texts)
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[:_TOLD] if len(text) >= _TOLD else "", set()).add(len(text))
        self._short_lengths = sorted(lengths.pop("", ()), reverse=True)
        # By how sequences begin, which are longer than the short ones.
        self._lengths = {
            begun: [*sorted(found, reverse=True), *self._short_lengths] for begun, found in lengths.items()
        }
        self._others = re.compile(f"{re.escape(sign)}{others}" if others else "(?!)")
        self.forms = _forms(sign, {text[1:2] for text in texts})
        """The sign and its disguises; none where nobody knows them all."""
        rests = [*_grouped({text[1:_TOLD] for text in texts}), *filter(None, (others,))]
        self.begun = re.compile(f"{re.escape(sign)}(?:{'|'.join(rests)})")
        """A pattern of how they begin."""

    def match(self, text: str, at: int) -> _Found | None:
        """Return the longest sequence at a place."""
        if not self.begun.match(text, at):
            return None
        for length in self._lengths.get(text[at : at + _TOLD], self._short_lengths):
            piece = text[at : at + length]
            if piece in self._texts:
                return at, at + len(piece), False
        found = self._others.match(text, at)
        return None if found is None else (at, found.end(), found.lastgroup == "header")

    def occurrences(self, text: str) -> Iterator[_Found]:
        """Yield the sequences in a text, in order."""
        at = -1
        # A few signs are found sooner one by one than by a search, which goes through all that is between them.
        for _ in range(_MOST_FINDS):
            at = text.find(self.sign, at + 1)
            if at < 0:
                return
            if occurrence := self.match(text, at):
                yield occurrence
        # One may begin within another's beginning.
        while found := self.begun.search(text, at + 1):
            at = found.start()
            if occurrence := self.match(text, at):
                yield occurrence


def _grouped(rests: Iterable[str]) -> list[str]:
    """Patterns for texts, which ask each first sign of theirs but once."""
    by_sign: dict[str, list[str]] = {}
    for text in sorted(rests):
        by_sign.setdefault(text[:1], []).append(re.escape(text[1:]))
    return [f"{re.escape(sign)}(?:{'|'.join(more)})" for sign, more in by_sign.items()]


def _forms(sign: str, seconds: Collection[str]) -> tuple[str, ...]:
    """A sign and those of its disguises that sequences could begin with.

    Args:
        sign: The sign.
        seconds: The signs behind it in the sequences.
    """
    if sign not in _DISGUISES:
        return ()
    # A mark upon the sign stands behind it when decomposed: no sequence begins so that does not go on with the mark.
    marks = ((form, normalize("NFKD", form).partition(sign)[2]) for form in _DISGUISES[sign])
    return (sign, *(form for form, mark in marks if not mark or not {"", mark[0]}.isdisjoint(seconds)))


@lru_cache(maxsize=64)
def controls_for(sequences: frozenset[str], headers: frozenset[str], *, reserved: bool = True) -> Controls:
    """The compiled set of control sequences, made once for each of the last 64 sets."""
    return Controls(sequences, headers, reserved=reserved)


def headers_in(text: str) -> list[str]:
    """The section headers (``## …`` and deeper) of a trusted text, each of which is structure there."""
    return _HEADER.findall(text)


def policy_of(safety: str, slots: Mapping[str, str] | None = None) -> Policy:
    """A policy, checked.

    Args:
        safety: What becomes of control sequences: ``neutralize``, ``raise`` or ``off``.
        slots: The same for the text of some slots, by their names.

    Raises:
        SafetyError: There is no such policy.
    """
    return Policy(_checked(safety), tuple((name, _checked(each)) for name, each in (slots or {}).items()))


def _checked(safety: str) -> Safety:
    for known in SAFETIES:
        if safety == known:
            return known
    raise SafetyError(
        f"safety {safety!r} is unknown; known are {', '.join(SAFETIES)}{did_you_mean(str(safety), SAFETIES)}"
    )
