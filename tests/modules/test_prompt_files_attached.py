"""Prompt files attached to modules, with their outputs as the response format."""

import json
from typing import Any, cast

import pytest

from lazyprompt import Msg, TemplateError, ToolResultBlock, ToolUseBlock
from lazyprompt._base.roles import Role
from lazyprompt.files.prompty import Prompty
from modules.talks import KINDS, module_of, sent_text
from support.model_server.server import Answer, ModelServer

FILE = """---
name: City finder!
outputs: {city: {kind: string, required: true}}
---
system:
Speak {{ language }}.

user:
{{ q }}"""
GIVEN = {"language": "Dutch", "q": "user:\nWhere?"}


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_a_prompt_file_are_the_default_response_format(kind: str, server: ModelServer) -> None:
    prompt = Prompty.loads(FILE)
    server.answer = Answer('{"city": "Leiden"}')
    module = module_of(kind, server).prompt(prompt)
    assert module(GIVEN).parsed == {"city": "Leiden"}
    assert "Speak Dutch." in sent_text(server)
    assert "Where?" in sent_text(server)
    assert "city" in json.dumps(server.seen[-1].body)
    chat = module.chat()
    chat(GIVEN)
    chat(GIVEN)
    assert [message.role for message in chat.history] == ["user", "assistant"] * 2
    # The response format of a call overrides that of the file.
    server.answer = Answer("3")
    assert module(GIVEN, response_format={"type": "integer"}).parsed == 3


@pytest.mark.parametrize("role", ["tool", "user"])
def test_question_of_a_prompt_file_is_not_repeated_after_tool_results(role: Role) -> None:
    # A chat with tools repeated its question after the tool results.
    prompt = Prompty.loads("system:\nBe {{ tone }}.\nuser:\n{{ q }}")
    past = [
        Msg("user", "Where?", "user"),
        Msg("assistant", [ToolUseBlock("a", "look", {})], "assistant"),
        Msg(role, [ToolResultBlock("a", "look", "Leiden")], role),
    ]
    given = {"tone": "kind", "q": "Where?"}
    made = prompt.generate_prompt(given, past, format="openai")["messages"]
    assert [message["role"] for message in made] == ["system", "user", "assistant", "tool"]
    # Without tool results, the messages of the file are sent.
    assert prompt.generate_prompt(given, past[:2], format="openai")["messages"][-1]["role"] == "user"


def test_parts_of_a_prompt_file_that_are_not_sent_are_in_the_report(server: ModelServer) -> None:
    prompt = Prompty.loads("---\ntools: [{name: notes, kind: mcp}]\n---\nuser[mood=calm]:\nhi")
    report = module_of("online", server).prompt(prompt).payload({}).report
    assert [(each.kind, each.text or each.reason) for each in report] == [
        ("tools", "notes"),
        ("metadata", "the attribute 'mood' is not part of a message"),
    ]


def test_speaker_name_is_rewritten_to_characters_that_openai_accepts(server: ModelServer) -> None:
    # OpenAI rejects requests with spaces in names.
    prompt = Prompty.loads('system:\nBe kind.\nuser[name="Ada Lovelace"]:\nhi\nassistant:\nyes\nuser:\n{{ q }}')
    payload = module_of("online", server).prompt(prompt).payload({"q": "Bye."})
    name = payload["messages"][1]["name"]
    assert name.startswith("Ada_Lovelace_")
    assert [message["role"] for message in payload["messages"]] == ["system", "user", "assistant", "user"]
    assert [(each.kind, each.text) for each in payload.report] == [("name", "Ada Lovelace")]


def test_prompt_rejects_a_value_that_is_not_a_prompter(server: ModelServer) -> None:
    with pytest.raises(
        TemplateError, match="prompter must be a Prompter, a prompt file, an instruction or None, not int"
    ):
        module_of("online", server).prompt(cast("Any", 3))
