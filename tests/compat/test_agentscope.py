"""AgentScope's names: each exists, and the programs of its documentation print the documented output."""

import ast
import asyncio
import json
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lazyprompt.compat import agentscope, agentscope_0_0
from lazyprompt.compat.agentscope import (
    AnthropicChatFormatter,
    CharTokenCounter,
    ChatFormatterBase,
    DashScopeChatFormatter,
    DashScopeChatWrapper,
    DashScopeMultiAgentFormatter,
    GeminiChatFormatter,
    GeminiChatWrapper,
    ImageBlock,
    MessageList,
    Msg,
    OllamaGenerationWrapper,
    OpenAIChatFormatter,
    OpenAIChatWrapper,
    OpenAIFormatter,
    PromptEngine,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    Wrapper,
)
from lazyprompt.errors import BudgetError, FormatError
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.media.resolver import MediaResolver
from support.paths import EXAMPLES

WRAPPERS = {
    "OpenAIChatWrapper": "openai",
    "DashScopeChatWrapper": "dashscope",
    "DashScopeMultiModalWrapper": "dashscope-multimodal",
    "OllamaChatWrapper": "ollama",
    "OllamaGenerationWrapper": "ollama-generate",
    "GeminiChatWrapper": "gemini",
    "ZhipuAIChatWrapper": "zhipu",
    "LiteLLMChatWrapper": "litellm",
}
FORMATTERS = {
    f"{name}{kind}Formatter": (name.lower(), kind)
    for name in ("OpenAI", "Anthropic", "DashScope", "Gemini", "Ollama", "DeepSeek", "Moonshot", "XAI")
    for kind in ("Chat", "MultiAgent")
}
SYSTEM = Msg("system", "You're a helpful assistant", role="system")
CHAT = [Msg("Bob", "Hi!", "assistant"), Msg("Alice", "Nice to meet you!", "assistant")]
TEXT = "\nBob: Hi!\nAlice: Nice to meet you!"
CALL = Msg("Friday", [ToolUseBlock("1", "f", {})], "assistant")
RESULT = Msg("system", [ToolResultBlock("1", "f", "42")], "system")


def run(formatter: agentscope.FormatterBase, messages: Any) -> MessageList:
    return asyncio.run(formatter.format(messages))


# Names


@pytest.mark.parametrize("module", [agentscope, agentscope_0_0])
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrapper_has_its_provider_model_and_history_style(module: ModuleType, name: str) -> None:
    kind = getattr(module, name)
    wrapper = kind("config", model_name="m", api_key="secret", stream=True, client_args={})
    assert isinstance(wrapper, Wrapper)
    assert (wrapper.provider, wrapper.config_name, wrapper.model_name) == (WRAPPERS[name], "config", "m")
    assert (wrapper.formatter.provider, wrapper.formatter.model) == (WRAPPERS[name], "m")
    assert kind.__name__ in module.__all__
    style = "dialogue" if module is agentscope_0_0 else "conversation"
    assert getattr(wrapper.formatter, "history_style", None) == (None if name == "OpenAIChatWrapper" else style)


@pytest.mark.parametrize("name", FORMATTERS)
def test_formatter_has_its_provider_and_kind(name: str) -> None:
    provider, kind = FORMATTERS[name]
    made = getattr(agentscope, name)
    formatter = made()
    assert isinstance(formatter, ChatFormatterBase)
    assert type(formatter.formatter) is (ChatFormatter if kind == "Chat" else MultiAgentFormatter)
    assert formatter.formatter.provider == formatter.provider == provider


