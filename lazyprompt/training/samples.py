"""Fine-tuning samples: the flat text of a conversation, the parts of it to train, and exports for trainers.

The trained text is the assistant's text and the markers that end its turn. Rendering records these parts; the text is
never searched for them.

The forms, and their sources:

- ``openai``: OpenAI's guide to supervised fine-tuning. The ``weight`` of an assistant's message is in its API reference
  (``FineTuneChatCompletionRequestAssistantMessage``).
- ``alpaca``, ``sharegpt``: ``data/README.md`` of LLaMA-Factory, with ``data/alpaca_en_demo.json`` and
  ``data/glaive_toolcall_en_demo.json``. Parallel calls are those of ``src/llamafactory/data/formatter.py``.
- ``trl``, ``trl-text``: TRL's "Dataset formats and types", conversational and standard prompt-completion.
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

# The label that PyTorch's losses, and so all trainers, ignore.
IGNORED = -100
# The space in byte-level tokens.
_SPACE = "\u0120"


# The answers of a conversation to train; a function receives the index of each message and the message.
Train: TypeAlias = "Literal['last', 'all'] | Callable[[int, JsonObject], bool]"


class TrainingIds(NamedTuple):
    """A sample as token ids.

    Attributes:
        input_ids: The ids of the whole text.
        labels: The id of each trained token, and -100 for the others.
        straddling: The indices of the tokens that are partly inside and partly outside of trained text.
    """

    input_ids: list[int]
    labels: list[int]
    straddling: list[int]


class Token(NamedTuple):
    """A token of a sample. It belongs to the part of the text in which it begins.

    Attributes:
        id: The token id.
        text: The token's characters; a token with some bytes of a character has the whole character.
        message: The index of the message in the sample; None for markers between messages, and for tools.
        slot: The slot of the text; see :class:`~lazyprompt.Segment`.
        trusted: True for the developer's text and the model's markers.
        trained: True for a trained token.
    """

    id: int
    text: str
    message: int | None
    slot: str
    trusted: bool
    trained: bool


class Features(TypedDict):
    """The input of trainers and of transformers' collators."""

    input_ids: list[int]
    attention_mask: list[int]
    labels: list[int]


class _Placed(NamedTuple):
    """A token with its place in the text.

    Attributes:
        id: The token id.
        place: The range of characters.
        trained: True for a trained token.
        straddles: True if the token is partly inside and partly outside of trained text.
    """

    id: int
    place: Span
    trained: bool
    straddles: bool


