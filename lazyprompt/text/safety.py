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
from functools import lru_cache
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args
from unicodedata import normalize

from lazyprompt._json import JsonText
from lazyprompt.errors import SafetyError, did_you_mean
from lazyprompt.text.folding import MOST_WINDOWS, Folded, fold, places, windows
from lazyprompt.trusted import is_trusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Safety: TypeAlias = Literal["neutralize", "raise", "off"]
SAFETIES: tuple[Safety, ...] = get_args(Safety)


class Policy(NamedTuple):
    """What becomes of control sequences in untrusted text.

    Attributes:
        default: What becomes of them where nothing else is said.
        slots: What becomes of them in the text of some slots.
    """

    default: Safety = "neutralize"
    slots: tuple[tuple[str, Safety], ...] = ()

    @property
    def looks(self) -> bool:
        """Whether anything is looked for."""
        return self.default != "off" or any(safety != "off" for _, safety in self.slots)

    def of(self, slot: str) -> Safety:
        """What becomes of them in the text of a slot."""
        return dict(self.slots).get(slot, self.default)


NEUTRALIZE, OFF = Policy(), Policy("off")

# Tags that chat templates and engines of many families read as structure, whichever markers the family has.
COMMON_TAGS = frozenset(
    f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "tools") for slash in ("", "/")
)

# The form of nearly all reserved tokens, <|name|>; a tokenizer may have more of them than its template uses. Others are
# numbered.
_NAME = r"[^<>|\s\\]{1,64}"
_RESERVED = rf"<(?:\|{_NAME}\||(?:unused|reserved_|SPECIAL_|extra_id_)[0-9]{{1,5}})>"
# How a reserved token may begin, end or go on in a trusted text whose neighbours are values.
_RESERVED_ACROSS = re.compile(rf"<(?:\|(?:{_NAME}\|?)?)?\Z|\A(?:>|\|>|\|?{_NAME}\|>)|\A\|?(?:{_NAME})?\|?\Z")

_RESERVED_BEGUN = re.compile(rf"<(?:\|(?:{_NAME}\|?)?)?")
_RESERVED_ENDED = re.compile(rf">|\|>|\|?{_NAME}\|>")

_LONGEST_RESERVED = f"<|{'x' * 64}|>"
# How many times the longest sequence one may be that has signs within it that do not show.
_WIDEST = 8
# So many signs are looked at one by one.
_MOST_FINDS = 16

# The signs that decompose to text with a sign in it, for the signs that nearly all sequences begin with.
_DISGUISES = {
    "<": "\u226e\ufe64\uff1c",
    ">": "\u226f\ufe65\uff1e",
    "[": "\ufe47\uff3b",
    "]": "\ufe48\uff3d",
    "#": "\ufe5f\uff03",
}
# Joins texts that are looked at together: it is part of no sequence.
JOINT = "\0"


_HEADER = re.compile(r"^[ \t]*+(#{2,}+[ \t]++\S(?:.*[^ \t\n])?)", re.MULTILINE)
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


# What is put in place of what: from one index to another, this text.
_Edit: TypeAlias = tuple[int, int, str]


