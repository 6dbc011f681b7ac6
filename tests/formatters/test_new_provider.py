"""Two custom providers: their rules and forms, and the features that work with them."""

import json
import pickle
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from lazyprompt import Breakpoints, ChatFormatter, Media, MediaResolver, Msg, MultiAgentFormatter, Profile, URLSource
from lazyprompt.errors import FormatError, MediaError
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.profile import HistoryStyle
from lazyprompt.formatters.providers import row_of
from lazyprompt.formatters.shape import BlockView, Check, MessageView, fields, list_of, objects, one_of, text
from lazyprompt.formatters.shape import Path as Place
from lazyprompt.messages.msg import (
    Base64Source,
    Block,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    VideoBlock,
)
from lazyprompt.messages.turns import Turn, WrittenTurn

# A provider with OpenAI's form, but with a key for reasoning, and with the tool's name in its results.
PARROT = Profile(
    name="parrot",
    form=ChatForm(thinking="reasoning", named_results=True),
    source="https://parrot.example/docs",
    media={"image": Media(("image/png", "image/jpeg"), url=False)},
    thinking="text",
    system="first",
    alternate=True,
    breakpoints=Breakpoints(key="cache_control", mark={"type": "ephemeral"}, lifetimes=("5m",), tools=True),
)


# A provider with a custom form: {"script": [{"who": "human", "says": [{"text": "Hello."}]}]}.
class ScriptForm:
    """A script of lines, each with parts."""

    messages_key = "script"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:  # noqa: ARG002
        """One line for each turn; the turns already follow the rules of the profile and have no native form."""
        lines = cast("Sequence[Turn]", turns)
        return {"script": [{"who": WHO[role], "says": parts_of(content)} for role, _, content, _ in lines]}

    def tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tools, which come in OpenAI's form."""
        return [{"tool": tool["function"]["name"]} for tool in tools]

    def shape(self, profile: Profile) -> Check:  # noqa: ARG002
        """The shape of a payload."""
        part = fields({}, dict.fromkeys(("text", "picture", "call", "tool", "with", "answer"), text))
        line = fields({"who": one_of(*WHO.values()), "says": list_of(part, least=1)})
        return fields({"script": list_of(line, least=1)}, {"tools": list_of(fields({"tool": text}))}, more=True)

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """The names of the tools, each with its place."""
        return ((("tools", at, "tool"), str(tool.get("tool"))) for at, tool in objects(payload.get("tools")))

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """The lines as the validator sees them: place, role, parts, name."""
        for at, line in objects(payload.get("script")):
            role = next((role for role, who in WHO.items() if who == line.get("who")), "nobody")
            yield ("script", at), role, [part_view(part, ("says", n)) for n, part in objects(line.get("says"))], None

    def parse(self, answer: Mapping[str, Any], provider: str) -> Msg:
        """The provider's response as a message."""
        if not isinstance(answer.get("says"), list):
            raise FormatError(f"{provider} answers with a list in 'says'; given was {answer!r:.80}")
        return Msg("assistant", [block_of(part) for part in answer["says"]], "assistant")


WHO = {"system": "director", "user": "human", "assistant": "bird", "tool": "stage"}


def parts_of(content: str | tuple[Block, ...]) -> list[dict[str, str]]:
    """The content of a turn as parts."""
    return [{"text": content}] if isinstance(content, str) else [part_of(block) for block in content]


def part_of(block: Block) -> dict[str, str]:
    """A block as a part: of each kind that the profile allows."""
    match block:
        case TextBlock(said):
            return {"text": said}
        case ImageBlock(Base64Source(data=data)):
            return {"picture": data}
        case ToolUseBlock(call, name):
            return {"call": call, "tool": name, "with": json.dumps(block.arguments)}
        case ToolResultBlock(call):
            return {"answer": call, "text": block.text}
    raise FormatError(f"a script has no place for {block!r}")


def block_of(part: Mapping[str, str]) -> Block:
    """A part of a response as a block."""
    if "call" in part:
        return ToolUseBlock(part["call"], part["tool"], json.loads(part["with"]))
    return TextBlock(part["text"])


