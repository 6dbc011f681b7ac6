"""The rules of ``lazyprompt check`` for a file's text and its front matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jinja2 import nodes

from lazyprompt.errors import SlotError, did_you_mean
from lazyprompt.files.check.subject import Hit, Place, field_of, fields_of, items_of
from lazyprompt.files.dialects.translation import OPTIONS, OTHERS
from lazyprompt.files.inputs import checked_inputs
from lazyprompt.files.properties import Property
from lazyprompt.files.spec import FIELDS, FIELDS_OF_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.files.check.subject import Subject
    from lazyprompt.files.yaml_nodes import Node

_END = re.compile(r"\r\n|\r|\n")
_NAMES_OF_ENDS = {"\r\n": "CRLF", "\r": "CR", "\n": "LF"}
_LISTS = ("inputs", "outputs", "tools")
# What YAML 1.1 makes of plain text that is text here.
_YAML_1_1: Final = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "true or false"),
    (re.compile(r"[-+]?\d+(?::[0-5]?\d)+"), "a number to the base of 60"),
    (re.compile(r"[-+]?0[0-7]+"), "a number to the base of 8"),
    (re.compile(r"[-+]?\d[\d_]*_[\d_]*"), "a number"),
    (re.compile(r"\d{4}-\d\d?-\d\d?"), "a date"),
)


def faults(subject: Subject) -> Iterator[Hit]:
    """Why a file does not load."""
    yield from subject.faults


def byte_order_mark(subject: Subject) -> Iterator[Hit]:
    """A byte order mark."""
    if subject.has_mark:
        yield Hit(Place(1, 1), "the file begins with a byte order mark", "save it as UTF-8 without one")


def mixed_line_ends(subject: Subject) -> Iterator[Hit]:
    """Line ends of several kinds: the first that is not as the first of all."""
    ends = _END.finditer(subject.text)
    first = next(ends, None)
    other = None if first is None else next((each for each in ends if each[0] != first[0]), None)
    if first is not None and other is not None:
        names = f"{_NAMES_OF_ENDS[other[0]]}, and those before in {_NAMES_OF_ENDS[first[0]]}"
        yield Hit(
            subject.place(other.start()), f"this line ends in {names}", "save the file with one kind of line ends"
        )


def tabs(subject: Subject) -> Iterator[Hit]:
    """Tabs in the front matter."""
    end = len(subject.text) if subject.is_yaml else subject.body_at if subject.fields else 0
    last = 0
    for found in re.finditer(r"\t", subject.text[:end]):
        at = found.start()
        line = subject.place(at).line
        if line == last:
            continue
        last = line
        yield Hit(subject.place(at), "a tab in the front matter", "YAML is set out with spaces; in text, write \\t")


def unknown_fields(subject: Subject) -> Iterator[Hit]:
    """Fields whose names are nearly those of others."""
    for node, name, near in _unknown(subject):
        if near:
            yield Hit(subject.place(node.key_at), f"the field {name} is not known{near}", "mend its name")


def other_fields(subject: Subject) -> Iterator[Hit]:
    """Fields that mean nothing here."""
    for node, name, near in _unknown(subject):
        if not near:
            advice = "what one provider or runtime reads goes under metadata, or options' additionalProperties"
            yield Hit(subject.place(node.key_at), f"the field {name} means nothing here, and is only kept", advice)


def _unknown(subject: Subject) -> Iterator[tuple[Node, str, str]]:
    """The fields that are not known, each with its name, and with the nearest that is known."""
    model = subject.said.get("model")
    options = None if model is None else field_of(model, "options")
    for given, known, where in (
        (subject.said, FIELDS, ""),
        (fields_of(model), FIELDS_OF_MODEL, "model."),
        (fields_of(options), (*OPTIONS, OTHERS), "model.options."),
    ):
        for name, node in given.items():
            if name not in known:
                yield node, f"{where}{name}", did_you_mean(name, known)


def duplicate_names(subject: Subject) -> Iterator[Hit]:
    """Names that stand twice in a list."""
    lists = [(name, subject.said.get(name)) for name in _LISTS]
    lists += [
        (f"tools.{name}.parameters", field_of(tool, "parameters")) for name, tool in items_of(subject.said.get("tools"))
    ]
    for where, node in lists:
        if node is None or not isinstance(node.value, list):
            continue
        seen: dict[str, Node] = {}
        for name, item in items_of(node):
            if name in seen:
                line = subject.of(seen[name]).line
                what = f"{where} has {name!r} a second time; the first is in line {line}"
                yield Hit(subject.of(item), what, "give it a name of its own, or take it out")
            seen.setdefault(name, item)


def tools_without_description(subject: Subject) -> Iterator[Hit]:
    """Tools of which a model learns no more than the name."""
    for name, node in items_of(subject.said.get("tools")):
        kind, told = field_of(node, "kind"), field_of(node, "description")
        if (kind is None or kind.value in (None, "function")) and (told is None or not told.value):
            what = f"the tool {name!r} has no description: a model knows of it only the name"
            yield Hit(subject.place(node.key_at), what, "say in a sentence what it does, and when to call it")


def other_yaml(subject: Subject) -> Iterator[Hit]:
    """Plain text that readers of YAML 1.1 take for something else."""
    for node in _within(subject.fields.values()):
        value = node.value
        if not isinstance(value, str) or not subject.text.startswith(value, node.at):
            continue
        for pattern, meaning in _YAML_1_1:
            if pattern.fullmatch(value):
                what = f"{value} is text here; other readers of YAML take it for {meaning}"
                yield Hit(
                    subject.of(node), what, "if others read the file too, put it in quotes, or write true or false"
                )
                break


def _within(nodes: Iterable[Node]) -> Iterator[Node]:
    """All nodes in some, one behind the other."""
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node.value, dict):
            waiting += node.value.values()
        elif isinstance(node.value, list):
            waiting += node.value


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


def unused_inputs(subject: Subject) -> Iterator[Hit]:
    """Inputs that nothing asks for."""
    if subject.prompt is None:
        return
    bound = {name for tool in subject.spec.tools for name in tool.bindings.values()}
    for each, node in _inputs(subject):
        # A thread that the template does not name stands at the end.
        if each.kind != "thread" and each.name not in subject.prompt.slots and each.name not in bound:
            near = did_you_mean(each.name, [name for name in subject.prompt.slots if name not in _names(subject)])
            what = f"the input {each.name!r} is not used by the template{near}"
            yield Hit(subject.place(node.key_at), what, f"write {{{{{each.name}}}}} where it belongs, or take it out")


def unknown_slots(subject: Subject) -> Iterator[Hit]:
    """Variables of the template that are no inputs, where inputs are declared."""
    names, own = _names(subject), subject.own
    if subject.prompt is None or own is None or not names or "inputs" not in subject.said:
        return
    for slot in subject.prompt.slots:
        if slot in names or slot in optional_names(subject):
            continue
        word = re.compile(rf"(?<![\w.]){re.escape(slot)}(?!\w)")
        at = next((found.start() for tag in own.tags if (found := word.search(subject.template, *tag))), 0)
        what = f"the template asks for {slot!r}, which is no input{did_you_mean(slot, names)}"
        yield Hit(subject.in_body(at), what, f"declare it; the inputs are {', '.join(names)}")


def optional_names(subject: Subject) -> frozenset[str]:
    """Variables of a template in Jinja that it asks for before it uses them: ``is defined``, ``default``."""
    asked: set[str] = set()
    for each in subject.found(nodes.Test, nodes.Filter):
        if each.name in ("defined", "undefined", "default", "d") and isinstance(each.node, nodes.Name):
            asked.add(each.node.name)
    return frozenset(asked)


def required_with_default(subject: Subject) -> Iterator[Hit]:
    """Inputs that must be given, and have a default."""
    for each, node in _inputs(subject):
        if each.required and each.default is not None:
            what = f"the input {each.name!r} is required and has a default, which then is never needed"
            place = field_of(node, "default") or node
            yield Hit(subject.place(place.key_at), what, "take out required, or the default; make it an example")


def wrong_defaults(subject: Subject) -> Iterator[Hit]:
    """Defaults that are not of their kind."""
    for each, node in _inputs(subject):
        given = field_of(node, "default") or node
        if each.default is not None and not _refers(subject, given) and (why := _misfit(each, each.default)):
            yield Hit(subject.of(given), f"the default does not fit: {why}", "mend the value, or the kind")


def wrong_examples(subject: Subject) -> Iterator[Hit]:
    """Examples, and values to choose from, that are not of their kind."""
    for each, node in _inputs(subject):
        given, choices = field_of(node, "example"), field_of(node, "enumValues")
        if (
            given is not None
            and each.example is not None
            and not _refers(subject, given)
            and (why := _misfit(each, each.example))
        ):
            yield Hit(subject.of(given), f"the example does not fit: {why}", "mend the value, or the kind")
        bare = Property(each.name, each.kind, nullable=each.nullable)
        for value in each.enum_values:
            if choices is not None and (why := _misfit(bare, value)):
                yield Hit(subject.of(choices), f"one of enumValues does not fit: {why}", "mend the value, or the kind")
                break


def wrong_bindings(subject: Subject) -> Iterator[Hit]:
    """Bindings of parameters to inputs that there are not."""
    names = _names(subject)
    for name, node in items_of(subject.said.get("tools")):
        spec = next((each for each in subject.spec.tools if each.name == name), None)
        bindings = field_of(node, "bindings")
        if spec is None or bindings is None:
            continue
        known = [each.name for each in spec.parameters]
        for parameter, source in spec.bindings.items():
            at = subject.place((field_of(bindings, parameter) or bindings).key_at)
            if source not in names:
                what = f"the tool {name!r} binds {parameter} to {source!r}, which is no input"
                yield Hit(at, f"{what}{did_you_mean(source, names)}", "name an input that is declared")
            if known and parameter not in known:
                what = f"the tool {name!r} binds {parameter!r}, which is none of its parameters"
                yield Hit(at, f"{what}{did_you_mean(parameter, known)}", "name a parameter that is declared")


def _inputs(subject: Subject) -> Iterator[tuple[Property, Node]]:
    """The inputs, and where they are declared."""
    nodes = dict(items_of(subject.said.get("inputs")))
    for each in subject.spec.inputs:
        if each.name in nodes:
            yield each, nodes[each.name]


def _names(subject: Subject) -> list[str]:
    return [each.name for each in subject.spec.inputs]


def _refers(subject: Subject, node: Node) -> bool:
    """Whether a value is somewhere else: what it is there is not known here."""
    return "${" in subject.text[node.at :].split("\n", 1)[0]


def _misfit(declared: Property, value: object) -> str:
    """Why a value is not of a kind; nothing where it is."""
    try:
        checked_inputs({declared.name: value}, (declared,))
    except SlotError as error:
        return str(error)
    return ""