@pytest.mark.parametrize("module", [agentscope, agentscope_0_0])
def test_public_names_are_sorted_and_exist(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_public_names_are_complete() -> None:
    assert set(agentscope.__all__) >= {*WRAPPERS, *FORMATTERS, "OpenAIFormatter", "PromptEngine", "Msg", "TextBlock"}
    assert OpenAIFormatter is OpenAIChatFormatter
    assert agentscope.OpenAIResponseFormatter is agentscope.OpenAIResponseChatFormatter


def test_wrapper_does_not_store_the_api_key() -> None:
    assert b"secret" not in pickle.dumps(vars(OpenAIChatWrapper("c", "m", "secret")) | {"formatter": None})


def test_subclass_keeps_its_own_docstring() -> None:
    class Mine(DashScopeChatWrapper):
        """My own."""

    class MyFormatter(DashScopeChatFormatter):
        """My own too."""

    assert (Mine.provider, Mine.__doc__) == ("dashscope", "My own.")
    assert (MyFormatter.provider, MyFormatter.__doc__) == ("dashscope", "My own too.")
    wrapper, formatter = (type("Plain", (base,), {}).__doc__ for base in (DashScopeChatWrapper, DashScopeChatFormatter))
    assert wrapper == "AgentScope's Plain: ``format`` for the provider ``dashscope``."
    assert formatter == "AgentScope's Plain: the ChatFormatter of ``dashscope``."


# 0.x


def test_wrapper_accepts_messages_and_lists_of_messages() -> None:
    expected = [{"role": "user", "content": f"You're a helpful assistant\n## Conversation History{TEXT}"}]
    wrapper = DashScopeChatWrapper(config_name="", model_name="qwen-max")
    assert wrapper.format(SYSTEM, CHAT) == wrapper.format([SYSTEM, *CHAT]) == expected
    assert wrapper.format(None, SYSTEM, None, *CHAT) == expected


def test_ollama_generation_wrapper_returns_a_string() -> None:
    made = OllamaGenerationWrapper().format(SYSTEM, CHAT)
    assert made == f"You're a helpful assistant\n\n## Conversation History{TEXT}"
    old = agentscope_0_0.OllamaGenerationWrapper().format(SYSTEM, CHAT)
    assert old == f"You're a helpful assistant\n\n## Dialogue History{TEXT}"


def test_system_text_is_kept_for_providers_with_a_separate_system_field() -> None:
    made = GeminiChatWrapper().format(SYSTEM, CALL, RESULT)
    assert made[0] == {"role": "user", "parts": [{"text": "You're a helpful assistant"}]}
    assert "You're a helpful assistant" in OllamaGenerationWrapper().format(SYSTEM, Msg("user", "Hi.", "user"))
    assert OllamaGenerationWrapper().format(SYSTEM)


def test_local_image_requires_a_media_resolver_with_its_root(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(b"GIF89a")
    message = Msg("user", "Look", "user", url=str(tmp_path / "a.gif"))
    made = OpenAIChatWrapper(model_name="gpt-4o", media=MediaResolver(roots=[tmp_path])).format(message)
    assert made[0]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}}
    with pytest.raises(ValueError, match="MediaResolver"):
        OpenAIChatWrapper(model_name="gpt-4o").format(message)


def test_wrapper_determines_the_prompt_type_of_a_prompt_engine() -> None:
    parts = ("You're a helpful assistant.", [{"name": "user", "content": "Hi."}])
    assert PromptEngine(OllamaGenerationWrapper()).join(*parts) == "You're a helpful assistant.\nuser: Hi."
    assert isinstance(agentscope_0_0.PromptEngine(agentscope_0_0.OpenAIChatWrapper()).join(*parts), list)


# 1.x


def test_formatter_is_awaited_and_returns_a_list_of_messages() -> None:
    assert run(OpenAIFormatter(), [SYSTEM, *CHAT]) == [
        {"role": "system", "name": "system", "content": "You're a helpful assistant"},
        {"role": "assistant", "name": "Bob", "content": "Hi!"},
        {"role": "assistant", "name": "Alice", "content": "Nice to meet you!"},
    ]


def test_separate_system_text_becomes_the_first_message() -> None:
    messages = [SYSTEM, Msg("user", "Hi.", "user")]
    assert run(AnthropicChatFormatter(), messages) == [
        {"role": "system", "content": "You're a helpful assistant"},
        {"role": "user", "content": "Hi."},
    ]
    assert run(GeminiChatFormatter(), messages) == [
        {"role": "user", "parts": [{"text": "You're a helpful assistant"}]},
        {"role": "user", "parts": [{"text": "Hi."}]},
    ]


def test_inner_formatter_returns_the_report() -> None:
    message = Msg("user", [TextBlock("Look"), ImageBlock(URLSource("https://x.org/a.png"))], "user")
    report = agentscope.DeepSeekChatFormatter().formatter.format(message.to_message()).report
    assert [(entry.kind, entry.action) for entry in report] == [("image", "left out")]


class Sync:
    def __init__(self) -> None:
        self.threads: set[int] = set()

    def count(self, messages: MessageList) -> int:
        self.threads.add(threading.get_ident())
        return sum(len(str(message["content"])) for message in messages)


