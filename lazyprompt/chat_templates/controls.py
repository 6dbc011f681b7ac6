"""The control sequences of a chat template: what in it a model reads as structure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from jinja2 import nodes
from markupsafe import Markup

from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.jinja import CALLING, TOOL
from lazyprompt.chat_templates.traced import Origin, parts_of, trace, trace_message
from lazyprompt.rendering.markers import tokens_in
from lazyprompt.safety.policy import COMMON_TAGS, JOINT, Controls, controls_for
from lazyprompt.safety.special_tokens import tokens_beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja

# <…>, [NAME] or [/NAME]: tokens, and tags that models know as if they were tokens.
_TOKEN = re.compile(r"(?<!<)<++[^<>\s{}]++>++|\[/?(?=\w*[A-Z]{2})\w+\]|✿[^✿\s]+✿")
_PLAIN_TAG = re.compile(r"<[\w.=-]+>")
# Filters and methods that leave a text as it is, choose among values, or ask for something. All others change text:
# those that cut at a text that is a control sequence find none in a clean one, others may bring pieces together.
_LEAVING = frozenset(
    (
        *("abs", "attr", "count", "d", "default", "dictsort", "endswith", "find", "float", "int", "isalnum", "isalpha"),
        *("index", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace"),
        *("istitle", "isupper", "items", "join", "length", "rejectattr", "rfind", "rindex", "round", "selectattr"),
        *("safe", "splitlines", "startswith", "string", "sum", "tojson", "wordcount"),
    )
)
# They take characters away, or change their order, where they are given a text and not a list.
_MOVING = frozenset(
    (
        *("batch", "first", "groupby", "last", "list", "max", "min", "reject", "reverse", "select", "slice", "sort"),
        "unique",
    )
)
_OF_TEXT = frozenset(dir(Markup)) | frozenset(dir(bytes))
_CUTTING = frozenset(("partition", "replace", "rpartition", "rsplit", "split"))
_STRIPPING = frozenset(("lstrip", "removeprefix", "removesuffix", "rstrip", "strip", "trim"))
_CASES = frozenset(("capitalize", "lower", "title", "upper"))
_RESERVED_BEGUN = re.compile(r"<\|[^<>|\s]*\Z")
# The words of OpenAI's form, some of which templates write tags of.
_SCHEMA_WORDS = frozenset(
    ("description", "enum", "function", "id", "name", "parameters", "required", "tools", "type", *ROLES)
)
_NO_HEADERS: frozenset[str] = frozenset()
_WORD = "lazyprompt"


def sequences_in(template: ChatJinja) -> frozenset[str]:
    """Return the control sequences that a template writes.

    They are the tokens in its texts, and the text that it puts around the words of a short chat, be it a token or not.
    """
    texts = _literals(parsed(template.text))
    found = {token for text in texts for token in _TOKEN.findall(text)}
    # In a description of tools, a word as <function-name> is for the reader: of plain tags only those count that are
    # closed somewhere, or stand alone.
    alone = {text.strip() for text in texts}
    found = {token for token in found if not _PLAIN_TAG.fullmatch(token) or token in alone or f"</{token[1:]}" in found}
    return _turn_tokens(template) | found


def turn_sequences_in(template: ChatJinja) -> frozenset[str]:
    """Return the control sequences that open or close a turn."""
    return _turn_tokens(template) - {"<think>", "</think>"}


def _turn_tokens(template: ChatJinja) -> frozenset[str]:
    return frozenset((*tokens_in(*_around_words(template)), *filter(None, template.special_tokens.values())))


def _literals(tree: nodes.Template) -> list[str]:
    """Return all texts in a template."""
    texts = [str(node.data) for node in tree.find_all(nodes.TemplateData)]
    return texts + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]


def _around_words(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around the contents of a short chat."""
    roles = ("system", "user", "assistant", "user")
    chat = [{"role": role, "content": template.content(f"{_WORD}{at}")} for at, role in enumerate(roles)]
    return _around(template, [chat, chat[1:], chat[1:2]], add_generation_prompt=True)


