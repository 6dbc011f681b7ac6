"""Checks on prompts and on model responses in test cases."""

from __future__ import annotations

import json
import re
import time
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt._base.patterns import PatternTimeoutError, compile_pattern, find_first
from lazyprompt.errors import BatchError, FormatError, LazyPromptError, did_you_mean, missing_extra
from lazyprompt.files.yaml_nodes import Node, SourceText, plain
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.inspect.counting import counter_named
from lazyprompt.rendering.prompt_template import neutralize
from lazyprompt.testing.rendered import RenderedCase, TurnText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import regex

    from lazyprompt._base.json import Json
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.tokens.counter import TokenCounter

    _SnapshotFault: TypeAlias = Callable[[str, RenderedCase], tuple[str, str, str] | None]

PROMPT: Final = "prompt"
ANSWER: Final = "answer"
_MOST: Final = 80
_MOST_FAULTS: Final = 100
# Time limit in seconds for validation, because schemas with mutual references can take exponential time.
_SCHEMA_SECONDS: Final = 5.0
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ROLES: Final = ("system", "developer", "user", "assistant", "model", "tool")


class Check(NamedTuple):
    """A check on a prompt or a response.

    Attributes:
        kind: The check's name, such as ``contains``.
        value: The expected value.
        role: The role of the messages to check, or None to check all messages.
        counter: The name of the token counter, or None to use the counter for the prompt's model.
    """

    kind: str
    value: Any
    role: str | None = None
    counter: str | None = None


class Failure(NamedTuple):
    """A failed check and the reason for the failure.

    Attributes:
        check: The check's name.
        message: The error message, which includes the expected and the actual value.
        slot: The slot that caused the failure; ``instruction`` if text outside all slots caused the failure; ``""`` if
            the failure has no place in the prompt.
        text: The excerpt of the prompt or response to display.
    """

    check: str
    message: str
    slot: str = ""
    text: str = ""


def _texts(value: object) -> list[str]:
    texts = value if is_sequence(value) else [value]
    if not texts or any(isinstance(text, list | dict) or text is None or text == "" for text in texts):
        raise ValueError("must be a string or a list of strings")
    return [text if isinstance(text, str) else json.dumps(text) for text in texts]


