"""Views of a saved payload, which can be a request body, a list of messages or a batch file line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from lazyprompt._base.characters import visible
from lazyprompt._base.json import is_list
from lazyprompt.budget.budget import Budget
from lazyprompt.errors import FormatError
from lazyprompt.formatters._validate import Violation, violations
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.inspect.cautions import Caution, Facts, PromptPiece, cautions_of, texts_in
from lazyprompt.inspect.counting import CountedOnce, unit_of
from lazyprompt.inspect.look import FRAMING, Look, SlotTokens
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.prompters.target_choice import FormatLike
    from lazyprompt.tokens.counter import TokenCounter

_WITHIN: Final = ("body", "params", "request", "payload", "input")
# Maps each payload key to the provider whose requests are most likely to contain it.
_OWN: Final = {"system": "anthropic", "contents": "gemini", "input": "openai-responses", "prompt": "ollama-generate"}
# Payload keys for a separate system prompt, in the order that `countable` uses.
_APART: Final = ("system", "instructions", "system_instruction")
_KINDS: Final[dict[type, str]] = {str: "a string", int: "a number", float: "a number", bool: "a boolean"}


def saved_look(
    text: str,
    *,
    title: str = "",
    form: FormatLike | None = None,
    model: str | None = None,
    counter: TokenCounter | None = None,
    window: int | None = None,
) -> Look:
    """Compute the data for the views of a saved payload.

    Args:
        text: The JSON text of a provider's request body, a list of messages, or a line of a batch file.
        title: The title.
        form: The provider's name, or a profile; by default, the first provider whose rules the payload follows.
        model: The model; by default, the model in the payload.
        counter: The token counter; by default, :class:`lazyprompt.ApproximateTokenCounter`.
        window: The context window in tokens; by default, the model's context window, if known.

    Returns:
        The data for the views, with one slot for each message of the payload.

    Raises:
        FormatError: The text is not valid JSON, not a payload, or not a payload for a known provider.
    """
    if not isinstance(cast("object", model), str | None):
        raise FormatError(f"model must be the provider's name for the model, not {type(model).__name__}")
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
    slots = [SlotTokens(piece.slot, tokens, piece.text) for piece, tokens in zip(pieces, spent, strict=True)]
    size = window if window is not None or model is None else context_of(model)
    refused = [_refused(each, profile.name) for each in violations(payload, profile)]
    facts = Facts({}, pieces, (), (), total, size, (), "", once.count_text)
    return Look(
        title,
        profile.name,
        model,
        payload,
        (),
        (*slots, SlotTokens(FRAMING, total - sum(spent), "")),
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
        raise FormatError("the saved payload is nested too deeply") from error
    except ValueError as error:
        raise FormatError(f"the saved payload is not valid JSON: {error}") from error


def _payload_in(given: object) -> JsonObject | list[object]:
    """Return the payload in a JSON value, which may be a line of a batch file.

    Raises:
        FormatError: The value is neither an object nor a list.
    """
    if is_list(given):
        return given
    if not isinstance(given, dict):
        kind = "null" if given is None else _KINDS[type(given)]
        raise FormatError(f"a saved payload must be a JSON object or a list of messages, not {kind}")
    fields = cast("JsonObject", given)
    for key in _WITHIN:
        inner = fields.get(key)
        if isinstance(inner, dict) and "messages" not in fields:
            return _payload_in({**inner, **({"model": fields["model"]} if "model" in fields else {})})
    return fields


def _as(given: JsonObject | list[object], profile: Profile) -> tuple[Profile, JsonObject]:
    """Return a provider's profile, and a saved payload or message list as a payload for this provider.

    Raises:
        FormatError: The saved JSON value is not a payload for this provider.
    """
    key = profile.form.messages_key
    payload = cast("JsonObject", {key: given}) if isinstance(given, list) else given
    content = payload.get(key)
    if not (key != "messages" if isinstance(content, str) else key != "prompt" and _are_objects(content)):
        what = "the key is missing" if content is None else "the key contains no messages"
        raise FormatError(f"a payload for {profile.name} must contain its messages in {key!r}, but {what}")
    return profile, payload


def _countable(payload: JsonObject) -> JsonObject:
    """Return the payload without invalid tools, and with the system prompt under a key that `countable` reads."""
    sent = {key: value for key, value in payload.items() if key != "tools" or _are_objects(value)}
    # Google's API accepts both `system_instruction` and `systemInstruction`.
    return {**sent, "system_instruction": sent["systemInstruction"]} if "systemInstruction" in sent else sent


def _are_objects(value: object) -> bool:
    return is_list(value) and all(isinstance(each, dict) for each in value)


def _known(given: JsonObject | list[object]) -> tuple[Profile, JsonObject]:
    """Return the first provider profile whose rules a saved payload follows, and the payload as a JSON object.

    Raises:
        FormatError: The payload doesn't follow the rules of any known provider.
    """
    hints = [provider for key, provider in _OWN.items() if isinstance(given, dict) and key in given]
    for name in dict.fromkeys((*hints, *PROVIDERS)):
        try:
            profile, payload = _as(given, profile_of(name))
        except FormatError:
            continue
        if not violations(payload, profile):
            return profile, payload
    raise FormatError(
        "the payload doesn't follow the rules of any known provider; set the provider with --format NAME (or form=) to "
        "see what that provider would reject"
    )


def _pieces(
    payload: Mapping[str, object],
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[object] | None,
    profile: Profile,
) -> Iterator[PromptPiece]:
    """Yield a piece for each message, in the order given to the token counter, followed by a piece for the tools."""
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
        yield PromptPiece(slot, _text_of(message), constant=False, texts=tuple(texts_in(message)))
    if tools:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        yield PromptPiece("tools", lines, constant=False, texts=tuple(texts_in(tools)))


def _text_of(message: Mapping[str, object]) -> str:
    """Return the text of a plain text message, or any other message as JSON."""
    content = message.get("content")
    if isinstance(content, str) and message.keys() <= {"role", "content", "type"}:
        return content
    return json.dumps(message, ensure_ascii=False, indent=2)


def _refused(violation: Violation, form: str) -> Caution:
    reason = visible(f"it {violation.what}; {violation.fix}")
    return Caution("refused", {"where": visible(violation.path), "form": form, "reason": reason})
