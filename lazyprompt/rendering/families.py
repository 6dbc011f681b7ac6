"""The markers of each model family, with all the spacing of the family's own chat template.

A family uses the default tool format if its template renders no tools, or if markers can't express its own tool format.
The default tool format lists the tools as JSON under a heading, and writes tool calls and results in Hermes' format.
The ``note`` of a family's :class:`ToolForm` states why the family uses the default tool format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from lazyprompt.rendering import family_tools
from lazyprompt.rendering.family_names import bare, known
from lazyprompt.safety.special_tokens import tokens_of_calls, tokens_of_tokenizer

MarkerFields: TypeAlias = Mapping[str, Any]

__all__ = ["FAMILIES", "bare", "known", "tokens_of_calls", "tokens_of_tokenizer"]


def _with(family: MarkerFields, **more: object) -> MarkerFields:
    return {**family, **more}


def _turns(form: str, roles: tuple[str, str, str] = ("system", "user", "assistant"), **more: object) -> MarkerFields:
    """Return the markers of a family that writes all turns in the same format.

    Args:
        form: The pattern for a turn, with ``{role}`` and ``{text}``.
        roles: The family's names for the roles system, user and assistant.
        more: Other marker fields, which override the fields derived from ``form``.
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
_QWEN = _with(_QWEN_RESULTS, **family_tools.QWEN)
_THINKS = "<|im_start|>assistant\n<think>\n"
_DOES_NOT_THINK = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
_QWEN_3_5 = _with(
    _QWEN_RESULTS, **family_tools.QWEN_3_5, trim=("system", "user", "assistant", "tool"), generation=_THINKS
)

_LLAMA_3 = _turns(
    "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
    bos="<|begin_of_text|>",
    stop=("<|eot_id|>",),
    trim=("system", "user", "assistant"),
)
# The templates of Llama 3.1 and 3.3 always write the date 26 Jul 2024.
# The template of Llama 3.2 writes the date 26 Jul 2024 only if the engine does not pass ``strftime_now``.
_LLAMA_3_1 = _with(
    _LLAMA_3,
    preamble="Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
    **family_tools.LLAMA,
    stop=("<|eot_id|>", "<|eom_id|>"),
)

# Gemma has no system role, so the system text precedes the first user text, as in Gemma 3's template.
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
_GEMMA_4 = _turns(
    "<|turn>{role}\n{text}<turn|>\n",
    ("system", "user", "model"),
    bos="<bos>",
    stop=("<turn|>",),
    trim=("system", "user", "assistant"),
    tool_form=family_tools.GEMMA_4,
)

_PHI_3 = _turns("<|{role}|>\n{text}<|end|>\n", stop=("<|end|>",))

_DEEPSEEK = {
    "bos": "<｜begin▁of▁sentence｜>",
    "soh": "<｜User｜>",
    "soa": "<｜Assistant｜>",
    "eoa": "<｜end▁of▁sentence｜>",
}
# The default system text is empty, because DeepSeek R1's model card advises against system prompts.
_DEEPSEEK_R1 = _with(_DEEPSEEK, **family_tools.DEEPSEEK_V3, generation="<｜Assistant｜><think>\n", system="")

_GLM_4 = _turns(
    "<|{role}|>\n{text}",
    bos="[gMASK]<sop>",
    generation="<|assistant|>",
    soe="<|observation|>\n",
    stop=("<|user|>", "<|observation|>"),
    tool_form=family_tools.GLM_4,
)
_GLM_4_5 = _with(
    _GLM_4,
    # The template replaces the reasoning in earlier turns with empty reasoning tags.
    soa="<|assistant|>\n<think></think>\n",
    soe="<|observation|>\n<tool_response>\n",
    eoe="\n</tool_response>",
    result_join="\n</tool_response>\n<tool_response>\n",
    trim=("assistant",),
    **family_tools.GLM_4_5,
)

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