class Async(Sync):
    async def count(self, messages: MessageList) -> int:  # type: ignore[override]
        await asyncio.sleep(0.001)
        return super().count(messages)


class Whole(Async):
    async def count(self, messages: MessageList) -> int:  # type: ignore[override]
        return len(str(messages))


@pytest.mark.parametrize("counter", [Sync(), Async(), CharTokenCounter()], ids=["sync", "async", "chars"])
def test_token_counter_may_be_sync_or_async(counter: Any) -> None:
    messages = [SYSTEM, *(Msg("user", f"text {at}", "user") for at in range(9))]
    most = len("You're a helpful assistant") + len("text 7\ntext 8")
    made = run(DashScopeChatFormatter(counter, most), messages)
    assert [each["content"] for each in made] == ["You're a helpful assistant", "text 7\ntext 8"]
    assert run(DashScopeChatFormatter(token_counter=counter), messages) == run(DashScopeChatFormatter(), messages)
    if isinstance(counter, Async):
        assert counter.threads == {threading.get_ident()}


FEW, MANY = "29 tokens (system text 26, newest user turn 3)", "97 tokens (system text 59, newest user turn 36, fix"


@pytest.mark.parametrize(("counter", "sizes"), [(CharTokenCounter(), FEW), (Async(), FEW), (Whole(), MANY)])
def test_unreachable_token_limit_raises_a_budget_error(counter: Any, sizes: str) -> None:
    with pytest.raises(BudgetError, match=re.escape(f"the parts that are never dropped have {sizes}")):
        run(DashScopeChatFormatter(counter, 5), [SYSTEM, Msg("user", "Hi!", "user")])
    with pytest.raises(FormatError, match="token_counter"):
        DashScopeChatFormatter(max_tokens=5)


def test_event_loop_keeps_running_during_async_token_counting() -> None:
    async def both() -> tuple[MessageList, int]:
        ticks = 0
        done = asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not done.is_set():
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        made = await DashScopeMultiAgentFormatter(Async(), 10_000).format(CHAT)
        done.set()
        await ticking
        return made, ticks

    made, ticks = asyncio.run(both())
    assert len(made) == 1
    assert ticks > 1


@pytest.mark.parametrize("name", [name for name, (_, kind) in FORMATTERS.items() if kind == "MultiAgent"])
def test_conversation_history_prompt_can_be_replaced(name: str) -> None:
    # The argument was refused as unknown.
    formatter = getattr(agentscope, name)(conversation_history_prompt="以下是对话记录\n")
    (made,) = run(formatter, CHAT)
    text = made["parts"][0]["text"] if "parts" in made else made["content"]
    assert text == f"以下是对话记录\n<history>{TEXT}\n</history>"
    assert getattr(agentscope, name)().conversation_history_prompt.startswith("# Conversation History\n")
    with pytest.raises(FormatError, match="has no argument 'conversation_history_prompt'"):
        getattr(agentscope, name.replace("MultiAgent", "Chat"))(conversation_history_prompt="")


