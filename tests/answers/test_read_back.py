"""Assistant turns rendered by real chat templates are parsed back; transformers parses them for comparison."""

import ast
import json
import zipfile
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import pytest

from answers.helpers import ARGUMENTS, PLAIN, TOOLS, calls, check_deltas, message_contents, stream_deltas
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.messages.msg import TextBlock
from support.chat_judges import SPECIAL
from support.real_templates import TRL_WHEEL, real_template, wheel


class Row(NamedTuple):
    """A template, and how its turns are parsed."""

    package: str  # that carries it
    template: str  # its name there
    model: str  # the form, family or model for the parser
    turn: str  # the start of an assistant turn
    arguments: dict[str, Any] = ARGUMENTS  # of the first call
    thinks: bool = False  # whether it writes reasoning beside calls
    text: Literal["before", "behind"] | None = "before"  # where it writes text beside calls
    several: bool = True  # whether it writes more than one call
    as_text: bool = False  # whether it wants arguments as JSON text
    thinking: bool | None = None  # whether the prompt opened the reasoning
    empty: str | None = None  # the content of a message without text
    own_ids: bool = False  # whether it renders ids


CHATML = "<|im_start|>assistant\n"
LLAMA = "<|start_header_id|>assistant<|end_header_id|>\n\n"
MODEL = "<|turn>model\n"
DEEPSEEK = "<｜Assistant｜>"
GPT_OSS = Row("trl", "", "gpt-oss", "<|start|>assistant", thinks=True, text=None, several=False, empty="")
ROWS = [
    *(Row("trl", name, "qwen2.5", CHATML) for name in ("qwen2_5", "qwen2_5_training")),
    *(Row("trl", name, "qwen3", CHATML, thinks=True) for name in ("qwen3", "qwen3_training")),
    *(Row("trl", name, "qwen3-instruct-2507", CHATML) for name in ("qwen3_instruct_2507", "qwen3_vl")),
    *(
        Row("trl", f"{name}{end}", model, CHATML, thinks=True)
        for name, model in (
            ("qwen3_5_think", "qwen3.5"),
            ("qwen3_5_nothink", "qwen3.5-nothink"),
            ("qwen3_6", "qwen3.6"),
            ("qwen3_8", "Qwen3.8-27B"),
            ("nemotron_3_nano", "NVIDIA-Nemotron-3-Nano"),
            ("nemotron_3_super", "NVIDIA-Nemotron-3-Super"),
            ("nemotron_3_ultra", "NVIDIA-Nemotron-3-Ultra"),
            ("nemotron_3_5_lightning", "NVIDIA-Nemotron-3.5-Lightning"),
        )
        for end in ("", "_training")
    ),
    Row("trl", "llama3_1", "llama-3.1", LLAMA, text=None, several=False),
    Row("trl", "llama3_2", "llama-3.2", LLAMA, text=None, several=False),
    Row("trl", "deepseekv3", "deepseek-v3", DEEPSEEK, as_text=True),
    Row("trl", "deepseekv3_training", "deepseek-v3", DEEPSEEK),
    Row("trl", "deepseek_r1_distill", "deepseek-r1", DEEPSEEK, as_text=True, text=None, thinking=False),
    *(Row("trl", name, "glm-4.5", "<|assistant|>", thinks=True) for name in ("glm4moe", "glm4moe_training")),
    *(GPT_OSS._replace(template=name) for name in ("gptoss", "gptoss_training")),
    *(Row("trl", name, "lfm2", CHATML) for name in ("lfm2_v2", "lfm2_v2_training")),
    *(Row("trl", name, "lfm2.5", CHATML, PLAIN, thinks=True) for name in ("lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl")),
    *(
        Row("trl", name, "gemma-4", MODEL, thinks=name != "gemma4_v2", text="behind")
        for name in ("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5", "diffusion_gemma")
    ),
    Row("xllamacpp", "Qwen-QwQ-32B", "qwq", CHATML, thinking=False),
    Row("xllamacpp", "Qwen3-Coder", "Qwen3-Coder-30B-A3B-Instruct", CHATML),
    Row("xllamacpp", "StepFun3.5-Flash", "qwen-xml", CHATML, thinks=True),
    Row("xllamacpp", "meta-llama-Llama-3.3-70B-Instruct", "llama-3.3", LLAMA, text=None, several=False),
    Row("xllamacpp", "deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1", DEEPSEEK),
    Row("xllamacpp", "GLM-4.6", "GLM-4.6", "<|assistant|>", thinks=True),
    Row("xllamacpp", "GLM-4.7-Flash", "GLM-4.7-Flash", "<|assistant|>", thinks=True),
    Row("xllamacpp", "moonshotai-Kimi-K2", "kimi-k2", "<|im_assistant|>assistant<|im_middle|>"),
    Row("xllamacpp", "MiniMax-M2", "minimax-m2", "]~b]ai\n", thinks=True),
    Row("xllamacpp", "ByteDance-Seed-OSS", "seed-oss", "<seed:bos>assistant\n", thinks=True),
    GPT_OSS._replace(package="xllamacpp", template="openai-gpt-oss-120b"),
    Row("xllamacpp", "google-gemma-4-31B-it-interleaved", "gemma-4-31b", MODEL, thinks=True, text="behind"),
    Row("xllamacpp", "google-gemma-4-31B-it", "gemma-4-31b", MODEL, text="behind"),
    Row("xllamacpp", "ibm-granite-granite-4.0", "granite-4", "<|start_of_role|>assistant<|end_of_role|>"),
    Row("xllamacpp", "mistralai-Mistral-Nemo-Instruct-2407", "mistral-nemo", "[/INST]", text=None, own_ids=True),
    Row("xllamacpp", "Mistral-Small-3.2-24B-Instruct-2506", "mistral-v7-tekken", "[/INST]", text=None, own_ids=True),
    Row("xllamacpp", "unsloth-mistral-Devstral-Small-2507", "Devstral-Small-2507", "[/INST]"),
    Row("xllamacpp", "mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "[/INST]"),
    Row(
        *("xllamacpp", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "c4ai-command-r7b-12-2024"),
        *("<|CHATBOT_TOKEN|>", ARGUMENTS),
        thinks=True,
        text=None,
    ),
    Row(
        "xllamacpp", "NVIDIA-Nemotron-Nano-v2", "nemotron-nano-2", "<SPECIAL_11>Assistant\n", text=None, thinking=False
    ),
]


def render_turn(row: Row) -> tuple[str, dict[str, Any]]:
    """The rendered assistant turn, and its message."""
    expected_calls = [("get_weather", row.arguments), ("now", {})][: 2 if row.several else 1]
    calls = [{"name": name, "arguments": json.dumps(given) if row.as_text else given} for name, given in expected_calls]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "Look.\n\nHere." if row.text else row.empty,
        "tool_calls": [{"id": f"abcdefgh{at}", "type": "function", "function": each} for at, each in enumerate(calls)],
    }
    if row.thinks:
        message |= {"reasoning_content": "hm,\n\nso", "reasoning": "hm,\n\nso", "thinking": "hm,\n\nso"}
    template = real_template(row.package, row.template)
    text = template.render(
        messages=[{"role": "user", "content": "Hi"}, message],
        tools=TOOLS,
        **SPECIAL,
        add_generation_prompt=False,
        strftime_now=lambda _: "today",
    )
    return text[text.index(row.turn, text.rindex("Hi")) + len(row.turn) :], message


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.template)
def test_assistant_turns_of_a_real_chat_template_are_parsed_back(row: Row) -> None:
    text, message = render_turn(row)
    parser = ResponseParser(row.model, tools=TOOLS, thinking=row.thinking)
    expected_calls = [("get_weather", row.arguments), *([("now", {})] if row.several else [])]
    expected = [
        *([("thinking", "hm,\n\nso")] if row.thinks else []),
        *(["Look.\n\nHere."] if row.text == "before" else []),
        *expected_calls,
        *(["Look.\n\nHere."] if row.text == "behind" else []),
    ]
    deltas, streamed_message = stream_deltas(parser, text)
    read = parser.parse(text)
    assert message_contents(read) == message_contents(streamed_message) == expected
    check_deltas(deltas, read)
    if row.own_ids:
        assert [call.id for call in calls(read)] == [call["id"] for call in message["tool_calls"]]