@read_only
@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A conversation for training a model, as flat text and as messages.

    Args:
        parts: The parts of the text, alternately trusted and untrusted (``messages/prompt.py``).
        slots: The slot of each part.
        trained: True for each part to train.
        messages: The OpenAI dicts of the whole conversation; the answer is the last one.
        trained_messages: True for each message to train.
        tools: The tools as OpenAI dicts.
        masked: The character ranges in trained parts that are excluded from training.
        unmatched: The patterns of the mask that match in no answer.
        part_messages: The index of each part's message; None for markers and tools, and if it is unknown.
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
        """The whole text: the prompt, the answer, and the markers that end its turn."""
        return "".join(self.parts)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of the text, in order; see :class:`~lazyprompt.Rendered`."""
        return Rendered(self.parts, self.slots).segments

    @property
    def spans(self) -> tuple[Span, ...]:
        """The character ranges of the trained text; adjacent ranges are merged."""
        # Masked ranges are inside of answers, so the sorted borders alternate between begin and end.
        borders = sorted(border for span in (*self.answers, *self.masked) for border in span)
        return tuple(span for span in zip(borders[::2], borders[1::2], strict=True) if span[0] < span[1])

    @property
    def answers(self) -> tuple[Span, ...]:
        """The character ranges of the answers, with their masked text."""
        spans: list[Span] = []
        end = 0
        for part, trained in zip(self.parts, self.trained, strict=True):
            start, end = end, end + len(part)
            if trained and part:
                spans.append((spans.pop()[0] if spans and spans[-1][1] == start else start, end))
        return tuple(spans)

    def with_mask(self, mask: Mask) -> Self:
        """Return a copy with another mask, which excludes text inside the answers from training.

        Args:
            mask: A regular expression, a list of them, or a function. The function receives the text of an answer,
                including the markers that end its turn, and returns the character ranges to mask. A pattern masks its
                whole match.

        Raises:
            FormatError: A pattern is invalid or takes too long, or a range is outside of the answer.
        """
        return replace(self, **find_masked(self.text, self.answers, mask)._asdict())

    def labels(self, tokenizer: TokenizerLike) -> TrainingIds:
        """Return the token ids and their labels.

        A token is trained if it begins inside trained text and contains no masked text. Tokens across a border of
        trained text are reported. Untrusted text never becomes a special token. No tokens are added at the beginning
        or end; the text contains its own.

        Args:
            tokenizer: A tokenizer of the packages tokenizers or tiktoken, or a fast tokenizer of transformers.

        Returns:
            The ids, the labels, and the tokens across a border.

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
        """Return each token with its message, its slot, and whether it is trained.

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
        """Return the message of each part; markers in an answer belong to its message."""
        messages = [*(self.part_messages or [None] * len(self.parts))]
        for trained, group in groupby(range(len(self.parts)), key=self.trained.__getitem__):
            turn = [*group]
            current = next((messages[at] for at in turn if messages[at] is not None), None)
            for at in turn if trained else ():
                current = messages[at] = current if messages[at] is None else messages[at]
        return messages

    def _placed(self, tokenizer: TokenizerLike) -> Iterator[_Placed]:
        """Yield each token with its place."""
        from lazyprompt.messages.encoding import encode  # noqa: PLC0415 - only ids need it

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
        """Export the sample for a trainer, as one line of a JSONL file.

        Args:
            form: ``openai``, ``alpaca``, ``sharegpt``, ``trl`` or ``trl-text``.

        Returns:
            A new dict that shares no mutable object with the sample.

        Raises:
            FormatError: The form is unknown, or can't express part of the sample.
        """
        if form not in _FORMS:
            raise FormatError(
                f"form {form!r} is unknown{did_you_mean(str(form), _FORMS)}; known are {', '.join(_FORMS)}"
            )
        if self.masked and form != "trl-text":
            _refuse(form, "masked text inside an answer", "use features(), or trl-text")
        return _FORMS[form](self)

    def __hash__(self) -> int:
        return hash(self.parts)


def _places(encoded: Encoded, text: str, tokenizer: TokenizerLike) -> Iterator[Span]:
    """Yield the range of each token in the text.

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


# Advice for forms that train either all answers or none.
_TRAIN_ALL = 'give train="all"; with mask_history set LLaMA-Factory then trains the last answer alone'
_SHAREGPT = "export it as sharegpt"
_OPENAI = "export it as openai: TRL trains the assistant's messages of this form with assistant_only_loss=True"
# The keys of messages that LLaMA-Factory's forms can express. Results are matched to calls by their order.
_KEYS = {"role", "content", "weight", "tool_calls", "tool_call_id"}
_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


def _refuse(form: str, what: str, instead: str) -> NoReturn:
    raise FormatError(f"the {form} form can't express {what}; {instead}")


def _copies(sample: TrainingSample) -> list[JsonObject]:
    """Return copies of the messages without weights; the sample decides what is trained."""
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
            _refuse(form, f"a tool's call or result (turn {index})", _SHAREGPT)
    values: list[Json] = [turn.value for turn in turns]
    *history, (instruction, output) = zip(values[0::2], values[1::2], strict=True)
    if not instruction and not history:
        # AlpacaPrompter's documented output has an empty user turn, and the instruction as system text.
        system, instruction = "", system
    pairs: list[Json] = [[*pair] for pair in history]
    return {"instruction": instruction, "input": "", "output": output, "system": system, "history": pairs}


def _sharegpt(sample: TrainingSample) -> JsonObject:
    form = "sharegpt"
    system, turns = _turns(sample, form)
    functions = [tool.get("function") if tool.get("type") == "function" else None for tool in sample.tools]
    for tool, function in zip(sample.tools, functions, strict=True):
        if function is None:
            _refuse(form, f"a tool of type {tool.get('type')!r}", "leave it out")
    conversations: list[Json] = [{"from": turn.speaker, "value": turn.value} for turn in turns]
    tools = to_json(functions) if functions else ""
    return {"conversations": conversations, "system": system, "tools": tools}


class _Turn(NamedTuple):
    """A turn in one of LLaMA-Factory's formats."""

    speaker: str
    value: str


