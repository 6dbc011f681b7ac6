"""Example responses of local models in every form, their expected blocks, and checks for all tests of parsing."""

import itertools
import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from lazyprompt.answers.parser import Delta, ResponseParser
from lazyprompt.messages.msg import Msg, TextBlock, ThinkingBlock, ToolUseBlock

# Text, ("thinking", text), (name, arguments), or (name, raw arguments) if the arguments are not an object.
ExpectedBlocks: TypeAlias = "list[str | tuple[str, str] | tuple[str, dict[str, Any]]]"


class Example(NamedTuple):
    text: str
    blocks: ExpectedBlocks


def _tool(name: str, description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_TYPES = {"city": "string", "zip": "string", "days": "integer", "ratio": "number", "exact": "boolean", "more": "object"}
_PROPERTIES = {name: {"type": kind} for name, kind in _TYPES.items()} | {
    "unit": {"type": ["string", "null"]},
    "tags": {"type": "array", "items": {"type": "string"}},
}
WEATHER = _tool("get_weather", "The weather", _PROPERTIES, required=["city"])
NOW = _tool("now", "The time", {})
TOOLS: list[dict[str, Any]] = [WEATHER, NOW]
ARGUMENTS: dict[str, Any] = {
    "city": 'Köln <b> & "x"\nzwei {y}',
    "zip": "50667",
    "days": 2,
    "ratio": 1.5,
    "exact": True,
    "unit": None,
    "tags": ["a", "b, c)"],
    "more": {"x": {"y": [1, True]}},
}
# Arguments for templates that do not escape text.
PLAIN = {**ARGUMENTS, "city": "Köln <b>"}

_CITY = {"city": "Köln"}
_JSON = '{"city": "Köln"}'
_CALL_JSON = f'{{"name": "get_weather", "arguments": {_JSON}}}'
_DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"

_THINK = ("thinking", "hm")
_WEATHER: tuple[str, dict[str, Any]] = ("get_weather", _CITY)
_TIME: tuple[str, dict[str, Any]] = ("now", {})
_ALL_BLOCKS: ExpectedBlocks = [_THINK, "Look.", _WEATHER, _TIME]

# By form: response texts with their expected blocks; a text without blocks is parsed as text. Sources: table of forms.
_EXAMPLES: dict[str, list[str | Example]] = {
    "hermes": [
        Example("Hello.<|im_end|>\n", ["Hello."]),
        Example(
            '<think>\nhm\n</think>\n\nLook.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n'
            '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>',
            _ALL_BLOCKS,
        ),
        Example('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}', [_WEATHER]),
        Example('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("f", {"a": 1})]),
        Example('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', [("f", {"a": 1})]),
        Example('<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
        Example('<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", {})]),
        Example('<tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>', [("f", {}), ("g", {})]),
        Example(
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>', [("f", {"a": "</tool_call>"})]
        ),
        Example('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>\nSo.', [("f", {"a": 1}), "So."]),
        Example('<tool_call>{"name": "f", "arguments": {"a": "one\ntwo"}}</tool_call>', [("f", {"a": "one\ntwo"})]),
        Example("<tool_call>{'name': 'f', 'arguments': {'a': True}}</tool_call>", [("f", {"a": True})]),
        Example(
            '<tool_call>{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}</tool_call>',
            [("f", {"a": 1})],
        ),
        Example('<tool_call>{"name": "f", "arguments": {"a": "cut', [("f", '{"a": "cut')]),
        Example('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', [("f", "[1]")]),
        Example('<tool_call>{"name": "f", "arg', [("f", '{"name": "f", "arg')]),
        Example('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', [("f", '{"a": NaN}')]),
        Example('<tool_call>{"name": "f", "arguments": {"a": "b}}\n</tool_call>x', [("f", '{"a": "b}}\n'), "x"]),
        Example('<tool_call>{"name": "f", "arguments": "cut\\', [("f", '"cut\\')]),
        Example('<tool_call>{"name": "\\x", "arguments": {}}</tool_call>', [("\\x", {})]),
        Example('<tool_call>{"name": "f", "arguments": {}}</tool', [("f", {})]),
        '<tool_call>{"name": "\\x", "arguments": {}</tool_call>',
        "<tool_call>[{'name': 'f', 'arguments': 3}, 4]</tool_call>",
        Example('<tool_call>{"name": "f"} or so</tool_call>', [("f", {}), "or so"]),
        Example('<tool_call>[{"name": "f"}, {"na', [("f", {}), '{"na']),
        Example('<tool_call>{"name": "f"}</tool_call></tool_call>', [("f", {})]),
        "The </tool_call> tag ends it.",
        "The <tool_call> tag is for tools.",
        "a <tool_call>{none}</tool_call> b",
        'a <tool_call>{"x": 1}</tool_call> b',
    ],
    "qwen-xml": [
        Example(
            "hm\n</think>\n\nLook.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nKöln\n</parameter>\n"
            "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call><|im_end|>\n",
            _ALL_BLOCKS,
        ),
        Example(
            "<function=f>\n<parameter=a>\n\n  two\nlines\n\n</parameter>\n</function>\n</tool_call>",
            [("f", {"a": "\n  two\nlines\n"})],
        ),
        Example(
            "<tool_call><function=f><parameter=a>x</parameter>y</parameter>\n<parameter=b>\n<function=g>\n"
            "</parameter>\n</function></tool_call>",
            [("f", {"a": "x</parameter>y", "b": "<function=g>"})],
        ),
        Example("<tool_call>\n<function=f>\n<parameter=path>\nnotes/cut", [("f", "\n<parameter=path>\nnotes/cut")]),
    ],
    "llama": [
        Example('{"name": "get_weather", "parameters": {"city": "Köln"}}<|eot_id|>', [_WEATHER]),
        Example(
            '<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Köln"}}; '
            '{"name": "now", "parameters": {}}<|eom_id|>',
            [_WEATHER, _TIME],
        ),
        Example('<|python_tag|>brave_search.call(query="Köln")<|eom_id|>', [("brave_search", {"query": "Köln"})]),
        Example('[get_weather(city="Köln"), now()]<|eot_id|>', [_WEATHER, _TIME]),
        Example('<|python_start|>[get_weather(city="Köln")]<|python_end|><|eom|>', [_WEATHER]),
        '{"name": "get_weather", "city": "Köln"} is JSON',
        '{"name": "get_weather"}',
        "[1] and [a link](x)",
        "[get_weather(city)]",
        "<|python_tag|>print(1 + 1)",
        'Call {"name": "now", "parameters": {}}',
    ],
    "pythonic": [
        Example(
            "[get_weather(city='K\\u00f6ln', days=-2, tags=['a', (1.5, None)], more={'x': True}), now()]",
            [("get_weather", {"city": "Köln", "days": -2, "tags": ["a", [1.5, None]], "more": {"x": True}}), _TIME],
        ),
        "[now(), now(]",
        '{"name": "now"}',
        Example("[now()] is how", [_TIME, "is how"]),
    ],
    "lfm2": [
        Example(
            "<think>hm</think>Look.<|tool_call_start|>[get_weather(city='Köln', "
            'tags=["a"], more={"x": null}), now()]'
            "<|tool_call_end|>So.<|im_end|>\n",
            [_THINK, "Look.", ("get_weather", {"city": "Köln", "tags": ["a"], "more": {"x": None}}), _TIME, "So."],
        ),
        Example(f'<|tool_call_start|>[{{"name": "get_weather", "arguments": {_JSON}}}]<|tool_call_end|>', [_WEATHER]),
        Example("<|tool_call_start|>[f(1, a=2)]<|tool_call_end|>", [("f", "1, a=2")]),
    ],
    "mistral": [
        Example(f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {_JSON}, "id": "abcdefgh0"}}]</s>', [_WEATHER]),
        Example(
            f"[THINK]hm[/THINK]Look.[TOOL_CALLS]get_weather[ARGS]{_JSON}[TOOL_CALLS]now[CALL_ID]abcdefgh1[ARGS]{{}}</s>",
            _ALL_BLOCKS,
        ),
        Example('[TOOL_CALLS]get_weather{"city": "Köln"}', [_WEATHER]),
        Example("[TOOL_CALLS]f[ARGS]none", [("f", "none")]),
        "[TOOL_CALLS] are what I call.",
    ],
    "deepseek": [
        Example(
            f"hm</think>Look.{_DEEPSEEK}function<｜tool▁sep｜>get_weather\n```json\n{_JSON}\n```<｜tool▁call▁end｜>\n"
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            "<｜end▁of▁sentence｜>",
            _ALL_BLOCKS,
        ),
        Example(
            f"{_DEEPSEEK}get_weather<｜tool▁sep｜>{_JSON}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{{}}"
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            [_WEATHER, _TIME],
        ),
        Example(
            f'{_DEEPSEEK}function<｜tool▁sep｜>f\n```json\n{{"a": "```"}}\n```<｜tool▁call▁end｜>',
            [("f", {"a": "```"})],
        ),
        Example(f"{_DEEPSEEK}f<｜tool▁sep｜>none<｜tool▁call▁end｜>", [("f", "none")]),
        "a <｜tool▁call▁begin｜>b",
    ],
    "glm-4": [
        "\nHello.",
        Example('get_weather\n{"city": "Köln"}<|observation|>', [_WEATHER]),
        Example('Look.<|assistant|>get_weather\n{"city": "Köln"}<|assistant|>now\n{}', ["Look.", _WEATHER, _TIME]),
        "Yes\n\nor no {maybe}",
    ],
    "glm-4.5": [
        Example(
            "\n<think>hm</think>\nLook.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Köln"
            "</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call><|observation|>",
            _ALL_BLOCKS,
        ),
        Example(
            "<tool_call>f<arg_key>a</arg_key><arg_value> x\n</arg_value></arg_value></tool_call>",
            [("f", {"a": " x\n</arg_value>"})],
        ),
        Example("<tool_call>f<arg_key>a</arg_key><arg_value>cut", [("f", "<arg_key>a</arg_key><arg_value>cut")]),
        "<tool_call>two words</tool_call>",
    ],
    "internlm": [
        Example(
            'Look.<|action_start|><|plugin|>\n{"name": "get_weather", "parameters": {"city": "Köln"}}<|action_end|>'
            "<|im_end|>\n",
            ["Look.", _WEATHER],
        ),
        "<|action_start|><|interpreter|>1+1<|action_end|>",
    ],
    "command-r": [
        Example(
            'Plan.\nAction: ```json\n[\n    {\n        "tool_name": "get_weather",\n        "parameters": {\n'
            '            "city": "Köln"\n        }\n    },\n    {"tool_name": "now", "parameters": {}}\n]```'
            "<|END_OF_TURN_TOKEN|>",
            ["Plan.", _WEATHER, _TIME],
        ),
        Example('Action: ```json\n[{"tool_name": "directly_answer", "parameters": {}}]\n```Hello.', ["Hello."]),
        "Action: ```json\n[1]\n```",
    ],
    "command-r7b": [
        Example(
            '<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": '
            '"0", "tool_name": "get_weather", '
            '"parameters": {"city": "Köln"}},\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n'
            "]<|END_ACTION|><|END_OF_TURN_TOKEN|>",
            [_THINK, _WEATHER, _TIME],
        ),
        Example("<|START_RESPONSE|>Hello.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", ["Hello."]),
    ],
    "phi-4-mini": [
        Example(
            '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Köln"}}]<|/tool_call|><|end|>', [_WEATHER]
        ),
        Example('<|tool_call|>{"name": "now", "arguments": {}}<|/tool_call|>So.', [_TIME, "So."]),
        Example('functools[{"name": "f", "arguments": {"a": [1]}}]', [("f", {"a": [1]})]),
        "functools[0] is a list",
    ],
    "granite": [
        Example('<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Köln"}}]<|end_of_text|>', [_WEATHER]),
        Example('<tool_call>[{"name": "get_weather", "arguments": {"city": "Köln"}}]', [_WEATHER]),
        Example('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|end_of_text|>', [_TIME]),
        Example("<think>hm</think><response>Hello.</response>", [_THINK, "Hello."]),
    ],
    "gemma-4": [
        Example(
            '<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|"|>Köln<|"|>,days:2,exact:true,'
            'more:{<|"|>x<|"|>:[null,1.5]},tags:[<|"|>a<|"|>]}<tool_call|><|tool_call>call:now{}<tool_call|>'
            "<|tool_response>",
            [
                _THINK,
                ("get_weather", {"city": "Köln", "days": 2, "exact": True, "more": {"x": [None, 1.5]}, "tags": ["a"]}),
                _TIME,
            ],
        ),
        Example('<|tool_call>call:f{a:<|"|><tool_call|>\n"<|"|>}<tool_call|>', [("f", {"a": '<tool_call|>\n"'})]),
        Example('<|tool_call>call:f{a:<|"|>cut', [("f", '{a:<|"|>cut')]),
        "<|tool_call>call now<tool_call|>",
    ],
    "harmony": [
        "Hello.",
        Example("<|channel|>final<|message|>Hello.<|return|>", ["Hello."]),
        Example(
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Look.<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
            f"{_JSON}<|call|>",
            [_THINK, "Look.", _WEATHER],
        ),
        Example(f" to=functions.get_weather<|channel|>commentary json<|message|>{_JSON}<|call|>", [_WEATHER]),
        "<|channel|>analysis",
        Example(
            "<|start|>assistant<|channel|>final<|start|>assistant<|message|>a",
            ["<|start|>assistant<|channel|>final", "a"],
        ),
        Example("<|channel|>final<|message|>a<|end|>b", ["a", "b"]),
        "to whom?",
        Example("<|channel|>analysis to=python code<|message|>print(1)<|call|>", [("python", "print(1)")]),
        Example(
            "<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>"
            "assistant to=functions.now<|channel|>"
            "commentary<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>It is noon.<|return|>",
            [_TIME, _TIME],
        ),
        Example(
            "<|channel|>final<|message|>Hello.<|end|><|start|>functions.now to=assistant<|channel|>c<|message|>1",
            ["Hello."],
        ),
    ],
    "kimi-k2": [
        Example(
            "<think>hm</think>Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
            f"<|tool_call_argument_begin|>{_JSON}<|tool_call_end|><|tool_call_begin|>functions.now:1"
            "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
            _ALL_BLOCKS,
        ),
        Example(
            '<|tool_call_begin|>f<|tool_call_argument_begin|>"{\\"a\\": \\"<|tool_call_end|>\\"}"<|tool_call_end|>'
            "<|tool_call_begin|>g<|tool_call_argument_begin|>x, y<|tool_call_end|>",
            [("f", {"a": "<|tool_call_end|>"}), ("g", "x, y")],
        ),
    ],
    "minimax-m2": [
        Example(
            'hm\n</think>\n\nLook.\n<minimax:tool_call>\n<invoke name="get_weather">'
            '\n<parameter name="city">Köln</parameter>'
            '\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>[e~[\n',
            _ALL_BLOCKS,
        )
    ],
    "seed-oss": [
        Example(
            "<seed:think>hm</seed:think>\nLook.\n\n<seed:tool_call>\n<function=get_weather>"
            "\n<parameter=city>Köln</parameter>"
            "\n</function>\n</seed:tool_call><seed:eos>",
            [_THINK, "Look.", _WEATHER],
        )
    ],
    "nemotron-nano-2": [
        Example(f"hm\n</think>\n\n<TOOLCALL>[{_CALL_JSON}]</TOOLCALL>\n<SPECIAL_12>\n", [_THINK, _WEATHER])
    ],
    "exaone-deep": [Example("hm\n</thought>\n\nHello.[|endofturn|]\n", [_THINK, "Hello."])],
}
EXAMPLES: dict[str, list[Example]] = {
    form: [Example(each, [each]) if isinstance(each, str) else each for each in examples]
    for form, examples in _EXAMPLES.items()
}


def message_contents(message: Msg) -> list[object]:
    """The blocks of a message in the notation of the examples."""
    return [
        block.text
        if isinstance(block, TextBlock)
        else ("thinking", block.thinking)
        if isinstance(block, ThinkingBlock)
        else (block.name, block.input if block.raw_input is None else block.raw_input)
        for block in message.blocks
        if isinstance(block, TextBlock | ThinkingBlock | ToolUseBlock)
    ]


def calls(message: Msg) -> list[ToolUseBlock]:
    return [block for block in message.blocks if isinstance(block, ToolUseBlock)]


def stream_deltas(parser: ResponseParser, chunks: Iterable[str]) -> tuple[list[Delta], Msg]:
    """All deltas of a response that is streamed in chunks, and the message."""
    stream = parser.stream()
    deltas = [delta for chunk in chunks for delta in stream.feed(chunk)]
    message = stream.finish()
    return [*deltas, *stream.rest], message


def cut(text: str, places: Iterable[int]) -> list[str]:
    """A text in chunks, cut at places that are taken modulo its length."""
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def check_deltas(deltas: list[Delta], message: Msg) -> None:
    """Check that deltas and message have the same contents."""
    for kind, block_kind, field in (("text", TextBlock, "text"), ("thinking", ThinkingBlock, "thinking")):
        streamed = "".join(delta.text for delta in deltas if delta.kind == kind)
        assert streamed == "".join(getattr(block, field) for block in message.blocks if isinstance(block, block_kind))
    message_calls = calls(message)
    assert len({call.id for call in message_calls}) == len(message_calls)
    assert {delta.index for delta in deltas if delta.kind == "tool_call"} == set(range(len(message_calls)))
    for index, call in enumerate(message_calls):
        own = [delta for delta in deltas if delta.index == index]
        arguments = "".join(delta.text for delta in own)
        assert [delta.name for delta in own] == [call.name, *[None] * (len(own) - 1)]
        assert [delta.id for delta in own if delta.id is not None] == [call.id]
        if call.raw_input is not None:
            assert arguments == call.raw_input
        else:
            assert json.loads(arguments or "{}", strict=False) == call.input
