"""A payload that somebody saved, looked at like any prompt: a request's body, a list of messages, a line of a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from lazyprompt._base.signs import visible
from lazyprompt.budget.budget import Budget
from lazyprompt.errors import FormatError
from lazyprompt.formatters._validate import Violation, violations
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.inspect.cautions import Caution, Facts, Piece, cautions_of, texts_in
from lazyprompt.inspect.counting import CountedOnce, unit_of
from lazyprompt.inspect.look import FRAMING, Look, Slot
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.tokens.counter import TokenCounter

# Where the payload is in what is around it: the lines of batches, and DashScope's own requests.
_WITHIN: Final = ("body", "params", "request", "payload", "input")
# What only the payload of one provider has; in all else it may look as that of another.
_OWN: Final = {"system": "anthropic", "contents": "gemini", "input": "openai-responses", "prompt": "ollama-generate"}
# The system text that stands apart, as `countable` has it.
_APART: Final = ("system", "instructions", "system_instruction")
_KINDS: Final[dict[type, str]] = {str: "a text", int: "a number", float: "a number", bool: "a boolean"}


def saved_look(
    text: str,
    *,
    title: str = "",
    form: str | None = None,
    model: str | None = None,
    counter: TokenCounter | None = None,
    window: int | None = None,
) -> Look:
    """Look at a saved payload.

    Args:
        text: Its JSON: the body of a provider's request, a list of messages, or a line of a batch.
        title: What it is called.
        form: The provider that it is for; None is the first whose rules it keeps.
        model: The model; None is the one that the payload names.
        counter: What counts tokens; None is :class:`lazyprompt.ApproximateTokenCounter`.
        window: The context window in tokens; None is what is known of the model.

    Returns:
        What there is to see; its slots are the messages.

    Raises:
        FormatError: It is no JSON, no payload, or the payload of no known provider.
    """
    given = _payload_in(_parsed(text))
    profile, payload = _known(given) if form is None else _as(given, profile_of(form))
    named = payload.get("model")
    model = model or (named if isinstance(named, str) else None)
    counts = counter or ApproximateTokenCounter()
    once = CountedOnce(counts)
    budget = Budget(None, once)
    sent = _countable(payload)
    messages, tools = countable(sent, profile)
    total = budget.count(messages, tools)
    pieces = [*_pieces(sent, messages, tools, profile)]
    spent = [*map(budget.share, messages), *([budget.count_tools(tools)] if tools else [])]
    slots = [Slot(piece.slot, tokens, piece.text) for piece, tokens in zip(pieces, spent, strict=True)]
    size = window if window is not None or model is None else context_of(model)
    refused = [_refused(each, profile.name) for each in violations(payload, profile)]
    facts = Facts({}, pieces, (), (), total, size, (), "", once.count_text)
    return Look(
        title,
        profile.name,
        model,
        payload,
        (),
        (*slots, Slot(FRAMING, total - sum(spent), "")),
        total,
        size,
        (),
        (),
        None,
        (*refused, *cautions_of(facts)),
        unit_of(counts),
    )


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise FormatError("a saved payload is JSON, and this is nested too deep to be read") from error
    except ValueError as error:
        raise FormatError(f"a saved payload is JSON, and this is not: {error}") from error


def _payload_in(given: object) -> JsonObject | list[object]:
    """The payload in what is around it.

    Raises:
        FormatError: There can be none.
    """
    if isinstance(given, list):
        return cast("list[object]", given)
    if not isinstance(given, dict):
        kind = "null" if given is None else _KINDS[type(given)]
        raise FormatError(f"a saved payload is a JSON object or a list of messages, and this is {kind}")
    fields = cast("JsonObject", given)
    for key in _WITHIN:
        inner = fields.get(key)
        if isinstance(inner, dict) and "messages" not in fields:
            return _payload_in({**inner, **({"model": fields["model"]} if "model" in fields else {})})
    return fields


def _as(given: JsonObject | list[object], profile: Profile) -> tuple[Profile, JsonObject]:
    """Return a given value as the payload of a provider.

    Raises:
        FormatError: It is nothing of the kind.
    """
    key = profile.form.messages_key
    payload = cast("JsonObject", {key: given}) if isinstance(given, list) else given
    content = payload.get(key)
    if not (key != "messages" if isinstance(content, str) else key != "prompt" and _are_objects(content)):
        what = f"has no {key!r}" if content is None else f"has no messages in {key!r}"
        raise FormatError(f"a payload of {profile.name} holds its messages in {key!r}, and this {what}")
    return profile, payload


def _countable(payload: JsonObject) -> JsonObject:
    """A payload without what is no tools, and with system text by the one of its names that is known here."""
    sent = {key: value for key, value in payload.items() if key != "tools" or _are_objects(value)}
    # Google's interface takes both names.
    return {**sent, "system_instruction": sent["systemInstruction"]} if "systemInstruction" in sent else sent


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in cast("list[object]", value))


def _known(given: JsonObject | list[object]) -> tuple[Profile, JsonObject]:
    """The first provider whose rules a payload keeps.

    Raises:
        FormatError: It keeps those of none.
    """
    hints = [provider for key, provider in _OWN.items() if isinstance(given, dict) and key in given]
    for name in dict.fromkeys((*hints, *PROVIDERS)):
        try:
            profile, payload = _as(given, profile_of(name))
        except FormatError:
            continue  # it has no place for messages that this provider reads
        if not violations(payload, profile):
            return profile, payload
    raise FormatError(
        "this keeps the rules of no known provider; --format NAME (or form=) says whose it is, and then it is shown "
        "with what that provider would refuse"
    )


def _pieces(
    payload: Mapping[str, object],
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[object] | None,
    profile: Profile,
) -> Iterator[Piece]:
    """The messages in the order in which they are counted, then the tools."""
    key = profile.form.messages_key
    apart = [name for name in reversed(_APART) if name in payload]
    for at, message in enumerate(messages):
        if at < len(apart):
            slot = apart[at]
        elif isinstance(payload[key], str):
            slot = key
        else:
            role = message.get("role") or message.get("type") or ""
            slot = f"{key}[{at - len(apart)}]" + (f" ({role})" if role else "")
        yield Piece(slot, _text_of(message), constant=False, texts=tuple(texts_in(message)))
    if tools:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        yield Piece("tools", lines, constant=False, texts=tuple(texts_in(tools)))


def _text_of(message: Mapping[str, object]) -> str:
    """A plain text as it is, all else as JSON."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= {"role", "content", "type"}:
        return content
    return json.dumps(message, ensure_ascii=False, indent=2)


def _refused(violation: Violation, form: str) -> Caution:
    reason = visible(f"it {violation.what}; {violation.fix}")
    return Caution("refused", {"where": visible(violation.path), "form": form, "reason": reason})
