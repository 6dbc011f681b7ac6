"""Lint rules for a prompt file's raw text and front matter."""

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
from lazyprompt.files.yaml_nodes import KINDS, Node, expected_kind, is_of_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_END = re.compile(r"\r\n|\r|\n")
_NAMES_OF_ENDS = {"\r\n": "CRLF", "\r": "CR", "\n": "LF"}


def faults(subject: Subject) -> Iterator[Hit]:
    """Report errors that prevent the file from loading."""
    yield from subject.faults


def byte_order_mark(subject: Subject) -> Iterator[Hit]:
    """Report a byte order mark."""
    if subject.has_mark:
        yield Hit(Place(1, 1), "the file begins with a byte order mark", "save it as UTF-8 without one")


def mixed_line_ends(subject: Subject) -> Iterator[Hit]:
    """Report the first line ending that differs from the file's first line ending."""
    ends = [*_END.finditer(subject.text)]
    if other := next((each for each in ends if each[0] != ends[0][0]), None):
        names = f"{_NAMES_OF_ENDS[other[0]]}; the lines before it end in {_NAMES_OF_ENDS[ends[0][0]]}"
        what = f"this line ends in {names}"
        yield Hit(subject.place(other.start()), what, "save the file with one kind of line end")


def tabs(subject: Subject) -> Iterator[Hit]:
    """Report tabs in the front matter."""
    # Report tabs even if the YAML is invalid, because a tab is a likely cause of invalid YAML.
    end = subject.body_at if subject.fields else len(subject.text) if subject.prompt_file else 0
    places = {
        (at := subject.place(tab.start())).line: at for tab in reversed([*re.finditer(r"\t", subject.text[:end])])
    }
    for place in reversed(places.values()):
        yield Hit(place, "a tab in YAML", "indent YAML with spaces; in text, write \\t")


def secrets(subject: Subject) -> Iterator[Hit]:
    """Report secrets recognized by their format."""
    for each in subject.secrets:
        if not each.field:
            what = f"the file contains {each.what}: {each.shown}… ({each.length} characters)"
            yield Hit(subject.place(each.begin), what, "revoke it, and write ${env:NAME} in its place")


def credentials(subject: Subject) -> Iterator[Hit]:
    """Report credential fields that contain a secret."""
    for each in subject.secrets:
        if each.field:
            what = f"{each.field} contains {each.what}: {each.shown}… ({each.length} characters)"
            yield Hit(subject.place(each.begin), what, "write ${env:NAME} in its place")


def environment(subject: Subject) -> Iterator[Hit]:
    """Report references to environment variables in fields that are sent to the model."""
    waiting: list[tuple[Node, tuple[str, ...]]] = [(node, (name,)) for name, node in reversed([*subject.seen.items()])]
    while waiting:
        node, path = waiting.pop()
        value = node.value
        if is_connection(path):
            continue
        if isinstance(value, SecretText):
            what = f"{value.reference} is sent to the model: only connection settings stay on this machine"
            yield Hit(subject.of(node), what, "declare an input instead, or allow the variable with --env NAME")
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
_OPTIONAL = ("defined", "undefined", "default", "d")
_KNOWN_LATER = re.compile(r"\$\{(?:env|params):", re.IGNORECASE)
_VALUES = ("default", "example", "enumValues")
_VALUE_OR_KIND = "correct the value or the kind"
# The maximum number of names to list in a message, or to compare with a misspelled name.
_MOST_NAMES: Final = 100
_QUOTES = "if other programs read the file too, put it in quotes"
# Each row contains a pattern for scalars that only lazyprompt reads as text, their type in YAML 1.1, and advice.
_YAML_1_1: Final = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "true or false", "write true or false; or put it in quotes"),
    (re.compile(r"[-+]?\d+(?::[0-5]?\d)+"), "a base-60 number", _QUOTES),
    (re.compile(r"[-+]?0[0-7]+"), "an octal number", _QUOTES),
    (re.compile(r"[-+]?\d(?=\d*_)[\d_]+"), "a number", "write the number without _; or put it in quotes"),
)