def _count(value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError("must be a non-negative number of tokens")


def _flag(value: Json) -> bool:
    if value is not True:
        raise ValueError("must be true; to disable the check, remove it")
    return True


def _providers(value: object) -> list[str | Profile]:
    return [_provider(each) for each in (value if is_sequence(value) and value else [value])]


def _provider(given: Any) -> str | Profile:  # noqa: ANN401 - a test file may contain any value
    """Return a provider's name or a profile unchanged, because the name ``openai`` also selects an output format.

    Raises:
        ValueError: The value is neither.
    """
    try:
        profile_of(given)
    except FormatError as error:
        shown = f"{given!r}{did_you_mean(given, PROVIDERS)}" if isinstance(given, str) else type(given).__name__
        raise ValueError(f"must be a provider or a list of providers, not {shown}") from error
    provider: str | Profile = given
    return provider


def _snapshot_name(value: Json) -> Json:
    if value is not True and not (isinstance(value, str) and value):
        raise ValueError("must be true or a snapshot name")
    return value


def _schema(value: Json) -> dict[str, Json]:
    if isinstance(value, dict):
        for each in _mappings_in(value):
            _check_schema_part(each)
        return value
    raise ValueError("must be a JSON Schema, written as a mapping")


def _check_schema_part(part: Mapping[str, Json]) -> None:
    for key in _REFERENCES:
        target = part.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            raise ValueError(f"must be a JSON Schema whose {key} is local, such as #/$defs/name, not {_shown(target)}")
    if "patternProperties" in part and "unevaluatedProperties" in part:
        raise ValueError("must not contain unevaluatedProperties and patternProperties in the same schema")


def _mappings_in(value: Json) -> Iterator[dict[str, Json]]:
    """Yield every mapping within a value, including the value itself."""
    waiting: list[Json] = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _function(value: Json) -> str:
    module, colon, name = str(value).partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError("must be the name of a function, written as module:name")
    return str(value)


def _shown(text: str) -> str:
    """Quote and truncate text for an error message."""
    return repr(text if len(text) <= _MOST else f"{text[:_MOST]}…")


class _TextKind(NamedTuple):
    """A kind of check that searches for texts or patterns.

    Attributes:
        fault: The verb phrase for the failure message.
        is_found: True if the pattern must match; False if it must not.
        is_pattern: True if the check's value is a regular expression; False for plain text.
        begin: A regular expression that must match directly before the expected text. If ``begin`` is set, white space
            around the expected text is removed.
        end: A regular expression that must match directly after the expected text. If ``end`` is set, white space
            around the expected text is removed.
    """

    fault: str
    is_found: bool = True
    is_pattern: bool = False
    begin: str = ""
    end: str = ""


_TEXT_KINDS: Final = {
    "contains": _TextKind("does not contain"),
    "not_contains": _TextKind("contains", is_found=False),
    "regex": _TextKind("does not match", is_pattern=True),
    "not_regex": _TextKind("matches", is_found=False, is_pattern=True),
}
_ANSWER_TEXT_KINDS: Final = {
    **_TEXT_KINDS,
    "equals": _TextKind("is not", begin=r"\A\s*", end=r"\s*\Z"),
    "starts_with": _TextKind("does not begin with", begin=r"\A\s*"),
    "ends_with": _TextKind("does not end with", end=r"\s*\Z"),
}


def _text_check(kind: str, value: Json, role: str | None) -> Check:
    """Create a check that searches for texts or patterns.

    Args:
        kind: The check's name.
        value: The text, or a list of texts.
        role: The role of the messages to check.

    Raises:
        ValueError: The value is neither text nor a valid pattern.
    """
    texts, rule = _texts(value), _ANSWER_TEXT_KINDS[kind]
    patterns: list[tuple[str, regex.Pattern[str]]] = []
    for text in texts:
        wanted = text if rule.is_pattern else re.escape(text.strip() if rule.begin or rule.end else text)
        try:
            patterns.append((text, compile_pattern(rule.begin + wanted + rule.end, multiline=True)))
        except ValueError as error:
            raise ValueError(f"must be a valid regular expression: {error}") from error
    return Check(kind, patterns, role)


def _text_failures(turns: Sequence[TurnText], check: Check, where: str) -> Iterator[Failure]:
    kind = _ANSWER_TEXT_KINDS[check.kind]
    for wanted, pattern in check.value:
        try:
            found = next(((turn, match) for turn in turns if (match := find_first(pattern, turn.text))), None)
        except PatternTimeoutError as error:
            yield Failure(check.kind, str(error))
            continue
        if (found is not None) is kind.is_found:
            continue
        message = f"{where} {kind.fault} {_shown(wanted)}"
        if found is None:
            yield Failure(check.kind, message, text="".join(turn.text for turn in turns if turn.role == ANSWER))
        else:
            turn, match = found
            yield Failure(check.kind, message, turn.slot_at(*match.span()), match[0])


def _check_roles(case: RenderedCase, check: Check) -> Iterator[Failure]:
    found = [turn.role for turn in case.turns]
    if found != check.value:
        yield Failure("roles", f"the roles are {', '.join(found) or 'none'}; expected were {', '.join(check.value)}")


@lru_cache(maxsize=8)
def _counter(name: str) -> TokenCounter:
    return counter_named(name)


def counter_of(case: RenderedCase, check: Check) -> tuple[str, TokenCounter]:
    """Return the name of a check's token counter, and the counter itself."""
    return case.source.counter if check.counter is None else (check.counter, _counter(check.counter))


def _check_tokens(case: RenderedCase, check: Check) -> Iterator[Failure]:
    name, counter = counter_of(case, check)
    tokens = case.count(counter)
    if tokens > check.value:
        slots = case.slots
        largest = max(slots, key=lambda slot: len(slots[slot]), default="")
        message = f"{tokens} tokens by the counter {name}, {tokens - check.value} more than {check.value}"
        yield Failure("max_tokens", message, largest or "instruction", slots.get(largest, ""))


def _check_safe(case: RenderedCase, _: Check) -> Iterator[Failure]:
    try:
        marks = case.marks
    except LazyPromptError:  # flat text can't contain images, so search the values directly
        for slot, text in case.slots.items():
            if slot and neutralize(text) != text:
                yield Failure("safe", "a control sequence is neutralised", slot, text)
        return
    for mark in marks:
        yield Failure("safe", f"the control sequence {_shown(mark.raw)} is neutralised", mark.slot, mark.raw)


def _check_valid(case: RenderedCase, check: Check) -> Iterator[Failure]:
    for provider in check.value:
        formatter = ChatFormatter(provider)
        try:
            formatter.validate(case.render(provider))
        except LazyPromptError as error:
            yield Failure("valid", f"{formatter.provider}: {error}")


def _check_schema(answer: str, check: Check, _: object) -> Iterator[Failure]:
    try:
        library, referencing = import_module("jsonschema"), import_module("referencing")
    except ImportError as error:
        raise missing_extra("jsonschema", "test") from error
    try:
        library.Draft202012Validator.check_schema(check.value)
    except library.SchemaError as error:
        yield Failure("json_schema", f"the schema is wrong: {error.json_path}: {error.message}")
        return
    # An empty registry prevents remote references from being fetched.
    validator = _bounded_validator(library)(check.value, registry=referencing.Registry())
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError) as error:
        yield Failure("json_schema", f"the answer is not JSON: {error}", text=answer)
        return
    try:
        found = [*islice(validator.iter_errors(value), _MOST_FAULTS)]
    except referencing.exceptions.Unresolvable as error:
        yield Failure("json_schema", f"the schema is wrong: {error.ref} doesn't exist")
        return
    except RecursionError as error:
        yield Failure("json_schema", f"the answer is nested too deeply for the schema: {error}", text=answer)
        return
    except (ValueError, _SchemaTimeoutError) as error:
        yield Failure("json_schema", f"the schema cannot be used: {error}", text=answer)
        return
    for fault in found:
        yield Failure("json_schema", f"{fault.json_path}: {fault.message}", text=answer)


