"""The forms of models' answers, and the form of each model.

A comment names the source of each form: mostly the model's own chat template, which writes past calls as the model must
write new ones. Templates are named by their file in trl 1.16 (``chat_templates``) or by their model on the Hub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.rendering.families import FAMILIES
from lazyprompt.rendering.family_names import PUBLISHER, bare
from lazyprompt.rendering.markers import Markers

# The syntax between the markers of a call: JSON, JSON with Python's quotes, tags ...
Body: TypeAlias = Literal["json", "loose", "functions", "invokes", "keyed", "gemma", "python", "builtin"]
# Calls without a marker: JSON, a list of Python calls, or a name with JSON on the next line.
Bare: TypeAlias = Literal["json", "python", "line"]
# The beginning of an answer: in its text, in a thought that the prompt opened, or in either.
Begins: TypeAlias = Literal["answer", "thought", "either"]


@dataclass(frozen=True, slots=True)
class Calls:
    """Markers of calls in an answer.

    Args:
        start: The marker before one call, or before all calls.
        end: The marker behind them; empty if there is none.
        bodies: The syntaxes that the text between the markers may have, the likely one first.
        keep: The end of ``start`` that is a part of the body.
        separator: The marker between a name and its arguments, if they are not in one body.
        head: A pattern for the text before those arguments, with groups for the ``name`` and the ``id``. If the text
            does not contain the separator, the arguments must be an object.
        quote: A marker that opens and closes quotes in the body.
        known_tools: True if other text may have these markers, so that only calls of known tools count.
        plain: True if the markers are dropped from text that is no call.
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
    """The form of an answer.

    Args:
        calls: The markers of calls.
        thought: The markers around a thought.
        begins: The beginning of an answer.
        bare: The syntaxes of calls without a marker, which count only at the beginning.
        drop: Markers that are dropped.
        stop: Markers that end the answer: the end of a turn, or the beginning of another.
        silent: Names of calls that are dropped.
        channels: True for messages with headers, as in harmony; all other fields but ``stop`` are then ignored.
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

FORMS: dict[str, AnswerForm] = {
    # qwen2_5.jinja, qwen3.jinja; the model card of Hermes-2-Pro. lazyprompt writes it where a family has no form of its
    # own: Markers.call_pattern in rendering/markers.py.
    "hermes": AnswerForm((_TOOL_CALL,), THINK, "either", stop=_CHATML),
    # qwen3_5_think.jinja, nemotron_3_super.jinja. vLLM's qwen3coder_tool_parser.py knows that the outer tag gets lost.
    "qwen-xml": AnswerForm(
        (
            replace(_TOOL_CALL, bodies=("functions", "json", "loose")),
            Calls("<function=", "</tool_call>", ("functions",), keep="<function="),
        ),
        *(THINK, "either"),
        stop=_CHATML,
    ),
    # llama3_1.jinja (with the built-in tools behind <|python_tag|>), llama3_2.jinja; ";" between calls and lists of
    # Python calls: Meta's "Llama 3.2 model cards and prompt formats", vLLM's llama_tool_parser.py. Llama 4 marks its
    # lists ("Llama 4 model card & prompt format"); its template puts the text before calls between the same markers.
    # Behind text, lazyprompt writes calls on a line of their own.
    "llama": AnswerForm(
        (
            Calls("<|python_tag|>", bodies=("json", "builtin")),
            Calls("<|python_start|>", "<|python_end|>", ("json", "python"), plain=True),
            Calls("\n{", bodies=("json",), keep="{", known_tools=True),
        ),
        bare=("json", "python"),
        stop=_LLAMA,
    ),
    # The same documents; for other models whose prompt asks for such calls.
    "pythonic": AnswerForm(bare=("python",), stop=(*_LLAMA, *_CHATML)),
    # lfm2_v2.jinja, lfm2_2_5.jinja; the model card of LFM2-1.2B ("Tool use") also has JSON, if asked for.
    "lfm2": AnswerForm((Calls("<|tool_call_start|>", "<|tool_call_end|>", ("json", "python")),), THINK, stop=_CHATML),
    # mistral-common, tokens/tokenizers/instruct.py: a list up to V7, name and arguments from V11 on (with an id in V11
    # alone), [THINK] from V13 on. vLLM's mistral_tool_parser.py knows that [ARGS] gets lost.
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
    # deepseekv3.jinja (V3, R1: "function", then the name and JSON in a fence); the template of DeepSeek-V3.1 (the name,
    # then JSON).
    "deepseek": AnswerForm(
        (
            Calls(
                *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
                separator="<｜tool▁sep｜>",
                # Behind "function" come the name, and a fence with its language.
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
    # The template of THUDM/glm-4-9b-chat; ms-swift's glm4 agent template reads it so.
    "glm-4": AnswerForm(
        bare=("line",),
        drop=("<|assistant|>",),
        stop=("<|observation|>", "<|user|>", "<|system|>", "<|endoftext|>"),
    ),
    # glm4moe.jinja; GLM 4.6 and 4.7 write the same without line breaks (vLLM's glm4_moe_tool_parser.py).
    "glm-4.5": AnswerForm(
        (replace(_TOOL_CALL, bodies=("keyed",)),),
        *(THINK, "either"),
        stop=("<|observation|>", "<|user|>", "<|assistant|>", "<|system|>", "<|endoftext|>"),
    ),
    # InternLM's chat/chat_format.md; vLLM's internlm2_tool_parser.py.
    "internlm": AnswerForm(
        tuple(
            Calls(f"<|action_start|>{space}<|plugin|>", "<|action_end|>", ("json", "loose"))
            for space in ("", " ", "\n")
        ),
        stop=_CHATML,
    ),
    # Cohere's "Prompting Command R and R+", and the tool_use template of c4ai-command-r-v01: directly_answer is no call
    # but the wish to answer in text.
    "command-r": AnswerForm(
        tuple(Calls(f"Action:{space}```json", "```", ("json",)) for space in ("", " ", "\n")),
        stop=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),
        silent=("directly_answer", "directly-answer"),
    ),
    # The tool_use template of c4ai-command-r7b-12-2024, cohere2.jinja; Command A names its answer TEXT (vLLM's tests).
    "command-r7b": AnswerForm(
        (Calls("<|START_ACTION|>", "<|END_ACTION|>", ("json", "loose")),),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        drop=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        stop=("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),
        silent=("directly_answer", "directly-answer"),
    ),
    # The template of Phi-4-mini-instruct; "functools" is the word its model card's tool prompt asks for (vLLM's
    # phi4mini_tool_parser.py).
    "phi-4-mini": AnswerForm(
        (
            Calls("<|tool_call|>", "<|/tool_call|>", ("json", "loose")),
            Calls("functools[", bodies=("json",), keep="["),
        ),
        stop=("<|end|>", "<|user|>", "<|system|>", "<|assistant|>", "<|tool_response|>", "<|endoftext|>"),
    ),
    # vLLM's granite_tool_parser.py: a token in 3.0, plain text from 3.1 on, no end; 4.0 writes as Hermes does. The
    # tags of thoughts and <response> are those of granite-3.3-8b-instruct.
    "granite": AnswerForm(
        (Calls("<|tool_call|>", bodies=("json", "loose")), _TOOL_CALL),
        THINK,
        drop=("<response>", "</response>"),
        stop=("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
    ),
    # gemma4_v5.jinja.
    "gemma-4": AnswerForm(
        (Calls("<|tool_call>", "<tool_call|>", ("gemma",), quote='<|"|>'),),
        ("<|channel>thought", "<channel|>"),
        stop=("<turn|>", "<|turn>", "<|tool_response>", "<eos>"),
    ),
    # OpenAI's harmony, docs/format.md; gptoss.jinja, where a call's recipient stands before the channel.
    "harmony": AnswerForm(channels=True, stop=("<|return|>", "<|endoftext|>")),
    # The template of Kimi-K2-Thinking, and docs/tool_call_guidance.md of Kimi-K2: the id holds the name.
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
    # The template of MiniMax-M2, which always opens a thought.
    "minimax-m2": AnswerForm(
        (Calls("<minimax:tool_call>", "</minimax:tool_call>", ("invokes",)),), THINK, "thought", stop=("[e~[", "]~b]")
    ),
    # The template of Seed-OSS-36B-Instruct.
    "seed-oss": AnswerForm(
        (Calls("<seed:tool_call>", "</seed:tool_call>", ("functions",)),),
        ("<seed:think>", "</seed:think>"),
        stop=("<seed:eos>", "<seed:bos>"),
    ),
    # The template of NVIDIA-Nemotron-Nano-9B-v2, which opens a thought or an empty one.
    "nemotron-nano-2": AnswerForm(
        (Calls("<TOOLCALL>", "</TOOLCALL>", ("json", "loose")),),
        *(THINK, "either"),
        stop=("<SPECIAL_12>", "<SPECIAL_11>", "<SPECIAL_10>"),
    ),
    # The template of EXAONE-Deep-7.8B, which always opens a thought. EXAONE 4 writes as Hermes does.
    "exaone-deep": AnswerForm(
        (_TOOL_CALL,), ("<thought>", "</thought>"), "thought", stop=("[|endofturn|]", "[|user|]")
    ),
}

# The form of each family or model: the first pattern that matches the beginning of its name. All other families have
# the form of Hermes, in which lazyprompt writes their calls.
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
# Families whose prompt decides if the model thinks, although its markers don't show the decision.
_THINK_AT_WILL = ("qwen3", "glm-4.5")


def form_of(name: str) -> tuple[AnswerForm, Begins, tuple[str, ...]]:
    """Return the form in which a model answers.

    Args:
        name: A form, a family, or a model: its name, its repository, or the path of its file.

    Returns:
        The form, the beginning of an answer, and the markers that end it.

    Raises:
        TemplateError: The name is unknown.
    """
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
            f"no form of answers is known for {name!r}{did_you_mean(model, (*FORMS, *FAMILIES))}; known are the forms "
            f"{', '.join(FORMS)}, and the families that `lazyprompt list families` lists"
        ) from error


# The markers that open a thought, in any form.
_THOUGHTS = tuple({form.thought[0] for form in FORMS.values() if form.thought})

# Text in a chat template that identifies its form. Forms that share a marker follow those with more markers.
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
    """Return the form that a chat template writes, by its markers.

    Args:
        template: The template.
        otherwise: The result for a template without known markers.
    """
    return next((form for sign, form in _SIGNS if sign in template), otherwise)


def opens_thought(prompt: str) -> bool:
    """Return True if a prompt ends by opening a thought, so that the answer begins within it."""
    return prompt.rstrip().endswith(_THOUGHTS)


def _written_by(model: str) -> str:
    """Return the form of a family or a model; ``""`` if the name is in no pattern."""
    return next((form for pattern, form in _patterns() if pattern.match(model)), "")


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(f"{PUBLISHER}(?:{pattern})(?![a-z0-9])"), form) for pattern, form in _WRITERS)


@lru_cache(maxsize=128)
def _of_family(markers: Markers) -> tuple[AnswerForm, Begins, tuple[str, ...]]:
    form = FORMS[_written_by(markers.family) or "hermes"]
    if not (markers.tool_start or markers.tool_form.call or _TOOL_CALL in form.calls):
        form = replace(form, calls=(*form.calls, _TOOL_CALL))  # the calls that lazyprompt writes in the history
    # The markers of results are plain tags in some families, and <s> is a tag in HTML.
    turns = markers.evolve(bos="", soe="", eoe="").turn_sequences - {"<s>", *form.drop}
    ends = sorted(text for text in turns if not text[0].isalnum() and not text.startswith(form.stop))
    return form, _begins(markers, form), (*form.stop, *ends)


def _begins(markers: Markers, form: AnswerForm) -> Begins:
    """Return the state in which an answer begins, by the end of the family's prompt."""
    prompt = markers.soa if markers.generation is None else markers.generation
    opened, closed = (prompt.rfind(marker) for marker in form.thought or THINK)
    if opened == closed:
        return "either" if markers.family in _THINK_AT_WILL else "answer"
    return "thought" if opened > closed else "answer"
