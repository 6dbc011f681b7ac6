"""AgentScope's messages, bases and counters: programs written for its version 1 find what they use."""

import asyncio
import copy
import json
import pickle
import sys
from typing import Any
from unittest.mock import Mock

import pytest

from lazyprompt import HistoryError, TiktokenCounter
from lazyprompt.compat.agentscope import (
    AnthropicTokenCounter,
    AudioBlock,
    Base64Source,
    CharTokenCounter,
    FormatterBase,
    GeminiChatFormatter,
    GeminiTokenCounter,
    HuggingFaceTokenCounter,
    ImageBlock,
    Msg,
    OpenAIChatFormatter,
    OpenAIResponseChatFormatter,
    OpenAIResponseMultiAgentFormatter,
    OpenAITokenCounter,
    TextBlock,
    ThinkingBlock,
    TokenCounterBase,
    ToolResultBlock,
    ToolUseBlock,
    TruncatedFormatterBase,
    URLSource,
)
from lazyprompt.errors import FormatError
from support.vocabularies import vocabulary_folder

PICTURE = ImageBlock(type="image", source=URLSource(type="url", url="https://x.org/a.png"))
CALL = ToolUseBlock(type="tool_use", id="1", name="draw", input={"what": "a cat"})
RESULT = ToolResultBlock(type="tool_result", id="1", name="draw", output=[TextBlock(type="text", text="Done"), PICTURE])


def run(formatter: FormatterBase, messages: Any) -> list[dict[str, Any]]:
    return asyncio.run(formatter.format(messages))


def test_a_block_is_a_dict_with_attributes() -> None:
    block = TextBlock(type="text", text="Hi")
    assert block == TextBlock("Hi") == {"type": "text", "text": "Hi"}
    assert (block["text"], block.text, block.get("type")) == ("Hi", "Hi", "text")
    assert json.loads(json.dumps(RESULT))["output"][1]["source"]["url"] == "https://x.org/a.png"
    with pytest.raises(AttributeError, match="text block has no field 'txt', only type, text"):
        _ = block.txt
    for twin in (copy.deepcopy(RESULT), pickle.loads(pickle.dumps(RESULT))):  # noqa: S301 - our own
        assert (type(twin), twin) == (ToolResultBlock, RESULT)


def test_a_message_has_the_methods_of_agentscope() -> None:
    message = Msg("Friday", [ThinkingBlock("Hm."), TextBlock("Look:"), PICTURE, TextBlock("There.")], "assistant")
    assert message.get_text_content() == "Look:\nThere."
    assert message.get_text_content(separator=" ") == "Look: There."
    assert message.get_content_blocks("image") == [PICTURE]
    assert [block["type"] for block in message.get_content_blocks(["text", "thinking"])] == ["thinking", "text", "text"]
    assert message.has_content_blocks("image")
    assert not message.has_content_blocks("audio")
    assert Msg("Bob", "Hi", "user").get_content_blocks() == [{"type": "text", "text": "Hi"}]
    assert Msg("Bob", [PICTURE], "user").get_text_content() is None
    assert message.id != Msg("Friday", "Hi", "assistant").id
    assert len(message.timestamp) == len("2026-01-31 09:30:00.000")


def test_a_message_goes_through_json() -> None:
    message = Msg("Friday", [CALL], "assistant", {"a": 1}, invocation_id="i")
    again = Msg.from_dict(json.loads(json.dumps(message.to_dict())))
    assert again.to_dict() == message.to_dict()
    assert again.id == message.id
    with pytest.raises(HistoryError, match="nonsense"):
        Msg.from_dict({"name": "a", "content": [{"type": "nonsense"}], "role": "user"})


def test_what_changes_in_a_message_is_formatted() -> None:
    message = Msg("Bob", "Hi", "user")
    message.content = [TextBlock("Bye")]
    assert run(OpenAIChatFormatter(), [message])[0]["content"] == "Bye"


def test_no_messages_are_no_messages() -> None:
    """An empty list was refused, where AgentScope's agents begin with one."""
    assert run(OpenAIChatFormatter(), []) == []
    assert run(OpenAIChatFormatter(CharTokenCounter(), 100), []) == []


def test_responses_have_their_formatters() -> None:
    talk = [Msg("system", "Be brief.", "system"), Msg("Bob", "Hi", "user")]
    made = run(OpenAIResponseChatFormatter(), talk)
    assert [each["role"] for each in made] == ["developer", "user"]
    assert "Bob: Hi" in json.dumps(run(OpenAIResponseMultiAgentFormatter(), talk))


def test_a_signature_of_gemini_is_kept_under_its_name() -> None:
    signed = ToolUseBlock("1", "draw", {}, thought_signature="c2ln")
    made = run(GeminiChatFormatter(), [Msg("Bob", "Draw", "user"), Msg("f", [signed], "assistant")])
    assert "c2ln" in json.dumps(made)


