"""The checks of cases: on a prompt, and on the answer of a model."""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lazyprompt.errors import BatchError, LazyPromptError, did_you_mean, missing_extra
from lazyprompt.files.yaml_nodes import plain
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.rendering.prompt_template import neutralize
from lazyprompt.testing.rendered import tokens_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.files.yaml_nodes import Node, Source
    from lazyprompt.testing.rendered import RenderedCase
    from lazyprompt.testing.snapshots import Snapshots

PROMPT: Final = "prompt"
ANSWER: Final = "answer"
_ROLE: Final = "role"


class Check(NamedTuple):
    """A check.

    Attributes:
        kind: Its name, as ``contains``.
        value: What is expected.
        role: The role whose messages are looked at; None is all.
    """

    kind: str
    value: Any
    role: str | None = None


class Failure(NamedTuple):
    """A check that failed.

    Attributes:
        check: The name of the check.
        message: What was expected, and what was found.
        slot: The slot that is to blame; the prompt's own text is ``instruction``, and ``""`` is no slot.
        text: The part of the slot's text to show.
    """

    check: str
    message: str
    slot: str = ""
    text: str = ""


class _Kind(NamedTuple):
    """A kind of check.

    Attributes:
        reads: Reads its value; raises ValueError with what is expected.
        finds: Yields the failures.
    """

    reads: Callable[[Json], Any]
    finds: Callable[..., Iterator[Failure]]


def _texts(value: Json) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    if not texts or any(isinstance(text, list | dict) or text is None or text == "" for text in texts):
        raise ValueError("text, or a list of texts")
    return [text if isinstance(text, str) else json.dumps(text) for text in texts]


def _patterns(value: Json) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text, re.MULTILINE) for text in _texts(value)]
    except re.error as error:
        raise ValueError(f"a regular expression: {error}") from error


def _one_text(value: Json) -> str:
    return _texts(value)[0]


def _roles(value: Json) -> list[str]:
    return _texts(value)


