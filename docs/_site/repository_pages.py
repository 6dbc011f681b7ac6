"""Files of the repository as pages of the manual, so that a link out of docs leads somewhere.

README, CHANGELOG and the programs of the examples stay the only place of their text: a page is made of each when the
manual is built, and of every other file that a page links to. What is Markdown stays so; the rest is shown as code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Where the pages made of them stand in the manual.
PLACE: Final = "repository"
# Those that are pages whether or not anything links to them.
ALWAYS: Final = (
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    ".github/SECURITY.md",
    "examples/README.md",
)
_FENCE: Final = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
# Of a link or a picture, or of a definition of one: what it leads to, without its anchor.
_LINK: Final = re.compile(r"(?P<before>\]\(|^\[[^\]\n]+\]: +)(?P<target>[^\s()#:]+)(?=[#)\s]|$)", re.MULTILINE)
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".ipynb": "json"}


def pages(root: Path, docs: Iterable[str]) -> dict[str, str]:
    """The pages to add to the manual.

    Args:
        root: The directory of the repository.
        docs: The Markdown files of ``docs/``, relative to it.

    Returns:
        The text of each page by its place in the manual.
    """
    waiting = [*ALWAYS, *(f"docs/{each}" for each in docs)]
    made: dict[str, str] = {}
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = (root / path).read_text(encoding="utf-8")
        if not in_docs(path):
            made[place(path)] = text if path.endswith(".md") else as_code(path, text)
        if path.endswith(".md"):
            found = (leads_to(root, path, target) for target in _targets(text))
            waiting += [each for each in found if each is not None and not (in_docs(each) and _is_picture(each))]
    return made


def as_code(path: str, text: str) -> str:
    """A file that is no Markdown, as a page."""
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=2))
    language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
    end = "" if text.endswith("\n") else "\n"
    # The search is for the manual's words, not for code.
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{ticks}{language}\n{text}{end}{ticks}\n"


def linked(root: Path, page: str, text: str) -> str:
    """A page whose links lead to pages of the manual.

    Args:
        root: The directory of the repository.
        page: The page's place in the manual.
        text: Its Markdown.
    """
    path = path_of(page)

    def moved(match: re.Match[str]) -> str:
        target = leads_to(root, path, match["target"])
        if target is None:
            return match[0]
        return match["before"] + posixpath.relpath(place(target), posixpath.dirname(page) or ".")

    return "".join(part if code else _LINK.sub(moved, part) for code, part in in_pieces(text))


def leads_to(root: Path, path: str, target: str) -> str | None:
    """The file of the repository that a link means; None where there is none, which mkdocs then says."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if found.startswith(".."):
        return None
    if (root / found).is_dir():
        found = posixpath.join(found, "README.md")
    return found if (root / found).is_file() else None


def in_docs(path: str) -> bool:
    """Whether a file of the repository is itself a page or a picture of the manual."""
    return path.startswith("docs/") and PurePosixPath(path).suffix in {".md", ".svg", ".png", ".jpg", ".gif"}


def place(path: str) -> str:
    """The place in the manual of a file of the repository."""
    if in_docs(path):
        return path.removeprefix("docs/")
    # MkDocs leaves out directories whose names begin with a dot.
    shown = path.removeprefix(".")
    return f"{PLACE}/{shown}" if path.endswith(".md") else f"{PLACE}/{shown}.md"


def path_of(page: str) -> str:
    """The file of the repository that a page is; of one that is shown as code, a name beside it."""
    if not page.startswith(f"{PLACE}/"):
        return f"docs/{page}"
    path = page.removeprefix(f"{PLACE}/")
    return f".{path}" if path.startswith("github/") else path


def in_pieces(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces: whether it is a block of code, and the piece."""
    end = 0
    for fence in _FENCE.finditer(text):
        yield False, text[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, text[end:]


def _is_picture(path: str) -> bool:
    return not path.endswith(".md")


def _targets(text: str) -> Iterator[str]:
    for code, part in in_pieces(text):
        if not code:
            yield from (match["target"] for match in _LINK.finditer(part))
