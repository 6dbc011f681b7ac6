"""AgentScope's messages, bases and counters: the parts that programs for its version 1 use."""

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

IMAGE = ImageBlock(type="image", source=URLSource(type="url", url="https://x.org/a.png"))
CALL = ToolUseBlock(type="tool_use", id="1", name="draw", input={"what": "a cat"})
RESULT = ToolResultBlock(type="tool_result", id="1", name="draw", output=[TextBlock(type="text", text="Done"), IMAGE])


def run(formatter: FormatterBase, messages: Any) -> list[dict[str, Any]]:
    return asyncio.run(formatter.format(messages))


def test_content_block_is_a_dict_with_attributes() -> None:
    block = TextBlock(type="text", text="Hi")
    assert block == TextBlock("Hi") == {"type": "text", "text": "Hi"}
    assert (block["text"], block.text, block.get("type")) == ("Hi", "Hi", "text")
    assert json.loads(json.dumps(RESULT))["output"][1]["source"]["url"] == "https://x.org/a.png"
    with pytest.raises(AttributeError, match="text block has no field 'txt', only type, text"):
        _ = block.txt
    for twin in (copy.deepcopy(RESULT), pickle.loads(pickle.dumps(RESULT))):  # noqa: S301 - our own
        assert (type(twin), twin) == (ToolResultBlock, RESULT)


def test_message_has_the_methods_of_agentscope() -> None:
    message = Msg("Friday", [ThinkingBlock("Hm."), TextBlock("Look:"), IMAGE, TextBlock("There.")], "assistant")
    assert message.get_text_content() == "Look:\nThere."
    assert message.get_text_content(separator=" ") == "Look: There."
    assert message.get_content_blocks("image") == [IMAGE]
    assert [block["type"] for block in message.get_content_blocks(["text", "thinking"])] == ["thinking", "text", "text"]
    assert message.has_content_blocks("image")
    assert not message.has_content_blocks("audio")
    assert Msg("Bob", "Hi", "user").get_content_blocks() == [{"type": "text", "text": "Hi"}]
    assert Msg("Bob", [IMAGE], "user").get_text_content() is None
    assert message.id != Msg("Friday", "Hi", "assistant").id
    assert len(message.timestamp) == len("2026-01-31 09:30:00.000")


def test_message_survives_a_json_round_trip() -> None:
    message = Msg("Friday", [CALL], "assistant", {"a": 1}, invocation_id="i")
    again = Msg.from_dict(json.loads(json.dumps(message.to_dict())))
    assert again.to_dict() == message.to_dict()
    assert again.id == message.id
    with pytest.raises(HistoryError, match="nonsense"):
        Msg.from_dict({"name": "a", "content": [{"type": "nonsense"}], "role": "user"})


def test_content_that_is_assigned_later_is_formatted() -> None:
    message = Msg("Bob", "Hi", "user")
    message.content = [TextBlock("Bye")]
    assert run(OpenAIChatFormatter(), [message])[0]["content"] == "Bye"


def test_empty_list_of_messages_is_formatted_as_an_empty_list() -> None:
    """An empty list was refused, although the agents of AgentScope begin with one."""
    assert run(OpenAIChatFormatter(), []) == []
    assert run(OpenAIChatFormatter(CharTokenCounter(), 100), []) == []


def test_formatters_of_the_responses_api_format_messages() -> None:
    chat = [Msg("system", "Be brief.", "system"), Msg("Bob", "Hi", "user")]
    made = run(OpenAIResponseChatFormatter(), chat)
    assert [each["role"] for each in made] == ["developer", "user"]
    assert "Bob: Hi" in json.dumps(run(OpenAIResponseMultiAgentFormatter(), chat))


def test_thought_signature_of_gemini_is_kept() -> None:
    signed = ToolUseBlock("1", "draw", {}, thought_signature="c2ln")
    made = run(GeminiChatFormatter(), [Msg("Bob", "Draw", "user"), Msg("f", [signed], "assistant")])
    assert "c2ln" in json.dumps(made)


