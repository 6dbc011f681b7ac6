"""Fine-tuning samples: the flat text a model is trained on, which of it is trained, and the forms that trainers read.

Trained is exactly what the assistant says and what ends its turn. Which parts those are was written down while they
were written; nothing is looked for in the text.

The forms, and where they are described:

- ``openai``: OpenAI's guide to supervised fine-tuning; the ``weight`` of an assistant's message is in its API reference
  (``FineTuneChatCompletionRequestAssistantMessage``).
- ``alpaca``, ``sharegpt``: ``data/README.md`` of LLaMA-Factory, with ``data/alpaca_en_demo.json`` and
  ``data/glaive_toolcall_en_demo.json``; several calls at once as ``src/llamafactory/data/formatter.py`` reads them.
- ``trl``, ``trl-text``: TRL's "Dataset formats and types", conversational and standard prompt-completion.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Self, TypeAlias, TypedDict, cast

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

# The label that PyTorch's losses, and so all trainers, leave out.
IGNORED = -100
# How byte-level tokens write a space.
_SPACE = "\u0120"


# Which answers of a conversation are trained; a function is asked with the index of a message and the message.
Train: TypeAlias = "Literal['last', 'all'] | Callable[[int, JsonObject], bool]"


class TrainingIds(NamedTuple):
    """A sample as token ids.

    Attributes:
        input_ids: The ids of the whole text.
        labels: For each token its id where it is trained, else -100.
        straddling: The indexes of the tokens that lie on a border of trained text, partly within and partly outside.
    """

    input_ids: list[int]
    labels: list[int]
    straddling: list[int]


class Token(NamedTuple):
    """A token of a sample. It belongs to the part of the text that it begins in.

    Attributes:
        id: Its id.
        text: Its characters in the text; a token with some bytes of a character has that character.
        message: The index of its message among those of the sample; None for markers between messages, and tools.
        slot: The slot that its text came from, as of :class:`~lazyprompt.Segment`.
        trusted: True if the developer or the model's own layout wrote it.
        trained: True if it is trained.
    """

    id: int
    text: str
    message: int | None
    slot: str
    trusted: bool
    trained: bool


class Features(TypedDict):
    """Features that trainers and the collators of transformers take."""

    input_ids: list[int]
    attention_mask: list[int]
    labels: list[int]


class _Placed(NamedTuple):
    """A token, its characters, whether it is trained, and whether it lies on a border of trained text."""

    id: int
    place: Span
    trained: bool
    straddles: bool


@read_only
@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A conversation to train a model with: as flat text and as messages.

    Args:
        parts: The parts of the text: trusted and untrusted in turn (``messages/prompt.py``).
        slots: The slot of each part.
        trained: Whether each part is trained.
        messages: The OpenAI dicts of the whole conversation, the answer the last of them.
        trained_messages: Whether each message is trained.
        tools: The tools as OpenAI dicts.
        masked: Ranges of characters in the trained parts that are not trained.
        unmatched: The patterns of a mask that match nowhere in the answers.
        part_messages: The index of the message of each part; None for markers, tools, and where that is not known.
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
        """The whole text: the prompt, the answer and what ends its turn."""
        return "".join(self.parts)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of the text in order, as those of a :class:`~lazyprompt.Rendered`."""
        return Rendered(self.parts, self.slots).segments

    @property
    def spans(self) -> tuple[Span, ...]:
        """The trained text as ranges of characters, from one index to another; neighbours are one range."""
        # What is masked lies in an answer, so that the borders of both take turns.
        borders = sorted(border for span in (*self.answers, *self.masked) for border in span)
        return tuple(span for span in zip(borders[::2], borders[1::2], strict=True) if span[0] < span[1])

    @property
    def answers(self) -> tuple[Span, ...]:
        """The spans as they are without a mask."""
        spans: list[Span] = []
        end = 0
        for part, trained in zip(self.parts, self.trained, strict=True):
            start, end = end, end + len(part)
            if trained and part:
                spans.append((spans.pop()[0] if spans and spans[-1][1] == start else start, end))
        return tuple(spans)

    def with_mask(self, mask: Mask) -> Self:
        """Return a copy in which some text inside the answers is not trained, in the place of what was masked before.

        Args:
            mask: A regular expression, a list of them, or a function that is given the text of an answer, with what
                ends its turn, and gives the ranges of characters in it. What matches is masked as a whole.

        Raises:
            FormatError: A pattern is no regular expression or takes too long, or a range is not in the answer.
        """
        return replace(self, **find_masked(self.text, self.answers, mask)._asdict())

    def labels(self, tokenizer: TokenizerLike) -> TrainingIds:
        """The token ids, and which of them are trained.

        A token is trained if, and only if, it begins inside trained text and holds none that is masked. Where all
        borders of trained text are borders of tokens that is exact; the tokens that lie on a border are reported. Text
        that is not trusted never becomes a special token. No id is added for a beginning or an end: the text has its
        own.

        Args:
            tokenizer: A tokenizer of the packages tokenizers or tiktoken, or a fast one of transformers.

        Returns:
            The ids, the labels, and the tokens that lie on a border.

        Raises:
            TokenizerError: It is no such tokenizer.
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
        """Return every token with its message, its origin, and if it is trained.

        Args:
            tokenizer: As in :meth:`labels`.

        Raises:
            TokenizerError: As in :meth:`labels`.
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
        """The message of each part; the markers in an answer are of its message."""
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
        """The sample as ``datasets`` keeps it, and the collators of transformers take it.

        Args:
            tokenizer: As in :meth:`labels`.

        Returns:
            The ids, an attention mask of ones, and the labels.

        Raises:
            TokenizerError: As in :meth:`labels`.
        """
        ids, labels, _ = self.labels(tokenizer)
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    def export(self, form: str) -> JsonObject:
        """The sample in a form that trainers read: one line of a JSONL file.

        Args:
            form: ``openai``, ``alpaca``, ``sharegpt``, ``trl`` or ``trl-text``.

        Returns:
            A new dict that shares nothing with the sample.

        Raises:
            FormatError: The form is unknown, or has no place for something in the sample.
        """
        if form not in _FORMS:
            raise FormatError(
                f"form {form!r} is unknown{did_you_mean(str(form), _FORMS)}; known are {', '.join(_FORMS)}"
            )
        if self.masked and form != "trl-text":
            _refuse(form, "text inside an answer that is masked", "use features(), or trl-text")
        return _FORMS[form](self)

    def __hash__(self) -> int:
        return hash(self.parts)


