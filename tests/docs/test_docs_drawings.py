"""The drawings of the documents, and the tutorial in two languages."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from support.paths import FENCE, ROOT

DRAWINGS = sorted((ROOT / "docs" / "img").glob("*.svg"))
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)")
SMALLEST = 12  # pixels


def elements(drawing: Path) -> list[ET.Element]:
    return [*ET.parse(drawing).getroot().iter()]  # noqa: S314 - our own files


def local_name(name: str) -> str:
    return name.rpartition("}")[2].lower()


def leads_nowhere_else(text: str) -> bool:
    targets = re.findall(r"url\(\s*[\"']?([^)]*)\)", text)
    return "@import" not in text and all(target.startswith("#") for target in targets)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_a_drawing_runs_nothing_and_asks_nobody(drawing: Path) -> None:
    for element in elements(drawing):
        assert local_name(element.tag) not in {"script", "foreignobject", "iframe", "image", "use", "a"}
        for name, value in element.attrib.items():
            assert not local_name(name).startswith("on"), name
            assert local_name(name) not in {"href", "src"}, name
            assert leads_nowhere_else(value), value
        assert leads_nowhere_else(element.text or ""), element.text


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_a_drawing_tells_what_it_shows_and_is_readable_in_the_dark(drawing: Path) -> None:
    found = {local_name(element.tag): element.text or "" for element in elements(drawing)}
    assert found["title"].strip()
    assert found["desc"].strip()
    assert "prefers-color-scheme: dark" in found["style"]
    sizes = re.findall(r"(?:font-size:|font:)\s*([\d.]+)px", found["style"])
    assert sizes
    assert min(float(size) for size in sizes) >= SMALLEST


def test_every_drawing_is_on_a_page_with_a_text_for_those_who_do_not_see_it() -> None:
    found = [
        (page, *each) for page in ROOT.glob("docs/**/*.md") for each in SHOWN.findall(page.read_text(encoding="utf-8"))
    ]
    assert min(len(alt) for _, alt, _ in found) > 40
    assert set(DRAWINGS) <= {(page.parent / target).resolve() for page, _, target in found}


def outline(page: Path) -> list[str]:
    """The headings and the blocks of a page in order: how deep, which language, which file."""
    text = page.read_text(encoding="utf-8")
    kinds = [(block.start(), f"{block[1]} {block[2] or ''}") for block in FENCE.finditer(text)]
    prose = FENCE.sub(lambda block: " " * len(block[0]), text)
    headings = [(match.start(), match[1]) for match in re.finditer(r"^(#+) ", prose, re.MULTILINE)]
    return [kind for _, kind in sorted([*kinds, *headings])]


def test_the_tutorial_is_the_same_in_both_languages() -> None:
    english = outline(ROOT / "docs" / "guide" / "tutorial.md")
    assert outline(ROOT / "docs" / "guide" / "tutorial.zh.md") == english
    assert english.count("##") == 8
