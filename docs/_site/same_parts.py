"""Whether a page has the same parts here as where the repository is read, which parses Markdown otherwise.

A list without an empty line before it, or one that is not indented far enough, is a list there and running text here.
"""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Final

from markdown_it import MarkdownIt
from repository_pages import in_pieces

# What a page is made of; a heading's level is part of it, words are not.
_PARTS: Final = frozenset(
    ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "pre", "blockquote", "img", "details")
)
# A row of a table, and code in it.
_ROW: Final = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")


class _Counting(HTMLParser):
    """Counts the parts of a page, and takes the code in its lines as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: Counter[str] = Counter()
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - html.parser's own
        if tag in _PARTS:
            self.parts[f"<{tag}>"] += 1
        if tag in {"pre", "code"}:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside == ["code"]:
            self.parts[f"`{' '.join(data.split())}`"] += 1


def parts(html: str) -> Counter[str]:
    """How often a page has each part."""
    counting = _Counting()
    counting.feed(html)
    counting.close()
    return counting.parts


def differences(markdown: str, html: str) -> list[str]:
    """Where a page is not what its Markdown says.

    Args:
        markdown: The page as it was written.
        html: What was made of it here.

    Returns:
        A line for each part of which there are more or less; none where the page is the same.
    """
    there = parts(MarkdownIt("gfm-like", {"linkify": False}).render(markdown))
    here = parts(html)
    names = sorted(there.keys() | here.keys())
    return [
        f"{there[name]} {name} in its Markdown, {here[name]} in the page" for name in names if there[name] != here[name]
    ]


def with_bars(markdown: str) -> str:
    """A page whose cells hold code with bars as it is meant.

    In the repository a bar in a cell has a backslash, in code too, or it would end the cell. Python-Markdown ends no
    cell within code, and shows the backslash.
    """

    def row(match: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), match[0])

    return "".join(part if code else _ROW.sub(row, part) for code, part in in_pieces(markdown))