def _around_calls(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around calls, results and tools."""
    chat = [template.takes.form(message) for message in CALLING]
    return _around(template, [chat, chat[:2]], tools=[TOOL])


def _around(template: ChatJinja, chats: Sequence[Sequence[dict[str, Any]]], **given: object) -> Sequence[str]:
    """Return the template's own text in the first chat that it takes."""
    for chat in chats:
        traced = [trace_message(message, Origin("", at)) for at, message in enumerate(chat)]
        text = template.writes(traced, traced=True, **trace(given, Origin("tools")))
        if text is not None:
            return parts_of(text)[0][::2]
    return ()


@lru_cache(maxsize=128)
def controls_of(template: ChatJinja, tokens: frozenset[str]) -> Controls:
    """The compiled control sequences of a template.

    Args:
        template: The template.
        tokens: What its tokenizer has besides: special tokens and the like. Where none are known, they are those of
            the family that the template is seen to be for.

    Returns:
        The set.
    """
    sequences = sequences_in(template)
    return controls_for(sequences | (tokens or tokens_beside(sequences)) | COMMON_TAGS, _NO_HEADERS)


class _Risk(NamedTuple):
    """Ways in which a template could make a control sequence of texts that hold none.

    Attributes:
        always: True if it can in ways that nobody can foresee: what it writes is to be looked at.
        moves: True if it may take characters out of a text, or change their order.
        between: True if its own text stands so close before and behind a text that one could lie in all three.
        any_case: True if it changes the case of letters.
    """

    always: bool
    moves: bool
    between: bool
    any_case: bool


@lru_cache(maxsize=256)
def _risk(template: ChatJinja, controls: Controls, *, calls: bool) -> _Risk:
    """Find out how a template could make a control sequence out of clean texts.

    Args:
        template: The template.
        controls: Its control sequences.
        calls: Whether there may be calls, results and tools.
    """
    tree = parsed(template.text)
    used = {*_uses(tree)}
    cuts = [node for node in tree.find_all(nodes.Getitem) if isinstance(node.arg, nodes.Slice)]
    cuts = [node for node in cuts if not is_list(node.node)]
    around = [*_around_words(template), *((*_around_calls(template), *_literals(tree)) if calls else ())]
    begun = [text for text in around if controls.begins_at_end(text)]
    ended = [text for text in around if controls.ends_at_start(text)]
    # A piece that is cut out of a text does no harm by itself; two may be joined, or the template's own may be near.
    joins = len(cuts) > 1 or bool(cuts and (begun or ended))
    of_dicts = _of_dicts(tree)
    moving = [node for node in tree.find_all((nodes.For, nodes.Filter, nodes.Getitem)) if id(node) not in of_dicts]
    moves = any(map(_is_moving, moving))
    moves = moves or any(use.cuts(controls) for use in used)
    always = joins or any(use.makes(controls) for use in used) or any(_RESERVED_BEGUN.search(text) for text in begun)
    return _Risk(
        always or fills_in(tree) or bool(moves and begun),
        moves,
        bool(begun and ended),
        any(use.name in _CASES for use in used),
    )


def _uses(tree: nodes.Template) -> Iterator[_Use]:
    """Yield the filters and methods of a template, also those that it names by a text."""
    for node in tree.find_all(nodes.Filter):
        named = node.name == "map" and bool(node.args)
        if named and isinstance(node.args[0], nodes.Const):
            yield _Use.of(str(node.args[0].value), node.args[1:])
        elif named or node.name != "map":
            # A filter of which nobody knows the name may be any.
            yield _Use.of("" if named else node.name, node.args)
    calls = {id(node.node): node.args for node in tree.find_all(nodes.Call)}
    attributes = [(got, got.attr) for got in tree.find_all(nodes.Getattr)]
    for got, name in (*attributes, *((got, _text_of(got.arg)) for got in tree.find_all(nodes.Getitem))):
        if name in _OF_TEXT and (id(got) in calls or name not in _SCHEMA_WORDS):
            yield _Use.of(name, calls.get(id(got), ()))


def fills_in(tree: nodes.Template) -> bool:
    """Return True if ``%`` may fill in a text."""
    operands = [node.right for node in tree.find_all(nodes.Mod)]
    return not all(isinstance(one, nodes.Const) and isinstance(one.value, int) for one in operands)


def is_list(node: nodes.Node | None) -> bool:
    """Return True if something is a list: messages or the like, by the names that all templates give them, or pieces.

    Args:
        node: The expression.
    """
    if isinstance(node, nodes.Filter):
        return node.name in ("dictsort", "items") or is_list(node.node)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return is_list(node.node)
    if isinstance(node, nodes.Call):
        # ``range`` and ``x.split()``.
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else getattr(node.node, "name", "")
        return name in ("items", "keys", "range", "rsplit", "split", "values")
    name = node.name if isinstance(node, nodes.Name) else node.attr if isinstance(node, nodes.Getattr) else ""
    name = _text_of(node.arg) or "" if isinstance(node, nodes.Getitem) else name
    return name.endswith(("messages", "calls", "tools", "items", "list", "documents"))


def _of_dicts(tree: nodes.Template) -> set[int]:
    """Return the loops and items (by ``id``) of what ``{% if x is mapping %}`` has shown to be a dict."""
    found: set[int] = set()
    for branch in tree.find_all(nodes.If):
        name = _name_of(branch.test.node) if _asks_for_mapping(branch.test) else None
        body = nodes.Scope(branch.body)
        # A name may be given another value; a macro has the values of the time when it is called.
        stored = {each.name for each in body.find_all(nodes.Name) if each.ctx != "load"}
        if name is None or name in stored or any(body.find_all((nodes.CallBlock, nodes.Macro))):
            continue
        loops = [loop for loop in body.find_all(nodes.For) if not loop.recursive and _name_of(loop.iter) == name]
        found.update(map(id, (*loops, *(item for item in body.find_all(nodes.Getitem) if _name_of(item.node) == name))))
    return found


def _asks_for_mapping(test: nodes.Node) -> TypeGuard[nodes.Test]:
    return isinstance(test, nodes.Test) and test.name == "mapping"


def _name_of(node: nodes.Node) -> str | None:
    return node.name if isinstance(node, nodes.Name) else None


def _is_moving(node: nodes.Node) -> bool:
    """Return True if this takes single characters of a text where it is given one."""
    if isinstance(node, nodes.Filter):
        return node.name in _MOVING and not is_list(node.node)
    if isinstance(node, nodes.Getitem):
        step = node.arg.step if isinstance(node.arg, nodes.Slice) else None
        by_place = not isinstance(node.arg, nodes.Slice) and _text_of(node.arg) is None
        return (step is not None or by_place) and not is_list(node.node)
    if not isinstance(node, nodes.For) or is_list(node.iter) or not isinstance(node.target, nodes.Name):
        return False
    # A character has neither items nor attributes: what is only asked for those, or what it is, is shown nowhere.
    asked = (nodes.Getattr, nodes.Getitem, nodes.Test)
    parents = [parent for part in node.body for parent in (part, *part.find_all(nodes.Node))]
    return any(
        isinstance(child, nodes.Name) and child.name == node.target.name
        for parent in parents
        if not isinstance(parent, asked)
        for child in parent.iter_child_nodes()
    )


class _Use(NamedTuple):
    """A filter or method that a template uses on texts.

    Attributes:
        name: Its name.
        first: Its first argument, where that is a text that stands in the template.
        second: Its second argument.
    """

    name: str
    first: str | None = None
    second: str | None = None

    @classmethod
    def of(cls, name: str, arguments: Sequence[nodes.Expr]) -> _Use:
        """The use with some arguments."""
        return cls(name, *map(_text_of, arguments[:2]))

    def makes(self, controls: Controls) -> bool:
        """Return True if it could make a control sequence of a text whose pieces and their ends hold none."""
        if self.name in _STRIPPING:
            return bool(self.first and self.first.strip())
        if self.name not in _CUTTING:
            return self.name not in _LEAVING | _MOVING | _CASES
        if self.first and not controls.clean(self.first):
            return False
        # What is put between pieces keeps them apart, if no sequence could lie partly in it.
        between = self.second if self.name == "replace" else ""
        return not self.first or between is None or not controls.clean(between) or controls.may_cross(between)

    def cuts(self, controls: Controls) -> bool:
        """Return True if it splits a text; it never does at a control sequence, for there is none."""
        return self.name in _CUTTING and bool(self.first) and not self.second and controls.clean(self.first or "")


def _text_of(argument: nodes.Expr) -> str | None:
    """A text that stands in the template."""
    return argument.value if isinstance(argument, nodes.Const) and isinstance(argument.value, str) else None


@lru_cache(maxsize=64)
def _any_case(template: ChatJinja) -> Controls:
    return Controls(sequences_in(template) | COMMON_TAGS, any_case=True)


def is_clean(template: ChatJinja, controls: Controls, texts: Sequence[str]) -> bool:
    """Return True if texts hold no control sequence, nor anything the template could make one of.

    Args:
        template: The template.
        controls: Its control sequences.
        texts: The texts of messages, calls, tools and all.
    """
    # Joined by what is part of no sequence.
    joined = JOINT.join(texts)
    if not controls.clean(joined):
        return False
    risk = _risk(template, controls, calls=True)
    if risk.always or (risk.moves and controls.begins_in(joined)):
        return False
    if risk.any_case and not _any_case(template).clean(joined):
        return False
    return not controls.at_edge(texts) and not (risk.between and controls.within(texts, _SCHEMA_WORDS))


@lru_cache(maxsize=128)
def turns_may_be_touched(template: ChatJinja, controls: Controls) -> bool:
    """Return True if a control sequence could lie partly in the text that a template puts around a plain chat.

    Args:
        template: The template.
        controls: Its control sequences.
    """
    return _risk(template, controls, calls=False).between or any(map(controls.may_cross, _around_words(template)))
