"""The control tokens of each model family besides its turn markers: in a value, each is made harmless."""

import pytest

from lazyprompt import ChatTemplate, neutralize
from lazyprompt.safety.special_tokens import tokens_of_calls, tokens_of_tokenizer

# A token of each table that a family has; what the tables hold is in `tests/golden/facts`.
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


@pytest.mark.parametrize("families", TOKENS)
def test_each_token_of_a_family_is_made_harmless_in_a_value(families: str) -> None:
    for family in families.split():
        known = (*tokens_of_calls(family), *tokens_of_tokenizer(family))
        assert {*TOKENS[families].split()} - {*known} == set(), family
        assert [token for token in known if neutralize(token, family) == token] == [], family


# Tokens by which a chat template shows its family, each with a token that it does not contain itself.
SIGNS = (
    "<start_of_turn> <2mass>, <|turn> <|tool_call>, <｜User｜> <dsml:, <|EOT|> <dsml:, <|start_of_role|> <fim_pad>, "
    "<|START_OF_TURN_TOKEN|> <EOP_TOKEN>, [gMASK] <arg_key>, <|im_middle|> [EOT], [INST] [ARGS], "
    "<SPECIAL_12> <TOOLCALL>, ]~b] </invoke>, <seed:bos> <seed:think>, [|endofturn|] <thought>"
)


@pytest.mark.parametrize(("sign", "token"), [pair.split() for pair in SIGNS.split(", ")])
def test_a_chat_template_has_all_tokens_of_the_family_that_it_shows(sign: str, token: str) -> None:
    text = "{% for m in messages %}" + sign + "{{ m.content }}{% endfor %}"
    assert neutralize(token, ChatTemplate.load(text)) != token
    assert neutralize(token, ChatTemplate.load(text.replace(sign, ">>"))) == token