@pytest.mark.slow
def test_every_trl_template_with_tool_calls_is_tested() -> None:
    with zipfile.ZipFile(wheel(TRL_WHEEL, "with models' own chat templates")) as archive:
        names = [name for name in archive.namelist() if name.endswith(".jinja")]
        found = [name for name in names if b"tool_call" in archive.read(name)]
    writing = {name.rpartition("/")[2].removesuffix(".jinja") for name in found}
    tested = {row.template for row in ROWS}
    # The form of Muse is unknown; other training templates render the same turns as those without training.
    left = {name for name in writing - tested if not name.endswith("_training")}
    assert left == {"muse_glimmer"}


@lru_cache(maxsize=1)
def judges() -> dict[str, Any]:
    """The response templates of trl, read from its source because importing trl requires torch."""
    with zipfile.ZipFile(wheel(TRL_WHEEL, "with models' own chat templates")) as archive:
        module = ast.parse(archive.read("trl/chat_template_utils.py"))
    found: dict[str, Any] = {"_SUPPORTS_PARSE_RESPONSE_TOOLS": True}
    for node in module.body:
        names = {target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)}
        if any(name.startswith(("_LFM2", "_XML")) or name.endswith("_template") for name in names) or isinstance(
            node, ast.For
        ):
            code = ast.unparse(node)
            if "read_text" not in code:
                exec(code, found)  # noqa: S102 - of the wheel that the tests pin
    return found


