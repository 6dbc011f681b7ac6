"""Comparisons with the printed examples of documents.

A document prints "You are" where its program prints "You're"; the program counts.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import lazyprompt
from lazyprompt.compat.prompt_engine import PromptEngine
from lazyprompt.files.prompty import Prompty
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.report import Payload
from lazyprompt.media.resolver import MediaResolver
from lazyprompt.messages.msg import Msg

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82"
)
ENCODED = b64encode(PNG).decode("ascii")


# Prompty v2 treats Markdown as text, and nothing else shows that these are agent definitions: name their dialect.
ONLY_MARKDOWN = {
    *("image-markdown", "file-markdown", "media-attributes"),
    *("a picture", "a file", "a picture with attributes"),
}


class Characters:
    """A counter of the characters in messages."""

    def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
        assert tools is None
        return sum(len(each["content"]) for each in messages if isinstance(each["content"], str))


def payload_contents(payload: Payload) -> object:
    """The messages of a payload, which are all that the documents print of it."""
    assert list(payload) in (["messages"], ["contents"], ["prompt"])
    return next(iter(payload.values()))


def format_case(case: dict[str, Any], media: MediaResolver) -> object:
    if "api" in case:
        engine = PromptEngine("openai", case["prompt_type"])
        return engine.join(*case["args"], format_map=case.get("format_map"))
    messages = [Msg(**message) for message in case["messages"]]
    if case["formatter"] == "ChatFormatter":
        payload = ChatFormatter(case["provider"], media=media).format(messages)
        if "report" in case:
            assert [[entry.action, entry.text] for entry in payload.report] == case["report"]
        return payload_contents(payload)
    settings: dict[str, Any] = {"history_style": case["history_style"], "media": media}
    if "options" in case:
        oldest = [message for message in messages if message.role != "system"][: case["options"]["drop_oldest"]]
        whole = Characters().count(payload_contents(MultiAgentFormatter(case["provider"], **settings).format(messages)))  # type: ignore[arg-type]
        room = whole - sum(len(f"{message.name}: {message.content}\n") for message in oldest)
        settings |= {"token_counter": Characters(), "max_tokens": room}
    return payload_contents(MultiAgentFormatter(case["provider"], **settings).format(messages))


def check_prompter(case: dict[str, Any]) -> None:
    """Compare a prompter's prompt with the printed one, or its error."""
    prompter = getattr(lazyprompt, case["prompter"])(**case["ctor"])
    if case["expected"] is None:
        with pytest.raises(getattr(lazyprompt, case["raises"])):
            prompter.generate_prompt(**case["call"])
    else:
        assert prompter.generate_prompt(**case["call"]) == case["expected"]


def check_format(case: dict[str, Any], folder: Path) -> None:
    """Compare a formatter's messages with the printed ones, the order of keys included."""
    (folder / "test.png").write_bytes(PNG)
    (folder / "test.mp3").write_bytes(b"ID3\x03")
    case = json.loads(json.dumps(case).replace("<DIR>", str(folder)).replace("<BASE64 of test.png>", ENCODED))
    assert json.dumps(format_case(case, MediaResolver(roots=[folder]))) == json.dumps(case["expected"])


def load_case(case: dict[str, Any], dialect: str | None, folder: Path) -> dict[str, Any]:
    prompt = Prompty.loads(case["text"], base_dir=folder, params=case.get("params"), dialect=dialect)
    made = prompt.generate_prompt(case.get("inputs", {}), format="neutral")
    return {"name": prompt.name, "model": prompt.model, "tools": [], **made}


def check_prompt_file(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare a prompt file with its printed messages, with its dialect named and detected."""
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    expected = case["expected"]
    for dialect in (case["dialect"],) if case["name"] in ONLY_MARKDOWN else (case["dialect"], None):
        made = load_case(case, dialect, folder)
        assert {key: made[key] for key in expected} == expected
