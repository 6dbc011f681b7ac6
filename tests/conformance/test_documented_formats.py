"""What the three documents on formatting print, byte for byte.

A document prints "You are" where its program says "You're"; what the program says counts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.documented import ENCODED, PNG, Characters, said, same
from lazyprompt.compat.prompt_engine import PromptEngine
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt.formatters.profile import HistoryStyle


@pytest.fixture
def media(tmp_path: Path) -> MediaResolver:
    (tmp_path / "test.png").write_bytes(PNG)
    (tmp_path / "test.mp3").write_bytes(b"ID3\x03")
    return MediaResolver(roots=[tmp_path])


SYSTEM = Msg("system", "You're a helpful assistant", role="system")
ALICE = Msg(name="Alice", content="Nice to meet you!", role="assistant")
LOUD = [Msg(name="Bob", content="Hi!", role="assistant"), ALICE]
CALM = [Msg(name="Bob", content="Hi.", role="assistant"), ALICE]
HEADERS: dict[HistoryStyle, str] = {"conversation": "## Conversation History", "dialogue": "## Dialogue History"}
BOTH = pytest.mark.parametrize("style", list(HEADERS))


def test_openai_sends_names() -> None:
    assert same(
        said(ChatFormatter("openai", model="gpt-4").format(SYSTEM, CALM)),
        [
            {"role": "system", "name": "system", "content": "You're a helpful assistant"},
            {"role": "assistant", "name": "Bob", "content": "Hi."},
            {"role": "assistant", "name": "Alice", "content": "Nice to meet you!"},
        ],
    )


def test_openai_sends_pictures_by_address_and_local_ones_as_data(media: MediaResolver, tmp_path: Path) -> None:
    payload = ChatFormatter("openai", model="gpt-4o", media=media).format(
        SYSTEM,
        [
            Msg(name="user", content="Describe this image", role="user", url="https://xxx.png"),
            Msg("user", "And these images", "user", url=[f"{tmp_path}/test.png", f"{tmp_path}/test.mp3"]),
        ],
    )
    assert same(
        said(payload),
        [
            {"role": "system", "name": "system", "content": "You're a helpful assistant"},
            {
                "role": "user",
                "name": "user",
                "content": [
                    {"type": "text", "text": "Describe this image"},
                    {"type": "image_url", "image_url": {"url": "https://xxx.png"}},
                ],
            },
            {
                "role": "user",
                "name": "user",
                "content": [
                    {"type": "text", "text": "And these images"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
                ],
            },
        ],
    )
    assert [(entry.action, entry.text) for entry in payload.report] == [("left out", f"{tmp_path}/test.mp3")]


@pytest.mark.parametrize(
    ("provider", "style", "expected"),
    [
        (
            "dashscope",
            "conversation",
            [{"role": "user", "content": "You're a helpful assistant\n{header}\nBob: Hi!\nAlice: Nice to meet you!"}],
        ),
        (
            "dashscope",
            "dialogue",
            [
                {"role": "system", "content": "You're a helpful assistant"},
                {"role": "user", "content": "{header}\nBob: Hi!\nAlice: Nice to meet you!"},
            ],
        ),
        *(
            (
                "gemini",
                style,
                [
                    {
                        "role": "user",
                        "parts": ["You're a helpful assistant\n{header}\nBob: Hi!\nAlice: Nice to meet you!"],
                    }
                ],
            )
            for style in HEADERS
        ),
        *(
            (
                "zhipu",
                style,
                [
                    {"role": "system", "content": "You're a helpful assistant"},
                    {"role": "user", "content": "{header}\nBob: Hi!\nAlice: Nice to meet you!"},
                ],
            )
            for style in HEADERS
        ),
        *(
            ("ollama-generate", style, "You're a helpful assistant\n\n{header}\nBob: Hi!\nAlice: Nice to meet you!")
            for style in HEADERS
        ),
    ],
)
def test_many_speakers_become_one_turn(provider: str, style: HistoryStyle, expected: object) -> None:
    made = said(MultiAgentFormatter(provider, history_style=style).format(SYSTEM, LOUD))
    assert json.dumps(made) == json.dumps(expected).replace("{header}", HEADERS[style])


def test_litellm_takes_one_user_turn() -> None:
    made = MultiAgentFormatter("litellm", history_style="conversation").format(
        Msg("system", "You are a helpful assistant", role="system"),
        [
            Msg("user", "What is the weather today?", role="user"),
            Msg("assistant", "It is sunny today", role="assistant"),
        ],
    )
    text = (
        "You are a helpful assistant\n## Conversation History\nuser: What is the weather today?\n"
        "assistant: It is sunny today"
    )
    assert same(said(made), [{"role": "user", "content": text}])


@BOTH
def test_dashscope_multimodal_has_pictures_behind_the_text(style: HistoryStyle) -> None:
    made = MultiAgentFormatter("dashscope-multimodal", history_style=style).format(
        Msg("system", "You're a helpful assistant", role="system", url="url_to_png1"),
        [
            Msg(name="Bob", content="Hi!", role="assistant", url="url_to_png2"),
            Msg(name="Alice", content="Nice to meet you!", role="assistant", url="url_to_png3"),
        ],
    )
    assert same(
        said(made),
        [
            {"role": "system", "content": [{"text": "You're a helpful assistant"}, {"image": "url_to_png1"}]},
            {
                "role": "user",
                "content": [
                    {"text": f"{HEADERS[style]}\nBob: Hi!\nAlice: Nice to meet you!"},
                    {"image": "url_to_png2"},
                    {"image": "url_to_png3"},
                ],
            },
        ],
    )


@pytest.mark.parametrize(("style", "between"), [("conversation", "\n"), ("dialogue", "\n\n")])
def test_ollama_takes_one_system_turn_with_the_pictures_beside_it(style: HistoryStyle, between: str) -> None:
    url = "https://example.com/image.jpg"
    made = MultiAgentFormatter("ollama", history_style=style).format(
        SYSTEM, CALM[0], Msg(name="Alice", content="Nice to meet you!", role="assistant", url=url)
    )
    text = f"You're a helpful assistant{between}{HEADERS[style]}\nBob: Hi.\nAlice: Nice to meet you!"
    assert same(said(made), [{"role": "system", "content": text, "images": [url]}])


LINES = {
    "Bob": "你好,Alice,你知道最近的图书馆在哪里吗?",
    "Alice": "抱歉,我不知道。Charlie,你有什么想法吗?",
    "Charlie": "没有,我们问问 Friday 吧。Friday,帮我找到最近的图书馆。",
}
INPUT = [
    Msg("system", "你是一个名为 Friday 的有用助手", "system"),
    *(Msg(name, text, "assistant") for name, text in LINES.items()),
    Msg("Friday", [ToolUseBlock(type="tool_use", name="get_current_location", id="1", input={})], "assistant"),
    Msg(
        "system",
        [ToolResultBlock("1", "get_current_location", (TextBlock(type="text", text="104.48, 36.30"),))],
        "system",
    ),
    Msg(
        "Friday",
        [ToolUseBlock("2", "search_around", {"location": [104.48, 36.30], "keyword": "library"})],
        "assistant",
    ),
    Msg("system", [ToolResultBlock("2", "search_around", (TextBlock("[...]"),))], "system"),
    Msg("Friday", "最近的图书馆是...", "assistant"),
    Msg("Bob", "谢谢,Friday!", "user"),
    Msg("Alice", "我们一起去吧。", "user"),
]


def documented(*speakers: str) -> list[object]:
    """The printed messages, with the first history of these speakers."""
    lines = "\n".join(f"{name}: {LINES[name]}" for name in speakers)
    note = "# Conversation History\nThe content between <history></history> tags contains your conversation history"

    def call(call_id: str, name: str, arguments: str) -> object:
        function = {"name": name, "arguments": arguments}
        calls = [{"id": call_id, "type": "function", "function": function}]
        return {"role": "assistant", "content": [{"text": None}], "tool_calls": calls}

    def result(call_id: str, name: str, text: str) -> object:
        return {"role": "tool", "tool_call_id": call_id, "content": text, "name": name}

    last = "Friday: 最近的图书馆是...\nBob: 谢谢,Friday!\nAlice: 我们一起去吧。"
    return [
        {"role": "system", "content": "你是一个名为 Friday 的有用助手"},
        {"role": "user", "content": f"{note}\n<history>\n{lines}\n</history>"},
        call("1", "get_current_location", "{}"),
        result("1", "get_current_location", "104.48, 36.30"),
        call("2", "search_around", '{"location": [104.48, 36.3], "keyword": "library"}'),
        result("2", "search_around", "[...]"),
        {"role": "user", "content": f"<history>\n{last}\n</history>"},
    ]


def test_histories_stand_between_tags_and_tool_sequences_between_histories() -> None:
    assert same(said(MultiAgentFormatter("dashscope").format(INPUT)), documented("Bob", "Alice", "Charlie"))


def test_the_oldest_messages_go_first_and_tool_sequences_stay_whole() -> None:
    payload = MultiAgentFormatter("dashscope").format(INPUT)
    room = Characters().count(payload["messages"]) - sum(len(f"{name}: {LINES[name]}\n") for name in ("Bob", "Alice"))
    limited = MultiAgentFormatter("dashscope", token_counter=Characters(), max_tokens=room)
    assert same(said(limited.format(INPUT)), documented("Charlie"))


def test_prompt_engine_joins_a_string() -> None:
    made = PromptEngine("ollama-generate").join(
        "You're a helpful assistant.",
        [{"name": "user", "content": "What's the weather like today?"}],
        "Please respond in JSON format.",
    )
    assert made == ("You're a helpful assistant.\nuser: What's the weather like today?\nPlease respond in JSON format.")


def test_prompt_engine_joins_a_list() -> None:
    made = PromptEngine("openai").join(
        "You're a helpful assistant.", [{"name": "user", "content": "What's the weather like today?"}]
    )
    assert same(
        made,
        [
            {"role": "system", "content": "You're a helpful assistant."},
            {"role": "user", "name": "user", "content": "What's the weather like today?"},
        ],
    )


def test_prompt_engine_fills_slots() -> None:
    made = PromptEngine("openai", "string").join(
        "You're a helpful assistant.",
        "Hello {not_a_slot}",
        "Find the weather in {location}.",
        format_map={"location": "London"},
    )
    assert made == "You're a helpful assistant.\nHello {not_a_slot}\nFind the weather in London."
