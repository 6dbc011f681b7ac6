"""The part of Jinja that other template syntaxes share, parsed and rendered in them.

It is names, names behind dots, ``if`` with ``else``, ``for``, and texts that a template sets itself. Anything else is
an error that names its line. Sections are found as in a filled template: in its own text, each value one character.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from string import Template
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from jinja2 import TemplateSyntaxError, nodes

from lazyprompt.errors import FormatError
from lazyprompt.files.roles import PLACE, Scanned, attributes_in, role_lines
from lazyprompt.files.turns import stripped
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json


class Shown(NamedTuple):
    """A value in its place.

    Attributes:
        text: The value in the other syntax.
        name: The input that it is; ``""`` for anything else.
        path: Its names, with dots between.
        line: Its line.
    """

    text: str
    name: str
    path: str
    line: int


class Tag(NamedTuple):
    """The begin, the ``else`` or the end of a block.

    Attributes:
        text: The tag in the other syntax.
        ends: True if it ends a block.
        line: Its line.
    """

    text: str
    ends: bool
    line: int


Part: TypeAlias = "str | Shown | Tag"
Names: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True)
class Syntax:
    """A template syntax. Tags have ``$path``, and ``each`` has ``$variable``; a tag that it lacks is ``""``.

    Args:
        name: Its name in errors.
        path: Renders the names of a value within the loops of some variables, the innermost last; None if it cannot.
        literal: Renders text that is a value, and not the template's own.
        shown: A value.
        asked: The begin of an ``if``, and of one that is negated.
        each: The begin of a ``for``.
        otherwise: ``else``.
        ends: The end of an ``if``, of an ``if`` that is negated, and of a ``for``.
    """

    name: str
    path: Callable[[Names, Names], str | None]
    literal: Callable[[str], str]
    shown: str
    asked: tuple[str, str] = ("", "")
    each: str = ""
    otherwise: str = ""
    ends: tuple[str, str, str] = ("", "", "")


_WHAT: Final[Mapping[type[nodes.Node], str]] = {
    nodes.Name: "a value of an outer loop, or from outside of two,",
    nodes.Getattr: "a name behind a dot",
    nodes.If: "'if'",
    nodes.For: "'for'",
    nodes.Filter: "a filter",
    nodes.Test: "a test",
    nodes.Call: "a call",
    nodes.CallBlock: "a call",
    nodes.Macro: "a macro",
    nodes.Compare: "a comparison",
    nodes.Getitem: "an item in brackets",
    nodes.And: "'and'",
    nodes.Or: "'or'",
    nodes.CondExpr: "a choice within a value",
    nodes.Assign: "'set' of what is no text",
    nodes.AssignBlock: "a block of 'set'",
    nodes.Block: "a block",
    nodes.Include: "an include",
}


def portable(template: str, syntax: Syntax) -> list[Part]:
    """Render a template in Jinja in another syntax.

    Args:
        template: The template.
        syntax: The other syntax.

    Returns:
        Its own text as it is, and the rest in that syntax.

    Raises:
        FormatError: Something in it has no counterpart there; the message names the line.
    """
    try:
        tree = BoundedEnvironment(keep_trailing_newline=True).parse(template)
    except TemplateSyntaxError as error:
        raise FormatError(
            f"line {error.lineno} of the template: {error.message} A block that reaches into a section of tools has no "
            f"counterpart in {syntax.name}; end it within its section"
        ) from error
    return [*_Walk(syntax).body(tree.body, ())]


class _Walk:
    """Renders the nodes of a parsed template."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._texts: dict[str, str] = {}

    def body(self, body: Sequence[nodes.Node], scope: Names) -> Iterator[Part]:
        for node in body:
            if isinstance(node, nodes.Output):
                for each in node.nodes:
                    yield self._output(each, scope)
            elif isinstance(node, nodes.If):
                yield from self._if(node, scope)
            elif isinstance(node, nodes.For):
                yield from self._for(node, scope)
            elif (
                isinstance(node, nodes.Assign)
                and isinstance(node.target, nodes.Name)
                and (text := _text_of(node.node))
                and not scope
            ):
                self._texts[node.target.name] = text
            else:
                raise self._fault(node)

    def _output(self, node: nodes.Node, scope: Names) -> Part:
        if isinstance(node, nodes.TemplateData):
            return node.data
        if text := _text_of(node):
            return text
        if isinstance(node, nodes.Name) and node.name in self._texts and node.name not in scope:
            return Shown(self._syntax.literal(self._texts[node.name]), "", "", node.lineno)
        path = self._path(node)
        name = path[0] if len(path) == 1 and path[0] not in scope else ""
        return Shown(self._tag(self._syntax.shown, node, path, scope), name, ".".join(path), node.lineno)

    def _if(self, node: nodes.If, scope: Names) -> Iterator[Part]:
        negated = isinstance(node.test, nodes.Not)
        path = self._path(node.test.node if isinstance(node.test, nodes.Not) else node.test)
        otherwise: Sequence[nodes.Node] = node.else_
        if node.elif_:
            first, *others = node.elif_
            otherwise = [nodes.If(first.test, first.body, others, node.else_, lineno=first.lineno)]
        tag = self._tag(self._syntax.asked[negated], node, path, scope)
        yield from self._block(node, tag, scope, otherwise, self._syntax.ends[negated])

    def _for(self, node: nodes.For, scope: Names) -> Iterator[Part]:
        if not isinstance(node.target, nodes.Name) or node.test is not None or node.recursive:
            raise self._fault(node, "a 'for' with more than one variable, an 'if' or 'recursive'")
        variable = node.target.name
        tag = self._tag(self._syntax.each, node, self._path(node.iter), scope, variable)
        yield from self._block(node, tag, scope, node.else_, self._syntax.ends[2], variable)

    def _block(
        self, node: nodes.If | nodes.For, tag: str, scope: Names, otherwise: Sequence[nodes.Node], end: str, *inner: str
    ) -> Iterator[Part]:
        yield Tag(tag, ends=False, line=node.lineno)
        yield from self.body(node.body, (*scope, *inner))
        if otherwise:
            yield Tag(self._syntax.otherwise, ends=True, line=node.lineno)
            yield from self.body(otherwise, scope)
        yield Tag(end, ends=True, line=node.lineno)

    def _path(self, node: nodes.Node) -> Names:
        """Return the names that an expression is made of."""
        if isinstance(node, nodes.Name) and node.name not in self._texts:
            return (node.name,)
        if isinstance(node, nodes.Getattr):
            return (*self._path(node.node), node.attr)
        raise self._fault(node)

    def _tag(self, form: str, node: nodes.Node, path: Names, scope: Names, variable: str = "") -> str:
        names = self._syntax.path(path, scope)
        if not form or not names:
            raise self._fault(node)
        return Template(form).substitute(path=names, variable=variable)

    def _fault(self, node: nodes.Node, what: str = "") -> FormatError:
        what = what or _WHAT.get(type(node), f"Jinja's {type(node).__name__.lower()}")
        return FormatError(
            f"line {node.lineno} of the template: {what} has no counterpart in {self._syntax.name}; work the value out "
            "before, and give it as an input"
        )


