"""Conversion of messages to turns of flat text, and selection of the parts to train on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import is_trusted
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import Block, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.prompt import MARKERS, FilledText, join_lines
from lazyprompt.rendering.layout import MARKER, OWN, Origin, PartList, Run, SampleParts, last_question
from lazyprompt.rendering.markers import PLAIN_RESULT, Markers
from lazyprompt.rendering.tool_form import CallIds, call_parts, join_parts, result_parts, split_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt._base.roles import Role
    from lazyprompt.messages.history import History


class _TurnOrigins(NamedTuple):
    """The origins of a message's texts, of the fixed text between these texts, and of the text that ends the turn."""

    text: Origin
    between: Origin = MARKER
    end: Origin = MARKER

    @classmethod
    def of_answer(cls, slot: str, message: int | None = None) -> _TurnOrigins:
        """Return the origins of an assistant turn."""
        between = Origin(MARKERS, in_answer=True)
        return cls(Origin(slot, message, in_answer=True), between, between._replace(ends_turn=True))


class _Row(NamedTuple):
    """A part of a training sample; see :class:`SampleParts`."""

    text: str
    slot: str
    trained: bool = False
    message: int | None = None


# Many families write reasoning and tool calls inside these tags.
_OWN_TAGS = frozenset(("<think>", "</think>", "<tool_call>", "</tool_call>"))
_HISTORY = "history"
_LABEL = _TurnOrigins.of_answer("label")
_EMPTY = _Row("", MARKERS)


def _turn_origins(index: int, role: Role) -> _TurnOrigins:
    """Return the origins for the turn of the history message with this index."""
    return _TurnOrigins.of_answer(_HISTORY, index) if role == "assistant" else _TurnOrigins(Origin(_HISTORY, index))


@lru_cache(maxsize=1024)
def _plain_origins(index: int, role: Role) -> tuple[Origin, ...]:
    """Return the origins of a plain message's four parts: an empty part, the start marker, the text, the end marker."""
    text, _, end = _turn_origins(index, role)
    return (*OWN, text, end)


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
    add_parts, add_origins = out.parts.extend, out.runs.append
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
                origins = _turn_origins(index, role)
                out.own(before)
                out.extend(*message_run(text, origins.text, origins.between))
                out.own(after, origins[1:])
                continue
            add_parts(("", before, text, after))
            add_origins(_plain_origins(index, role))
            continue
        where = f"history[{index}]"
        shown: list[Block] = []
        results = 0
        for block in content if isinstance(content, tuple) else message.blocks:
            if isinstance(block, ToolResultBlock):
                origin = Origin(_HISTORY, index, results)
                _put_result(block, markers, out, where, ids, origin, joined=after_result)
                after_result = True
                results += 1
            elif not isinstance(block, ThinkingBlock):
                shown.append(block)
        if message.url is not None:
            raise _url_error(message, where)
        if results and not shown:
            continue
        after_result = False
        origins = _turn_origins(index, role)
        out.own(before if form.opens_turn or not _calls_alone(shown) else "")
        _put_blocks(shown, markers, out, where, origins, ids, trim=trims)
        out.own(after, origins[1:])


def _calls_alone(blocks: Iterable[Block]) -> bool:
    return all(isinstance(block, ToolUseBlock) for block in blocks)


def message_run(text: str, origin: Origin, between: Origin = MARKER) -> Run:
    """Split a message's text into alternating untrusted and trusted parts; the last part is trusted.

    Args:
        text: The text of the message. If it is a ``FilledText``, its existing parts and slots are returned.
        origin: The origin of the text. The parts of a ``FilledText`` keep their own slots.
        between: The origin of the empty trusted part after text that is not a ``FilledText``.
    """
    if not isinstance(text, FilledText):
        return (text, ""), (origin, between)
    slots = (MARKERS, *text.origins.slots)
    return ("", *text.origins.parts), tuple(origin._replace(slot=slot) for slot in slots)


def _url_error(message: Msg, where: str) -> FormatError:
    return FormatError(f"{where} contains the url {message.url!r}, which flat text cannot represent; use a dict format")


