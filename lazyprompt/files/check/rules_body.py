"""Lint rules for templates: roles, control markers, Jinja and length."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from unicodedata import normalize

from jinja2 import nodes

from lazyprompt.errors import LazyPromptError, did_you_mean
from lazyprompt.files.check.subject import Hit, Place, Subject, jinja, nodes_of
from lazyprompt.files.roles import PLACE, ROLES, closed_fences, role_lines
from lazyprompt.rendering.markers import Markers
from lazyprompt.safety.policy import COMMON_TAGS
from lazyprompt.templates.bounds import MAX_RANGE
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.properties import Property

_SPEAKER = re.compile(
    r"(?P<before>[\s#*_`>\-=~\[<|•]*+)(?P<word>[^\W\d_]{2,12}+)(?P<behind>\s*+(?:\[[^\]]*+\])?[\s#*_`\-=~\]>|:]*+)"
)
_SHORT_LINE = re.compile(r"^[^\n]{2,80}$", re.MULTILINE)
_SPEAKER_AND_TEXT = re.compile(
    r"^(?>(?:[^\S\n]|[#*_`>\-])*)([^\W\d_]{2,12}+)[*_]*+([ \t]*+)[*_]*+[:：](?=[^\n]*\S)", re.MULTILINE
)
_ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("human", "usr", "用户", "人类"), "user"),
    **dict.fromkeys(("ai", "assist", "asst", "bot", "chatgpt", "gpt", "model", "助手", "助理"), "assistant"),
    **dict.fromkeys(("sys", "系统"), "system"),
    "dev": "developer",
}
# English words that resemble a role name but aren't misspelled role names.
_NO_TYPOS = frozenset(
    ("use", "users", "uses", "used", "systems", "assistants", "assistance", "developers", "developed", "development")
)
_SLIPS: Final = {
    role: re.compile(
        "|".join(
            f"{role[:at]}(?:.?{role[at + 1 :]}|.{role[at:]}|{role[at + 1 : at + 2]}{role[at]}{role[at + 2 :]})"
            for at in range(len(role))
        )
        + f"|{role}."
    )
    for role in ROLES
}
_ALIKE = 0.82
_COMMENT = re.compile(r"\{#.*?#\}|\{\{!.*?\}\}", re.DOTALL)
# Every model accepts prompts up to this number of tokens.
_SHORT: Final = 4096
# An empty thread section is valid, because the section marks the position of the history.
_EMPTY: Final[Mapping[str, str]] = {
    "thread": "",
    "tools": "defines no tools",
}
_STAND_IN: Final[Mapping[str, Json]] = {
    "integer": 0,
    "float": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "thread": [],
}


class _RoleLine(NamedTuple):
    """A template line that contains only a role name. All positions are indexes into the template.

    Attributes:
        role: The role name, in lower case.
        text: The text of the line.
        begin: The index of the line's first character.
        role_at: The index of the role name's first character.
        end: The index of the line's end.
    """

    role: str
    text: str
    begin: int
    role_at: int
    end: int


def _lines_of_roles(subject: Subject, *, fenced: bool = False) -> Iterator[_RoleLine]:
    """Yield the role lines that begin a section or, if ``fenced`` is true, the role lines inside code fences."""
    own = subject.own
    if own is None:
        return
    for match in role_lines(own.scanned, subject.dialect.roles, fenced=fenced):
        begin, role_at, end = map(own.in_body, (match.start(), match.start("role"), match.end()))
        stop = subject.template.find("\n", begin)
        text = subject.template[begin : stop if stop >= 0 else None]
        yield _RoleLine(match["role"].lower(), text, begin, role_at, end)


def role_typos(subject: Subject) -> Iterator[Hit]:
    """Report lines that look like a role but don't begin a section, such as ``human:`` or ``**user:**``."""
    own = subject.own
    if own is None:
        return
    text = own.scanned.text
    fences = [*closed_fences(text)]
    begins = {match.start() for match in role_lines(own.scanned, subject.dialect.roles)}
    for line in _SHORT_LINE.finditer(text):
        # NFKC converts full-width letters and colons to ASCII.
        match = _SPEAKER.fullmatch(normalize("NFKC", line[0]))
        if match is None or line.start() in begins or any(begin < line.start() < end for begin, end in fences):
            continue
        word = match["word"].lower()
        near = _nearest_role(word)
        # Without a colon, only an exact role name after markup, such as ``#`` or ``**``, counts as a role.
        if near and (":" in match["behind"] or (word == near and match["before"].strip())):
            fault = f"{match['word']!r} is not a role (did you mean {near!r}?)"
            fault = f"{line[0].strip()!r} does not name a role here" if word == near else fault
            what = f"{fault}: the line is text and doesn't begin a section"
            yield Hit(subject.in_body(own.in_body(line.start() + match.start("word"))), what, f"write {near}:")


