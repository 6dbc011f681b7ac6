"""Units that are kept or dropped together: calls with their results, in dicts and messages of each format."""

from typing import Any

import pytest

from budget.helpers import msg
from lazyprompt.budget.units import ConversationUnits, Item, SlotValue, Unit, group_units
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock, ToolUseBlock

USER, ANSWER, SYSTEM, SLOT = msg("user", "a"), msg("assistant", "b"), msg("system", "s"), SlotValue("s", "t")
TEXT = {"type": "text", "text": "t"}


def call(*ids: str) -> dict[str, Any]:
    return msg("assistant", None, tool_calls=[{"id": each} if each else {} for each in ids])


def result(call_id: str) -> dict[str, Any]:
    return msg("tool", "r", tool_call_id=call_id)


def anthropic_result(call_id: str, key: str = "tool_use_id", *more: Any) -> dict[str, Any]:
    return msg("user", [{"type": "tool_result", key: call_id}, *more])


ANTHROPIC_CALL = msg("assistant", [TEXT, {"type": "tool_use", "id": "1"}])
BLOCK_CALL, BLOCK_RESULT = msg("assistant", [ToolUseBlock("1", "f", {})]), msg("user", [ToolResultBlock("1", "f", "x")])
MSG_CALL = Msg("a", [ToolUseBlock("1", "f", {})], "assistant")
MSG_RESULT = Msg("tool", [ToolResultBlock("1", "f", "r")], "tool")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], ([], [], [], ())),
        ([USER, ANSWER], ([(1,)], [0], [], (0,))),
        ([SYSTEM, msg("developer", "d"), ANSWER, ANSWER], ([(2,)], [0, 1, 3], [], (3,))),
        ([Msg("s", "a", "system"), Msg("u", "a", "user"), ANSWER], ([(2,)], [0, 1], [], (1,))),
        ([msg("user", "a", name="n"), SYSTEM], ([], [0, 1], [], (0,))),
        ([SLOT, USER, SLOT], ([(0,), (2,)], [1], [], (1,))),
        ([SLOT], ([(0,)], [], [], ())),
        # A call and its results are one unit, whatever is between them.
        ([call("1"), ANSWER, result("1"), USER], ([(0, 2), (1,)], [3], [], (3,))),
        ([call("1", "2"), result("2"), USER, result("1")], ([(0, 1, 3)], [2], [], (2,))),
        ([call("1"), result("1")], ([], [0, 1], [], (0, 1))),
        ([ANTHROPIC_CALL, anthropic_result("1"), USER], ([(0, 1)], [2], [], (2,))),
        ([ANTHROPIC_CALL, anthropic_result("1", "id", TEXT), USER], ([(0, 1)], [2], [], (2,))),
        ([call("2"), ANTHROPIC_CALL, anthropic_result("1", "id"), USER], ([(0,), (1, 2)], [3], [], (3,))),
        # A message of tool results is not a user turn.
        ([USER, ANTHROPIC_CALL, anthropic_result("1")], ([(1, 2)], [0], [], (0,))),
        ([USER, ANSWER, anthropic_result("1")], ([(1,)], [0], [2], (0,))),
        ([BLOCK_CALL, BLOCK_RESULT, USER], ([(0, 1)], [2], [], (2,))),
        ([MSG_CALL, ANSWER, MSG_RESULT, USER], ([(0, 2), (1,)], [3], [], (3,))),
        # A repeated or missing id belongs to the oldest call without a result.
        ([call("1"), call("1"), result("1"), result("1"), USER], ([(0, 2), (1, 3)], [4], [], (4,))),
        ([call("1"), call("2"), result(""), result(""), USER], ([(0, 2), (1, 3)], [4], [], (4,))),
        ([call(""), call(""), result(""), USER], ([(0, 2), (1,)], [3], [], (3,))),
        # Results without a call are orphans, if their message has nothing else.
        ([call(""), result("2"), USER], ([(0,)], [2], [1], (2,))),
        ([call("1"), anthropic_result("2"), USER], ([(0,)], [2], [1], (2,))),
        ([anthropic_result("1"), BLOCK_RESULT, MSG_RESULT, result("")], ([], [], [0, 1, 2, 3], ())),
        ([ANSWER, anthropic_result("1", "id", TEXT)], ([(0,)], [1], [], (1,))),
        ([Msg("t", [ToolResultBlock("9"), TextBlock("t")], "user")], ([], [0], [], (0,))),
        ([Msg("t", [ToolResultBlock("9")], "user", url=["http://example.org/x"])], ([], [0], [], (0,))),
    ],
)
def test_tool_calls_and_their_results_are_units(items: list[Item], expected: tuple[object, ...]) -> None:
    assert group_units(items) == expected


@pytest.mark.parametrize(
    ("protected", "keep_newest", "together", "expected"),
    [
        ((), False, (), ([(0,), (1, 2), (3,), (4,)], [], [], ())),
        ((0,), False, (), ([(1, 2), (3,), (4,)], [0], [], ())),
        ((2,), True, (), ([(0,), (4,)], [1, 2, 3], [], (3,))),
        ((), True, ((0, 4),), ([(0, 4), (1, 2)], [3], [], (3,))),
        ((), True, ((0, 3),), ([(1, 2), (4,)], [0, 3], [], (0, 3))),
        ((4,), True, ((2, 4),), ([(0,)], [1, 2, 3, 4], [], (3,))),
    ],
)
def test_protected_items_protect_their_whole_unit(
    protected: Unit,
    keep_newest: bool,  # noqa: FBT001 - a case
    together: tuple[Unit, ...],
    expected: tuple[object, ...],
) -> None:
    items: list[Item] = [SLOT, call("1"), result("1"), USER, ANSWER]
    found = group_units(items, lambda at, _: at in protected, keep_newest=keep_newest, together=together)
    assert found == ConversationUnits(*expected)  # type: ignore[arg-type]  # a case


def test_a_value_that_is_not_a_message_is_refused_with_its_index() -> None:
    with pytest.raises(HistoryError, match=r"^messages\[1\] must be a Msg or an OpenAI message dict, not int$"):
        group_units([USER, 5])  # type: ignore[list-item]
