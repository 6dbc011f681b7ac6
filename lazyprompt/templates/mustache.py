"""Mustache as a syntax of templates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from reprlib import repr as short
from typing import TYPE_CHECKING, ClassVar, cast

from lazyprompt.templates.nodes import ABSENT, Lookup, Scope, Shown, is_nothing, member
from lazyprompt.templates.parsed import AS_TEXT, Builder, ParsedTemplate, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.templates.bounds import Meter


@dataclass(frozen=True, slots=True)
class _Name(Lookup):
    """A name in Mustache: its first part is looked up in one scope after the other; ``.`` is the value here."""

    def find(self, scope: Scope) -> object:
        """The value, or :data:`ABSENT`."""
        if not self.parts:
            return scope.value
        up: Scope | None = scope
        value = ABSENT
        while up and value is ABSENT:
            if isinstance(up.value, dict):
                value = cast("dict[str, object]", up.value).get(self.parts[0], ABSENT)
            up = up.up
        for part in self.parts[1:]:
            value = member(value, part)
        return value


@dataclass(frozen=True, slots=True)
class _Over:
    """``{{#name}}``: once for each item of a list, once in any other value, and not at all where there is none."""

    pushes: ClassVar[bool] = True
    what: _Name

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:
        """The scopes to write the body in."""
        value = self.what.find(scope)
        if isinstance(value, list):
            for item in meter.counted(cast("list[object]", value)):
                yield Scope(item, scope)
        elif not is_nothing(value):
            yield Scope(value, scope)


@dataclass(frozen=True, slots=True)
class _Without:
    """``{{^name}}``: once, where there is no value."""

    pushes: ClassVar[bool] = False
    what: _Name

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        if is_nothing(self.what.find(scope)):
            yield scope


# What stands first in a tag and says of which kind it is; behind some of them the tag ends with a sign of its own.
_KIND = re.compile(r"\s*+([#^/!=>&{<$]?)")
_END = {"{": "}", "=": "="}
_NAME = re.compile(r"\.|[^\s{}.]++(?:\.[^\s{}.]++)*+")
# After these a line that has nothing else on it goes too.
_ALONE = frozenset("#^/!=")
_REFUSED = {
    ">": "partials ({{>name}}) are not known here; write their text in this template",
    "<": "inheritance ({{<parent}}) is not known here; write the whole template in one",
    "$": "blocks of inheritance ({{$name}}) are not known here; use a section, {{#name}}…{{/name}}",
}


class MustacheTemplate(ParsedTemplate):
    """A template in Mustache's syntax, without partials, lambdas and inheritance; nothing is escaped for HTML."""

    __slots__ = ()
    syntax = "Mustache"

    @staticmethod
    def _parse(build: Builder) -> None:
        text = build.source
        opening, closing = "{{", "}}"
        # From where own text is still to be added, and where the last tag ended.
        at = end = 0
        while (start := text.find(opening, end)) >= 0:
            build.line += text.count("\n", end, start)
            kind = _KIND.match(text, start + len(opening))
            sign = kind[1] if kind else ""
            inside = kind.end() if kind else start + len(opening)
            close = _END.get(sign, "") + closing
            stop = text.find(close, inside)
            if stop < 0:
                raise build.unclosed(close)
            last, end = end, stop + len(close)
            alone = line_of(text, last, start, end) if sign in _ALONE else None
            build.text(text[at : alone[0] if alone else start])
            at = alone[1] if alone else end
            content = text[inside:stop].strip()
            if sign == "=":
                opening, closing = _delimiters(build, content)
            elif sign != "!":
                _tag(build, sign, content)
            build.line += text.count("\n", start, end)
        build.text(text[at:])


def _delimiters(build: Builder, content: str) -> tuple[str, str]:
    """The delimiters that a tag chooses."""
    chosen = content.split()
    if len(chosen) != 2 or "=" in content:  # noqa: PLR2004 - one to open and one to close
        raise build.fault(f"{short(content)} are no delimiters; write two, with a space between: {{{{=<% %>=}}}}")
    return chosen[0], chosen[1]


def _tag(build: Builder, sign: str, name: str) -> None:
    """Add what a tag with a name gives."""
    if sign in _REFUSED:
        raise build.fault(_REFUSED[sign])
    if not _NAME.fullmatch(name):
        raise build.fault(
            f"{short(name)} is no name: a name has no spaces and no braces, and dots only between its parts; "
            f"where braces are meant as text, {AS_TEXT['Mustache']}"
        )
    if sign == "/":
        build.close(name)
        return
    parts = () if name == "." else tuple(name.split("."))
    what = _Name(name, build.line, parts)
    if parts:
        (build.inner if build.levels else build.slots).setdefault(parts[0])
    if sign == "#":
        build.open(f"#{name}", name, _Over(what))
    elif sign == "^":
        build.open(f"^{name}", name, _Without(what))
    else:
        build.add(Shown(what))
