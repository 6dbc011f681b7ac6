"""Detection of the control sequences that a chat template writes, such as the tokens around a turn."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from jinja2 import nodes
from markupsafe import Markup

from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.dialect import parse_template
from lazyprompt.chat_templates.jinja import CALLING, TOOL, ChatJinja
from lazyprompt.chat_templates.pieces import JOINT, at_edge, begins_at_end, caseless, ends_at_start, may_cross, within
from lazyprompt.chat_templates.traced import TextOrigin, parts_of, trace, trace_message
from lazyprompt.rendering.markers import tokens_in
from lazyprompt.safety.find import Controls, controls_for
from lazyprompt.safety.policy import COMMON_TAGS
from lazyprompt.safety.special_tokens import tokens_beside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


# Matches a special token, or a tag that models read as a special token: <…>, [NAME], [/NAME] or ✿…✿.
_TOKEN = re.compile(r"(?<!<)<++[^<>\s{}]++>++|\[/?(?=\w*[A-Z]{2})\w+\]|✿[^✿\s]+✿")
_PLAIN_TAG = re.compile(r"<[\w.=-]+>")
_LEAVING = frozenset(
    (
        *("abs", "attr", "count", "d", "default", "dictsort", "endswith", "find", "float", "int", "isalnum", "isalpha"),
        *("index", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace"),
        *("istitle", "isupper", "items", "join", "length", "rejectattr", "rfind", "rindex", "round", "selectattr"),
        *("safe", "startswith", "string", "sum", "tojson", "wordcount"),
    )
)
# The filters and methods that drop or reorder characters if their input is a string instead of a list.
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
# The words from OpenAI's message format that templates may write as tags.
_SCHEMA_WORDS = frozenset(
    ("description", "enum", "function", "id", "name", "parameters", "required", "tools", "type", *ROLES)
)
# The literals that a template may write when it renders a value as JSON or with Python's ``repr``.
_WRITTEN = (*"0-.\"'[](){},:\\<>", "true", "false", "null", "none", "nan", "inf", "role", "content")
_SPEAKING = frozenset(("joiner", "strftime_now"))
_NAMED_TAG = re.compile(r"<([\w:]+)(?: name)?=(?=[\"']?\Z)")
_NO_HEADERS: frozenset[str] = frozenset()
_WORD = "lazyprompt"


def sequences_in(template: ChatJinja) -> frozenset[str]:
    """Return the control sequences that a template writes.

    The result contains the tokens in the template's own text, and the text that the template writes around messages.
    """
    texts = _literals(parse_template(template.text))
    found = {token for text in texts for token in _TOKEN.findall(text)}
    # A tool description can contain placeholders like <function-name>, which are not control sequences.
    # Ignore a tag like <name> unless the template also contains its closing tag or a literal with only this tag.
    alone = {text.strip() for text in texts}
    found = {token for token in found if not _PLAIN_TAG.fullmatch(token) or token in alone or f"</{token[1:]}" in found}
    # Also include opening tags that the template completes with a name, like Qwen3 Coder's <function=.
    named = (match for text in texts if (match := _NAMED_TAG.search(text)))
    found |= {match[0] for match in named if f"</{match[1]}>" in found}
    return _turn_tokens(template) | found


def turn_sequences_in(template: ChatJinja) -> frozenset[str]:
    """Return the control sequences that open or close a turn in a template's output."""
    return _turn_tokens(template) - {"<think>", "</think>"}


@lru_cache(maxsize=128)
def _turn_tokens(template: ChatJinja) -> frozenset[str]:
    own = (*_around_words(template), *_openings(template))
    return frozenset((*tokens_in(*own), *filter(None, template.special_tokens.values())))


def _openings(template: ChatJinja) -> Iterator[str]:
    """Yield the texts that open a turn, without the text that closes the preceding turn."""
    user, answer = ({"role": role, "content": template.content(_WORD)} for role in ("user", "assistant"))
    closings = [text for chat in ([user], [user, answer]) for text in own_texts(template, [chat])[-1:] if text.strip()]
    for text in _around_words(template):
        yield from (text.removeprefix(closing) for closing in closings if text.startswith(closing))