def _places(encoded: Encoded, text: str, tokenizer: TokenizerLike) -> Iterator[Span]:
    """From where to where each token goes in the text.

    Some byte-level tokenizers leave the spaces that a token begins with out of its offsets (``trim_offsets``).
    """
    token_of = getattr(getattr(tokenizer, "backend_tokenizer", tokenizer), "id_to_token", None)
    done = 0
    for made, (begin, end) in zip(*encoded, strict=True):
        spaces = 0
        if begin > done and token_of is not None and text[done:begin].isspace():
            token = cast("str | None", token_of(made)) or ""
            spaces = len(token) - len(token.lstrip(_SPACE))
        yield min(begin, max(done, begin - spaces)), end
        done = max(done, end)


# What to do where a form trains all answers or none.
_TRAIN_ALL = 'give train="all"; with mask_history set LLaMA-Factory then trains the last answer alone'
_SHAREGPT = "export it as sharegpt"
_OPENAI = "export it as openai: TRL trains what the assistant says in such messages with assistant_only_loss=True"
# The keys of messages that LLaMA-Factory's forms can show. Which result is whose, these tell by their order.
_KEYS = {"role", "content", "weight", "tool_calls", "tool_call_id"}
_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


def _refuse(form: str, what: str, instead: str) -> NoReturn:
    raise FormatError(f"the {form} form has no place for {what}; {instead}")


def _copies(sample: TrainingSample) -> list[JsonObject]:
    """Copies of the messages, without a weight that came with one: what is trained the sample says."""
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
        # The empty turn that the documents print for AlpacaPrompter; the instruction stands above it.
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
    """A turn in LLaMA-Factory's forms."""

    speaker: str
    value: str


