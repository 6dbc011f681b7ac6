"""Fine-tuning samples, which contain a conversation's flat text and the parts to train on, and their exports.

The text to train on consists of the assistant's text and the markers that end each assistant turn. The renderer marks
the trained parts, so this module never searches the flat text for responses or end markers.

Sources of the export formats:

- ``openai``: OpenAI's guide to supervised fine-tuning. The API reference documents the ``weight`` of an assistant
  message (``FineTuneChatCompletionRequestAssistantMessage``).
- ``alpaca``, ``sharegpt``: LLaMA-Factory's ``data/README.md``, ``data/alpaca_en_demo.json`` and
  ``data/glaive_toolcall_en_demo.json``. Parallel calls are formatted as in ``src/llamafactory/data/formatter.py``.
- ``trl``, ``trl-text``: The conversational and standard prompt-completion formats in TRL's "Dataset formats and types".
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Self, TypeAlias, TypedDict

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import Json, JsonObject, checked_object, to_json
from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.messages.prompt import Rendered, Segment
from lazyprompt.training.masks import Mask, Span, find_masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt.messages.backends import Encoded
    from lazyprompt.messages.encoding import TokenizerLike

# The label that PyTorch's loss functions ignore by default.
IGNORED = -100
# The character that represents a space in byte-level tokens.
_SPACE = "\u0120"


# A callable receives the index and the message, and returns True if the message is trained on.
Train: TypeAlias = "Literal['last', 'all'] | Callable[[int, JsonObject], bool]"


class TrainingIds(NamedTuple):
    """A sample as token ids.

    Attributes:
        input_ids: The token ids of the sample's whole text, including the prompt.
        labels: The id of each token that is included in the loss, and -100 for every other token.
        straddling: The indices of tokens that are partly inside and partly outside the text to train on.
    """

    input_ids: list[int]
    labels: list[int]
    straddling: list[int]


class Token(NamedTuple):
    """A token in a sample, with attributes of the part of the text in which the token begins.

    Attributes:
        id: The token id.
        text: The token's text; if the token encodes only some bytes of a character, the whole character is included.
        message: The message index, or None for tools and for markers between messages.
        slot: The slot that the text comes from; see :class:`~lazyprompt.Segment`.
        trusted: True if the token begins in the developer's text or in a marker of the model.
        trained: True if the token is included in the loss.
    """

    id: int
    text: str
    message: int | None
    slot: str
    trusted: bool
    trained: bool


class Features(TypedDict):
    """The input for trainers and for transformers' collators."""

    input_ids: list[int]
    attention_mask: list[int]
    labels: list[int]


class _Placed(NamedTuple):
    """A token with its character range and a flag that is True if the loss includes the token.

    Attributes:
        straddles: True if the token is partly inside and partly outside the text to train on.
    """

    id: int
    place: Span
    trained: bool
    straddles: bool


