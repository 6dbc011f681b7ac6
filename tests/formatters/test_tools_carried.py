"""Tools in payloads: schemas are complete, and unsupported keys are reported."""

import json
from typing import Any

import pytest

from formatters.helpers import WITH_TOOLS, answering, call, calling, result
from formatters.payloads import judged
from lazyprompt import ChatFormatter, FormatError

HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
MARK = {"type": "ephemeral"}


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_required_parameters_of_a_tool_are_sent_to_every_provider(provider: str) -> None:
    # LazyLLM's manual prints `required` beside the parameters: it was lost, or our own validator refused it.
    tool = {"type": "function", "function": {**FUNCTION, "required": ["city"]}}
    payload = judged(ChatFormatter(provider, strict=True), HI, tools=[tool])
    whole = {"type": "function", "function": {**FUNCTION, "parameters": SCHEMA | {"required": ["city"]}}}
    assert payload == judged(ChatFormatter(provider), HI, tools=[whole])
    assert '"required": ["city"]' in json.dumps(payload["tools"])
    assert payload.report == ()


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_unsupported_tool_key_is_reported(provider: str) -> None:
    function = {**FUNCTION, "returns": {"type": "string"}}
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": function, "annotations": {"readOnly": True}},
        {"name": "now", "inputSchema": SCHEMA, "title": "Now", "outputSchema": None},
    ]
    payload = judged(ChatFormatter(provider), HI, tools=tools)
    assert [(entry.where, entry.kind, entry.action, entry.text) for entry in payload.report] == [
        ("tools[0].annotations", "tools", "left out", '{"readOnly": true}'),
        ("tools[0].function.returns", "tools", "left out", '{"type": "string"}'),
        ("tools[1].title", "tools", "left out", '"Now"'),
    ]
    with pytest.raises(FormatError, match=r"tools\[0\].annotations .* does not support 'annotations' of a tool"):
        ChatFormatter(provider, strict=True).format(HI, tools=tools)


def test_tool_keys_of_anthropic_are_sent_to_anthropic_only() -> None:
    tool = {**FUNCTION, "input_examples": [{"city": "Bern"}], "defer_loading": True, "cache_control": MARK}
    tool["input_schema"] = tool.pop("parameters")
    payload = judged(ChatFormatter("anthropic", strict=True), HI, tools=[tool])
    assert payload["tools"] == [tool]
    payload = judged(ChatFormatter("openai"), HI, tools=[tool])
    assert payload["tools"] == [{"type": "function", "function": FUNCTION}]
    assert [(entry.where, entry.kind) for entry in payload.report] == [
        ("tools[0].input_examples", "tools"),
        ("tools[0].defer_loading", "tools"),
        ("tools", "cache"),
    ]


@pytest.mark.parametrize(
    ("provider", "left", "taken"),
    [
        ("openai", {"type": "object", "properties": {}}, ["allOf", "enum", "oneOf"]),
        ("openai-responses", {"type": "object", "properties": {}}, ["allOf", "enum", "oneOf"]),
        ("anthropic", {"type": "object", "properties": {}, "enum": [{}]}, ["allOf", "oneOf"]),
    ],
)
def test_combinators_at_the_root_of_a_tool_schema_are_removed(provider: str, left: object, taken: list[str]) -> None:
    """The APIs return status 400 for them."""
    schema: dict[str, Any] = {"properties": {}, "oneOf": [{}], "allOf": [], "enum": [{}]}
    payload = judged(
        ChatFormatter(provider), HI, tools=[{"type": "function", "function": FUNCTION | {"parameters": schema}}]
    )
    (tool,) = payload["tools"]
    assert (tool.get("input_schema") or tool.get("function", tool)["parameters"]) == left
    assert [entry.where for entry in payload.report] == [f"tools[0].function.parameters.{key}" for key in taken]


def test_responses_api_gets_flat_tools_calls_and_results() -> None:
    tool = {"type": "function", **FUNCTION, "strict": False, "defer_loading": True}
    bare = {"type": "function", "function": {"name": "now"}}
    exchange = calling(call("c1")), answering(result("c1"))
    more: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": text} for text in "ab"]}
    payload = judged(ChatFormatter("openai-responses", strict=True), HI, *exchange, more, tools=[tool, bare])
    flat = {"type": "function", "name": "now", "strict": False, "parameters": {"type": "object", "properties": {}}}
    called = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": "c1", "output": ""}
    parts = [part | {"type": "input_text"} for part in more["content"]]
    assert payload == {"input": [HI, called, answered, more | {"content": parts}], "tools": [tool, flat]}


def test_breakpoint_is_set_on_the_last_tool_that_is_not_deferred() -> None:
    """Anthropic refuses a breakpoint on a deferred tool."""
    tools = [{"name": name, "input_schema": SCHEMA, "defer_loading": name != "now"} for name in ("now", "later")]
    payload = judged(ChatFormatter("anthropic", cache=["tools"]), HI, tools=tools)
    assert [tool.get("cache_control") for tool in payload["tools"]] == [MARK, None]
