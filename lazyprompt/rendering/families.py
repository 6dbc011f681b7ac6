"""The model families: for each the markers, with all the spacing of the model's own chat template.

What a family's markers cannot say, its table leaves to the general form: tools are then described under a header of
their own, and calls and results have the form of Hermes. A comment says so where the model has a form of its own; a
chat template itself says all (``ChatTemplate``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from lazyprompt.rendering.family_names import bare, known
from lazyprompt.safety.special_tokens import tokens_of_calls, tokens_of_tokenizer

# The fields of Markers, by name.
MarkerFields: TypeAlias = Mapping[str, Any]

__all__ = ["FAMILIES", "bare", "known", "tokens_of_calls", "tokens_of_tokenizer"]


def _with(family: MarkerFields, **more: object) -> MarkerFields:
    return {**family, **more}


def _turns(form: str, roles: tuple[str, str, str] = ("system", "user", "assistant"), **more: object) -> MarkerFields:
    """A family whose turns all have one form.

    Args:
        form: What a turn looks like, with ``{role}`` and ``{text}`` in it.
        roles: What it calls who sets the rules, who asks and who answers.
        more: Its other markers, and those that break the form.

    Returns:
        The family.
    """
    before, after = form.split("{text}")
    sos, soh, soa = (before.replace("{role}", role) for role in roles)
    return {"sos": sos, "eos": after, "soh": soh, "eoh": after, "soa": soa, "eoa": after, **more}


_CHATML = _turns("<|im_start|>{role}\n{text}<|im_end|>\n", stop=("<|im_end|>",))

_QWEN_RESULTS = _with(
    _CHATML,
    soe="<|im_start|>user\n<tool_response>\n",
    eoe="\n</tool_response><|im_end|>\n",
    result_join="\n</tool_response>\n<tool_response>\n",
)
# Qwen's calls, which others write as well.
_CALLS = {
    "tool_start": '<tool_call>\n{"name": "',
    "tool_args": '", "arguments": ',
    "tool_end": "}\n</tool_call>",
    "tool_join": "\n",
}
_QWEN = _with(
    _QWEN_RESULTS,
    **_CALLS,
    tools=(
        "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
)
_THINKS = "<|im_start|>assistant\n<think>\n"
_DOES_NOT_THINK = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
# Qwen3.5 writes calls as XML, and describes tools before the system text.
_QWEN_3_5 = _with(_QWEN_RESULTS, trim=("system", "user", "assistant", "tool"), generation=_THINKS)

_LLAMA_3 = _turns(
    "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
    bos="<|begin_of_text|>",
    stop=("<|eot_id|>",),
    trim=("system", "user", "assistant"),
)
# The date is the one that the templates themselves fall back on: 3.1 and 3.3 always, 3.2 where its engine has no clock.
# Tools are described in the first user turn, and results are quoted as JSON, which no marker says.
_LLAMA_3_1 = _with(
    _LLAMA_3,
    preamble="Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
    soe="<|start_header_id|>ipython<|end_header_id|>\n\n",
    eoe="<|eot_id|>",
    tool_start='{"name": "',
    tool_args='", "parameters": ',
    tool_end="}",
    stop=("<|eot_id|>", "<|eom_id|>"),
)

# Gemma has no system role. What a developer sets goes before the first thing the user says, as Gemma 3 does it.
_GEMMA = _turns(
    "<start_of_turn>{role}\n{text}<end_of_turn>\n",
    ("", "user", "model"),
    bos="<bos>",
    sos="",
    eos="\n\n",
    stop=("<end_of_turn>",),
    system="",
    system_place="first_user",
    trim=("user", "assistant"),
)
# Calls have a form of their own (Gemma's, with quotes that are tokens), and so have results.
_GEMMA_4 = _turns(
    "<|turn>{role}\n{text}<turn|>\n",
    ("system", "user", "model"),
    bos="<bos>",
    stop=("<turn|>",),
    trim=("system", "user", "assistant"),
)

_PHI_3 = _turns("<|{role}|>\n{text}<|end|>\n", stop=("<|end|>",))

# Each round of calls and of results has markers around the whole of it, and no turn of the assistant after it.
_DEEPSEEK = {
    "bos": "<｜begin▁of▁sentence｜>",
    "soh": "<｜User｜>",
    "soa": "<｜Assistant｜>",
    "eoa": "<｜end▁of▁sentence｜>",
}
# The model card of R1 advises against any system text.
_DEEPSEEK_R1 = _with(_DEEPSEEK, generation="<｜Assistant｜><think>\n", system="")

# Tools are described in the template's own words, in Chinese, in the system turn.
_GLM_4 = _turns(
    "<|{role}|>\n{text}",
    bos="[gMASK]<sop>",
    generation="<|assistant|>",
    soe="<|observation|>\n",
    stop=("<|user|>", "<|observation|>"),
)
# Calls are XML, and tools stand in a turn before the system text.
_GLM_4_5 = _with(
    _GLM_4,
    # What was thought is dropped from all turns of the past, the empty tags stay.
    soa="<|assistant|>\n<think></think>\n",
    soe="<|observation|>\n<tool_response>\n",
    eoe="\n</tool_response>",
    result_join="\n</tool_response>\n<tool_response>\n",
    trim=("assistant",),
)

# All of Mistral's tools are out of reach: calls carry ids, and tools stand before the last user turn or behind the
# system turn.
_MISTRAL = {
    "bos": "<s>",
    "eos": "\n\n",
    "soh": "[INST] ",
    "eoh": "[/INST]",
    "soa": " ",
    "eoa": "</s>",
    "generation": "",
    "system_place": "last_user",
}

# Tools are declared in a turn before the system text; calls carry ids.
_KIMI_K2 = _turns(
    "<|im_{role}|>{role}<|im_middle|>{text}<|im_end|>",
    stop=("<|im_end|>",),
    system="You are Kimi, an AI assistant created by Moonshot AI.",
)

_GRANITE = _turns("<|start_of_role|>{role}<|end_of_role|>{text}<|end_of_text|>\n")
_GRANITE_4 = _with(
    _GRANITE,
    **_CALLS,
    tools=(
        "\n\nYou are a helpful assistant with access to the following tools. You may call one or more tools to assist "
        "with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
        "{tools}\n</tools>\n\nFor each tool call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>. If a tool does not exist in the provided list of tools, notify the user that you do not have "
        "the ability to fulfill the request."
    ),
    soe="<|start_of_role|>user<|end_of_role|>\n<tool_response>\n",
    eoe="\n</tool_response><|end_of_text|>\n",
    result_join="\n</tool_response>\n<tool_response>\n",
)

# Calls are written as Python calls in one list.
_LFM2 = _with(
    _CHATML,
    bos="<|startoftext|>",
    tools="\nList of tools: <|tool_list_start|>{tools}<|tool_list_end|>",
    soe="<|im_start|>tool\n<|tool_response_start|>",
    eoe="<|tool_response_end|><|im_end|>\n",
)

_EXAONE = _turns(
    "[|{role}|]{text}[|endofturn|]\n",
    eoh="\n",
    empty_system=True,
    stop=("[|endofturn|]",),
)

# Which real template proves which family is in the tests, and in docs/reference/families.md.
FAMILIES: Final[Mapping[str, MarkerFields]] = {
    "chatml": _CHATML,  # as OpenHermes 2.5 has it
    # Qwen
    "qwen1.5": _with(_CHATML, system="You are a helpful assistant"),
    "qwen2": _with(_CHATML, system="You are a helpful assistant."),
    "qwen2.5": _with(_QWEN, system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen2.5-math": _with(_QWEN, system="Please reason step by step, and put your final answer within \\boxed{}."),
    "qwen2.5-vl": _with(_CHATML, system="You are a helpful assistant."),
    "qwq": _with(_QWEN, system="", generation=_THINKS),  # line breaks before an answer of the past are dropped
    "qwen3": _QWEN,
    "qwen3-nothink": _with(_QWEN, generation=_DOES_NOT_THINK),  # enable_thinking=False
    "qwen3-instruct-2507": _QWEN,
    "qwen3-thinking-2507": _with(_QWEN, generation=_THINKS),
    # Describes tools and writes calls as XML.
    "qwen3-coder": _with(_QWEN_RESULTS, eoe="\n</tool_response>\n<|im_end|>\n"),
    "qwen3.5": _QWEN_3_5,
    "qwen3.5-nothink": _with(_QWEN_3_5, generation=_DOES_NOT_THINK),
    "qwen3.6": _QWEN_3_5,
    # Meta, and what others made of Llama
    # The template strips the first turn with the system text in it, so that space before the user's text stays there.
    "llama-2": _turns(
        "<s>[INST] {text} [/INST]",
        sos="<<SYS>>\n",
        eos="\n<</SYS>>\n\n",
        soa=" ",
        eoa=" </s>",
        generation="",
        system_place="first_user",
        trim=("user", "assistant"),
    ),
    "llama-3": _LLAMA_3,
    "llama-3.1": _LLAMA_3_1,
    "llama-3.1-nemotron": _with(_LLAMA_3_1, preamble="", empty_system=True),
    "llama-3.2": _LLAMA_3_1,
    "llama-3.2-vision": _with(_LLAMA_3_1, trim=("system",)),
    "llama-3.3": _LLAMA_3_1,
    # Tools are described as those of Llama 3.1 are; the text before a call stands in tags.
    "llama-4": _turns(
        "<|header_start|>{role}<|header_end|>\n\n{text}<|eot|>",
        bos="<|begin_of_text|>",
        stop=("<|eot|>", "<|eom|>"),
        trim=("system",),
    ),
    "hermes-2": _with(_CHATML, bos="<s>"),
    "hermes-3": _with(_CHATML, bos="<|begin_of_text|>", system="You are a helpful assistant."),
    "tulu-3": _turns("<|{role}|>\n{text}\n", eoa="<|end_of_text|>\n"),
    # FastChat is where Vicuna's format is defined.
    "vicuna": {
        "eos": " ",
        "soh": "USER: ",
        "eoh": " ",
        "soa": "ASSISTANT: ",
        "eoa": "</s>",
        "generation": "ASSISTANT:",
        "system": "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions.",
    },
    # Mistral, by the versions of its tokenizers: mistral-common says which model has which. The templates of v7-tekken
    # bring system texts, most with the date of the day in them, so there is none here.
    "mistral-v1": _with(_MISTRAL, soh=" [INST] ", eoh=" [/INST]", system_place="first_user"),
    "mistral-v3": _with(_MISTRAL, trim=("assistant",)),
    "mistral-nemo": _with(_MISTRAL, soh="[INST]", soa=""),  # v3-tekken
    "mistral-v7": _with(_MISTRAL, sos="[SYSTEM_PROMPT] ", eos="[/SYSTEM_PROMPT]", system_place="turn"),
    "mistral-v7-tekken": _with(
        _MISTRAL, sos="[SYSTEM_PROMPT]", eos="[/SYSTEM_PROMPT]", soh="[INST]", soa="", system_place="turn"
    ),
    "zephyr": _turns("<|{role}|>\n{text}</s>\n"),
    # Google and Microsoft
    "gemma": _GEMMA,
    "gemma-2": _GEMMA,
    "gemma-3": _GEMMA,
    "gemma-4": _GEMMA_4,
    "gemma-4-31b": _with(_GEMMA_4, generation="<|turn>model\n<|channel>thought\n<channel|>"),  # not thinking
    "phi-3": _PHI_3,
    "phi-3.5": _PHI_3,
    "phi-4": _turns("<|im_start|>{role}<|im_sep|>{text}<|im_end|>", stop=("<|im_end|>",)),
    "phi-4-mini": _turns("<|{role}|>{text}<|end|>", tools="<|tool|>{tools}<|/tool|>", stop=("<|end|>",)),
    # DeepSeek
    "deepseek-v2": _with(_DEEPSEEK, eos="\n\n", soh="User: ", eoh="\n\n", soa="Assistant: ", generation="Assistant:"),
    "deepseek-v2-0628": _with(_DEEPSEEK, eos="\n\n"),
    "deepseek-v3": _DEEPSEEK,
    "deepseek-v3.1": _with(_DEEPSEEK, soa="<｜Assistant｜></think>"),  # not thinking, which is what it does untold
    "deepseek-r1": _DEEPSEEK_R1,
    "deepseek-r1-distill": _DEEPSEEK_R1,
    # InternLM, Zhipu, Baichuan, 01.AI, Moonshot, ByteDance, MiniMax
    "internlm2": _with(_CHATML, bos="<s>"),
    "internlm3": _with(_CHATML, bos="<s>"),
    "chatglm3": _turns(
        "<|{role}|>\n {text}",
        bos="[gMASK]sop",
        generation="<|assistant|>",
        soe="<|observation|>\n ",
        stop=("<|user|>", "<|observation|>"),
    ),
    "glm-4": _GLM_4,
    "glm-4.5": _GLM_4_5,
    "glm-4.7": _with(
        _GLM_4_5,
        sos="<|system|>",
        soh="<|user|>",
        soa="<|assistant|></think>",
        generation="<|assistant|><think>",
        soe="<|observation|><tool_response>",
        eoe="</tool_response>",
        result_join="</tool_response><tool_response>",
    ),
    "baichuan2": {
        "soh": "<reserved_106>",
        "soa": "<reserved_107>",
        "stop": ("<reserved_106>",),
    },
    "yi": _CHATML,
    "yi-1.5": _with(_CHATML, sos="", eos=""),  # the template writes the system text bare
    "kimi-k2": _KIMI_K2,
    # What was thought is dropped from all turns of the past, the empty tags stay.
    "kimi-k2-thinking": _with(
        _KIMI_K2,
        soa="<|im_assistant|>assistant<|im_middle|><think></think>",
        generation="<|im_assistant|>assistant<|im_middle|>",
    ),
    # Tools are described as Python functions, and calls are XML.
    "seed-oss": _turns(
        "<seed:bos>{role}\n{text}<seed:eos>", soe="<seed:bos>tool\n", eoe="<seed:eos>", trim=("assistant",)
    ),
    "minimax-m2": _turns(  # calls are XML
        "]~b]{role}\n{text}[e~[\n",
        ("system", "user", "ai"),
        bos="]~!b[",
        generation="]~b]ai\n<think>\n",
        soe="]~b]tool\n<response>",
        eoe="</response>[e~[\n",
        result_join="</response>\n<response>",
        system="You are a helpful assistant.",
        controls=("]~b]",),
        stop=("[e~[",),
    ),
    # Cohere, IBM, Hugging Face, Liquid, Nvidia, Ai2, LG
    "command-r": _turns(
        "<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>{text}<|END_OF_TURN_TOKEN|>",
        ("SYSTEM", "USER", "CHATBOT"),
        bos="<BOS_TOKEN>",
        stop=("<|END_OF_TURN_TOKEN|>",),
        trim=("user", "assistant"),
    ),
    # The templates from 3.1 on bring a system text with the date of the day, so there is none here. Tools have a turn
    # of their own.
    "granite-3": _GRANITE,
    "granite-4": _with(
        _GRANITE_4, system="You are a helpful assistant. Please ensure responses are professional, accurate, and safe."
    ),
    "granite-4.1": _GRANITE_4,
    "smollm2": _with(_CHATML, system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "lfm2": _LFM2,
    "lfm2.5": _with(_LFM2, tools="\nList of tools: {tools}", soe="<|im_start|>tool\n", eoe="<|im_end|>\n"),
    # Calls and results are lists in tags.
    "nemotron-nano-2": _turns(
        "<SPECIAL_11>{role}\n{text}\n",
        ("System", "User", "Assistant"),
        sos="<SPECIAL_10>System\n",
        eos="\n\n",
        empty_system=True,
        eoa="\n<SPECIAL_12>\n",
        generation="<SPECIAL_11>Assistant\n<think>\n",
        stop=("<SPECIAL_12>",),
        trim=("system", "user", "assistant"),
    ),
    "olmo-2": _turns("<|{role}|>\n{text}\n", bos="<|endoftext|>", eoa="<|endoftext|>\n"),
    "exaone-3.5": _EXAONE,
    "exaone-deep": _with(_EXAONE, generation="[|assistant|]<thought>\n"),
    "exaone-4": _turns(  # not thinking, which is what it does untold
        "[|{role}|]\n{text}[|endofturn|]\n", soa="[|assistant|]\n<think>\n\n</think>\n\n", stop=("[|endofturn|]",)
    ),
}
