"""Whole requests of prompt files: what each provider is sent, what its report says, and what is refused."""

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

WHOLE = """---
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
FIND = {"type": "object", "properties": {"q": {"type": ["string", "null"]}}, "required": ["q"]}
STRICT_FIND = {**FIND, "additionalProperties": False}
LEFT_FOR_ALL = ["tools[1] tools", "messages[1] metadata"]


def report_entries(made: Payload) -> list[str]:
    """The places of a report, each with its kind."""
    return [f"{each.where} {each.kind}" for each in made.report]


def prompt_of(fields: str, body: str = "user:\nhi") -> Prompty:
    return Prompty.loads(f"---\n{fields}\n---\n{body}")


class TestWhatIsSent:
    def test_openai(self) -> None:
        made = Prompty.loads(WHOLE).request()
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
            "temperature": 0.5,
            "max_completion_tokens": 9,
            "top_p": 0.9,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "seed": 7,
            "stop": ["END"],
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
        }
        assert sorted(report_entries(made)) == sorted([*LEFT_FOR_ALL, "model.options.topK option"])

    def test_openai_responses(self) -> None:
        made = Prompty.loads(WHOLE).request(api="responses")
        assert made == {
            "model": "m",
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "Hello"}],
            "tools": [{"type": "function", "name": "find", "parameters": STRICT_FIND, "strict": True}],
            "text": {"format": {"type": "json_schema", "name": "structured_output", "strict": True, "schema": STRICT}},
            "temperature": 0.5,
            "max_output_tokens": 9,
            "top_p": 0.9,
            "parallel_tool_calls": False,
            "reasoning": {"effort": "low"},
        }
        missing = ("topK", "frequencyPenalty", "presencePenalty", "seed", "stopSequences")
        options = [f"model.options.{each} option" for each in missing]
        assert sorted(report_entries(made)) == sorted([*LEFT_FOR_ALL, "messages name", *options])
        alone = Prompty.loads("---\nmodel: m\n---\nsystem:\nHi").request(api="responses", provider="openai")
        assert alone == {"model": "m", "input": [{"role": "developer", "content": "Hi"}]}

    def test_anthropic(self) -> None:
        made = Prompty.loads(WHOLE).request(provider="anthropic")
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
            "temperature": 0.5,
            "max_tokens": 9,
            "top_p": 0.9,
            "top_k": 4,
            "stop_sequences": ["END"],
        }
        missing = ("frequencyPenalty", "presencePenalty", "seed", "allowMultipleToolCalls")
        options = [f"model.options.{each} option" for each in missing]
        assert sorted(report_entries(made)) == sorted([*LEFT_FOR_ALL, "tools[0] strict", "messages name", *options])

    def test_gemini(self) -> None:
        made = Prompty.loads(WHOLE).request(provider="googleai")
        assert made == {
            "model": "m",
            "system_instruction": "Be brief.",
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "tools": [{"function_declarations": [{"name": "find", "parameters_json_schema": STRICT_FIND}]}],
            "generation_config": {
                "response_mime_type": "application/json",
                "response_json_schema": LOOSE,
                "temperature": 0.5,
                "max_output_tokens": 9,
                "top_p": 0.9,
                "top_k": 4,
                "frequency_penalty": 0.1,
                "presence_penalty": 0.2,
                "seed": 7,
                "stop_sequences": ["END"],
            },
        }
        options = [f"model.options.{each} option" for each in ("allowMultipleToolCalls", "reasoningEffort")]
        assert sorted(report_entries(made)) == sorted([*LEFT_FOR_ALL, "tools strict", "messages name", *options])

    def test_ollama(self) -> None:
        made = Prompty.loads(WHOLE).request(provider="ollama")
        assert made["tools"] == [{"type": "function", "function": {"name": "find", "parameters": STRICT_FIND}}]
        assert made["format"] == LOOSE
        assert made["options"] == {
            "temperature": 0.5,
            "num_predict": 9,
            "top_p": 0.9,
            "top_k": 4,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
            "seed": 7,
            "stop": ["END"],
        }
        options = [f"model.options.{each} option" for each in ("allowMultipleToolCalls", "reasoningEffort")]
        assert sorted(report_entries(made)) == sorted([*LEFT_FOR_ALL, "tools strict", "messages name", *options])

    def test_one_that_speaks_like_openai(self) -> None:
        made = Prompty.loads(WHOLE).request(provider="deepseek")
        assert (made["max_tokens"], "response_format" in made) == (9, False)
        assert "outputs outputs" in report_entries(made)
        assert Prompty.loads(WHOLE).request(provider="vllm")["response_format"]["type"] == "json_schema"

    def test_all_options_were_given(self) -> None:
        options: Any = Prompty.loads(WHOLE).model["options"]
        assert {*options} == {*OPTIONS}

    def test_to_embed_and_to_draw(self) -> None:
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

    def test_nothing_is_shared(self) -> None:
        prompt = Prompty.loads(WHOLE)
        first = prompt.request()
        first["stop"].append("x")
        first["tools"][0]["function"]["parameters"]["properties"].clear()
        assert prompt.request() == Prompty.loads(WHOLE).request()
        again = pickle.loads(pickle.dumps(prompt.request()))  # noqa: S301 - our own
        assert (again, again.report) == (prompt.request(), prompt.request().report)

    def test_an_empty_turn_of_the_user_is_left_out(self) -> None:
        """``request`` sent the empty turn that ``generate_prompt`` left out."""
        prompt = prompt_of("inputs: {q: {kind: string, default: ''}}", "system:\nS\nuser:\nHi\nuser:\n{{ q }}")
        for made in (prompt.request(provider="vllm"), prompt.generate_prompt({}, format="vllm")):
            assert made["messages"] == [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]

    def test_several_texts_of_one_message_stay_apart(self) -> None:
        """``request`` joined them with nothing between, where the formatter sends parts or lines."""
        texts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
        for provider in ("openai", "openai-responses", "anthropic", "gemini", "ollama"):
            made, sent = prompt_of("model: m").request(messages=texts, provider=provider), ChatFormatter(provider)
            assert {key: made[key] for key in made if key in ("messages", "input", "contents")} == sent.format(texts)

    def test_messages_in_the_place_of_those_of_the_template(self) -> None:
        made = prompt_of("model: m").request(messages=[["a", "b"], {"role": "user", "content": "c"}])
        assert [each["content"] for each in made["messages"]] == ["a", "b", "c"]


class TestWhoIsSent:
    @pytest.mark.parametrize(
        ("fields", "asked", "says"),
        [
            (
                "model: {provider: opnai}",
                {},
                r"provider 'opnai' is unknown \(did you mean 'openai'\?\); prompt files can",
            ),
            (
                "model: m",
                {"provider": "dashscope"},
                "provider 'dashscope' does not support complete requests; prompt files can",
            ),
            (
                "model: m",
                {"api": "chta"},
                r"openai doesn't support the 'chta' API \(did you mean 'chat'\?\); expected one of chat, resp",
            ),
            (
                "model: m",
                {"provider": "anthropic", "api": "image"},
                "anthropic doesn't support the 'image' API; expected one of chat",
            ),
            (
                "model: {provider: gemini, apiType: embedding}",
                {},
                "gemini doesn't support the 'embedding' API; expected one of chat",
            ),
        ],
    )
    def test_one_who_has_no_such_interface(self, fields: str, asked: dict[str, Any], says: str) -> None:
        with pytest.raises(FormatError, match=says):
            prompt_of(fields).request(**asked)

    def test_an_interface_of_openai_alone_does_not_bind_others(self) -> None:
        prompt = prompt_of("model: {id: m, apiType: responses}")
        assert "input" in prompt.request()
        assert "input" in prompt.request(provider="azure")
        assert "messages" in prompt.request(provider="anthropic")
        assert "messages" in prompt.request(api="chat")
        assert prompt_of("model: m").request(provider="openai-responses") == prompt.request()

    def test_what_the_file_does_not_know_is_told(self) -> None:
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

    def test_a_model_is_named_by_text(self) -> None:
        assert prompt_of("model: {id: 4.1}").request()["model"] == "4.1"
        for part in ("id", "provider", "apiType"):
            with pytest.raises(PromptFileError, match=rf"<string>:2:\d+: model.{part} must be text, not a list"):
                prompt_of(f"model: {{{part}: [a]}}")

    def test_options_of_the_provider_are_a_mapping(self) -> None:
        (entry,) = prompt_of("model: {id: m, options: {additionalProperties: [1]}}").request().report
        assert (entry.where, entry.kind) == ("model.options.additionalProperties", "option")


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)).decode()
MEDIA = prompt_of(
    "model: m\ninputs: {p: {kind: image}, a: {kind: audio}, f: {kind: file}}", "user:\n{{ p }}{{ a }}{{ f }}!"
)


class TestMedia:
    def test_base64_alone_is_known_by_its_first_bytes(self) -> None:
        for given in (PNG, f"{PNG[:20]}\n{PNG[20:]}\n"):
            for made in (MEDIA.request({"p": given}), MEDIA.generate_prompt({"p": given}, format="openai")):
                shown = made["messages"][0]["content"][0]
                assert shown == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        sound = MEDIA.request({"a": WAV})["messages"][0]["content"][0]
        assert sound == {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
        # A file may be anything; what is of another kind is no medium of this one.
        assert MEDIA.messages({"f": PNG})[0].blocks[0] == FileBlock(Base64Source("image/png", PNG))
        assert MEDIA.messages({"a": PNG})[0].blocks[0] == AudioBlock(URLSource(PNG))

    @pytest.mark.parametrize(
        "text", ["photos/cat", "base64data", "file-abc", "//server/share/cat", "a" * 4000, " ", "="]
    )
    def test_other_text_stays_an_address(self, text: str) -> None:
        assert MEDIA.messages({"p": text})[0].blocks[0] == ImageBlock(URLSource(text))

    def test_what_is_no_picture_is_refused_by_all_alike(self) -> None:
        data, form = ImageBlock(Base64Source("image/png", "base64data")), MEDIA.generate_prompt
        for given, says in (("aGVsbG8=", "expected http"), (data, "the data is not base64: invalid padding")):
            for make in (MEDIA.request, partial(form, format="openai"), partial(form, format="gemini")):
                with pytest.raises(MediaError, match=says):
                    make({"p": given})

    def test_a_file_at_an_address(self) -> None:
        """OpenAI's chat refuses one: a request is as Prompty has it, and says so; the other form says what to do."""
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


