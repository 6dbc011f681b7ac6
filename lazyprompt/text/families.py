"""The model families: for each the markers, with all the spacing of the model's own chat template.

What a family's markers cannot say, its table leaves to the general form: tools are then described under a header of
their own, and calls and results have the form of Hermes. A comment says so where the model has a form of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.text.markers import Markers

# The general description of tools stands behind the system text, so it begins on a line of its own.
_FAMILY = Markers(exact=True, tools="\n\n" + Markers().tools.rstrip())

_CHATML = _FAMILY.evolve(
    sos="<|im_start|>system\n",
    eos="<|im_end|>\n",
    soh="<|im_start|>user\n",
    eoh="<|im_end|>\n",
    soa="<|im_start|>assistant\n",
    eoa="<|im_end|>\n",
    stop=("<|im_end|>",),
)

_QWEN_RESULTS = _CHATML.evolve(
    soe="<|im_start|>user\n<tool_response>\n",
    eoe="\n</tool_response><|im_end|>\n",
    result_join="\n</tool_response>\n<tool_response>\n",
)

_QWEN = _QWEN_RESULTS.evolve(
    tool_start='<tool_call>\n{"name": "',
    tool_args='", "arguments": ',
    tool_end="}\n</tool_call>",
    tools=(
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    tool_join="\n",
)
_THINKS = "<|im_start|>assistant\n<think>\n"
_DOES_NOT_THINK = "<|im_start|>assistant\n<think>\n\n</think>\n\n"

# Qwen3.5 writes calls as XML, and describes tools before the system text.
_QWEN_3_5 = _QWEN_RESULTS.evolve(trim=("system", "user", "assistant", "tool"), generation=_THINKS)

_LLAMA_3 = _FAMILY.evolve(
    bos="<|begin_of_text|>",
    sos="<|start_header_id|>system<|end_header_id|>\n\n",
    eos="<|eot_id|>",
    soh="<|start_header_id|>user<|end_header_id|>\n\n",
    eoh="<|eot_id|>",
    soa="<|start_header_id|>assistant<|end_header_id|>\n\n",
    eoa="<|eot_id|>",
    stop=("<|eot_id|>",),
    trim=("system", "user", "assistant"),
)

# The date is the one that the templates themselves fall back on: 3.1 and 3.3 always, 3.2 where its engine has no clock.
# Tools are described in the first user turn, and results are quoted as JSON, which no marker says.
_LLAMA_3_1 = _LLAMA_3.evolve(
    preamble="Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
    soe="<|start_header_id|>ipython<|end_header_id|>\n\n",
    eoe="<|eot_id|>",
    tool_start='{"name": "',
    tool_args='", "parameters": ',
    tool_end="}",
    stop=("<|eot_id|>", "<|eom_id|>"),
)

# Gemma has no system role. What a developer sets goes before the first thing the user says, as Gemma 3 does it.
_GEMMA = _FAMILY.evolve(
    bos="<bos>",
    eos="\n\n",
    soh="<start_of_turn>user\n",
    eoh="<end_of_turn>\n",
    soa="<start_of_turn>model\n",
    eoa="<end_of_turn>\n",
    stop=("<end_of_turn>",),
    system="",
    system_place="first_user",
    trim=("user", "assistant"),
)

# Calls have a form of their own (Gemma's, with quotes that are tokens), and so have results.
_GEMMA_4 = _FAMILY.evolve(
    bos="<bos>",
    sos="<|turn>system\n",
    eos="<turn|>\n",
    soh="<|turn>user\n",
    eoh="<turn|>\n",
    soa="<|turn>model\n",
    eoa="<turn|>\n",
    stop=("<turn|>",),
    trim=("system", "user", "assistant"),
)

_PHI_3 = _FAMILY.evolve(
    sos="<|system|>\n",
    eos="<|end|>\n",
    soh="<|user|>\n",
    eoh="<|end|>\n",
    soa="<|assistant|>\n",
    eoa="<|end|>\n",
    stop=("<|end|>",),
)

# Each round of calls and of results has markers around the whole of it, and no turn of the assistant after it.
_DEEPSEEK = _FAMILY.evolve(
    bos="<｜begin▁of▁sentence｜>", soh="<｜User｜>", soa="<｜Assistant｜>", eoa="<｜end▁of▁sentence｜>"
)
# The model card of R1 advises against any system text.
_DEEPSEEK_R1 = _DEEPSEEK.evolve(generation="<｜Assistant｜><think>\n", system="")

# Calls are XML, and tools stand in a turn before the system text.
_GLM_4_5 = _FAMILY.evolve(
    bos="[gMASK]<sop>",
    sos="<|system|>\n",
    soh="<|user|>\n",
    # What was thought is dropped from all turns of the past, the empty tags stay.
    soa="<|assistant|>\n<think></think>\n",
    generation="<|assistant|>",
    soe="<|observation|>\n<tool_response>\n",
    eoe="\n</tool_response>",
    result_join="\n</tool_response>\n<tool_response>\n",
    stop=("<|user|>", "<|observation|>"),
    trim=("assistant",),
)

_COMMAND_R = _FAMILY.evolve(
    bos="<BOS_TOKEN>",
    sos="<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",
    eos="<|END_OF_TURN_TOKEN|>",
    soh="<|START_OF_TURN_TOKEN|><|USER_TOKEN|>",
    eoh="<|END_OF_TURN_TOKEN|>",
    soa="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    eoa="<|END_OF_TURN_TOKEN|>",
    stop=("<|END_OF_TURN_TOKEN|>",),
    trim=("user", "assistant"),
)

# Calls are written as Python calls in one list.
_LFM2 = _CHATML.evolve(
    bos="<|startoftext|>",
    tools="\nList of tools: <|tool_list_start|>{tools}<|tool_list_end|>",
    soe="<|im_start|>tool\n<|tool_response_start|>",
    eoe="<|tool_response_end|><|im_end|>\n",
)

# All of Mistral's tools are out of reach: calls carry ids, and tools stand before the last user turn.
_MISTRAL = _FAMILY.evolve(
    bos="<s>", eos="\n\n", soh="[INST] ", eoh="[/INST]", soa=" ", eoa="</s>", generation="", system_place="last_user"
)

_GLM_4 = _FAMILY.evolve(
    bos="[gMASK]<sop>",
    sos="<|system|>\n",
    soh="<|user|>\n",
    soa="<|assistant|>\n",
    soe="<|observation|>\n",
    stop=("<|user|>", "<|observation|>"),
)

_TABLE: dict[str, Markers] = {
    # Proven against the models' own chat templates: tests/text/test_families.py says which.
    "qwen2.5": _QWEN.evolve(system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen2.5-vl": _CHATML.evolve(system="You are a helpful assistant."),
    "qwen3": _QWEN,
    "qwen3-nothink": _QWEN.evolve(generation=_DOES_NOT_THINK),  # enable_thinking=False
    "qwen3-instruct-2507": _QWEN,
    "qwen3.5": _QWEN_3_5,
    "qwen3.5-nothink": _QWEN_3_5.evolve(generation=_DOES_NOT_THINK),
    "qwen3.6": _QWEN_3_5,
    "llama-3": _LLAMA_3,
    "llama-3.1": _LLAMA_3_1,
    "llama-3.2": _LLAMA_3_1,
    "gemma": _GEMMA,
    "gemma-2": _GEMMA,
    "gemma-3": _GEMMA,
    "gemma-4": _GEMMA_4,
    "phi-3": _PHI_3,
    "phi-3.5": _PHI_3,
    "deepseek-r1": _DEEPSEEK_R1,
    "deepseek-r1-distill": _DEEPSEEK_R1,
    "glm-4.5": _GLM_4_5,
    "command-r": _COMMAND_R,
    "lfm2": _LFM2,
    "lfm2.5": _LFM2.evolve(tools="\nList of tools: {tools}", soe="<|im_start|>tool\n", eoe="<|im_end|>\n"),
    # From model cards and the templates published with the models; none of them is at hand for the tests.
    "chatml": _CHATML,
    "qwen2": _CHATML.evolve(system="You are a helpful assistant."),
    "qwen2.5-math": _QWEN.evolve(system="Please reason step by step, and put your final answer within \\boxed{}."),
    "qwen3-thinking-2507": _QWEN.evolve(generation=_THINKS),
    "qwq": _QWEN.evolve(system="", generation=_THINKS),
    "llama-3.3": _LLAMA_3_1,
    # The template strips the first turn with the system text in it, so that space before the user's text stays there.
    "llama-2": _FAMILY.evolve(
        sos="<<SYS>>\n",
        eos="\n<</SYS>>\n\n",
        soh="<s>[INST] ",
        eoh=" [/INST]",
        soa=" ",
        eoa=" </s>",
        generation="",
        system_place="first_user",
        trim=("user", "assistant"),
    ),
    # By the versions of Mistral's tokenizers: mistral-common says which model has which.
    "mistral-v1": _MISTRAL.evolve(soh=" [INST] ", eoh=" [/INST]", system_place="first_user"),
    "mistral-v3": _MISTRAL.evolve(trim=("assistant",)),
    "mistral-nemo": _MISTRAL.evolve(soh="[INST]", soa=""),  # v3-tekken
    "mistral-v7": _MISTRAL.evolve(sos="[SYSTEM_PROMPT] ", eos="[/SYSTEM_PROMPT]", system_place="turn"),
    # The template's own system text has the date of the day in it, so there is none here.
    "mistral-v7-tekken": _MISTRAL.evolve(
        sos="[SYSTEM_PROMPT]", eos="[/SYSTEM_PROMPT]", soh="[INST]", soa="", system_place="turn"
    ),
    "phi-4": _CHATML.evolve(
        sos="<|im_start|>system<|im_sep|>",
        eos="<|im_end|>",
        soh="<|im_start|>user<|im_sep|>",
        eoh="<|im_end|>",
        soa="<|im_start|>assistant<|im_sep|>",
        eoa="<|im_end|>",
    ),
    "phi-4-mini": _PHI_3.evolve(
        sos="<|system|>",
        eos="<|end|>",
        soh="<|user|>",
        eoh="<|end|>",
        soa="<|assistant|>",
        eoa="<|end|>",
        tools="<|tool|>{tools}<|/tool|>",
    ),
    "deepseek-v2": _DEEPSEEK.evolve(eos="\n\n", soh="User: ", eoh="\n\n", soa="Assistant: ", generation="Assistant:"),
    "deepseek-v3": _DEEPSEEK,
    "deepseek-v3.1": _DEEPSEEK.evolve(soa="<｜Assistant｜></think>"),  # not thinking, which is what it does untold
    "internlm2": _CHATML.evolve(bos="<s>"),
    "internlm3": _CHATML.evolve(bos="<s>"),
    "glm-4": _GLM_4,
    "chatglm3": _GLM_4.evolve(
        bos="[gMASK]sop",
        sos="<|system|>\n ",
        soh="<|user|>\n ",
        soa="<|assistant|>\n ",
        soe="<|observation|>\n ",
        generation="<|assistant|>",
    ),
    # From the model's own code, which has no template.
    "baichuan2": _FAMILY.evolve(soh="<reserved_106>", soa="<reserved_107>", stop=("<reserved_106>",)),
    "yi": _CHATML,
    "yi-1.5": _CHATML.evolve(sos="", eos=""),  # the template writes the system text bare
    # The templates from 3.1 on bring a system text with the date of the day, so there is none here.
    "granite-3": _FAMILY.evolve(
        sos="<|start_of_role|>system<|end_of_role|>",
        eos="<|end_of_text|>\n",
        soh="<|start_of_role|>user<|end_of_role|>",
        eoh="<|end_of_text|>\n",
        soa="<|start_of_role|>assistant<|end_of_role|>",
        eoa="<|end_of_text|>\n",
    ),
    "smollm2": _CHATML.evolve(system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    # FastChat is where Vicuna's format is defined.
    "vicuna": _FAMILY.evolve(
        eos=" ",
        soh="USER: ",
        eoh=" ",
        soa="ASSISTANT: ",
        eoa="</s>",
        generation="ASSISTANT:",
        system=(
            "A chat between a curious user and an artificial intelligence assistant. "
            "The assistant gives helpful, detailed, and polite answers to the user's questions."
        ),
    ),
    "zephyr": _FAMILY.evolve(
        sos="<|system|>\n", eos="</s>\n", soh="<|user|>\n", eoh="</s>\n", soa="<|assistant|>\n", eoa="</s>\n"
    ),
}

FAMILIES: dict[str, Markers] = {name: markers.evolve(family=name) for name, markers in _TABLE.items()}

# Which models are of which family; the first pattern that fits, so the special stand before the general. A pattern
# begins where the model's name begins: what is only named after a model ("OpenHermes-2.5-Mistral") need not speak as it
# does. No letter, digit or further version may follow, so "llama-3" is neither in "llama-3b" nor in "llama-3.1".
_NAMES = (
    (r"qwen-?2(?:[.-]5)?-?vl", "qwen2.5-vl"),
    (r"qwen-?2[.-]5-math", "qwen2.5-math"),
    (r"qwen-?2[.-]5(?!-omni)", "qwen2.5"),
    (r"qwen-?2(?!-audio)", "qwen2"),
    (r"qwen-?3[.-]5(?=-(?:0[.-]8|2)b)", "qwen3.5-nothink"),  # so are the small ones shipped
    (r"qwen-?3[.-]5", "qwen3.5"),
    (r"qwen-?3[.-]6", "qwen3.6"),
    (r"qwen-?3(?:-vl|-next)?(?=-.*thinking)", "qwen3-thinking-2507"),
    (r"qwen-?3(?:-vl|-next)?(?=-.*instruct)(?!-coder|-omni)", "qwen3-instruct-2507"),
    (r"qwen-?3(?=[-:]\d|\Z)", "qwen3"),
    (r"qwq(?!.*-preview)", "qwq"),
    (r"llama-?3[.-]1(?!.*nemotron)", "llama-3.1"),
    (r"llama-?3[.-]2(?!.*nemotron)", "llama-3.2"),
    (r"llama-?3[.-]3(?!.*nemotron)", "llama-3.3"),
    (r"llama-?3(?!.*nemotron)", "llama-3"),
    (r"llama-?2|codellama-(?:7|13|34)b", "llama-2"),
    (r"mistral-7b(?:-instruct)?-v0[.-][12]|mixtral-8x7b(?:-instruct)?(?:-v0[.-]1)?", "mistral-v1"),
    (r"mistral-7b(?:-instruct)?-v0[.-]3|mistral-large-instruct-2407|mistral-small-instruct-2409", "mistral-v3"),
    (r"mistral-nemo|ministral-8b-instruct-2410", "mistral-nemo"),
    (r"mistral-large-instruct-2411", "mistral-v7"),
    (r"mistral-small-(?:3[.-][12]-)?24b-instruct-25\d\d", "mistral-v7-tekken"),
    (r"gemma-?4", "gemma-4"),
    (r"gemma-?3n?", "gemma-3"),
    (r"gemma-?2", "gemma-2"),
    (r"(?:code)?gemma(?:-1[.-]1)?(?=[-:][27]b|\Z)", "gemma"),
    (r"phi-?3[.-]5(?!-vision)", "phi-3.5"),
    (r"phi-?3(?!-vision|-small)", "phi-3"),
    (r"phi-?4-mini(?!-.*reasoning)", "phi-4-mini"),
    (r"phi-?4(?!-mini|-reasoning|-multimodal)", "phi-4"),
    (r"deepseek-r1-distill", "deepseek-r1-distill"),
    (r"deepseek-v3|deepseek-r1-0528", "deepseek-v3"),  # this R1 opens its thoughts by itself
    (r"deepseek-r1(?!-zero)", "deepseek-r1"),
    (r"deepseek-v3[.-]1", "deepseek-v3.1"),
    (r"deepseek-(?:coder-)?v2(?:-lite)?|deepseek-llm", "deepseek-v2"),
    (r"internlm-?3", "internlm3"),
    (r"internlm-?2(?:[.-]5)?", "internlm2"),
    (r"glm-?4[.-][56]", "glm-4.5"),
    (r"(?:chat)?glm-?4(?!-voice)", "glm-4"),
    (r"chatglm-?3", "chatglm3"),
    (r"baichuan-?2", "baichuan2"),
    (r"yi-1[.-]5", "yi-1.5"),
    (r"yi(?=[-:]\d+b)", "yi"),
    (r"(?:c4ai-)?command-r(?:-plus)?|aya-expanse", "command-r"),
    (r"granite-?3[.-][0-3]", "granite-3"),
    (r"smollm-?2", "smollm2"),
    (r"vicuna(?!.*-v0)", "vicuna"),
    (r"zephyr(?!.*gemma)", "zephyr"),
    (r"lfm-?2[.-]5(?!-vl|-audio)", "lfm2.5"),
    (r"lfm-?2(?!-vl|-audio)", "lfm2"),
    (r"openhermes-2(?:[.-]5)?", "chatml"),
)
# Files carry the publisher's name before the model's, as in Qwen_Qwen2.5-7B-Instruct-Q4_K_M.gguf.
_PUBLISHER = (
    r"(?:(?:01-ai|baichuan-inc|cohereforai|coherelabs|deepseek-ai|google|huggingfaceh4|huggingfacetb|ibm(?:-granite)?"
    r"|internlm|liquidai|lmsys|meta(?:-llama)?|microsoft|mistralai|qwen|teknium|thudm|zai-org)-)?"
)
_END = r"(?![a-z0-9]|\.\d)"


def family_of(name: str) -> Markers:
    """The markers of a model's family.

    Args:
        name: A family, or a model: its name, its repository, or the path of its file.

    Returns:
        The family's markers.

    Raises:
        TemplateError: No family is known for the name, or it is no text.
    """
    if not isinstance(cast("object", name), str):
        raise TemplateError(f"the name of a model is text, not a {type(name).__name__}")
    return _family_of(name)


@lru_cache(maxsize=256)
def _family_of(name: str) -> Markers:
    if (exact := FAMILIES.get(name.strip().lower())) is not None:
        return exact
    # The last part of a path, a repository or a folder of the hub's cache (models--Qwen--Qwen2.5-7B-Instruct).
    model = re.sub(r"[\s_]+", "-", re.split(r"[/\\]|--", name.strip().lower().rstrip("/\\"))[-1])
    for pattern, family in _patterns():
        if pattern.match(model):
            return FAMILIES[family]
    # A model's name is much longer than a family's, so its beginning alone is held against theirs.
    beginning = re.match(r"[a-z]*-?[\d.]*", model)
    near = did_you_mean(beginning[0] if beginning else model, FAMILIES) or did_you_mean(model, FAMILIES)
    raise TemplateError(
        f"no model family is known for {name!r}{near}; see all with `lazyprompt families`, name the family itself, or "
        "give markers of your own: with_markers(Markers(...))"
    )


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The patterns compiled: on first use, because that takes longer than importing all the rest."""
    return tuple((re.compile(f"{_PUBLISHER}(?:{pattern}){_END}"), family) for pattern, family in _NAMES)


@lru_cache(maxsize=1)
def known_sequences() -> frozenset[str]:
    """The control sequences of all families together, without those that are words.

    They are meant where nobody knows the model. A word as ``User:`` is structure to its own family alone, and to break
    it in every text that some other model reads would do harm for nothing.
    """
    return frozenset(text for known in FAMILIES.values() for text in known.control_sequences if not text[0].isalnum())
