"""The drawings of the documents, and the tutorial in two languages."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from support.paths import FENCE, ROOT

DRAWINGS = sorted((ROOT / "docs" / "img").glob("*.svg"))
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)")
MIN_FONT_SIZE = 12  # pixels


def elements(drawing: Path) -> list[ET.Element]:
    return [*ET.parse(drawing).getroot().iter()]  # noqa: S314 - our own files


def local_name(name: str) -> str:
    return name.rpartition("}")[2].lower()


def has_no_external_url(text: str) -> bool:
    targets = re.findall(r"url\(\s*[\"']?([^)]*)\)", text)
    return "@import" not in text and all(target.startswith("#") for target in targets)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_drawing_has_no_scripts_and_no_external_resources(drawing: Path) -> None:
    for element in elements(drawing):
        assert local_name(element.tag) not in {"script", "foreignobject", "iframe", "image", "use", "a"}
        for name, value in element.attrib.items():
            assert not local_name(name).startswith("on"), name
            assert local_name(name) not in {"href", "src"}, name
            assert has_no_external_url(value), value
        assert has_no_external_url(element.text or ""), element.text


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_drawing_has_title_description_dark_mode_and_readable_font_sizes(drawing: Path) -> None:
    found = {local_name(element.tag): element.text or "" for element in elements(drawing)}
    assert found["title"].strip()
    assert found["desc"].strip()
    assert "prefers-color-scheme: dark" in found["style"]
    sizes = re.findall(r"(?:font-size:|font:)\s*([\d.]+)px", found["style"])
    assert sizes
    assert min(float(size) for size in sizes) >= MIN_FONT_SIZE


def test_each_drawing_is_on_a_page_with_alternative_text() -> None:
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


def test_tutorial_has_the_same_outline_in_both_languages() -> None:
    english = outline(ROOT / "docs" / "guide" / "tutorial.md")
    assert outline(ROOT / "docs" / "guide" / "tutorial.zh.md") == english
    assert english.count("##") == 8
