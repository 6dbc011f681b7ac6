"""Messages as turns of flat text: tool calls, results, and what flat text cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt._json import JsonText, dump
from lazyprompt.errors import FormatError
from lazyprompt.messages import TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.prompt import MARKERS
from lazyprompt.text.markers import PLAIN_CALL, PLAIN_RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.messages import Block, Msg
    from lazyprompt.text.layout import Laid
    from lazyprompt.text.markers import Markers

_HISTORY = ("history", MARKERS)


def put_messages(messages: Sequence[Msg], markers: Markers, laid: Laid) -> None:
    """Add messages, each as a turn.

    Args:
        messages: The messages.
        markers: The markers of the model.
        laid: What they are added to.

    Raises:
        FormatError: A message holds media, which flat text cannot show.
    """
    folded = markers.exact and markers.system_place != "turn"
    human = (markers.soh, markers.eoh)
    around = {
        "system": human if folded else (markers.sos, markers.eos),
        "developer": human if folded else (markers.sos, markers.eos),
        "user": human,
        "assistant": (markers.soa, markers.eoa),
    }
    after_result = False
    for index, message in enumerate(messages):
        where = f"history[{index}]"
        results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
        for result in results:
            _put_result(result, markers, laid, where, joined=after_result)
            after_result = True
        others = [block for block in message.blocks if not isinstance(block, ToolResultBlock | ThinkingBlock)]
        if message.url is not None:
            raise FormatError(f"{where} has the url {message.url!r}, which flat text cannot show; use a dict format")
        if results and not others:
            continue
        after_result = False
        before, after = around["user" if message.role == "tool" else message.role]
        laid.own(before)
        _put_blocks(others, markers, laid, where, trim=message.role in markers.trim)
        laid.own(after)


def _put_blocks(blocks: Sequence[Block], markers: Markers, laid: Laid, where: str, *, trim: bool) -> None:
    """What one message says, its calls each on a line of their own."""
    text = _text(blocks, where)
    text = text.strip() if trim else text
    laid.extend((text, ""), _HISTORY)
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    of_family = markers.tool_start, markers.tool_args, markers.tool_end
    start, between, end = of_family if markers.tool_start else PLAIN_CALL
    for index, call in enumerate(calls):
        if index or text:
            laid.own("\n")
        laid.own(start)
        laid.extend((JsonText(dump(call.name)[1:-1]), ""), _HISTORY)
        laid.own(between)
        laid.extend((dump(call.arguments), ""), _HISTORY)
        laid.own(end)


def _put_result(result: ToolResultBlock, markers: Markers, laid: Laid, where: str, *, joined: bool) -> None:
    """A tool's result: its own turn, or joined to the turn of the result before it."""
    text = result.output if isinstance(result.output, str) else _text(result.output, where)
    soe, eoe = markers.soe, markers.eoe
    if not soe:
        soe, eoe = markers.soh + PLAIN_RESULT[0], PLAIN_RESULT[1] + markers.eoh
    if joined and markers.result_join is not None and laid.parts[-1] == eoe:
        laid.parts[-1] = markers.result_join
    else:
        laid.own(soe)
    laid.extend((text.strip() if "tool" in markers.trim else text, ""), _HISTORY)
    laid.own(eoe)


def _text(blocks: Iterable[Block], where: str) -> str:
    """The text of blocks; media has no place in flat text, and is not left out in silence."""
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif not isinstance(block, ToolUseBlock | ThinkingBlock):
            raise FormatError(
                f"{where} holds a block of type {block.kind!r}, which flat text cannot show; use a dict format"
            )
    return "\n".join(texts)