def unknown_fields(subject: Subject) -> Iterator[Hit]:
    """Report unknown fields whose names are similar to known ones."""
    for node, name, known, _ in _unknown(subject):
        if near := did_you_mean(name.rpartition(".")[2], known):
            yield Hit(subject.place(node.key_at), f"unknown field {name}{near}", "correct its name")


def other_fields(subject: Subject) -> Iterator[Hit]:
    """Report unknown fields that have no effect."""
    for node, name, known, home in _unknown(subject):
        # ``home`` is the field to move an unknown field to. For mappings that accept any field, ``home`` is empty.
        if home and not did_you_mean(name.rpartition(".")[2], known):
            what = f"the field {name} has no effect: it is kept, but not sent"
            yield Hit(subject.place(node.key_at), what, f"move it under {home}")


def _unknown(subject: Subject) -> Iterator[tuple[Node, str, Sequence[str], str]]:
    """Yield the node and path of each unknown field, the known names, and the field to move it to, or ``""``."""
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
    """Report model options of the wrong type."""
    for name, node in _options(subject).items():
        types = _TYPES_OF_OPTIONS.get(name)
        if types is None or node.value is None or _is_known_later(node.value):
            continue
        if not is_of_type(node.value, types):
            what = f"model.options.{name} must be {expected_kind(types)}, not {KINDS[type(node.value)]}"
            yield Hit(subject.of(node), what, "correct the value")


def _options(subject: Subject) -> dict[str, Node]:
    return fields_of(fields_of(subject.in_v2.get("model")).get("options"))


def tools_without_description(subject: Subject) -> Iterator[Hit]:
    """Report function tools without a description."""
    for name, node in items_of(subject.in_v2.get("tools")):
        kind, described = node.fields.get("kind"), node.fields.get("description")
        is_function = isinstance(node.value, dict) and (kind is None or kind.value in (None, "function"))
        if is_function and (described is None or not described.value):
            what = f"the tool {name!r} has no description: the model sees only its name"
            yield Hit(subject.place(node.key_at), what, "describe in a sentence what it does and when to call it")


def other_yaml(subject: Subject) -> Iterator[Hit]:
    """Report unquoted text that YAML 1.1 parsers read as another type, in fields that accept several types."""
    for node in (each for field in _of_any_kind(subject) for each in field.within()):
        value = node.value
        if not isinstance(value, str) or not subject.text.startswith(value, node.at):
            continue
        for pattern, meaning, advice in _YAML_1_1:
            if pattern.fullmatch(value):
                what = f"{value} is text here; other YAML parsers read it as {meaning}"
                yield Hit(subject.of(node), what, advice)


def _of_any_kind(subject: Subject) -> Iterator[Node]:
    """Yield values that may have any type: untyped fields, and inputs and outputs without a kind."""
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
    """Report inputs that neither the template nor a tool uses."""
    if subject.prompt is None:
        return
    names, slots = _names(subject), subject.prompt.slots
    bound = {name for tool in subject.spec.tools for name in tool.bindings.values()}
    others = sorted({*slots} - {*names})[:_MOST_NAMES]
    for each, node in _inputs(subject):
        # A thread input needs no slot, because a thread without a slot is appended to the prompt's messages.
        if each.kind != "thread" and each.name not in slots and each.name not in bound:
            what = f"the input {each.name!r} is not used by the template{did_you_mean(each.name, others)}"
            yield Hit(subject.place(node.key_at), what, f"write {{{{{each.name}}}}} where it belongs, or remove it")


def unknown_slots(subject: Subject) -> Iterator[Hit]:
    """Report undeclared template variables in a file that declares inputs."""
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
        user = "the template" if piece is None else f"the included {piece.name}"
        what = f"{user} uses {slot!r}, which is not an input{did_you_mean(slot, names[:_MOST_NAMES])}"
        place = subject.in_body(piece.at if piece is not None else at or 0)
        yield Hit(place, what, f"declare it; the inputs are {shown}")


def undeclared_inputs(subject: Subject) -> Iterator[Hit]:
    """Report template variables in a file that declares no inputs, because their values aren't checked."""
    if subject.prompt is None or not subject.prompt.slots or not subject.fields or "inputs" in subject.in_v2:
        return
    named = ", ".join(map(repr, subject.prompt.slots[:_MOST_NAMES]))
    what = f"the template uses {named}, and no inputs are declared, so their values are not checked"
    yield Hit(subject.in_body(0), what, "declare them under inputs")


