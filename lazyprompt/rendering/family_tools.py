"""The markers and patterns of each family's tool format, copied from the family's chat template."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lazyprompt.rendering.tool_form import ToolForm

if TYPE_CHECKING:
    from collections.abc import Mapping

_JSON_CALL = '{"name": "{name}", "arguments": {arguments}}'

# The Hermes tool-call format, which Qwen and other families also use.
_HERMES_CALLS: Final[Mapping[str, Any]] = {
    "tool_start": '<tool_call>\n{"name": "',
    "tool_args": '", "arguments": ',
    "tool_end": "}\n</tool_call>",
    "tool_join": "\n",
    "tool_form": ToolForm(),
}
QWEN: Final[Mapping[str, Any]] = {
    **_HERMES_CALLS,
    "tools": (
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
}
GRANITE_4: Final[Mapping[str, Any]] = {
    **_HERMES_CALLS,
    "tools": (
        "\n\nYou are a helpful assistant with access to the following tools. You may call one or more tools to assist "
        "with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        "{tools}\n</tools>\n\nFor each tool call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>. If a tool does not exist in the provided list of tools, notify the user that you do not have "
        "the ability to fulfill the request."
    ),
    "soe": "<|start_of_role|>user<|end_of_role|>\n<tool_response>\n",
    "eoe": "\n</tool_response><|end_of_text|>\n",
    "result_join": "\n</tool_response>\n<tool_response>\n",
}

_XML_INSTRUCTIONS = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified "
    "format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your function call in natural "
    "language BEFORE the function call, but NOT after\n- If there is no function call available, answer the question "
    "like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>"
)
_XML_CALL = "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>"
_XML_ARGUMENT = "<parameter={key}>\n{value}\n</parameter>\n"
QWEN_3_CODER: Final[Mapping[str, Any]] = {
    "tools": f"\n\nYou have access to the following functions:\n\n<tools>{{tools}}{_XML_INSTRUCTIONS}",
    "tool_join": "",
    "eoe": "\n</tool_response>\n<|im_end|>\n",
    "tool_form": ToolForm(
        tool="xml",
        default_system="You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks.",
        text_end="\n\n",
        strips_text=True,
        call=_XML_CALL,
        argument=_XML_ARGUMENT,
        argument_format="python",
    ),
}
QWEN_3_5: Final[Mapping[str, Any]] = {
    "tools": f"# Tools\n\nYou have access to the following functions:\n\n<tools>\n{{tools}}{_XML_INSTRUCTIONS}",
    "tool_join": "\n",
    "tool_form": ToolForm(
        place="system_start",
        text_end="\n\n",
        call=_XML_CALL,
        argument=_XML_ARGUMENT,
        argument_format="mixed",
        open_thought="<think>\n\n</think>\n\n",
    ),
}
QWEN_3_6: Final[Mapping[str, Any]] = {
    "tool_form": replace(QWEN_3_5["tool_form"], argument_format="json"),
}

# Llama's templates drop the text of a message with a tool call, and reject messages with two calls.
# Unlike Llama's templates, lazyprompt keeps the text of a message with tool calls, and writes each call on a new line.
LLAMA: Final[Mapping[str, Any]] = {
    "tools": (
        "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
        "best answers the given prompt.\n\n"
        'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
        "Do not use variables.\n\n{tools}\n\n"
    ),
    "tool_join": "\n\n",
    "soe": "<|start_header_id|>ipython<|end_header_id|>\n\n",
    "eoe": "<|eot_id|>",
    "tool_form": ToolForm(
        tool="indented",
        place="first_user",
        header="Environment: ipython\n",
        call='{"name": "{name}", "parameters": {arguments}}',
        json_results=True,
    ),
}
LLAMA_4: Final[Mapping[str, Any]] = {
    **LLAMA,
    "soe": "<|header_start|>ipython<|header_end|>\n\n",
    "eoe": "<|eot|>",
    "tool_form": replace(
        LLAMA["tool_form"], turn="<|python_start|>{text}<|python_end|>{calls}", text_end="", call_join=""
    ),
}

# Mistral's templates drop the text of a message with tool calls, and require nine-character call ids.
# Mistral's templates also don't escape tool descriptions, so the tool list may be invalid JSON.
# Unlike Mistral's templates, lazyprompt keeps the text of a message with tool calls, accepts any call id, and writes
# valid JSON.
MISTRAL_V3: Final[Mapping[str, Any]] = {
    "tools": "[AVAILABLE_TOOLS] {tools}[/AVAILABLE_TOOLS]",
    "soe": '[TOOL_RESULTS] {"content": ',
    "eoe": '"}[/TOOL_RESULTS]',
    "tool_form": ToolForm(
        place="last_user",
        turn="{text}[TOOL_CALLS] [{calls}]",
        text_end="",
        call='{"name": "{name}", "arguments": {arguments}, "id": "{id}"}',
        call_join=", ",
        result='{content}, "call_id": "{id}',
        opens_turn=False,
    ),
}
MISTRAL_NEMO: Final[Mapping[str, Any]] = {
    **MISTRAL_V3,
    "tools": "[AVAILABLE_TOOLS]{tools}[/AVAILABLE_TOOLS]",
    "soe": '[TOOL_RESULTS]{"content": ',
    "tool_form": replace(MISTRAL_V3["tool_form"], turn="{text}[TOOL_CALLS][{calls}]"),
}

_GLM_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
    "For each function call, output the function name and arguments within the following XML format:\n"
)
GLM_4_5: Final[Mapping[str, Any]] = {
    "tools": (
        f"<|system|>\n{_GLM_TOOLS}<tool_call>{{function-name}}\n<arg_key>{{arg-key-1}}</arg_key>\n"
        "<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n"
        "...\n</tool_call>"
    ),
    "tool_join": "\n",
    "tool_form": ToolForm(
        place="before_system",
        call="<tool_call>{name}\n{arguments}</tool_call>",
        argument="<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n",
    ),
}
GLM_4_7: Final[Mapping[str, Any]] = {
    "tools": (
        f"<|system|>\n{_GLM_TOOLS}<tool_call>{{function-name}}<arg_key>{{arg-key-1}}</arg_key>"
        "<arg_value>{arg-value-1}</arg_value><arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>"
        "...</tool_call>"
    ),
    "tool_form": ToolForm(
        place="before_system",
        text_end="",
        call="<tool_call>{name}{arguments}</tool_call>",
        call_join="",
        argument="<arg_key>{key}</arg_key><arg_value>{value}</arg_value>",
    ),
}

KIMI_K2: Final[Mapping[str, Any]] = {
    "tools": "<|im_system|>tool_declare<|im_middle|>{tools}<|im_end|>",
    "soe": "<|im_system|>tool<|im_middle|>## Return of ",
    "eoe": "<|im_end|>",
    "tool_form": ToolForm(
        place="before_system",
        turn="{text}<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>",
        text_end="",
        call="<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        call_join="",
        call_id="functions.{name}:{number}",
        result="{id}\n{content}",
    ),
}

# The instructions, including the Chinese text, are copied from Seed-OSS's chat template.
SEED_OSS: Final[Mapping[str, Any]] = {
    "tools": (
        "{tools}\n工具调用请遵循如下格式:\n<seed:tool_call>\n<function=example_function_name>\n"
        "<parameter=example_parameter_1>value_1</parameter>\n<parameter=example_parameter_2>This is the value for the "
        "second parameter\nthat can span\nmultiple lines</parameter>\n</function>\n</seed:tool_call>\n"
    ),
    "tool_join": "",
    "tool_form": ToolForm(
        tool="python",
        default_system=(
            "You are Doubao, a helpful AI assistant. You may call one or more functions to assist with the user query."
        ),
        text_end="\n\n",
        call="<seed:tool_call>\n<function={name}>\n{arguments}</function>\n</seed:tool_call>",
        argument="<parameter={key}>{value}</parameter>\n",
        argument_format="python",
    ),
}

MINIMAX_M2: Final[Mapping[str, Any]] = {
    "tools": (
        "\n\n# Tools\nYou may call one or more tools to assist with the user query.\nHere are the tools available in "
        "JSONSchema format:\n\n<tools>\n<tool>{tools}</tool>\n</tools>\n\nWhen making tool calls, use XML format to "
        'invoke tools and pass parameters:\n\n<minimax:tool_call>\n<invoke name="tool-name-1">\n'
        '<parameter name="param-key-1">param-value-1</parameter>\n'
        '<parameter name="param-key-2">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>'
    ),
    "tool_join": "</tool>\n<tool>",
    "tool_form": ToolForm(
        tool="function",
        turn="{text}\n<minimax:tool_call>\n{calls}</minimax:tool_call>",
        text_end="",
        call='<invoke name="{name}">\n{arguments}</invoke>\n',
        call_join="",
        argument='<parameter name="{key}">{value}</parameter>\n',
    ),
}

LFM2: Final[Mapping[str, Any]] = {
    "tools": "\nList of tools: <|tool_list_start|>{tools}<|tool_list_end|>",
    "soe": "<|im_start|>tool\n<|tool_response_start|>",
    "eoe": "<|tool_response_end|><|im_end|>\n",
    "tool_form": ToolForm(
        turn="{text}<|tool_call_start|>[{calls}]<|tool_call_end|>",
        text_end="",
        call="{name}({arguments})",
        call_join=", ",
        argument="{key}={value}",
        argument_join=", ",
        argument_format="quoted",
    ),
}
LFM2_5: Final[Mapping[str, Any]] = {
    "tools": "\nList of tools: {tools}",
    "soe": "<|im_start|>tool\n",
    "eoe": "<|im_end|>\n",
    "tool_form": replace(LFM2["tool_form"], argument_format="raw_quoted"),
}

NEMOTRON_NANO_2: Final[Mapping[str, Any]] = {
    "tools": (
        "\n\nYou can use the following tools to assist the user if required:\n<AVAILABLE_TOOLS>[{tools}]"
        "</AVAILABLE_TOOLS>\n\nIf you decide to call any tool(s), use the following format:\n"
        '<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, '
        '{{"name": "tool_name2", "arguments": "tool_args2"}}]</TOOLCALL>\n\n'
        "The user will execute tool-calls and return responses from tool(s) in this format:\n"
        '<TOOL_RESPONSE>[{{"tool_response1"}}, {{"tool_response2"}}]</TOOL_RESPONSE>\n\n'
        "Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are "
        "found, or just respond to the user."
    ),
    "tool_join": ", ",
    "soe": "<SPECIAL_11>User\n<TOOL_RESPONSE>[",
    "eoe": "]</TOOL_RESPONSE>",
    "result_join": ", ",
    "tool_form": ToolForm(
        tool="function", turn="{text}<TOOLCALL>[{calls}]</TOOLCALL>", call=_JSON_CALL, call_join=", "
    ),
}

EXAONE_4: Final[Mapping[str, Any]] = {
    "tools": (
        "\n\n# Available Tools\nYou can use none, one, or multiple of the following tools by calling them as functions "
        "to help with the user’s query.\nHere are the tools available to you in JSON format within <tool> and </tool> "
        "tags:\n<tool>{tools}</tool>\n\nFor each function call you want to make, return a JSON object with function "
        "name and arguments within <tool_call> and </tool_call> tags, like:\n"
        '<tool_call>{"name": function_1_name, "arguments": {argument_1_name: argument_1_value, argument_2_name: '
        'argument_2_value}}</tool_call>\n<tool_call>{"name": function_2_name, "arguments": {...}}</tool_call>\n...\n'
        "Note that if no argument name is specified for a tool, you can just print the argument value directly, "
        "without the argument name or JSON formatting."
    ),
    "tool_join": "</tool>\n<tool>",
    "soe": '[|tool|]\n<tool_result>{"result": ',
    "eoe": "}</tool_result>[|endofturn|]\n",
    "result_join": '}</tool_result>\n<tool_result>{"result": ',
    "tool_form": ToolForm(call=f"<tool_call>{_JSON_CALL}</tool_call>", json_results=True),
}

_DEEPSEEK_NOTE = "its chat template does not render the tools block"
DEEPSEEK_V3: Final[Mapping[str, Any]] = {
    "soe": "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>",
    "eoe": "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
    "result_join": "<｜tool▁output▁end｜>\n<｜tool▁output▁begin｜>",
    "tool_form": ToolForm(
        turn="{text}<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>",
        text_end="",
        call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        same_turn=True,
        note=_DEEPSEEK_NOTE,
    ),
}
DEEPSEEK_V3_1: Final[Mapping[str, Any]] = {
    "soe": "<｜tool▁output▁begin｜>",
    "eoe": "<｜tool▁output▁end｜>",
    "tool_form": ToolForm(
        turn="{text}<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>",
        text_end="",
        call="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        call_join="",
        same_turn=True,
        note=_DEEPSEEK_NOTE,
    ),
}

# Phi-4-mini's template does not render tool calls, so the call format is copied from the model card.
PHI_4_MINI: Final[Mapping[str, Any]] = {
    "tools": "<|tool|>{tools}<|/tool|>",
    "soe": "<|tool|>",
    "eoe": "<|end|>",
    "tool_form": ToolForm(
        turn="{text}<|tool_call|>[{calls}]<|/tool_call|>", text_end="", call=_JSON_CALL, call_join=", "
    ),
}

# Markers can't express the tool formats of these families; each note explains the reason.
GEMMA_4: Final = ToolForm(note="it writes tool results in the same turn as the calls, before the turn's text")
GLM_4: Final = ToolForm(note="it writes each call as a separate turn, and describes the tools in Chinese")
GRANITE_3: Final = ToolForm(note="its versions 3.0 to 3.3 use three different tool formats")
MISTRAL_V7_TEKKEN: Final = ToolForm(note="the models with this tokenizer use three different call formats")
TOOL_USE: Final = ToolForm(note="it uses a separate chat template for tools")