def _nearest_role(word: str) -> str | None:
    """Return the role that a word matches exactly, as a typo or as an alias, or None if the word matches no role."""
    if word in ROLES or word in _NO_TYPOS:
        return word if word in ROLES else None
    for role, slip in _SLIPS.items():
        alike = len(word) > len("system") and SequenceMatcher(None, word, role).ratio() >= _ALIKE
        if alike or (word not in _ALIASES and slip.fullmatch(word)):
            return role
    return _ALIASES.get(word)


def fenced_roles(subject: Subject) -> Iterator[Hit]:
    """Report role lines inside code fences."""
    for line in _lines_of_roles(subject, fenced=True):
        what = f"{line.text.strip()!r} is inside a code fence: the line is text and doesn't begin a section"
        yield Hit(subject.in_body(line.role_at), what, "if a section is meant, close the fence before it")


def roles_with_text(subject: Subject) -> Iterator[Hit]:
    """Report the first role name that has text after its colon, in a template without sections."""
    own = subject.own
    if own is None or next(_lines_of_roles(subject), None) is not None:
        return
    named = [
        (match, role)
        for match in _SPEAKER_AND_TEXT.finditer(own.scanned.text)
        if (role := _ALIASES.get(word := match[1].lower(), word if word in ROLES else ""))
    ]
    # A single capitalized word before a colon can be prose, unless a space precedes the colon.
    is_dialogue = len({role for _, role in named}) > 1
    if found := next((match for match, _ in named if is_dialogue or match[1] in ROLES or match[2]), None):
        what = f"'{found[1]}:' is followed by text: the line is text and doesn't begin a section"
        yield Hit(subject.in_body(own.in_body(found.start(1))), what, "move the text to the next line")


def empty_sections(subject: Subject) -> Iterator[Hit]:
    """Report empty sections."""
    lines = [*_lines_of_roles(subject)]
    ends = [*(line.begin for line in lines[1:]), len(subject.template)]
    for line, end in zip(lines, ends, strict=False):
        content = _COMMENT.sub("", subject.template[line.end : end]).strip()
        effect = _EMPTY.get(line.role, "is sent as an empty message")
        if not content and effect:
            what = f"the section {line.text.strip()!r} is empty and {effect}"
            yield Hit(subject.in_body(line.role_at), what, "add its text, or remove it")


def text_before_roles(subject: Subject) -> Iterator[Hit]:
    """Report template text before the first role line."""
    own, first = subject.own, next(_lines_of_roles(subject), None)
    # Ignore text from values, because a value may be a thread whose messages have roles.
    found = None if own is None else re.search(rf"[^\s{PLACE}]", own.scanned.text)
    if own is None or not found or first is None or own.in_body(found.start()) >= first.begin:
        return
    place = subject.in_body(own.in_body(found.start()))
    # The rule role_typos already reports a misspelled role in this line.
    if all(hit.place.line != place.line for hit in role_typos(subject)):
        what = "text before the first role becomes a separate system message"
        yield Hit(place, what, "put system: before it, or make it a comment")


