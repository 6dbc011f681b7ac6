"""The rules of ``lazyprompt check`` for the text of a file as it is written, and for its front matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jinja2 import nodes

from lazyprompt._base.secret import SecretText
from lazyprompt.errors import SlotError, did_you_mean
from lazyprompt.files.check.subject import Hit, Place, Subject, fields_of, items_of, nodes_in
from lazyprompt.files.properties import KINDS_OF_PROPERTY, Property, checked_inputs
from lazyprompt.files.references import is_connection
from lazyprompt.files.spec import FIELDS, FIELDS_OF_MODEL, FIELDS_OF_TOOL, OPTIONS, OTHERS
from lazyprompt.files.yaml_nodes import KINDS, Node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_END = re.compile(r"\r\n|\r|\n")
_NAMES_OF_ENDS = {"\r\n": "CRLF", "\r": "CR", "\n": "LF"}


def faults(subject: Subject) -> Iterator[Hit]:
    """Faults that keep a file from loading."""
    yield from subject.faults


def byte_order_mark(subject: Subject) -> Iterator[Hit]:
    """A byte order mark."""
    if subject.has_mark:
        yield Hit(Place(1, 1), "the file begins with a byte order mark", "save it as UTF-8 without one")


def mixed_line_ends(subject: Subject) -> Iterator[Hit]:
    """Line ends of several kinds: the first that is not as the first of all."""
    ends = [*_END.finditer(subject.text)]
    if other := next((each for each in ends if each[0] != ends[0][0]), None):
        names = f"{_NAMES_OF_ENDS[other[0]]}, and those before in {_NAMES_OF_ENDS[ends[0][0]]}"
        yield Hit(
            subject.place(other.start()), f"this line ends in {names}", "save the file with one kind of line ends"
        )


def tabs(subject: Subject) -> Iterator[Hit]:
    """Tabs in the front matter."""
    # Tabs are likely why YAML does not parse, and are reported then too.
    end = subject.body_at if subject.fields else len(subject.text) if subject.prompt_file else 0
    # One for each line: of several, the first.
    places = {
        (at := subject.place(tab.start())).line: at for tab in reversed([*re.finditer(r"\t", subject.text[:end])])
    }
    for place in reversed(places.values()):
        yield Hit(place, "a tab in YAML", "YAML is set out with spaces; in text, write \\t")


def secrets(subject: Subject) -> Iterator[Hit]:
    """Secrets that are known by their form."""
    for each in subject.secrets:
        if not each.field:
            what = f"{each.what} stands in the file: {each.shown}… ({each.length} characters)"
            yield Hit(subject.place(each.begin), what, "make it invalid, and write ${env:NAME} in its place")


def credentials(subject: Subject) -> Iterator[Hit]:
    """Fields for secrets that hold one."""
    for each in subject.secrets:
        if each.field:
            what = f"{each.field} holds {each.what}: {each.shown}… ({each.length} characters)"
            yield Hit(subject.place(each.begin), what, "write ${env:NAME} in its place")


def environment(subject: Subject) -> Iterator[Hit]:
    """Variables of the environment that are sent: in the prompt, in parameters, anywhere but in connection settings."""
    waiting: list[tuple[Node, tuple[str, ...]]] = [(node, (name,)) for name, node in reversed([*subject.seen.items()])]
    while waiting:
        node, path = waiting.pop()
        value = node.value
        if is_connection(path):
            continue
        if isinstance(value, SecretText):
            what = f"{value.reference} is sent to the model: only connection settings stay on this machine"
            yield Hit(subject.of(node), what, "declare an input in its place; on the command line it takes --env NAME")
        elif isinstance(value, dict):
            waiting += [(item, (*path, name)) for name, item in reversed([*value.items()])]
        elif isinstance(value, list):
            waiting += [(item, (*path, "*")) for item in reversed(value)]


_TYPES_OF_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {**OPTIONS, "stopSequences": (list, str), OTHERS: (dict,)}
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "v2": FIELDS,
    "agentschema": (*FIELDS, "inputSchema", "outputSchema"),
    "v1": (*FIELDS, "version", "authors", "tags", "sample", "base"),
}
_FIELDS_OF_TEMPLATE = ("format", "parser")
_TEXTS = ("name", "displayName", "description", "instructions")
# What a template asks of a variable that need not be there.
_ASKING = ("defined", "undefined", "default", "d")
_KNOWN_LATER = re.compile(r"\$\{(?:env|params):", re.IGNORECASE)
_VALUES = ("default", "example", "enumValues")
# Of so many names the nearest is looked for; each of them takes time.
_MOST_NAMES: Final = 100
_QUOTES = "if others read the file too, put it in quotes"
# What YAML 1.1 makes of plain text that is text here, and what to do.
_YAML_1_1: Final = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "true or false", "write true or false; or put it in quotes"),
    (re.compile(r"[-+]?\d+(?::[0-5]?\d)+"), "a number to the base of 60", _QUOTES),
    (re.compile(r"[-+]?0[0-7]+"), "a number to the base of 8", _QUOTES),
    (re.compile(r"[-+]?\d(?=\d*_)[\d_]+"), "a number", "write the number without _; or put it in quotes"),
)


def unknown_fields(subject: Subject) -> Iterator[Hit]:
    """Fields whose names are nearly those of others."""
    for node, name, known, _ in _unknown(subject):
        if near := did_you_mean(name.rpartition(".")[2], known):
            yield Hit(subject.place(node.key_at), f"the field {name} is not known{near}", "mend its name")


def other_fields(subject: Subject) -> Iterator[Hit]:
    """Fields that mean nothing here."""
    for node, name, known, home in _unknown(subject):
        # Parts without a home may have any field.
        if home and not did_you_mean(name.rpartition(".")[2], known):
            what = f"the field {name} means nothing here: it is kept, and goes into no request"
            yield Hit(subject.place(node.key_at), what, f"write it under {home}, where such fields belong")


def _unknown(subject: Subject) -> Iterator[tuple[Node, str, Sequence[str], str]]:
    """Yield the unknown fields, each with its name, the known names, and the field it belongs under, if any."""
    given = subject.in_v2
    functions = [
        (f"tools.{name}.", fields_of(node), FIELDS_OF_TOOL, "")
        for name, node in items_of(given.get("tools"))
        if (kind := node.fields.get("kind")) is None or kind.value == "function"
    ]
    for place, fields, known, home in (
        ("", subject.fields, _FIELDS[subject.dialect.name], "metadata"),
        ("model.", fields_of(given.get("model")), FIELDS_OF_MODEL, "metadata"),
        ("model.options.", _options(subject), (*OPTIONS, OTHERS), f"model.options.{OTHERS}"),
        *functions,
        ("template.", fields_of(given.get("template")), _FIELDS_OF_TEMPLATE, ""),
    ):
        for name, node in fields.items():
            if name not in known:
                yield node, f"{place}{name}", known, home


def wrong_options(subject: Subject) -> Iterator[Hit]:
    """Options of the model that are not of their kind."""
    for name, node in _options(subject).items():
        types = _TYPES_OF_OPTIONS.get(name)
        if types is None or node.value is None or _is_known_later(node.value):
            continue
        # To Python, true is a number.
        if not isinstance(node.value, types) or (isinstance(node.value, bool) and bool not in types):
            what = f"model.options.{name} is {KINDS[type(node.value)]}, and must be {KINDS[types[0]]}"
            yield Hit(subject.of(node), what, "mend the value")


def _options(subject: Subject) -> dict[str, Node]:
    return fields_of(fields_of(subject.in_v2.get("model")).get("options"))


def tools_without_description(subject: Subject) -> Iterator[Hit]:
    """Tools of which a model learns no more than the name."""
    for name, node in items_of(subject.in_v2.get("tools")):
        kind, described = node.fields.get("kind"), node.fields.get("description")
        is_function = isinstance(node.value, dict) and (kind is None or kind.value in (None, "function"))
        if is_function and (described is None or not described.value):
            what = f"the tool {name!r} has no description: a model knows of it only the name"
            yield Hit(subject.place(node.key_at), what, "say in a sentence what it does, and when to call it")


def other_yaml(subject: Subject) -> Iterator[Hit]:
    """Plain text that readers of YAML 1.1 take for something else, where nothing says that it is text."""
    for node in (each for field in _of_any_kind(subject) for each in field.within()):
        value = node.value
        if not isinstance(value, str) or not subject.text.startswith(value, node.at):
            continue
        for pattern, meaning, advice in _YAML_1_1:
            if pattern.fullmatch(value):
                what = f"{value} is text here; other readers of YAML take it for {meaning}"
                yield Hit(subject.of(node), what, advice)
                break


def _of_any_kind(subject: Subject) -> Iterator[Node]:
    """Yield the values that may be of any kind: fields without one, and inputs and outputs without one."""
    for name, node in subject.in_v2.items():
        if name in ("inputs", "outputs"):
            for _, item in items_of(node):
                kind = item.fields.get("kind")
                if kind is None or kind.value in (None, "union"):
                    fields = fields_of(item)
                    yield from (fields[each] for each in _VALUES if each in fields) if fields else (item,)
        elif name == "model":
            yield from (each for part, each in fields_of(node).items() if part in ("connection", "options"))
        elif name not in _TEXTS:
            yield node


def unused_inputs(subject: Subject) -> Iterator[Hit]:
    """Inputs that nothing asks for."""
    if subject.prompt is None:
        return
    names, slots = _names(subject), subject.prompt.slots
    bound = {name for tool in subject.spec.tools for name in tool.bindings.values()}
    others = sorted({*slots} - {*names})[:_MOST_NAMES]
    for each, node in _inputs(subject):
        # A thread that the template does not name stands at the end.
        if each.kind != "thread" and each.name not in slots and each.name not in bound:
            what = f"the input {each.name!r} is not used by the template{did_you_mean(each.name, others)}"
            yield Hit(subject.place(node.key_at), what, f"write {{{{{each.name}}}}} where it belongs, or take it out")


def unknown_slots(subject: Subject) -> Iterator[Hit]:
    """Variables of the template that are no inputs, where inputs are declared."""
    names, own = _names(subject), subject.own
    if subject.prompt is None or own is None or not names:
        return
    known = {*names, *optional_names(subject.prompt.instructions, subject.engine)}
    shown = f"{', '.join(names[:_MOST_NAMES])}{', …' if len(names) > _MOST_NAMES else ''}"
    for slot in subject.prompt.slots:
        if slot in known:
            continue
        word = re.compile(rf"(?<![\w.]){re.escape(slot)}(?!\w)")
        at = next((found.start() for tag in own.tags if (found := word.search(subject.template, *tag))), None)
        piece = next((each for each in subject.pieces if at is None and word.search(each.own)), None)
        asks = "the template" if piece is None else f"the included {piece.name}"
        what = f"{asks} asks for {slot!r}, which is no input{did_you_mean(slot, names[:_MOST_NAMES])}"
        place = subject.in_body(piece.at if piece is not None else at or 0)
        yield Hit(place, what, f"declare it; the inputs are {shown}")


def undeclared_inputs(subject: Subject) -> Iterator[Hit]:
    """Variables of a template whose front matter declares no inputs: nothing checks what is given for them."""
    if subject.prompt is None or not subject.prompt.slots or not subject.fields or "inputs" in subject.in_v2:
        return
    named = ", ".join(map(repr, subject.prompt.slots[:_MOST_NAMES]))
    what = f"the template asks for {named}, and no inputs are declared, so nothing checks them"
    yield Hit(subject.in_body(0), what, "declare them under inputs")


def optional_names(template: str, engine: str) -> frozenset[str]:
    """Find the variables of a template in Jinja that it asks for before it uses them: ``is defined``, ``default``."""
    asked: set[str] = set()
    for each in (nodes_in(template) if engine == "jinja2" else None) or ():
        if isinstance(each, (nodes.Test, nodes.Filter)) and each.name in _ASKING and isinstance(each.node, nodes.Name):
            asked.add(each.node.name)
    return frozenset(asked)


def required_with_default(subject: Subject) -> Iterator[Hit]:
    """Inputs that must be given, and have a default."""
    for each, node in _inputs(subject):
        if each.required and each.default is not None:
            what = f"the input {each.name!r} is required and has a default: where none is given, that is taken"
            place = node.fields.get("default") or node
            yield Hit(subject.place(place.key_at), what, "take out required; or make the default an example")


def kinds_as_defaults(subject: Subject) -> Iterator[Hit]:
    """Inputs and outputs whose default is the name of a kind, as in ``city: string``."""
    for part in ("inputs", "outputs"):
        for name, node in items_of(subject.fields.get(part)):
            if isinstance(node.value, str) and node.value in KINDS_OF_PROPERTY:
                what = f"{part}.{name}: a value alone is the default, which here is the text {node.value!r}"
                yield Hit(subject.of(node), what, f"if the kind is meant, write {{kind: {node.value}}}")


def wrong_defaults(subject: Subject) -> Iterator[Hit]:
    """Defaults that are not of their kind."""
    for each, node in _inputs(subject):
        given = node.fields.get("default") or node
        if each.default is not None and (why := _misfit(each, each.default)):
            advice = "write true or false" if each.kind == "boolean" else "mend the value, or the kind"
            yield Hit(subject.of(given), f"the default does not fit: {why}", advice)


def wrong_examples(subject: Subject) -> Iterator[Hit]:
    """Examples, and values to choose from, that are not of their kind."""
    for each, node in _inputs(subject):
        given, choices = node.fields.get("example"), node.fields.get("enumValues")
        if given is not None and each.example is not None and (why := _misfit(each, each.example)):
            yield Hit(subject.of(given), f"the example does not fit: {why}", "mend the value, or the kind")
        bare = Property(each.name, each.kind, nullable=each.nullable)
        for value in each.enum_values:
            if choices is not None and (why := _misfit(bare, value)):
                yield Hit(subject.of(choices), f"one of enumValues does not fit: {why}", "mend the value, or the kind")
                break


def wrong_bindings(subject: Subject) -> Iterator[Hit]:
    """Bindings of parameters to inputs that there are not."""
    names = _names(subject)
    for name, node in items_of(subject.in_v2.get("tools")):
        spec = next((each for each in subject.spec.tools if each.name == name), None)
        bindings = node.fields.get("bindings")
        if spec is None or bindings is None:
            continue
        known = [each.name for each in spec.parameters]
        for parameter, source in spec.bindings.items():
            at = subject.place((bindings.fields.get(parameter) or bindings).key_at)
            if source not in names:
                what = f"the tool {name!r} binds {parameter} to {source!r}, which is no input"
                yield Hit(at, f"{what}{did_you_mean(source, names)}", "name an input that is declared")
            if known and parameter not in known:
                what = f"the tool {name!r} binds {parameter!r}, which is none of its parameters"
                yield Hit(at, f"{what}{did_you_mean(parameter, known)}", "name a parameter that is declared")


def _inputs(subject: Subject) -> Iterator[tuple[Property, Node]]:
    """Yield the inputs with their declarations."""
    nodes = dict(items_of(subject.in_v2.get("inputs")))
    for each in subject.spec.inputs:
        if each.name in nodes:
            yield each, nodes[each.name]


def _names(subject: Subject) -> list[str]:
    return [each.name for each in subject.spec.inputs]


def _misfit(declared: Property, value: object) -> str:
    """Explain why a value is not of a kind; ``""`` if it is, or is known only when the prompt is loaded."""
    if _is_known_later(value):
        return ""
    try:
        checked_inputs({declared.name: value}, (declared,))
    except SlotError as error:
        return str(error)
    return ""


def _is_known_later(value: object) -> bool:
    """Return True if a value is known only when the prompt is loaded."""
    return isinstance(value, str) and _KNOWN_LATER.search(value) is not None
