"""The rules of ``lazyprompt check`` for a template: its roles, its markers, its Jinja, its length."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from jinja2 import nodes

from lazyprompt.errors import LazyPromptError, TemplateError, did_you_mean
from lazyprompt.files.check.subject import Hit, Place, jinja
from lazyprompt.files.roles import ROLES, closed_fences, role_lines
from lazyprompt.modules.contexts import context_of
from lazyprompt.text.bounds import MAX_RANGE
from lazyprompt.text.families import known_sequences
from lazyprompt.text.markers import Markers
from lazyprompt.text.safety import COMMON_TAGS
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._json import Json
    from lazyprompt.files.check.subject import OwnText, Subject
    from lazyprompt.files.properties import Property

_WORD_ALONE = re.compile(r"^[^\S\n]*#?[^\S\n]*([A-Za-z]{4,11})(?:\[[^\]\n]*\])?[^\S\n]*:[^\S\n]*$", re.MULTILINE)
# Words of one's own that are one letter away from a role.
_NO_TYPOS = frozenset(("users", "uses", "used", "systems", "assistants", "developers", "developed"))
_COMMENT = re.compile(r"\{#.*?#\}|\{\{!.*?\}\}", re.DOTALL)
_REFERENCES = re.compile(r"\$\{(?:env|params):([^:{}]*)", re.IGNORECASE)
_LOADERS = {nodes.Include: "include", nodes.Import: "import", nodes.FromImport: "import", nodes.Extends: "extends"}
_STAND_IN: Final[dict[str, Json]] = {
    "integer": 0,
    "float": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "thread": [],
}


def _sections(subject: Subject, own: OwnText) -> list[re.Match[str]]:
    return [*role_lines(own.scanned, subject.spoken.roles)] if subject.spoken.roles else []


def role_typos(subject: Subject) -> Iterator[Hit]:
    """Words alone on a line, with a colon, that are nearly a role."""
    own = subject.own
    if own is None or not subject.spoken.roles:
        return
    text = own.scanned.text
    fences = [*closed_fences(text)]
    for match in _WORD_ALONE.finditer(text):
        word = match[1].lower()
        near = next((role for role in ROLES if word != role and _one_slip(word, role)), None)
        if near is None or word in _NO_TYPOS or word in subject.spoken.roles:
            continue
        if not any(begin < match.start() < end for begin, end in fences):
            what = f"{match[1]!r} is no role (did you mean {near!r}?): the line is text, and begins no section"
            yield Hit(subject.in_body(own.in_body(match.start(1))), what, f"write {near}:")


def _one_slip(word: str, role: str) -> bool:
    """Whether a letter was left out, put in, changed, or changed places with the next."""
    if abs(len(word) - len(role)) > 1:
        return False
    begin = next(
        (at for at, (one, two) in enumerate(zip(word, role, strict=False)) if one != two), len(min(word, role))
    )
    left, meant = word[begin:], role[begin:]
    swapped = left[1::-1] + left[2:] == meant
    return left[1:] == meant or left == meant[1:] or left[1:] == meant[1:] or (len(left) > 1 and swapped)


def fenced_roles(subject: Subject) -> Iterator[Hit]:
    """Lines that name a role within a fence."""
    own = subject.own
    if own is None or not subject.spoken.roles:
        return
    for match in role_lines(own.scanned, subject.spoken.roles, fenced=True):
        what = f"{match[0].strip()!r} stands within a fence: it is text, and begins no section"
        yield Hit(
            subject.in_body(own.in_body(match.start("role"))), what, "if a section is meant, end the fence before"
        )


def empty_sections(subject: Subject) -> Iterator[Hit]:
    """Sections that say nothing."""
    own = subject.own
    if own is None:
        return
    text, lines = subject.template, _sections(subject, own)
    ends = [(match, own.in_body(match.end()), following) for match, following in _with_following(own, lines, text)]
    for match, begin, end in ends:
        if not _COMMENT.sub("", text[begin:end]).strip():
            what = f"the section {match[0].strip()!r} is empty, and is sent as an empty message"
            yield Hit(subject.in_body(own.in_body(match.start("role"))), what, "write what it says, or take it out")


def _with_following(own: OwnText, lines: list[re.Match[str]], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The lines that name a role, and where the next one begins."""
    for one, two in pairwise([*lines, None]):
        if one is not None:
            yield one, len(text) if two is None else own.in_body(two.start())


def text_before_roles(subject: Subject) -> Iterator[Hit]:
    """Text before the first role."""
    own = subject.own
    lines = _sections(subject, own) if own is not None else []
    if own is None or not lines:
        return
    text = own.scanned.text[: lines[0].start()]
    # Values alone may be a thread, which has its own roles.
    if found := re.search(r"[^\s\ufdd0]", text):
        what = "text before the first role: it becomes a system message of its own"
        yield Hit(subject.in_body(own.in_body(found.start())), what, "put system: before it, or make it a comment")


def late_system(subject: Subject) -> Iterator[Hit]:
    """System sections behind turns of the user."""
    own = subject.own
    behind = False
    for match in _sections(subject, own) if own is not None else ():
        role = match["role"].lower()
        if role == "system" and behind and own is not None:
            what = "a system section behind turns of the user: many models refuse it, or read it as if it stood first"
            yield Hit(subject.in_body(own.in_body(match.start("role"))), what, "put it first, or into the user's turn")
        behind = behind or role == "user"


