"""Selection of the text to train on: each assistant message with its end marker.

If a template contains ``{% generation %}`` blocks, the content of these blocks is the text to train on. Otherwise, an
assistant turn begins after the generation prompt. The turn ends with the text that the template writes after the
response whether or not another turn follows.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.chat_templates.traced import Run, Traced, common_start, cut_runs, parts_of
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.errors import TemplateError
from lazyprompt.messages.prompt import MARKERS
from lazyprompt.rendering.layout import SampleParts
from lazyprompt.safety.policy import OFF

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.safety.find import Controls

_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_TOKEN = re.compile(r"\s*<[^<>\s]+>")
_NONE = "\0"
_WORD = "lazyprompt"
_NEXT = {"role": "user", "content": "?"}


class _Span(NamedTuple):
    """A span of rendered text whose characters have the same origin."""

    start: int
    stop: int
    message: int | None
    own: bool
    generated: bool


class _RenderedChat(NamedTuple):
    text: str
    spans: tuple[_Span, ...]

    def text_before(self, start: int) -> str:
        """Return the text that the template itself writes directly before the index ``start`` of the rendered chat."""
        return self.text[
            max((span.stop for span in self.spans if span.stop <= start and not span.own), default=0) : start
        ]

    def text_after(self, stop: int) -> str:
        """Return the text that the template itself writes directly after the index ``stop`` of the rendered chat."""
        end = min((span.start for span in self.spans if span.start >= stop and not span.own), default=len(self.text))
        return self.text[stop:end]

    def of_message(self, at: int) -> list[_Span]:
        """Return the spans of the rendered chat that come from the message with index ``at``."""
        return [span for span in self.spans if span.message == at]


def trained_parts(rendering: Rendering, chat: Chat, wanted: Collection[int]) -> SampleParts:
    """Render a whole chat for training.

    Args:
        rendering: The template and its variables.
        chat: The messages as plain data, ending with the assistant's response.
        wanted: The indexes of the assistant messages to train on.

    Returns:
        The text in parts, each with the index of its message in the chat.

    Raises:
        TemplateError: The template rejects the messages, or the origins of the rendered text can't be traced.
        SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
    """
    rendering = rendering.but(add_generation_prompt=False)
    traces = rendering.traced(chat)
    if traces.note:
        raise TemplateError(f"cannot determine which text the assistant wrote: {traces.note}")
    runs = [*zip(map(len, traces.parts), traces.origins, strict=True)]
    shown = _RenderedChat(traces.text, tuple(_spans(runs)))
    if _TAG.search(rendering.template.text):
        answers = [at for at, message in enumerate(chat) if message.get("role") == "assistant"]
        found = _find_marked(shown.spans, answers, wanted)
    else:
        header = _generation_prompt(rendering)
        traced, given = rendering.with_origins(chat)
        rendering = rendering._replace(given=given)
        found = [piece for at in sorted(wanted) for piece in _find_turn(rendering, traced, shown, at, header)]
    parts, origins = parts_of(Traced(shown.text, _with_marks(runs, found)))
    return SampleParts(
        tuple(parts),
        tuple(origin.slot for origin in origins),
        tuple(origin.generated and bool(part) for part, origin in zip(parts, origins, strict=True)),
        tuple(origin.message for origin in origins),
    )


def _spans(runs: Sequence[Run]) -> Iterator[_Span]:
    at = 0
    for length, origin in runs:
        if length:
            yield _Span(at, at + length, origin.message, origin.slot == MARKERS, origin.generated)
        at += length


def _find_marked(spans: Sequence[_Span], answers: Sequence[int], wanted: Collection[int]) -> list[tuple[int, int]]:
    """Find the text inside the template's ``{% generation %}`` blocks.

    A block belongs to the message that its text comes from; a block without message text belongs to the next assistant
    message.
    """
    found: list[tuple[int, int]] = []
    waiting = list(answers)
    for generated, group in groupby(spans, key=lambda span: span.generated):
        if not generated:
            continue
        run = [*group]
        message = next((span.message for span in run if span.message is not None), waiting[0] if waiting else None)
        waiting = [at for at in waiting if message is not None and at > message]
        if message in wanted:
            found.append((run[0].start, run[-1].stop))
    return found


def _find_turn(
    rendering: Rendering, chat: Chat, shown: _RenderedChat, at: int, header: str
) -> Iterator[tuple[int, int]]:
    """Yield the start and end of an assistant turn, or of each piece if the template inserts tool results into it."""
    prompt = _render(rendering, chat[:at], prompted=True)
    last, followed = _render(rendering, chat[: at + 1]), _render(rendering, [*chat[: at + 1], _NEXT])
    alone = last.of_message(at) if last else []
    own = _of_one_turn(shown, at, last) if last and alone else shown.of_message(at)
    tails = [one.text_after(one.of_message(at)[-1].stop) for one in (last, followed) if one and one.of_message(at)]
    if own:
        begin, stop = own[0].start, own[-1].stop
        before = shown.text_before(begin)
        if header in before:
            begin -= len(before) - before.rindex(header) - len(header)
        elif prompt:
            begin -= len(before) - len(common_start(before, prompt.text_before(len(prompt.text))))
        gaps = [last.text[one.stop : other.start] for one, other in pairwise(alone)] if last else []
        for one, other in pairwise(own):
            behind = shown.text_after(one.stop)
            if one.stop + len(behind) < other.start:
                yield begin, one.stop + max((len(common_start(behind, gap)) for gap in gaps), default=0)
                begin = other.start
    elif prompt and shown.text.startswith(prompt.text):
        # The turn is empty, but the template may still write the turn's end marker.
        begin = stop = len(prompt.text)
        tails = [one.text_after(stop) for one in (last, followed) if one and one.text.startswith(prompt.text)]
    else:
        return
    behind = shown.text_after(stop)
    ending = common_start(behind, *tails)
    token = None if ending.strip() else _TOKEN.match(behind)
    if token and not header.startswith(token[0].strip()):
        # Extend the span to the token that follows the response, because some templates omit or change the end token of
        # the last turn.
        ending = token[0]
    yield begin, stop + len(ending.rstrip())


def _of_one_turn(shown: _RenderedChat, at: int, last: _RenderedChat) -> list[_Span]:
    """Return the spans of a message's text within its turn, without repetitions of the text in other turns."""
    waiting = [last.text[span.start : span.stop] for span in last.of_message(at)]
    own: list[_Span] = []
    for span in shown.of_message(at):
        text = shown.text[span.start : span.stop]
        if text in waiting:
            del waiting[: waiting.index(text) + 1]
            own.append(span)
    return own


