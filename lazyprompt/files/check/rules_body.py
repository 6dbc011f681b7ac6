"""The rules of ``lazyprompt check`` for a template: its roles, its markers, its Jinja, its length."""

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

# A line of a word and marks around it, as Markdown and other formats decorate the name of a speaker.
_SPEAKER = re.compile(
    r"(?P<before>[\s#*_`>\-=~\[<|•]*+)(?P<word>[^\W\d_]{2,12}+)(?P<behind>\s*+(?:\[[^\]]*+\])?[\s#*_`\-=~\]>|:]*+)"
)
_SHORT_LINE = re.compile(r"^[^\n]{2,80}$", re.MULTILINE)
_SPEAKER_AND_TEXT = re.compile(
    r"^(?:[^\S\n]|[#*_`>\-])*+([^\W\d_]{2,12}+)[*_]*+([ \t]*+)[*_]*+[:：](?=[^\n]*\S)", re.MULTILINE
)
# Names that other formats and people have for the roles.
_ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("human", "usr", "用户", "人类"), "user"),
    **dict.fromkeys(("ai", "assist", "asst", "bot", "chatgpt", "gpt", "model", "助手", "助理"), "assistant"),
    **dict.fromkeys(("sys", "系统"), "system"),
    "dev": "developer",
}
# Words of one's own that are near a role.
_NO_TYPOS = frozenset(
    ("use", "users", "uses", "used", "systems", "assistants", "assistance", "developers", "developed", "development")
)
# A role in which a letter was left out, changed or put in, or changed places with the next.
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
# How much alike long words are of which one is a typing error.
_ALIKE = 0.82
_COMMENT = re.compile(r"\{#.*?#\}|\{\{!.*?\}\}", re.DOTALL)
# So much any model takes: the length of a shorter prompt is no matter.
_SHORT: Final = 4096
# What becomes of a section that says nothing; an empty thread is the place of the history.
_EMPTY: Final[Mapping[str, str]] = {
    "thread": "",
    "tools": "names no tool",
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
    """A line of a template that names a role.

    Attributes:
        role: The role, in lower case.
        text: The line.
        begin: Its begin in the template.
        role_at: The begin of the role.
        end: Its end.
    """

    role: str
    text: str
    begin: int
    role_at: int
    end: int


def _lines_of_roles(subject: Subject, *, fenced: bool = False) -> Iterator[_RoleLine]:
    """Find the lines that begin a section; or those that would, if they were not within a fence."""
    own = subject.own
    if own is None:
        return
    for match in role_lines(own.scanned, subject.dialect.roles, fenced=fenced):
        begin, role_at, end = map(own.in_body, (match.start(), match.start("role"), match.end()))
        stop = subject.template.find("\n", begin)
        text = subject.template[begin : stop if stop >= 0 else None]
        yield _RoleLine(match["role"].lower(), text, begin, role_at, end)


def role_typos(subject: Subject) -> Iterator[Hit]:
    """Lines that look as if they named a role, and begin no section: ``human:``, ``asistant:``, ``**user:**``."""
    own = subject.own
    if own is None:
        return
    text = own.scanned.text
    fences = [*closed_fences(text)]
    begins = {match.start() for match in role_lines(own.scanned, subject.dialect.roles)}
    for line in _SHORT_LINE.finditer(text):
        # Letters and colons of full width become plain ones.
        match = _SPEAKER.fullmatch(normalize("NFKC", line[0]))
        if match is None or line.start() in begins or any(begin < line.start() < end for begin, end in fences):
            continue
        word = match["word"].lower()
        near = _nearest_role(word)
        # Without a colon, only the name of a role in a heading or in bold is meant as one.
        if near and (":" in match["behind"] or (word == near and match["before"].strip())):
            fault = f"{match['word']!r} is no role (did you mean {near!r}?)"
            fault = f"{line[0].strip()!r} names no role here" if word == near else fault
            what = f"{fault}: the line is text, and begins no section"
            yield Hit(subject.in_body(own.in_body(line.start() + match.start("word"))), what, f"write {near}:")


def _nearest_role(word: str) -> str | None:
    """Return the role that a word names, or means by another name or a typing error; None if there is none."""
    if word in ROLES or word in _NO_TYPOS:
        return word if word in ROLES else None
    for role, slip in _SLIPS.items():
        alike = len(word) > len("system") and SequenceMatcher(None, word, role).ratio() >= _ALIKE
        if alike or (word not in _ALIASES and slip.fullmatch(word)):
            return role
    return _ALIASES.get(word)


def fenced_roles(subject: Subject) -> Iterator[Hit]:
    """Lines that name a role within a fence."""
    for line in _lines_of_roles(subject, fenced=True):
        what = f"{line.text.strip()!r} stands within a fence: it is text, and begins no section"
        yield Hit(subject.in_body(line.role_at), what, "if a section is meant, end the fence before")


def roles_with_text(subject: Subject) -> Iterator[Hit]:
    """Roles with text behind the colon, in a template that has no sections: the first of them."""
    own = subject.own
    if own is None or next(_lines_of_roles(subject), None) is not None:
        return
    named = [
        (match, role)
        for match in _SPEAKER_AND_TEXT.finditer(own.scanned.text)
        if (role := _ALIASES.get(word := match[1].lower(), word if word in ROLES else ""))
    ]
    # One capital word before a colon may be text of any kind; two speakers are a dialogue, and no prose has a space
    # before the colon.
    is_dialogue = len({role for _, role in named}) > 1
    if found := next((match for match, _ in named if is_dialogue or match[1] in ROLES or match[2]), None):
        what = f"'{found[1]}:' has text behind it: the line is text, and begins no section"
        yield Hit(subject.in_body(own.in_body(found.start(1))), what, "write what is said below it")


def empty_sections(subject: Subject) -> Iterator[Hit]:
    """Sections that say nothing."""
    lines = [*_lines_of_roles(subject)]
    ends = [*(line.begin for line in lines[1:]), len(subject.template)]
    for line, end in zip(lines, ends, strict=False):
        says = _COMMENT.sub("", subject.template[line.end : end]).strip()
        meant = _EMPTY.get(line.role, "is sent as an empty message")
        if not says and meant:
            what = f"the section {line.text.strip()!r} is empty, and {meant}"
            yield Hit(subject.in_body(line.role_at), what, "write what it says, or take it out")


def text_before_roles(subject: Subject) -> Iterator[Hit]:
    """Text before the first role."""
    own, first = subject.own, next(_lines_of_roles(subject), None)
    # Values alone may be a thread, which has its own roles.
    found = None if own is None else re.search(rf"[^\s{PLACE}]", own.scanned.text)
    if own is None or not found or first is None or own.in_body(found.start()) >= first.begin:
        return
    place = subject.in_body(own.in_body(found.start()))
    # A role that is misspelt says so itself.
    if all(hit.place.line != place.line for hit in role_typos(subject)):
        what = "text before the first role: it becomes a system message of its own"
        yield Hit(place, what, "put system: before it, or make it a comment")


def late_system(subject: Subject) -> Iterator[Hit]:
    """System sections behind turns of the user."""
    behind = False
    for line in _lines_of_roles(subject):
        if line.role == "system" and behind:
            what = "a system section behind turns of the user: many models refuse it, or read it as if it stood first"
            yield Hit(subject.in_body(line.role_at), what, "put it first, or into the user's turn")
        behind = behind or line.role == "user"


def spaces_in_role_lines(subject: Subject) -> Iterator[Hit]:
    """Spaces behind the colon of a role, or tabs in the line."""
    for line in _lines_of_roles(subject):
        text = line.text
        if "{" not in text and (text != text.rstrip() or "\t" in text):
            at = min(len(text.rstrip()), text.find("\t") if "\t" in text else len(text))
            what = f"white space in the line {text.strip()!r}: other readers may take it for text"
            yield Hit(subject.in_body(line.begin + at), what, "end the line with the colon")


def never_reached(subject: Subject) -> Iterator[Hit]:
    """Parts of a template under a condition that never holds."""
    for each in subject.found(nodes.If):
        if isinstance(each.test, nodes.Const) and not each.test.value and each.body:
            what = f"this part is never reached: {{% if {str(each.test.value).lower()} %}}"
            yield Hit(subject.line_of_body(each.lineno, "if"), what, "take it out, or make it a comment")


@lru_cache(maxsize=1)
def _markers() -> re.Pattern[str]:
    known = sorted(Markers.known_sequences() | COMMON_TAGS, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, known)) + r"|<\|[^<>|\s\\]{1,64}\|>")


