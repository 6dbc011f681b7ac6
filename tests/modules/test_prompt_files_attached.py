"""Prompt files at modules: attached as they are, and asked for the form of their outputs."""

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
def test_a_file_is_attached_and_its_outputs_are_asked_for(kind: str, server: ModelServer) -> None:
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
    # One that is asked for goes before that of the file.
    server.answer = Answer("3")
    assert module(GIVEN, response_format={"type": "integer"}).parsed == 3


@pytest.mark.parametrize("role", ["tool", "user"])
def test_behind_results_the_question_is_not_said_again(role: Role) -> None:
    # A chat with tools asked its question a second time, behind the results.
    prompt = Prompty.loads("system:\nBe {{ tone }}.\nuser:\n{{ q }}")
    past = [
        Msg("user", "Where?", "user"),
        Msg("assistant", [ToolUseBlock("a", "look", {})], "assistant"),
        Msg(role, [ToolResultBlock("a", "look", "Leiden")], role),
    ]
    given = {"tone": "kind", "q": "Where?"}
    made = prompt.generate_prompt(given, past, format="openai")["messages"]
    assert [message["role"] for message in made] == ["system", "user", "assistant", "tool"]
    # What was no history of the call is the file's own.
    assert prompt.generate_prompt(given, past[:2], format="openai")["messages"][-1]["role"] == "user"


def test_what_of_a_file_is_not_sent_is_in_the_report(server: ModelServer) -> None:
    prompt = Prompty.loads("---\ntools: [{name: notes, kind: mcp}]\n---\nuser[mood=calm]:\nhi")
    report = module_of("online", server).prompt(prompt).payload({}).report
    assert [(each.kind, each.text or each.reason) for each in report] == [
        ("tools", "notes"),
        ("metadata", "the attribute 'mood' is not part of a message"),
    ]


def test_a_speaker_has_a_name_that_openai_takes(server: ModelServer) -> None:
    # OpenAI refuses blanks in names, and the whole request with them.
    prompt = Prompty.loads('system:\nBe kind.\nuser[name="Ada Lovelace"]:\nhi\nassistant:\nyes\nuser:\n{{ q }}')
    payload = module_of("online", server).prompt(prompt).payload({"q": "Bye."})
    name = payload["messages"][1]["name"]
    assert name.startswith("Ada_Lovelace_")
    assert [message["role"] for message in payload["messages"]] == ["system", "user", "assistant", "user"]
    assert [(each.kind, each.text) for each in payload.report] == [("name", "Ada Lovelace")]


def test_what_is_no_prompter_is_refused(server: ModelServer) -> None:
    with pytest.raises(
        TemplateError, match="prompter must be a Prompter, a prompt file, an instruction or None, not int"
    ):
        module_of("online", server).prompt(cast("Any", 3))
