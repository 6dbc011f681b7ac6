"""Complete requests of prompt files: the fields for each provider, the report, and the errors."""

import base64
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lazyprompt import (
    AudioBlock,
    Base64Source,
    Budget,
    CharTokenCounter,
    ChatFormatter,
    FileBlock,
    ImageBlock,
    Msg,
    Profile,
    TextBlock,
    ThinkingBlock,
    URLSource,
)
from lazyprompt.errors import FormatError, MediaError, PromptFileError, ToolsError
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.spec import OPTIONS
from lazyprompt.formatters.chat_form import ChatForm
from lazyprompt.formatters.report import Payload

ALL_FIELDS = """---
model: {id: m, options: {temperature: 0.5, maxOutputTokens: 9, topP: 0.9, topK: 4, frequencyPenalty: 0.1,
  presencePenalty: 0.2, seed: 7, stopSequences: [END], allowMultipleToolCalls: false, reasoningEffort: low}}
outputs: {city: {kind: string, required: true}, people: {kind: integer}}
tools: [{name: find, kind: function, strict: true, parameters: [{name: q, kind: string}]}, {name: files, kind: mcp}]
---
system:
Be brief.
user[name="Ada", mood=calm]:
Hello"""
STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": ["integer", "null"]}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
LOOSE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city"],
}
# Options that several providers name alike.
SAMPLED = {"temperature": 0.5, "top_p": 0.9}
PENALIZED = {"frequency_penalty": 0.1, "presence_penalty": 0.2, "seed": 7}
FIND = {"type": "object", "properties": {"q": {"type": ["string", "null"]}}, "required": ["q"]}
STRICT_FIND = {**FIND, "additionalProperties": False}


def report_entries(made: Payload) -> list[str]:
    """The place and kind of each report entry."""
    return [f"{each.where} {each.kind}" for each in made.report]


def assert_left_out(made: Payload, *entries: str, options: str) -> None:
    options_left_out = [f"model.options.{each} option" for each in options.split()]
    expected = ["tools[1] tools", "messages[1] metadata", *entries, *options_left_out]
    assert sorted(report_entries(made)) == sorted(expected)


def prompt_of(fields: str, body: str = "user:\nhi") -> Prompty:
    return Prompty.loads(f"---\n{fields}\n---\n{body}")


