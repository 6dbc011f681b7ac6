"""What a template says itself, without its tags, with the place of each part of it."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from lazyprompt.files.scanned import Scanned
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

_RAW = r"\{%[-+]?\s*raw\s*[-+]?%\}(?P<raw>.*?)\{%[-+]?\s*endraw\s*[-+]?%\}"
_TAGS: Final[Mapping[str, re.Pattern[str]]] = {
    "jinja2": re.compile(_RAW + r"|\{#.*?#\}|\{%.*?%\}|(?P<value>\{\{.*?\}\})", re.DOTALL),
    "mustache": re.compile(r"(?P<value>\{\{\{.*?\}\}\}|\{\{(?![#^/!>=]).*?\}\})|\{\{.*?\}\}", re.DOTALL),
    "handlebars": re.compile(r"(?P<value>\{\{\{.*?\}\}\}|\{\{(?![#^/!>~]|else).*?\}\})|\{\{.*?\}\}", re.DOTALL),
}
_NAME_IN_TAG = re.compile(r"\{\{\{?[-+~]?\s*([\w.]+)\s*[-+~]?\}?\}\}")
_NOT_A_BREAK = re.compile(r"[^\n]")


class OwnText:
    """A template's own text, with places: its tags are blank, and what it shows is one sign for each value.

    Args:
        body: The template.
        engine: Its syntax.
    """

    def __init__(self, body: str, engine: str) -> None:
        self.tags: list[tuple[int, int]] = []
        """Where the tags are in the template."""
        self._parts: list[str] = []
        self._length = 0
        # Where each part begins: in the scanned text, and in the template.
        self._starts = [0]
        self._in_body = [0]
        end = 0
        for match in _TAGS[engine].finditer(body):
            self._add(body[end : match.start()], end)
            end = match.end()
            groups = match.groupdict()
            if groups.get("raw") is not None:
                begin, stop = match.span("raw")
                self._add(_blank(body[match.start() : begin]), match.start())
                self._add(body[begin:stop], begin)
                self._add(_blank(body[stop:end]), stop)
                continue
            self.tags.append(match.span())
            if groups.get("value") is not None:
                name = _NAME_IN_TAG.fullmatch(match[0])
                self._add(Value("", name[1] if name else ""), match.start())
            else:
                self._add(_blank(match[0]), match.start())
        self._add(body[end:], end)
        self.scanned = Scanned(self._parts)

    def _add(self, part: str, at: int) -> None:
        self._parts.append(part)
        self._starts.append(self._length)
        self._in_body.append(at)
        self._length += 1 if isinstance(part, Value) else len(part)

    def in_body(self, at: int) -> int:
        """Where a place of the scanned text is in the template."""
        index = bisect_right(self._starts, at) - 1
        return self._in_body[index] + at - self._starts[index]


def _blank(text: str) -> str:
    return _NOT_A_BREAK.sub(" ", text)
