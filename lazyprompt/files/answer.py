"""What came back for a prompt file: a text, an object, calls of tools, vectors or a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from lazyprompt.errors import FormatError
from lazyprompt.files.targets import target_of
from lazyprompt.formatters._answers import as_dict
from lazyprompt.messages.msg import TextBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.targets import Target

Fields: TypeAlias = "Mapping[str, object]"


def read_answer(
    response: object, provider: str | None = None, api: str | None = None, *, structured: bool = False
) -> Json:
    """What an answer says.

    Args:
        response: The answer: a dict, or the object of the provider's official client.
        provider: Who answered; None is ``openai``.
        api: ``chat``, ``responses``, ``embedding`` or ``image``; None is ``chat``.
        structured: Whether the answer is JSON, as it is where a prompt file has outputs.

    Returns:
        A list of calls ``{id, name, arguments}``, the arguments as JSON text, where tools are called. Else the text, or
        the reason of a refusal; where it is to be JSON, the value that it is, or the text if it is none. Of embeddings
        the vector, or a list of them; of pictures the address or the base64 data, or a list of them.

    Raises:
        FormatError: It is no answer of this provider, or holds no vector or picture.
    """
    target = target_of(provider, api)
    answer = dict(as_dict(response))
    if target.api in _ITEMS:
        return _items(answer, target)
    if target.api == "responses" and answer.get("output") is None and isinstance(answer.get("output_text"), str):
        answer["output"] = list[object]()
    message = target.own_profile().form.parse(answer, target.profile)
    calls = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
    if calls:
        written = [*_WRITTEN[target.api](answer)]
        return [_call(call, written[at] if at < len(written) else None) for at, call in enumerate(calls)]
    text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock))
    if not text and target.api == "responses":
        given = answer.get("output_text")
        text = given if isinstance(given, str) else ""
    return _value(text) if structured else text


def _value(text: str) -> Json:
    try:
        return cast("Json", json.loads(text))
    except (ValueError, RecursionError):
        return text


def _call(call: ToolUseBlock, written: str | None) -> JsonObject:
    """A call, its arguments as they were written where they were text."""
    if written is None:
        compact = json.dumps(call.input, ensure_ascii=False, separators=(",", ":"))
        written = compact if call.raw_input is None else call.raw_input
    return {"id": call.id, "name": call.name, "arguments": written}


def _of_chat(answer: Fields) -> Iterator[str | None]:
    """The arguments of the calls of a chat answer."""
    message = _fields(_fields(next(iter(_list(answer.get("choices"))), None)).get("message"))
    for call in _list(message.get("tool_calls")):
        yield _text(_fields(_fields(call).get("function")).get("arguments"))


def _of_responses(answer: Fields) -> Iterator[str | None]:
    """The arguments of the calls among the items of an answer."""
    for item in map(_fields, _list(answer.get("output"))):
        if item.get("type") == "function_call":
            yield _text(item.get("arguments"))


_WRITTEN = {"chat": _of_chat, "responses": _of_responses}


def _vector(item: Fields) -> Json:
    return cast("Json", item.get("embedding"))


def _picture(item: Fields) -> Json:
    return cast("Json", item.get("url") or item.get("b64_json"))


_ITEMS: dict[str, Callable[[Fields], Json]] = {"embedding": _vector, "image": _picture}


def _items(answer: Fields, target: Target) -> Json:
    """The vectors or pictures of an answer; one alone is not in a list."""
    fault = answer.get("error")
    if fault:
        raise FormatError(f"{target.profile} answered with an error: {_fields(fault).get('message') or fault}")
    given = [_fields(item) for item in _list(answer.get("data"))]
    # Vectors tell their place: they are put in the order of what was embedded.
    given.sort(key=lambda item: at if isinstance(at := item.get("index"), int) else 0)
    found = [_ITEMS[target.api](item) for item in given]
    if not found or None in found:
        raise FormatError(f"this is no answer to a request of the interface {target.api!r}: there is none in its data")
    return found[0] if len(found) == 1 else found


@dataclass(frozen=True, slots=True)
class Failure:
    """How a stream failed.

    Args:
        outcome: ``determinate`` where the model refused: it will not say more; ``indeterminate`` where the connection
            broke: nobody knows what the provider did.
        message: What is told of it.
    """

    outcome: Literal["determinate", "indeterminate"]
    message: str


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a stream said.

    Args:
        chunks: Pieces of text, and failures, in turn.
    """

    chunks: tuple[str | Failure, ...] = ()

    @property
    def partial_text(self) -> str:
        """The text as far as it came."""
        return "".join(each for each in self.chunks if isinstance(each, str))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """How it failed; empty where it did not."""
        return tuple(each for each in self.chunks if isinstance(each, Failure))

    @property
    def requires_reconciliation(self) -> bool:
        """Whether someone must find out what the provider did."""
        return any(each.outcome == "indeterminate" for each in self.failures)

    @property
    def completion_committed(self) -> bool:
        """Whether the text is the whole answer."""
        return not self.failures

    def to_dict(self) -> JsonObject:
        """The same as a dict, in Prompty's names."""
        chunks: list[Json] = [
            {"kind": "text", "value": each}
            if isinstance(each, str)
            else {"kind": "failure", "failure": {"outcome": each.outcome, "message": each.message}}
            for each in self.chunks
        ]
        return {
            "chunks": chunks,
            "partialText": self.partial_text,
            "requiresReconciliation": self.requires_reconciliation,
            "completionCommitted": self.completion_committed,
        }