def late_system(subject: Subject) -> Iterator[Hit]:
    """Report system sections after a user turn."""
    behind = False
    for line in _lines_of_roles(subject):
        if line.role == "system" and behind:
            what = "a system section after a user turn: many models reject it, or read it as if it came first"
            yield Hit(subject.in_body(line.role_at), what, "move it to the start, or into the user's turn")
        behind = behind or line.role == "user"


def spaces_in_role_lines(subject: Subject) -> Iterator[Hit]:
    """Report role lines with tabs or with spaces after the colon."""
    for line in _lines_of_roles(subject):
        text = line.text
        if "{" not in text and (text != text.rstrip() or "\t" in text):
            at = min(len(text.rstrip()), text.find("\t") if "\t" in text else len(text))
            what = f"extra white space in the line {text.strip()!r}: other runtimes may read the line as text"
            yield Hit(subject.in_body(line.begin + at), what, "end the line with the colon")


def never_reached(subject: Subject) -> Iterator[Hit]:
    """Report template code whose condition is never true."""
    for each in subject.found(nodes.If):
        if isinstance(each.test, nodes.Const) and not each.test.value and each.body:
            what = f"this part is never reached: {{% if {str(each.test.value).lower()} %}}"
            yield Hit(subject.line_of_body(each.lineno, "if"), what, "remove it, or make it a comment")


@lru_cache(maxsize=1)
def _markers() -> re.Pattern[str]:
    known = sorted(Markers.known_sequences() | COMMON_TAGS, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, known)) + r"|<\|[^<>|\s\\]{1,64}\|>")


def control_markers(subject: Subject) -> Iterator[Hit]:
    """Report model control markers in the template's own text, each marker only once."""
    own = subject.own
    text = subject.text if subject.is_yaml else own.scanned.text if own is not None else ""
    seen: set[str] = set()
    for match in _markers().finditer(text):
        if match[0] in seen:
            continue
        seen.add(match[0])
        place = subject.in_body(own.in_body(match.start())) if own is not None else subject.place(match.start())
        what = f"the control marker {match[0]} in the prompt's own text: models read it as structure"
        yield Hit(place, what, "remove it; rendering adds the model's markers")


def hidden_attributes(subject: Subject) -> Iterator[Hit]:
    """Report special Python attributes, such as ``__class__``."""
    for each in subject.found(nodes.Getattr, nodes.Getitem, nodes.Filter):
        name = _name_of(each)
        if name.startswith("__") and name.endswith("__"):
            what = f"the sandbox blocks the special Python attribute {name!r}"
            yield Hit(subject.line_of_body(each.lineno, name), what, "remove it")