class TestRequestFields:
    def test_openai_request_has_all_supported_fields(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request()
        assert made == {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "name": "Ada", "content": "Hello"},
            ],
            "tools": [{"type": "function", "function": {"name": "find", "parameters": STRICT_FIND, "strict": True}}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "structured_output", "strict": True, "schema": STRICT},
            },
            **SAMPLED,
            **PENALIZED,
            "max_completion_tokens": 9,
            "stop": ["END"],
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
        }
        assert_left_out(made, options="topK")

    def test_openai_responses_request_has_all_supported_fields(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request(api="responses")
        assert made == {
            "model": "m",
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "Hello"}],
            "tools": [{"type": "function", "name": "find", "parameters": STRICT_FIND, "strict": True}],
            "text": {"format": {"type": "json_schema", "name": "structured_output", "strict": True, "schema": STRICT}},
            **SAMPLED,
            "max_output_tokens": 9,
            "parallel_tool_calls": False,
            "reasoning": {"effort": "low"},
        }
        assert_left_out(made, "messages name", options="topK frequencyPenalty presencePenalty seed stopSequences")
        alone = Prompty.loads("---\nmodel: m\n---\nsystem:\nHi").request(api="responses", provider="openai")
        assert alone == {"model": "m", "input": [{"role": "developer", "content": "Hi"}]}

    def test_anthropic_request_has_all_supported_fields(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request(provider="anthropic")
        plain = {"type": "object", "properties": {"q": {"type": "string"}}}
        assert made == {
            "model": "m",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
            "tools": [{"name": "find", "input_schema": plain}],
            "output_config": {
                "format": {"type": "json_schema", "schema": {**LOOSE, "additionalProperties": False}},
                "effort": "low",
            },
            **SAMPLED,
            "max_tokens": 9,
            "top_k": 4,
            "stop_sequences": ["END"],
        }
        assert_left_out(
            made,
            "tools[0] strict",
            "messages name",
            options="frequencyPenalty presencePenalty seed allowMultipleToolCalls",
        )

    def test_gemini_request_has_all_supported_fields(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request(provider="googleai")
        assert made == {
            "model": "m",
            "system_instruction": "Be brief.",
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "tools": [{"function_declarations": [{"name": "find", "parameters_json_schema": STRICT_FIND}]}],
            "generation_config": {
                "response_mime_type": "application/json",
                "response_json_schema": LOOSE,
                **SAMPLED,
                **PENALIZED,
                "max_output_tokens": 9,
                "top_k": 4,
                "stop_sequences": ["END"],
            },
        }
        assert_left_out(made, "tools strict", "messages name", options="allowMultipleToolCalls reasoningEffort")

    def test_ollama_request_has_all_supported_fields(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request(provider="ollama")
        assert made["tools"] == [{"type": "function", "function": {"name": "find", "parameters": STRICT_FIND}}]
        assert made["format"] == LOOSE
        assert made["options"] == {**SAMPLED, **PENALIZED, "num_predict": 9, "top_k": 4, "stop": ["END"]}
        assert_left_out(made, "tools strict", "messages name", options="allowMultipleToolCalls reasoningEffort")

    def test_openai_compatible_request_has_the_fields_of_its_provider(self) -> None:
        made = Prompty.loads(ALL_FIELDS).request(provider="deepseek")
        assert (made["max_tokens"], "response_format" in made) == (9, False)
        assert "outputs outputs" in report_entries(made)
        assert Prompty.loads(ALL_FIELDS).request(provider="vllm")["response_format"]["type"] == "json_schema"

    def test_prompt_of_these_tests_sets_all_options(self) -> None:
        options: Any = Prompty.loads(ALL_FIELDS).model["options"]
        assert {*options} == {*OPTIONS}

    def test_image_and_embedding_requests_have_only_the_text(self) -> None:
        body = "system:\nS\nuser:\nA cat{{ p }}\nassistant:\nno"
        prompt = prompt_of(
            "model: m\ninputs: {p: {kind: image}}\noutputs: {a: {kind: string}}\ntools: [{name: t}]", body
        )
        picture = {"p": ImageBlock(URLSource("https://x/p.png"))}
        drawn = prompt.request(picture, api="image")
        assert drawn == {"model": "m", "prompt": "A cat"}
        left = ["tools tools", "outputs outputs"]
        assert report_entries(drawn) == [*left, "messages[0] text", "messages[2] text", "messages[1].content[1] image"]
        embedded = prompt.request(picture, api="embedding")
        assert embedded == {"model": "m", "input": ["S", "A cat", "no"]}
        assert report_entries(embedded) == [*left, "messages[1].content[1] image"]

    def test_requests_share_no_mutable_values(self) -> None:
        prompt = Prompty.loads(ALL_FIELDS)
        first = prompt.request()
        first["stop"].append("x")
        first["tools"][0]["function"]["parameters"]["properties"].clear()
        assert prompt.request() == Prompty.loads(ALL_FIELDS).request()
        again = pickle.loads(pickle.dumps(prompt.request()))  # noqa: S301 - our own
        assert (again, again.report) == (prompt.request(), prompt.request().report)

    def test_empty_user_turn_is_left_out(self) -> None:
        """``request`` sent the empty turn that ``generate_prompt`` left out."""
        prompt = prompt_of("inputs: {q: {kind: string, default: ''}}", "system:\nS\nuser:\nHi\nuser:\n{{ q }}")
        for made in (prompt.request(provider="vllm"), prompt.generate_prompt({}, format="vllm")):
            assert made["messages"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]

    @pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
    def test_text_blocks_of_one_message_are_not_joined(self, provider: str) -> None:
        """``request`` joined text blocks without a separator; the formatter sends parts or lines."""
        texts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
        made, sent = prompt_of("model: m").request(messages=texts, provider=provider), ChatFormatter(provider)
        assert {key: made[key] for key in made if key in ("messages", "input", "contents")} == sent.format(texts)

    def test_messages_argument_replaces_the_messages_of_the_template(self) -> None:
        made = prompt_of("model: m").request(messages=[["a", "b"], {"role": "user", "content": "c"}])
        assert [each["content"] for each in made["messages"]] == ["a", "b", "c"]


class TestProviderAndApi:
    @pytest.mark.parametrize(
        ("model", "arguments", "message"),
        [
            ("{provider: opnai}", {}, r"provider 'opnai' is unknown \(did you mean 'openai'\?\); prompt files can"),
            (
                "m",
                {"provider": "dashscope"},
                "provider 'dashscope' does not support complete requests; prompt files can",
            ),
            (
                "m",
                {"api": "chta"},
                r"openai doesn't support the 'chta' API \(did you mean 'chat'\?\); expected one of chat, resp",
            ),
            (
                "m",
                {"provider": "anthropic", "api": "image"},
                "anthropic doesn't support the 'image' API; expected one of chat",
            ),
            (
                "{provider: gemini, apiType: embedding}",
                {},
                "gemini doesn't support the 'embedding' API; expected one of chat",
            ),
        ],
    )
    def test_unknown_provider_or_api_is_an_error(self, model: str, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(FormatError, match=message):
            prompt_of(f"model: {model}").request(**arguments)

    def test_openai_api_type_is_ignored_for_other_providers(self) -> None:
        prompt = prompt_of("model: {id: m, apiType: responses}")
        assert "input" in prompt.request()
        assert "input" in prompt.request(provider="azure")
        assert "messages" in prompt.request(provider="anthropic")
        assert "messages" in prompt.request(api="chat")
        assert prompt_of("model: m").request(provider="openai-responses") == prompt.request()

    def test_missing_model_and_unknown_options_are_reported(self) -> None:
        prompt = prompt_of("model: {options: {temprature: 1, additionalProperties: {messages: [], user: u}}}")
        made = prompt.request()
        assert made == {"messages": [{"role": "user", "content": "hi"}], "user": "u"}
        assert [(each.where, each.reason) for each in made.report] == [
            ("model", "the file names no model; set model.id"),
            (
                "model.options.temprature",
                (
                    "requests to openai (chat) have no such option; it is not a known option (did you mean "
                    "'temperature'?); see additionalProperties"
                ),
            ),
            ("model.options.additionalProperties.messages", "the request already has 'messages'"),
        ]

    @pytest.mark.parametrize("field", ["id", "provider", "apiType"])
    def test_model_id_provider_and_api_type_must_be_text(self, field: str) -> None:
        with pytest.raises(PromptFileError, match=rf"<string>:2:\d+: model.{field} must be text, not a list"):
            prompt_of(f"model: {{{field}: [a]}}")

    def test_numeric_model_id_is_text_and_additional_properties_that_are_no_mapping_are_reported(self) -> None:
        assert prompt_of("model: {id: 4.1}").request()["model"] == "4.1"
        (entry,) = prompt_of("model: {id: m, options: {additionalProperties: [1]}}").request().report
        assert (entry.where, entry.kind) == ("model.options.additionalProperties", "option")


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)).decode()
MEDIA = prompt_of(
    "model: m\ninputs: {p: {kind: image}, a: {kind: audio}, f: {kind: file}}", "user:\n{{ p }}{{ a }}{{ f }}!"
)


class TestMedia:
    @pytest.mark.parametrize("data", [PNG, f"{PNG[:20]}\n{PNG[20:]}\n"])
    def test_media_type_of_bare_base64_data_is_detected(self, data: str) -> None:
        for made in (MEDIA.request({"p": data}), MEDIA.generate_prompt({"p": data}, format="openai")):
            sent = made["messages"][0]["content"][0]
            assert sent == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}

    def test_media_type_of_bare_base64_data_must_fit_the_kind_of_the_input(self) -> None:
        sound = MEDIA.request({"a": WAV})["messages"][0]["content"][0]
        assert sound == {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
        # A file input accepts any data; base64 of an image is a URL for an audio input.
        assert MEDIA.messages({"f": PNG})[0].blocks[0] == FileBlock(Base64Source("image/png", PNG))
        assert MEDIA.messages({"a": PNG})[0].blocks[0] == AudioBlock(URLSource(PNG))

    @pytest.mark.parametrize(
        "text", ["photos/cat", "base64data", "file-abc", "//server/share/cat", "a" * 4000, " ", "="]
    )
    def test_text_other_than_base64_data_is_a_url(self, text: str) -> None:
        assert MEDIA.messages({"p": text})[0].blocks[0] == ImageBlock(URLSource(text))

    @pytest.mark.parametrize(
        ("image", "message"),
        [
            ("aGVsbG8=", "expected http"),
            (ImageBlock(Base64Source("image/png", "base64data")), "the data is not base64: invalid padding"),
        ],
    )
    @pytest.mark.parametrize(
        "make", [MEDIA.request, *(partial(MEDIA.generate_prompt, format=f) for f in ("openai", "gemini"))]
    )
    def test_invalid_image_is_refused_by_request_and_generate_prompt(
        self, make: Callable[..., object], image: object, message: str
    ) -> None:
        with pytest.raises(MediaError, match=message):
            make({"p": image})

    def test_file_url_for_openai_chat_is_reported_by_request_and_refused_by_generate_prompt(self) -> None:
        """OpenAI chat does not accept file URLs, but Prompty sends them: request() follows Prompty with a report."""
        given = {"f": "https://x/a.pdf?key=secret"}
        made = MEDIA.request(given)
        assert made["messages"][0]["content"][0] == {"type": "file", "file": {"url": "https://x/a.pdf?key=secret"}}
        (entry,) = made.report
        assert entry.reason == ("openai refuses URLs here, but Prompty sends them: pass data, or use api='responses'")
        sent = MEDIA.request(given, api="responses")
        assert (sent["input"][0]["content"][0]["file_url"], sent.report) == ("https://x/a.pdf?key=secret", ())
        agent = Prompty.loads("user:\n![file](https://x/a.pdf?key=secret)", dialect="agentschema")
        with pytest.raises(FormatError) as caught:
            agent.generate_prompt(format="openai")
        assert str(caught.value) == (
            "no message has any content; pass at least one that does; messages[0].content[0] (file) left out: "
            "openai does not accept file by URL; pass media=MediaResolver(hosts=[...]) to load it"
        )


OWN_TOOL = "---\ntools: [{name: own}]\n---\n"
TOOLS_SECTION = """tools:
- {id: a, type: function, function: {name: "{{ n }}", description: d, parameters: {type: object, properties: {}}}}
- {id: web, type: bing}

user:
hi"""
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {"name": "find", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


class TestToolsSection:
    @pytest.mark.parametrize(
        "make", [Prompty.request, *(partial(Prompty.generate_prompt, format=f) for f in ("openai", "vllm"))]
    )
    def test_function_tools_are_sent_and_other_tools_are_reported(self, make: Callable[..., Any]) -> None:
        made = make(Prompty.loads(TOOLS_SECTION), {"n": "find"})
        assert made["tools"] == [FUNCTION]
        assert [each.text for each in made.report if each.kind == "tools"] == ["web"]

    def test_function_tools_are_in_flat_text_and_follow_those_of_the_front_matter(self) -> None:
        assert '"name": "find"' in Prompty.loads(TOOLS_SECTION).generate_prompt({"n": "find"})
        made = Prompty.loads(OWN_TOOL + TOOLS_SECTION).generate_prompt({"n": "find"}, format="openai")
        assert [each["function"]["name"] for each in made["tools"]] == ["own", "find"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (TOOLS_SECTION, "defines tools in its text, so a call can't pass any; got x"),
            (OWN_TOOL + TOOLS_SECTION, "defines tools in its text, so a call can't pass any; got x"),
            (f"{OWN_TOOL}user:\nhi", "was created with the tools own, "),
        ],
    )
    def test_tools_argument_is_refused_if_the_file_defines_tools(self, text: str, message: str) -> None:
        tools: list[Any] = [{"type": "function", "function": {"name": "x"}}]
        with pytest.raises(ToolsError, match=message):
            Prompty.loads(text).generate_prompt({"n": "find"}, tools=tools, format="openai")


class TestReports:
    @pytest.mark.parametrize("format_", ["openai", "anthropic", "ollama"])
    def test_attributes_left_out_of_messages_are_reported(self, format_: str) -> None:
        body = 'system[tone=dry]:\nS\ntool[tool_call_id="c", cached=true]:\n42\nuser[mood=calm]:\nhi'
        call = 'assistant[type="tool_call", step=1]:\nid: c\nfunction: {name: f}\n'
        prompt = Prompty.loads(body.replace("tool[", call + "tool["))
        made = prompt.generate_prompt({}, format=format_)
        assert isinstance(made, Payload)
        attributes = [(each.where, each.reason) for each in made.report if each.kind == "metadata"]
        assert attributes == [
            (f"messages[{at}]", f"the attribute {name!r} is not part of a message")
            for at, name in enumerate(("tone", "step", "cached", "mood"))
        ]
        assert not {"tone", "step", "cached", "mood", "id"} & {key for each in made["messages"] for key in each}
        assert attributes == [(e.where, e.reason) for e in prompt.request({}).report if e.kind == "metadata"]

    def test_report_counts_thread_messages_and_names_their_unknown_keys(self) -> None:
        prompt = prompt_of("inputs: {h: {kind: thread}}", "{{ h }}\nuser[mood=calm]:\nhi")
        made = prompt.generate_prompt({"h": [["a", "b"], {"role": "user", "content": "c", "mine": 1}]}, format="openai")
        assert [each.where for each in made.report] == ["messages[3]", "messages[2].mine"]
        assert made["messages"][2] == {"role": "user", "content": "c"}

    @pytest.mark.parametrize(
        ("provider", "sent"),
        [
            *[(p, False) for p in ("gemini", "ollama", "dashscope")],
            *[(p, True) for p in ("anthropic", "openai", "zhipu")],
        ],
    )
    def test_strict_flag_of_a_tool_is_sent_or_reported(self, provider: str, *, sent: bool) -> None:
        made = Prompty.loads(ALL_FIELDS).generate_prompt({}, format=provider)
        assert isinstance(made, Payload)
        assert ("'strict': True" in str(made["tools"])) is sent
        assert ("strict" in [each.kind for each in made.report]) is not sent

    def test_strict_formatter_reports_a_dropped_strict_flag_without_an_error(self) -> None:
        tool: dict[str, Any] = {"type": "function", "function": {**FUNCTION["function"], "strict": True}}
        made = ChatFormatter("ollama", strict=True).format([{"role": "user", "content": "hi"}], tools=[tool])
        assert (made["tools"], report_entries(made)) == ([FUNCTION], ["tools strict"])
        # A tool without the strict flag causes no report.
        tool["function"]["strict"] = False
        made = ChatFormatter("ollama").format([{"role": "user", "content": "hi"}], tools=[tool])
        assert (made["tools"], made.report) == ([FUNCTION], ())

    def test_report_is_kept_with_a_budget(self) -> None:
        prompt = prompt_of("tools: [{name: m, kind: mcp}]\ninputs: {h: {kind: thread}}", "{{ h }}\nuser:\nhi")
        prompter = prompt.prompter.with_budget(Budget(40, CharTokenCounter()))
        made: Any = prompter.generate_prompt({"h": [["a" * 50, "b" * 50]]}, format="anthropic")
        assert [each["content"] for each in made["messages"]] == ["hi"]
        assert report_entries(made) == ["tools[0] tools"]


def test_neutral_format_keeps_all_parts_of_thread_messages() -> None:
    prompt = prompt_of("inputs: {h: {kind: thread}}", "{{ h }}")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    picture = {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "high"}}
    history: Any = [
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "see"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "42"},
        Msg("assistant", [ThinkingBlock("hm"), TextBlock("x")], "assistant"),
    ]
    called = {**call, "function": {"name": "f", "arguments": {"a": 1}}}
    assert prompt.generate_prompt({"h": history}, format="neutral")["messages"] == [
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "see"}, picture]},
        {"role": "assistant", "content": [{"type": "tool_call", "tool_call": called}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "tool_result", "tool_result": "42"}]},
        {"role": "assistant", "content": "x"},
    ]