def _text_of(node: nodes.Node) -> str:
    """Return the text that an expression is; ``""`` for any other."""
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else ""


class ParsedSection(NamedTuple):
    """A section.

    Attributes:
        role: Its role; ``""`` for text before the first line that names one.
        attributes: The attributes of that line.
        pieces: Its content, without line breaks of its own around it.
        lead: Tags between it and the section before.
        line: The line of the template that names the role.
    """

    role: str
    attributes: dict[str, Json]
    pieces: tuple[Part, ...]
    lead: tuple[Tag, ...] = ()
    line: int = 1


def parsed_sections(pieces: Sequence[Part], roles: Sequence[str], target: str) -> list[ParsedSection]:
    """Divide a template by its roles.

    Args:
        pieces: The template.
        roles: The names of roles.
        target: The name of the other form in errors.

    Raises:
        FormatError: A value stands in the place of a role or in its attributes, or a block divides such a line.
    """
    filled = Scanned(
        [each if isinstance(each, str) else Value(each.text, each.path) for each in pieces if not isinstance(each, Tag)]
    )
    placed = _Placed(pieces)
    found: list[ParsedSection] = []
    role, attributes, begin, at = "", dict[str, "Json"](), 0, 1
    lead: tuple[Tag, ...] = ()
    for match in role_lines(filled, roles):
        if PLACE in match[0] or placed.divides(match.start(), match.end()):
            line = match[0].strip().replace(PLACE, "{{…}}")
            raise FormatError(
                f"line {placed.line(match.start())} of the template: {line!r}: {target} takes a role as it is written, "
                "with no value or block in it"
            )
        inside, opened = placed.between(begin, match.start())
        if role or lead or not filled.is_blank(begin, match.start()):
            found.append(ParsedSection(role, attributes, tuple(stripped(inside)), lead, at))
            inside = ()
        # What stands before the first section, and says nothing, may still open a block.
        lead = (*(each for each in inside if isinstance(each, Tag)), *opened)
        role, attributes, begin = match["role"].lower(), attributes_in(match["attributes"] or ""), match.end()
        at = placed.line(match.start())
    inside, opened = placed.between(begin, len(filled.text))
    return [*found, ParsedSection(role, attributes, tuple(stripped((*inside, *opened))), lead, at)]