def optional_names(template: str, engine: str) -> frozenset[str]:
    """Return the variables that a Jinja template makes optional with ``is defined`` or ``default``."""
    asked: set[str] = set()
    for each in (nodes_in(template) if engine == "jinja2" else None) or ():
        if (
            isinstance(each, (nodes.Test, nodes.Filter))
            and each.name in _OPTIONAL
            and isinstance(each.node, nodes.Name)
        ):
            asked.add(each.node.name)
    return frozenset(asked)


def required_with_default(subject: Subject) -> Iterator[Hit]:
    """Report required inputs that have a default."""
    for each, node in _inputs(subject):
        if each.required and each.default is not None:
            what = f"the input {each.name!r} is required and has a default, which is used if no value is given"
            place = node.fields.get("default") or node
            yield Hit(subject.place(place.key_at), what, "remove required, or make the default an example")


def kinds_as_defaults(subject: Subject) -> Iterator[Hit]:
    """Report inputs and outputs whose default is the name of a kind, such as ``city: string``."""
    for part in ("inputs", "outputs"):
        for name, node in items_of(subject.fields.get(part)):
            if isinstance(node.value, str) and node.value in KINDS_OF_PROPERTY:
                what = f"{part}.{name}: a bare value is the default, here the text {node.value!r}"
                yield Hit(subject.of(node), what, f"if the kind is meant, write {{kind: {node.value}}}")


def wrong_defaults(subject: Subject) -> Iterator[Hit]:
    """Report defaults that don't match the input's kind."""
    for each, node in _inputs(subject):
        given = node.fields.get("default") or node
        if each.default is not None and (why := _misfit(each, each.default)):
            advice = "write true or false" if each.kind == "boolean" else _VALUE_OR_KIND
            yield Hit(subject.of(given), f"the default does not fit: {why}", advice)


def wrong_examples(subject: Subject) -> Iterator[Hit]:
    """Report examples and enum values that don't match the input's kind."""
    for each, node in _inputs(subject):
        given, choices = node.fields.get("example"), node.fields.get("enumValues")
        if given is not None and each.example is not None and (why := _misfit(each, each.example)):
            yield Hit(subject.of(given), f"the example does not fit: {why}", _VALUE_OR_KIND)
        bare = Property(each.name, each.kind, nullable=each.nullable)
        for value in each.enum_values:
            if choices is not None and (why := _misfit(bare, value)):
                yield Hit(subject.of(choices), f"one of enumValues does not fit: {why}", _VALUE_OR_KIND)
                break


def wrong_bindings(subject: Subject) -> Iterator[Hit]:
    """Report tool bindings that name an unknown input or parameter."""
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
                what = f"the tool {name!r} binds {parameter} to {source!r}, which is not an input"
                yield Hit(at, f"{what}{did_you_mean(source, names)}", "name a declared input")
            if known and parameter not in known:
                what = f"the tool {name!r} binds {parameter!r}, which is not one of its parameters"
                yield Hit(at, f"{what}{did_you_mean(parameter, known)}", "name a declared parameter")


def _inputs(subject: Subject) -> Iterator[tuple[Property, Node]]:
    """Yield each input with the node that declares it."""
    nodes = dict(items_of(subject.in_v2.get("inputs")))
    for each in subject.spec.inputs:
        if each.name in nodes:
            yield each, nodes[each.name]


def _names(subject: Subject) -> list[str]:
    return [each.name for each in subject.spec.inputs]


def _misfit(declared: Property, value: object) -> str:
    """Explain why a value doesn't match its input's kind, or return ``""`` if it matches or is a reference."""
    try:
        if not _is_known_later(value):
            checked_inputs({declared.name: value}, (declared,))
    except SlotError as error:
        return str(error)
    return ""


def _is_known_later(value: object) -> bool:
    """Return True if a value contains a reference that is resolved only when the prompt is loaded."""
    return isinstance(value, str) and _KNOWN_LATER.search(value) is not None
