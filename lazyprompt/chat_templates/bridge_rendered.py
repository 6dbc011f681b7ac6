"""The bridge, proven by rendering the chat itself: with the messages of the prompt there is no need for trials.

The chat is rendered with made-up answers and the new messages. Up to the answer it must be the prompt that the engine
was given; what stands behind the answers must be the same for all of them, with thoughts and without. That is what the
template writes behind any answer here. Thoughts that a template takes out of earlier turns make no difference: the ids
of the engine keep them.
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

# gpt-oss gives a thought a message of its own.
_MARKS = (("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>"), *(pair for pair in MARKS if pair[0]))
_THOUGHTS = re.compile(
    "|".join(f"{re.escape(opening)}.*?{re.escape(closing)}" for opening, closing in _MARKS), re.DOTALL
)
_OPENED = re.compile(f"(?:{'|'.join(re.escape(opening) for opening, _ in _MARKS)})\\Z")
_SHOWN = 40
# Of made-up answers the third thinks.
_THINKS = 2


class Behind(NamedTuple):
    """The text behind an answer.

    Attributes:
        prompt: The prompt in parts, trusted and untrusted text in turn.
        parts: The text behind the answer in parts.
        common: The beginning of it that ends the answer's turn also where no messages come.
        shared: The end of that, which is the same for all answers.
    """

    prompt: Sequence[str]
    parts: Sequence[str]
    common: str
    shared: str


def behind_answer(rendering: Rendering, messages: Chat, new: Chat, answer: str, *, calls_only: bool) -> Behind:
    """Render what the template writes behind an answer.

    Args:
        rendering: The template, with all that it is given, and the generation prompt asked for.
        messages: The chat that the prompt was rendered of.
        new: The messages behind the answer.
        answer: The text of the completion.
        calls_only: True if it begins with a call.

    Raises:
        UnprovenError: The template does not go on with its prompt, or what stands behind depends on the answer.
    """
    prompt, ended = rendering.traced(messages), rendering.but(add_generation_prompt=False).given
    begin = len(common_prefix(rendering.template.run(messages, ended), prompt.text))
    thought = thought_in(without_space(prompt.text[begin:] + answer))
    if thought is Thought.OPEN:
        raise UnprovenError("the completion ends within a thought")
    whole = _bare(prompt.text)
    results = new[: results_in(str(message["role"]) for message in new)]
    found: list[Behind] = []
    for at in range(_THINKS + (thought is Thought.WHOLE)):
        # It stands nowhere else in the chat.
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
            raise UnprovenError(f"the template does not show {'calls' if results else 'what an assistant says'}")
        end, end_last = (text.rfind(str(number)) + len(str(number)) for text in (traces.text, last))
        before = _bare(traces.text[:end])
        for written in (whole, _bare(last[:end_last])):
            if not before.startswith(written):
                raise UnprovenError(
                    _difference("with the new messages behind it, the template writes", before, written)
                )
        common = common_start(traces.text[end:], last[end_last:])
        begun = accumulate(map(len, traces.parts), initial=0)
        parts = [part[max(end - start, 0) :] for part, start in zip(traces.parts, begun, strict=False)]
        found.append(Behind(prompt.parts, parts, common, common))
    shared = common_prefix(*(each.common[::-1] for each in found))[::-1]
    if len({"".join(each.parts)[len(each.common) - len(shared) :] for each in found}) > 1:
        raise UnprovenError("what the template writes behind an answer depends on the answer")
    if results:
        # A call without arguments shows nothing to be found by, but its turn ends like the others.
        message = _answer(rendering.template, "", results, {}, 0)
        tail = "".join(found[0].parts)[len(found[0].common) :]
        turn = rendering.traced([*messages, message, *new]).text.removesuffix(tail)
        shared = common_prefix(shared[::-1], turn[::-1])[::-1]
    return found[0]._replace(shared=shared)


def _answer(
    template: ChatJinja, content: str, results: Chat, arguments: Mapping[str, object], at: int
) -> Mapping[str, Any]:
    """Return a made-up answer, with calls for results."""
    message: dict[str, Any] = {"role": "assistant", "content": template.content(content)}
    if results:
        message["tool_calls"] = [
            {"id": made, "type": "function", "function": {"name": name, "arguments": {**arguments}}}
            for made, name in calls_for(results, 90_000 - 10_000 * at)
        ]
    if at == _THINKS:
        message |= {"reasoning_content": "cogitatum", "thinking": "cogitatum"}
    return template.takes.form(message)


def check_prompt(parts: Sequence[str], seen: Sequence[int], tokenizer: TokenizerLike) -> None:
    """Check that ids are those of a prompt, but for thoughts and white space.

    Raises:
        UnprovenError: They are not.
    """
    expected = encode(parts, tokenizer).ids
    if expected == seen:
        return
    decode = backend_of(tokenizer).decode
    try:
        read = _bare(decode(seen))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the previous ids are none of the tokenizer's: {error}") from error
    if read != (written := _bare(decode(expected))):
        raise UnprovenError(_difference("the previous ids are not those of messages=: they read", read, written))


def _bare(text: str) -> str:
    """Return a text without thoughts and white space."""
    return _OPENED.sub("", _THOUGHTS.sub("", without_space(text)))


def _difference(what: str, read: str, written: str) -> str:
    at = len(common_start(read, written))
    return f"{what} {read[at : at + _SHOWN]!r} where the prompt of the messages has {written[at : at + _SHOWN]!r}"
