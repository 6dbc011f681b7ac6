"""Tool calls, tool results and reasoning in conversations, in the models' own formats."""

import json
from typing import Any

import pytest

from lazyprompt import Chat, ChatPrompter, ChatTemplate, OnlineChatModule
from lazyprompt.errors import HistoryError, ModuleError
from lazyprompt.messages.msg import ImageBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from modules.local_models import MAKES
from modules.online_scenes import WAYS
from modules.talks import TOOL_TEMPLATE, Module, ask_chat, make_local, sent_text, weather
from support.model_server.server import Answer, ModelServer

CALLED = ToolUseBlock("c1", "clock", {})
QWEN_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
LLAMA_CALL = '{"name": "weather", "parameters": {"city": "Köln"}}'


@pytest.mark.parametrize(
    ("form", "call", "again"),
    [
        ("qwen-2.5", QWEN_CALL, QWEN_CALL),
        ("llama-3.1", LLAMA_CALL, '"parameters": {"city": "Köln"}'),
        ("llama-3.1", f"<|python_tag|>{LLAMA_CALL}", '"parameters": {"city": "Köln"}'),
    ],
)
@pytest.mark.parametrize("way", ["call", "stream"])
def test_tool_calls_parsed_from_local_text_are_sent_back_with_their_results(
    lenient: ModelServer, form: str, call: str, again: str, way: str
) -> None:
    module = make_local(lenient, markers=form)
    chat = module.chat(tools=[weather])
    lenient.answer = Answer(call)
    reply = ask_chat(chat, way, "How is the weather?")
    (asked,) = reply.tool_calls
    assert (asked.name, asked.input, str(reply), reply.finish) == ("weather", {"city": "Köln"}, "", "tool_calls")
    chat.add_result(asked, {"rain": True, "mm": 3})
    lenient.answer = Answer("It rains.")
    assert ask_chat(chat, way, None) == "It rains."
    assert again in sent_text(lenient)
    assert '{"rain": true, "mm": 3}' in sent_text(lenient).replace("\\", "")  # Llama's results are JSON strings
    assert [message.role for message in chat.history] == ["user", "assistant", "tool", "assistant"]
    module.close()


MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
    "{% elif m.tool_calls %}[TOOL_CALLS]{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}</s>"
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("way", ["call", "stream"])
@pytest.mark.parametrize(
    "call",
    [
        '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Köln"}, "id": "abcdefghi"}]',
        '[TOOL_CALLS]weather[ARGS]{"city": "Köln"}</s>',
    ],
)
def test_mistral_tool_calls_are_parsed_and_rendered_by_the_template(lenient: ModelServer, call: str, way: str) -> None:
    module = make_local(lenient, chat_template=MISTRAL_TEMPLATE)
    chat = module.chat(tools=[weather])
    lenient.answer = Answer(call)
    (asked,) = ask_chat(chat, way, "How is it?").tool_calls
    assert (asked.name, asked.input) == ("weather", {"city": "Köln"})
    chat.add_result(asked, "rain")
    lenient.answer = Answer("It rains.")
    ask_chat(chat, way, None)
    shown = '[TOOL_CALLS]{"name": "weather", "arguments": {"city": "Köln"}}</s>[TOOL_RESULTS]rain[/TOOL_RESULTS]'
    assert sent_text(lenient) == f"[INST]How is it?[/INST]{shown}"
    module.close()


def test_tool_results_are_rendered_by_the_chat_template_of_the_model(lenient: ModelServer) -> None:
    module = make_local(lenient, chat_template=TOOL_TEMPLATE)
    chat = module.chat(tools=[weather])
    lenient.answer = Answer(f"Let me see.{QWEN_CALL}" + QWEN_CALL.replace("Köln", "Bonn"))
    reply = chat("How is it?")
    assert str(reply) == "Let me see."
    for call, said in zip(reply.tool_calls, ("rain", "sun"), strict=True):
        chat.add_result(call, said)
    lenient.answer = Answer("Rain and sun.")
    chat()
    calls = [
        {"id": str(at), "type": "function", "function": {"name": "weather", "arguments": {"city": city}}}
        for at, city in enumerate(("Köln", "Bonn"))
    ]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "content": "rain", "tool_call_id": "0"},
        {"role": "tool", "content": "sun", "tool_call_id": "1"},
    ]
    assert sent_text(lenient) == ChatTemplate.load(TOOL_TEMPLATE).render(messages, tools=[weather]).text
    module.close()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("text", "text"),
        ("", ""),
        ({"ä": 1, "b": None}, '{"ä": 1, "b": null}'),
        ([1, "b", {"c": []}], '[1, "b", {"c": []}]'),
        ([], "[]"),
        ([{"type": "file", "name": "a.txt"}], '[{"type": "file", "name": "a.txt"}]'),
        ((1, 2), "[1, 2]"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (
            [TextBlock("a"), ImageBlock(URLSource("https://x/y.png"))],
            (TextBlock("a"), ImageBlock(URLSource("https://x/y.png"))),
        ),
    ],
)
def test_tool_output_becomes_text_blocks_or_json(module: Module, output: object, said: object) -> None:
    chat = module.chat([Msg("assistant", [ToolUseBlock("call_1", "weather")], "assistant")])
    chat.add_result(ToolUseBlock("call_1", "weather"), output)
    _, message = chat.history
    assert message == Msg("tool", [ToolResultBlock("call_1", "weather", said)], "tool")  # type: ignore[arg-type]  # the table's


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("output", [object(), {1, 2}, {"a": b"x"}, CYCLE, "\ud800"])
def test_tool_output_that_is_not_json_is_rejected(module: Module, output: object) -> None:
    chat = module.chat([Msg("assistant", [ToolUseBlock("call_1", "weather")], "assistant")])
    with pytest.raises(HistoryError):
        chat.add_result(ToolUseBlock("call_1", "weather"), output)
    assert len(chat.history) == 1


