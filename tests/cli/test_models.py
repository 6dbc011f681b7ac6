"""Which model the options and a prompt file select."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.helpers import Run
from lazyprompt import Prompty
from lazyprompt.cli.models import FileModel, file_model
from lazyprompt.cli.options import Options
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.modules.sources import SOURCES

COMMON = {"temperature": 0, "topP": 0.5, "maxOutputTokens": 9, "stopSequences": ["END"], "seed": 7}
PARAMS = {"temperature": 0, "top_p": 0.5, "max_tokens": 9, "stop": ["END"], "seed": 7}
NONE = FileModel(None, None, {})


def select_model(model: Mapping[str, object], options: Mapping[str, object]) -> FileModel:
    every: Any = {**dict.fromkeys(Options.__annotations__), **options}
    return file_model(every, Prompty.loads(f"---\nmodel: {json.dumps(model)}\n---\nuser:\nHi"))


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ({}, {}, NONE),
        ({"id": "m"}, {}, FileModel("openai", "m", {})),
        ({"id": "m", "apiType": "chat"}, {}, FileModel("openai", "m", {})),
        ({"provider": "anthropic"}, {}, FileModel("anthropic", None, {})),
        *(
            ({"id": "m", "provider": provider}, {}, FileModel(source, "m", {}))
            for provider, source in (
                *(("googleai", "gemini"), ("openai-responses", "openai"), ("dashscope-multimodal", "dashscope")),
                *(("gemini", "gemini"), ("zhipu", "zhipu")),
            )
        ),
        # The model of a file is used only with the provider of the file.
        ({"id": "m"}, {"source": "gemini"}, FileModel("gemini", "m", {})),
        ({"id": "m", "provider": "openai"}, {"source": "gemini"}, FileModel("gemini", None, {})),
        ({"id": "m", "provider": "googleai"}, {"source": "gemini"}, FileModel("gemini", "m", {})),
        ({"id": "m", "provider": "none"}, {"source": "gemini"}, FileModel("gemini", "m", {})),
        ({"id": "m", "provider": "openai"}, {"model": "n"}, FileModel("openai", "n", {})),
        ({"id": "m", "options": {"seed": 7}}, {"source": "none"}, FileModel("none", "m", {}, ("options.seed",))),
        # Local models.
        ({"id": "m"}, {"model": "n"}, FileModel(None, "n", {})),
        ({"id": "m"}, {"model": "n", "base_url": "http://x"}, FileModel("openai", "n", {})),
        ({}, {"model": "n", "base_url": "http://x"}, FileModel(None, "n", {})),
        ({"id": "m", "provider": "openai"}, {"model": "n.GGUF"}, FileModel(None, "n.GGUF", {})),
        ({"id": "m", "provider": "openai"}, {"model": "here"}, FileModel(None, "here", {})),
        ({"id": "m"}, {"engine": "vllm"}, FileModel(None, "m", {})),
        ({"id": "m"}, {"url": "http://x"}, FileModel(None, "m", {})),
        ({"id": "m", "provider": "openai"}, {"url": "http://x"}, FileModel(None, None, {})),
        # Options that all clients have, and options of one client.
        ({"options": COMMON}, {"engine": "vllm"}, FileModel(None, None, PARAMS)),
        ({"id": "m", "options": COMMON}, {}, FileModel("openai", "m", PARAMS)),
        (
            {"id": "m", "options": {"frequencyPenalty": 1, "topK": 3, "seed": None, "stopSequences": []}},
            {"source": "OpenAI"},
            FileModel("OpenAI", "m", {"frequency_penalty": 1}, ("options.topK",)),
        ),
        (
            {"id": "m", "options": {"additionalProperties": {"user": "u"}}, "connection": {"endpoint": "x"}},
            {},
            FileModel("openai", "m", {"extra_body": {"user": "u"}}, ("connection",)),
        ),
        (
            {"id": "m", "provider": "anthropic", "options": {"topK": 3, "additionalProperties": {"user": "u"}}},
            {"source": "openai"},
            FileModel("openai", None, {}, ("options.topK", "options.additionalProperties")),
        ),
        (
            {"id": "m", "provider": "anthropic", "options": {"topK": 3, "additionalProperties": {"user": "u"}}},
            {},
            FileModel("anthropic", "m", {"extra_body": {"user": "u"}}, ("options.topK",)),
        ),
        (
            {"id": "m", "provider": "gemini", "options": {"topK": 3, "additionalProperties": {"user": "u"}}},
            {},
            FileModel("gemini", "m", {"top_k": 3}, ("options.additionalProperties",)),
        ),
    ],
)
@pytest.mark.usefixtures("run")
def test_options_and_prompt_file_select_source_model_and_parameters(
    model: Mapping[str, object], options: Mapping[str, object], expected: FileModel
) -> None:
    # Which options a client accepts is read from the client.
    if expected.source == "anthropic":
        pytest.importorskip("anthropic", reason="the anthropic client is not installed with the lowest versions")
    Path("here").mkdir()
    assert select_model(model, options) == expected


def test_all_options_are_kept_for_a_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    found = select_model({"id": "m", "provider": "anthropic", "options": {"topK": 3}}, {})
    assert found == FileModel("anthropic", "m", {"top_k": 3})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"apiType": "embedding"}, "model.apiType is 'embedding'; only chat models can be called"),
        ({"apiType": "image"}, "model.apiType is 'image'; only chat models can be called"),
        (
            {"provider": "none"},
            f"model.provider 'none' is not a known source; set --source to one of {', '.join(SOURCES)}",
        ),
    ],
)
def test_prompt_file_without_a_known_chat_model_is_a_usage_error(model: Mapping[str, object], message: str) -> None:
    with pytest.raises(WrongUseError) as caught:
        select_model(model, {})
    assert str(caught.value) == message


def test_help_of_run_has_a_row_for_each_source(run: Run) -> None:
    head, *rows = run("run", "--help").out.decode().rpartition("\n\n  ")[2].splitlines()
    assert re.split(" {2,}", head) == ["SOURCE", "MODEL", "KEY, IN THE ENVIRONMENT"]
    assert [row.split()[0] for row in rows] == [*SOURCES]
    by_name = {row.split()[0]: row.split()[1:] for row in rows}
    assert by_name["openai"] == ["gpt-5-mini", "OPENAI_API_KEY"]
    assert by_name["gemini"] == ["gemini-2.5-flash", "GEMINI_API_KEY", "or", "GOOGLE_API_KEY"]
    assert by_name["ollama"] == ["--model", "OLLAMA_API_KEY,", "if", "any"]