def _name_of(node: nodes.Node) -> str:
    """Return the attribute or key that an expression looks up, or ``""`` if the name is computed."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    key = node.arg if isinstance(node, nodes.Getitem) else None
    if isinstance(node, nodes.Filter) and node.name == "attr" and node.args:
        key = node.args[0]
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else ""


def unknown_filters(subject: Subject) -> Iterator[Hit]:
    """Report unknown Jinja filters and tests."""
    for kind, known in ((nodes.Filter, jinja().filters), (nodes.Test, jinja().tests)):
        for each in subject.found(kind):
            if each.name not in known:
                what = f"there is no {kind.__name__.lower()} {each.name!r}{did_you_mean(each.name, known)}"
                yield Hit(subject.line_of_body(each.lineno, each.name), what, "use one of Jinja's")


def safe_filters(subject: Subject) -> Iterator[Hit]:
    """Report uses of the ``safe`` filter."""
    for each in subject.found(nodes.Filter):
        if each.name == "safe":
            what = "the filter 'safe' has no effect: prompts aren't HTML-escaped, and it doesn't make text trusted"
            yield Hit(subject.line_of_body(each.lineno, "safe"), what, "remove it")


def unbounded(subject: Subject) -> Iterator[Hit]:
    """Report template code whose output length depends on an input value or on a long ``range()``."""
    for call in subject.found(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "range":
            numbers = [arg.value for arg in call.args if isinstance(arg, nodes.Const)]
            too_many = any(isinstance(each, int) and abs(each) > MAX_RANGE for each in numbers)
            if too_many or any(map(_is_any_number, call.args)):
                what = f"range() depends on a value or exceeds {MAX_RANGE}: filling fails if it is too long"
                yield Hit(subject.line_of_body(call.lineno, "range"), what, "loop over a list, or use a constant")
    for product in subject.found(nodes.Mul):
        for text, times in ((product.left, product.right), (product.right, product.left)):
            if isinstance(text, nodes.Const) and isinstance(text.value, str) and _is_any_number(times):
                what = "a value sets how often a text is repeated: filling fails if the result is too long"
                yield Hit(subject.line_of_body(product.lineno, "*"), what, "write the text out, or make it an input")


def _is_any_number(node: nodes.Expr) -> bool:
    """Return True if an expression depends on a value itself, not only on the value's length."""
    if isinstance(node, nodes.Filter) and node.name in ("length", "count"):
        return False
    return any(isinstance(each, nodes.Name) for each in nodes_of(node))


def unknown_models(subject: Subject) -> Iterator[Hit]:
    """Report long prompts for models whose context window is unknown."""
    for name, context, needed, length in _length(subject):
        if context is None and needed > _SHORT:
            what = f"{length}; the context window of {name!r} is unknown, so the length is not checked"
            yield Hit(_place_of_model(subject), what, "look it up, or name a known model")


def too_long(subject: Subject) -> Iterator[Hit]:
    """Report prompts that exceed the model's context window when filled with defaults and examples."""
    for name, context, needed, length in _length(subject):
        if context is not None and needed > context:
            advice = "shorten it, or use a model with a larger context window"
            yield Hit(_place_of_model(subject), f"{length}; {name} accepts {context}", advice)


def _length(subject: Subject) -> Iterator[tuple[str, int | None, int, str]]:
    """Yield the model, its context window, the number of tokens needed, and a description of the prompt's length.

    Yield nothing if the model's name is missing or is a reference.
    """
    given = subject.spec.model.get("id") if subject.prompt_file is None else subject.prompt_file.model
    if isinstance(given, str) and given and "${" not in given:
        options = subject.spec.model.get("options")
        limit = options.get("maxOutputTokens") if isinstance(options, dict) else None
        own, answer = tokens_of(subject), limit if isinstance(limit, int) else 0
        kept = f", and {answer} are reserved for the response" if answer else ""
        length = f"with defaults and examples, the prompt contains about {own} tokens{kept}"
        yield given, context_of(given), own + answer, length


def _place_of_model(subject: Subject) -> Place:
    node = subject.in_v2.get("model")
    return subject.of(node) if node is not None else Place(1, 1)


def tokens_of(subject: Subject) -> int:
    """Estimate the token count of a prompt filled with its defaults and examples."""
    counter = ApproximateTokenCounter()
    if subject.prompt is None:
        return counter.count_text(subject.text)
    given = {each.name: _filling(each) for each in subject.spec.inputs}
    filled = {name: value for name, value in given.items() if value is not None}
    try:
        return counter.count(subject.prompt.messages(filled), [tool.function() for tool in subject.prompt.tools])
    except LazyPromptError:
        # The prompt can't be filled without values for all inputs, so count the tokens of the template's source.
        return counter.count_text(subject.template)


def _filling(declared: Property) -> Json:
    """Return a sample value for an input: its default, its example, or an empty value of its kind."""
    if declared.default is not None or declared.example is not None:
        return declared.own_default() if declared.default is not None else declared.example
    return _STAND_IN.get(declared.kind, "" if declared.kind == "string" else None)