def _count(value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError("a number of tokens")


def _flag(value: Json) -> bool:
    if value is not True:
        raise ValueError("true; leave the check out otherwise")
    return True


def _providers(value: Json) -> list[str]:
    names = _texts(value)
    for name in names:
        if name not in PROVIDERS:
            raise ValueError(f"a provider, or a list of them; {name!r} is none{did_you_mean(name, PROVIDERS)}")
    return names


def _schema(value: Json) -> dict[str, Json]:
    if isinstance(value, dict):
        return value
    raise ValueError("a JSON Schema, which is a mapping")


def _function(value: Json) -> str:
    module, colon, name = str(value).partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("the name of a function, as module:name")
    return str(value)


def _shown(text: str) -> str:
    """Return a text for a message, in quotes, cut if it is long."""
    most = 80
    return repr(text if len(text) <= most else f"{text[:most]}…")


class _Text(NamedTuple):
    """A text with the slots of its parts; an answer is one part."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    def slot_at(self, start: int, end: int) -> str:
        """Return the slot that most of a range stands in."""
        at, best = 0, ("", 0)
        for slot, text in self.pieces:
            inside = min(end, at + len(text)) - max(start, at)
            best = max(best, (slot or "instruction", inside), key=lambda each: each[1])
            at += len(text)
        return best[0]


def _texts_of(case: RenderedCase, check: Check) -> list[_Text]:
    return [_Text(turn.pieces) for turn in case.turns if check.role in (None, turn.role)]


def _contains(texts: list[_Text], check: Check) -> Iterator[Failure]:
    for wanted in check.value:
        if not any(wanted in each.text for each in texts):
            yield Failure("contains", f"{_where(check)} does not contain {_shown(wanted)}")


def _not_contains(texts: list[_Text], check: Check) -> Iterator[Failure]:
    for banned in check.value:
        for each in texts:
            at = each.text.find(banned)
            if at >= 0:
                slot = each.slot_at(at, at + len(banned))
                yield Failure("not_contains", f"{_where(check)} contains {_shown(banned)}", slot, banned)
                break


def _regex(texts: list[_Text], check: Check) -> Iterator[Failure]:
    for pattern in check.value:
        if not any(pattern.search(each.text) for each in texts):
            yield Failure("regex", f"nothing in {_where(check)} matches {_shown(pattern.pattern)}")


def _not_regex(texts: list[_Text], check: Check) -> Iterator[Failure]:
    for pattern in check.value:
        for each in texts:
            if found := pattern.search(each.text):
                slot, what = each.slot_at(*found.span()), _shown(pattern.pattern)
                yield Failure("not_regex", f"{_where(check)} matches {what}", slot, found[0])
                break


def _where(check: Check) -> str:
    return f"the {check.role} message" if check.role else "the text"


def _check_roles(case: RenderedCase, check: Check) -> Iterator[Failure]:
    found = [turn.role for turn in case.turns]
    if found != check.value:
        yield Failure("roles", f"the roles are {', '.join(found) or 'none'}; expected were {', '.join(check.value)}")


def _check_tokens(case: RenderedCase, check: Check) -> Iterator[Failure]:
    if case.tokens > check.value:
        slots = case.slots
        largest = max(slots, key=lambda slot: tokens_of_text(slots[slot]), default="")
        message = f"about {case.tokens} tokens, {case.tokens - check.value} more than {check.value}"
        yield Failure("max_tokens", message, largest or "instruction", slots.get(largest, ""))


def _check_safe(case: RenderedCase, _: Check) -> Iterator[Failure]:
    try:
        marks = case.marks
    except LazyPromptError:  # flat text shows no pictures; values can be searched all the same
        for slot, text in case.slots.items():
            if slot and neutralize(text) != text:
                yield Failure("safe", "a control sequence is neutralised", slot, text)
        return
    for mark in marks:
        yield Failure("safe", f"the control sequence {_shown(mark.raw)} is neutralised", mark.slot, mark.raw)


def _check_valid(case: RenderedCase, check: Check) -> Iterator[Failure]:
    for provider in check.value:
        try:
            payload = case.source.prompter.target(provider).render(case.prompt)
            ChatFormatter(provider).validate(cast("dict[str, Any]", payload))
        except LazyPromptError as error:
            yield Failure("valid", f"{provider}: {error}")


def _check_snapshot(case: RenderedCase, check: Check, snapshots: Snapshots | None, name: str) -> Iterator[Failure]:
    if snapshots is None:
        return
    expected, found = snapshots.compared(name if check.value is True else check.value, case)
    if expected is None:
        yield Failure("snapshot", "there is no snapshot yet; --update writes it")
    elif expected != found:
        lines = [*unified_diff(expected.splitlines(), found.splitlines(), "snapshot", "prompt", lineterm="")][2:]
        yield Failure("snapshot", "the prompt differs from its snapshot; --update takes it", text="\n".join(lines))


def _snapshot_name(value: Json) -> Json:
    if value is not True and not (isinstance(value, str) and value):
        raise ValueError("true, or a name")
    return value


_TEXT_KINDS: Final = {
    "contains": _Kind(_texts, _contains),
    "not_contains": _Kind(_texts, _not_contains),
    "regex": _Kind(_patterns, _regex),
    "not_regex": _Kind(_patterns, _not_regex),
}
_PROMPT_KINDS: Final = {
    **_TEXT_KINDS,
    "roles": _Kind(_roles, _check_roles),
    "max_tokens": _Kind(_count, _check_tokens),
    "safe": _Kind(_flag, _check_safe),
    "valid": _Kind(_providers, _check_valid),
    "snapshot": _Kind(_snapshot_name, _check_snapshot),
}


def _compared(name: str, holds: Callable[[str, str], bool]) -> Callable[[str, Check], Iterator[Failure]]:
    def find(answer: str, check: Check) -> Iterator[Failure]:
        if not holds(answer, check.value):
            what = name.replace("_", " ")
            yield Failure(name, f"the answer is {_shown(answer)}; expected was: {what} {_shown(check.value)}")

    return find


def _check_schema(answer: str, check: Check) -> Iterator[Failure]:
    try:
        library = import_module("jsonschema")
    except ImportError as error:
        raise missing_extra("jsonschema", "test") from error
    try:
        value: object = json.loads(answer)
    except ValueError as error:
        yield Failure("json_schema", f"the answer is no JSON: {error}", text=answer)
        return
    for fault in library.Draft202012Validator(check.value).iter_errors(value):
        yield Failure("json_schema", f"{fault.json_path}: {fault.message}", text=answer)


def _check_function(answer: str, check: Check, inputs: object) -> Iterator[Failure]:
    module, _, name = check.value.partition(":")
    try:
        found = getattr(import_module(module), name)(answer, inputs)
    except AssertionError as error:
        yield Failure("python", f"{check.value}: {str(error) or 'an assertion failed'}", text=answer)
    except (ImportError, AttributeError) as error:
        raise BatchError(f"the function {check.value} of a check cannot be called: {error}") from error
    else:
        if found is False or isinstance(found, str):
            yield Failure("python", f"{check.value}: {found or 'returned False'}", text=answer)


_ANSWER_KINDS: Final = {
    **_TEXT_KINDS,
    "equals": _Kind(_one_text, _compared("equals", lambda answer, text: answer.strip() == text.strip())),
    "starts_with": _Kind(_one_text, _compared("starts_with", str.startswith)),
    "ends_with": _Kind(_one_text, _compared("ends_with", str.endswith)),
    "json_schema": _Kind(_schema, _check_schema),
    "python": _Kind(_function, _check_function),
}
_KINDS: Final[Mapping[str, Mapping[str, _Kind]]] = {PROMPT: _PROMPT_KINDS, ANSWER: _ANSWER_KINDS}


def read_checks(source: Source, node: Node | None, of: str) -> tuple[Check, ...]:
    """Read a list of checks.

    Args:
        source: The file.
        node: The list.
        of: ``prompt`` or ``answer``.

    Raises:
        PromptFileError: A check is unknown, or its value is wrong.
    """
    found: list[Check] = []
    kinds = _KINDS[of]
    for item in source.list_of(node, of) if node else []:
        fields = source.mapping_of(item, "a check")
        role = source.text_of(fields.pop(_ROLE, None), _ROLE)
        for name, value in fields.items():
            if name not in kinds:
                near = did_you_mean(name, kinds)
                raise source.pointed(
                    value.key_at, f"there is no check {name!r} of a {of}{near}; there are {', '.join(kinds)}"
                )
            if role is not None and (of == ANSWER or name not in _TEXT_KINDS):
                raise source.pointed(
                    value.key_at, f"the check {name!r} takes no role; {', '.join(_TEXT_KINDS)} of a prompt do"
                )
            try:
                found.append(Check(name, kinds[name].reads(plain(value)), role))
            except ValueError as error:
                raise source.pointed(value.at, f"{name} is {error}") from error
    return tuple(found)


def checks_of(of: str, given: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return checks that were given by name.

    Args:
        of: ``prompt`` or ``answer``.
        given: The value of each.

    Raises:
        ValueError: A value is wrong.
    """
    kinds = _KINDS[of]
    made: list[Check] = []
    for name, value in given.items():
        try:
            made.append(Check(name, kinds[name].reads(value)))
        except ValueError as error:
            raise ValueError(f"{name} is {error}") from error
    return tuple(made)


def prompt_failures(
    case: RenderedCase, checks: Iterable[Check], snapshots: Snapshots | None = None, name: str = ""
) -> list[Failure]:
    """Return the checks on a prompt that fail.

    Args:
        case: The prompt.
        checks: The checks.
        snapshots: The snapshots of the file; None compares none.
        name: The name of the case, and of its snapshot.
    """
    found: list[Failure] = []
    for check in checks:
        finds = _PROMPT_KINDS[check.kind].finds
        if check.kind in _TEXT_KINDS:
            found += finds(_texts_of(case, check), check)
        elif check.kind == "snapshot":
            found += finds(case, check, snapshots, name)
        else:
            found += finds(case, check)
    return found


def answer_failures(answer: str, checks: Iterable[Check], inputs: object) -> list[Failure]:
    """Return the checks on an answer that fail.

    Args:
        answer: The answer.
        checks: The checks.
        inputs: The inputs of the case, for functions.

    Raises:
        BatchError: A function is not there.
        MissingExtraError: A check needs a package that is not installed.
    """
    found: list[Failure] = []
    for check in checks:
        finds = _ANSWER_KINDS[check.kind].finds
        if check.kind in _TEXT_KINDS:
            found += (each._replace(slot="") for each in finds([_Text((("", answer),))], check))
        elif check.kind == "python":
            found += finds(answer, check, inputs)
        else:
            found += finds(answer, check)
    return found
