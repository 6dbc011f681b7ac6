"""Finds the text that a chat template writes after a response, if the messages before the response are known.

The chat is rendered with several placeholder responses and the new messages. The text before the response must equal
the engine's prompt. The text after the response must be the same for all placeholder responses, with and without
reasoning. If the prompt and the text after the response meet these conditions, the template writes the same text after
any response. The check accepts a template that removes reasoning from earlier turns, because the bridge keeps the
engine's ids, which contain that reasoning.
"""

from __future__ import annotations

import re
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt.chat_templates.bridge_proof import (
    MARKS,
    Thought,
    UnprovenError,
    calls_for,
    results_in,
    thought_in,
    without_space,
)
from lazyprompt.chat_templates.traced import common_prefix, common_start
from lazyprompt.messages.encoding import TokenizerLike, backend_of, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.chat_templates.untrusted import Rendering

# gpt-oss writes reasoning as a separate message.
_MARKS = (("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>"), *(pair for pair in MARKS if pair[0]))
_THOUGHTS = re.compile(
    "|".join(f"{re.escape(opening)}.*?{re.escape(closing)}" for opening, closing in _MARKS), re.DOTALL
)
_OPENED = re.compile(f"(?:{'|'.join(re.escape(opening) for opening, _ in _MARKS)})\\Z")
_SHOWN = 40
# The index of the placeholder response that contains reasoning.
_THINKS = 2


class Behind(NamedTuple):
    """The text that a template writes after a response.

    Attributes:
        prompt: The prompt as alternating trusted and untrusted parts.
        parts: The text after the response as alternating trusted and untrusted parts.
        common: The text that the template writes directly after the response, whether or not new messages follow.
        shared: The longest suffix of ``common`` that the template writes after every placeholder response.
    """

    prompt: Sequence[str]
    parts: Sequence[str]
    common: str
    shared: str


def behind_answer(rendering: Rendering, messages: Chat, new: Chat, answer: str, *, calls_only: bool) -> Behind:
    """Render the text that the template writes after a response.

    Args:
        rendering: The template and its variables, with ``add_generation_prompt=True``.
        messages: The messages of the prompt.
        new: The messages after the response.
        answer: The text of the completion.
        calls_only: True if the response begins with a tool call.

    Raises:
        UnprovenError: New messages change the rendered prompt, or the text after the response depends on the response.
    """
    prompt, ended = rendering.traced(messages), rendering.but(add_generation_prompt=False).given
    begin = len(common_prefix(rendering.template.run(messages, ended), prompt.text))
    thought = thought_in(without_space(prompt.text[begin:] + answer))
    if thought is Thought.OPEN:
        raise UnprovenError("the completion ends before its reasoning is closed")
    whole = _bare(prompt.text)
    results = new[: results_in(str(message["role"]) for message in new)]
    found: list[Behind] = []
    for at in range(_THINKS + (thought is Thought.WHOLE)):
        number = next(each for each in count(907_351 + at, 13) if str(each) not in f"{prompt.text}{new}")
        silent = bool(results) and (calls_only or at == _THINKS)
        value = number if at else f"verbum {number}"
        message = _answer(rendering.template, "" if silent else f"dictum {number}", results, {"at": value}, at)
        last = rendering.template.run([*messages, message], ended)
        traces = rendering.traced([*messages, message, *new])
        if traces.note:
            raise UnprovenError(traces.note)
        times = len(results) + (not silent)
        if not last.count(str(number)) == traces.text.count(str(number)) == times:
            missing = "tool calls" if results else "the text of assistant messages"
            raise UnprovenError(f"the template does not render {missing}")
        end, end_last = (text.rfind(str(number)) + len(str(number)) for text in (traces.text, last))
        before = _bare(traces.text[:end])
        for written in (whole, _bare(last[:end_last])):
            if not before.startswith(written):
                raise UnprovenError(_difference("new messages change the prompt: the template writes", before, written))
        common = common_start(traces.text[end:], last[end_last:])
        begun = accumulate(map(len, traces.parts), initial=0)
        parts = [part[max(end - start, 0) :] for part, start in zip(traces.parts, begun, strict=False)]
        found.append(Behind(prompt.parts, parts, common, common))
    shared = common_prefix(*(each.common[::-1] for each in found))[::-1]
    if len({"".join(each.parts)[len(each.common) - len(shared) :] for each in found}) > 1:
        raise UnprovenError("the text that the template writes after a response depends on the response")
    if results:
        # A tool call without arguments contains no placeholder number, so check only that its turn ends like the other
        # turns.
        message = _answer(rendering.template, "", results, {}, 0)
        tail = "".join(found[0].parts)[len(found[0].common) :]
        turn = rendering.traced([*messages, message, *new]).text.removesuffix(tail)
        shared = common_prefix(shared[::-1], turn[::-1])[::-1]
    return found[0]._replace(shared=shared)


def _answer(
    template: ChatJinja, content: str, results: Chat, arguments: Mapping[str, object], at: int
) -> Mapping[str, Any]:
    """Create a placeholder response with a tool call for each tool result."""
    message: dict[str, Any] = {"role": "assistant", "content": template.content(content)}
    if results:
        message["tool_calls"] = [
            {"id": made, "type": "function", "function": {"name": name, "arguments": {**arguments}}}
            for made, name in calls_for(results, 90_000 - 10_000 * at)
        ]
    if at == _THINKS:
        message |= {"reasoning_content": "cogitatum", "thinking": "cogitatum"}
    return template.call_form.convert(message)


def check_prompt(parts: Sequence[str], seen: Sequence[int], tokenizer: TokenizerLike) -> None:
    """Check that ids encode a prompt, ignoring reasoning and white space.

    Raises:
        UnprovenError: ``seen`` can't be decoded, or encodes a text that differs from the prompt.
    """
    expected = encode(parts, tokenizer).ids
    if expected == seen:
        return
    decode = backend_of(tokenizer).decode
    try:
        read = _bare(decode(seen))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the tokenizer cannot decode the previous ids: {error}") from error
    if read != (written := _bare(decode(expected))):
        raise UnprovenError(_difference("the previous ids do not encode messages=: they contain", read, written))


def _bare(text: str) -> str:
    """Remove reasoning and white space from a text."""
    return _OPENED.sub("", _THOUGHTS.sub("", without_space(text)))


def _difference(what: str, read: str, written: str) -> str:
    at = len(common_start(read, written))
    return f"{what} {read[at : at + _SHOWN]!r} instead of {written[at : at + _SHOWN]!r}"