# The response templates of trl, and the chat templates whose turns they parse.
JUDGED = {
    "qwen3_template": ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"),
    "qwen3_5_template": ("qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8"),
    "nemotron_3_template": ("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
    "glm4moe_template": ("glm4moe",),
    "llama3_template": ("llama3_1", "llama3_2"),
    "gptoss_template": ("gptoss",),
    "gemma4_template": ("gemma4_v3", "gemma4_v4", "gemma4_v5"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("judge", "template"), [(judge, name) for judge, names in JUDGED.items() for name in names])
def test_transformers_parses_the_same_message(judge: str, template: str) -> None:
    row = next(row for row in ROWS if (row.package, row.template) == ("trl", template))
    # transformers does not parse None as older Gemma templates render it.
    given = {key: value for key, value in row.arguments.items() if value is not None}
    text, _ = render_turn(row._replace(arguments=given))
    parse: Any = import_module("transformers.utils.chat_parsing.response_parser").parse_response
    # transformers needs the end of the prompt; that of Nemotron opens the reasoning.
    opened = "<think>" if judge == "nemotron_3_template" else ""
    prompt, output = row.turn + opened, text.removeprefix(opened)
    judged = parse(output, judges()[judge], prefix=prompt, tools=TOOLS)
    read = ResponseParser(row.model, tools=TOOLS, thinking=row.thinking).parse(text)
    read_by_template = ResponseParser(judges()[judge], tools=TOOLS, prompt=prompt).parse(output)
    assert message_contents(read_by_template) == message_contents(read)
    reasoning = [part[1] for part in message_contents(read) if isinstance(part, tuple) and part[0] == "thinking"]
    assert [(judged.get("reasoning_content") or judged.get("thinking") or "").strip()] == (reasoning or [""])
    text = "".join(block.text for block in read.blocks if isinstance(block, TextBlock))
    assert (judged.get("content") or "").strip() == text.strip()
    judged_calls = [(call["function"]["name"], call["function"]["arguments"]) for call in judged["tool_calls"]]
    assert judged_calls == [(call.name, call.input) for call in calls(read)]
