"""The part of Jinja that other syntaxes of templates have too, taken apart and written in them.

It is names, names behind dots, ``if`` with ``else``, ``for``, and texts that a template sets itself. Anything else is
an error that names its line. Sections are found as in a filled template: in its own text, each value one character.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from jinja2 import Environment, TemplateSyntaxError, nodes

from lazyprompt.errors import FormatError
from lazyprompt.files.roles import PLACE, Scanned, attributes_in, role_lines
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json


class Shown(NamedTuple):
    """A value in its place.

    Attributes:
        text: How the other syntax says it.
        name: The input that it is; ``""`` for anything else.
        path: The names that it is, with dots between.
        line: Its line.
    """

    text: str
    name: str
    path: str
    line: int


class Tag(NamedTuple):
    """What begins, divides or ends a block.

    Attributes:
        text: How the other syntax says it.
        ends: Whether it ends a block.
        line: Its line.
    """

    text: str
    ends: bool
    line: int


Part: TypeAlias = "str | Shown | Tag"
Names: TypeAlias = "tuple[str, ...]"


def _nothing(*_: object) -> None:
    """Say nothing: there is no such tag."""


@dataclass(frozen=True)
class Syntax:
    """A syntax of templates. What it cannot say is None, or ``""``.

    Args:
        name: What errors call it.
        shown: A value, of its names, and of the variables of the loops around it, the innermost last.
        literal: Text that is a value, and not the template's own.
        asked: What begins an ``if``, or one that is negated, of the same.
        each: What begins a ``for``, of its variable and of the same.
        otherwise: ``else``.
        ends: What ends an ``if``, an ``if`` that is negated, and a ``for``.
    """

    name: str
    shown: Callable[[Names, Names], str | None]
    literal: Callable[[str], str]
    asked: Callable[[Names, Names, bool], str | None] = _nothing
    each: Callable[[str, Names, Names], str | None] = _nothing
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
    """A template in Jinja, said in another syntax.

    Args:
        template: The template.
        syntax: The other syntax.

    Returns:
        Its own text as it is, and the rest in that syntax.

    Raises:
        FormatError: Something in it has no counterpart there; the message names the line.
    """
    try:
        # Nothing is run here: it is only read.
        tree = Environment(keep_trailing_newline=True, autoescape=False).parse(template)  # noqa: S701 - as just said
    except TemplateSyntaxError as error:
        raise FormatError(
            f"line {error.lineno} of the template: {error.message} A block that reaches into a section of tools has no "
            f"counterpart in {syntax.name}; end it within its section"
        ) from error
    return [*_Walk(syntax).body(tree.body, ())]


class _Walk:
    """Goes through a template that was parsed."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._texts: dict[str, str] = {}

    def body(self, body: Sequence[nodes.Node], scope: tuple[str, ...]) -> Iterator[Part]:
        for node in body:
            if isinstance(node, nodes.Output):
                for each in node.nodes:
                    yield from self._output(each, scope)
            elif isinstance(node, nodes.If):
                yield from self._if(node, scope)
            elif isinstance(node, nodes.For):
                yield from self._for(node, scope)
            elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name) and _text_of(node.node):
                if scope:
                    raise self._fault(node)
                self._texts[node.target.name] = _text_of(node.node)
            else:
                raise self._fault(node)

    def _output(self, node: nodes.Node, scope: tuple[str, ...]) -> Iterator[Part]:
        if isinstance(node, nodes.TemplateData):
            yield node.data
            return
        if text := _text_of(node):
            yield text
            return
        if isinstance(node, nodes.Name) and node.name in self._texts and node.name not in scope:
            yield Shown(self._said(self._syntax.literal(self._texts[node.name]), node), "", "", node.lineno)
            return
        path = self._path(node)
        name = "" if path[0] in scope else path[0]
        said = self._said(self._syntax.shown(path, scope), node)
        yield Shown(said, name if len(path) == 1 else "", ".".join(path), node.lineno)

    def _if(self, node: nodes.If, scope: tuple[str, ...]) -> Iterator[Part]:
        negated = isinstance(node.test, nodes.Not)
        path = self._path(node.test.node if isinstance(node.test, nodes.Not) else node.test)
        yield Tag(self._said(self._syntax.asked(path, scope, negated), node), ends=False, line=node.lineno)
        yield from self.body(node.body, scope)
        otherwise: Sequence[nodes.Node] = node.else_
        if node.elif_:
            first, *others = node.elif_
            otherwise = [nodes.If(first.test, first.body, others, node.else_, lineno=first.lineno)]
        if otherwise:
            yield Tag(self._syntax.otherwise, ends=True, line=node.lineno)
            yield from self.body(otherwise, scope)
        yield Tag(self._syntax.ends[negated], ends=True, line=node.lineno)

    def _for(self, node: nodes.For, scope: tuple[str, ...]) -> Iterator[Part]:
        if not isinstance(node.target, nodes.Name) or node.test is not None or node.recursive:
            raise self._fault(node, "a 'for' with more than one variable, an 'if' or 'recursive'")
        path, variable = self._path(node.iter), node.target.name
        yield Tag(self._said(self._syntax.each(variable, path, scope), node), ends=False, line=node.lineno)
        yield from self.body(node.body, (*scope, variable))
        if node.else_:
            yield Tag(self._syntax.otherwise, ends=True, line=node.lineno)
            yield from self.body(node.else_, scope)
        yield Tag(self._syntax.ends[2], ends=True, line=node.lineno)

    def _path(self, node: nodes.Node) -> tuple[str, ...]:
        """The names that an expression is made of."""
        if isinstance(node, nodes.Name) and node.name not in self._texts:
            return (node.name,)
        if isinstance(node, nodes.Getattr):
            return (*self._path(node.node), node.attr)
        raise self._fault(node)

    def _said(self, text: str | None, node: nodes.Node) -> str:
        if not text:
            raise self._fault(node)
        return text

    def _fault(self, node: nodes.Node, what: str = "") -> FormatError:
        said = what or _WHAT.get(type(node), f"Jinja's {type(node).__name__.lower()}")
        return FormatError(
            f"line {node.lineno} of the template: {said} has no counterpart in {self._syntax.name}; work the value out "
            "before, and give it as an input"
        )