class _SchemaTimeoutError(Exception):
    """An error for validation that exceeds the time limit."""


def _bounded_validator(library: Any) -> Any:  # noqa: ANN401 - the package may be missing
    """Return a validator class that limits the time for validation and for each pattern search."""
    end = time.thread_time() + _SCHEMA_SECONDS

    def bounded(keyword: Callable[..., Iterable[Any] | None]) -> Callable[..., Iterator[Any]]:
        def check(*given: object) -> Iterator[Any]:
            if time.thread_time() > end:
                raise _SchemaTimeoutError(f"validating the response took more than {_SCHEMA_SECONDS:g} s")
            yield from keyword(*given) or ()

        return check

    base = library.Draft202012Validator
    keywords = {**base.VALIDATORS, **_pattern_keywords(library)}
    return library.validators.extend(base, {name: bounded(keyword) for name, keyword in keywords.items()})


def _pattern_keywords(library: Any) -> dict[str, Callable[..., Iterator[Any]]]:  # noqa: ANN401 - as above
    """Return validation functions for JSON Schema keywords with patterns, such as ``pattern``.

    The functions limit the time of each pattern search, whereas the functions of the jsonschema package have no time
    limit.
    """

    def pattern(_: object, given: str, text: object, __: object) -> Iterator[Any]:
        if isinstance(text, str) and not _is_found(given, text):
            yield library.ValidationError(f"{text!r} does not match {given!r}")

    def properties(validator: Any, given: Mapping[str, Json], value: object, _: object) -> Iterator[Any]:  # noqa: ANN401 - as above
        for each, schema in given.items():
            for name, item in _fields_of(value):
                if _is_found(each, name):
                    yield from validator.descend(item, schema, path=name, schema_path=each)

    def additional(validator: Any, given: Json, value: object, schema: Mapping[str, Any]) -> Iterator[Any]:  # noqa: ANN401 - as above
        for name, item in _fields_of(value):
            if name not in schema.get("properties", {}) and not any(
                _is_found(each, name) for each in schema.get("patternProperties", {})
            ):
                yield from validator.descend(item, given, path=name)

    return {"pattern": pattern, "patternProperties": properties, "additionalProperties": additional}


def _is_found(pattern: str, text: str) -> bool:
    return find_first(compile_pattern(pattern), text) is not None


