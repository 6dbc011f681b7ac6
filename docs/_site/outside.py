"""References of a built page to anything outside: the manual has none, so that it works without a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The attributes whose address a browser fetches by itself, by element; a link that is clicked is none.
_FETCHED: Final = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
_ADDRESS: Final = re.compile(r"(?:^|[\s,])(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_STYLE: Final = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)


class _Reader(HTMLParser):
    """Collects the references of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        fetched = _FETCHED.get(tag, ())
        for name, value in attrs:
            if value is None:
                continue
            if name in fetched and _ADDRESS.search(value):
                self.found.append(f"<{tag} {name}={value!r}>")
            if name == "style":
                self.found += in_style(value)

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += in_style(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = self._in_style and tag != "style"


def in_page(html: str) -> list[str]:
    """What a page fetches from outside.

    Args:
        html: The page.

    Returns:
        The references as they stand there, in order.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.found


def in_style(css: str) -> list[str]:
    """What a style sheet fetches from outside, as addresses."""
    return _STYLE.findall(css)


def in_site(folder: Path) -> Iterator[str]:
    """What the pages, style sheets and drawings of a built manual fetch from outside, a line each."""
    for path in sorted(folder.rglob("*")):
        look = {".html": in_page, ".svg": in_page, ".css": in_style}.get(path.suffix)
        if look is not None:
            for reference in look(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(folder)}: {reference}"