def _text_of(node: nodes.Node) -> str:
    """The text that an expression is; ``""`` for any other."""
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else ""


# What is around the text of a section and no part of it.
_BREAKS: Final = "\n"


class Told(NamedTuple):
    """A section.

    Attributes:
        role: Its role; ``""`` for what stands before the first line that names one.
        attributes: What the line says beside it.
        pieces: What stands below, without line breaks of its own around it.
        lead: Tags between it and the section before.
        line: The line of the template that names the role.
    """

    role: str
    attributes: dict[str, Json]
    pieces: tuple[Part, ...]
    lead: tuple[Tag, ...] = ()
    line: int = 1


def told_sections(pieces: Sequence[Part], roles: Sequence[str], target: str) -> list[Told]:
    """Take a template apart by its roles.

    Args:
        pieces: The template.
        roles: The names of roles.
        target: How errors call the other form.

    Raises:
        FormatError: A value stands in the place of a role or in its attributes, or a block divides such a line.
    """
    filled = Scanned([each for each in map(_scanned, pieces) if each is not None])
    placed = _Placed(pieces)
    found: list[Told] = []
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
            found.append(Told(role, attributes, stripped(inside), lead, at))
            inside = ()
        # What stands before the first section, and says nothing, may still open a block.
        lead = (*(each for each in inside if isinstance(each, Tag)), *opened)
        role, attributes, begin = match["role"].lower(), attributes_in(match["attributes"] or ""), match.end()
        at = placed.line(match.start())
    inside, opened = placed.between(begin, len(filled.text))
    found.append(Told(role, attributes, stripped((*inside, *opened)), lead, at))
    return found


class _Placed:
    """Pieces with their places in the text that is searched."""

    def __init__(self, pieces: Sequence[Part]) -> None:
        lengths = [len(_scanned(piece) or "") if isinstance(piece, str) else _width(piece) for piece in pieces]
        self._pieces = list(zip([0, *accumulate(lengths)], pieces, strict=False))

    def divides(self, begin: int, end: int) -> bool:
        """Whether a block begins or ends between two places."""
        return any(begin < at < end for at, each in self._pieces if isinstance(each, Tag))

    def line(self, place: int) -> int:
        """The line of the template that a place is in."""
        line = 1
        for at, piece in self._pieces:
            if at > place:
                break
            # What ends a block has the line where it began.
            line = line + piece[: place - at].count("\n") if isinstance(piece, str) else max(line, piece.line)
        return line

    def between(self, begin: int, end: int) -> tuple[tuple[Part, ...], tuple[Tag, ...]]:
        """The pieces between two places; and the tags at the end of it, from the first that begins a block."""
        found: list[Part] = []
        opened: list[Tag] = []
        for at, piece in self._pieces:
            if isinstance(piece, Tag):
                if begin <= at < end or (at == end and piece.ends and not opened and begin <= at):
                    found.append(piece)
                elif at == end:
                    opened.append(piece)
            elif isinstance(piece, Shown):
                if begin <= at < end:
                    found.append(piece)
            elif part := piece[max(begin - at, 0) : max(end - at, 0)]:
                found.append(part)
        return tuple(found), tuple(opened)


def _width(piece: Shown | Tag) -> int:
    return 0 if isinstance(piece, Tag) else 1


def _scanned(piece: Part) -> str | None:
    """A piece as a part of a filled template; None where it is nothing there."""
    if isinstance(piece, Tag):
        return None
    return piece if isinstance(piece, str) else Value(piece.text, piece.path)


def runs(pieces: Sequence[Part], threads: Collection[str]) -> Iterator[tuple[tuple[Part, ...], Shown | None]]:
    """What a section says, divided by its threads.

    Args:
        pieces: What stands in it.
        threads: The names of the inputs that are threads.

    Yields:
        What stands before each thread, and the thread; then what stands behind the last one, if it says anything.
    """
    run: list[Part] = []
    before: str | None = _BREAKS
    for piece in pieces:
        if isinstance(piece, Shown) and piece.name in threads:
            yield stripped(run, before, None), piece
            run, before = [], None
        else:
            run.append(piece)
    rest = stripped(run, before)
    if before or rest:
        yield rest, None


def stripped(pieces: Sequence[Part], before: str | None = _BREAKS, behind: str | None = _BREAKS) -> tuple[Part, ...]:
    """Pieces without the template's own white space around them; what is in a block stays as it is.

    Args:
        pieces: The pieces.
        before: The signs that are taken away at the beginning: line breaks; beside a thread all white space, None.
        behind: The same of the end.
    """
    found = [piece for piece in pieces if piece]
    while found and isinstance(first := found[0], str):
        found[0] = first.lstrip(before)
        if found[0]:
            break
        del found[0]
    while found and isinstance(last := found[-1], str):
        found[-1] = last.rstrip(behind)
        if found[-1]:
            break
        del found[-1]
    return tuple(found)