def _fields_of(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if is_dict(value) else ()


def _check_function(answer: str, check: Check, inputs: object) -> Iterator[Failure]:
    module, _, name = check.value.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BatchError(f"the check function {check.value} can't be called: {error}") from error
    try:
        found = function(answer, inputs)
    except AssertionError as error:
        found = str(error) or "an assertion failed"
    if found is False or isinstance(found, str):
        yield Failure("python", f"{check.value}: {found or 'returned False'}", text=answer)


_PROMPT_KINDS: Final[Mapping[str, tuple[Callable[[Json], Any], Callable[..., Iterator[Failure]]]]] = {
    "roles": (_texts, _check_roles),
    "max_tokens": (_count, _check_tokens),
    "safe": (_flag, _check_safe),
    "valid": (_providers, _check_valid),
    "snapshot": (_snapshot_name, lambda *_: iter(())),
}
_ANSWER_KINDS: Final[Mapping[str, tuple[Callable[[Json], Any], Callable[..., Iterator[Failure]]]]] = {
    "json_schema": (_schema, _check_schema),
    "python": (_function, _check_function),
}
_KINDS: Final = {PROMPT: (_TEXT_KINDS, _PROMPT_KINDS), ANSWER: (_ANSWER_TEXT_KINDS, _ANSWER_KINDS)}


def make_check(of: str, kind: str, value: Json, role: str | None = None, counter: str | None = None) -> Check:
    """Create a check.

    Args:
        of: ``prompt`` or ``answer``.
        kind: The check's name.
        value: The check's value, as in a test file.
        role: The role of the messages to check.
        counter: The name of the token counter.

    Raises:
        ValueError: The check is unknown, its value is invalid, or it doesn't support a role or counter.
    """
    texts, others = _KINDS[of]
    if kind not in texts and kind not in others:
        known = (*texts, *others)
        raise ValueError(f"unknown {of} check {kind!r}{did_you_mean(kind, known)}; expected one of {', '.join(known)}")
    if role is not None and (of == ANSWER or kind not in texts):
        raise ValueError(
            f"the {of} check {kind!r} does not support a role; only the prompt checks {', '.join(_TEXT_KINDS)} do"
        )
    if role not in (None, *_ROLES):
        raise ValueError(f"unknown role {role!r}{did_you_mean(str(role), _ROLES)}; expected one of {', '.join(_ROLES)}")
    if counter is not None and kind != "max_tokens":
        raise ValueError(f"the check {kind!r} does not support a counter; only max_tokens does")
    try:
        if kind in texts:
            return _text_check(kind, value, role)
        if counter is not None:
            _counter(counter)
        return Check(kind, others[kind][0](value), None, counter)
    except (ValueError, LazyPromptError) as error:
        raise ValueError(f"{kind} {error}" if isinstance(error, ValueError) else str(error)) from error


def read_checks(source: SourceText, node: Node | None, of: str) -> tuple[Check, ...]:
    """Parse a list of checks in a test file.

    Args:
        source: The test file.
        node: The list.
        of: ``prompt`` or ``answer``.

    Raises:
        PromptFileError: A check is unknown, or its value is invalid.
    """
    found: list[Check] = []
    for item in source.list_of(node, of) if node else []:
        fields = source.mapping_of(item, "a check")
        role, counter = (source.text_of(fields.pop(name, None), name) for name in ("role", "counter"))
        if not fields:
            raise source.fault_at(
                item.at, "empty check; expected a mapping such as contains: TEXT, or roles: [system, user]"
            )
        for name, value in fields.items():
            try:
                found.append(make_check(of, name, plain(value), role, counter))
            except ValueError as error:
                at = value.at if str(error).startswith(f"{name} must be ") else value.key_at
                raise source.fault_at(at, str(error)) from error
    return tuple(found)


def prompt_failures(
    case: RenderedCase, checks: Iterable[Check], snapshot_fault: _SnapshotFault | None = None, name: str = ""
) -> list[Failure]:
    """Run checks on a prompt, and return the failures.

    Args:
        case: The prompt.
        checks: The checks.
        snapshot_fault: A function that compares the prompt with a named snapshot. The function returns a message, an
            empty slot name and a diff, or None if the snapshot matches. By default, snapshots are not compared.
        name: The test case's name, which is also the default snapshot name.
    """
    found: list[Failure] = []
    for check in checks:
        if check.kind in _TEXT_KINDS:
            turns = [turn for turn in case.turns if check.role in (None, turn.role)]
            found += _text_failures(turns, check, f"the {check.role} message" if check.role else "the text")
        elif check.kind == "snapshot":
            if snapshot_fault and (fault := snapshot_fault(name if check.value is True else check.value, case)):
                found.append(Failure("snapshot", *fault))
        else:
            found += _PROMPT_KINDS[check.kind][1](case, check)
    return found


def answer_failures(answer: str, checks: Iterable[Check], inputs: object) -> list[Failure]:
    """Run checks on a model's response, and return the failures.

    Args:
        answer: The response.
        checks: The checks.
        inputs: The test case's inputs, which are passed to check functions.

    Raises:
        BatchError: A check function doesn't exist.
        MissingExtraError: A check requires a package that is not installed.
    """
    turns = [TurnText(ANSWER, ((ANSWER, answer),))]
    found: list[Failure] = []
    for check in checks:
        if check.kind in _ANSWER_TEXT_KINDS:
            found += _text_failures(turns, check, "the answer")
        else:
            found += _ANSWER_KINDS[check.kind][1](answer, check, inputs)
    return found
