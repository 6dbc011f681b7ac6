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
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import SafetyError, did_you_mean
from lazyprompt.safety.folding import Folded, fold, places
from lazyprompt.safety.neutralised import Forged, neutralise
from lazyprompt.safety.pieces import JOINT, Edges, plain
from lazyprompt.safety.search import LONGEST_RESERVED, RESERVED, Found, Search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


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

# How many times the longest sequence one may be that has blanks within it, or signs that do not show.
_WIDEST = 8
# So many literals are remembered.
_LITERALS_KEPT = 1_000
# So many signs of a text that may have to be folded are looked at one by one.
_MOST_WINDOWS = 50


_BLANK_RUN = re.compile(r"[ \t]{2,}+")
_HEADER = re.compile(r"^[ \t]*+(#{2,}+[ \t]++\S(?:.*[^ \t\n])?)", re.MULTILINE)
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

# Each pass breaks what it finds; a second one is needed where sequences overlap, more only where somebody tries hard.
_MOST_PASSES = 100


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
        texts, headers = _longest_first(sequences), _longest_first(headers)
        self._reserved = reserved
        self.texts = (*texts, *headers)
        self._has_headers = bool(headers)
        self._longest = max(map(len, (*self.texts, LONGEST_RESERVED)))
        # What sequences may end and begin with: made when somebody asks.
        self._edges: Edges | None = None
        self._ends, self._contexts = _Memo(self._ends_of), _Memo(self._context_of)
        by_sign: dict[str, list[str]] = {}
        for text in texts:
            by_sign.setdefault(text[0], []).append(text)
        if reserved:
            by_sign.setdefault("<", [])
        if headers:
            by_sign.setdefault("#", [])
        known = "|".join(re.sub(r"(?:\\?[ \t])+", r"[ \\t]+", re.escape(text[1:])) for text in headers)
        others = {"<": RESERVED[1:] if reserved else "", "#": f"(?P<header>(?i:{known}))" if headers else ""}
        # Looking for one sign costs a thirtieth of a search: text without any first sign is clean at once. Values are
        # looked at joined, where a line's start is not to be seen, so a header anywhere counts.
        self._searches = {sign: Search(sign, texts, others.get(sign, "")) for sign, texts in by_sign.items()}

    def clean(self, text: str) -> bool:
        """Return True if a text surely holds no control sequence, in plain or in disguise."""
        return not self._places(text)

    def _places(self, text: str) -> list[int]:
        """Return where control sequences may begin in a text, in plain or in disguise."""
        if text.isascii():
            # Most texts hold no first sign at all.
            for sign in self._searches:
                if sign in text:
                    return [begin for begin, _, _ in self._plain(text)]
            return []
        return [at for search in self._searches.values() for at in self._disguised_places(search, text)]

    def _plain(self, text: str) -> list[Found]:
        """Return the control sequences in a folded text, in order."""
        found: list[Found] = []
        for search in self._searches.values():
            if search.sign in text:
                found += search.occurrences(text)
        found.sort()
        return found

    def _disguised_places(self, search: Search, text: str) -> Iterable[int]:
        """Return where some control sequences may begin in a text that may have to be folded."""
        near: list[int] = []
        for form in search.forms:
            if form in text:
                near += islice(places(text, form), _MOST_WINDOWS + 1)
        if search.forms and len(near) <= _MOST_WINDOWS:
            return [at for at in near if self._begins_at(search, text, at)] if near else ()
        if not search.occurrences(fold(text)):
            return ()
        folded = Folded.of(text)
        return [folded.origin(begin)[0] for begin, _, _ in search.occurrences(folded.text)]

    def _begins_at(self, search: Search, text: str, at: int) -> bool:
        """Return True if one of some sequences may begin at a place, in plain or in disguise.

        To fold a long text for the sake of a few signs in it would take most of the time.
        """
        if search.match(text, at):
            return True
        near = text[at : at + self._longest]
        is_header = self._has_headers and search.sign == "#"
        if near.isascii() and not (is_header and _BLANK_RUN.search(near)):
            return False
        # Signs that do not show take up room, and so do the blanks in a header, of which a run is as good as one.
        for size in (self._longest, _WIDEST * self._longest):
            folded = fold(text[at : at + size])
            reach = _BLANK_RUN.sub(" ", folded) if is_header else folded
            if len(reach) >= self._longest or at + size >= len(text):
                return search.match(folded, 0) is not None
        # What is wider is looked at closer by the guard.
        return True

    def may_cross(self, literal: str) -> bool:
        """Return True if a control sequence could lie partly in this trusted text and partly in a value beside it."""
        return bool(self._ends[literal])

    def _ends_of(self, literal: str) -> str:
        """Return the ends of a trusted text that a control sequence could share with a value beside it."""
        folded, edges = fold(literal), self._pieces()
        whole = plain(literal)
        # White space at a line's start stands between its end and a header.
        indents = self._has_headers and whole == " "
        if not whole or indents or edges.is_inside(whole) or edges.is_inside_reserved(whole):
            return folded
        head, tail = self._first(folded), self._first(folded[::-1])[::-1]
        head = next((head[:at] for at in range(len(head), 0, -1) if edges.ended.begin(plain(head[:at])[::-1])), "")
        tail = next((tail[at:] for at in range(len(tail)) if edges.begun.begin(plain(tail[at:]))), "")
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
        return any(edges.is_inside(plain(text).strip()) for text in short)

    def begins_at_end(self, literal: str) -> bool:
        """Return True if a trusted text ends with the beginning of a control sequence."""
        return bool(self._pieces().begun.at_end([literal]))

    def ends_at_start(self, literal: str) -> bool:
        """Return True if a trusted text begins with the end of a control sequence."""
        return bool(self._pieces().ended.at_end([literal]))

    def _pieces(self) -> Edges:
        self._edges = self._edges or Edges(self.texts, reserved=self._reserved)
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

    def suspicious(self, parts: Sequence[str], first: int = 0, step: Literal[1, 2] = 1) -> list[range]:
        """Return the stretches of parts that may have to be guarded; each stands alone.

        Args:
            parts: Trusted and untrusted text in turn.
            first: The trusted part to begin with.
            step: 1 to look at each part; 2 to look at untrusted ones alone, where :meth:`may_cross` is False for each
                of the others.
        """
        begin = first + step - 1
        near = parts[begin::step]
        if step == 1:
            # Of trusted text only that is looked at which a sequence could share with a value.
            near = [*near]
            near[::2] = map(self._ends.__getitem__, near[::2])
        found = self._places("".join(near))
        if not found:
            return []
        stretches: list[range] = []
        starts = [*accumulate(map(len, near), initial=0)]
        for place in sorted(found):
            at = begin + step * (bisect_right(starts, place) - 1)
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
        safeties: list[Safety] = ["off"] * len(parts)
        for at in range(1, len(parts), 2):
            if not is_trusted(at, parts[at]):
                safeties[at] = policy.of(slots[at])
        for number in range(_MOST_PASSES):
            by_part: dict[int, list[Forged]] = {}
            forged = self._forged(guarded, safeties)
            # A text holds at most one sequence for each of its characters. There are more only if a run of backslashes
            # is itself a sequence: then each pass makes more than it breaks, and a hundred would fill the memory.
            if number and len(forged) > sum(map(len, parts)):
                break
            for each in forged:
                if safeties[each.part] == "raise":
                    raise SafetyError(
                        f"{where[each.part]!r} holds the control sequence {each.text!r}; "
                        'take it out, or use safety="neutralize" to make it harmless'
                    )
                by_part.setdefault(each.part, []).append(each)
            for part, sequences in by_part.items():
                guarded[part] = neutralise(guarded[part], sequences)
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

    def _forged(self, parts: Sequence[str], safeties: Sequence[Safety]) -> list[Forged]:
        """Return the sequences that reach into text whose treatment is not ``off``."""
        whole = "".join(parts)
        folded = Folded.of(whole)
        starts = list(accumulate(map(len, parts), initial=0))
        forged: list[Forged] = []
        at = 0
        for begin, end, is_header in self._plain(folded.text):
            # Another sequence may begin inside one that is not forged.
            if begin < at or (is_header and not _at_line_start(folded.text, begin)):
                continue
            source, into = folded.origin(begin)
            text = whole[source : folded.origin(end - 1)[0] + 1]
            first = bisect_right(starts, source) - 1
            for index in range(first, bisect_left(starts, source + len(text))):
                if safeties[index] != "off" and parts[index]:
                    forged.append(Forged(index, source - starts[index], into, text))
                    at = end
                    break
        return forged


def _longest_first(texts: Iterable[str]) -> list[str]:
    # A single character cannot be broken, and is in many an honest text.
    folded = {text for text in map(fold, texts) if len(text.strip()) > 1}
    return sorted(folded, key=lambda text: (-len(text), text))


def _at_line_start(text: str, at: int) -> bool:
    """Return True if only white space stands before an index in its line."""
    while at and text[at - 1] in " \t":
        at -= 1
    return not at or text[at - 1] in _LINE_ENDS


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
