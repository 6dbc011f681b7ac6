"""The response formats of local models.

A comment on each format cites its source. Most formats are taken from chat templates, because a template renders past
calls in the format that the model must use for new calls. Templates are cited by file name in trl 1.16
(``chat_templates``) or by model name on the Hugging Face Hub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.rendering.families import FAMILIES
from lazyprompt.rendering.family_names import PUBLISHER, bare
from lazyprompt.rendering.markers import JSON_CALL, Markers
from lazyprompt.rendering.tool_form import split_pattern

# The syntax of the text between a tool call's markers, for example JSON, JSON with Python quotes, or tags.
Body: TypeAlias = Literal["json", "loose", "functions", "invokes", "keyed", "gemma", "python", "builtin"]
# The syntax of tool calls without markers: JSON, a Python list, or a tool name followed by a line of JSON.
Bare: TypeAlias = Literal["json", "python", "line"]
# "answer" stands for text, and "thought" for reasoning whose start marker is part of the prompt.
Begins: TypeAlias = Literal["answer", "thought", "either"]


@dataclass(frozen=True, slots=True)
class Calls:
    """The markers around tool calls in a response.

    Args:
        start: The marker before each call, or before the list of all calls.
        end: The marker after each call, or after the list of all calls; empty if the format has no end marker.
        bodies: The possible syntaxes of a call's body, which is the text between ``start`` and ``end``; most likely
            first.
        keep: The suffix of ``start`` that is also the beginning of the call's body.
        separator: The marker between a tool's name and its arguments, in formats that write the name before the
            arguments.
        head: A pattern for the text before a call's arguments, with groups ``name`` and ``id``. If the matched text
            does not contain ``separator``, the arguments must be a JSON object.
        quote: The marker that opens and closes a quoted string in the call's body.
        known_tools: True if ordinary text may contain these markers, so that only calls to known tools are parsed.
        plain: True if the markers are removed from text that is not a call.
    """

    start: str
    end: str = ""
    bodies: tuple[Body, ...] = ()
    keep: str = ""
    separator: str = ""
    head: str = ""
    quote: str = ""
    known_tools: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """A response format.

    Args:
        calls: The markers around tool calls.
        thought: The markers around reasoning.
        begins: The kind of content at the start of a response.
        bare: The syntaxes of calls without a start marker; such calls are parsed only at the start of a response.
        drop: The markers that are removed from the response's text.
        stop: The markers that end the response, because they end a turn or start the next turn.
        silent: The names of tools whose calls are removed.
        channels: True if messages have headers, as in OpenAI's harmony format. If True, all other fields except
            ``stop`` are ignored.
    """

    calls: tuple[Calls, ...] = ()
    thought: tuple[str, str] | None = None
    begins: Begins = "answer"
    bare: tuple[Bare, ...] = ()
    drop: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    channels: bool = False


_NAME = r"(?P<name>[^\s<>{}()\[\]\"'`,;]+)\s*"
THINK = ("<think>", "</think>")
_CHATML = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
_LLAMA = (
    *("<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_of_text|>"),
    *("<|eot|>", "<|eom|>", "<|header_start|>"),  # Llama 4
)
_TOOL_CALL = Calls("<tool_call>", "</tool_call>", ("json", "functions", "loose"))
_JSON_LINE = Calls("\n{", bodies=("json",), keep="{", known_tools=True)

FORMS: dict[str, AnswerForm] = {
    # Source: qwen2_5.jinja, qwen3.jinja and the model card for Hermes-2-Pro.
    # Hermes is lazyprompt's default call format; see Markers.call_pattern in rendering/markers.py.
    "hermes": AnswerForm((_TOOL_CALL,), THINK, "either", stop=_CHATML),
    # Source: qwen3_5_think.jinja and nemotron_3_super.jinja.
    # Qwen3-Coder sometimes omits the outer <tool_call> tag, as documented in vLLM's qwen3coder_tool_parser.py.
    "qwen-xml": AnswerForm(
        (
            replace(_TOOL_CALL, bodies=("functions", "json", "loose")),
            Calls("<function=", "</tool_call>", ("functions",), keep="<function="),
        ),
        *(THINK, "either"),
        stop=_CHATML,
    ),
    # Source for JSON calls: llama3_1.jinja (built-in tools after <|python_tag|>) and llama3_2.jinja.
    # Source for ";" separators and Python lists: Meta's "Llama 3.2 model cards and prompt formats".
    # vLLM's llama_tool_parser.py also parses ";" separators and Python lists.
    # Source for <|python_start|> and <|python_end|>: Meta's "Llama 4 model card & prompt format".
    # If text precedes the tool calls, the Llama 4 template also writes this text between <|python_start|> and
    # <|python_end|>.
    # If text precedes a tool call, lazyprompt writes the call on a new line.
    "llama": AnswerForm(
        (
            Calls("<|python_tag|>", bodies=("json", "builtin")),
            Calls("<|python_start|>", "<|python_end|>", ("json", "python"), plain=True),
            _JSON_LINE,
        ),
        bare=("json", "python"),
        stop=_LLAMA,
    ),
    # Parses tool calls written as a Python list, for models of any family whose prompt requests such a list.
    "pythonic": AnswerForm(bare=("python",), stop=(*_LLAMA, *_CHATML)),
    # Source: lfm2_v2.jinja and lfm2_2_5.jinja.
    # LFM2 writes tool calls in JSON only if the prompt requests JSON: see the LFM2-1.2B model card ("Tool use").
    "lfm2": AnswerForm((Calls("<|tool_call_start|>", "<|tool_call_end|>", ("json", "python")),), THINK, stop=_CHATML),
    # Source: tokens/tokenizers/instruct.py in mistral-common.
    # Up to Mistral's tokenizer V7, tool calls are a JSON list. From V11 on, the tool name precedes the arguments.
    # V11 adds call ids, and V13 adds [THINK].
    # Mistral's models sometimes omit [ARGS], as documented in vLLM's mistral_tool_parser.py.
    "mistral": AnswerForm(
        (
            Calls(
                "[TOOL_CALLS]",
                bodies=("json", "loose"),
                separator="[ARGS]",
                head=rf"{_NAME}(?:\[CALL_ID\]\s*(?P<id>[^\s\[]*)\s*)?(?:\[ARGS\]\s*)?",
            ),
        ),
        ("[THINK]", "[/THINK]"),
        stop=("</s>", "[INST]", "[TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]"),
    ),
    # Source for DeepSeek V3 and R1: deepseekv3.jinja, which writes "function", the tool name, and the arguments as JSON
    # in a code fence.
    # DeepSeek-V3.1's template writes the tool name and the arguments as JSON, without a code fence.
    "deepseek": AnswerForm(
        (
            Calls(
                *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
                separator="<｜tool▁sep｜>",
                # Matches the tool name alone, or "function", the tool name, and the start of a code fence with its
                # language.
                head=rf"(?>(?P<type>function<｜tool▁sep｜>\s*)?){_NAME}(?(type)(?:`+[a-z]*\s*)?|(?:<｜tool▁sep｜>\s*)?)",
            ),
        ),
        *(THINK, "either"),
        drop=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        stop=(
            *("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
            *("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>"),
        ),
    ),
    # Source: the chat template of THUDM/glm-4-9b-chat, and ms-swift's glm4 agent template.
    "glm-4": AnswerForm(
        bare=("line",),
        drop=("<|assistant|>",),
        stop=("<|observation|>", "<|user|>", "<|system|>", "<|endoftext|>"),
    ),
    # Source: glm4moe.jinja.
    # GLM 4.6 and 4.7 omit the line breaks between the tags of a tool call, as shown in vLLM's glm4_moe_tool_parser.py.
    "glm-4.5": AnswerForm(
        (replace(_TOOL_CALL, bodies=("keyed",)),),
        *(THINK, "either"),
        stop=("<|observation|>", "<|user|>", "<|assistant|>", "<|system|>", "<|endoftext|>"),
    ),
    # Source: InternLM's chat/chat_format.md and vLLM's internlm2_tool_parser.py.
    "internlm": AnswerForm(
        tuple(
            Calls(f"<|action_start|>{space}<|plugin|>", "<|action_end|>", ("json", "loose"))
            for space in ("", " ", "\n")
        ),
        stop=_CHATML,
    ),
    # Source: Cohere's "Prompting Command R and R+" and the tool_use template of c4ai-command-r-v01.
    # Drop calls to directly_answer, with which the model indicates a text response.
    "command-r": AnswerForm(
        tuple(Calls(f"Action:{space}```json", "```", ("json",)) for space in ("", " ", "\n")),
        stop=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),
        silent=("directly_answer", "directly-answer"),
    ),
    # Source: cohere2.jinja, the tool_use template of c4ai-command-r7b-12-2024.
    # Command A marks its response as TEXT, as shown in vLLM's tests.
    "command-r7b": AnswerForm(
        (Calls("<|START_ACTION|>", "<|END_ACTION|>", ("json", "loose")),),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        drop=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        stop=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),
        silent=("directly_answer", "directly-answer"),
    ),
    # Source: the chat template of Phi-4-mini-instruct, and vLLM's phi4mini_tool_parser.py.
    # The tool prompt in the model card of Phi-4-mini instructs the model to write "functools".
    "phi-4-mini": AnswerForm(
        (
            Calls("<|tool_call|>", "<|/tool_call|>", ("json", "loose")),
            Calls("functools[", bodies=("json",), keep="["),
        ),
        stop=("<|end|>", "<|user|>", "<|system|>", "<|assistant|>", "<|tool_response|>", "<|endoftext|>"),
    ),
    # Source: vLLM's granite_tool_parser.py.
    # The start marker <|tool_call|> is a special token in Granite 3.0, and plain text in Granite 3.1 to 3.3.
    # Granite 4.0 uses the Hermes format.
    # The tags for reasoning and <response> come from granite-3.3-8b-instruct.
    "granite": AnswerForm(
        (Calls("<|tool_call|>", bodies=("json", "loose")), _TOOL_CALL),
        THINK,
        drop=("<response>", "</response>"),
        stop=("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
    ),
    # Source: gemma4_v5.jinja.
    "gemma-4": AnswerForm(
        (Calls("<|tool_call>", "<tool_call|>", ("gemma",), quote='<|"|>'),),
        ("<|channel>thought", "<channel|>"),
        stop=("<turn|>", "<|turn>", "<|tool_response>", "<eos>"),
    ),
    # Source: docs/format.md in openai/harmony, and gptoss.jinja, in which a call's recipient precedes its channel.
    "harmony": AnswerForm(channels=True, stop=("<|return|>", "<|endoftext|>")),
    # Source: the chat template of Kimi-K2-Thinking, and Kimi-K2's docs/tool_call_guidance.md.
    # In Kimi-K2's format, the call id contains the tool name.
    "kimi-k2": AnswerForm(
        (
            Calls(
                *("<|tool_call_begin|>", "<|tool_call_end|>"),
                separator="<|tool_call_argument_begin|>",
                head=r"(?P<id>(?:functions\.)?(?P<name>[^\s<>:]+)(?::\d+)?)\s*(?:<\|tool_call_argument_begin\|>\s*)?",
            ),
        ),
        THINK,
        drop=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        stop=("<|im_end|>", "<|im_user|>", "<|im_system|>", "<|im_assistant|>", "[EOS]"),
    ),
    # Source: the chat template of MiniMax-M2, which always opens a reasoning section.
    "minimax-m2": AnswerForm(
        (Calls("<minimax:tool_call>", "</minimax:tool_call>", ("invokes",)),), THINK, "thought", stop=("[e~[", "]~b]")
    ),
    # Source: the chat template of Seed-OSS-36B-Instruct.
    "seed-oss": AnswerForm(
        (Calls("<seed:tool_call>", "</seed:tool_call>", ("functions",)),),
        ("<seed:think>", "</seed:think>"),
        stop=("<seed:eos>", "<seed:bos>"),
    ),
    # Source: the chat template of NVIDIA-Nemotron-Nano-9B-v2, which opens a reasoning section or writes an empty one.
    "nemotron-nano-2": AnswerForm(
        (Calls("<TOOLCALL>", "</TOOLCALL>", ("json", "loose")),),
        *(THINK, "either"),
        stop=("<SPECIAL_12>", "<SPECIAL_11>", "<SPECIAL_10>"),
    ),
    # Source: the chat template of EXAONE-Deep-7.8B, which always opens a reasoning section.
    # EXAONE 4 uses the Hermes format.
    "exaone-deep": AnswerForm(
        (_TOOL_CALL,), ("<thought>", "</thought>"), "thought", stop=("[|endofturn|]", "[|user|]")
    ),
}

# Pairs of a model name pattern and a response format; the first pattern that matches the start of the name applies.
# All other model families use the Hermes format, lazyprompt's default call format.
_WRITERS = (
    (r"qwen-?3(?:-coder|[.-][5-9])|nemotron-3(?:[.-]\d)?", "qwen-xml"),
    (r"llama-?(?:3[.-][1-9]|4)", "llama"),
    (r"mistral-(?:v[2-9]|v1\d|nemo|small|medium|large)|(?:mini|magi|dev)stral", "mistral"),
    (r"deepseek-(?:v3(?:[.-]1)?(?![.-]\d)|r1)", "deepseek"),
    (r"internlm-?[23]", "internlm"),
    (r"glm-?(?:4[.-][5-9]|5)", "glm-4.5"),
    (r"glm-?4", "glm-4"),
    (r"command-(?:r7b|a)", "command-r7b"),
    (r"command-r", "command-r"),
    (r"phi-?4-mini", "phi-4-mini"),
    (r"granite-?[34](?:[.-]\d)?", "granite"),
    (r"gemma-?4", "gemma-4"),
    (r"gpt-?oss", "harmony"),
    (r"kimi-k2(?:[.-]\d)?", "kimi-k2"),
    (r"minimax-m2(?:[.-]\d)?", "minimax-m2"),
    (r"seed-oss", "seed-oss"),
    (r"nemotron-nano-(?:2|\d+b-v2)", "nemotron-nano-2"),
    (r"lfm-?2(?:[.-]5)?", "lfm2"),
    (r"exaone-deep", "exaone-deep"),
)
# Model families whose prompts can turn reasoning on or off although their markers don't show the setting.
_THINK_AT_WILL = ("qwen3", "glm-4.5")


def form_of(name: str | Markers) -> tuple[AnswerForm, Begins, tuple[str, ...]]:
    """Return the response format of a model.

    Args:
        name: The name of a format, model family, model or model repository; the path of a model file; or markers.

    Returns:
        The format, the kind of content at the start of a response, and the markers that end a response.

    Raises:
        TemplateError: The name matches no known format, family or model.
    """
    if isinstance(name, Markers):
        return _of_family(name)
    plain = name.strip().lower()
    if plain in FORMS and plain not in FAMILIES:
        return FORMS[plain], FORMS[plain].begins, FORMS[plain].stop
    model = bare(name)
    try:
        return _of_family(Markers.for_model(name))
    except TemplateError as error:
        if written := _written_by(model):
            return FORMS[written], FORMS[written].begins, FORMS[written].stop
        raise TemplateError(
            f"no response format is known for {name!r}{did_you_mean(model, (*FORMS, *FAMILIES))}; expected a format "
            f"({', '.join(FORMS)}) or a family from `lazyprompt list families`"
        ) from error


_THOUGHTS = tuple(sorted({form.thought[0] for form in FORMS.values() if form.thought}))

# Pairs of a string that occurs in chat templates and the response format that it identifies; the first match applies.
_SIGNS = (
    ("<|channel|>", "harmony"),
    ("<seed:tool_call>", "seed-oss"),
    ("<minimax:tool_call>", "minimax-m2"),
    ("<function=", "qwen-xml"),
    ("<arg_key>", "glm-4.5"),
    ("[gMASK]<sop>", "glm-4"),
    ("<TOOLCALL>", "nemotron-nano-2"),
    ("<｜tool▁call▁begin｜>", "deepseek"),
    ("<|tool_call_begin|>", "kimi-k2"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_list_start|>", "lfm2"),
    ("<|tool_call>", "gemma-4"),
    ("<|START_ACTION|>", "command-r7b"),
    ("directly_answer", "command-r"),
    ("directly-answer", "command-r"),
    ("<|action_start|>", "internlm"),
    ("<|start_of_role|>", "granite"),
    ("<|/tool_call|>", "phi-4-mini"),
    ("<|/tool|>", "phi-4-mini"),
    ("functools", "phi-4-mini"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama"),
    ("<|python_start|>", "llama"),
    ("Environment: ipython", "llama"),
    ("<thought>", "exaone-deep"),
    ("<tool_call>", "hermes"),
)


def form_in(template: str, otherwise: str = "hermes") -> str:
    """Return the name of the response format that a chat template uses, based on its markers.

    Args:
        template: The source text of the chat template.
        otherwise: The name to return if the template contains no known markers.
    """
    return next((form for sign, form in _SIGNS if sign in template), otherwise)


def opens_thought(prompt: str) -> bool:
    """Return True if a prompt ends with an open reasoning section, so that the response starts inside it."""
    return prompt.rstrip().endswith(_THOUGHTS)


def _written_by(model: str) -> str:
    """Return the format name for a family or model, or an empty string if no pattern matches."""
    return next((form for pattern, form in _patterns() if pattern.match(model)), "")


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(f"{PUBLISHER}(?:{pattern})(?![a-z0-9])"), form) for pattern, form in _WRITERS)


@lru_cache(maxsize=128)
def _of_family(markers: Markers) -> tuple[AnswerForm, Begins, tuple[str, ...]]:
    form = FORMS[_written_by(markers.family) or "hermes"]
    usual = Markers.for_model(markers.family) if markers.family in FAMILIES else Markers()
    if markers.call_pattern != usual.call_pattern and (own := _own_calls(markers)) is not None:
        form = replace(form, calls=(own,), bare=("json",) if own is _JSON_LINE else ())
    elif not (markers.tool_start or markers.tool_form.call or _TOOL_CALL in form.calls):
        form = replace(form, calls=(*form.calls, _TOOL_CALL))  # lazyprompt's default format for calls in the history
    # Exclude <s>, which is also an HTML tag, and markers around tool results, which are plain tags in some families.
    turns = markers.evolve(bos="", soe="", eoe="").turn_sequences - {"<s>", *form.drop}
    ends = sorted(text for text in turns if not text[0].isalnum() and not text.startswith(form.stop))
    return form, _begins(markers, form), (*form.stop, *ends)


def _own_calls(markers: Markers) -> Calls | None:
    """Return the syntax of tool calls in custom markers, or None for a syntax that the parser can't read.

    The parser reads calls in JSON and calls that consist of a name and JSON arguments. The separator between a name and
    its arguments must not contain quotes or braces.
    """
    start, *rest = split_pattern(markers.call_pattern)
    if rest[::2] != ["name", "arguments"] or markers.tool_form.argument:
        return None
    separator, end = (text.strip() for text in rest[1::2])
    marker, *json_start = (text.strip() for text in JSON_CALL.split(start, maxsplit=1))
    if json_start:
        return Calls(marker, end.lstrip("}] \n"), ("json", "loose")) if marker else _JSON_LINE
    if not marker or re.search(r'["{}]', separator):
        return None
    return Calls(marker, end, separator=separator, head=rf"{_NAME}{re.escape(separator)}\s*")


def _begins(markers: Markers, form: AnswerForm) -> Begins:
    """Return the kind of content at the start of a response, based on the end of the family's generation prompt."""
    prompt = markers.soa if markers.generation is None else markers.generation
    opened, closed = (prompt.rfind(marker) for marker in form.thought or THINK)
    if opened == closed:
        return "either" if markers.family in _THINK_AT_WILL else "answer"
    return "thought" if opened > closed else "answer"
