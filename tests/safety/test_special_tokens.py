"""The control tokens of each model family besides its turn markers: in a value, each is made harmless."""

from __future__ import annotations

import pytest

from lazyprompt import ChatTemplate, neutralize

# The tokens, by the families that have them.
TOKENS = {
    "qwen3-coder qwen3.5 qwen3.6": "<function=, </function>, <parameter=, </parameter>",
    "mistral-v1 mistral-nemo mistral-v7-tekken": (
        "[TOOL_CALLS], [ARGS], [CALL_ID], [TOOL_RESULTS], [/TOOL_RESULTS], [TOOL_CONTENT], [AVAILABLE_TOOLS], "
        "[/AVAILABLE_TOOLS], [SYSTEM_PROMPT], [/SYSTEM_PROMPT], [INST], [/INST], [THINK], [/THINK], "
        "[MODEL_SETTINGS], [/MODEL_SETTINGS], <s>, </s>, <unk>, <pad>, [IMG], [IMG_BREAK], [IMG_END], [PREFIX], "
        "[MIDDLE], [SUFFIX], [AUDIO], [BEGIN_AUDIO], [TRANSCRIBE], [STREAMING_PAD], [STREAMING_WORD], "
        "[NEXT_AUDIO_TEXT], [REPEAT_AUDIO_TEXT]"
    ),
    "gemma gemma-3 gemma-4": (
        "<bos>, <eos>, <pad>, <unk>, <mask>, <start_of_turn>, <end_of_turn>, <start_of_image>, <end_of_image>, "
        "<image_soft_token>, <start_of_audio>, <end_of_audio>, <audio_soft_token>, <|image>, <image|>, <|audio>, "
        "<audio|>, <2mass>"
    ),
    "gemma-4": (
        '<|turn>, <turn|>, <|channel>, <channel|>, <|"|>, <|think|>, <|tool>, <tool|>, <|tool_call>, <tool_call|>, '
        "<|tool_response>, <tool_response|>"
    ),
    "glm-4 glm-4.5": "<arg_key>, </arg_key>, <arg_value>, </arg_value>",
    "chatglm3 glm-4.7": "[gMASK], [sMASK], [MASK], <sop>, <eop>, <unk>",
    "nemotron-nano-2": (
        "<TOOLCALL>, </TOOLCALL>, <AVAILABLE_TOOLS>, </AVAILABLE_TOOLS>, <TOOL_RESPONSE>, </TOOL_RESPONSE>, <s>, "
        "</s>, <unk>, [INST], [/INST], [TOOL_CALLS], [AVAILABLE_TOOLS], [/AVAILABLE_TOOLS]"
    ),
    "seed-oss": (
        "<function=, </function>, <parameter=, </parameter>, <seed:bos>, <seed:eos>, <seed:think>, </seed:think>, "
        "<seed:tool_call>, </seed:tool_call>, <seed:cot_budget_reflect>, </seed:cot_budget_reflect>, <seed:pad>"
    ),
    "minimax-m2": (
        "<minimax:tool_call>, </minimax:tool_call>, ]~!b[, ]~b], [e~[, <invoke name=, </invoke>, <parameter name=, "
        "</parameter>, ]!p~[, ]!d~[, ]<]vision pad[>[, ]<]minimax[>[, <function_call>, <code_interpreter>, "
        "]<]speech[>[, ]<]start of speech[>[, ]<]end of speech[>[, ]<]image[>[, ]<]start of image[>[, "
        "]<]end of image[>[, ]<]video[>[, ]<]start of video[>[, ]<]end of video[>[, <jupyter_error>, <add_file>, "
        "<delete_file>, <rename_file>, <edit_file>, <commit_message>, <empty_source_file>, <repo_struct>, "
        "<code_context>, <file_content>, <source_files>, <pr_start>, <review_comment>, <filepath>"
    ),
    "exaone-3.5 exaone-4": (
        "[|system|], [|user|], [|assistant|], [|tool|], [|endofturn|], <thought>, </thought>, [BOS], [EOS], [PAD], "
        "[UNK]"
    ),
    "deepseek-v3": "<pad>, ｜DSML｜, <dsml:, </dsml:, <｜/table>｜",
    "command-r": "<PAD>, <UNK>, <CLS>, <SEP>, <MASK_TOKEN>, <BOS_TOKEN>, <EOS_TOKEN>, <EOP_TOKEN>",
    "kimi-k2": "[BOS], [EOS], [PAD], [UNK], [EOT]",
    "llama-2": "<PRE>, <MID>, <SUF>, <EOT>, <FILL_ME>",
    "internlm2": (
        "[UNUSED_TOKEN_140], [UNUSED_TOKEN_141], [UNUSED_TOKEN_142], [UNUSED_TOKEN_143], [UNUSED_TOKEN_144], "
        "[UNUSED_TOKEN_145], [UNUSED_TOKEN_146]"
    ),
    "llama-2 internlm2 yi mistral-v3 nemotron-nano-2 vicuna zephyr hermes-2 baichuan2 phi-3": "<s>, </s>, <unk>",
    "granite-3 smollm2 minimax-m2 yi": (
        "<fim_prefix>, <fim_middle>, <fim_suffix>, <fim_pad>, <filename>, <gh_stars>, <reponame>, <issue_start>, "
        "<issue_comment>, <issue_closed>, <jupyter_start>, <jupyter_text>, <jupyter_code>, <jupyter_output>, "
        "<jupyter_script>, <empty_output>, <repo_name>, <file_sep>, <commit_before>, <commit_msg>, <commit_after>"
    ),
}


@pytest.mark.parametrize("families", TOKENS)
def test_each_token_of_a_family_is_made_harmless_in_a_value(families: str) -> None:
    for family in families.split():
        kept = [token for token in TOKENS[families].split(", ") if neutralize(token, family) == token]
        assert kept == [], family


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