def _literals(tree: nodes.Template) -> list[str]:
    """Return the string constants and the literal text in a template."""
    texts = [str(node.data) for node in tree.find_all(nodes.TemplateData)]
    return texts + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]


def _around_words(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around the message contents of a short sample chat."""
    roles = ("system", "user", "assistant", "user")
    chat = [{"role": role, "content": template.content(f"{_WORD}{at}")} for at, role in enumerate(roles)]
    return own_texts(template, [chat, chat[1:], chat[1:2]], add_generation_prompt=True)


def _around_calls(template: ChatJinja) -> Sequence[str]:
    """Return the template's own text around tool calls, tool results and tools."""
    chat = [template.call_form.convert(message) for message in CALLING]
    return own_texts(template, [chat, chat[:2]], tools=[TOOL])


def own_texts(template: ChatJinja, chats: Sequence[Sequence[dict[str, Any]]], **given: object) -> Sequence[str]:
    """Return the texts that a template writes around the messages of a chat.

    Args:
        template: The template.
        chats: The chats to try; the first one that the template renders is used.
        given: The template variables.

    Returns:
        The texts before, between and after the message contents; empty if the template rejects all chats.
    """
    for chat in chats:
        traced = [trace_message(message, TextOrigin("", at)) for at, message in enumerate(chat)]
        text = template.try_render(traced, traced=True, **trace(given, TextOrigin("tools")))
        if text is not None:
            return parts_of(text)[0][::2]
    return ()


@lru_cache(maxsize=128)
def controls_of(template: ChatJinja, tokens: frozenset[str]) -> Controls:
    """Return the compiled control sequences of a template.

    Args:
        template: The template.
        tokens: The control tokens of the model's tokenizer. If no tokens are given, they are inferred from
            the template's control sequences, because these reveal the model family.
    """
    sequences = sequences_in(template)
    return controls_for(sequences | (tokens or tokens_beside(sequences)) | COMMON_TAGS, _NO_HEADERS)


class _Risk(NamedTuple):
    """The ways in which a template could build a control sequence from texts that contain none.

    Attributes:
        always: True if the template could build a control sequence from almost any text, so the rendered text must
            always be checked for control sequences.
        moves: True if the template may drop or reorder characters of a value from the chat.
        between: True if a value between two literal texts of the template could complete a control sequence.
        any_case: True if the template changes the case of letters.
        own: The texts that the template may write directly before or after a value. ``own`` is None if the template
            texts next to a value are unknown, or if the template may join parts of values.
    """

    always: bool
    moves: bool
    between: bool
    any_case: bool
    own: frozenset[str] | None


@lru_cache(maxsize=256)
def _risk(template: ChatJinja, controls: Controls) -> _Risk:
    tree = parse_template(template.text)
    used = {*_uses(tree)}
    cuts = [node for node in tree.find_all(nodes.Getitem) if isinstance(node.arg, nodes.Slice)]
    cuts = [node for node in cuts if not _is_list(node.node)]
    around = [*_around_words(template), *_around_calls(template), *_literals(tree)]
    begun = [text for text in around if begins_at_end(controls, text)]
    ended = [text for text in around if ends_at_start(controls, text)]
    # Joining two slices of clean text, or a slice and the template's own text, can form a control sequence.
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
    """Yield the filters and methods that a template applies to text, including filters that ``map`` applies by name."""
    roles = {id(node) for node in _roles_asked(tree)}
    for node in tree.find_all(nodes.Filter):
        named = node.name == "map" and bool(node.args)
        if named and isinstance(node.args[0], nodes.Const):
            yield _Use.of(str(node.args[0].value), node.args[1:])
        elif (named or node.name != "map") and id(node.node) not in roles:
            # A computed name may refer to any filter.
            yield _Use.of("" if named else node.name, node.args)
    calls = {id(node.node): node.args for node in tree.find_all(nodes.Call)}
    for got, asked, name in _names_got(tree):
        if name in _OF_TEXT and id(asked) not in roles:
            yield _Use.of(name, calls.get(id(got), ()))


def _roles_asked(tree: nodes.Template) -> Iterator[nodes.Expr]:
    """Yield the expressions that read a message's role, which is always one of a few known words."""
    loops = [loop for loop in tree.find_all(nodes.For) if (_name_of(loop.iter) or "").endswith("messages")]
    stored = [name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"]
    messages = {name for loop in loops if (name := _name_of(loop.target)) and stored.count(name) == len(loops)}
    yield from (node for node, asked, name in _names_got(tree) if name == "role" and _name_of(asked) in messages)


def _fills_in(tree: nodes.Template) -> bool:
    """Return True if a ``%`` could be string formatting, because its right operand is not an integer constant."""
    operands = [node.right for node in tree.find_all(nodes.Mod)]
    return not all(isinstance(one, nodes.Const) and isinstance(one.value, int) for one in operands)


def _is_list(node: nodes.Node | None) -> bool:
    """Return True if an expression's operation or name suggests that its value is a list."""
    if isinstance(node, nodes.Filter):
        return node.name in ("dictsort", "items") or _is_list(node.node)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_list(node.node)
    if isinstance(node, nodes.Call):
        name = node.node.attr if isinstance(node.node, nodes.Getattr) else getattr(node.node, "name", "")
        return name in ("items", "keys", "range", "rsplit", "split", "values")
    name = node.name if isinstance(node, nodes.Name) else getattr(node, "attr", "")
    name = _text_of(node.arg) or "" if isinstance(node, nodes.Getitem) else name
    return name.endswith(("messages", "calls", "tools", "items", "list", "documents"))


def _moves(tree: nodes.Template, controls: Controls) -> bool:
    """Return True if a template may drop or reorder the characters of a text."""
    names = [*_names_asked(tree)]
    of_dicts = _of_dicts(tree)
    # The expressions whose characters are not read one by one: those whose attributes or named items are read, the
    # operands of tests, and the keys of item accesses.
    asked = {id(node) for node, name in names if name not in _OF_TEXT}
    asked.update(id(test.node) for test in tree.find_all(nodes.Test))
    asked.update(id(item.arg) for item in tree.find_all(nodes.Getitem))
    loops = [each for each in tree.find_all(nodes.For) if id(each) not in of_dicts]
    items = [each for each in tree.find_all(nodes.Getitem) if id(each) not in of_dicts | asked]
    return (
        any(name == "fromkeys" for _, name in names)
        or any(map(_unpacks_arguments, tree.find_all((nodes.Call, nodes.Filter, nodes.Test))))
        or any(_unpacks(each.target, each.node) for each in tree.find_all(nodes.Assign))
        or any(_unpacks(each.target, None) for each in tree.find_all(nodes.AssignBlock))
        or any(_spreads(each, controls) for each in tree.find_all(nodes.Filter))
        or any(_call_spreads(each, controls) for each in tree.find_all(nodes.Call))
        or any(map(_is_by_place, items))
        or any(_shows_items(each, asked) for each in loops)
    )


def _names_asked(tree: nodes.Node) -> Iterator[tuple[nodes.Expr, str]]:
    """Yield each named item or attribute that a template reads: the expression that contains it, and its name."""
    return ((asked, name) for _, asked, name in _names_got(tree))


def _names_got(tree: nodes.Node) -> Iterator[tuple[nodes.Expr, nodes.Expr, str]]:
    """Yield each access to a named item or attribute, with the accessed expression and the name."""
    yield from ((got, got.node, got.attr) for got in tree.find_all(nodes.Getattr))
    for got in tree.find_all(nodes.Getitem):
        if name := _text_of(got.arg):
            yield got, got.node, name


def _unpacks_arguments(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call | nodes.Filter | nodes.Test) and node.dyn_args is not None


def _unpacks(target: nodes.Node, given: nodes.Node | None) -> bool:
    """Return True if an assignment may unpack a string, or assign a string to a name such as ``tools`` or ``items``."""
    if isinstance(target, nodes.Tuple):
        return not isinstance(given, nodes.Tuple)
    return _is_list(target) and (given is None or not _is_no_text(given))


def _spreads(node: nodes.Filter, controls: Controls) -> bool:
    """Return True if a filter would iterate over the characters of a text input."""
    between = [*node.args, *(each.value for each in node.kwargs if each.key == "d")]
    spreads = node.name in _MOVING or (node.name == "join" and any(_may_fill(each, controls) for each in between))
    return spreads and not _is_list(node.node)


def _call_spreads(node: nodes.Call, controls: Controls) -> bool:
    """Return True if a function would iterate over the characters of a text input."""
    function = node.node
    if isinstance(function, nodes.Getattr):
        return function.attr == "join" and _may_fill(function.node, controls)
    return _name_of(function) in ("dict", "namespace") and bool(node.args)


def _is_by_place(node: nodes.Getitem) -> bool:
    by_place = not isinstance(node.arg, nodes.Slice) and _text_of(node.arg) is None
    return (by_place or getattr(node.arg, "step", None) is not None) and not _is_list(node.node)


def _shows_items(node: nodes.For, asked: Collection[int]) -> bool:
    """Return True if a loop would render the characters of a text that it iterates over."""
    if isinstance(node.target, nodes.Tuple):
        return not _gives_pairs(node.iter)
    if _is_list(node.iter) and not node.recursive:
        return False
    body = nodes.Scope(node.body)
    shown = {each.name for each in body.find_all(nodes.Name) if id(each) not in asked}
    return _name_of(node.target) in shown or any(name in ("nextitem", "previtem") for _, name in _names_asked(body))


def _of_dicts(tree: nodes.Template) -> set[int]:
    """Return the ``id()`` of each node that loops over ``x`` or reads its items inside ``{% if x is mapping %}``."""
    found: set[int] = set()
    for branch in tree.find_all(nodes.If):
        name = _name_of(branch.test.node) if _asks_for_mapping(branch.test) else None
        body = nodes.Scope(branch.body)
        # Skip the block if an assignment or a macro in the block could change the variable's value.
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
    """Return True if joining the characters of a text with this separator could build a control sequence."""
    text = _text_of(separator)
    return text is None or may_cross(controls, text)


def _asks_for_mapping(test: nodes.Node) -> TypeGuard[nodes.Test]:
    return isinstance(test, nodes.Test) and test.name == "mapping"


def _name_of(node: nodes.Node) -> str | None:
    return node.name if isinstance(node, nodes.Name) else None


class _Use(NamedTuple):
    """A filter or method that a template applies to texts.

    Attributes:
        name: The name of the filter or method; empty if the name is computed.
        first: The first argument of the filter or method if that argument is a string constant, else None.
        second: The second argument of the filter or method if that argument is a string constant, else None.
    """

    name: str
    first: str | None = None
    second: str | None = None

    @classmethod
    def of(cls, name: str, arguments: Sequence[nodes.Expr]) -> _Use:
        return cls(name, *map(_text_of, arguments[:2]))

    def makes(self, controls: Controls) -> bool:
        """Return True if the filter or method could build a control sequence from a text that contains none."""
        if self.name in _STRIPPING:
            return bool(self.first and self.first.strip())
        if self.name not in _CUTTING:
            return self.name not in _LEAVING | _MOVING | _CASES
        if self.first and not controls.is_clean(self.first):
            return False
        # ``replace`` separates the pieces of a split text, so that they can't form a control sequence, unless the
        # inserted text could be part of one.
        between = self.second if self.name == "replace" else ""
        return not self.first or between is None or not controls.is_clean(between) or may_cross(controls, between)

    def cuts(self, controls: Controls) -> bool:
        """Return True if the filter or method splits a text at a separator that is not a control sequence."""
        splits = self.name in _CUTTING and bool(self.first) and not self.second and controls.is_clean(self.first or "")
        return splits or self.name == "splitlines"


def _text_of(argument: nodes.Node) -> str | None:
    """Return the value of a string constant, or None for any other expression."""
    return argument.value if isinstance(argument, nodes.Const) and isinstance(argument.value, str) else None


@lru_cache(maxsize=64)
def _any_case(controls: Controls) -> Controls:
    """Return the control sequences with their case folded, for comparison with case-folded texts."""
    return Controls(map(caseless, controls.texts))


def is_clean(template: ChatJinja, controls: Controls, texts: Sequence[str], own: Sequence[str] | None) -> bool:
    """Return True if texts contain no control sequence, and the template can't build one from these texts.

    Args:
        template: The template.
        controls: The template's control sequences.
        texts: All untrusted texts in messages, tool calls, tools and documents.
        own: The trusted texts in the template variables; None if these texts are unknown.
    """
    # Join the untrusted texts with a separator that no control sequence contains, so that one search covers all of
    # them.
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