@read_only
@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A conversation to train a model on, as flat text and as messages.

    Args:
        parts: The parts of the sample's text, which alternate between trusted and untrusted (see
            ``messages/prompt.py``).
        slots: The slot of each text part.
        trained: For each text part, True if the part is included in the loss.
        messages: The whole conversation as OpenAI dicts; the last message is the response.
        trained_messages: For each message, True if it is included in the loss.
        tools: The tools as OpenAI dicts.
        masked: The character ranges that the mask excludes from the loss.
        unmatched: The mask's patterns that don't match any response.
        part_messages: For each text part, the index of its message, or None for markers, tools and text whose message
            is unknown.
    """

    parts: tuple[str, ...]
    slots: tuple[str, ...]
    trained: tuple[bool, ...]
    messages: tuple[JsonObject, ...]
    trained_messages: tuple[bool, ...]
    tools: tuple[JsonObject, ...] = ()
    masked: tuple[Span, ...] = ()
    unmatched: tuple[str, ...] = ()
    part_messages: tuple[int | None, ...] = ()

    @property
    def text(self) -> str:
        """The whole text, including the prompt, the response and the markers that end the response."""
        return "".join(self.parts)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of the text, in order; see :attr:`lazyprompt.Rendered.segments`."""
        return Rendered(self.parts, self.slots).segments

    @property
    def spans(self) -> tuple[Span, ...]:
        """The character ranges of the text that is included in the loss, with adjacent ranges merged."""
        # Masked ranges lie inside response ranges, so the sorted boundaries alternate between start and end.
        borders = sorted(border for span in (*self.answers, *self.masked) for border in span)
        return tuple(span for span in zip(borders[::2], borders[1::2], strict=True) if span[0] < span[1])

    @property
    def answers(self) -> tuple[Span, ...]:
        """The character ranges of the responses, including their masked text."""
        spans: list[Span] = []
        end = 0
        for part, trained in zip(self.parts, self.trained, strict=True):
            start, end = end, end + len(part)
            if trained and part:
                spans.append((spans.pop()[0] if spans and spans[-1][1] == start else start, end))
        return tuple(spans)

    def with_mask(self, mask: Mask) -> Self:
        """Return a copy with a different mask, which excludes text inside the responses from the loss.

        Args:
            mask: One or more regular expressions, or a function. A pattern masks its whole match. A function receives
                the text of a response, including the markers that end it, and returns the character ranges to mask.

        Raises:
            FormatError: A pattern is invalid or takes too long, or a range is outside the response.
        """
        return replace(self, **find_masked(self.text, self.answers, mask)._asdict())

    def labels(self, tokenizer: TokenizerLike) -> TrainingIds:
        """Return the token ids and their labels.

        A token is included in the loss if it begins inside the text to train on and contains no masked text. Tokens
        that cross a boundary of this text are reported. Untrusted text never becomes a special token. No special tokens
        are added, because the sample's text already contains them.

        Args:
            tokenizer: A tokenizer from the tokenizers or tiktoken package, or a fast tokenizer from transformers.

        Returns:
            The ids, the labels, and the indices of tokens that cross a boundary of the text to train on.

        Raises:
            TokenizerError: The tokenizer is not supported.
        """
        ids: list[int] = []
        labels: list[int] = []
        straddling: list[int] = []
        for index, (token, _, trained, straddles) in enumerate(self._placed(tokenizer)):
            ids.append(token)
            labels.append(token if trained else IGNORED)
            if straddles:
                straddling.append(index)
        return TrainingIds(ids, labels, straddling)

    def tokens(self, tokenizer: TokenizerLike) -> tuple[Token, ...]:
        """Return each token with its message and its slot, and a flag for tokens that are included in the loss.

        Args:
            tokenizer: The tokenizer; see :meth:`labels`.

        Raises:
            TokenizerError: See :meth:`labels`.
        """
        text, messages = self.text, self._messages()
        ends = [*accumulate(map(len, self.parts))]
        tokens: list[Token] = []
        for token, (begin, end), trained, _ in self._placed(tokenizer):
            at = min(bisect_right(ends, begin), len(ends) - 1)
            trusted = is_trusted(at, self.parts[at])
            tokens.append(Token(token, text[begin:end], messages[at], self.slots[at], trusted, trained))
        return tuple(tokens)

    def _messages(self) -> list[int | None]:
        """Return the message index of each text part; markers in a response get the index of the response's message."""
        messages = [*(self.part_messages or [None] * len(self.parts))]
        for trained, group in groupby(range(len(self.parts)), key=self.trained.__getitem__):
            turn = [*group]
            current = next((messages[at] for at in turn if messages[at] is not None), None)
            for at in turn if trained else ():
                current = messages[at] = current if messages[at] is None else messages[at]
        return messages

    def _placed(self, tokenizer: TokenizerLike) -> Iterator[_Placed]:
        from lazyprompt.messages.encoding import encode  # noqa: PLC0415 - only needed for token ids

        encoded = encode(self.parts, tokenizer)
        borders = [border for span in self.spans for border in span]
        masked = {start for start, _ in self.masked}
        places = _places(encoded, self.text, tokenizer)
        for token, (begin, end) in zip(encoded.ids, places, strict=True):
            before = bisect_right(borders, begin)
            straddles = bisect_left(borders, end) > before
            trained = before % 2 == 1 and not (straddles and borders[before] in masked)
            yield _Placed(token, (begin, end), trained, straddles)

    def features(self, tokenizer: TokenizerLike) -> Features:
        """Return the sample's features for ``datasets`` and transformers' collators.

        Args:
            tokenizer: The tokenizer; see :meth:`labels`.

        Returns:
            The ids, an attention mask of ones, and the labels.

        Raises:
            TokenizerError: See :meth:`labels`.
        """
        ids, labels, _ = self.labels(tokenizer)
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    def export(self, form: str) -> JsonObject:
        """Export the sample for a trainer, as the content of one line in a JSONL file.

        Args:
            form: The export format: ``openai``, ``alpaca``, ``sharegpt``, ``trl`` or ``trl-text``.

        Returns:
            A new dict that shares no mutable objects with the sample.

        Raises:
            FormatError: The export format is unknown, or can't express part of the sample.
        """
        if form not in _FORMS:
            raise FormatError(
                f"unknown export format {form!r}{did_you_mean(str(form), _FORMS)}; expected one of {', '.join(_FORMS)}"
            )
        if self.masked and form != "trl-text":
            _refuse(form, "masked text inside a response", "use features(), or trl-text")
        return _FORMS[form](self)

    def __hash__(self) -> int:
        return hash(self.parts)