@pytest.mark.parametrize(
    "sound", [AudioBlock(Base64Source("audio/flac", "ZkxhQwA=")), "data:audio/flac;base64,ZkxhQwA="], ids=type
)
def test_attributes_are_no_message_fields_and_media_keep_their_types(sound: object) -> None:
    prompt = Prompty.loads("---\ninputs: {a: {kind: audio}, p: {kind: image}}\n---\nuser[zip=123]:\n{{ a }}{{ p }}")
    parts = [
        {"type": "input_audio", "input_audio": {"data": "ZkxhQwA=", "format": "flac"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    values = {"a": sound, "p": ImageBlock(Base64Source("image/png", "aGk="))}
    # request() sends FLAC as Prompty does; generate_prompt() leaves it out because OpenAI does not accept it.
    for made, sent in ((prompt.request(values), parts), (prompt.generate_prompt(values, format="openai"), parts[1:])):
        assert made["messages"] == [{"role": "user", "content": sent}]
        assert "the attribute 'zip' is not part of a message" in [
            each.reason for each in made.report if each.kind == "metadata"
        ]


def test_unsupported_tools_and_media_are_reported_and_supported_ones_are_formatted() -> None:
    prompt = Prompty.loads(
        "---\nmodel: m\ninputs: {f: {kind: file}, a: {kind: audio}}\n"
        "tools: [{name: t, kind: function}, {name: s, kind: mcp}, {name: o, kind: openapi}, {name: c, kind: own}]\n"
        "---\ndeveloper:\nD\nuser:\n{{ f }}{{ a }}!"
    )
    given = {"f": FileBlock(Base64Source("application/pdf", "JVBERi0=")), "a": "data:audio/wav;base64,UklGRg=="}
    made = prompt.request(given, provider="anthropic")
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert made["system"] == "D"
    assert made["messages"] == [
        {"role": "user", "content": [{"type": "document", "source": pdf}, {"type": "text", "text": "!"}]}
    ]
    assert [each.text or each.kind for each in made.report] == ["s", "o", "c", "audio"]
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    assert made["tools"] == [{"name": "t", "input_schema": empty}]
    for report in (made.report, prompt.generate_prompt(given, format="anthropic").report):
        assert [each.text for each in report if each.kind == "tools"] == ["s", "o", "c"]
    assert prompt.request(given)["tools"] == [{"type": "function", "function": {"name": "t", "parameters": empty}}]


@pytest.mark.slow
def test_request_imports_no_client_library() -> None:
    program = (
        "import sys\n"
        "from lazyprompt.files.prompty import Prompty\n"
        "made = Prompty.loads('---\\nmodel: m\\n---\\nuser:\\n{{ q }}').request({'q': 'hi'})\n"
        "assert not {'openai', 'anthropic', 'ruamel'} & set(sys.modules)\n"
        "print(dict(made))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own program
    assert shown == "{'model': 'm', 'messages': [{'role': 'user', 'content': 'hi'}]}\n"


PROMPT_FOR_ANTHROPIC = Prompty.loads(
    "---\nmodel:\n  id: m\n  provider: anthropic\n  options: {maxOutputTokens: 9, topK: 4}\n"
    "inputs: {q: {kind: string}}\noutputs: {a: {kind: string}}\n---\nsystem:\nBe brief.\n\nuser:\n{{ q }}"
)


def test_request_for_a_custom_profile_has_the_fields_of_its_format() -> None:
    acme = Profile(name="acme", form=ChatForm(), source="https://acme.example/docs", alternate=True)
    made = PROMPT_FOR_ANTHROPIC.request({"q": "Why?"}, provider=acme)
    fields = {"a": {"type": ["string", "null"]}}
    schema = {"type": "object", "properties": fields, "required": ["a"], "additionalProperties": False}
    assert made == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "structured_output", "strict": True, "schema": schema},
        },
        "max_tokens": 9,
    }
    assert [str(each) for each in made.report] == [
        "model (native) left out: the file sets it for anthropic, not for acme; add it to the request",
        "model.options.topK (option) left out: requests to acme (chat) have no such option; see additionalProperties",
    ]
    response = {"choices": [{"message": {"role": "assistant", "content": '{"a": "So."}'}}]}
    assert PROMPT_FOR_ANTHROPIC.read(response, acme) == {"a": "So."}


def test_model_and_native_options_are_sent_only_to_the_provider_of_the_file() -> None:
    """Requests to another provider had the file's model and native options, without a report."""
    options = "options: {temperature: 0, additionalProperties: {store: true}}"
    prompt = prompt_of(f"model: {{id: m, provider: openai, {options}}}")
    made = prompt.request(provider="anthropic")
    content = [{"type": "text", "text": "hi"}]
    assert made == {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4096}
    other = "left out: the file sets it for openai, not for anthropic; add it to the request"
    assert [str(each) for each in made.report] == [
        f"model (native) {other}",
        f"model.options.additionalProperties.store (native) {other}",
    ]
    made.report.raise_for_losses()
    own = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "store": True}
    assert prompt.request() == prompt.request(provider="azure") == own
    assert prompt.request(provider=ChatFormatter("openai").profile)["model"] == "m"
    assert prompt.request(provider="openai-responses")["model"] == "m"
    sent = prompt_of(f"model: {{id: m, {options}}}").request(provider="anthropic")
    assert (sent["model"], sent["store"], [*sent.report]) == ("m", True, [])