class _Placed:
    """Pieces with their places in the text that is searched, where a value is one character and a tag none."""

    def __init__(self, pieces: Sequence[Part]) -> None:
        lengths = (len(piece) if isinstance(piece, str) else isinstance(piece, Shown) for piece in pieces)
        self._pieces = list(zip([0, *accumulate(lengths)], pieces, strict=False))

    def divides(self, begin: int, end: int) -> bool:
        """Return True if a block begins or ends between two places."""
        return any(begin < at < end for at, each in self._pieces if isinstance(each, Tag))

    def line(self, place: int) -> int:
        """Return the line of the template that a place is in."""
        line = 1
        for at, piece in self._pieces:
            if at > place:
                break
            # What ends a block has the line where it began.
            line = line + piece[: place - at].count("\n") if isinstance(piece, str) else max(line, piece.line)
        return line

    def between(self, begin: int, end: int) -> tuple[tuple[Part, ...], tuple[Tag, ...]]:
        """Return the pieces between two places; and the tags at the end of it, from the first that begins a block."""
        found: list[Part] = []
        opened: list[Tag] = []
        for at, piece in self._pieces:
            if isinstance(piece, str):
                found.append(piece[max(begin - at, 0) : max(end - at, 0)])
            elif begin <= at < end:
                found.append(piece)
            elif isinstance(piece, Tag) and at == end:
                if begin <= at and piece.ends and not opened:
                    found.append(piece)
                else:
                    opened.append(piece)
        return tuple(each for each in found if each), tuple(opened)


def runs(pieces: Sequence[Part], threads: Collection[str]) -> Iterator[tuple[tuple[Part, ...], Shown | None]]:
    """Divide the content of a section by its threads.

    Args:
        pieces: The content.
        threads: The names of the inputs that are threads.

    Yields:
        The pieces before each thread, and the thread; then those behind the last one, if there are any.
    """
    run: list[Part] = []
    before: str | None = "\n"
    for piece in pieces:
        if isinstance(piece, Shown) and piece.name in threads:
            yield tuple(stripped(run, before, None)), piece
            run, before = [], None
        else:
            run.append(piece)
    rest = tuple(stripped(run, before))
    if before or rest:
        yield rest, None