def _turns(sample: TrainingSample, form: str) -> tuple[str, list[_Turn]]:
    """Return the system text and the turns, which must alternate between user and model for LLaMA-Factory."""
    system = ""
    turns: list[_Turn] = []
    for index, (message, trained) in enumerate(zip(sample.messages, sample.trained_messages, strict=True)):
        where = f"messages[{index}]"
        role = message["role"]
        # The name in a tool message is implied by its call.
        if other := [key for key in message if key not in _KEYS and not (key == "name" and role == "tool")]:
            _refuse(form, f"the {other[0]} of {where}", "leave it out")
        if role in SYSTEM_ROLES and not index:
            system = _text(message, form, where)
            continue
        if role == "assistant" and not turns and index + 1 == len(sample.messages):
            # Without other text, the instruction is the user's turn.
            system, turns = "", [_Turn("human", system)]
        if role in SYSTEM_ROLES or (role == "assistant") != len(turns) % 2:
            _refuse(form, f"the role {role!r} of {where} in this position", "alternate between user and assistant")
        if role == "assistant" and not trained:
            _refuse(form, f"an answer that is not trained ({where})", _TRAIN_ALL)
        calls = _tool_calls(message)
        if calls:
            if message.get("content"):
                _refuse(form, f"text and a call in one message ({where})", "leave one of them out")
            turns.append(_Turn("function_call", _calls(calls)))
        else:
            turns.append(_Turn(_SPEAKERS[str(role)], _text(message, form, where)))
    return system, turns


def _text(message: JsonObject, form: str, where: str) -> str:
    content = message["content"]
    if not isinstance(content, str):
        _refuse(form, f"the parts of {where}.content", "give text")
    return content


def _calls(calls: Sequence[JsonObject]) -> str:
    """Write calls for LLaMA-Factory: one as an object, several as a list."""
    functions = [_parse_arguments(call) for call in calls]
    written: list[Json] = [{"name": function["name"], "arguments": function["arguments"]} for function in functions]
    return to_json(written if len(written) > 1 else written[0])


def _tool_calls(message: JsonObject) -> list[JsonObject]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _parse_arguments(call: JsonObject) -> JsonObject:
    """Return the function of a call, with its arguments parsed."""
    function = call["function"]
    return {**function, "arguments": json.loads(str(function["arguments"]))} if isinstance(function, dict) else {}


def _trl(sample: TrainingSample) -> JsonObject:
    form = "trl"
    if not any(sample.trained_messages):
        _refuse(form, "a conversation without trained text", "leave the sample out")
    first = sample.trained_messages.index(True)
    if not all(sample.trained_messages[first:]):
        after = sample.trained_messages.index(False, first)
        _refuse(form, f"messages[{after}], which is not trained, after messages[{first}], which is", _OPENAI)
    messages = [_for_templates(message) for message in _copies(sample)]
    prompt: list[Json] = [*messages[:first]]
    completion: list[Json] = [*messages[first:]]
    return _with_tools({"prompt": prompt, "completion": completion}, sample)


def _for_templates(message: JsonObject) -> JsonObject:
    """Return a message in TRL's documented form, for chat templates: with parsed arguments and without null content."""
    calls = _tool_calls(message)
    if not calls:
        return message
    written: list[Json] = [{**call, "function": _parse_arguments(call)} for call in calls]
    return {**{key: value for key, value in message.items() if value is not None}, "tool_calls": written}


def _trl_text(sample: TrainingSample) -> JsonObject:
    form, text, spans = "trl-text", sample.text, sample.spans
    if not spans:
        _refuse(form, "a conversation without trained text", "leave the sample out")
    (start, end), *others = spans
    # With white space after the answer, TRL would not recognize that it ends with the end-of-text token.
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
    """Select the messages of a conversation to train.

    Args:
        messages: The OpenAI dicts of the conversation; the last one is the answer.
        train: The selection.

    Returns:
        True for each message to train.

    Raises:
        FormatError: The selection is unknown.
    """
    known = ("last", "all")
    if not callable(train) and train not in known:
        raise FormatError(
            f"train {train!r} is unknown{did_you_mean(str(train), known)}; known are {', '.join(known)}, or a function"
        )
    if train == "last":
        return (*[False] * (len(messages) - 1), True)
    return tuple(
        # A function may modify the message.
        message["role"] == "assistant" and (not callable(train) or bool(train(index, deepcopy(message))))
        for index, message in enumerate(messages)
    )