class _Edges(NamedTuple):
    """The pieces that control sequences can be cut into.

    Attributes:
        begin: The signs that sequences begin with, in plain or in disguise.
        end: The signs that they end with.
        beginnings: What is left of them where the rest is cut off.
        endings: What is left where the beginning is.
        insides: What is left where both are.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    begin: frozenset[str]
    end: frozenset[str]
    beginnings: frozenset[str]
    endings: frozenset[str]
    insides: frozenset[str]
    reserved: bool

    @classmethod
    def of(cls, texts: Iterable[str], *, reserved: bool) -> _Edges:
        """The pieces of sequences."""
        known = [*texts, *(("<|x|>",) if reserved else ())]
        cuts = [(text[:at], text[at:]) for text in known for at in range(1, len(text))]
        begin, end = (frozenset(text[place] for text in known) for place in (0, -1))
        return cls(
            begin.union(*(_DISGUISES.get(sign, "") for sign in begin)),
            end.union(*(_DISGUISES.get(sign, "") for sign in end)),
            frozenset(piece for piece, _ in cuts),
            frozenset(piece for _, piece in cuts),
            frozenset(piece[:at] for _, piece in cuts for at in range(1, len(piece))),
            reserved,
        )

    def begun(self, text: str) -> bool:
        """Whether a text is the beginning of a sequence."""
        piece = fold(text).rstrip().lower()
        return piece in self.beginnings or (self.reserved and _RESERVED_BEGUN.fullmatch(piece) is not None)

    def ended(self, text: str) -> bool:
        """Whether a text is the end of a sequence."""
        piece = fold(text).lstrip().lower()
        return piece in self.endings or (self.reserved and _RESERVED_ENDED.fullmatch(piece) is not None)

    def touched(self, text: str, width: int) -> bool:
        """Whether a text begins with the end of a sequence, or ends with the beginning of one."""
        folded = fold(text).strip()
        head, tail = folded[:width], folded[-width:]
        return any(self.ended(head[:stop]) for stop in range(1, len(head) + 1)) or any(
            self.begun(tail[start:]) for start in range(len(tail))
        )


class Controls:
    """A set of control sequences, compiled.

    Args:
        sequences: The sequences, as they are written.
        headers: Section headers that are structure at the start of a line, as ``### Response:``.
        reserved: Whether anything of the form ``<|name|>`` counts.
        any_case: Whether large and small letters are the same.
    """

    __slots__ = ("_edges", "_longest", "_pattern", "_reserved", "_searches", "_texts")

    def __init__(
        self, sequences: Iterable[str], headers: Iterable[str] = (), *, reserved: bool = True, any_case: bool = False
    ) -> None:
        flags = re.IGNORECASE if any_case else re.NOFLAG
        # The longest first, so that of two sequences with one beginning the whole one is found.
        plain, headers = _longest_first(sequences), _longest_first(headers)
        self._reserved = reserved
        self._texts = [text.lower() for text in (*plain, *headers)]
        self._longest = max(map(len, (*self._texts, _LONGEST_RESERVED)))
        # What sequences may end and begin with: made when somebody asks.
        self._edges: _Edges | None = None
        by_sign: dict[str, list[str]] = {}
        for text in plain:
            by_sign.setdefault(text[0], []).append(text[1:])
        if reserved:
            by_sign.setdefault("<", [])
        if headers:
            by_sign.setdefault("#", [])
        known = "|".join(re.sub(r"(?:\\?[ \t])+", r"[ \\t]+", re.escape(text[1:])) for text in headers)
        others = {"<": [_RESERVED[1:]] if reserved else [], "#": [f"(?P<header>(?i:{known}))"] if headers else []}
        # Grouped by their first signs, sequences cost one look a sign of the text, however many there are.
        patterns = {
            sign: f"{re.escape(sign)}(?:{'|'.join([*_grouped(rest), *others.get(sign, ())])})"
            for sign, rest in by_sign.items()
        }
        self._pattern = re.compile("|".join(patterns.values()) or "(?!)", flags)
        # Looking for one sign costs a thirtieth of a search: text without any first sign is clean at once. Values are
        # looked at joined, where a line's start is not to be seen, so a header anywhere counts.
        self._searches = [
            _Search(sign, _forms(sign, by_sign[sign]), re.compile(pattern, flags)) for sign, pattern in patterns.items()
        ]

    def clean(self, text: str) -> bool:
        """Whether a text surely holds no control sequence, in plain or in disguise."""
        if text.isascii():
            for sign, _, pattern in self._searches:  # noqa: SIM110 - a generator would cost as much as the look itself
                if sign in text and _occurs(text, sign, pattern):
                    return False
            return True
        for _, forms, pattern in self._searches:
            if not forms:
                if pattern.search(fold(text)):
                    return False
                continue
            for form in forms:
                if form in text and any(map(pattern.search, windows(text, form, self._longest))):
                    return False
        return True

    def may_cross(self, literal: str) -> bool:
        """Whether a control sequence could lie partly in this trusted text and partly in a value beside it."""
        text = fold(literal)
        lower = text.lower()
        return bool(text) and (
            (self._reserved and _RESERVED_ACROSS.search(text) is not None)
            or any(
                (lower in known and lower != known)
                or any(lower.endswith(known[:cut]) or lower.startswith(known[cut:]) for cut in range(1, len(known)))
                for known in self._texts
            )
        )

    def at_edge(self, texts: Sequence[str]) -> bool:
        """Whether one of several texts begins or ends with a piece of a control sequence, white space aside."""
        edges = self._pieces()
        joined = f"{JOINT}{JOINT.join(texts)}{JOINT}"
        # A piece begins, or ends, with a sign that sequences begin or end with: mostly there are few of them.
        begin = [at for sign in edges.begin for at in places(joined, sign)]
        end = [at for sign in edges.end for at in places(joined, sign)]
        if len(begin) + len(end) > MOST_WINDOWS:
            return any(edges.touched(text, self._longest) for text in texts)
        return any(edges.begun(joined[at : joined.index(JOINT, at)]) for at in begin) or any(
            edges.ended(joined[joined.rfind(JOINT, 0, at) + 1 : at + 1]) for at in end
        )

    def within(self, texts: Iterable[str], known: frozenset[str]) -> bool:
        """Whether one of several texts is what stands inside a control sequence, white space aside.

        Args:
            texts: The texts.
            known: Words that are no forgery.
        """
        insides = self._pieces().insides
        short = [text for text in texts if len(text) <= self._longest and text not in known]
        return any(fold(text).strip().lower() in insides for text in short)

    def begins_at_end(self, literal: str) -> bool:
        """Whether a trusted text ends with the beginning of a control sequence."""
        tail = literal[-self._longest :]
        return any(self._pieces().begun(tail[at:]) for at in range(len(tail)))

    def ends_at_start(self, literal: str) -> bool:
        """Whether a trusted text begins with the end of a control sequence."""
        return any(self._pieces().ended(literal[:at]) for at in range(1, min(len(literal), self._longest) + 1))

    def _pieces(self) -> _Edges:
        self._edges = self._edges or _Edges.of(self._texts, reserved=self._reserved)
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
        guarded = list(parts)
        spared = frozenset(at for at, part in enumerate(parts) if is_trusted(at, part) or policy.of(slots[at]) == "off")
        for _ in range(_MOST_PASSES):
            forged = self._forged(guarded, spared)
            refused = next((each for each in forged if policy.of(slots[each.part]) == "raise"), None)
            if refused is not None:
                raise SafetyError(
                    f"{(where or slots)[refused.part]!r} holds the control sequence {refused.text!r}; "
                    'take it out, or use safety="neutralize" to make it harmless'
                )
            if not forged:
                return guarded
            for part, sequences in groupby(forged, key=lambda sequence: sequence.part):
                guarded[part] = _broken(guarded[part], sequences)
        raise SafetyError(f"{slots[1]!r} and its neighbours hold control sequences that cannot be made harmless")

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
        """Whether a control sequence begins at a place, with what would stand behind it."""
        found = self._pattern.match(fold(text[at] + behind))
        return found is not None and (found.lastgroup != "header" or _at_line_start(text, at))

    def _forged(self, parts: Sequence[str], spared: frozenset[int]) -> list[_Forged]:
        """The sequences that reach into text that is not spared."""
        whole = "".join(parts)
        folded = Folded.of(whole)
        starts = list(accumulate(map(len, parts), initial=0))
        forged: list[_Forged] = []
        at = 0
        while match := self._pattern.search(folded.text, at):
            # Another sequence may begin inside one that is not forged.
            at = match.start() + 1
            if match.lastgroup == "header" and not _at_line_start(folded.text, match.start()):
                continue
            begin, into = folded.origin(match.start())
            end = folded.origin(match.end() - 1)[0] + 1
            first = bisect_right(starts, begin) - 1
            for index in range(first, bisect_left(starts, end)):
                if index not in spared and parts[index]:
                    start = starts[index]
                    sign = fold(whole[begin])
                    sequence = _Forged(
                        index, max(begin - start, 0), end - start, begin < start, sign, into, whole[begin:end]
                    )
                    forged.append(sequence)
                    at = match.end()
                    break
        return forged


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(filter(None, set(map(fold, texts))), key=lambda text: (-len(text), text))


def _at_line_start(text: str, at: int) -> bool:
    """Whether only white space stands before an index in its line."""
    while at and text[at - 1] in " \t":
        at -= 1
    return not at or text[at - 1] in _LINE_ENDS


def _broken(text: str, sequences: Iterable[_Forged]) -> str:
    """Text with its sequences broken, put together in one go."""
    edit = _json_editor(text) if isinstance(text, JsonText) else _edit
    pieces: list[str] = []
    done = 0
    for sequence in sequences:
        begin, end, instead = edit(text, sequence)
        pieces += text[done:begin], instead
        done = end
    whole = "".join(pieces) + text[done:]
    return JsonText(whole) if isinstance(text, JsonText) else whole


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
    """How a sequence in this JSON is broken, the value staying the same: a sign in a string is written as an escape.

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


