"""Conversion of messages to turns of flat text, and selection of the parts to train on."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import Block, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.prompt import MARKERS, FilledText, OfMessage, join_lines
from lazyprompt.rendering.layout import OWN, End, PartList, Run, Said, SampleParts, last_question
from lazyprompt.rendering.markers import PLAIN_RESULT, Markers
from lazyprompt.rendering.tool_form import CallIds, call_parts, join_parts, result_parts, split_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lazyprompt.messages.history import History


class _SaidOfMessage(Said, OfMessage):
    """The slot name of a part in an assistant turn, if the turn's text was filled from a template."""

    __slots__ = ()


class _Slots(NamedTuple):
    """The slots of a message's texts, of the fixed text between these texts, and of the text that ends the turn."""

    text: tuple[str, str]
    between: tuple[str, str] = OWN
    end: tuple[str, str] = OWN


def _assistants(slot: str) -> _Slots:
    between = Said(MARKERS)
    return _Slots((Said(slot), between), (between, between), (between, End(MARKERS)))


# Many families write reasoning and tool calls inside these tags.
_OWN_TAGS = frozenset(("<think>", "</think>", "<tool_call>", "</tool_call>"))
_HISTORY = ("history", MARKERS)
_OTHERS = _Slots(_HISTORY)
_ASSISTANT = _assistants("history")
# The slots of the four flat-text parts of a plain message: an empty untrusted part, the start marker, the text and the
# end marker.
_PLAIN = (MARKERS, MARKERS, "history", MARKERS)
_PLAIN_ASSISTANT = (MARKERS, MARKERS, Said("history"), End(MARKERS))
_LABEL = _assistants("label")


def put_messages(
    messages: Sequence[Msg], markers: Markers, out: PartList, first: int = 0, *, is_open: bool = False
) -> None:
    """Add each message to a part list as a turn; the arguments are the same as for ``put_history``."""
    folded = markers.exact and markers.system_place != "turn"
    human = (markers.soh, markers.eoh, "user" in markers.trim)
    # Templates strip system text in the history just as they strip user text, so check for "user" in ``trim``.
    system = human if folded else (markers.sos, markers.eos, "user" in markers.trim)
    around = {
        "system": system,
        "developer": system,
        "user": human,
        "assistant": (markers.soa, markers.eoa, "assistant" in markers.trim),
        "tool": (markers.soh, markers.eoh, "tool" in markers.trim),
    }
    add_parts, add_slots = out.parts.extend, out.runs.append
    form = markers.tool_form
    ids = CallIds(form)
    asked = first + last_question(messages) if is_open and form.open_thought else first + len(messages)
    after_result = False
    for index, message in enumerate(messages, first):
        content, role = message.content, message.role
        before, after, trims = around[role]
        if role == "assistant":
            before = "" if after_result and form.same_turn else before + form.open_thought * (index > asked)
        if isinstance(content, str) and role != "tool" and message.url is None:
            text = content.strip() if trims else content
            after_result = False
            if isinstance(text, FilledText):
                slots = _ASSISTANT if role == "assistant" else _OTHERS
                out.own(before)
                out.extend(*message_run(text, slots.text))
                out.own(after, slots.end)
                continue
            add_parts(("", before, text, after))
            add_slots(_PLAIN_ASSISTANT if role == "assistant" else _PLAIN)
            continue
        where = f"history[{index}]"
        shown: list[Block] = []
        has_results = False
        for block in content if isinstance(content, tuple) else message.blocks:
            if isinstance(block, ToolResultBlock):
                _put_result(block, markers, out, where, ids, joined=after_result)
                after_result = True
                has_results = True
            elif not isinstance(block, ThinkingBlock):
                shown.append(block)
        if message.url is not None:
            raise _url_error(message, where)
        if has_results and not shown:
            continue
        after_result = False
        slots = _ASSISTANT if role == "assistant" else _OTHERS
        out.own(before if form.opens_turn or not _calls_alone(shown) else "")
        _put_blocks(shown, markers, out, where, slots, ids, trim=trims)
        out.own(after, slots.end)


def _calls_alone(blocks: Iterable[Block]) -> bool:
    return all(isinstance(block, ToolUseBlock) for block in blocks)


def message_run(text: str, slots: Sequence[str] = _HISTORY) -> Run:
    """Split a message's text into alternating untrusted and trusted parts; the last part is trusted.

    Args:
        text: The text of the message. If it is a ``FilledText``, its existing parts and slots are returned.
        slots: The slot for text that is not a ``FilledText``, and the slot for the empty trusted part after it.
    """
    if not isinstance(text, FilledText):
        return (text, ""), slots
    parts, own = text.origins.parts, (OfMessage(MARKERS), *text.origins.slots)
    return ("", *parts), tuple(map(_SaidOfMessage, own)) if isinstance(slots[0], Said) else own