@pytest.mark.parametrize("promoted", [True, None])
def test_the_media_of_a_result_are_shown(promoted: Any) -> None:
    given = {} if promoted is None else {"promote_tool_result_images": promoted}
    formatter = OpenAIChatFormatter(**given)
    made = run(formatter, [Msg("f", [CALL], "assistant"), Msg("system", [RESULT], "system")])
    shown = [each for each in made if each["role"] == "user" and "image_url" in json.dumps(each)]
    assert (len(shown), "can be found at" in json.dumps(made)) == (1, False)


def test_what_the_user_shows_is_no_result() -> None:
    """Without promotion the user's own pictures became text, and those at a message's url were lost."""
    formatter = OpenAIChatFormatter(promote_tool_result_images=False)
    shown = Msg("Bob", [TextBlock("Look"), PICTURE], "user")
    beside = Msg("Bob", [TextBlock("Look")], "user", url="https://x.org/b.png")
    for message in (shown, beside):
        assert run(formatter, [message]) == run(OpenAIChatFormatter(), [message])
        assert "image_url" in json.dumps(run(formatter, [message]))


def test_an_unknown_argument_of_a_formatter_is_told() -> None:
    with pytest.raises(FormatError, match="has no argument 'promote_tool_result_image' .*'promote_tool_result_images'"):
        OpenAIChatFormatter(promote_tool_result_image=True)


def test_the_bases_can_be_subclassed() -> None:
    class Shouting(FormatterBase):
        async def format(self, msgs: Any) -> list[dict[str, Any]]:
            self.assert_list_of_msgs(msgs)
            return [{"role": msg.role, "content": msg.get_text_content().upper()} for msg in msgs]

    assert run(Shouting(), [Msg("Bob", "Hi", "user")]) == [{"role": "user", "content": "HI"}]
    assert isinstance(OpenAIChatFormatter(), TruncatedFormatterBase)
    for wrong in (Msg("Bob", "Hi", "user"), ["Hi"]):
        with pytest.raises(TypeError, match="msgs must be a list of Msg"):
            run(Shouting(), wrong)
    with pytest.raises(TypeError, match="abstract method '?format"):
        FormatterBase()  # type: ignore[abstract]


def test_a_result_becomes_text() -> None:
    as_text = FormatterBase.convert_tool_result_to_string
    assert as_text(None) == as_text("") == ("", [])
    assert as_text("42") == as_text([TextBlock("42")]) == ("42", [])
    sound = AudioBlock(Base64Source("audio/wav", "UklGRg=="))
    text, media = as_text([TextBlock("Done"), PICTURE, sound])
    assert text == (
        "- Done\n- The returned image can be found at: https://x.org/a.png\n"
        "- The returned audio can be found at: (base64 data of type audio/wav)"
    )
    assert [block for _, block in media] == [PICTURE, sound]


def test_counters_count_as_ours_and_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    messages = [{"role": "user", "content": "How many tokens?"}]
    assert asyncio.run(CharTokenCounter().count(messages, [{"type": "x"}])) == len('How many tokens?{"type": "x"}')
    ours = OpenAITokenCounter("gpt-4")
    counted = TiktokenCounter("gpt-4").count(messages)
    assert (ours.model_name, asyncio.run(ours.count(messages))) == ("gpt-4", counted)

    class Mine(TokenCounterBase):
        async def count(self, messages: Any, tools: Any = None, **_: object) -> int:  # noqa: ARG002 - as the base has it
            return len(messages)

    client = Mock()
    client.messages.count_tokens().input_tokens = client.models.count_tokens().total_tokens = 7
    for package, client_class, kind in (
        ("anthropic", "anthropic.Anthropic", AnthropicTokenCounter),
        ("google-genai", "google.genai.Client", GeminiTokenCounter),
    ):
        monkeypatch.setattr(client_class, connect := Mock(return_value=client))
        counter = kind("m", "k", timeout=5)
        assert (counter.model_name, asyncio.run(counter.count(messages))) == ("m", 7)
        connect.assert_called_once_with(api_key="k", timeout=5)
        monkeypatch.setitem(sys.modules, client_class.rpartition(".")[0], None)
        with pytest.raises(ImportError, match=f"the {package} package is not installed"):
            kind("m")
    talk = [Msg("Bob", f"text {at}", "user") for at in range(9)]
    assert len(run(OpenAIChatFormatter(Mine(), 3), talk)) == 3
    with pytest.raises(TypeError, match="abstract method '?count"):
        TokenCounterBase()  # type: ignore[abstract]
    with pytest.raises(LookupError, match="no-such"):
        HuggingFaceTokenCounter("no-such-model")