NAMED = """tools:
- {id: a, type: function, function: {name: "{{ n }}", description: d, parameters: {type: object, properties: {}}}}
- {id: web, type: bing}

user:
hi"""
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {"name": "find", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


class TestToolsOfTheText:
    def test_functions_are_offered_and_others_are_told(self) -> None:
        prompt = Prompty.loads(NAMED)
        for made in (
            prompt.request({"n": "find"}),
            prompt.generate_prompt({"n": "find"}, format="openai"),
            prompt.generate_prompt({"n": "find"}, format="vllm"),
        ):
            assert made["tools"] == [FUNCTION]
            assert [each.text for each in made.report if each.kind == "tools"] == ["web"]
        assert '"name": "find"' in prompt.generate_prompt({"n": "find"})
        own = Prompty.loads("---\ntools: [{name: own}]\n---\n" + NAMED)
        made = own.generate_prompt({"n": "find"}, format="openai")
        assert [each["function"]["name"] for each in made["tools"]] == ["own", "find"]

    def test_none_may_be_given_beside_them(self) -> None:
        for text in (NAMED, "---\ntools: [{name: own}]\n---\n" + NAMED):
            with pytest.raises(ToolsError, match="defines tools in its text, so a call can't pass any; got x"):
                Prompty.loads(text).generate_prompt(
                    {"n": "find"}, tools=[{"type": "function", "function": {"name": "x"}}], format="openai"
                )
        with pytest.raises(ToolsError, match="was created with the tools own, "):
            prompt_of("tools: [{name: own}]").generate_prompt(
                {}, tools=[{"type": "function", "function": {"name": "x"}}], format="openai"
            )


class TestReportsOfPrompts:
    @pytest.mark.parametrize("format_", ["openai", "anthropic", "ollama"])
    def test_attributes_that_stay_behind_are_told(self, format_: str) -> None:
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

    def test_what_a_thread_brings_counts_and_stays(self) -> None:
        prompt = prompt_of("inputs: {h: {kind: thread}}", "{{ h }}\nuser[mood=calm]:\nhi")
        made = prompt.generate_prompt({"h": [["a", "b"], {"role": "user", "content": "c", "mine": 1}]}, format="openai")
        assert [each.where for each in made.report] == ["messages[3]", "messages[2].mine"]
        assert made["messages"][2] == {"role": "user", "content": "c"}

    def test_strict_tools(self) -> None:
        prompt = Prompty.loads(WHOLE)
        for provider in ("gemini", "ollama", "dashscope", "anthropic", "openai", "zhipu"):
            made = prompt.generate_prompt({}, format=provider)
            assert isinstance(made, Payload)
            can = provider in ("anthropic", "openai", "zhipu")
            assert ("'strict': True" in str(made["tools"])) is can
            assert ("strict" in [each.kind for each in made.report]) is not can

    def test_strictness_is_no_content_that_is_lost(self) -> None:
        tool: dict[str, Any] = {"type": "function", "function": {**FUNCTION["function"], "strict": True}}
        made = ChatFormatter("ollama", strict=True).format([{"role": "user", "content": "hi"}], tools=[tool])
        assert (made["tools"], report_entries(made)) == ([FUNCTION], ["tools strict"])
        # What does not ask for it has nothing to tell.
        tool["function"]["strict"] = False
        made = ChatFormatter("ollama").format([{"role": "user", "content": "hi"}], tools=[tool])
        assert (made["tools"], made.report) == ([FUNCTION], ())

    def test_a_budget_keeps_the_report(self) -> None:
        prompt = prompt_of("tools: [{name: m, kind: mcp}]\ninputs: {h: {kind: thread}}", "{{ h }}\nuser:\nhi")
        prompter = prompt.prompter.with_budget(Budget(40, CharTokenCounter()))
        made: Any = prompter.generate_prompt({"h": [["a" * 50, "b" * 50]]}, format="anthropic")
        assert [each["content"] for each in made["messages"]] == ["hi"]
        assert report_entries(made) == ["tools[0] tools"]


def test_a_thread_is_whole_in_the_neutral_form() -> None:
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


def test_attributes_are_no_fields_and_media_keep_their_types() -> None:
    prompt = Prompty.loads("---\ninputs: {a: {kind: audio}, p: {kind: image}}\n---\nuser[zip=123]:\n{{ a }}{{ p }}")
    sound, picture = AudioBlock(Base64Source("audio/flac", "ZkxhQwA=")), ImageBlock(Base64Source("image/png", "aGk="))
    parts = [
        {"type": "input_audio", "input_audio": {"data": "ZkxhQwA=", "format": "flac"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    for given in (sound, "data:audio/flac;base64,ZkxhQwA="):
        values = {"a": given, "p": picture}
        # A request is as Prompty sends it; OpenAI itself takes no FLAC.
        for made, sent in (
            (prompt.request(values), parts),
            (prompt.generate_prompt(values, format="openai"), parts[1:]),
        ):
            assert made["messages"] == [{"role": "user", "content": sent}]
            assert "the attribute 'zip' is not part of a message" in [
                each.reason for each in made.report if each.kind == "metadata"
            ]


def test_what_a_provider_cannot_have_is_told_and_what_it_can_have_is_in_its_form() -> None:
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
def test_a_request_needs_no_client() -> None:
    program = (
        "import sys\n"
        "from lazyprompt.files.prompty import Prompty\n"
        "made = Prompty.loads('---\\nmodel: m\\n---\\nuser:\\n{{ q }}').request({'q': 'hi'})\n"
        "assert not {'openai', 'anthropic', 'ruamel'} & set(sys.modules)\n"
        "print(dict(made))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own program
    assert shown == "{'model': 'm', 'messages': [{'role': 'user', 'content': 'hi'}]}\n"


OF_OUR_OWN = Prompty.loads(
    "---\nmodel:\n  id: m\n  provider: anthropic\n  options: {maxOutputTokens: 9, topK: 4}\n"
    "inputs: {q: {kind: string}}\noutputs: {a: {kind: string}}\n---\nsystem:\nBe brief.\n\nuser:\n{{ q }}"
)


def test_a_request_to_a_profile_of_ones_own() -> None:
    acme = Profile(name="acme", form=ChatForm(), source="https://acme.example/docs", alternate=True)
    made = OF_OUR_OWN.request({"q": "Why?"}, provider=acme)
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    assert made == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "structured_output",
                "strict": True,
                "schema": {**schema, "additionalProperties": False},
            },
        },
        "max_tokens": 9,
    }
    assert [str(each) for each in made.report] == [
        "model (native) left out: the file sets it for anthropic, not for acme; add it to the request",
        "model.options.topK (option) left out: requests to acme (chat) have no such option; see additionalProperties",
    ]
    response = {"choices": [{"message": {"role": "assistant", "content": '{"a": "So."}'}}]}
    assert OF_OUR_OWN.read(response, acme) == {"a": "So."}


def test_the_model_of_a_file_is_for_its_provider() -> None:
    """Another provider was sent the file's model and the options of its own provider, and no report said so."""
    head = (
        "---\nmodel: {id: m, provider: openai, options: {temperature: 0, additionalProperties: {store: true}}}\n---\n"
    )
    prompt = Prompty.loads(f"{head}user:\nHi")
    made = prompt.request(provider="anthropic")
    content = [{"type": "text", "text": "Hi"}]
    assert made == {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4096}
    other = "left out: the file sets it for openai, not for anthropic; add it to the request"
    assert [str(each) for each in made.report] == [
        f"model (native) {other}",
        f"model.options.additionalProperties.store (native) {other}",
    ]
    made.report.raise_for_losses()
    own = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "store": True}
    assert prompt.request() == prompt.request(provider="azure") == own
    assert prompt.request(provider=ChatFormatter("openai").profile)["model"] == "m"
    assert prompt.request(provider="openai-responses")["model"] == "m"
    any_provider = Prompty.loads("---\nmodel: {id: m, options: {additionalProperties: {store: true}}}\n---\nuser:\nHi")
    sent = any_provider.request(provider="anthropic")
    assert (sent["model"], sent["store"], [*sent.report]) == ("m", True, [])


@pytest.mark.parametrize("name", ["anthropic", "gemini", "ollama", "mistral", "deepseek"])
def test_a_changed_copy_of_a_known_profile_has_the_fields_of_its_wire_format(name: str) -> None:
    copy = ChatFormatter(name).profile.but(name="acme")
    of_any = Prompty.loads(OF_OUR_OWN.text.replace("  provider: anthropic\n", ""))
    made, known = (of_any.request({"q": "Why?"}, provider=each) for each in (copy, name))
    assert made == known


def test_a_profile_with_the_responses_format_has_that_api() -> None:
    copy = ChatFormatter("openai-responses").profile.but(name="acme")
    made = OF_OUR_OWN.request({"q": "Why?"}, provider=copy)
    assert made["input"] == [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    assert made["max_output_tokens"] == 9
    with pytest.raises(FormatError, match="^the profile 'acme' supports only the 'responses' API, not 'chat'$"):
        OF_OUR_OWN.request({"q": "Why?"}, provider=copy, api="chat")
    chat, responses, embedding = (
        Prompty.loads(f"---\nmodel: {{id: m, apiType: {api}}}\n---\nuser:\nHi")
        for api in ("chat", "responses", "embedding")
    )
    assert chat.request(provider=copy) == responses.request(provider=copy)
    with pytest.raises(FormatError, match="^the profile 'acme' supports only the 'responses' API, not 'embedding'$"):
        embedding.request(provider=copy)


@pytest.mark.parametrize("name", ["dashscope", "ollama-generate"])
def test_a_wire_format_without_request_fields_is_refused(name: str) -> None:
    copy = ChatFormatter(name).profile.but(name="acme")
    with pytest.raises(
        FormatError, match=r"no request fields for the wire format \w+ of the provider 'acme'; use generate_prompt"
    ):
        OF_OUR_OWN.request({"q": "Why?"}, provider=copy)


@pytest.mark.parametrize("call", [OF_OUR_OWN.request, OF_OUR_OWN.read])
def test_a_value_that_is_no_provider_is_refused_by_its_type(call: Callable[..., object]) -> None:
    with pytest.raises(FormatError, match="^provider must be a name or a Profile, not int$"):
        call({"q": "Why?"}, provider=7)