def _url_error(message: Msg, where: str) -> FormatError:
    return FormatError(f"{where} contains the url {message.url!r}, which flat text cannot represent; use a dict format")


def _put_blocks(
    blocks: Sequence[Block], markers: Markers, out: PartList, where: str, slots: _Slots, ids: CallIds, *, trim: bool
) -> None:
    """Append the content of a message to ``out``: the text, followed by the tool calls."""
    text = _text(blocks, where)
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    text = text.strip() if trim or (calls and markers.tool_form.strips_text) else text
    if not calls:
        out.extend(*message_run(text, slots.text))
        return
    form = markers.tool_form
    before, _, between, _, after = split_pattern(form.turn)
    if before:
        out.own(before, slots.between)
    out.extend(*message_run(text, slots.text))
    runs = [call_parts(call, form, markers.call_pattern, ids.add(call)) for call in calls]
    first, *parts = join_parts(runs, form.call_join)
    out.parts[-1] += (form.text_end if text else "") + between + first
    parts[-1] += after
    out.extend(parts, slots.text * (len(parts) // 2))


def _put_result(
    result: ToolResultBlock, markers: Markers, out: PartList, where: str, ids: CallIds, *, joined: bool
) -> None:
    """Append a tool result to ``out``, as a separate turn or in the turn of the previous tool result."""
    text = result.output if isinstance(result.output, str) else _text(result.output, where)
    soe, eoe = markers.soe, markers.eoe
    if not soe:
        soe, eoe = markers.soh + PLAIN_RESULT[0], PLAIN_RESULT[1] + markers.eoh
    first, *parts = result_parts(text.strip() if "tool" in markers.trim else text, markers.tool_form, ids.find(result))
    if joined and markers.result_join is not None and out.parts[-1] == eoe:
        out.parts[-1] = markers.result_join + first
    else:
        out.own(soe + first)
    out.extend(parts, _HISTORY * (len(parts) // 2))
    out.own(eoe)


def _text(blocks: Iterable[Block], where: str) -> str:
    """Return the text in content blocks; raise an error for media blocks, because flat text can't contain media."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif not isinstance(block, ToolUseBlock | ThinkingBlock):
            raise FormatError(
                f"{where} contains a block of type {block.kind!r}, which flat text cannot represent; use a dict format"
            )
    return join_lines(texts)


def answers_in(history: History) -> list[Msg]:
    """Return the assistant messages of a history that are rendered as turns in flat text."""
    answers = [message for message in history.messages if message.role == "assistant"]
    return [answer for answer in answers if _has_turn(answer.blocks)]


def _has_turn(blocks: Sequence[Block]) -> bool:
    """Return True if a message is written as a turn in addition to the turns of its tool results."""
    kinds = {block.type for block in blocks} - {"thinking"}
    return kinds != {"tool_result"}


def answer_parts(answer: Msg, markers: Markers, opening: str, history: History) -> PartList:
    """Return the parts of a response that follows a prompt, including the end of its turn.

    Args:
        answer: The assistant message, without tool results.
        markers: The model's markers.
        opening: The last part of the assistant marker, which the model itself generates before each response.
        history: The messages before the response.

    Raises:
        FormatError: The response contains media, which flat text can't represent.
    """
    where = "the answer"
    if answer.url is not None:
        raise _url_error(answer, where)
    blocks = [block for block in answer.blocks if not isinstance(block, ThinkingBlock)]
    out = PartList((opening if markers.tool_form.opens_turn or not _calls_alone(blocks) else "",))
    calls = sum(block.type == "tool_use" for message in history.messages for block in message.blocks)
    _put_blocks(blocks, markers, out, where, _LABEL, CallIds(markers.tool_form, calls), trim=False)
    out.own(markers.eoa, _LABEL.end)
    return out


def turns_in(slots: Sequence[str]) -> list[range]:
    """Return the part indices of each assistant turn. A turn's last part begins with the turn's end marker."""
    turns: list[range] = []
    begin: int | None = None
    for index, slot in enumerate(slots):
        if isinstance(slot, Said):
            begin = index if begin is None else begin
            if isinstance(slot, End):
                turns.append(range(begin, index + 1))
                begin = None
    return turns


def _unsaid(slot: str) -> str:
    """Return a slot name without the class that marks parts to train on."""
    return OfMessage(slot) if isinstance(slot, OfMessage) else str(slot)


@lru_cache(maxsize=64)
def _tags_of(markers: Markers) -> re.Pattern[str]:
    """Return a pattern that matches the tags around a model's reasoning and tool calls."""
    tags = (markers.control_sequences | _OWN_TAGS) - markers.turn_sequences
    return re.compile(f"({'|'.join(map(re.escape, sorted(tags, key=len, reverse=True)))})")


def with_trained(out: PartList, wanted: Sequence[bool], markers: Markers, opening: str) -> PartList:
    """Split a sample's parts so that each part is either trained on entirely or not at all.

    Text to train on may also contain reasoning and tool calls. The tags of reasoning and tool calls become trusted
    parts, because the model itself generates these tags.

    Args:
        out: The sample's parts.
        wanted: A flag for each assistant turn, True if the turn is trained on.
        markers: The model's markers.
        opening: The last part of the assistant marker, which the model itself generates. The prompt part before each
            assistant turn ends with this text.

    Returns:
        The split parts. Only the parts that are trained on have slot names of the class :class:`Said`.
    """
    split, end = _tags_of(markers).split, len(markers.eoa.rstrip())
    parts: list[str] = []
    slots: list[str] = []
    old = out.slots
    done = 0
    for turn, trained in zip(turns_in(old), wanted, strict=True):
        first, last = turn[0], turn[-1]
        if trained:
            before, behind = out.parts[first - 1], out.parts[last]
            cut = len(before.removesuffix(opening))
            parts += (*out.parts[done : first - 1], before[:cut], "", before[cut:])
            slots += (*map(_unsaid, old[done:first]), MARKERS, Said(MARKERS))
            for at, (part, slot) in enumerate(zip(out.parts[first:last], old[first:last], strict=True), first):
                # Split the part into untrusted text and trusted tags, which alternate.
                pieces = [part] if is_trusted(at, part) or isinstance(part, JsonText) else split(part)
                parts += pieces
                slots += [slot] * len(pieces)
            # Split the part after the response, because it may contain the end of one turn and the beginning of the
            # next turn.
            parts += (behind[:end], "", behind[end:])
            slots += (Said(MARKERS), MARKERS, MARKERS)
        else:
            parts += out.parts[done : last + 1]
            slots += map(_unsaid, old[done : last + 1])
        done = last + 1
    return PartList((*parts, *out.parts[done:]), (*slots, *old[done:]))


def sample_parts(out: PartList, history: History, order: Sequence[int] | None, markers: Markers) -> SampleParts:
    """Return the parts of a training sample, with the message index of each part of the history.

    Args:
        out: The sample's parts. Parts to train on have slot names of the class :class:`Said`.
        history: The history, which a template may render more than once.
        order: The message indices, in the order in which the messages appear in the text; see :class:`PartList`.
        markers: The model's markers.
    """
    slots, messages = out.slots, list[int | None]()
    groups = [*_texts_of(history, markers)]
    texts = cycle([text for at in (range(len(groups)) if order is None else order) for text in groups[at]])
    current, left, in_turn = 0, 0, False
    for slot in slots:
        trained = isinstance(slot, Said)
        is_text = slot == "history" or isinstance(slot, OfMessage)
        if is_text:
            if not (in_turn if trained else left):
                current, left = next(texts)
            left, in_turn = 0 if trained else left - 1, trained
        messages.append(current if is_text else None)
        in_turn = in_turn and trained
    trained_parts = tuple(isinstance(slot, Said) for slot in slots)
    return SampleParts(tuple(out.parts), tuple(map(str, slots)), trained_parts, tuple(messages))


def _texts_of(history: History, markers: Markers) -> Iterator[list[tuple[int, int]]]:
    """Yield one list per message: the index and the number of texts of each OpenAI dict made from the message."""
    at = 0
    form, ids = markers.tool_form, CallIds(markers.tool_form)
    for message in history.messages:
        calls = [block for block in message.blocks if isinstance(block, ToolUseBlock)]
        results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
        # A message with tool results becomes several OpenAI dicts. The dict with the text comes first if the message
        # has tool calls, and last otherwise.
        own = join_lines([block.text for block in message.blocks if block.type == "text"])
        count = len(message_run(own)[0]) if isinstance(own, FilledText) else 1
        in_calls = sum(len(call_parts(call, form, markers.call_pattern, ids.add(call))) // 2 for call in calls)
        in_result = len(result_parts("", form, "")) // 2
        texts = [(at + result + bool(calls), in_result) for result in range(len(results))]
        has_turn = _has_turn(message.blocks)
        if has_turn:
            texts.append((at if calls else at + len(results), count + in_calls))
        yield texts
        at += len(results) + has_turn
