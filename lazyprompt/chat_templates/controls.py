"""The control sequences of a chat template: what in it a model reads as structure."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from jinja2 import nodes
from markupsafe import Markup

from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.jinja import CALLING, TOOL, ChatJinja
from lazyprompt.chat_templates.pieces import JOINT, at_edge, begins_at_end, caseless, ends_at_start, may_cross, within
from lazyprompt.chat_templates.traced import Origin, parts_of, trace, trace_message
from lazyprompt.rendering.markers import tokens_in
from lazyprompt.safety.find import Controls, controls_for
from lazyprompt.safety.policy import COMMON_TAGS
from lazyprompt.safety.special_tokens import tokens_beside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


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
        *("safe", "startswith", "string", "sum", "tojson", "wordcount"),
    )
)
# They take characters away, or change their order, where they are given a text and not a list; one splits it.
_MOVING = frozenset(
    (
        *("batch", "first", "groupby", "last", "list", "map", "max", "min", "reject", "reverse", "select", "slice"),
        *("sort", "splitlines", "unique"),
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
# What templates write around values that are no text, or that they write as JSON or Python.
_WRITTEN = (*"0-.\"'[](){},:\\<>", "true", "false", "null", "none", "nan", "inf", "role", "content")
# Functions that bring text with them.
_SPEAKING = frozenset(("joiner", "strftime_now"))
_NAMED_TAG = re.compile(r"<([\w:]+)(?: name)?=(?=[\"']?\Z)")
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
    # Tags with a name that the template writes behind them, as <function= of Qwen3 Coder.
    named = (match for text in texts if (match := _NAMED_TAG.search(text)))
    found |= {match[0] for match in named if f"</{match[1]}>" in found}
    return _turn_tokens(template) | found


def turn_sequences_in(template: ChatJinja) -> frozenset[str]:
    """Return the control sequences that open or close a turn."""
    return _turn_tokens(template) - {"<think>", "</think>"}


@lru_cache(maxsize=128)
def _turn_tokens(template: ChatJinja) -> frozenset[str]:
    own = (*_around_words(template), *_openings(template))
    return frozenset((*tokens_in(*own), *filter(None, template.special_tokens.values())))


def _openings(template: ChatJinja) -> Iterator[str]:
    """Yield what opens a turn right behind the end of another one: both are one text, and each is structure."""
    user, answer = ({"role": role, "content": template.content(_WORD)} for role in ("user", "assistant"))
    closings = [text for chat in ([user], [user, answer]) for text in own_texts(template, [chat])[-1:] if text.strip()]
    for text in _around_words(template):
        yield from (text.removeprefix(closing) for closing in closings if text.startswith(closing))


def _literals(tree: nodes.Template) -> list[str]:
    """Return all texts in a template."""
    texts = [str(node.data) for node in tree.find_all(nodes.TemplateData)]
    return texts + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]


def _around_words(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around the contents of a short chat."""
    roles = ("system", "user", "assistant", "user")
    chat = [{"role": role, "content": template.content(f"{_WORD}{at}")} for at, role in enumerate(roles)]
    return own_texts(template, [chat, chat[1:], chat[1:2]], add_generation_prompt=True)