def _places(encoded: Encoded, text: str, tokenizer: TokenizerLike) -> Iterator[Span]:
    """Yield the character range of each token in the text.

    Some byte-level tokenizers exclude a token's leading spaces from its offsets (``trim_offsets``).
    """
    token_of: Callable[[int], str | None] | None = getattr(
        getattr(tokenizer, "backend_tokenizer", tokenizer), "id_to_token", None
    )
    done = 0
    for made, (begin, end) in zip(*encoded, strict=True):
        spaces = 0
        if begin > done and token_of is not None and text[done:begin].isspace():
            token = token_of(made) or ""
            spaces = len(token) - len(token.lstrip(_SPACE))
        yield min(begin, max(done, begin - spaces)), end
        done = max(done, end)


# Advice for error messages when a format can't represent a sample.
_TRAIN_ALL = 'pass train="all"; with mask_history set, LLaMA-Factory then trains on the last response only'
_SHAREGPT = "export it as sharegpt"
_OPENAI = "export it as openai; with assistant_only_loss=True, TRL trains on the assistant messages in this format"
# Message keys that LLaMA-Factory's formats support, or that the export can ignore.
_KEYS = {"role", "content", "weight", "tool_calls", "tool_call_id"}
_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


def _refuse(form: str, what: str, instead: str) -> NoReturn:
    raise FormatError(f"the {form} format can't express {what}; {instead}")


def _copies(sample: TrainingSample) -> list[JsonObject]:
    """Return copies of the messages without the key ``weight``, which ``trained_messages`` replaces."""
    return [
        checked_object({key: value for key, value in message.items() if key != "weight"}, "messages", FormatError)
        for message in sample.messages
    ]


def _with_tools(form: JsonObject, sample: TrainingSample) -> JsonObject:
    tools: list[Json] = [checked_object(tool, "tools", FormatError) for tool in sample.tools]
    return {**form, "tools": tools} if tools else form


def _openai(sample: TrainingSample) -> JsonObject:
    messages: list[Json] = [
        message if trained or message["role"] != "assistant" else message | {"weight": 0}
        for message, trained in zip(_copies(sample), sample.trained_messages, strict=True)
    ]
    return _with_tools({"messages": messages}, sample)


def _alpaca(sample: TrainingSample) -> JsonObject:
    form = "alpaca"
    if sample.tools:
        _refuse(form, "tools", _SHAREGPT)
    system, turns = _turns(sample, form)
    for index, turn in enumerate(turns):
        if turn.speaker in ("function_call", "observation"):
            _refuse(form, f"a tool call or result (turn {index})", _SHAREGPT)
    values: list[Json] = [turn.value for turn in turns]
    *history, (instruction, output) = zip(values[0::2], values[1::2], strict=True)
    if not instruction and not history:
        # AlpacaPrompter's documented output has no user text, so the system text is the instruction.
        system, instruction = "", system
    pairs: list[Json] = [[*pair] for pair in history]
    return {"instruction": instruction, "input": "", "output": output, "system": system, "history": pairs}


def _sharegpt(sample: TrainingSample) -> JsonObject:
    form = "sharegpt"
    system, turns = _turns(sample, form)
    functions = [tool.get("function") if tool.get("type") == "function" else None for tool in sample.tools]
    for tool, function in zip(sample.tools, functions, strict=True):
        if function is None:
            _refuse(form, f"a tool of type {tool.get('type')!r}", "remove the tool")
    conversations: list[Json] = [{"from": turn.speaker, "value": turn.value} for turn in turns]
    tools = to_json(functions) if functions else ""
    return {"conversations": conversations, "system": system, "tools": tools}


class _Turn(NamedTuple):
    """A turn in one of LLaMA-Factory's formats."""

    speaker: str
    value: str


