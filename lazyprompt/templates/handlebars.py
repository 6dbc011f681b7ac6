"""Handlebars as a syntax of templates: as much of it as ``.prompt`` files use.

The meaning of dotprompt's helpers ``role``, ``history``, ``media`` and ``section`` is the caller's: each leaves a mark
in its place, a value that holds an :class:`~lazyprompt.templates.slots.Opaque`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from reprlib import repr as short
from typing import Final, NamedTuple, cast

from jinja2 import nodes

from lazyprompt._base.json import checked
from lazyprompt.errors import SlotError, did_you_mean
from lazyprompt.templates.bounds import check_length, size_of
from lazyprompt.templates.mustache import ABSENT, Builder, TagTemplate, is_nothing, line_of, member, runtime
from lazyprompt.templates.slots import JsonValue, Opaque, Value, listed


@dataclass(frozen=True, slots=True)
class RoleMark(Opaque):
    """The beginning of a message: ``{{role "user"}}``.

    Args:
        role: Its role, which is the template's own text.
    """

    role: str


@dataclass(frozen=True, slots=True)
class HistoryMark(Opaque):
    """The place of the history: ``{{history}}``."""


@dataclass(frozen=True, slots=True)
class MediaMark(Opaque):
    """The place of a picture, sound or file: ``{{media url=photo}}``.

    Args:
        url: Its address, which may be a value.
        content_type: Its media type, if one is given.
    """

    url: str
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class SectionMark(Opaque):
    """The place of a part that has a name: ``{{section "output"}}``.

    Args:
        name: The name, which is the template's own text.
    """

    name: str


class _Word(NamedTuple):
    """An argument in a tag."""

    kind: str
    text: str


class _Tag(NamedTuple):
    """A tag as read: its sign, its words, its ``key=word`` pairs, its end, and the sides on which blanks go."""

    sign: str
    words: list[_Word]
    named: dict[str, _Word]
    end: int
    left: bool
    right: bool


_Maker = Callable[[Builder, list[_Word], dict[str, _Word]], nodes.Expr | None]

_OPEN = re.compile(r"\{\{(~?)(\{\{|!--|[{!#/^>&*]?)")
_SPACE = re.compile(r"\s*+")
_CLOSE = re.compile(r"(~?)\}\}")
_CLOSE_TRIPLE = re.compile(r"\}(~?)\}\}")
_CLOSE_COMMENT = re.compile(r"--(~?)\}\}")
_ID = r"(?:\[[^\]]*+\]|[^\s!\"#%&'()*+,;<=>@\[\\\]^`{|}~])++"
_WORD = re.compile(
    rf"(?:(?P<key>{_ID})\s*+=\s*+)?"
    r"(?:(?P<quote>[\"'])(?P<text>(?:(?!(?P=quote))[^\\]|\\.)*+)(?P=quote)"
    rf"|(?P<number>-?[0-9]++(?:\.[0-9]++)?)(?=[\s}}~])|(?P<name>@?{_ID}))",
    re.DOTALL,
)
_UPS = re.compile(r"(?:\.\./|\.\.\Z)*+")
_HERE = re.compile(r"(?:this|\.)(?:[./]|\Z)|\./")
_PART = re.compile(r"(?:\[([^\]]*+)\]|([^./\[\]]++))(?:[./](?!\Z)|\Z)")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "undefined": None}
# The longest number.
_DIGITS = 20
_INDENTS: Final = frozenset(map(str, range(11)))
# What a loop knows of each round.
_OF_LOOP: Final = frozenset(("index", "key", "first", "last"))
# Behind these a line that has nothing else on it goes too.
_ALONE = frozenset("#/!")
_REFUSED = {
    ">": "partials ({{>name}}) are not known here; write their text in this template",
    "{{": "raw blocks ({{{{name}}}}) are not known here; write a backslash before each tag that is text, as in \\{{",
    "*": "decorators ({{*name}}) are not known here; take it out",
    "^": "inverted sections ({{^name}}) are not known here; write {{#unless name}}…{{/unless}}",
}


class HandlebarsTemplate(TagTemplate):
    """A template in Handlebars, as far as dotprompt documents it; nothing is escaped for HTML."""

    __slots__ = ()
    syntax = "Handlebars"
    as_text = "a backslash before them, as in \\{{"
    advice = "give one, or ask for it with {{#if}}"

    @staticmethod
    def read(build: Builder) -> None:
        """Read the template."""
        text = build.text
        # From where own text is still to be added, where the last tag ended, and from where to look for the next.
        at = end = look = counted = 0
        while (start := text.find("{{", look)) >= 0:
            build.line += text.count("\n", counted, start)
            counted = start
            before = text[max(at, start - 2) : start]
            slashes = len(before) - len(before.rstrip("\\"))
            if slashes == 1:
                build.own(text[at : start - 1])
                at, look = start, start + 2
                continue
            tag = _read(build, start)
            last, end, look = end, tag.end, tag.end
            other = (tag.sign == "^" and not tag.words) or (tag.sign == "" and tag.words[:1] == [_Word("name", "else")])
            alone = line_of(text, last, start, end) if other or tag.sign in _ALONE else None
            own = text[at : alone[0] if alone else start - bool(slashes)]
            build.own(own.rstrip() if tag.left else own)
            at = max(alone[1] if alone else end, _end_of(_SPACE, text, end) if tag.right else 0)
            if other:
                _else(build, tag)
            elif tag.sign == "#":
                build.open(f"#{tag.words[0].text}" if tag.words else "#", *_block(build, tag))
            elif tag.sign == "/":
                build.close(" ".join(word.text for word in tag.words))
            elif tag.sign in _REFUSED:
                raise build.fault(_REFUSED[tag.sign])
            elif tag.sign != "!":
                build.show(_shown(build, tag))
        build.own(text[at:])

    @staticmethod
    def find(values: Sequence[object], parts: Sequence[str]) -> object:
        """Look up a name in the one level that it is of; lists and texts have a length too."""
        found = values[0] if values else ABSENT
        for part in parts:
            before, found = found, member(found, part)
            if found is ABSENT and part == "length" and isinstance(before, list | str):
                found = len(cast("list[object]", before))
        return found

    @classmethod
    def functions(cls, *, lenient: bool) -> dict[str, Callable[..., object]]:
        """Return the functions that compiled templates call."""

        def media(url: object, kind: object, source: str, line: int) -> Value:
            url, kind = (None if value is ABSENT else value for value in (url, kind))
            if lenient and not url:
                return Value("", source)
            for what, value in (("url", url), ("contentType", kind or "none")):
                if not isinstance(value, str) or not value:
                    given = type(value).__name__ if value else "empty"
                    raise SlotError(
                        f"{cls.syntax}, line {line}: the {what} of media is {given}; give text, or leave the media "
                        "out with {{#if}}"
                    )
            return Value("", source, MediaMark(cast("str", url), cast("str | None", kind or None)))

        return {
            **super().functions(lenient=lenient),
            "mark": _marked,
            "media": media,
            "json": _as_json,
            "true": _is_true,
            "equal": _equal,
            "each": _each,
            "with": _with,
        }


def _marked(kind: str, *name: str) -> Value:
    return Value("", kind, _MARKS[kind](*name))


def _is_true(value: object) -> bool:
    return not (is_nothing(value) or value == 0)


def _with(value: object) -> tuple[object, ...]:
    return () if is_nothing(value) else (value,)


def _equal(left: object, right: object) -> bool:
    """Return True if two values are the same; ``true`` is not 1."""
    left, right = (None if value is ABSENT else value for value in (left, right))
    return left == right and isinstance(left, bool) is isinstance(right, bool)


def _each(value: object) -> Iterator[tuple[object, dict[str, object]]]:
    """Yield the items of a list or dict, each with the names that a loop knows."""
    if isinstance(value, dict | list):
        many = cast("dict[str, object] | list[object]", value)
        for index, (key, item) in enumerate(many.items() if isinstance(many, dict) else enumerate(many)):
            yield item, {"index": index, "key": key, "first": not index, "last": index == len(many) - 1}


def _as_json(value: object, name: str, indent: int) -> Value:
    """Return a value as JSON, whatever it is."""
    if value is ABSENT:
        return Value("", name)
    size_of(value)
    plain = checked(value, f"the value of {name!r}", SlotError)
    # As dotprompt writes it: without an indent, without any blank.
    between = (",", ": ") if indent else (",", ":")
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent or None, separators=between)
    pieces: list[str] = []
    length = 0
    # Piece by piece: an indent makes a deep value many times longer.
    for piece in encoder.iterencode(plain):
        pieces.append(piece)
        length += len(piece)
        check_length(length)
    return JsonValue("".join(pieces), name)


def _read(build: Builder, start: int) -> _Tag:
    """Read the tag that starts at a place of the template."""
    text = build.text
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
        if found["key"] is None:
            words.append(word)
        elif named.setdefault(found["key"], word) is not word:
            raise build.fault(f"{short(found['key'])} is given twice in a tag; take one out")
        at = found.end()


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a pattern that is matched from a place on."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _word(found: re.Match[str]) -> _Word:
    """Return the argument that was found."""
    if quote := found["quote"]:
        return _Word("text", found["text"].replace("\\" + quote, quote))
    return _Word("number", found["number"]) if found["number"] else _Word("name", found["name"])


def _odd(sign: str, kind: str) -> str:
    """Return the message for a character that no argument begins with."""
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


def _path(build: Builder, name: str) -> tuple[list[nodes.Expr], tuple[str, ...]]:
    """Read a name: ``a.b``, ``this``, ``../a``, ``@index``, ``@root.a``.

    Returns:
        The variable that its first part is looked up in, none outside of any loop; and its parts.
    """
    is_data = name.startswith("@")
    rest = name[is_data:]
    ups = _end_of(_UPS, rest, 0)
    levels = (ups + 1) // 3
    rest = rest[ups:]
    rest = rest[_end_of(_HERE, rest, 0) :]
    parts: list[str] = []
    at = 0
    while at < len(rest) and (part := _PART.match(rest, at)):
        parts.append(part[2] if part[1] is None else part[1])
        at = part.end()
    if at < len(rest) or (is_data and not parts):
        raise build.fault(f"{short(name)} is no name; a name is as a, a.b, this, ../a or @index")
    if is_data and parts[0] in _OF_LOOP:
        return build.loops()[levels : levels + 1], tuple(parts)
    if is_data:
        levels = build.level
        if parts[0] == "root":
            del parts[0]
        else:
            parts[0] = f"@{parts[0]}"
    if levels > build.level:
        raise build.fault(
            f"{short(name)} leads out of the template; only {{{{#each}}}} and {{{{#with}}}} open a level, "
            "{{#if}} opens none: take a ../ off"
        )
    if parts and levels == build.level:
        build.slots.setdefault(parts[0])
    return build.variables()[levels : levels + 1], tuple(parts)


def _name(build: Builder, function: str, name: str) -> nodes.Expr:
    """Return the expression of a name whose value must be there."""
    variable, parts = _path(build, name)
    # Errors look for the nearest name in all levels.
    around = [build.variables()] if build.level or not variable else []
    return runtime(function, variable, (parts, name, build.line), *around)


def _argument(build: Builder, word: _Word, *, must_be: bool = True) -> nodes.Expr:
    """Return the expression of an argument: of a name, or of a value that is written out."""
    if word.kind == "text":
        return nodes.Const(word.text)
    if word.kind == "number":
        if len(word.text) > _DIGITS:
            raise build.fault(f"{short(word.text)} is too long a number; write it in quotes if it is text")
        return nodes.Const(float(word.text) if "." in word.text else int(word.text))
    if word.text in _CONSTANTS:
        return nodes.Const(_CONSTANTS[word.text])
    return _name(build, "need", word.text) if must_be else runtime("find", *_path(build, word.text))


def _else(build: Builder, tag: _Tag) -> None:
    """Read the beginning of the next branch of a block."""
    if not build.sections:
        raise build.fault("{{else}} was found outside of any block; it belongs between {{#if x}} and {{/if}}")
    section = build.sections[-1]
    if section.is_else:
        raise build.fault(f"a second {{{{else}}}} in {{{{{section.tag}}}}} of line {section.line}; take it out")
    section.begin_else()
    if len(tag.words) > 1 or tag.named:
        build.branch(_block(build, tag._replace(words=tag.words[1:]))[1])


def _block(build: Builder, tag: _Tag) -> tuple[str, nodes.For | nodes.If]:
    """Return the name of a block or an ``else if``, and its loop or condition."""
    name = tag.words[0].text if tag.words else ""
    if name not in _BLOCKS:
        raise build.fault(
            f"{{{{#{short(name)[1:-1]}}}}} is no block that is known here{did_you_mean(name, _BLOCKS)}; known are "
            f"{listed(_BLOCKS)}: for a list write {{{{#each x}}}}, for what may be missing {{{{#if x}}}}"
        )
    count, function, wanted = _BLOCKS[name]
    if len(tag.words) != count + 1 or tag.named:
        raise build.fault(f"{name} is written {{{{#{name}{' x' * count}}}}}…{{{{/{name}}}}}, with nothing else in it")
    given = runtime(function, *(_argument(build, word, must_be=False) for word in tag.words[1:]))
    if wanted is None:
        return name, build.loop(given, has_names=name == "each")
    return name, nodes.If(given if wanted else nodes.Not(given), [], [], [])


def _shown(build: Builder, tag: _Tag) -> nodes.Expr:
    """Return the expression of a tag that is no block."""
    first = tag.words[0] if tag.words else None
    if first is None or first.kind != "name" or first.text in _CONSTANTS:
        given = f"{short(first.text)} is no name" if first else "a tag is empty"
        raise build.fault(f"{given}; write a name in it, or, if its braces are meant as text, a backslash before them")
    name = first.text
    if name in _HELPERS:
        usage, make = _HELPERS[name]
        made = make(build, tag.words[1:], tag.named)
        if made is None:
            raise build.fault(f"{name} is written {usage}; a variable of that name is {{{{this.{name}}}}}")
        return made
    if name in _BLOCKS:
        raise build.fault(f"{name} is a block: write {{{{#{name}{' x' * _BLOCKS[name][0]}}}}}…{{{{/{name}}}}}")
    if len(tag.words) > 1 or tag.named:
        raise build.fault(
            f"{short(name)} is no helper that is known here{did_you_mean(name, _HELPERS)}; known are "
            f"{listed(_HELPERS)}; work its value out before, and give it"
        )
    return _name(build, "show", name)


def _json(build: Builder, words: list[_Word], named: dict[str, _Word]) -> nodes.Expr | None:
    indent = named.pop("indent", _Word("number", "0"))
    if len(words) != 1 or named or indent.kind != "number" or indent.text not in _INDENTS:
        return None
    return runtime("json", _argument(build, words[0]), words[0].text, int(indent.text))


def _media(build: Builder, words: list[_Word], named: dict[str, _Word]) -> nodes.Expr | None:
    if words or not {"url"} <= named.keys() <= {"url", "contentType"}:
        return None
    url, kind = (_argument(build, named.get(key, _Word("name", "null"))) for key in ("url", "contentType"))
    return runtime("media", url, kind, "media" if isinstance(url, nodes.Const) else named["url"].text, build.line)


def _mark(kind: str, build: Builder, words: list[_Word], named: dict[str, _Word]) -> nodes.Expr | None:
    # Only a text in quotes: no value may name a mark.
    names = [word.text for word in words if word.kind == "text" and word.text]
    if named or len(names) != len(words) or len(names) != (kind != "history"):
        return None
    build.marks.append((build.line, _MARKS[kind](*names)))
    return runtime("mark", kind, *names)


_MARKS: dict[str, Callable[..., Opaque]] = {"role": RoleMark, "section": SectionMark, "history": HistoryMark}
# The way to write each helper, and the maker of its expression: None if it is written otherwise.
_HELPERS: dict[str, tuple[str, _Maker]] = {
    "json": ("{{json x}} or {{json x indent=2}}, with an indent of 0 to 10", _json),
    "role": (
        '{{role "user"}}; the role is one text in quotes: no value may say who speaks, and nothing else is taken',
        partial(_mark, "role"),
    ),
    "history": ("{{history}}", partial(_mark, "history")),
    "media": ('{{media url=x}} or {{media url=x contentType="image/png"}}', _media),
    "section": ('{{section "name"}}; the name is text in quotes', partial(_mark, "section")),
}
# The number of arguments of each block, the function that is given them, and its result that is wanted; None for loops.
_BLOCKS: dict[str, tuple[int, str, bool | None]] = {
    "if": (1, "true", True),
    "unless": (1, "true", False),
    "each": (1, "each", None),
    "with": (1, "with", None),
    "ifEquals": (2, "equal", True),
    "unlessEquals": (2, "equal", False),
}
