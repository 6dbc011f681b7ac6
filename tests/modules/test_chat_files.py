"""Chats saved to and loaded from files."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from lazyprompt import Base64Source, Chat, ChatFormatter
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Block, ImageBlock, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from modules.talks import Module, sent_text, turns
from support.conversations import Maker
from support.model_server.server import ModelServer


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def all_kinds() -> list[Msg]:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    picture = ImageBlock(Base64Source("image/png", "iVBORw0KGgo="), detail="low")
    blocks: list[Block] = [
        ThinkingBlock("hm 🤔", signature="c2ln", id="rs_1", provider="anthropic"),
        ThinkingBlock(redacted="eHg="),
        TextBlock("你好", signature="c2ln"),
        ToolUseBlock("call_1", "weather", {"city": "Köln", "at": [1, 2.5, None, {"x": True}]}, signature="c2ln"),
        ToolUseBlock("call_2", "weather", raw_input='{"city": "K'),
    ]
    result = ToolResultBlock("call_1", "weather", [TextBlock("rain"), picture])
    return [
        Msg(
            "Alice",
            '你好 🙂\n\t"quoted"\\ \u2028',
            "user",
            url="https://x/y.png",
            metadata={"at": 3, "deep": {"a": [1]}},
        ),
        Msg("user", [TextBlock("look"), picture], "user", url=["https://x/a.png", "https://x/b.png"]),
        Msg("assistant", blocks, "assistant", usage=usage),
        Msg("tool", [result, ToolResultBlock("call_2", "weather", "")], "tool"),
        Msg("assistant", "", "assistant"),
    ]


def test_loaded_history_equals_the_saved_history(module: Module, tmp_path: Path) -> None:
    path = tmp_path / "chat 聊天.json"
    for history in (all_kinds(), [], *(Maker(Random(seed)).conversation() for seed in range(30))):  # noqa: S311 - no secret
        chat = module.chat(history)
        chat.save(path)
        other = Chat(module)
        other.load(path)
        assert other.history == chat.history == tuple(history)
        assert [message.usage for message in other.history] == [message.usage for message in history]
        assert repr(other.history) == repr(chat.history)
    module.chat(all_kinds()).save(path)
    assert '"你好 🙂' in path.read_text("utf-8")
    assert names_in(tmp_path) == [path.name]


def test_loaded_provider_message_is_sent_back_unchanged(module: Module, tmp_path: Path) -> None:
    """A file with only the blocks would lose the provider's web search and the signed reasoning."""
    parts: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "text", "text": "Hot."},
    ]
    formatter = ChatFormatter("anthropic")
    chat = module.chat([Msg("user", "hi", "user"), formatter.parse({"content": parts})])
    chat.save(tmp_path / "chat.json")
    other = Chat(module)
    other.load(tmp_path / "chat.json")
    payload = formatter.format(other.history)
    assert (payload["messages"][1], payload.report) == ({"role": "assistant", "content": parts}, ())


def test_loaded_chat_continues_with_the_saved_history(module: Module, lenient: ModelServer, tmp_path: Path) -> None:
    chat = module.chat()
    chat("first 🙂")
    chat.save(str(tmp_path / "chat.json"))
    chat("lost")
    other = module.chat(history=[["not", "this"]])
    other.load(tmp_path / "chat.json")
    other("second")
    assert [text for _, text in turns(other)] == ["first 🙂", "pong", "second", "pong"]
    assert "first 🙂" in sent_text(lenient)
    assert "lost" not in sent_text(lenient)
    assert "not" not in sent_text(lenient)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"format": "lazyprompt.chat/1"}',
        b'{"format": "lazyprompt.chat/2", "messages": []}',
        b'{"format": null, "messages": []}',
        b'{"format": ["lazyprompt.chat/1"], "messages": []}',
        *(
            b'{"format": "lazyprompt.chat/1", "messages": ' + messages + b"}"
            for messages in (
                b"null",
                b"3",
                b'{"a": 1}',
                b"[null]",
                b'["text"]',
                b"[{}]",
                b'[{"role": "user"}]',
                b'[{"name": "a", "role": "wizard", "content": "x"}]',
                b'[{"name": "a", "role": "user", "content": 3}]',
                b'[{"name": "a", "role": "user", "content": "x", "more": 1}]',
                b'[{"name": "a", "role": "user", "content": "\\ud800"}]',
                b'[{"name": "a", "role": "user", "content": [{"type": "nothing"}]}]',
                b'[{"name": "a", "role": "user", "content": [{"type": "image", "source": {"type": "x"}}]}]',
                b'[{"name": "a", "role": "user", "content": "x", "usage": 3}]',
                b'[{"name": "a", "role": "user", "content": "x"}, {"name": "b"}]',
            )
        ),
    ],
)
def test_invalid_chat_file_is_an_error_and_keeps_the_history(module: Module, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    chat = module.chat(history=[["kept", "so"]])
    with pytest.raises(HistoryError, match="broken.json"):
        chat.load(path)
    assert [text for _, text in turns(chat)] == ["kept", "so"]


def test_missing_chat_file_or_folder_is_an_os_error(module: Module, tmp_path: Path) -> None:
    chat = module.chat()
    with pytest.raises(FileNotFoundError):
        chat.load(tmp_path / "nothing.json")
    with pytest.raises(FileNotFoundError):
        chat.save(tmp_path / "nowhere" / "chat.json")
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's
        chat.save(tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("broken", ["os.fsync", "pathlib.Path.replace", "json.dumps"])
def test_failed_save_leaves_the_file_unchanged(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "chat.json"
    chat = module.chat(history=[["old", "one"]])
    chat.save(path)
    old = path.read_bytes()
    chat("new")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(broken, full)
        with pytest.raises(OSError, match="No space left"):
            chat.save(path)
    assert path.read_bytes() == old
    assert names_in(tmp_path) == ["chat.json"]
    chat.save(path)
    assert b"new" in path.read_bytes()