def part_view(part: Mapping[str, Any], place: Place) -> BlockView:
    """A part as the validator sees it: kind, place, text (or id, or media type), the tool's name."""
    if "call" in part:
        return "call", place, str(part["call"]), str(part.get("tool"))
    if "answer" in part:
        return "result", place, str(part["answer"]), None
    if "picture" in part:
        return "image", place, "data:image/png", None
    return "text", place, str(part.get("text")), None


MYNAH = Profile(
    name="mynah",
    form=ScriptForm(),
    source="https://mynah.example/docs",
    media={"image": Media(("image/png",), url=False)},
    system="first",
    alternate=True,
    user_first=True,
    empty_text=False,
)

BOTH = pytest.mark.parametrize("profile", [PARROT, MYNAH], ids=["parrot", "mynah"])
RAW = b"\x89PNG\r\n\x1a\n" + bytes(24)
PNG = b64encode(RAW).decode()
PICTURE = ImageBlock(Base64Source("image/png", PNG))
SYSTEM, QUESTION = Msg("system", "Be brief.", "system"), Msg("user", "Is it raining?", "user")
CALL = ToolUseBlock("c1", "weather", {"city": "Bern"})
CALLS = Msg("assistant", [ThinkingBlock("Hm."), TextBlock("I look."), CALL], "assistant")
RESULT = Msg("tool", [ToolResultBlock("c1", output=(TextBlock("See:"), PICTURE))], "tool")
TOOL = {"type": "function", "function": {"name": "weather"}}


def test_custom_profile_with_changed_chat_form_options_formats_a_payload() -> None:
    payload = ChatFormatter(PARROT).format(QUESTION, SYSTEM, CALLS, RESULT, tools=[TOOL])
    called = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    shown = {"type": "text", "text": "(image from the tool weather)"}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert payload == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is it raining?"},
            {"role": "assistant", "content": "I look.", "reasoning": "Hm.", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c1", "content": "See:", "name": "weather"},
            {"role": "user", "content": [shown, picture]},
        ],
        "tools": [TOOL],
    }
    ChatFormatter(PARROT).validate(payload)


def test_custom_form_formats_a_payload() -> None:
    payload = ChatFormatter(MYNAH).format(QUESTION, SYSTEM, CALLS, RESULT, tools=[TOOL])
    called = {"call": "c1", "tool": "weather", "with": '{"city": "Bern"}'}
    assert payload == {
        "script": [
            {"who": "director", "says": [{"text": "Be brief."}]},
            {"who": "human", "says": [{"text": "Is it raining?"}]},
            {"who": "bird", "says": [{"text": "I look."}, called]},
            {"who": "stage", "says": [{"answer": "c1", "text": "See:"}]},
            {"who": "human", "says": [{"text": "(image from the tool weather)"}, {"picture": PNG}]},
        ],
        "tools": [{"tool": "weather"}],
    }
    assert [(entry.kind, entry.action) for entry in payload.report] == [
        ("thinking", "left out"),
        ("text", "moved"),
        ("tool_result", "moved"),
    ]
    ChatFormatter(MYNAH).validate(payload)


@BOTH
def test_violations_of_custom_profile_rules_are_repaired_and_reported(profile: Profile) -> None:
    formatter = ChatFormatter(profile)
    asked = Msg("assistant", [ToolUseBlock("c" * 99, "weather now", {})], "assistant")
    payload = formatter.format(QUESTION, QUESTION, asked)
    formatter.validate(payload)
    assert [(entry.kind, entry.action) for entry in payload.report] == [
        ("tool_result", "added"),
        ("id", "changed"),
        ("name", "changed"),
    ]
    with pytest.raises(FormatError, match="^the payload would lose content: .* video"):
        ChatFormatter(profile, strict=True).format(
            Msg("user", [VideoBlock(URLSource("https://a.b/c.mp4"))], "user"), QUESTION
        )


