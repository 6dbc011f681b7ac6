"""The special tokens of each model family besides its turn markers: in a value, each is neutralized."""

import pytest

from lazyprompt import ChatTemplate, neutralize
from lazyprompt.safety.special_tokens import tokens_of_calls, tokens_of_tokenizer

# One token of each table of a family; the whole tables are in `tests/golden/facts`.
TOKENS = {
    "qwen3-coder qwen3.5 qwen3.6": "</parameter>",
    "mistral-v1 mistral-nemo mistral-v7-tekken": "[/MODEL_SETTINGS] <s> [REPEAT_AUDIO_TEXT]",
    "gemma gemma-3 gemma-4": "<2mass>",
    "gemma-4": "<tool_response|>",
    "glm-4 glm-4.5": "</arg_value>",
    "chatglm3 glm-4.7": "[gMASK] <eop> <unk>",
    "nemotron-nano-2": "</TOOL_RESPONSE> <s> [/AVAILABLE_TOOLS]",
    "seed-oss": "</parameter> </seed:cot_budget_reflect> <seed:pad>",
    "minimax-m2": "</parameter> ]!d~[ <filepath>",
    "exaone-3.5 exaone-4": "[|endofturn|] </thought> [UNK]",
    "deepseek-v3": "<｜/table>｜",
    "command-r": "<EOP_TOKEN>",
    "kimi-k2": "[EOT]",
    "llama-2": "<FILL_ME>",
    "internlm2": "[UNUSED_TOKEN_146]",
    "llama-2 internlm2 yi mistral-v3 nemotron-nano-2 vicuna zephyr hermes-2 baichuan2 phi-3": "<s> </s> <unk>",
    "granite-3 smollm2 minimax-m2 yi": "<fim_prefix> <commit_after>",
}


@pytest.mark.parametrize(("family", "tokens"), [(each, TOKENS[row]) for row in TOKENS for each in row.split()])
def test_special_tokens_of_a_family_are_neutralized_in_a_value(family: str, tokens: str) -> None:
    known = (*tokens_of_calls(family), *tokens_of_tokenizer(family))
    assert {*tokens.split()} - {*known} == set()
    assert [token for token in known if neutralize(token, family) == token] == []


# Tokens that identify the family of a chat template, each with a token of the family that is not in the template.
FAMILY_TOKENS = (
    "<start_of_turn> <2mass>, <|turn> <|tool_call>, <｜User｜> <dsml:, <|EOT|> <dsml:, <|start_of_role|> <fim_pad>, "
    "<|START_OF_TURN_TOKEN|> <EOP_TOKEN>, [gMASK] <arg_key>, <|im_middle|> [EOT], [INST] [ARGS], "
    "<SPECIAL_12> <TOOLCALL>, ]~b] </invoke>, <seed:bos> <seed:think>, [|endofturn|] <thought>"
)


@pytest.mark.parametrize(("identifying", "token"), [pair.split() for pair in FAMILY_TOKENS.split(", ")])
def test_special_tokens_of_the_family_of_a_chat_template_are_neutralized(identifying: str, token: str) -> None:
    text = "{% for m in messages %}" + identifying + "{{ m.content }}{% endfor %}"
    assert neutralize(token, ChatTemplate.load(text)) != token
    assert neutralize(token, ChatTemplate.load(text.replace(identifying, ">>"))) == token
