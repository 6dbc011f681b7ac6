"""The templates that are parsed to nodes: what Mustache and Handlebars have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, ClassVar, cast

from jinja2.exceptions import SecurityError

from lazyprompt._base.json import well_formed
from lazyprompt.errors import TemplateError
from lazyprompt.messages import prompt
from lazyprompt.templates.bounds import MAX_TEMPLATE
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.nodes import Arm, Block, Choice, Node, Output, Scope, Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.templates.values import Opaque

MAX_DEPTH = 100
"""How deep sections may lie in one another."""

AS_TEXT = {
    "Mustache": "choose other delimiters before them, as in {{=<% %>=}}",
    "Handlebars": "a backslash before them, as in \\{{",
}
"""How braces are written that are text, by the syntax."""

_REST_OF_LINE = re.compile(r"[ \t]*+(?:\r?\n|\Z)")


@dataclass(slots=True)
class _Open:
    """A block that is being read."""

    tag: str
    name: str
    line: int
    choice: Choice
    arms: list[Arm] = field(default_factory=list[Arm])
    body: list[Node] = field(default_factory=list[Node])

    def turn(self, choice: Choice) -> None:
        """End the body of one arm and begin the next."""
        self.arms.append(Arm(self.choice, tuple(self.body)))
        self.choice, self.body = choice, []


class Builder:
    """Puts nodes together, in the order of the template.

    Args:
        syntax: The name of the syntax, for errors.
        text: The template.
    """

    def __init__(self, syntax: str, text: str) -> None:
        self.syntax, self.source = syntax, text
        self.line = 1
        self.literals: list[str] = []
        # Names in order of appearance: those looked up in the values of the template, those that a section may have.
        self.slots: dict[str, None] = {}
        self.inner: dict[str, None] = {}
        self.marks: list[tuple[int, Opaque]] = []
        self.blocks: list[_Open] = []
        self._body: list[Node] = []

    def fault(self, what: str, line: int = 0) -> TemplateError:
        """The error for a mistake in the template."""
        return TemplateError(f"{self.syntax}, line {line or self.line}: {what}")

    @property
    def levels(self) -> int:
        """How many scopes are around what is read now, but for the values of the template."""
        return sum(block.choice.pushes for block in self.blocks)

    def text(self, text: str) -> None:
        """Add own text."""
        if text:
            self.literals.append(text)
            self.add(Text(text))

    def add(self, node: Node) -> None:
        """Add a node."""
        (self.blocks[-1].body if self.blocks else self._body).append(node)

    def open(self, tag: str, name: str, choice: Choice) -> None:
        """Begin a block."""
        if len(self.blocks) == MAX_DEPTH:
            raise self.fault(f"sections lie in one another more than {MAX_DEPTH} deep; take some of them out")
        self.blocks.append(_Open(tag, name, self.line, choice))

    def close(self, name: str) -> None:
        """End the block that was opened last."""
        if not self.blocks:
            raise self.fault(f"{{{{/{_brief(name)}}}}} closes nothing: no section is open here; take it out")
        block = self.blocks.pop()
        if block.name != name:
            raise self.fault(
                f"{{{{/{_brief(name)}}}}} was found where {{{{{_brief(block.tag)}}}}} of line {block.line} is still "
                f"open; write {{{{/{_brief(block.name)}}}}} first"
            )
        block.turn(block.choice)
        self.add(Block(tuple(block.arms)))

    def unclosed(self, close: str) -> TemplateError:
        """The error for a tag that does not end."""
        return self.fault(
            f"a tag is opened and never closed; write {close} behind it, or, if its braces are meant as text, "
            + AS_TEXT[self.syntax]
        )

    def done(self) -> tuple[Node, ...]:
        """The nodes of the whole template."""
        if self.blocks:
            block = self.blocks[-1]
            raise self.fault(
                f"{{{{{_brief(block.tag)}}}}} is never closed; write {{{{/{_brief(block.name)}}}}} where it ends",
                block.line,
            )
        return tuple(self._body)


def _brief(name: str) -> str:
    """A piece of the template for a message, not too long."""
    return short(name)[1:-1]


def line_of(text: str, before: int, start: int, end: int) -> tuple[int, int] | None:
    """The whole line of a tag that stands alone in it.

    Args:
        text: The template.
        before: Where the tag before ended, or 0.
        start: Where the tag starts.
        end: Where it ends.

    Returns:
        Where the line begins and where the next one does; ``None`` where the tag is not alone.
    """
    head = text[before:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if rest is None or not (head.endswith("\n") or (not head and before == 0)):
        return None
    return before + len(head), rest.end()


class ParsedTemplate(ABC):
    """A template that was parsed to nodes: what Mustache and Handlebars have in common.

    Args:
        text: The template.
        own: What all of it counts as, among the slots.
        lenient: Whether what is not there is empty text, at any depth; else it is an error.

    Attributes:
        text: The template as it was written.
        slots: The names it looks up at the top level, in order of first appearance.
        inner: Further names, which a section's value may have or else the top level.
        literals: Its own text, in pieces.
        marks: What it puts in a place that is no value, and in which line.

    Raises:
        TemplateError: It is no text, or the syntax is wrong; the message names the line.
    """

    __slots__ = ("_lenient", "_nodes", "_own", "inner", "literals", "marks", "slots", "text")
    syntax: ClassVar[str]
    outline: ClassVar[None] = None
    """As of :class:`~lazyprompt.templates.jinja.JinjaTemplate`: what it gives differs by the values."""

    def __init__(self, text: str, own: str = "instruction", *, lenient: bool = False) -> None:
        if not isinstance(cast("object", text), str):
            raise TemplateError(f"a template is text, not a {type(text).__name__}")
        well_formed(text, "the template", TemplateError)
        if len(text) > MAX_TEMPLATE:
            raise TemplateError(f"{self.syntax}: the template is longer than {MAX_TEMPLATE} characters")
        build = Builder(self.syntax, text)
        self._parse(build)
        self._nodes = build.done()
        self.text = text
        self._own, self._lenient = own, lenient
        self.literals: tuple[str, ...] = tuple(build.literals)
        self.marks: tuple[tuple[int, Opaque], ...] = tuple(build.marks)
        self.slots: tuple[str, ...] = tuple(build.slots)
        self.inner: tuple[str, ...] = tuple(name for name in build.inner if name not in build.slots)

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """A value as plain data, as Jinja is given it."""
        return JinjaTemplate.coerce(value, slot)

    @staticmethod
    @abstractmethod
    def _parse(build: Builder) -> None:
        """Read the template."""

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template.

        Args:
            values: Plain data for each slot, or an :class:`~lazyprompt.templates.values.Opaque`.

        Returns:
            The parts: the template's own text and values, in turn.

        Raises:
            SlotError: A name leads nowhere.
            TemplateError: The template asks for more than the bounds give, or a value is a function.
        """
        for name, value in values.items():
            if callable(value):
                raise TemplateError(
                    f"{self.syntax}: {short(name)} is a function (a lambda), which a template cannot call; call it and "
                    "give what it returns"
                )
        out = Output(self.syntax, lenient=self._lenient)
        scope = Scope({**values})
        try:
            for node in self._nodes:
                node.write(out, scope)
        except SecurityError as error:
            raise TemplateError(f"{self.syntax}: {error}") from error
        return out.parts()

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The slot of each part."""
        return (self._own,) * len(parts)

    def filled(self, values: Mapping[str, object]) -> prompt.Text:
        """Render the template, and tell the slot of each part; see :meth:`fill`."""
        parts = tuple(self.fill(values))
        return prompt.Text(parts, self.origins(parts))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its text, which is parsed as fast as nodes are read."""
        return partial(type(self), lenient=self._lenient), (self.text, self._own)