# Arguments that are not a JSON object: from a server, and in the text of local models.
BROKEN_ARGUMENTS = ('{"city": "Kö', "[1, 2]", "city=Köln", '{"city": NaN', "7", "true", "{'city': 'Köln'}")
BROKEN_TEXTS = (
    ("qwen-2.5", '<tool_call>\n{"name": "clear", "arguments": {"folder": "/tmp"\n</tool_call>'),
    ("qwen-2.5", '<tool_call>\n{"name": "clear", "arguments": [1]}\n</tool_call>'),
    ("llama-3.1", '<|python_tag|>{"name": "clear", "parameters": {"folder": }'),
    ("qwen3-coder", "<tool_call>\n<function=clear>\n/tmp\n</function>\n</tool_call>"),
    ("mistral-v3", '[TOOL_CALLS][{"name": "clear", "arguments": "{folder"}]'),
)


def clear(folder: str = "/") -> str:
    """Clear a folder."""
    return folder


def call_error(chat: Chat, way: str) -> ModuleError:
    """The error of a response with an invalid tool call; the history stays unchanged."""
    with pytest.raises(ModuleError, match="the tool 'clear' with arguments that are not a JSON object") as caught:
        ask_chat(chat, way, "Clear /tmp.")
    assert chat.history == ()
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", ["openai", "anthropic"])
@pytest.mark.parametrize("arguments", BROKEN_ARGUMENTS)
def test_tool_call_with_bad_arguments_is_an_error(lenient: ModelServer, source: str, arguments: str, way: str) -> None:
    """Invalid arguments became {}, and a function whose parameters have defaults was called."""
    module = OnlineChatModule(source, model="m", base_url=lenient.url(source), api_key="k", retries=0)
    none: dict[str, Any] = {}
    lenient.answer = Answer("", calls=(("c1", "clock", none), ("c2", "clear", arguments)))
    error = call_error(module.chat(tools=[clear]), way)
    assert error.kind == "invalid"
    assert error.partial.tool_calls[1].raw_input is not None
    lenient.answer = Answer("", calls=(("c1", "clock", none), ("c2", "clear", none)))  # no arguments are no broken ones
    assert [call.input for call in ask_chat(module.chat(), way, "Go.").tool_calls] == [{}, {}]
    module.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("form", "text"), BROKEN_TEXTS)
def test_local_tool_call_with_bad_arguments_is_an_error(lenient: ModelServer, form: str, text: str, way: str) -> None:
    module = make_local(lenient, markers=form)
    lenient.answer = Answer(text)
    assert call_error(module.chat(tools=[clear]), way).kind == "invalid"
    module.close()


THINKS = MAKES["chatml"].template.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")


@pytest.mark.parametrize(
    ("template", "answer", "thinking", "text"),
    [
        (THINKS, "so\n</think>\n\npong", "so", "pong"),
        (THINKS, "so and so", "so and so", ""),
        (MAKES["chatml"].template, "<think>\nso\n</think>\n\npong", "so", "pong"),
        (MAKES["chatml"].template, "pong", "", "pong"),
    ],
)
@pytest.mark.parametrize("way", ["call", "stream"])
def test_reasoning_is_separated_from_text_whether_prompt_or_response_opens_the_tag(
    lenient: ModelServer, template: str, answer: str, thinking: str, text: str, way: str
) -> None:
    module = make_local(lenient, chat_template=template)
    chat = module.chat()
    lenient.answer = Answer(answer)
    if not text:
        with pytest.raises(ModuleError) as caught:
            ask_chat(chat, way, "what of <think>?")
        assert caught.value.partial.thinking.strip() == thinking
        assert chat.history == ()
        return
    reply = ask_chat(chat, way, "what of <think>?")
    assert (reply.thinking.strip(), reply.strip()) == (thinking, text)
    ask_chat(chat, way, "and now?")
    assert "so" not in sent_text(lenient).replace("so\n</think>", "") or template is THINKS
    module.close()


def test_user_instruction_is_not_repeated_after_tool_results(module: Module, lenient: ModelServer) -> None:
    # The question was repeated after each tool result, or its slot value was required again.
    module.prompt(ChatPrompter({"system": "Be brief.", "user": "Asked: {q}"}, system=""))
    chat = module.chat([Msg("user", "Asked: When?", "user"), Msg("assistant", [CALLED], "assistant")])
    chat.add_result(CALLED, "9:30")
    chat()
    assert json.dumps(lenient.seen[-1].body).count("Asked: ") == 1
    asked = [*chat.history[:3]]
    assert module({"q": "When?"}, asked) == "pong"
    assert json.dumps(lenient.seen[-1].body).count("Asked: ") == 1
    assert module({"q": "And then?"}, asked) == "pong"
    assert json.dumps(lenient.seen[-1].body).count("Asked: ") == 2
    assert [each.role for each in chat.history] == ["user", "assistant", "tool", "assistant"]