@pytest.mark.parametrize("name", ["anthropic", "gemini", "ollama", "mistral", "deepseek"])
def test_copied_profile_has_the_request_fields_of_its_wire_format(name: str) -> None:
    copy = ChatFormatter(name).profile.but(name="acme")
    of_any = Prompty.loads(PROMPT_FOR_ANTHROPIC.text.replace("  provider: anthropic\n", ""))
    made, known = (of_any.request({"q": "Why?"}, provider=each) for each in (copy, name))
    assert made == known


def test_profile_with_the_responses_format_supports_only_the_responses_api() -> None:
    copy = ChatFormatter("openai-responses").profile.but(name="acme")
    made = PROMPT_FOR_ANTHROPIC.request({"q": "Why?"}, provider=copy)
    assert made["input"] == [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    assert made["max_output_tokens"] == 9
    with pytest.raises(FormatError, match="^the profile 'acme' supports only the 'responses' API, not 'chat'$"):
        PROMPT_FOR_ANTHROPIC.request({"q": "Why?"}, provider=copy, api="chat")
    chat, responses = (prompt_of(f"model: {{id: m, apiType: {api}}}") for api in ("chat", "responses"))
    assert chat.request(provider=copy) == responses.request(provider=copy)
    with pytest.raises(FormatError, match="^the profile 'acme' supports only the 'responses' API, not 'embedding'$"):
        prompt_of("model: {id: m, apiType: embedding}").request(provider=copy)


@pytest.mark.parametrize("name", ["dashscope", "ollama-generate"])
def test_a_wire_format_without_request_fields_is_refused(name: str) -> None:
    copy = ChatFormatter(name).profile.but(name="acme")
    with pytest.raises(
        FormatError, match=r"no request fields for the wire format \w+ of the provider 'acme'; use generate_prompt"
    ):
        PROMPT_FOR_ANTHROPIC.request({"q": "Why?"}, provider=copy)


@pytest.mark.parametrize("call", [PROMPT_FOR_ANTHROPIC.request, PROMPT_FOR_ANTHROPIC.read])
def test_provider_of_a_wrong_type_is_refused(call: Callable[..., object]) -> None:
    with pytest.raises(FormatError, match="^provider must be a name or a Profile, not int$"):
        call({"q": "Why?"}, provider=7)