def _around_calls(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around calls, results and tools."""
    chat = [template.takes.form(message) for message in CALLING]
    return own_texts(template, [chat, chat[:2]], tools=[TOOL])


def own_texts(template: ChatJinja, chats: Sequence[Sequence[dict[str, Any]]], **given: object) -> Sequence[str]:
    """Return the template's own texts around the messages of a chat.

    Args:
        template: The template.
        chats: The chats; the first that the template renders is used.
        given: The variables of the template.

    Returns:
        The texts before, between and behind the messages; none if the template refuses all chats.
    """
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
        own: All of its own texts that may stand beside a text; None if nobody knows them, or pieces of texts may.
    """

    always: bool
    moves: bool
    between: bool
    any_case: bool
    own: frozenset[str] | None


@lru_cache(maxsize=256)
def _risk(template: ChatJinja, controls: Controls) -> _Risk:
    """Find out how a template could make a control sequence out of clean texts."""
    tree = parsed(template.text)
    used = {*_uses(tree)}
    cuts = [node for node in tree.find_all(nodes.Getitem) if isinstance(node.arg, nodes.Slice)]
    cuts = [node for node in cuts if not _is_list(node.node)]
    around = [*_around_words(template), *_around_calls(template), *_literals(tree)]
    begun = [text for text in around if begins_at_end(controls, text)]
    ended = [text for text in around if ends_at_start(controls, text)]
    # A piece that is cut out of a text does no harm by itself; two may be joined, or the template's own may be near.
    joins = len(cuts) > 1 or bool(cuts and (begun or ended))
    moves = _moves(tree, controls) or any(use.cuts(controls) for use in used)
    always = joins or any(use.makes(controls) for use in used) or any(_RESERVED_BEGUN.search(text) for text in begun)
    speaks = any(name.name in _SPEAKING for name in tree.find_all(nodes.Name))
    own = frozenset((*around, *_literals(tree), *template.special_tokens.values(), *_SCHEMA_WORDS, *_WRITTEN))
    return _Risk(
        always or _fills_in(tree) or bool(moves and begun),
        moves,
        bool(begun and ended),
        any(use.name in _CASES for use in used),
        None if cuts or moves or speaks else own,
    )


def _uses(tree: nodes.Template) -> Iterator[_Use]:
    """Yield the filters and methods of a template, also those that it names by a text; roles are no texts."""
    roles = {id(node) for node in _roles_asked(tree)}
    for node in tree.find_all(nodes.Filter):
        named = node.name == "map" and bool(node.args)
        if named and isinstance(node.args[0], nodes.Const):
            yield _Use.of(str(node.args[0].value), node.args[1:])
        elif (named or node.name != "map") and id(node.node) not in roles:
            # A filter of which nobody knows the name may be any.
            yield _Use.of("" if named else node.name, node.args)
    calls = {id(node.node): node.args for node in tree.find_all(nodes.Call)}
    for got, asked, name in _names_got(tree):
        if name in _OF_TEXT and id(asked) not in roles and (id(got) in calls or name not in _SCHEMA_WORDS):
            yield _Use.of(name, calls.get(id(got), ()))


def _roles_asked(tree: nodes.Template) -> Iterator[nodes.Expr]:
    """Yield the roles of messages that a template asks for: each is one of a few known words."""
    loops = [loop for loop in tree.find_all(nodes.For) if (_name_of(loop.iter) or "").endswith("messages")]
    stored = [name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"]
    messages = {name for loop in loops if (name := _name_of(loop.target)) and stored.count(name) == len(loops)}
    yield from (node for node, asked, name in _names_got(tree) if name == "role" and _name_of(asked) in messages)


def _fills_in(tree: nodes.Template) -> bool:
    """Return True if ``%`` may fill in a text."""
    operands = [node.right for node in tree.find_all(nodes.Mod)]
    return not all(isinstance(one, nodes.Const) and isinstance(one.value, int) for one in operands)


def _is_list(node: nodes.Node | None) -> bool:
    """Return True if something is a list: messages or the like, by the names that all templates give them, or pieces.

    Args:
        node: The expression.
    """
    if isinstance(node, nodes.Filter):
        return node.name in ("dictsort", "items") or _is_list(node.node)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_list(node.node)
    if isinstance(node, nodes.Call):
        # ``range`` and ``x.split()``.
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else getattr(node.node, "name", "")
        return name in ("items", "keys", "range", "rsplit", "split", "values")
    name = node.name if isinstance(node, nodes.Name) else getattr(node, "attr", "")
    name = _text_of(node.arg) or "" if isinstance(node, nodes.Getitem) else name
    return name.endswith(("messages", "calls", "tools", "items", "list", "documents"))


def _moves(tree: nodes.Template, controls: Controls) -> bool:
    """Return True if a template may take single characters out of a text, or change their order."""
    names = [*_names_asked(tree)]
    of_dicts = _of_dicts(tree)
    # A character has neither items nor attributes: what is only asked for those, or what it is, is shown nowhere.
    asked = {id(node) for node, name in names if name not in _OF_TEXT}
    asked.update(id(test.node) for test in tree.find_all(nodes.Test))
    asked.update(id(item.arg) for item in tree.find_all(nodes.Getitem))
    loops = [each for each in tree.find_all(nodes.For) if id(each) not in of_dicts]
    items = [each for each in tree.find_all(nodes.Getitem) if id(each) not in of_dicts | asked]
    return (
        any(name == "fromkeys" for _, name in names)
        or any(cast("Any", each).dyn_args for each in tree.find_all((nodes.Call, nodes.Filter, nodes.Test)))
        or any(map(_unpacks, tree.find_all((nodes.Assign, nodes.AssignBlock))))
        or any(_spreads(each, controls) for each in tree.find_all((nodes.Call, nodes.Filter)))
        or any(map(_is_by_place, items))
        or any(_shows_items(each, asked) for each in loops)
    )


def _names_asked(tree: nodes.Node) -> Iterator[tuple[nodes.Expr, str]]:
    """Yield what a template asks for an item or attribute, and the name of that."""
    return ((asked, name) for _, asked, name in _names_got(tree))


def _names_got(tree: nodes.Node) -> Iterator[tuple[nodes.Expr, nodes.Expr, str]]:
    """Yield the items and attributes that a template gets by name, what it asks for them, and the names."""
    yield from ((got, got.node, got.attr) for got in tree.find_all(nodes.Getattr))
    for got in tree.find_all(nodes.Getitem):
        if name := _text_of(got.arg):
            yield got, got.node, name


def _unpacks(node: nodes.Node) -> bool:
    """Return True if this gives characters of a text names, or a text the name of a list."""
    given: nodes.Node | None = node.node if isinstance(node, nodes.Assign) else None
    target = cast("nodes.Assign | nodes.AssignBlock", node).target
    if isinstance(target, nodes.Tuple):
        return not isinstance(given, nodes.Tuple)
    return _is_list(target) and (given is None or not _is_no_text(given))


def _spreads(node: nodes.Node, controls: Controls) -> bool:
    """Return True if a filter or function goes through the characters of a text where it is given one."""
    if isinstance(node, nodes.Filter):
        between = [*node.args, *(each.value for each in node.kwargs if each.key == "d")]
        spreads = node.name in _MOVING or (node.name == "join" and any(_may_fill(each, controls) for each in between))
        return spreads and not _is_list(node.node)
    function = cast("nodes.Call", node).node
    if isinstance(function, nodes.Getattr):
        return function.attr == "join" and _may_fill(function.node, controls)
    return _name_of(function) in ("dict", "namespace") and bool(cast("nodes.Call", node).args)


def _is_by_place(node: nodes.Getitem) -> bool:
    by_place = not isinstance(node.arg, nodes.Slice) and _text_of(node.arg) is None
    return (by_place or getattr(node.arg, "step", None) is not None) and not _is_list(node.node)


def _shows_items(node: nodes.For, asked: Collection[int]) -> bool:
    """Return True if a loop shows the characters of a text where it is given one."""
    if isinstance(node.target, nodes.Tuple):
        return not _gives_pairs(node.iter)
    if _is_list(node.iter) and not node.recursive:
        return False
    body = nodes.Scope(node.body)
    shown = {each.name for each in body.find_all(nodes.Name) if id(each) not in asked}
    return _name_of(node.target) in shown or any(name in ("nextitem", "previtem") for _, name in _names_asked(body))


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


def _is_no_text(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Add):
        return _is_no_text(node.left) or _is_no_text(node.right)
    if isinstance(node, nodes.Call):
        return _name_of(node.node) == "namespace"
    return _is_list(node) or (isinstance(node, nodes.Literal) and _text_of(node) is None)


def _gives_pairs(node: nodes.Node) -> bool:
    call = node.node if isinstance(node, nodes.Call) else node
    return getattr(call, "attr" if isinstance(call, nodes.Getattr) else "name", "") in ("dictsort", "items")


def _may_fill(separator: nodes.Node, controls: Controls) -> bool:
    """Return True if texts between whose characters this is put could become a control sequence."""
    text = _text_of(separator)
    return text is None or may_cross(controls, text)


def _asks_for_mapping(test: nodes.Node) -> TypeGuard[nodes.Test]:
    return isinstance(test, nodes.Test) and test.name == "mapping"


def _name_of(node: nodes.Node) -> str | None:
    return node.name if isinstance(node, nodes.Name) else None


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
        if self.first and not controls.is_clean(self.first):
            return False
        # What is put between pieces keeps them apart, if no sequence could lie partly in it.
        between = self.second if self.name == "replace" else ""
        return not self.first or between is None or not controls.is_clean(between) or may_cross(controls, between)

    def cuts(self, controls: Controls) -> bool:
        """Return True if it splits a text; it never does at a control sequence, for there is none."""
        splits = self.name in _CUTTING and bool(self.first) and not self.second and controls.is_clean(self.first or "")
        return splits or self.name == "splitlines"


def _text_of(argument: nodes.Node) -> str | None:
    """A text that stands in the template."""
    return argument.value if isinstance(argument, nodes.Const) and isinstance(argument.value, str) else None


@lru_cache(maxsize=64)
def _any_case(controls: Controls) -> Controls:
    """Return the control sequences of caseless texts."""
    return Controls(map(caseless, controls.texts))


def is_clean(template: ChatJinja, controls: Controls, texts: Sequence[str], own: Sequence[str] | None) -> bool:
    """Return True if texts hold no control sequence, nor anything the template could make one of.

    Args:
        template: The template.
        controls: Its control sequences.
        texts: The texts of messages, calls, tools and all.
        own: The developer's own texts that the template is given besides; None where nobody knows them.
    """
    # Each once, joined by what is part of no sequence.
    texts = [*dict.fromkeys(texts)]
    joined = JOINT.join(texts)
    if not controls.is_clean(joined):
        return False
    risk = _risk(template, controls)
    if risk.always or (risk.moves and controls.begins_in(joined)):
        return False
    if risk.any_case:
        folded, any_case = caseless(joined), _any_case(controls)
        if not any_case.is_clean(folded) or (risk.moves and any_case.begins_in(folded)):
            return False
    beside = None if own is None or risk.own is None else chain(risk.own, own)
    return not at_edge(controls, texts, beside) and not (risk.between and within(controls, texts, _SCHEMA_WORDS))