@pytest.mark.parametrize("promoted", [True, None])
def test_images_of_a_tool_result_are_promoted_by_default_and_on_request(promoted: Any) -> None:
    formatter = OpenAIChatFormatter(**({} if promoted is None else {"promote_tool_result_images": promoted}))
    made = run(formatter, [Msg("f", [CALL], "assistant"), Msg("system", [RESULT], "system")])
    shown = [each for each in made if each["role"] == "user" and "image_url" in json.dumps(each)]
    assert (len(shown), "can be found at" in json.dumps(made)) == (1, False)


@pytest.mark.parametrize(("images", "url"), [([IMAGE], None), ([], "https://x.org/b.png")])
def test_images_of_the_user_do_not_depend_on_the_promotion_of_tool_results(images: Any, url: str | None) -> None:
    """Without promotion the user's own images became text, and those at a message's url were lost."""
    message = Msg("Bob", [TextBlock("Look"), *images], "user", url=url)
    made = run(OpenAIChatFormatter(promote_tool_result_images=False), [message])
    assert made == run(OpenAIChatFormatter(), [message])
    assert "image_url" in json.dumps(made)


def test_unknown_argument_of_a_formatter_is_refused_with_a_suggestion() -> None:
    with pytest.raises(FormatError, match="has no argument 'promote_tool_result_image' .*'promote_tool_result_images'"):
        OpenAIChatFormatter(promote_tool_result_image=True)


def test_formatter_base_can_be_subclassed() -> None:
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


def test_tool_result_is_converted_to_a_string_and_its_media() -> None:
    as_text = FormatterBase.convert_tool_result_to_string
    assert as_text(None) == as_text("") == ("", [])
    assert as_text("42") == as_text([TextBlock("42")]) == ("42", [])
    audio = AudioBlock(Base64Source("audio/wav", "UklGRg=="))
    text, media = as_text([TextBlock("Done"), IMAGE, audio])
    assert text == (
        "- Done\n- The returned image can be found at: https://x.org/a.png\n"
        "- The returned audio can be found at: (base64 data of type audio/wav)"
    )
    assert [block for _, block in media] == [IMAGE, audio]


def test_token_counters_are_awaited_and_count_as_those_of_lazyprompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    messages = [{"role": "user", "content": "How many tokens?"}]
    assert asyncio.run(CharTokenCounter().count(messages, [{"type": "x"}])) == len('How many tokens?{"type": "x"}')
    ours = OpenAITokenCounter("gpt-4")
    counted = TiktokenCounter("gpt-4").count(messages)
    assert (ours.model_name, asyncio.run(ours.count(messages))) == ("gpt-4", counted)

    class Mine(TokenCounterBase):
        async def count(self, messages: Any, tools: Any = None, **_: object) -> int:  # noqa: ARG002 - as the base has it
            return len(messages)

    chat = [Msg("Bob", f"text {at}", "user") for at in range(9)]
    assert len(run(OpenAIChatFormatter(Mine(), 3), chat)) == 3
    with pytest.raises(TypeError, match="abstract method '?count"):
        TokenCounterBase()  # type: ignore[abstract]
    with pytest.raises(LookupError, match="no-such"):
        HuggingFaceTokenCounter("no-such-model")


@pytest.mark.parametrize(
    ("package", "client_class", "kind"),
    [
        ("anthropic", "anthropic.Anthropic", AnthropicTokenCounter),
        ("google-genai", "google.genai.Client", GeminiTokenCounter),
    ],
)
def test_token_counter_calls_the_client(
    monkeypatch: pytest.MonkeyPatch, package: str, client_class: str, kind: Any
) -> None:
    client = Mock()
    client.messages.count_tokens().input_tokens = client.models.count_tokens().total_tokens = 7
    monkeypatch.setattr(client_class, connect := Mock(return_value=client))
    counter = kind("m", "k", timeout=5)
    assert (counter.model_name, asyncio.run(counter.count([{"role": "user", "content": "Hi"}]))) == ("m", 7)
    connect.assert_called_once_with(api_key="k", timeout=5)
    monkeypatch.setitem(sys.modules, client_class.rpartition(".")[0], None)
    with pytest.raises(ImportError, match=f"the {package} package is not installed"):
        kind("m")