def spaces_in_role_lines(subject: Subject) -> Iterator[Hit]:
    """Spaces behind the colon of a role, or tabs in the line."""
    own = subject.own
    for match in _sections(subject, own) if own is not None else ():
        begin = own.in_body(match.start()) if own is not None else 0
        line = subject.template[begin:].split("\n", 1)[0]
        if "{" not in line and (line != line.rstrip() or "\t" in line):
            at = min(len(line.rstrip()), line.find("\t") if "\t" in line else len(line))
            what = f"white space in the line {line.strip()!r}: other readers may take it for text"
            yield Hit(subject.in_body(begin + at), what, "end the line with the colon")


def never_reached(subject: Subject) -> Iterator[Hit]:
    """Parts of a template under a condition that never holds."""
    for each in subject.found(nodes.If):
        if isinstance(each.test, nodes.Const) and not each.test.value and each.body:
            what = f"this part is never reached: {{% if {str(each.test.value).lower()} %}}"
            yield Hit(subject.line_of_body(each.lineno, "if"), what, "take it out, or make it a comment")


@lru_cache(maxsize=1)
def _markers() -> re.Pattern[str]:
    known = sorted(known_sequences() | COMMON_TAGS, key=len, reverse=True)
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
    """Attributes that begin with an underscore."""
    for each in subject.found(nodes.Getattr, nodes.Getitem):
        name = _name_of(each)
        if name.startswith("_"):
            what = f"the attribute {name!r} begins with an underscore: the sandbox gives it to no template"
            yield Hit(subject.line_of_body(each.lineno, name), what, "take it out")


def _name_of(node: nodes.Node) -> str:
    """The name that an expression looks up in a value; nothing where it calculates it."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    key = node.arg if isinstance(node, nodes.Getitem) else None
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else ""


def loaded_templates(subject: Subject) -> Iterator[Hit]:
    """Templates that are to be loaded while this one is filled."""
    for each in subject.found(*_LOADERS):
        word = _LOADERS[type(each)]
        path = getattr(each, "template", None)
        kind = "" if isinstance(path, nodes.Const) else ", of a path that a value may choose"
        yield Hit(
            subject.line_of_body(each.lineno, word),
            f"{{% {word} %}}{kind}: a template loads no other while it is filled",
            "write the text here, or let an input hold ${file:...}",
        )


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
    """What a value can make as long as it likes."""
    for call in subject.found(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "range":
            numbers = [arg.value if isinstance(arg, nodes.Const) else None for arg in call.args]
            if None in numbers or any(isinstance(each, int) and abs(each) > MAX_RANGE for each in numbers):
                what = f"range() that a value sets, or of more than {MAX_RANGE}: filling it fails where it is too long"
                yield Hit(subject.line_of_body(call.lineno, "range"), what, "go through a list, or write the number")
    for product in subject.found(nodes.Mul):
        texts = [
            isinstance(each, nodes.Const) and isinstance(each.value, str) for each in (product.left, product.right)
        ]
        if any(texts) and not all(isinstance(each, nodes.Const) for each in (product.left, product.right)):
            what = "a text repeated as often as a value says: filling it fails where it is too long"
            yield Hit(subject.line_of_body(product.lineno, "*"), what, "write the text, or give it as an input")


def unknown_models(subject: Subject) -> Iterator[Hit]:
    """Models of which nothing is known here."""
    name = _model(subject)
    if name and context_of(name) is None and not _is_family(name):
        node = subject.said.get("model") or next(iter(subject.fields.values()), None)
        what = f"nothing is known of the model {name!r}: its length is not checked"
        yield Hit(subject.of(node) if node else Place(1, 1), what, "look whether its name is right")


def _is_family(name: str) -> bool:
    try:
        Markers.for_model(name)
    except TemplateError:
        return False
    return True


def _model(subject: Subject) -> str:
    """The model that a file names; nothing where a reference names it."""
    if subject.prompt_file is not None:
        return subject.prompt_file.model or ""
    name = subject.spec.model.get("id")
    if not isinstance(name, str):
        return ""
    # What a reference stands for is not known here: its own name stands for it.
    return "" if _is_referred_to(name, subject) else name


def _is_referred_to(name: str, subject: Subject) -> bool:
    """Whether a name, or a part of it, is that of a reference in the front matter."""
    return any(match[1] and match[1] in name for match in _REFERENCES.finditer(subject.text, 0, subject.body_at))


def too_long(subject: Subject) -> Iterator[Hit]:
    """A prompt that is longer than its model takes, before anything is given to it."""
    context = context_of(_model(subject)) if _model(subject) else None
    if context is None:
        return
    counted = tokens_of(subject)
    options = subject.spec.model.get("options")
    answer = options.get("maxOutputTokens") if isinstance(options, dict) else None
    room = answer if isinstance(answer, int) else 0
    name = _model(subject)
    if counted + room > context:
        kept = f", and {room} for the answer," if room else ""
        what = f"with defaults and examples the prompt has about {counted} tokens{kept}; {name} takes {context}"
        at = subject.in_body(0) if not subject.is_yaml else Place(1, 1)
        yield Hit(at, what, "shorten it, or take a model that takes more")


def tokens_of(subject: Subject) -> int:
    """About how many tokens a prompt has with its defaults and examples."""
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
    """What stands for an input: its default, its example, or next to nothing."""
    if declared.default is not None or declared.example is not None:
        return declared.own_default() if declared.default is not None else declared.example
    return _STAND_IN.get(declared.kind, "" if declared.kind == "string" else None)
