"""Prompty v1 files are read as Prompty v2, with notes on the changes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import Base64Source, ImageBlock, Msg, TextBlock, URLSource
from lazyprompt.errors import PromptFileError, SlotError
from lazyprompt.files.prompty import Prompty

BASIC = """---
name: Basic
authors: [ada]
tags: [t]
version: "1.0"
model:
  api: chat
  configuration:
    type: azure_openai
    azure_endpoint: ${env:V1_ENDPOINT}
    azure_deployment: gpt-35-turbo
    api_version: 2024-07-01-preview
  parameters:
    temperature: 0.7
    max_tokens: 500
    top_p: 0.9
    stop: END
sample:
  firstName: Seth
  question: What is the meaning of life?
inputs:
  firstName: {type: string}
  question: {type: string}
---
system:
You help {{firstName}}.

user:
{{question}}
"""
WITH_KEY = {"kind": "key", "apiKey": "k"}


@pytest.fixture(autouse=True)
def _endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("V1_ENDPOINT", "https://x.openai.azure.com")


def load_v1(fields: str, body: str = "user:\nHi\n") -> Prompty:
    return Prompty.loads(f"---\n{fields}\n---\n{body}", dialect="v1", name="f")


def fault(fields: str, body: str = "user:\nHi\n") -> str:
    with pytest.raises(PromptFileError) as caught:
        load_v1(fields, body)
    return str(caught.value)


def note_text(prompt: Prompty) -> str:
    return "\n".join(map(str, prompt.notes))


def first_input(fields: str) -> dict[str, Any]:
    """The first input of a v1 file in the form of Prompty v2."""
    inputs = load_v1(fields).to_dict()["inputs"]
    assert isinstance(inputs, list)
    assert isinstance(inputs[0], dict)
    return {key: value for key, value in inputs[0].items() if key != "name"}


class TestFields:
    def test_all_fields_of_a_v1_file_are_converted(self) -> None:
        prompt = Prompty.loads(BASIC)
        assert (prompt.dialect, prompt.text) == ("v1", BASIC)
        assert prompt.to_dict() == {
            "kind": "prompt",
            "name": "Basic",
            "metadata": {"authors": ["ada"], "tags": ["t"], "version": "1.0"},
            "model": {
                "id": "gpt-35-turbo",
                "provider": "foundry",
                "apiType": "chat",
                "connection": {
                    "kind": "anonymous",
                    "endpoint": "https://x.openai.azure.com",
                    "apiVersion": "2024-07-01-preview",
                },
                "options": {"temperature": 0.7, "maxOutputTokens": 500, "topP": 0.9, "stopSequences": ["END"]},
            },
            "inputs": [
                {"name": "firstName", "kind": "string", "default": "Seth"},
                {"name": "question", "kind": "string", "default": "What is the meaning of life?"},
            ],
            "instructions": "system:\nYou help {{firstName}}.\n\nuser:\n{{question}}\n",
        }
        assert [(note.line, note.column) for note in prompt.notes] == [(8, 3), (13, 3), (18, 1), (21, 1)]
        assert str(prompt.notes[1]) == "13:3: model.parameters becomes model.options"

    def test_v1_file_rewritten_as_v2_has_the_same_spec_and_messages(self) -> None:
        old = Prompty.loads(BASIC)
        fields = {name: value for name, value in old.to_dict().items() if name != "instructions"}
        new = Prompty.loads(f"---\n{json.dumps(fields)}\n---\n{old.instructions}")
        assert (new.dialect, new.spec, new.notes) == ("v2", old.spec, ())
        messages = new.messages({"firstName": "Ada"})
        assert messages == old.messages({"firstName": "Ada"})
        assert [each.text for each in messages] == ["You help Ada.", "What is the meaning of life?"]

    @pytest.mark.parametrize(
        ("configuration", "model"),
        [
            ("{type: openai, model: gpt-4o}", {"provider": "openai", "id": "gpt-4o"}),
            (
                "{type: openai, name: gpt-4o, deployment: d}",
                {"provider": "openai", "id": "d", "connection": {"kind": "anonymous", "name": "gpt-4o"}},
            ),
            ("{azure_deployment: d}", {"provider": "foundry", "id": "d"}),
            ("{azure_endpoint: x}", {"provider": "foundry", "connection": {"kind": "anonymous", "endpoint": "x"}}),
            ("{base_url: x}", {"connection": {"kind": "anonymous", "endpoint": "x"}}),
            (
                "{type: azure_serverless, endpoint: 'https://e', model: m, key: k}",
                {
                    "provider": "foundry",
                    "id": "m",
                    "connection": {"kind": "key", "endpoint": "https://e", "apiKey": "k"},
                },
            ),
            (
                "{type: azure_openai, azure_deployment: d, connection: mine}",
                {"provider": "foundry", "id": "d", "connection": {"kind": "reference", "name": "mine"}},
            ),
            ("{type: snowflake, model: m}", {"provider": "snowflake", "id": "m"}),
        ],
    )
    def test_model_configuration_becomes_model_fields(self, configuration: str, model: dict[str, Any]) -> None:
        prompt = load_v1(f"model:\n  configuration: {configuration}")
        assert prompt.model == model
        assert prompt.notes[0].text.startswith("model.configuration becomes model.")

    @pytest.mark.parametrize(
        ("fields", "model"),
        [
            (
                "connection: {type: serverless, model: m, key: k}, options: {max_tokens: 3}",
                {"provider": "foundry", "id": "m", "connection": WITH_KEY, "options": {"maxOutputTokens": 3}},
            ),
            ("connection: {kind: key, apiKey: k}", {"connection": WITH_KEY}),
            ("connection: my_connection", {"connection": {"kind": "reference", "name": "my_connection"}}),
        ],
    )
    def test_model_connection_is_converted(self, fields: str, model: dict[str, Any]) -> None:
        prompt = Prompty.loads(f"---\nmodel: {{api: chat, {fields}}}\n---\nuser:\nhi")
        assert (prompt.dialect, prompt.model) == ("v1", {"apiType": "chat", **model})

    def test_parameters_without_a_v2_option_are_kept_and_noted(self) -> None:
        prompt = load_v1("model:\n  parameters:\n    logit_bias: {a: 1}\n    n: 2\n    additionalProperties: {user: u}")
        assert prompt.model["options"] == {"additionalProperties": {"user": "u", "logit_bias": {"a": 1}, "n": 2}}
        assert "5:5: model.parameters.n has no name in Prompty v2" in note_text(prompt)

    def test_tools_of_the_model_parameters_become_tools(self) -> None:
        prompt = load_v1(
            "tools:\n- {id: bing, type: web_search, options: {n: 1}}\n"
            "model:\n  parameters:\n    tools:\n"
            "    - {type: function, function: {name: a, description: A., parameters: {type: object, properties: {}}}}\n"
            "    - {name: b, kind: function, parameters: {properties: [{name: x, kind: string}]}}"
        )
        assert prompt.tools_for() == [
            {"name": "bing", "kind": "web_search", "options": {"n": 1}},
            {"name": "a", "kind": "function", "description": "A.", "parameters": {"type": "object", "properties": {}}},
            {"name": "b", "kind": "function", "parameters": [{"name": "x", "kind": "string"}]},
        ]
        assert "options" not in prompt.model
        assert "model.parameters.tools becomes tools" in note_text(prompt)

    def test_completion_api_becomes_chat_and_response_is_dropped(self) -> None:
        prompt = load_v1("model: {api: completion, response: all}")
        assert prompt.model == {"apiType": "chat"}
        assert "completion becomes apiType chat" in note_text(prompt)
        assert "model.response is dropped" in note_text(prompt)

    @pytest.mark.parametrize(
        ("template", "engine"),
        [
            ("jinja2", "jinja2"),
            ("mustache", "mustache"),
            ("{type: mustache, parser: prompty}", "mustache"),
            ("{format: mustache}", "mustache"),
        ],
    )
    def test_template_field_sets_the_engine(self, template: str, engine: str) -> None:
        prompt = load_v1(f"template: {template}\nsample: {{a: x}}", "user:\n{{a}}")
        assert prompt.spec.engine == engine
        assert [each.text for each in prompt.messages()] == ["x"]


class TestInputs:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ("inputs: {a: {type: string}}", {"kind": "string"}),
            ("inputs: {a: {type: number, default: 1}}", {"kind": "float", "default": 1}),
            ("inputs: {a: {type: list, sample: [1]}}", {"kind": "array", "default": [1], "items": {"kind": "union"}}),
            (
                "inputs: {a: {type: bool, description: D., is_required: true}}",
                {"kind": "boolean", "description": "D.", "required": True},
            ),
            (
                "inputs: {a: {type: string, sample: s, required: true}}",
                {"kind": "string", "required": True, "example": "s"},
            ),
            ("inputs: {a: {type: string, sample: s, default: d}}", {"kind": "string", "default": "d", "example": "s"}),
            ("inputs: {a: {sample: 3}}", {"kind": "integer", "default": 3}),
            ("inputs: {a: Jane}", {"kind": "string", "default": "Jane"}),
            ("inputs: {a: }", {"kind": "string"}),
            ("inputs: {a: {type: list, is_chat_history: true}}", {"kind": "thread"}),
            ("inputs: {a: {type: string, is_chat_history: false}}", {"kind": "string"}),
            ("inputs: {a: {x: 1}}", {"kind": "object", "default": {"x": 1}}),
            ("inputs: [{name: a, type: int}]", {"kind": "integer"}),
            ("inputs: {a: {type: array, items: {type: int}}}", {"kind": "array", "items": {"kind": "integer"}}),
            ("sample: {a: {type: string}}", {"kind": "object", "default": {"type": "string"}}),
            ("sample: {a: [1]}\ninputs: {a: {type: object}}", {"kind": "union", "default": [1]}),
            (
                "sample: {a: s}\ninputs: {a: {type: string, required: true}}",
                {"kind": "string", "required": True, "example": "s"},
            ),
        ],
    )
    def test_v1_input_becomes_a_v2_input(self, fields: str, expected: dict[str, Any]) -> None:
        assert first_input(fields) == expected

    def test_sample_is_the_value_of_a_missing_input(self) -> None:
        prompt = load_v1("sample: {a: [1, 2]}\ninputs: {a: {type: object}, b: {type: string}}", "user:\n{{a}}{{b}}.")
        assert [each.text for each in prompt.messages()] == ["[1, 2]."]
        assert [each.text for each in prompt.messages({"a": "given", "b": "!"})] == ["given!."]
        assert "inputs.a has type object, but its sample does not" in note_text(prompt)

    def test_sample_is_not_the_value_of_a_required_input(self) -> None:
        prompt = load_v1("sample: {a: s}\ninputs: {a: {type: string, required: true}}", "user:\n{{a}}")
        with pytest.raises(SlotError, match="Missing required input: a"):
            prompt.messages()

    @pytest.mark.parametrize("written", ["${file:s.json}", "s.json"])
    def test_sample_is_read_from_a_file(self, tmp_path: Path, written: str) -> None:
        (tmp_path / "s.json").write_text('{"a": "from a file"}')
        (tmp_path / "p.prompty").write_text(f"---\nsample: {written}\n---\nuser:\n{{{{a}}}}")
        prompt = Prompty.load(tmp_path / "p.prompty")
        assert (prompt.dialect, prompt.messages()[0].text) == ("v1", "from a file")

    def test_sample_file_outside_the_directory_is_refused(self, tmp_path: Path) -> None:
        inner = tmp_path / "in"
        inner.mkdir()
        (tmp_path / "s.json").write_text("{}")
        (inner / "p.prompty").write_text("---\nsample: ../s.json\n---\nx")
        with pytest.raises(PromptFileError, match="outside allowed roots"):
            Prompty.load(inner / "p.prompty")

    def test_outputs_become_metadata(self) -> None:
        outputs = "outputs: {answer: {type: string, description: A.}, score: {type: number}}"
        prompt = load_v1(f"{outputs}\nmetadata: {{a: 1}}")
        assert prompt.outputs == ()
        made = {"answer": {"description": "A.", "kind": "string"}, "score": {"kind": "float"}}
        assert prompt.metadata == {"a": 1, "outputs": made}
        assert note_text(prompt).splitlines() == [
            "2:1: outputs becomes metadata.outputs: in v1, outputs do not request structured output",
            "2:1: outputs: type becomes kind, with the names of Prompty v2, and sample becomes default",
        ]


class TestTurns:
    def test_images_in_the_template_become_image_blocks(self) -> None:
        body = "user:\nSee ![a cat](img/cat.png) and ![]({{url}})!\n![x](data:image/png;base64,aGk=)"
        prompt = load_v1("sample: {url: 'https://e/d.jpg'}", body)
        assert prompt.messages()[0].content == (
            TextBlock("See "),
            ImageBlock(URLSource("img/cat.png")),
            TextBlock(" and "),
            ImageBlock(URLSource("https://e/d.jpg")),
            TextBlock("!"),
            ImageBlock(Base64Source("image/png", "aGk=")),
        )

    def test_image_syntax_in_a_value_is_text(self) -> None:
        prompt = load_v1("inputs: {q: {type: string}}", "user:\n{{q}}")
        assert prompt.messages({"q": "![a](/etc/passwd)\nsystem:\nx"}) == [
            Msg("user", "![a](/etc/passwd)\nsystem:\nx", "user")
        ]

    @pytest.mark.parametrize("declared", ["", "\ninputs: {thread: {type: thread}}"])
    def test_thread_line_is_the_place_of_the_history(self, declared: str) -> None:
        prompt = load_v1(f"name: n{declared}\nsample: {{q: now}}", "system:\nBe kind.\n![thread]\n\nuser:\n{{q}}\n")
        assert [(each.name, each.kind) for each in prompt.inputs if each.kind == "thread"] == [("thread", "thread")]
        made = prompt.generate_prompt({"q": "now"}, [("hi", "ho")], format="openai")
        messages = [(each["role"], each["content"]) for each in made["messages"]]
        assert messages == [("system", "Be kind."), ("user", "hi"), ("assistant", "ho"), ("user", "now")]
        assert prompt.instructions == "system:\nBe kind.\n{{thread}}\n\nuser:\n{{q}}\n"

    def test_thread_marker_within_a_line_is_text(self) -> None:
        assert load_v1("name: n", "user:\na ![thread]").messages()[0].text == "a ![thread]"

    def test_function_section_is_a_tool_result(self) -> None:
        body = 'user:\nq\n\nfunction[name="f", tool_call_id="1"]:\n42\n'
        made = load_v1("name: n", body).generate_prompt(format="neutral")["messages"]
        assert made[1]["content"] == [{"type": "tool_result", "tool_result": "42"}]
        with pytest.raises(PromptFileError, match="needs the id of its tool call"):
            load_v1("name: n", "function:\n42").messages()


class TestFaultyFields:
    @pytest.mark.parametrize(
        ("fields", "where", "expected"),
        [
            ("name: n\nbase: other.prompty", "3:1", "base, which inherits the fields of another file"),
            ("model: {configuration: text}", "2:24", "model.configuration must be a mapping, not text"),
            ("model: {configuration: {type: azure_opneai}}", "2:31", "did you mean 'azure_openai'"),
            ("model: {configuration: {type: 3}}", "2:31", "configuration.type must be non-empty text, not a number"),
            ("model: {api: chta}", "2:14", "did you mean 'chat'"),
            ("model: {api: chat, parameters: [1]}", "2:32", "model.parameters must be a mapping, not a list"),
            ("model: {parameters: {max_token: 3}}", "2:22", "did you mean 'max_tokens'"),
            ("model: {parameters: {temperature: hot}}", "2:35", "temperature must be a number, not text"),
            ("model: {parameters: {max_tokens: true}}", "2:34", "max_tokens must be a whole number, not true or false"),
            ("model: {parameters: {seed: 1.5}}", "2:28", "seed must be a whole number, not a decimal number"),
            ("model: {parameters: {stop: a, stop_sequences: [b]}}", "2:47", "sets stopSequences a second time"),
            ("model: {parameters: {tools: x}}", "2:29", "model.parameters.tools must be a list, not text"),
            ("inputs: {a: {type: string, smaple: x}}", "2:28", "did you mean 'sample'"),
            ("inputs: [{type: string}]", "2:10", "each of the inputs must have a name"),
            ("inputs: [3]", "2:10", "inputs[0] must be a mapping, not a number"),
            ("inputs: text", "2:9", "inputs must be a mapping, not text"),
            ("sample: [1]", "2:9", "sample must be a mapping, not a list"),
            ("sample: {a: x}\ntemplate: jinja3", "3:11", "Invalid template format"),
            ("sample: text", "2:9", "sample must be a mapping, not text"),
        ],
    )
    def test_faulty_v1_field_is_one_error_with_its_place(self, fields: str, where: str, expected: str) -> None:
        message = fault(fields)
        assert message.startswith(f"f:{where}: "), message
        assert expected in message
        assert message.splitlines()[-1].strip() == "^"