def read_stream(events: Iterable[object], provider: str | None = None, api: str | None = None) -> Streamed:
    """What a stream says, and how it fails if it does.

    Args:
        events: The provider's events: dicts, or objects of its official client. An exception among them is a connection
            that broke: what is behind it is not looked at.
        provider: Who sends them; None is ``openai``.
        api: ``chat`` or ``responses``; None is ``chat``.

    Raises:
        FormatError: Nothing is known of such streams, or something in it is no event.
    """
    target = target_of(provider, api)
    if target.api not in ("chat", "responses") or target.profile in ("gemini", "ollama"):
        raise FormatError(f"streams of {target.profile} ({target.api}) are not read here; a module reads all")
    read = {"anthropic": _anthropic_event, "openai-responses": _responses_event}.get(target.profile, _chat_event)
    chunks: list[str | Failure] = []
    refusal: list[str] = []
    broken: BaseException | None = None
    for event in events:
        if isinstance(event, BaseException):
            broken = event
            break
        for kind, text in read(as_dict(event)):
            (refusal if kind == "refusal" else chunks).append(text)
    # A refusal comes in pieces, too: it is one.
    if refusal:
        chunks.append(Failure("determinate", f"Model refused: {''.join(refusal)}"))
    if broken is not None:
        chunks.append(Failure("indeterminate", str(broken) or type(broken).__name__))
    return Streamed(tuple(chunks))


def _chat_event(event: Fields) -> Iterator[tuple[str, str]]:
    delta = _fields(_fields(next(iter(_list(event.get("choices"))), None)).get("delta"))
    for kind, key in (("text", "content"), ("refusal", "refusal")):
        text = _text(delta.get(key))
        if text is not None:
            yield kind, text


_RESPONSES_EVENTS = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}


def _responses_event(event: Fields) -> Iterator[tuple[str, str]]:
    kind = _RESPONSES_EVENTS.get(str(event.get("type")))
    if kind:
        yield kind, _text(event.get("delta")) or ""


def _anthropic_event(event: Fields) -> Iterator[tuple[str, str]]:
    delta = _fields(event.get("delta"))
    if delta.get("type") == "text_delta":
        yield "text", _text(delta.get("text")) or ""
    elif delta.get("stop_reason") == "refusal":
        yield "refusal", _text(_fields(delta.get("stop_details")).get("explanation")) or "stop_reason is refusal"


def _fields(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