class _Search(NamedTuple):
    """What is looked for behind one sign.

    Attributes:
        sign: The sign that sequences begin with.
        forms: The sign and its disguises; none where nobody knows them all.
        pattern: The sequences.
    """

    sign: str
    forms: tuple[str, ...]
    pattern: re.Pattern[str]


def _forms(sign: str, rests: Sequence[str]) -> tuple[str, ...]:
    """A sign and those of its disguises that sequences could begin with.

    Args:
        sign: The sign.
        rests: What is behind it in the sequences.
    """
    if sign not in _DISGUISES:
        return ()
    # A mark upon the sign stands behind it when decomposed: no sequence begins so that does not go on with the mark.
    marks = ((form, normalize("NFKD", form).partition(sign)[2]) for form in _DISGUISES[sign])
    return (sign, *(form for form, mark in marks if not mark or any(not r or r[0] == mark[0] for r in rests)))


def _grouped(rests: Iterable[str]) -> list[str]:
    """Patterns for texts, which ask each first sign of theirs but once."""
    by_sign: dict[str, list[str]] = {}
    for text in rests:
        by_sign.setdefault(text[:1], []).append(re.escape(text[1:]))
    return [f"{re.escape(sign)}(?:{'|'.join(more)})" for sign, more in by_sign.items()]


def _occurs(text: str, sign: str, pattern: re.Pattern[str]) -> bool:
    """Whether a pattern that begins with a sign is found in a text."""
    at = text.find(sign)
    # A few signs are found sooner one by one than by a search, which goes through all that is between them.
    for _ in range(_MOST_FINDS):
        if at < 0:
            return False
        if pattern.match(text, at):
            return True
        at = text.find(sign, at + 1)
    return at >= 0 and pattern.search(text, at) is not None


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
