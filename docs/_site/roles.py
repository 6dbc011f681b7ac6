"""Roles of docstrings, as ``:meth:`render```, as links of the manual; what is on no page of it stays plain code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<name>[\w.]+)`")


class Roles(griffe.Extension):
    """Rewrites the docstrings of a package when all of it has been read."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite those of all its objects."""
        for each in _objects(pkg):
            if each.docstring is not None and ":`" in each.docstring.value:
                each.docstring.value = with_links(each.docstring.value, each)


def with_links(text: str, scope: griffe.Object) -> str:
    """A docstring with links in place of roles.

    Args:
        text: The docstring.
        scope: What it is of: there its names are looked up.
    """

    def link(match: re.Match[str]) -> str:
        name = match["name"]
        shown = name.rpartition(".")[2] if match["short"] else name.removeprefix("lazyprompt.")
        return f'<autoref identifier="{_path(name, scope)}" optional><code>{shown}</code></autoref>'

    return _ROLE.sub(link, text)


def _objects(inside: griffe.Object) -> Iterator[griffe.Object]:
    yield inside
    for member in inside.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)


def _path(name: str, scope: griffe.Object) -> str:
    """The whole path of a name, as Python would look it up; what cannot be found stays as it is."""
    first, dot, rest = name.partition(".")
    for place in _places(scope):
        try:
            return place.resolve(first) + dot + rest
        except griffe.NameResolutionError:
            continue
    return name


def _places(scope: griffe.Object) -> Iterator[griffe.Object]:
    yield scope
    owner = scope if isinstance(scope, griffe.Class) else scope.parent
    if isinstance(owner, griffe.Class):
        yield from owner.mro()
