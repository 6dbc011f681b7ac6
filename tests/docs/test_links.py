"""Links of all pages in the repository: their files and anchors, and the form of external URLs."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from markdown_it.token import Token

PAGES = sorted(
    page
    for pattern in ("*.md", ".github/*.md", "docs/**/*.md", "examples/**/*.md", "fuzz/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}", re.IGNORECASE)
# Their headings are generated from docstrings with the manual; `mkdocs build --strict` checks these anchors.
API = ROOT / "docs" / "reference" / "api"


def tokens(page: Path) -> Iterator[Token]:
    for token in parse_markdown(page):
        yield token
        yield from token.children or ()


@cache
def parse_markdown(page: Path) -> list[Token]:
    return MarkdownIt("gfm-like", {"linkify": False}).parse(page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found: set[str] = set()
    every = parse_markdown(page)
    for token, inside in pairwise(every):
        if token.type == "heading_open":
            words = "".join(child.content for child in inside.children or ())
            anchor = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return frozenset(found)


def fault(page: Path, target: str) -> str | None:
    """What is wrong with a link; None if it is correct."""
    address = urlsplit(target)
    if address.scheme or address.netloc:
        fine = address.scheme == "https" and HOST.fullmatch(address.hostname or "") and " " not in unquote(target)
        return None if fine else "is no address of the form https://host/path"
    to = (page.parent / unquote(address.path)).resolve() if address.path else page
    if not to.exists() or not to.is_relative_to(ROOT):
        return "leads to no file of the repository"
    if address.fragment and to.suffix == ".md" and to.parent != API and unquote(address.fragment) not in anchors(to):
        return f"leads to no heading of {to.name}"
    return None


def targets(page: Path) -> Iterator[str]:
    for token in tokens(page):
        target = {"link_open": token.attrGet("href"), "image": token.attrGet("src")}.get(token.type)
        if target is not None:
            yield str(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_to_existing_targets(page: Path) -> None:
    wrong = [f"{target} {why}" for target in targets(page) if (why := fault(page, target)) is not None]
    assert wrong == []


def test_link_check_covers_the_main_pages() -> None:
    assert {"README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {page.name for page in PAGES}
    assert sum(1 for page in PAGES for _ in targets(page)) > 100


@pytest.mark.parametrize(
    "target",
    [
        *("none.md", "#no-such-heading", "README.md#no-such-heading", "../outside.md", "http://example.org"),
        *("https://example", "https:///x"),
    ],
)
def test_broken_link_is_detected(target: str) -> None:
    assert fault(ROOT / "README.md", target) is not None


def test_anchors_are_made_of_the_words_of_a_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`: *three*?\n\n## 第一个 提示词\n\n## Same\n\n## Same\n\n## Same\n", encoding="utf-8")
    assert anchors(page) == {"one-two-three", "第一个-提示词", "same", "same-1", "same-2"}


def test_docs_index_links_each_page() -> None:
    docs = ROOT / "docs"
    index = docs / "index.md"
    linked = {(docs / str(token.attrs["href"])).resolve() for token in tokens(index) if token.type == "link_open"}
    assert {page for page in PAGES if docs in page.parents} - linked == {index}
