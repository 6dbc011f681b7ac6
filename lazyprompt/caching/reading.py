"""Conversion of a model call to a single text, so that prefixes of calls can be compared."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.json import is_list, is_mapping, is_sequence
from lazyprompt._base.secret import shown
from lazyprompt.errors import FormatError
from lazyprompt.messages.prompt import Prompt, Rendered
from lazyprompt.prompters.prompter import Prompter

if TYPE_CHECKING:
    from lazyprompt.caching.rules import CacheRules
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.tokens.counter import TokenCounter

# Control characters that don't occur in prompts, and that separate the messages and tools in the text of a model call.
_BEGIN, _ROLE_END, END = "\x1e", "\x1f", "\x1d"
_SYSTEM_KEYS = ("system", "system_instruction", "systemInstruction", "instructions")
MESSAGE_KEYS = ("messages", "contents", "input", "prompt")
_ANSWERS = frozenset(("assistant", "model", "tool", "function", "function_call", "function_call_output"))
_SYSTEM = ("system", "developer")
_TEXT_KINDS = ("text", "input_text", "output_text")
# The keys that mark cache breakpoints in Anthropic and OpenAI requests.
_MARKS = ("cache_control", "prompt_cache_breakpoint")
_NEWLINE = ("\n", "instruction")
Form: TypeAlias = "Mapping[str, Any]"
Spans: TypeAlias = "list[tuple[str, str]]"


class PromptCall(NamedTuple):
    """A model call to simulate.

    Attributes:
        prompt: A payload, a :class:`~lazyprompt.Rendered` prompt, or a prompter or prompt file to fill with the input,
            history and tools.
        input: The input. :meth:`lazyprompt.Prompter.generate_prompt` also documents history and tools.
        history: The earlier messages.
        tools: The tools.
        time: The time of the call in seconds since an arbitrary epoch.
        conversation: The conversation id, if known.
        model: The model; by default, the model in the payload.
    """

    prompt: object
    input: object = None
    history: HistoryLike | None = None
    tools: ToolsLike = None
    time: float | None = None
    conversation: str | None = None
    model: str | None = None


class CallPart(NamedTuple):
    """A part of a call with its own token count, such as a tool, a system text, a message or a content block.

    Attributes:
        start: The index in the call's text where the part starts, with its framing: the role and delimiters.
        begin: The index in the call's text where the part's content starts, after the part's role and delimiters.
        end: The index in the call's text after the part's last character.
        message: The message index, or None if the part is outside the messages.
        slot: The slot that the part's whole text comes from, or None if unknown.
        tokens: A function that counts the part's tokens, including its framing (role and delimiters).
        is_framed: True if framing adds tokens to the part's content.
        is_signed: True for a reasoning block whose signature covers all preceding content.
    """

    start: int
    begin: int
    end: int
    message: int | None
    slot: str | None
    tokens: Callable[[], int]
    is_framed: bool = True
    is_signed: bool = False


def call_of(given: object) -> PromptCall:
    """Convert a payload, a :class:`~lazyprompt.Rendered` prompt or a module record to a call."""
    if isinstance(given, PromptCall):
        return given
    payload = getattr(given, "payload", None)
    if is_mapping(payload):
        return PromptCall(payload, model=getattr(given, "model", None))
    return PromptCall(given)


def read_call(call: PromptCall, rules: CacheRules, counter: TokenCounter) -> CallText:
    """Convert a model call to a single text, for comparison with other calls.

    Args:
        call: The model call.
        rules: The rules of the simulated cache.
        counter: The token counter.

    Raises:
        FormatError: The prompt has an unsupported type or can't be rendered.
    """
    prompt: object = call.prompt
    owner = prompt if isinstance(prompt, Prompter) else getattr(prompt, "prompter", None)
    spans: tuple[Spans, Spans] | None = None
    model = call.model
    if not model and is_mapping(prompt) and isinstance(named := prompt.get("model"), str):
        model = named
    rules = rules.of(model)
    if isinstance(owner, Prompter):
        if rules.form == "flat":
            prompt = owner.render(call.input, call.history, call.tools, model=model)
        else:
            # Don't pass the model's name in OpenAI's format, because it would select the default system text of a model
            # family. OnlineChatModule doesn't pass it either.
            target = owner.target(rules.form, None if rules.form == "openai" else model)
            filled, _ = owner.fitted(owner.fill(call.input, call.history, call.tools), target)
            spans = _spans_of(owner, filled)
            prompt = target.render(filled)
    if isinstance(prompt, str | Rendered):
        return CallText(rules, counter, model).write_flat(prompt)
    if is_mapping(prompt):
        payload: dict[str, Any] = {**prompt}
        # Google's client nests the system text and tools in "config"; DashScope nests the messages in "input".
        for key in ("config", "input"):
            if isinstance(payload.get(key), Mapping):
                payload |= payload.pop(key)
        if isinstance(text := payload.get("prompt"), str) and not any(map(payload.get, _SYSTEM_KEYS)):
            return CallText(rules, counter, model).write_flat(text)
        if any(key in payload for key in MESSAGE_KEYS):
            return CallText(rules, counter, model).write_payload(payload, spans)
    raise FormatError(
        f"a call must be a payload with one of the keys {', '.join(MESSAGE_KEYS)}, a Rendered, or a PromptCall with a "
        f"prompter, not {type(call.prompt).__name__}"
    )


def _spans_of(prompter: Prompter, prompt: Prompt) -> tuple[Spans, Spans]:
    """Return two lists of (text, slot) pairs: one for the system text and one for the user turn."""
    system = prompter.made_of.system if prompt.system is None else prompt.system
    own = [*zip(prompt.instruction.parts, prompt.instruction.slots, strict=True)]
    joint = [_NEWLINE] if system and any(prompt.instruction.parts) else []
    user = [*zip(prompt.user.parts, prompt.user.slots, strict=True)]
    return [(system, "system"), *joint, *own], [*user, (prompt.input or "", "input")]


class CallText:
    """A model call as a single text, for comparison with other calls.

    Args:
        rules: The cache rules for the model.
        counter: The token counter.
        model: The model.

    Attributes:
        parts: The parts of the call's text, in text order.
        slots: The (start index, slot) pairs, in text order; empty if the slots are unknown.
        past: The index in the call's text after the last response or tool result.
        messages: The number of messages.
        overhead: The number of tokens in a call without messages.
    """

    def __init__(self, rules: CacheRules, counter: TokenCounter, model: str | None) -> None:
        self.rules, self.model = rules, model
        self.parts: list[CallPart] = []
        self.slots: list[tuple[int, str]] = []
        self.past = self.messages = self.overhead = 0
        self._counter = counter
        self._texts: list[str] = []
        self._at = 0
        self._put("model", model or "", None, "model", int)

    @cached_property
    def text(self) -> str:
        """The text of the model call, including each part's framing (role and delimiters)."""
        return "".join(self._texts)

    def write_flat(self, prompt: str | Rendered) -> CallText:
        """Add flat prompt text as a single part, and return ``self``."""
        text = str(prompt)
        self._put("", text, None, None, partial(self._counter.count_text, text), end="")
        self.parts[-1] = self.parts[-1]._replace(is_framed=False)
        if isinstance(prompt, Rendered):
            at = self.parts[-1].begin
            for part, slot in zip(prompt.parts, prompt.slots, strict=True):
                if part:
                    self.slots.append((at, slot))
                    at += len(part)
                    self.past = at if slot == "history" else self.past
        return self

    def write_payload(self, payload: Form, spans: tuple[Spans, Spans] | None) -> CallText:
        """Add the parts of a payload, and return this object.

        Args:
            payload: The payload.
            spans: The (text, slot) pairs of the system text and those of the last turn; None if the slots are unknown.
        """
        counter = self._counter
        self.overhead = counter.count([])
        if payload.get("response_format"):
            text = _json(payload["response_format"])
            self._put("response_format", text, None, "response_format", partial(counter.count_text, text))
        tools = [*map(_unmarked, _objects(payload.get("tools"), "tool"))]
        for at, tool in enumerate(tools):
            self._put("tool", _json(tool), None, "tools", partial(self._count_tool, tools, at))
        for key in _SYSTEM_KEYS:
            if payload.get(key):
                content = payload[key] if isinstance(payload[key], Mapping) else {"content": payload[key]}
                self._message({"role": "system", **content}, None, spans)
        given: object = next(payload[key] for key in MESSAGE_KEYS if key in payload)
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given, "message")
        self.messages = len(messages)
        for at, message in enumerate(messages):
            self._message(message, at, spans)
        if spans is not None:
            self.slots = [*self._with_slots(spans)]
        return self

    def part_at(self, index: int) -> CallPart:
        """Return the part that contains the character at an index of the call's text."""
        return self.parts[bisect_right([each.start for each in self.parts], index) - 1]

    def count_signed_after(self, index: int) -> int:
        """Return the number of signed reasoning blocks that end after an index in the text."""
        return sum(each.is_signed for each in self.parts if each.end > index)

    def _put(
        self,
        role: str,
        text: str,
        message: int | None,
        slot: str | None,
        count: Callable[[], int],
        end: str = END,
        *,
        is_signed: bool = False,
    ) -> None:
        frame = f"{_BEGIN}{role}{_ROLE_END}"
        begin = self._at + len(frame)
        self._texts += (frame, text, end)
        stop = begin + len(text) + len(end)
        self.parts.append(CallPart(self._at, begin, stop, message, slot, count, is_signed=is_signed))
        self._at = stop

    def _message(self, message: Form, at: int | None, spans: tuple[Spans, Spans] | None) -> None:
        """Append a message's text or content blocks, and then its other fields, to the call's text."""
        key = "parts" if "parts" in message else "content"
        content: object = message.get(key)
        role = str(message.get("role") or message.get("type") or "")
        rest = {name: value for name, value in message.items() if name not in ("role", key, *_MARKS) and value}
        behind = f"{_ROLE_END}{_json(rest)}" if rest else ""
        system = role in _SYSTEM
        slot = "system" if system else None if spans is None else "history"
        if is_list(content) and content:
            blocks: list[Form] = [part if is_mapping(part) else {"text": str(part)} for part in content]
            for index, block in enumerate(blocks):
                text = block.get("text")
                is_text = isinstance(text, str) and block.get("type", "text") in _TEXT_KINDS
                own = shown(text) if is_text else _json(_unmarked(block))
                alone = {**message, key: [block]} if index == 0 else {"role": role, key: [block]}
                count = partial(self._count_block, alone, None if index == 0 else {"role": role, key: []})
                own += behind if index == len(blocks) - 1 else ""
                self._put(role if index == 0 else "", own, at, slot, count, is_signed=_is_signed(block))
        else:
            own = shown(content) if isinstance(content, str) else _json(message[key]) if content else ""
            count = partial(self._count_block, message)
            self._put(role, own + behind, at, slot, count, is_signed=_is_signed(message))
        if role in _ANSWERS:
            self.past = self._at

    def _count_block(self, message: Form, empty: Form | None = None) -> int:
        """Return the number of tokens that a message adds to a call, or that a block adds to a message."""
        return self._counter.count([message]) - (self.overhead if empty is None else self._counter.count([empty]))

    def _count_tool(self, tools: list[Form], at: int) -> int:
        before = self._counter.count([], tools[:at]) if at else self.overhead
        return self._counter.count([], tools[: at + 1]) - before

    def _with_slots(self, spans: tuple[Spans, Spans]) -> Iterator[tuple[int, str]]:
        """Yield the start index of each slot's text in the call's text, and the slot's name.

        ``spans`` contains the (text, slot) pairs at the start of the system text, and those at the end of the call's
        last part.
        """
        system, user = spans
        last = len(self.parts) - 1
        first = next((at for at, part in enumerate(self.parts) if part.slot == "system"), None)
        for at, part in enumerate(self.parts):
            known = system if at == first else user if at == last else []
            joined = "".join(each for each, _ in known)
            # ``_texts`` contains three strings for each part: the separators with the role, the contents, and the end
            # separator.
            text = self._texts[3 * at + 1]
            before = 0 if at == first else len(text) - len(joined)
            if not joined or not text.startswith(joined, before) or before:
                yield part.start, part.slot or "history"
            if joined and text.startswith(joined, before):
                begin = part.begin + before
                for each, slot in known:
                    if each:
                        yield begin, slot
                        begin += len(each)


def _objects(values: object, what: str) -> list[Form]:
    """Return a list of objects, wrapping a single object in a list.

    Raises:
        FormatError: An item is not an object.
    """
    given = values if is_sequence(values) else [values] if values else []
    found: list[Form] = []
    for at, each in enumerate(given):
        if not is_mapping(each):
            raise FormatError(f"{what} {at} must be an object, not {type(each).__name__}")
        found.append(each)
    return found


def _is_signed(block: Form) -> bool:
    """Return True for a signed Anthropic thinking block or an OpenAI reasoning item."""
    kind = block.get("type")
    return kind in ("redacted_thinking", "reasoning") or (kind == "thinking" and bool(block.get("signature")))


def _unmarked(block: Form) -> Form:
    return {key: value for key, value in block.items() if key not in _MARKS}


def _json(value: object) -> str:
    return json.dumps(shown(value), ensure_ascii=False, default=str)


def until_separator(text: str, marks: Iterable[str] = (_BEGIN, _ROLE_END, END)) -> str:
    """Return the part of a text before the first separator."""
    for mark in marks:
        text = text.partition(mark)[0]
    return text
