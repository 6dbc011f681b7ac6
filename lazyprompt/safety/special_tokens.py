"""Model families' control sequences other than turn markers, such as tool-call and reasoning tokens.

Prompts don't use these tokens, but values may contain them. The tool-call tokens come from the models' own chat
templates (see :mod:`lazyprompt.answers.forms`). All tokens except the tool-call tokens are special or added tokens of
the models' tokenizers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

_MISTRAL = (
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]"),
    *("[THINK]", "[/THINK]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"),
)
_GEMMA_4 = (
    *("<|turn>", "<turn|>", "<|channel>", "<channel|>", '<|"|>', "<|think|>", "<|tool>", "<tool|>"),
    *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
)
_GLM = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_NEMOTRON = (
    *("<TOOLCALL>", "</TOOLCALL>", "<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>", "<TOOL_RESPONSE>", "</TOOL_RESPONSE>"),
)
_XML = ("<function=", "</function>", "<parameter=", "</parameter>")
_SEED = (
    *_XML,
    *("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    *("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
)
_MINIMAX = (
    *("<minimax:tool_call>", "</minimax:tool_call>", "]~!b[", "]~b]", "[e~["),
    *("<invoke name=", "</invoke>", "<parameter name=", "</parameter>"),
)
_EXAONE = (*(f"[|{role}|]" for role in ("system", "user", "assistant", "tool", "endofturn")), "<thought>", "</thought>")

# Pairs of a family-name pattern and the family's tool-call tokens. The first matching pattern applies.
_OF_CALLS: Final = (
    (r"qwen3-coder|qwen3\.[5-9]|nemotron-3", _XML),
    (r"mistral", _MISTRAL),
    (r"gemma-4", _GEMMA_4),
    (r"glm-4", _GLM),
    (r"nemotron-nano", _NEMOTRON),
    (r"seed-oss", _SEED),
    (r"minimax", _MINIMAX),
    (r"exaone", _EXAONE),
)

# Code Llama's fill-in-the-middle tokens.
_CODE_LLAMA = ("<PRE>", "<MID>", "<SUF>", "<EOT>", "<FILL_ME>")
# The turn and tool-call tokens of the first InternLM 2 chat models.
_INTERNLM_2 = tuple(f"[UNUSED_TOKEN_{number}]" for number in range(140, 147))
# Llama 2's tokens for the beginning of text, the end of text and unknown text.
_LLAMA_2 = ("<s>", "</s>", "<unk>")
_GEMMA = (
    *("<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"),
    *("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_audio>", "<end_of_audio>"),
    *("<audio_soft_token>", "<|image>", "<image|>", "<|audio>", "<audio|>", "<2mass>"),
)
_STARCODER = (
    *("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<filename>", "<gh_stars>", "<reponame>"),
    *("<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>"),
    *("<jupyter_output>", "<jupyter_script>", "<empty_output>", "<repo_name>", "<file_sep>"),
    *("<commit_before>", "<commit_msg>", "<commit_after>"),
)
_COHERE = ("<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<EOS_TOKEN>", "<EOP_TOKEN>")
_CHATGLM = ("[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>")
_KIMI = ("[BOS]", "[EOS]", "[PAD]", "[UNK]", "[EOT]")
_TEKKEN = (
    *("<unk>", "<pad>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"),
    *("[AUDIO]", "[BEGIN_AUDIO]", "[TRANSCRIBE]", "[STREAMING_PAD]", "[STREAMING_WORD]"),
    *("[NEXT_AUDIO_TEXT]", "[REPEAT_AUDIO_TEXT]"),
)
_MINIMAX_TOKENIZER = (
    *("]!p~[", "]!d~[", "]<]vision pad[>[", "]<]minimax[>[", "<function_call>", "<code_interpreter>", *_STARCODER),
    *(f"]<]{piece}{medium}[>[" for medium in ("speech", "image", "video") for piece in ("", "start of ", "end of ")),
    *("<jupyter_error>", "<add_file>", "<delete_file>", "<rename_file>", "<edit_file>", "<commit_message>"),
    *("<empty_source_file>", "<repo_struct>", "<code_context>", "<file_content>", "<source_files>", "<pr_start>"),
    *("<review_comment>", "<filepath>"),
)

# DeepSeek Coder's padding token, and tokens of later DeepSeek models that are not written as ``<|name|>``.
_DEEPSEEK = ("<pad>", "\uff5cDSML\uff5c", "<dsml:", "</dsml:", "<\uff5c/table>\uff5c")

_OF_TOKENIZER: Final = (
    (r"deepseek", _DEEPSEEK),
    (r"gemma", _GEMMA),
    (r"granite|smollm", _STARCODER),
    (r"command", _COHERE),
    (r"chatglm|glm", (*_CHATGLM, "<unk>")),
    (r"kimi", _KIMI),
    (r"mistral", (*_LLAMA_2, *_TEKKEN)),
    (r"nemotron-nano", (*_LLAMA_2, "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")),
    (r"minimax", _MINIMAX_TOKENIZER),
    (r"seed-oss", ("<seed:pad>",)),
    (r"exaone", ("[BOS]", "[EOS]", "[PAD]", "[UNK]")),
    # Llama 2, and models with a similar tokenizer.
    (r"llama-2", (*_LLAMA_2, *_CODE_LLAMA)),
    (r"internlm", (*_LLAMA_2, *_INTERNLM_2)),
    (r"yi", (*_LLAMA_2, *_STARCODER)),
    (r"vicuna|zephyr|hermes-2|baichuan|phi-3", _LLAMA_2),
)

# Pairs of a token and the only family that uses it, to identify the family of a chat template.
_SIGNS: Final = (
    ("<start_of_turn>", "gemma"),
    ("<|turn>", "gemma-4"),
    ("<\uff5cUser\uff5c>", "deepseek"),
    ("<|EOT|>", "deepseek"),
    ("<|start_of_role|>", "granite"),
    ("<|START_OF_TURN_TOKEN|>", "command"),
    ("[gMASK]", "glm-4"),
    ("<|im_middle|>", "kimi"),
    ("[INST]", "mistral"),
    ("<SPECIAL_12>", "nemotron-nano"),
    ("]~b]", "minimax"),
    ("<seed:bos>", "seed-oss"),
    ("[|endofturn|]", "exaone"),
)


def tokens_of_calls(family: str) -> tuple[str, ...]:
    """Return a family's tokens for tool calls, tool results and reasoning."""
    return _first(_OF_CALLS, family)


def tokens_of_tokenizer(family: str) -> tuple[str, ...]:
    """Return the special and added tokens of a family's tokenizer that are not written as ``<|name|>``."""
    return _first(_OF_TOKENIZER, family)


def tokens_beside(sequences: Collection[str]) -> frozenset[str]:
    """Identify the families of a chat template by its special tokens, and return the families' control sequences.

    Args:
        sequences: The special tokens that the chat template contains.
    """
    families = (family for sign, family in _SIGNS if sign in sequences)
    return frozenset(token for family in families for token in (*tokens_of_calls(family), *tokens_of_tokenizer(family)))


def _first(table: tuple[tuple[str, tuple[str, ...]], ...], family: str) -> tuple[str, ...]:
    return next((tokens for pattern, tokens in table if re.match(pattern, family)), ())