def _turns(sample: TrainingSample, form: str) -> tuple[str, list[_Turn]]:
    """Return the system text and the turns, which LLaMA-Factory requires to alternate between user and model."""
    system = ""
    turns: list[_Turn] = []
    for index, (message, trained) in enumerate(zip(sample.messages, sample.trained_messages, strict=True)):
        where = f"messages[{index}]"
        role = message["role"]
        # Ignore a tool message's name, because the matching tool call contains the name too.
        if other := [key for key in message if key not in _KEYS and not (key == "name" and role == "tool")]:
            _refuse(form, f"the {other[0]} of {where}", "remove this key")
        if role in SYSTEM_ROLES and not index:
            system = _text(message, form, where)
            continue
        if role == "assistant" and not turns and index + 1 == len(sample.messages):
            # If only a system message precedes the response, use the system text as the user turn.
            system, turns = "", [_Turn("human", system)]
        if role in SYSTEM_ROLES or (role == "assistant") != len(turns) % 2:
            _refuse(form, f"the role {role!r} of {where} in this position", "alternate between user and assistant")
        if role == "assistant" and not trained:
            _refuse(form, f"a response that is excluded from training ({where})", _TRAIN_ALL)
        calls = _tool_calls(message)
        if calls:
            if message.get("content"):
                _refuse(form, f"text and a tool call in the same message ({where})", "remove one of them")
            turns.append(_Turn("function_call", _calls(calls)))
        else:
            turns.append(_Turn(_SPEAKERS[str(role)], _text(message, form, where)))
    return system, turns


def _text(message: JsonObject, form: str, where: str) -> str:
    content = message["content"]
    if not isinstance(content, str):
        _refuse(form, f"content parts in {where}.content", "use plain text")
    return content


def _calls(calls: Sequence[JsonObject]) -> str:
    """Render tool calls for LLaMA-Factory, which expects an object for one call and a list for several."""
    functions = [_parse_arguments(call) for call in calls]
    written: list[Json] = [{"name": function["name"], "arguments": function["arguments"]} for function in functions]
    return to_json(written if len(written) > 1 else written[0])


def _tool_calls(message: JsonObject) -> list[JsonObject]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _parse_arguments(call: JsonObject) -> JsonObject:
    """Return a tool call's function with parsed arguments."""
    function = call["function"]
    return {**function, "arguments": json.loads(str(function["arguments"]))} if isinstance(function, dict) else {}


def _trl(sample: TrainingSample) -> JsonObject:
    form = "trl"
    if not any(sample.trained_messages):
        _refuse(form, "a conversation without trained text", "omit this sample")
    first = sample.trained_messages.index(True)
    if not all(sample.trained_messages[first:]):
        after = sample.trained_messages.index(False, first)
        _refuse(form, f"messages[{after}], which is not trained, after messages[{first}], which is", _OPENAI)
    messages = [_for_templates(message) for message in _copies(sample)]
    prompt: list[Json] = [*messages[:first]]
    completion: list[Json] = [*messages[first:]]
    return _with_tools({"prompt": prompt, "completion": completion}, sample)


def _for_templates(message: JsonObject) -> JsonObject:
    """Convert a message to TRL's documented format for chat templates, with parsed arguments and no null content."""
    calls = _tool_calls(message)
    if not calls:
        return message
    written: list[Json] = [{**call, "function": _parse_arguments(call)} for call in calls]
    return {**{key: value for key, value in message.items() if value is not None}, "tool_calls": written}


def _trl_text(sample: TrainingSample) -> JsonObject:
    form, text, spans = "trl-text", sample.text, sample.spans
    if not spans:
        _refuse(form, "a conversation without trained text", "omit this sample")
    (start, end), *others = spans
    # Omit trailing whitespace, which would keep TRL from recognising the preceding end-of-text token.
    if others or text[end:].strip():
        _refuse(form, "untrained text after trained text", "use features()")
    return {"prompt": text[:start], "completion": text[start:end]}


_FORMS: dict[str, Callable[[TrainingSample], JsonObject]] = {
    "openai": _openai,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "trl": _trl,
    "trl-text": _trl_text,
}


def trained_messages(messages: Sequence[JsonObject], train: Train) -> tuple[bool, ...]:
    """Select the messages in a conversation to train on.

    Args:
        messages: The conversation as OpenAI dicts; the last message is the response.
        train: ``"last"``, ``"all"``, or a function that receives a message's index and the message, and returns True to
            train on it.

    Returns:
        For each message, True if it is included in the loss.

    Raises:
        FormatError: ``train`` is neither a known value nor a function.
    """
    known = ("last", "all")
    if not callable(train) and train not in known:
        raise FormatError(
            f"unknown value {train!r} for train{did_you_mean(str(train), known)}; "
            f"expected {', '.join(known)} or a function"
        )
    if train == "last":
        return (*[False] * (len(messages) - 1), True)
    return tuple(
        # Copy the message, because the caller's ``train`` function may modify its argument.
        message["role"] == "assistant" and (not callable(train) or bool(train(index, deepcopy(message))))
        for index, message in enumerate(messages)
    )
