"""Prefix tree of earlier calls' texts, with the token count up to the end of each message, content block or tool."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.difference import shared_length

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWEEP = 1_000
# The maximum length of a word that is compared as a whole, because two words may share their first letters by chance.
_WORD = 30
# The minimum number of characters to collect from a later call's text before the text is compared with another call.
_BEHIND = 2_000


class Edge:
    """An edge in the prefix tree.

    Attributes:
        text: The edge's text.
        call: The index of the last call that contains the whole edge.
        time: The time of the last call that contains the whole edge.
        ends: The indices of the calls whose text ends in this edge, keyed by text length.
        tokens: The token count up to the end of each part, keyed by the part's end index in the whole text.
        children: The child edges, keyed by first character.
    """

    __slots__ = ("call", "children", "ends", "text", "time", "tokens")

    def __init__(self, text: str, call: int, time: float | None) -> None:
        self.text, self.call, self.time = text, call, time
        self.ends: dict[int, int] = {}
        self.tokens: dict[int, int] = {}
        self.children: dict[str, Edge] = {}

    def split(self, at: int, index: int) -> None:
        """Split the edge at an index; this edge keeps the text before the index, and a new child edge gets the rest.

        Args:
            at: The index in the edge's text where the edge is split.
            index: The index in the whole text of a call that corresponds to ``at``.
        """
        rest = Edge(self.text[at:], self.call, self.time)
        rest.children, self.children = self.children, {rest.text[0]: rest}
        self.text = self.text[:at]
        for name in ("ends", "tokens"):
            found: dict[int, int] = getattr(self, name)
            for own in (self, rest):
                setattr(own, name, {key: value for key, value in found.items() if (key <= index) == (own is self)})


class PrefixMatch(NamedTuple):
    """The longest prefix that a text shares with an earlier call.

    Attributes:
        length: The length of the prefix in characters.
        path: The edges that make up the prefix.
        call: The index of the last call with this prefix, or None if no call has it.
        behind: The text that follows the shared prefix in the earlier call's text; empty if the prefix is the whole
            text.
    """

    length: int
    path: tuple[Edge, ...]
    call: int | None
    behind: str

    def tokens_at(self, index: int) -> int | None:
        """Return the token count up to a character index, or None if no earlier call was counted up to this index."""
        return next((edge.tokens[index] for edge in self.path if index in edge.tokens), None)

    def later(self, text: str) -> PrefixMatch | None:
        """Return the match with a more recent call that shares the prefix, apart from the prefix's last word, or None.

        Args:
            text: The text that was passed to :meth:`PrefixTree.match`.
        """
        cut = self.length
        while cut > self.length - _WORD and text[cut - 1 : cut].isalnum():
            cut -= 1
        end = 0
        for edge in self.path:
            end += len(edge.text)
            if end >= cut and self.call is not None and edge.call > self.call:
                behind = edge.text[len(edge.text) - (end - cut) :]
                while len(behind) < _BEHIND and (nexts := [e for e in edge.children.values() if e.call == edge.call]):
                    edge = nexts[0]  # noqa: PLW2901 - follows the later call
                    behind += edge.text
                shared = shared_length(behind, text[cut:])
                return PrefixMatch(cut + shared, self.path, edge.call, behind[shared:])
        return None


class PrefixTree:
    """A prefix tree of the texts sent in model calls; each shared prefix is stored once.

    Args:
        lifetime: The number of seconds after which an unused text is removed; None keeps every text.
    """

    def __init__(self, lifetime: float | None) -> None:
        self._lifetime = lifetime
        self._root = Edge("", -1, None)
        self._added = 0
        self.time: float | None = -inf

    def match(self, text: str, now: float | None, lifetime: float | None) -> PrefixMatch:
        """Return the longest prefix that a text shares with an earlier call.

        Args:
            text: The complete text of a model call.
            now: The time of the call, in seconds, or None if unknown.
            lifetime: The number of seconds after which an unused text no longer matches; None means no limit.
        """
        edge, at, path = self._root, 0, list[Edge]()
        while True:
            child = edge.children.get(text[at]) if at < len(text) else None
            if child is None or is_over(child.time, now, lifetime):
                break
            path.append(child)
            length = len(child.text) if text.startswith(child.text, at) else shared_length(child.text, text[at:])
            at += length
            if length < len(child.text):
                ended = next((call for index, call in child.ends.items() if index == at), None)
                return PrefixMatch(
                    at, tuple(path), *((child.call, child.text[length:]) if ended is None else (ended, ""))
                )
            edge = child
        if not path:
            return PrefixMatch(0, (), None, "")
        alive = [each for each in edge.children.values() if not is_over(each.time, now, lifetime)]
        if at in edge.ends or not alive:
            return PrefixMatch(at, tuple(path), edge.ends.get(at, edge.call), "")
        latest = max(alive, key=lambda each: each.call)
        return PrefixMatch(at, tuple(path), latest.call, latest.text)

    def add(self, text: str, call: int, now: float | None, tokens: Mapping[int, int]) -> None:
        """Add the complete text of a model call to the tree.

        Args:
            text: The complete text of a model call.
            call: The index of the call.
            now: The time of the call, in seconds, or None if unknown.
            tokens: The token count up to the end of each part, keyed by the part's end index.
        """
        self.time = _later(self.time, now)
        edge, at, path = self._root, 0, list[Edge]()
        while at < len(text):
            child = edge.children.get(text[at])
            if child is None:
                if path and not edge.children:
                    edge.text += text[at:]
                else:
                    path.append(child := Edge(text[at:], call, now))
                    edge.children[text[at]] = child
                break
            length = len(child.text) if text.startswith(child.text, at) else shared_length(child.text, text[at:])
            at += length
            if length < len(child.text):
                child.split(length, at)
            path.append(child)
            edge = child
        begin = 0
        for each in path:
            each.call, each.time = call, _later(each.time, now)
            end = begin + len(each.text)
            each.tokens |= {index: count for index, count in tokens.items() if begin < index <= end}
            if begin < len(text) <= end:
                each.ends[len(text)] = call
            begin = end
        self._added += 1
        if self._added % _SWEEP == 0:
            self._sweep(now)

    def _sweep(self, now: float | None) -> None:
        """Remove edges whose lifetime has expired."""
        edges = [self._root]
        while edges:
            edge = edges.pop()
            edge.children = {
                key: each for key, each in edge.children.items() if not is_over(each.time, now, self._lifetime)
            }
            edges += edge.children.values()


def _later(one: float | None, other: float | None) -> float | None:
    """Return the later of two times, or None if either time is unknown."""
    return None if one is None or other is None else max(one, other)


def is_over(time: float | None, now: float | None, lifetime: float | None) -> bool:
    """Return True if a lifetime that begins at ``time`` has expired at ``now``, or False if an argument is None."""
    return lifetime is not None and now is not None and time is not None and now - time > lifetime
