"""The table of provider capabilities, compared with formatted payloads, cell by cell.

Nothing here looks at a profile: each cell is found out anew by sending content through a formatter, and what does not
arrive must be in the report.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise

import pytest

from formatters.helpers import MARKS, MEDIA
from lazyprompt import ChatFormatter, FormatError, Msg, Payload, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.formatters.providers import HEADERS, PROVIDERS, Row, profile_of, row_of, rows
from lazyprompt.messages.msg import Block

SIGNATURE = b64encode(b"signed").decode()
QUESTION, ANSWER = Msg("user", "Is it raining?", "user"), Msg("assistant", "It is.", "assistant")
TOOL = {"type": "function", "function": {"name": "weather"}}
CALL, RESULT = ToolUseBlock("c1", "weather", {"city": "Zermatt"}), ToolResultBlock("c1", "weather", "Rain.")


def format_json(provider: str, *messages: Msg) -> tuple[Payload, str]:
    """A valid payload, and its JSON."""
    formatter = ChatFormatter(provider)
    payload = formatter.format(*messages)
    formatter.validate(payload)
    return payload, json.dumps(payload)


def arrives(provider: str, block: Block, mark: str, *messages: Msg) -> bool:
    """Whether the mark of a block is in the payload; if not, check the report and ``strict``."""
    payload, dumped = format_json(provider, *messages)
    left_out = [entry for entry in payload.report if (entry.kind, entry.action) == (block.kind, "left out")]
    assert bool(left_out) == (mark not in dumped), payload.report
    if any(entry.is_loss for entry in left_out):
        with pytest.raises(FormatError, match=f"^the payload would lose content: .*{block.kind}"):
            ChatFormatter(provider, strict=True).format(*messages)
    return mark in dumped


def signed_or_not(provider: str, *messages: Msg) -> str:
    """Whether a block is sent back with its signature."""
    payload, dumped = format_json(provider, *messages)
    reported = any((entry.kind, entry.action) == ("signature", "left out") for entry in payload.report)
    assert reported == (SIGNATURE not in dumped)
    return "yes" if reported else "yes (signed)"


def text_cell(provider: str) -> str:
    block = TextBlock("It rains.", signature=SIGNATURE)
    messages = QUESTION, Msg("assistant", [block], "assistant"), QUESTION
    assert arrives(provider, block, "It rains.", *messages)
    return signed_or_not(provider, *messages)


def tool_use_cell(provider: str) -> str:
    call = ToolUseBlock("c1", "weather", {"city": "Zermatt"}, signature=SIGNATURE)
    messages = QUESTION, Msg("assistant", [call], "assistant"), Msg("tool", [RESULT], "tool"), QUESTION
    described = ChatFormatter(provider).format(QUESTION, tools=[TOOL])
    if not arrives(provider, call, "Zermatt", *messages):
        assert "tools" not in described
        assert [entry.kind for entry in described.report] == ["tools"]
        return "no"
    assert "weather" in json.dumps(described["tools"])
    return signed_or_not(provider, *messages)


def tool_result_cell(provider: str) -> str:
    messages = QUESTION, Msg("assistant", [CALL], "assistant"), Msg("tool", [RESULT], "tool"), QUESTION
    return "yes" if arrives(provider, RESULT, "Rain.", *messages) else "no"


def medium_cell(kind: str) -> Callable[[str], str]:
    marks = {"url": "https://example.com/a.", "data": MARKS[kind]}

    def cell(provider: str) -> str:
        ways = [
            way
            for way, block in MEDIA[kind].items()
            if arrives(provider, block, marks[way], Msg("user", [TextBlock("See:"), block], "user"))
        ]
        places = {place_in_results(provider, MEDIA[kind][way], marks[way]) for way in ways}
        assert len(places) <= 1
        return " ".join(["+".join(ways), *places]).strip() if ways else "no"

    return cell


def place_in_results(provider: str, block: Block, mark: str) -> str:
    """Where a medium of a tool result is placed; "" if the provider supports no results."""
    result = Msg("tool", [ToolResultBlock("c1", "weather", (TextBlock("Rain."), block))], "tool")
    payload, dumped = format_json(provider, QUESTION, Msg("assistant", [CALL], "assistant"), result)
    if "Rain." not in dumped:
        return ""
    moved = any((entry.kind, entry.action) == ("tool_result", "moved") for entry in payload.report)
    form = profile_of(provider).form
    whose = [role for _, role, seen, *_ in form.views(payload) if any(kind == block.kind for kind, *_ in seen)]
    assert mark in dumped
    assert whose == (["user"] if moved else [])
    assert moved == (f"({block.kind} from the tool weather)" in dumped)
    return "(after results)" if moved else "(also in results)"


def thinking_cell(provider: str) -> str:
    """The kinds of reasoning blocks that are sent back."""
    sorts = {
        "bare": ThinkingBlock("I ponder.", provider=provider),
        "signed": ThinkingBlock("I ponder.", SIGNATURE, provider=provider),
        "with id": ThinkingBlock("I ponder.", id="rs_1", provider=provider),
        "foreign": ThinkingBlock("I ponder.", SIGNATURE, id="rs_1", provider="somebody"),
        "redacted": ThinkingBlock(redacted="b3BhcXVl", provider=provider),
    }

    def goes_back(block: ThinkingBlock) -> bool:
        answer = Msg("assistant", [block, TextBlock("It is.")], "assistant")
        return arrives(provider, block, block.thinking or "b3BhcXVl", QUESTION, answer, QUESTION)

    back = [sort for sort, block in sorts.items() if goes_back(block)]
    # Providers with reasoning as text accept foreign reasoning; the others only their own.
    return {
        (): "no",
        ("signed", "redacted"): "signed",
        ("with id",): "with id",
        ("bare", "signed", "with id"): "its own",
        ("bare", "signed", "with id", "foreign"): "as text",
    }[tuple(back)]


def system_cell(provider: str) -> str:
    """Where late system text is placed."""
    payload, dumped = format_json(provider, QUESTION, ANSWER, Msg("system", "Be brief.", "system"), QUESTION)
    assert "Be brief." in dumped
    conversation = payload[profile_of(provider).form.messages_key]
    if "Be brief." not in json.dumps(conversation):
        return "apart"
    at = next(at for at, item in enumerate(conversation) if "Be brief." in json.dumps(item))
    assert conversation[at]["role"] in ("system", "developer")
    if at == len(conversation) - 1:
        return "apart, late after a user turn"
    assert bool(at) != any(entry.action == "moved" for entry in payload.report)
    return "anywhere" if at else "first"


def turns_cell(provider: str) -> str:
    payload, _ = format_json(provider, QUESTION, QUESTION, ANSWER, ANSWER, QUESTION)
    roles = [role for _, role, *_ in profile_of(provider).form.views(payload)]
    if roles == ["user"]:
        return "one text"
    return "must alternate" if all(a != b for a, b in pairwise(roles)) else "any order"


def names_cell(provider: str) -> str:
    payload, dumped = format_json(provider, Msg("Ann", "Hi.", "user"))
    assert ('"name": "Ann"' in dumped) != any(entry.kind == "name" for entry in payload.report)
    return "yes" if "Ann" in dumped else "no"


def cache_cell(provider: str) -> str:
    """The places with a breakpoint, with a current model and without a model."""
    places = ("tools", "system", "history")
    messages = Msg("system", "Be brief.", "system"), QUESTION, ANSWER, QUESTION

    def marked(model: str | None) -> list[str]:
        made = {
            place: ChatFormatter(provider, model=model, cache=[place]).format(*messages, tools=[TOOL])
            for place in places
        }
        found = [place for place, payload in made.items() if "cache" in json.dumps(payload)]
        assert bool(found) != all(any(entry.kind == "cache" for entry in each.report) for each in made.values())
        return found

    found = ", ".join(marked("gpt-9"))
    return found + (" (some models)" if marked(None) != marked("gpt-9") else "") if found else "no"


OBSERVED: dict[str, Callable[[str], str]] = {
    "text": text_cell,
    "tool_use": tool_use_cell,
    "tool_result": tool_result_cell,
    **{kind: medium_cell(kind) for kind in MEDIA},
    "thinking": thinking_cell,
    "system": system_cell,
    "turns": turns_cell,
    "names": names_cell,
    "cache": cache_cell,
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_table_row_matches_the_behavior_of_the_formatter(provider: str) -> None:
    cells = {column: OBSERVED[column](provider) for column in HEADERS[1:]}
    assert row_of(profile_of(provider)) == Row(provider, cells)


def test_provider_table_has_a_row_per_provider_with_columns_in_order() -> None:
    assert tuple(row.provider for row in rows()) == PROVIDERS
    assert {("provider", *row.cells) for row in rows()} == {HEADERS}


def test_custom_profile_has_a_provider_table_row() -> None:
    mine = profile_of("openai").but(name="mine", media={}, names=None, breakpoints=None)
    row = row_of(mine)
    assert isinstance(row, Row)
    assert row.provider == "mine"
    assert {row.cells[column] for column in ("image", "audio", "video", "file", "names", "cache")} == {"no"}
