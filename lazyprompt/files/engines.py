"""The syntaxes that the template of a prompt file may be written in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from jinja2 import ChainableUndefined

from lazyprompt.templates.handlebars import HandlebarsTemplate
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.mustache import MustacheTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Template: TypeAlias = JinjaTemplate | MustacheTemplate | HandlebarsTemplate


class Engine(NamedTuple):
    """A syntax of templates.

    Attributes:
        parse: What reads a template.
        absent: What stands for an input, by its name, that is declared and not given.
    """

    parse: Callable[..., Template]
    absent: Callable[[str], object]


def _undefined(name: str) -> object:
    """Empty, and undefined to Jinja's tests, so that ``is defined`` and ``default`` know it."""
    return ChainableUndefined(name=name)


def _empty(_: str) -> object:
    return ""


ENGINES: Final[Mapping[str, Engine]] = {
    "jinja2": Engine(partial(JinjaTemplate, is_portable=True), _undefined),
    "mustache": Engine(MustacheTemplate, _empty),
    "handlebars": Engine(HandlebarsTemplate, _empty),
}
"""The syntaxes by the names that ``template.format`` has for them."""