@pytest.mark.parametrize(
    ("name", "names", "thinking"),
    [
        ("MoonshotChatFormatter", ({}, {}, {}), {"reasoning_content": "Hm."}),
        ("XAIChatFormatter", ({"name": "system"}, {"name": "Bob"}, {"name": "Friday"}), {}),
    ],
)
def test_formatters_of_version_2_send_the_fields_of_their_providers(
    name: str, names: Sequence[dict[str, str]], thinking: dict[str, str]
) -> None:
    call = Msg("Friday", [ThinkingBlock("Hm."), TextBlock("I look."), ToolUseBlock("1", "f", {})], "assistant")
    function = {"name": "f", "arguments": "{}"}
    assert run(getattr(agentscope, name)(), [SYSTEM, Msg("Bob", "Where?", "user"), call, RESULT]) == [
        {"role": "system", "content": "You're a helpful assistant", **names[0]},
        {"role": "user", "content": "Where?", **names[1]},
        {"role": "assistant", "content": "I look.", **names[2], **thinking}
        | {"tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]


class Words:
    def count(self, messages: MessageList) -> int:
        return sum(len(str(message["content"]).split()) for message in messages)


class Lines(agentscope.TruncatedFormatterBase):
    """A formatter written for AgentScope: it overrides the methods that AgentScope's guide names."""

    async def _format_tool_sequence(self, msgs: list[Msg]) -> MessageList:
        return await DashScopeChatFormatter().format(msgs)

    async def _format_agent_message(self, msgs: list[Msg], is_first: bool = True) -> MessageList:  # noqa: FBT001, FBT002 - AgentScope's signature
        lines = [f"{msg.name}> {msg.get_text_content()}" for msg in msgs]
        return [{"role": "user", "content": "\n".join(["So far:", *lines] if is_first else lines)}]


def test_custom_formatter_formats_groups_of_messages() -> None:
    # TruncatedFormatterBase could not be subclassed: it was the provider's formatter itself, without a provider.
    made = run(Lines(), [SYSTEM, *CHAT, CALL, RESULT, CHAT[0]])
    assert made[:2] == [
        {"role": "system", "content": [{"type": "text", "text": "You're a helpful assistant"}]},
        {"role": "user", "content": "So far:\nBob> Hi!\nAlice> Nice to meet you!"},
    ]
    assert [each["role"] for each in made[2:-1]][-2:] == ["assistant", "tool"]
    assert made[-1] == {"role": "user", "content": "Bob> Hi!"}

    async def groups() -> list[tuple[str, list[Msg]]]:
        return [each async for each in Lines._group_messages([*CHAT, CALL, RESULT])]  # noqa: SLF001 - AgentScope's name

    assert asyncio.run(groups()) == [("agent_message", CHAT), ("tool_sequence", [CALL, RESULT])]
    with pytest.raises(NotImplementedError, match="override _format_agent_message"):
        run(agentscope.TruncatedFormatterBase(), CHAT)


def test_custom_formatter_keeps_the_token_limit() -> None:
    messages = [Msg("Bob", f"question {at}", "user") for at in range(50)]
    made = run(Lines(Words(), 9), messages)
    assert made == [{"role": "user", "content": "So far:\nBob> question 48\nBob> question 49"}]
    with pytest.raises(BudgetError):
        run(Lines(Words(), 3), messages)


class Newest(DashScopeChatFormatter):
    """A provider's formatter with its own truncation, as AgentScope's guide suggests."""

    async def _truncate(self, msgs: list[Msg]) -> list[Msg]:
        return msgs[-1:]


def test_subclass_of_a_provider_formatter_may_override_truncate() -> None:
    messages = [Msg("Bob", "one two", "user"), Msg("Friday", "three", "assistant"), Msg("Bob", "four", "user")]
    assert run(Newest(Words(), 2), messages) == [{"role": "user", "content": "four"}]
    assert run(Newest(Words(), 4), messages) == run(DashScopeChatFormatter(), messages)
    with pytest.raises(BudgetError, match="_truncate dropped no messages, although 1 tokens exceed 0"):
        run(Newest(Words(), 0), messages[-1:])


@pytest.mark.parametrize("name", ["_format_system_message", "_format_tool_sequence", "_format_agent_message"])
def test_overriding_a_method_that_is_never_called_is_refused(name: str) -> None:
    message = f"^Mine.{name} would .* override _format, or derive the class from TruncatedFormatterBase$"
    with pytest.raises(FormatError, match=message):
        type("Mine", (DashScopeMultiAgentFormatter,), {name: getattr(agentscope.TruncatedFormatterBase, name)})


def test_unpromoted_media_of_tool_results_are_sent_as_urls() -> None:
    output = [
        TextBlock("a"),
        ImageBlock(URLSource("https://e/x.png")),
        agentscope.AudioBlock(URLSource("https://e/y.mp3")),
    ]
    messages = [CALL, Msg("system", [ToolResultBlock("1", "f", output)], "system")]
    made = run(DashScopeChatFormatter(promote_tool_result_images=False, promote_tool_result_audios=False), messages)
    texts = [
        "a",
        "The returned image can be found at: https://e/x.png",
        "The returned audio can be found at: https://e/y.mp3",
    ]
    assert made[-1] == {"role": "tool", "tool_call_id": "1", "content": "\n".join(texts), "name": "f"}
    plain = run(DashScopeChatFormatter(promote_tool_result_images=False), [CALL, RESULT])
    assert plain == run(DashScopeChatFormatter(), [CALL, RESULT])


def test_formatters_can_be_pickled() -> None:
    formatter = pickle.loads(pickle.dumps(DashScopeMultiAgentFormatter()))  # noqa: S301 - our own
    assert run(formatter, CHAT) == run(DashScopeMultiAgentFormatter(), CHAT)


# The programs of AgentScope's documentation


def run_example(name: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, EXAMPLES / name], check=True, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.stderr == ""
    return done.stdout


def prompts(text: str) -> Iterator[Any]:
    """Yield the printed prompts: a list is one line, and a string begins with "You're"."""
    for piece in text.replace("\nYou're", "\0You're").replace("\n[{'role'", "\0[{'role'").strip().split("\0"):
        yield ast.literal_eval(piece) if piece.startswith("[") else piece


@pytest.mark.slow
def test_example_of_agentscope_0_0_prints_the_documented_prompts() -> None:
    names, vision, chat, multimodal, ollama, generate, gemini, zhipu, string, messages, filled = prompts(
        run_example("agentscope_0_0.py")
    )
    system = {"role": "system", "content": "You're a helpful assistant"}
    history = {"role": "user", "content": f"## Dialogue History{TEXT}"}
    assert names[1:] == [
        {"role": "assistant", "name": "Bob", "content": "Hi."},
        {"role": "assistant", "name": "Alice", "content": "Nice to meet you!"},
    ]
    assert vision[1]["content"][1] == {"type": "image_url", "image_url": {"url": "https://xxx.png"}}
    assert len(vision[2]["content"]) == 2
    assert vision[2]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert chat == zhipu == [system, history]
    assert multimodal == [
        {"role": "system", "content": [{"text": system["content"]}, {"image": "url_to_png1"}]},
        {"role": "user", "content": [{"text": history["content"]}, {"image": "url_to_png2"}, {"image": "url_to_png3"}]},
    ]
    calm = f"{system['content']}\n\n{history['content']}".replace("Hi!", "Hi.")
    assert ollama == [{"role": "system", "content": calm, "images": ["https://example.com/image.jpg"]}]
    assert generate == calm
    assert gemini == [{"role": "user", "parts": [f"{system['content']}\n{history['content']}"]}]
    assert string == (
        "You're a helpful assistant.\nuser: What's the weather like today?\nPlease respond in JSON format."
    )
    assert messages == [
        {"role": "system", "content": "You're a helpful assistant."},
        {"role": "user", "name": "user", "content": "What's the weather like today?"},
    ]
    assert filled[2] == {"role": "user", "content": "Find the weather in London."}


@pytest.mark.slow
def test_example_of_agentscope_0_1_prints_the_documented_prompts() -> None:
    names, vision, chat, multimodal, litellm, ollama, generate, gemini, zhipu = prompts(
        run_example("agentscope_0_1.py")
    )
    together = f"You're a helpful assistant\n## Conversation History{TEXT}"
    assert [each["name"] for each in names] == ["system", "Bob", "Alice"]
    assert [len(each["content"]) for each in vision[1:]] == [2, 2]
    assert chat == [{"role": "user", "content": together}]
    assert multimodal[1]["content"][0] == {"text": f"## Conversation History{TEXT}"}
    assert litellm[0]["content"].endswith(
        "\n## Conversation History\nuser: What is the weather today?\nassistant: It is sunny today"
    )
    calm = together.replace("Hi!", "Hi.")
    assert ollama == [{"role": "system", "content": calm, "images": ["https://example.com/image.jpg"]}]
    assert generate == calm.replace("\n##", "\n\n##")
    assert gemini == [{"role": "user", "parts": [together]}]
    assert zhipu[1] == {"role": "user", "content": f"## Conversation History{TEXT}"}


@pytest.mark.slow
def test_example_of_agentscope_1_x_prints_the_documented_output() -> None:
    head, _, rest = run_example("agentscope_1_x.py").partition("第一段对话历史:\n")
    messages = json.loads(head.removeprefix("格式化后的消息:\n"))
    assert [each["role"] for each in messages] == ["system", "user", "assistant", "tool", "assistant", "tool", "user"]
    assert messages[2]["content"] == [{"text": None}]
    assert rest.startswith(messages[1]["content"])
    assert f"第二段对话历史:\n{messages[-1]['content']}\n" in rest
    note = "# Conversation History\nThe content between <history></history> tags contains your conversation history"
    line = "Charlie: 没有,我们问问 Friday 吧。Friday,帮我找到最近的图书馆。"
    assert rest.endswith(
        "格式化消息中的 token 数量为: 164\n截断后的 token 数量: 135\n\n截断后的对话历史:\n"
        f"{note}\n<history>\n{line}\n</history>\n"
    )