def _put_blocks(
    blocks: Sequence[Block],
    markers: Markers,
    out: PartList,
    where: str,
    origins: _TurnOrigins,
    ids: CallIds,
    *,
    trim: bool,
) -> None:
    """Append the content of a message to ``out``: the text, followed by the tool calls."""
    text = _text(blocks, where)
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    text = text.strip() if trim or (calls and markers.tool_form.strips_text) else text
    run = message_run(text, origins.text, origins.between)
    if not calls:
        out.extend(*run)
        return
    form = markers.tool_form
    before, _, between, _, after = split_pattern(form.turn)
    if before:
        out.own(before, (origins.between, origins.between))
    out.extend(*run)
    runs = [call_parts(call, form, markers.call_pattern, ids.add(call)) for call in calls]
    first, *parts = join_parts(runs, form.call_join)
    out.parts[-1] += (form.text_end if text else "") + between + first
    parts[-1] += after
    out.extend(parts, (origins.text, origins.between) * (len(parts) // 2))


def _put_result(
    result: ToolResultBlock,
    markers: Markers,
    out: PartList,
    where: str,
    ids: CallIds,
    origin: Origin,
    *,
    joined: bool,
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
    out.extend(parts, (origin, MARKER) * (len(parts) // 2))
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
    out.own(markers.eoa, _LABEL[1:])
    return out


def answer_turns(origins: Sequence[Origin]) -> list[range]:
    """Return the part indices of each assistant turn. A turn's last part begins with the turn's end marker."""
    turns: list[range] = []
    begin: int | None = None
    for index, origin in enumerate(origins):
        if origin.in_answer:
            begin = index if begin is None else begin
            if origin.ends_turn:
                turns.append(range(begin, index + 1))
                begin = None
    return turns


@lru_cache(maxsize=64)
def _tags_of(markers: Markers) -> re.Pattern[str]:
    """Return a pattern that matches the tags around a model's reasoning and tool calls."""
    tags = (markers.control_sequences | _OWN_TAGS) - markers.turn_sequences
    return re.compile(f"({'|'.join(map(re.escape, sorted(tags, key=len, reverse=True)))})")


def sample_parts(
    out: PartList, wanted: Sequence[bool], markers: Markers, opening: str, history: History
) -> SampleParts:
    """Split a sample's parts so that each part is either trained on entirely or not at all.

    Text to train on may also contain reasoning and tool calls. The tags of reasoning and tool calls become trusted
    parts, because the model itself generates these tags.

    Args:
        out: The sample's parts.
        wanted: A flag for each assistant turn, True if the turn is trained on.
        markers: The model's markers.
        opening: The last part of the assistant marker, which ends the prompt part before each assistant turn; the model
            itself generates it.
        history: The history.
    """
    split, end = _tags_of(markers).split, len(markers.eoa.rstrip())
    origins, indices = out.origins, _message_indices(history)
    plain = [
        _Row(text, origin.slot, message=indices.get((origin.message, origin.result)))
        for text, origin in zip(out.parts, origins, strict=True)
    ]
    rows: list[_Row] = []
    done = 0
    for turn, trained in zip(answer_turns(origins), wanted, strict=True):
        if not trained:
            continue
        first, last = turn[0], turn[-1]
        before, after = out.parts[first - 1], out.parts[last]
        cut = len(before.removesuffix(opening))
        rows += plain[done : first - 1]
        rows += (_Row(before[:cut], MARKERS), _EMPTY, _Row(before[cut:], MARKERS, trained=True))
        for at, row in enumerate(plain[first:last], first):
            # Split the part into untrusted text and trusted tags, which alternate.
            keeps = is_trusted(at, row.text) or isinstance(row.text, JsonText)
            rows += (row._replace(text=text, trained=True) for text in ([row.text] if keeps else split(row.text)))
        # Split the part after the response, because it may contain the end of one turn and the beginning of the next
        # turn.
        rows += (_Row(after[:end], MARKERS, trained=True), _EMPTY, _Row(after[end:], MARKERS))
        done = last + 1
    return SampleParts(*zip(*rows, *plain[done:], strict=True))


def _message_indices(history: History) -> dict[tuple[int | None, int | None], int]:
    """Map each message and tool result of a history to the index of its OpenAI dict.

    The keys are pairs of :attr:`Origin.message` and :attr:`Origin.result`.
    """
    indices: dict[tuple[int | None, int | None], int] = {}
    for at, message in enumerate(history.messages):
        kinds = [block.type for block in message.blocks]
        # The dict with the text comes first if the message has tool calls, and last otherwise.
        results: list[int | None] = [*range(kinds.count("tool_result"))]
        own: list[int | None] = [None] if _has_turn(message.blocks) else []
        for result in (*own, *results) if "tool_use" in kinds else (*results, *own):
            indices[at, result] = len(indices)
    return indices