def _generation_prompt(rendering: Rendering) -> str:
    """Return the generation prompt that follows a user message."""
    bare, prompted = (_render(rendering, [_NEXT], prompted=on) for on in (False, True))
    if bare is None or prompted is None or not prompted.text.startswith(bare.text):
        return _NONE
    return prompted.text.removeprefix(bare.text) or _NONE


def _render(rendering: Rendering, chat: Chat, *, prompted: bool = False) -> _RenderedChat | None:
    """Render the beginning of a chat, or return None if the template rejects the messages."""
    try:
        text = rendering.template.run(chat, {**rendering.given, "add_generation_prompt": prompted}, traced=True)
    except TemplateError:
        return None
    parts, origins = parts_of(text)
    return _RenderedChat(text, tuple(_spans([*zip(map(len, parts), origins, strict=True)])))


def _with_marks(runs: Sequence[Run], found: Sequence[tuple[int, int]]) -> list[Run]:
    """Return a rendered chat's runs, in which only the text inside the ``found`` spans is marked for training."""
    made: list[Run] = []
    at = 0
    for start, stop in (*sorted(found), (sum(length for length, _ in runs), 0)):
        made += [(length, origin._replace(generated=False)) for length, origin in cut_runs(runs, at, start)]
        made += [(length, origin._replace(generated=True)) for length, origin in cut_runs(runs, start, stop)]
        at = stop
    return made


@lru_cache(maxsize=128)
def answer_end(template: ChatJinja, controls: Controls) -> str:
    """Return the marker that a template writes after a response, without surrounding white space.

    Args:
        template: The template.
        controls: The template's control sequences.

    Returns:
        The marker, or an empty string if the template writes no marker after a response or rejects the sample chat.
    """
    chat = ({"role": "user", "content": "?"}, {"role": "assistant", "content": _WORD})
    try:
        found = trained_parts(Rendering(template, {"tools": None, "documents": None}, controls, OFF), chat, {1})
    except TemplateError:
        return ""
    text = "".join(part for part, trained in zip(found.parts, found.trained, strict=True) if trained)
    return text.rpartition(_WORD)[2].strip()
