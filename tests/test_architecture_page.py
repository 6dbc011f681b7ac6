"""The maps of docs/architecture.md: its rooms are those that the imports are held to, and every module is there."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from test_package import MODULES, PACKAGE, ROOMS

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
# Blocks whose lines begin with a module or a room; the drawings do not.
MAPS = [
    block
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if re.match(r"[\w/]+(?:\.py|/) ", block)
]
NAME = re.compile(r"(?<![\w/])[\w/*]+(?:\.py|/)(?!\w)")


def rooms_of(line: str) -> set[str]:
    """The rooms that a line of the first map begins with."""
    names = re.match(r"(?:[\w*]+(?:\.py|/) +)+", line)
    assert names is not None, line
    wanted = [name.removesuffix("/").removesuffix(".py") for name in names[0].split()]
    known = [room for rooms in ROOMS for room in rooms]
    return {room for room in known for name in wanted if fnmatchcase(room, name)} | {
        name for name in wanted if "*" not in name
    }


def named() -> set[str]:
    """The modules and directories that the maps name, as paths inside the package."""
    found: set[str] = set()
    for line in "\n".join(MAPS).splitlines():
        folder = ""
        for name in NAME.findall(line):
            # A name without a directory is of that of the name before it in its line.
            folder = name.rpartition("/")[0] if "/" in name else folder
            found.add(name if "/" in name or not folder else f"{folder}/{name}")
    return found


def test_the_rooms_are_drawn_in_their_order() -> None:
    assert [rooms_of(line) for line in MAPS[0].splitlines()] == [set(rooms) for rooms in reversed(ROOMS)]


def test_whatever_the_maps_name_is_there() -> None:
    assert len(MAPS) > 8
    assert [name for name in sorted(named()) if not list(PACKAGE.glob(name.removesuffix("/")))] == []


def test_every_module_is_on_the_maps_by_name_or_with_its_directory() -> None:
    # The first map has the rooms; that a directory is one of them says nothing of what is in it.
    directories = {name for name in named() if name.endswith("/") and name.count("/") > 1}
    files = {path.relative_to(PACKAGE).as_posix() for path in MODULES.values() if path.name != "__init__.py"}
    there = {path.relative_to(PACKAGE).as_posix() for name in named() for path in PACKAGE.glob(name)}
    missing = [name for name in sorted(files - there) if f"{name.rpartition('/')[0]}/" not in directories]
    assert missing == [], "put them on a map of docs/architecture.md"
