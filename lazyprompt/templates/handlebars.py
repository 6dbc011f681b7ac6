"""Handlebars as a syntax of templates: as much of it as ``.prompt`` files use.

What dotprompt's helpers ``role``, ``history``, ``media`` and ``section`` mean, the caller decides: each leaves a mark
in its place, a value that holds an :class:`~lazyprompt.templates.values.Opaque`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.errors import did_you_mean
from lazyprompt.templates.handlebars_nodes import (
    OF_LOOP,
    Argument,
    AsJson,
    Each,
    Else,
    Equals,
    HistoryMark,
    If,
    Literal,
    Mark,
    Media,
    Path,
    RoleMark,
    SectionMark,
    With,
)
from lazyprompt.templates.nodes import Shown
from lazyprompt.templates.parsed import Builder, ParsedTemplate, line_of
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from lazyprompt.templates.nodes import Choice, Node


class _Word(NamedTuple):
    """An argument in a tag."""

    kind: str
    text: str


class _Tag(NamedTuple):
    """A tag as read: its sign, its words, its ``key=word`` pairs, and where it ends."""

    sign: str
    words: list[_Word]
    named: dict[str, _Word]
    end: int
    left: bool
    right: bool


_Maker = Callable[[Builder, list[_Word], dict[str, _Word]], "Node | None"]

_OPEN = re.compile(r"\{\{(~?)(\{\{|!--|[{!#/^>&*]?)")
_SPACE = re.compile(r"\s*+")
_CLOSE = re.compile(r"(~?)\}\}")
_CLOSE_TRIPLE = re.compile(r"\}(~?)\}\}")
_CLOSE_COMMENT = re.compile(r"--(~?)\}\}")
_ID = r"(?:\[[^\]]*+\]|[^\s!\"#%&'()*+,;<=>@\[\\\]^`{|}~])++"
_WORD = re.compile(
    rf"(?:(?P<key>{_ID})\s*+=\s*+)?"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)'"
    rf"|(?P<number>-?[0-9]++(?:\.[0-9]++)?)(?=[\s}}~])|(?P<name>@?{_ID}))",
    re.DOTALL,
)
_UPS = re.compile(r"(?:\.\./|\.\.\Z)*+")
_HERE = re.compile(r"(?:this|\.)(?:[./]|\Z)|\./")
_PART = re.compile(r"(?:\[([^\]]*+)\]|([^./\[\]]++))(?:[./](?!\Z)|\Z)")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "undefined": None}
# How long a number may be.
_DIGITS = 20
_NONE = Literal(None, "null")


def _read(build: Builder, start: int) -> _Tag:
    """Read the tag that starts at a place of the template."""
    text = build.source
    opened = _OPEN.match(text, start)
    left, sign = (bool(opened[1]), opened[2]) if opened else (False, "")
    at = opened.end() if opened else start
    if sign in ("!", "!--"):
        ended = (_CLOSE if sign == "!" else _CLOSE_COMMENT).search(text, at if sign == "!" else at - 2)
        if not ended:
            raise build.unclosed("}}" if sign == "!" else "--}}")
        return _Tag("!", [], {}, ended.end(), left, bool(ended[1]))
    close = _CLOSE_TRIPLE if sign == "{" else _CLOSE
    words: list[_Word] = []
    named: dict[str, _Word] = {}
    while True:
        at = _end_of(_SPACE, text, at)
        if ended := close.match(text, at):
            return _Tag(sign, words, named, ended.end(), left, bool(ended[1]))
        found = _WORD.match(text, at)
        if found is None:
            if at == len(text):
                raise build.unclosed("}}}" if sign == "{" else "}}")
            raise build.fault(_odd(text[at], sign))
        word = _word(found)
        if found["key"] is not None:
            if found["key"] in named:
                raise build.fault(f"{short(found['key'])} is given twice in a tag; take one out")
            named[found["key"]] = word
        else:
            words.append(word)
        at = found.end()


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern ends that is matched from a place on."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _word(found: re.Match[str]) -> _Word:
    """The argument that was found."""
    for kind, quote in (("double", '"'), ("single", "'")):
        if found[kind] is not None:
            return _Word("text", found[kind].replace("\\" + quote, quote))
    return _Word("number", found["number"]) if found["number"] else _Word("name", found["name"])


def _odd(sign: str, kind: str) -> str:
    """What to say of a sign that no argument begins with."""
    if sign == "(":
        return "a helper in brackets, (…), is not known here; work the value out before, and give it"
    if sign == "|":
        return "names for the items, as |item|, are not known here; in {{#each}} the item is {{this}}"
    if sign in "\"'":
        return f"a text in quotes is opened and never closed; write {sign} where it ends"
    if kind == "#" and sign in "*>":
        return "partials and inline partials are not known here; write their text in this template"
    return (
        f"{sign!r} was found in a tag, where a name, a text in quotes, a number or the end of the tag was expected; "
        "where braces are meant as text, write a backslash before them, as in \\{{"
    )


def _path(build: Builder, name: str) -> Path:
    """A name, told to the builder."""
    data = name.startswith("@")
    rest = name[data:]
    ups = _end_of(_UPS, rest, 0)
    levels = (ups + 1) // 3
    rest = rest[ups:]
    rest = rest[_end_of(_HERE, rest, 0) :]
    parts: list[str] = []
    at = 0
    while at < len(rest) and (part := _PART.match(rest, at)):
        parts.append(part[2] if part[1] is None else part[1])
        at = part.end()
    if at < len(rest) or (data and not parts):
        raise build.fault(f"{short(name)} is no name; a name is as a, a.b, this, ../a or @index")
    kind = "loop" if data and parts[0] in OF_LOOP else "root" if data else "here"
    if data and parts[0] == "root":
        del parts[0]
    elif kind == "root":
        parts[0] = f"@{parts[0]}"
    if kind == "here" and levels > build.levels:
        raise build.fault(
            f"{short(name)} leads out of the template; only {{{{#each}}}} and {{{{#with}}}} open a level, "
            "{{#if}} opens none: take a ../ off"
        )
    if parts and (kind == "root" or (kind == "here" and levels == build.levels)):
        build.slots.setdefault(parts[0])
    return Path(name, build.line, tuple(parts), levels, kind)


def _argument(build: Builder, word: _Word) -> Argument:
    """An argument: a name, or what is written out."""
    if word.kind == "text":
        return Literal(word.text, word.text)
    if word.kind == "number":
        if len(word.text) > _DIGITS:
            raise build.fault(f"{short(word.text)} is too long a number; write it in quotes if it is text")
        return Literal(float(word.text) if "." in word.text else int(word.text), word.text)
    if word.text in _CONSTANTS:
        return Literal(_CONSTANTS[word.text], word.text)
    return _path(build, word.text)


def _json(build: Builder, words: list[_Word], named: dict[str, _Word]) -> Node | None:
    indent = named.pop("indent", _Word("number", "0"))
    if len(words) != 1 or named or indent.kind != "number" or indent.text not in _INDENTS:
        return None
    return AsJson(_argument(build, words[0]), int(indent.text))


def _role(build: Builder, words: list[_Word], named: dict[str, _Word]) -> Node | None:  # noqa: ARG001 - a maker is given all
    fits = len(words) == 1 and words[0].kind == "text" and words[0].text and not named
    return Mark("role", RoleMark(words[0].text)) if fits else None


def _section(build: Builder, words: list[_Word], named: dict[str, _Word]) -> Node | None:  # noqa: ARG001 - a maker is given all
    fits = len(words) == 1 and words[0].kind == "text" and words[0].text and not named
    return Mark("section", SectionMark(words[0].text)) if fits else None


def _history(build: Builder, words: list[_Word], named: dict[str, _Word]) -> Node | None:  # noqa: ARG001 - a maker is given all
    return None if words or named else Mark("history", HistoryMark())


def _media(build: Builder, words: list[_Word], named: dict[str, _Word]) -> Node | None:
    if words or not {"url"} <= named.keys() <= {"url", "contentType"}:
        return None
    url = _argument(build, named["url"])
    kind = _argument(build, named["contentType"]) if "contentType" in named else _NONE
    return Media(url, kind, build.line)


_INDENTS = frozenset(map(str, range(11)))
# How each helper is written, and what makes its node: nothing where it is written otherwise.
_HELPERS: dict[str, tuple[str, _Maker]] = {
    "json": ("{{json x}} or {{json x indent=2}}, with an indent of 0 to 10", _json),
    "role": (
        '{{role "user"}}; the role is one text in quotes: no value may say who speaks, and nothing else is taken',
        _role,
    ),
    "history": ("{{history}}", _history),
    "media": ('{{media url=x}} or {{media url=x contentType="image/png"}}', _media),
    "section": ('{{section "name"}}; the name is text in quotes', _section),
}
# How many arguments each block has, and what makes its choice.
_BLOCKS: dict[str, tuple[int, Callable[..., Choice]]] = {
    "if": (1, partial(If, wanted=True)),
    "unless": (1, partial(If, wanted=False)),
    "each": (1, Each),
    "with": (1, With),
    "ifEquals": (2, partial(Equals, wanted=True)),
    "unlessEquals": (2, partial(Equals, wanted=False)),
}


class HandlebarsTemplate(ParsedTemplate):
    """A template in Handlebars, as far as dotprompt documents it; nothing is escaped for HTML."""

    __slots__ = ()
    syntax = "Handlebars"

    @staticmethod
    def _parse(build: Builder) -> None:
        text = build.source
        # From where own text is still to be added, where the last tag ended, and from where to look for the next.
        at = end = look = counted = 0
        while (start := text.find("{{", look)) >= 0:
            build.line += text.count("\n", counted, start)
            counted = start
            before = text[max(at, start - 2) : start]
            slashes = len(before) - len(before.rstrip("\\"))
            if slashes == 1:
                build.text(text[at : start - 1])
                at, look = start, start + 2
                continue
            tag = _read(build, start)
            last, end, look = end, tag.end, tag.end
            other = _is_else(tag)
            alone = line_of(text, last, start, end) if other or tag.sign in _ALONE else None
            own = text[at : alone[0] if alone else start - bool(slashes)]
            build.text(own.rstrip() if tag.left else own)
            at = max(alone[1] if alone else end, _end_of(_SPACE, text, end) if tag.right else 0)
            if other:
                _else(build, tag)
            elif tag.sign != "!":
                _TAGS.get(tag.sign, _inline)(build, tag)
        build.text(text[at:])


_ALONE = frozenset("#/!")


def _is_else(tag: _Tag) -> bool:
    first = tag.words[0] if tag.words else None
    return (tag.sign == "^" and not first) or (tag.sign == "" and first == _Word("name", "else"))


def _else(build: Builder, tag: _Tag) -> None:
    """Begin the next arm of the block."""
    if not build.blocks:
        raise build.fault("{{else}} was found outside of any block; it belongs between {{#if x}} and {{/if}}")
    block = build.blocks[-1]
    if isinstance(block.choice, Else):
        raise build.fault(f"a second {{{{else}}}} in {{{{{block.tag}}}}} of line {block.line}; take it out")
    block.turn(Else())
    if len(tag.words) > 1 or tag.named:
        block.choice = _choice(build, tag._replace(words=tag.words[1:]))


def _open(build: Builder, tag: _Tag) -> None:
    """Begin a block."""
    choice = _choice(build, tag)
    build.open(f"#{tag.words[0].text}", tag.words[0].text, choice)


def _choice(build: Builder, tag: _Tag) -> Choice:
    """What a block or an ``else if`` asks for."""
    name = tag.words[0].text if tag.words else ""
    if not tag.words or name not in _BLOCKS:
        raise build.fault(
            f"{{{{#{short(name)[1:-1]}}}}} is no block that is known here{did_you_mean(name, _BLOCKS)}; known are "
            f"{listed(_BLOCKS)}: for a list write {{{{#each x}}}}, for what may be missing {{{{#if x}}}}"
        )
    count, make = _BLOCKS[name]
    if len(tag.words) != count + 1 or tag.named:
        raise build.fault(f"{name} is written {{{{#{name}{' x' * count}}}}}…{{{{/{name}}}}}, with nothing else in it")
    return make(*(_argument(build, word) for word in tag.words[1:]))


def _close(build: Builder, tag: _Tag) -> None:
    """End a block."""
    build.close(" ".join(word.text for word in tag.words))


def _inline(build: Builder, tag: _Tag) -> None:
    """Add what a tag gives that is no block."""
    first = tag.words[0] if tag.words else None
    if first is None or first.kind != "name" or first.text in _CONSTANTS:
        given = f"{short(first.text)} is no name" if first else "a tag is empty"
        raise build.fault(f"{given}; write a name in it, or, if its braces are meant as text, a backslash before them")
    name = first.text
    if name in _HELPERS:
        usage, make = _HELPERS[name]
        node = make(build, tag.words[1:], tag.named)
        if node is None:
            raise build.fault(f"{name} is written {usage}; a variable of that name is {{{{this.{name}}}}}")
        if isinstance(node, Mark):
            build.marks.append((build.line, node.held))
        build.add(node)
    elif name in _BLOCKS:
        raise build.fault(f"{name} is a block: write {{{{#{name}{' x' * _BLOCKS[name][0]}}}}}…{{{{/{name}}}}}")
    elif len(tag.words) > 1 or tag.named:
        raise build.fault(
            f"{short(name)} is no helper that is known here{did_you_mean(name, _HELPERS)}; known are "
            f"{listed(_HELPERS)}; work its value out before, and give it"
        )
    else:
        build.add(Shown(_path(build, name)))


def _refuse(build: Builder, tag: _Tag) -> None:
    """Say of a tag that it is not known here."""
    raise build.fault(_REFUSED[tag.sign])


_REFUSED = {
    ">": "partials ({{>name}}) are not known here; write their text in this template",
    "{{": "raw blocks ({{{{name}}}}) are not known here; write a backslash before each tag that is text, as in \\{{",
    "*": "decorators ({{*name}}) are not known here; take it out",
    "^": "inverted sections ({{^name}}) are not known here; write {{#unless name}}…{{/unless}}",
}
_TAGS: dict[str, Callable[[Builder, _Tag], None]] = {"#": _open, "/": _close, **dict.fromkeys(_REFUSED, _refuse)}