def test_validator_applies_the_custom_form_and_its_rules() -> None:
    human, bird = {"who": "human", "says": [{"text": "Hi."}]}, {"who": "bird", "says": [{"call": "c1", "tool": "a b"}]}
    broken = {"script": [human, human, {"who": "cat", "says": []}, bird], "tools": [{"tool": "a"}, {"tool": "a"}]}
    with pytest.raises(FormatError) as caught:
        ChatFormatter(MYNAH).validate(broken)
    lines = str(caught.value).splitlines()
    assert lines[0] == "mynah would reject this payload:"
    assert {line.split()[0] for line in lines[1:]} == {
        "script[1]",
        "script[2].who",
        "script[2].says",
        "script[2]",
        "script[3].says[0]",
        "tools[1].tool",
    }


def test_custom_provider_responses_are_parsed_and_sent_back() -> None:
    message = {"content": "I look.", "reasoning": "Hm.", "tool_calls": [{"id": "c1", "function": FUNCTION}]}
    parrots = ChatFormatter(PARROT).parse({"choices": [{"message": message}]})
    says = [{"text": "I look."}, {"call": "c1", "tool": "weather", "with": "{}"}]
    mynahs = ChatFormatter(MYNAH).parse({"says": says})
    said = TextBlock("I look."), ToolUseBlock("c1", "weather")
    assert parrots == Msg("assistant", [ThinkingBlock("Hm.", provider="parrot"), *said], "assistant")
    assert mynahs == Msg("assistant", said, "assistant")
    for profile, answer in ((PARROT, parrots), (MYNAH, mynahs)):
        payload = ChatFormatter(profile).format(QUESTION, answer, RESULT)
        ChatFormatter(profile).validate(payload)
    with pytest.raises(FormatError, match="mynah answers with a list"):
        ChatFormatter(MYNAH).parse({"text": "Hi."})


FUNCTION = {"name": "weather", "arguments": "{}"}


@BOTH
def test_custom_provider_media_are_loaded_with_a_media_resolver(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(RAW)
    message = Msg("user", [TextBlock("See:"), ImageBlock(URLSource(str(tmp_path / "a.png")))], "user")
    formatter = ChatFormatter(profile, media=MediaResolver(roots=[tmp_path]), strict=True)
    payload = formatter.format(message)
    formatter.validate(payload)
    assert PNG in json.dumps(payload)
    with pytest.raises(MediaError, match="local file"):
        ChatFormatter(profile).format(message)


@BOTH
@pytest.mark.parametrize("style", get_args(HistoryStyle))
def test_multi_agent_formatter_merges_the_history_for_a_custom_provider(profile: Profile, style: HistoryStyle) -> None:
    agents = Msg("Ann", [TextBlock("Hi."), PICTURE], "user"), Msg("Bob", "Ann: no", "assistant")
    formatter = MultiAgentFormatter(profile, history_style=style)
    payload = formatter.format(SYSTEM, *agents, CALLS, RESULT, QUESTION)
    formatter.validate(payload)
    said = json.dumps(payload)
    assert "Ann: Hi." in said
    assert "Bob: Ann: no" in said
    assert said.count(PNG) == 2


def test_custom_provider_breakpoints_are_set_or_reported() -> None:
    messages = SYSTEM, QUESTION, Msg("assistant", "It is.", "assistant"), QUESTION
    places = "tools", "system", "history"
    payload = ChatFormatter(PARROT, cache=places).format(*messages, tools=[TOOL])
    ChatFormatter(PARROT).validate(payload)
    marked = {"type": "text", "cache_control": {"type": "ephemeral"}}
    assert payload["messages"][0]["content"] == [marked | {"text": "Be brief."}]
    assert payload["messages"][2]["content"] == [marked | {"text": "It is."}]
    assert payload["tools"] == [TOOL | {"cache_control": {"type": "ephemeral"}}]
    (entry,) = ChatFormatter(MYNAH, cache=places).format(*messages, tools=[TOOL]).report
    assert (entry.kind, entry.action) == ("cache", "left out")


@BOTH
def test_formatter_with_a_custom_profile_can_be_pickled(profile: Profile) -> None:
    again = pickle.loads(pickle.dumps(ChatFormatter(profile)))  # noqa: S301 - our own
    assert again.format(QUESTION) == ChatFormatter(profile).format(QUESTION)
    assert again.provider == profile.name == row_of(profile).provider
    assert ChatFormatter(profile.but(system="anywhere")).format(QUESTION, SYSTEM).report == ()