def _turns(sample: TrainingSample, form: str) -> tuple[str, list[_Turn]]:
    """The system text and the turns, which LLaMA-Factory wants of the user's side and the model's side in turn."""
    system = ""
    turns: list[_Turn] = []
    for index, (message, trained) in enumerate(zip(sample.messages, sample.trained_messages, strict=True)):
        where = f"messages[{index}]"
        role = message["role"]
        # A tool's name is that of its call.
        if other := [key for key in message if key not in _KEYS and not (key == "name" and role == "tool")]:
            _refuse(form, f"the {other[0]} of {where}", "leave it out")
        if role in SYSTEM_ROLES and not index:
            system = _text(message, form, where)
            continue
        if role == "assistant" and not turns and index + 1 == len(sample.messages):
            # There is no text beside the instruction, which is then the user's turn.
            system, turns = "", [_Turn("human", system)]
        if role in SYSTEM_ROLES or (role == "assistant") != len(turns) % 2:
            _refuse(form, f"the role {role!r} of {where} at its place", "the user's turns and the model's go in turn")
        if role == "assistant" and not trained:
            _refuse(form, f"an answer that is not trained ({where})", _TRAIN_ALL)
        calls = message.get("tool_calls")
        if calls:
            if message.get("content"):
                _refuse(form, f"text beside a call ({where})", "leave one of them out")
            turns.append(_Turn("function_call", _calls(cast("Sequence[JsonObject]", calls))))
        else:
            turns.append(_Turn(_SPEAKERS[str(role)], _text(message, form, where)))
    return system, turns


def _text(message: JsonObject, form: str, where: str) -> str:
    content = message["content"]
    if not isinstance(content, str):
        _refuse(form, f"the parts of {where}.content", "give text")
    return content


def _calls(calls: Sequence[JsonObject]) -> str:
    """Calls as LLaMA-Factory reads them: one as an object, several as a list."""
    functions = [_with_object(cast("JsonObject", call["function"])) for call in calls]
    written: list[Json] = [{"name": function["name"], "arguments": function["arguments"]} for function in functions]
    return to_json(written if len(written) > 1 else written[0])


def _with_object(function: JsonObject) -> JsonObject:
    """A function that is called, its arguments no JSON text but what that means."""
    return function | {"arguments": json.loads(str(function["arguments"]))}


def _trl(sample: TrainingSample) -> JsonObject:
    form = "trl"
    if not any(sample.trained_messages):
        _refuse(form, "a conversation of which nothing is trained", "leave the sample out")
    first = sample.trained_messages.index(True)
    if not all(sample.trained_messages[first:]):
        after = sample.trained_messages.index(False, first)
        _refuse(form, f"messages[{after}], which is not trained, behind messages[{first}], which is", _OPENAI)
    messages = [_for_templates(message) for message in _copies(sample)]
    prompt: list[Json] = [*messages[:first]]
    completion: list[Json] = [*messages[first:]]
    return _with_tools({"prompt": prompt, "completion": completion}, sample)


def _for_templates(message: JsonObject) -> JsonObject:
    """A message as TRL documents them, and chat templates take them: arguments are objects, no content is no key."""
    calls = cast("Sequence[JsonObject] | None", message.get("tool_calls"))
    if not calls:
        return message
    written: list[Json] = [{**call, "function": _with_object(cast("JsonObject", call["function"]))} for call in calls]
    return {**{key: value for key, value in message.items() if value is not None}, "tool_calls": written}


def _trl_text(sample: TrainingSample) -> JsonObject:
    form, text, spans = "trl-text", sample.text, sample.spans
    if not spans:
        _refuse(form, "a text of which nothing is trained", "leave the sample out")
    (start, end), *others = spans
    # White space behind the answer would keep TRL from seeing that the answer ends with its end of text.
    if others or text[end:].strip():
        _refuse(form, "text that is not trained behind text that is", "use features()")
    return {"prompt": text[:start], "completion": text[start:end]}


_FORMS: dict[str, Callable[[TrainingSample], JsonObject]] = {
    "openai": _openai,
    "alpaca": _alpaca,
    "sharegpt": _sharegpt,
    "trl": _trl,
    "trl-text": _trl_text,
}


def trained_messages(messages: Sequence[JsonObject], train: Train) -> tuple[bool, ...]:
    """Find the messages of a conversation that are trained.

    Args:
        messages: The OpenAI dicts of the conversation; the last of them is the answer.
        train: The answers that are.

    Returns:
        Whether each message is trained.

    Raises:
        FormatError: There is no such choice.
    """
    known = ("last", "all")
    if not callable(train) and train not in known:
        raise FormatError(
            f"train {train!r} is unknown{did_you_mean(str(train), known)}; known are {', '.join(known)}, or a function"
        )
    if train == "last":
        return (*[False] * (len(messages) - 1), True)
    return tuple(
        # A function may do with a message what it likes.
        message["role"] == "assistant" and (not callable(train) or bool(train(index, deepcopy(message))))
        for index, message in enumerate(messages)
    )
