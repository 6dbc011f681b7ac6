"""Texts of earlier calls by their shared beginnings, with token counts at the ends of their pieces."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.difference import shared_length

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWEEP = 1_000
# The longest word whose beginning may be shared by chance, and the text of a later call that is looked at.
_WORD = 30
_BEHIND = 2_000


class Edge:
    """A run of text that no shorter run of earlier calls divides.

    Attributes:
        text: The text.
        call: The last call whose text has all of it.
        time: When that was.
        ends: The calls that end in it, by index into the whole text.
        tokens: The tokens up to the end of a piece, by index.
        children: What follows, by its first character.
    """

    __slots__ = ("call", "children", "ends", "text", "time", "tokens")

    def __init__(self, text: str, call: int, time: float | None) -> None:
        self.text, self.call, self.time = text, call, time
        self.ends: dict[int, int] = {}
        self.tokens: dict[int, int] = {}
        self.children: dict[str, Edge] = {}

    def split(self, at: int, index: int) -> None:
        """Split the run in two.

        Args:
            at: Where in the run.
            index: The same place in the whole text.
        """
        rest = Edge(self.text[at:], self.call, self.time)
        rest.children, self.children = self.children, {rest.text[0]: rest}
        self.text = self.text[:at]
        for name in ("ends", "tokens"):
            found: dict[int, int] = getattr(self, name)
            for own in (self, rest):
                setattr(own, name, {key: value for key, value in found.items() if (key <= index) == (own is self)})


class Match(NamedTuple):
    """The longest beginning that a text shares with an earlier call.

    Attributes:
        length: Its number of characters.
        path: The runs it consists of.
        call: The earlier call; the last of several. None if there is none.
        behind: The text of that call behind it; empty if all of that call is shared.
    """

    length: int
    path: tuple[Edge, ...]
    call: int | None
    behind: str

    def tokens_at(self, index: int) -> int | None:
        """Return the tokens up to an index, if an earlier call has counted them."""
        return next((edge.tokens[index] for edge in self.path if index in edge.tokens), None)

    def later(self, text: str) -> Match | None:
        """Return the match with a later call that shares all but the beginning of a word; None if there is none.

        Args:
            text: The text that was matched.
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
                    edge = nexts[0]  # noqa: PLW2901 - the way of the later call
                    behind += edge.text
                shared = shared_length(behind, text[cut:])
                return Match(cut + shared, self.path, edge.call, behind[shared:])
        return None


class PrefixTree:
    """The texts of calls; those that share a beginning share its memory.

    Args:
        lifetime: The seconds after which a text that no call has used is forgotten; None for never.
    """

    def __init__(self, lifetime: float | None) -> None:
        self._lifetime = lifetime
        self._root = Edge("", -1, None)
        self._added = 0
        self.time: float | None = -inf

    def match(self, text: str, now: float | None, lifetime: float | None) -> Match:
        """Return the longest beginning of a text that an earlier call shares.

        Args:
            text: The text.
            now: The time of its call.
            lifetime: The seconds after which a text that no call has used is not shared; None for never.
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
                return Match(at, tuple(path), *((child.call, child.text[length:]) if ended is None else (ended, "")))
            edge = child
        if not path:
            return Match(0, (), None, "")
        alive = [each for each in edge.children.values() if not is_over(each.time, now, lifetime)]
        if at in edge.ends or not alive:
            return Match(at, tuple(path), edge.ends.get(at, edge.call), "")
        latest = max(alive, key=lambda each: each.call)
        return Match(at, tuple(path), latest.call, latest.text)

    def add(self, text: str, call: int, now: float | None, tokens: Mapping[int, int]) -> None:
        """Add the text of a call.

        Args:
            text: The text.
            call: The call's index.
            now: Its time.
            tokens: The tokens up to indices of the text.
        """
        self.time = _later(self.time, now)
        edge, at, path = self._root, 0, list[Edge]()
        while at < len(text):
            child = edge.children.get(text[at])
            if child is None:
                # A run that only this text continues grows; any other gets a child.
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
        """Forget what no call has used for a lifetime."""
        edges = [self._root]
        while edges:
            edge = edges.pop()
            edge.children = {
                key: each for key, each in edge.children.items() if not is_over(each.time, now, self._lifetime)
            }
            edges += edge.children.values()


def _later(one: float | None, other: float | None) -> float | None:
    """Return the later of two times; None, which is no time, if one of them is."""
    return None if one is None or other is None else max(one, other)


def is_over(time: float | None, now: float | None, lifetime: float | None) -> bool:
    """Return True if a lifetime is over that began at a time; None is no time, and no end."""
    return lifetime is not None and now is not None and time is not None and now - time > lifetime