_KIMI_K2 = _turns(
    "<|im_{role}|>{role}<|im_middle|>{text}<|im_end|>",
    stop=("<|im_end|>",),
    system="You are Kimi, an AI assistant created by Moonshot AI.",
    **family_tools.KIMI_K2,
)

_GRANITE = _turns("<|start_of_role|>{role}<|end_of_role|>{text}<|end_of_text|>\n")
_GRANITE_4 = _with(_GRANITE, **family_tools.GRANITE_4)

_LFM2 = _with(_CHATML, bos="<|startoftext|>", **family_tools.LFM2)

_EXAONE = _turns(
    "[|{role}|]{text}[|endofturn|]\n",
    eoh="\n",
    empty_system=True,
    stop=("[|endofturn|]",),
)

# The tests compare each family with the published chat templates listed in docs/reference/families.md.
FAMILIES: Final[Mapping[str, MarkerFields]] = {
    "chatml": _CHATML,  # copied from the template of OpenHermes 2.5
    "qwen1.5": _with(_CHATML, system="You are a helpful assistant"),
    "qwen2": _with(_CHATML, system="You are a helpful assistant."),
    "qwen2.5": _with(_QWEN, system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen2.5-math": _with(_QWEN, system="Please reason step by step, and put your final answer within \\boxed{}."),
    "qwen2.5-vl": _with(_CHATML, system="You are a helpful assistant."),
    "qwq": _with(_QWEN, system="", generation=_THINKS),  # the template also drops line breaks before earlier responses
    "qwen3": _QWEN,
    "qwen3-nothink": _with(_QWEN, generation=_DOES_NOT_THINK),  # enable_thinking=False
    "qwen3-instruct-2507": _QWEN,
    "qwen3-thinking-2507": _with(_QWEN, generation=_THINKS),
    "qwen3-coder": _with(_QWEN_RESULTS, **family_tools.QWEN_3_CODER),
    "qwen3.5": _QWEN_3_5,
    "qwen3.5-nothink": _with(_QWEN_3_5, generation=_DOES_NOT_THINK),
    "qwen3.6": _with(_QWEN_3_5, **family_tools.QWEN_3_6),
    # Llama 2's template adds system text before stripping the turn, so leading white space in the user text remains.
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
    "llama-4": _turns(
        "<|header_start|>{role}<|header_end|>\n\n{text}<|eot|>",
        bos="<|begin_of_text|>",
        stop=("<|eot|>", "<|eom|>"),
        trim=("system",),
        **family_tools.LLAMA_4,
    ),
    "hermes-2": _with(_CHATML, bos="<s>"),
    "hermes-3": _with(
        _CHATML,
        bos="<|begin_of_text|>",
        system="You are a helpful assistant.",
        tool_form=family_tools.TOOL_USE,
    ),
    "tulu-3": _turns("<|{role}|>\n{text}\n", eoa="<|end_of_text|>\n"),
    # Vicuna's format is defined in FastChat.
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
    # Mistral's family names contain the tokenizer versions that the mistral-common package assigns to models.
    # The default system text of v7-tekken templates is omitted, because the text usually contains the current date.
    "mistral-v1": _with(_MISTRAL, soh=" [INST] ", eoh=" [/INST]", system_place="first_user"),
    "mistral-v3": _with(_MISTRAL, **family_tools.MISTRAL_V3, trim=("assistant",)),
    "mistral-nemo": _with(_MISTRAL, **family_tools.MISTRAL_NEMO, soh="[INST]", soa=""),
    "mistral-v7": _with(_MISTRAL, sos="[SYSTEM_PROMPT] ", eos="[/SYSTEM_PROMPT]", system_place="turn"),
    "mistral-v7-tekken": _with(
        _MISTRAL,
        sos="[SYSTEM_PROMPT]",
        eos="[/SYSTEM_PROMPT]",
        soh="[INST]",
        soa="",
        system_place="turn",
        tool_form=family_tools.MISTRAL_V7_TEKKEN,
    ),
    "zephyr": _turns("<|{role}|>\n{text}</s>\n"),
    "gemma": _GEMMA,
    "gemma-2": _GEMMA,
    "gemma-3": _GEMMA,
    "gemma-4": _GEMMA_4,
    "gemma-4-31b": _with(_GEMMA_4, generation="<|turn>model\n<|channel>thought\n<channel|>"),  # thinking is off
    "phi-3": _PHI_3,
    "phi-3.5": _PHI_3,
    "phi-4": _turns("<|im_start|>{role}<|im_sep|>{text}<|im_end|>", stop=("<|im_end|>",)),
    "phi-4-mini": _turns("<|{role}|>{text}<|end|>", **family_tools.PHI_4_MINI, stop=("<|end|>",)),
    "deepseek-v2": _with(_DEEPSEEK, eos="\n\n", soh="User: ", eoh="\n\n", soa="Assistant: ", generation="Assistant:"),
    "deepseek-v2-0628": _with(_DEEPSEEK, eos="\n\n"),
    "deepseek-v3": _with(_DEEPSEEK, **family_tools.DEEPSEEK_V3),
    "deepseek-v3.1": _with(
        _DEEPSEEK, **family_tools.DEEPSEEK_V3_1, soa="<｜Assistant｜></think>"
    ),  # thinking is off by default
    "deepseek-r1": _with(_DEEPSEEK_R1, result_join="<｜tool▁output▁end｜><｜tool▁output▁begin｜>"),
    "deepseek-r1-distill": _DEEPSEEK_R1,
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
        **family_tools.GLM_4_7,
    ),
    "baichuan2": {
        "soh": "<reserved_106>",
        "soa": "<reserved_107>",
        "stop": ("<reserved_106>",),
    },
    "yi": _CHATML,
    "yi-1.5": _with(_CHATML, sos="", eos=""),  # the template writes the system text without markers
    "kimi-k2": _KIMI_K2,
    # The template replaces the reasoning in earlier turns with empty reasoning tags.
    "kimi-k2-thinking": _with(
        _KIMI_K2,
        soa="<|im_assistant|>assistant<|im_middle|><think></think>",
        generation="<|im_assistant|>assistant<|im_middle|>",
    ),
    "seed-oss": _turns(
        "<seed:bos>{role}\n{text}<seed:eos>",
        soe="<seed:bos>tool\n",
        eoe="<seed:eos>",
        trim=("assistant",),
        **family_tools.SEED_OSS,
    ),
    "minimax-m2": _turns(
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
        **family_tools.MINIMAX_M2,
    ),
    "command-r": _turns(
        "<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>{text}<|END_OF_TURN_TOKEN|>",
        ("SYSTEM", "USER", "CHATBOT"),
        bos="<BOS_TOKEN>",
        stop=("<|END_OF_TURN_TOKEN|>",),
        trim=("user", "assistant"),
        tool_form=family_tools.TOOL_USE,
    ),
    # The default system text of Granite's templates is omitted, because the text contains the current date.
    "granite-3": _with(_GRANITE, tool_form=family_tools.GRANITE_3),
    "granite-4": _with(
        _GRANITE_4, system="You are a helpful assistant. Please ensure responses are professional, accurate, and safe."
    ),
    "granite-4.1": _GRANITE_4,
    "smollm2": _with(_CHATML, system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "lfm2": _LFM2,
    "lfm2.5": _with(_LFM2, **family_tools.LFM2_5),
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
        **family_tools.NEMOTRON_NANO_2,
    ),
    "olmo-2": _turns("<|{role}|>\n{text}\n", bos="<|endoftext|>", eoa="<|endoftext|>\n"),
    "exaone-3.5": _EXAONE,
    "exaone-deep": _with(_EXAONE, generation="[|assistant|]<thought>\n"),
    "exaone-4": _turns(  # thinking is off by default
        "[|{role}|]\n{text}[|endofturn|]\n",
        soa="[|assistant|]\n<think>\n\n</think>\n\n",
        stop=("[|endofturn|]",),
        **family_tools.EXAONE_4,
    ),
}