def control_markers(subject: Subject) -> Iterator[Hit]:
    """Control markers of models in the template's own text, each of them once."""
    own = subject.own
    text = subject.text if subject.is_yaml else own.scanned.text if own is not None else ""
    seen: set[str] = set()
    for match in _markers().finditer(text):
        if match[0] in seen:
            continue
        seen.add(match[0])
        place = subject.in_body(own.in_body(match.start())) if own is not None else subject.place(match.start())
        what = f"the control marker {match[0]} in the prompt's own text: models read it as structure"
        yield Hit(place, what, "take it out; the markers of a model are put in when the prompt is rendered")


def hidden_attributes(subject: Subject) -> Iterator[Hit]:
    """Attributes that Python has of its own, as ``__class__``."""
    for each in subject.found(nodes.Getattr, nodes.Getitem, nodes.Filter):
        name = _name_of(each)
        if name.startswith("__") and name.endswith("__"):
            what = f"the attribute {name!r} is Python's own: the sandbox gives it to no template"
            yield Hit(subject.line_of_body(each.lineno, name), what, "take it out")


def _name_of(node: nodes.Node) -> str:
    """Return the name that an expression looks up in a value; ``""`` if it is calculated."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    key = node.arg if isinstance(node, nodes.Getitem) else None
    if isinstance(node, nodes.Filter) and node.name == "attr" and node.args:
        key = node.args[0]
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else ""


def unknown_filters(subject: Subject) -> Iterator[Hit]:
    """Filters and tests that there are not."""
    for kind, known in ((nodes.Filter, jinja().filters), (nodes.Test, jinja().tests)):
        for each in subject.found(kind):
            if each.name not in known:
                what = f"there is no {kind.__name__.lower()} {each.name!r}{did_you_mean(each.name, known)}"
                yield Hit(subject.line_of_body(each.lineno, each.name), what, "take one that Jinja has")


def safe_filters(subject: Subject) -> Iterator[Hit]:
    """The filter ``safe``."""
    for each in subject.found(nodes.Filter):
        if each.name == "safe":
            what = "the filter 'safe' is for HTML: here nothing is escaped, and nothing becomes trusted"
            yield Hit(subject.line_of_body(each.lineno, "safe"), what, "take it out")


def unbounded(subject: Subject) -> Iterator[Hit]:
    """Text that a value can make as long as it likes."""
    for call in subject.found(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "range":
            numbers = [arg.value for arg in call.args if isinstance(arg, nodes.Const)]
            too_many = any(isinstance(each, int) and abs(each) > MAX_RANGE for each in numbers)
            if too_many or any(map(_is_any_number, call.args)):
                what = f"range() that a value sets, or of more than {MAX_RANGE}: filling it fails where it is too long"
                yield Hit(subject.line_of_body(call.lineno, "range"), what, "go through a list, or write the number")
    for product in subject.found(nodes.Mul):
        for text, times in ((product.left, product.right), (product.right, product.left)):
            if isinstance(text, nodes.Const) and isinstance(text.value, str) and _is_any_number(times):
                what = "a text repeated as often as a value says: filling it fails where it is too long"
                yield Hit(subject.line_of_body(product.lineno, "*"), what, "write the text, or give it as an input")


def _is_any_number(node: nodes.Expr) -> bool:
    """Return True if a value sets a number, and not only by its own length."""
    if isinstance(node, nodes.Filter) and node.name in ("length", "count"):
        return False
    return any(isinstance(each, nodes.Name) for each in nodes_of(node))


def unknown_models(subject: Subject) -> Iterator[Hit]:
    """Long prompts for models of which it is not known how much they take."""
    for name, context, needed, length in _length(subject):
        if context is None and needed > _SHORT:
            what = f"{length}; how much {name!r} takes is not known here, so whether it fits is not checked"
            yield Hit(_place_of_model(subject), what, "look it up, or name a model that is known")


def too_long(subject: Subject) -> Iterator[Hit]:
    """A prompt that is longer than its model takes, before anything is given to it."""
    for name, context, needed, length in _length(subject):
        if context is not None and needed > context:
            advice = "shorten it, or take a model that takes more"
            yield Hit(_place_of_model(subject), f"{length}; {name} takes {context}", advice)


def _length(subject: Subject) -> Iterator[tuple[str, int | None, int, str]]:
    """Yield a file's model, the tokens that it takes and that the prompt needs, and a sentence on the latter.

    Nothing if the model is known only when the prompt is loaded.
    """
    given = subject.spec.model.get("id") if subject.prompt_file is None else subject.prompt_file.model
    if isinstance(given, str) and given and "${" not in given:
        options = subject.spec.model.get("options")
        limit = options.get("maxOutputTokens") if isinstance(options, dict) else None
        own, answer = tokens_of(subject), limit if isinstance(limit, int) else 0
        kept = f", and {answer} are kept for the answer" if answer else ""
        length = f"with defaults and examples the prompt has about {own} tokens{kept}"
        yield given, context_of(given), own + answer, length


def _place_of_model(subject: Subject) -> Place:
    node = subject.in_v2.get("model")
    return subject.of(node) if node is not None else Place(1, 1)


def tokens_of(subject: Subject) -> int:
    """Estimate the tokens of a prompt with its defaults and examples."""
    counter = ApproximateTokenCounter()
    if subject.prompt is None:
        return counter.count_text(subject.text)
    given = {each.name: _filling(each) for each in subject.spec.inputs}
    filled = {name: value for name, value in given.items() if value is not None}
    try:
        return counter.count(subject.prompt.messages(filled), [tool.function() for tool in subject.prompt.tools])
    except LazyPromptError:
        # Without values it cannot be filled: what it says itself is counted as it is written.
        return counter.count_text(subject.template)


def _filling(declared: Property) -> Json:
    """Return a value for an input: its default, its example, or next to nothing."""
    if declared.default is not None or declared.example is not None:
        return declared.own_default() if declared.default is not None else declared.example
    return _STAND_IN.get(declared.kind, "" if declared.kind == "string" else None)
