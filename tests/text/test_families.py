from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_templates import real_template

from lazyprompt import ChatPrompter, Markers
from lazyprompt.errors import TemplateError
from lazyprompt.text.families import FAMILIES, family_of, known_sequences


class Real(NamedTuple):
    """A model's own template, and what it is rendered with."""

    family: str
    template: str
    bos: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012 - only read

    def render(self, messages: list[dict[str, Any]], **more: Any) -> str:
        given = {"messages": messages, "bos_token": self.bos, "add_generation_prompt": True, **self.options, **more}
        return real_template(self.template).render(**given)


_DEEPSEEK_BOS = "<｜begin▁of▁sentence｜>"
_NO_THINKING = {"enable_thinking": False}

WITHOUT_SYSTEM_ROLE = [Real("gemma", "gemma", "<bos>"), Real("gemma-2", "gemma", "<bos>")]
WITH_SYSTEM_ROLE = [
    Real("qwen2.5", "qwen2_5"),
    Real("qwen2.5-vl", "qwen2_5_vl"),
    Real("qwen3", "qwen3"),
    Real("qwen3-nothink", "qwen3", options=_NO_THINKING),
    Real("qwen3-instruct-2507", "qwen3_instruct_2507"),
    Real("qwen3-instruct-2507", "qwen3_vl"),
    Real("qwen3.5", "qwen3_5_think"),
    Real("qwen3.5-nothink", "qwen3_5_nothink"),
    Real("qwen3.6", "qwen3_6"),
    Real("llama-3", "llama3", "<|begin_of_text|>"),
    Real("llama-3.1", "llama3_1", "<|begin_of_text|>"),
    Real("llama-3.2", "llama3_2", "<|begin_of_text|>"),
    Real("gemma-3", "gemma3", "<bos>"),
    Real("gemma-4", "gemma4_v5", "<bos>"),
    Real("phi-3", "phi3"),
    Real("phi-3.5", "phi3_5"),
    # The template trl keeps as DeepSeek-V3's opens a thought, so it is that of R1.
    Real("deepseek-r1", "deepseekv3", _DEEPSEEK_BOS),
    Real("deepseek-r1-distill", "deepseek_r1_distill", _DEEPSEEK_BOS),
    Real("glm-4.5", "glm4moe"),
    Real("command-r", "cohere", "<BOS_TOKEN>"),
    Real("lfm2", "lfm2_v2", "<|startoftext|>"),
    Real("lfm2.5", "lfm2_2_5_v2", "<|startoftext|>"),
]
REAL = WITHOUT_SYSTEM_ROLE + WITH_SYSTEM_ROLE
WITH_DEFAULT_SYSTEM = [real for real in WITH_SYSTEM_ROLE if FAMILIES[real.family].system]
NO_SYSTEM = [real for real in REAL if real not in WITH_DEFAULT_SYSTEM]
WITH_TOOLS = [real for real in WITH_SYSTEM_ROLE if FAMILIES[real.family].tool_join is not None]
LFM2 = [real for real in WITH_SYSTEM_ROLE if real.family.startswith("lfm2")]


def each(reals: list[Real]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("real", reals, ids=lambda real: f"{real.family}={real.template}")


PAIRS = [["What is 1 + 1?", "2."], ["And 2 + 2?", "4, I think.\n\nYes."], ["你好，世界", "您好！"]]
SPACED_PAIRS = [["  What?\n", "\n That. \n\n"], ["\tAnd\n\nthen?  ", " \u3000Nothing \n"]]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f'Say the {name}, "天气" <now> & here',
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("weather", "time")
]


def flat_and_messages(prompter: ChatPrompter, *given: Any, model: str, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    flat = prompter.generate_prompt(*given, model=model, **more)
    form: Any = prompter.generate_prompt(*given, model=model, return_dict=True, **more)
    return flat, [_for_template(message) for message in form["messages"]]


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """A message as templates want it: arguments are a dict, content is a text."""
    message["content"] = message["content"] or ""
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


def call(name: str, city: str, id: str) -> dict[str, Any]:  # noqa: A002 - OpenAI's name
    arguments = json.dumps({"city": city}, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@each(WITH_SYSTEM_ROLE)
@pytest.mark.parametrize("history", [None, PAIRS, SPACED_PAIRS], ids=["plain", "multi-turn", "white space"])
@pytest.mark.parametrize("said", ["Why?", "  为什么？\n"])
def test_a_chat_with_a_system_text_is_what_the_models_template_makes_of_it(real: Real, history: Any, said: str) -> None:
    prompter = ChatPrompter("Answer in {language}.\n", system="\nYou are a poet. ")
    given = {"language": "中文", "input": said}
    flat, messages = flat_and_messages(prompter, given, history, model=real.family)
    assert [message["role"] for message in messages][:1] == ["system"]
    assert flat == real.render(messages)


@each(NO_SYSTEM)
@pytest.mark.parametrize("history", [None, PAIRS, SPACED_PAIRS], ids=["plain", "multi-turn", "white space"])
def test_a_chat_without_system_text_is_what_the_models_template_makes_of_it(real: Real, history: Any) -> None:
    flat, messages = flat_and_messages(ChatPrompter(system=""), " Why? ", history, model=real.family)
    assert messages[0]["role"] == "user"
    assert flat == real.render(messages)


@each(WITH_DEFAULT_SYSTEM)
def test_a_family_brings_the_system_text_of_its_template(real: Real) -> None:
    flat, messages = flat_and_messages(ChatPrompter(), "Why?", PAIRS, model=real.family)
    assert flat == real.render(messages) == real.render(messages[1:])


@each(REAL)
@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab \n\t\u3000。<|>{}[]/'\"\\"), min_size=1), min_size=3, max_size=7),
    words=st.text(st.sampled_from("ab \n{}<>"), min_size=1).filter(str.strip),
)
def test_no_text_makes_a_difference(real: Real, texts: list[str], words: str) -> None:
    *turns, said = texts[: len(texts) // 2 * 2 + 1] if len(texts) % 2 else texts[:-1]
    # GLM drops the line before an answer that is blank.
    history = [[turns[at], turns[at + 1] + "!"] for at in range(0, len(turns), 2)]
    system = "" if real in NO_SYSTEM and real in WITHOUT_SYSTEM_ROLE else words
    prompter = ChatPrompter(system=system).with_safety("off")
    flat, messages = flat_and_messages(prompter, said, history, model=real.family)
    assert flat == real.render(messages)


@each(WITHOUT_SYSTEM_ROLE)
@pytest.mark.parametrize("history", [None, PAIRS], ids=["plain", "multi-turn"])
def test_a_family_without_system_role_reads_the_system_text_in_the_first_thing_said(real: Real, history: Any) -> None:
    flat, messages = flat_and_messages(
        ChatPrompter("Be {a}."), {"a": "kind", "input": "Hi"}, history, model=real.family
    )
    messages[1]["content"] = f"{messages[0]['content']}\n\n{messages[1]['content']}"
    assert flat == real.render(messages[1:])


@each(WITH_TOOLS + LFM2)
def test_tools_are_described_as_in_the_models_template(real: Real) -> None:
    flat, messages = flat_and_messages(ChatPrompter(system="Be a clerk."), "Hi", PAIRS, TOOLS, model=real.family)
    assert flat == real.render(messages, tools=TOOLS)


@each([real for real in WITH_TOOLS + LFM2 if real in NO_SYSTEM])
def test_tools_without_system_text_are_described_as_in_the_models_template(real: Real) -> None:
    flat, messages = flat_and_messages(ChatPrompter(system=""), "Hi", PAIRS, TOOLS, model=real.family)
    assert flat == real.render(messages, tools=TOOLS)


@each(WITH_TOOLS)
@pytest.mark.parametrize("text", [None, "Let me see."], ids=["call alone", "text and call"])
@pytest.mark.parametrize("said", [None, "And tomorrow?"], ids=["the model's turn", "the user goes on"])
def test_calls_and_results_are_written_as_in_the_models_template(real: Real, text: str | None, said: Any) -> None:
    history = [
        {"role": "user", "content": "Weather and time in 北京?"},
        {"role": "assistant", "content": text, "tool_calls": [call("weather", "北京", "a"), call("time", '"x"', "b")]},
        {"role": "tool", "tool_call_id": "a", "content": '{"sky": "clear"}'},
        {"role": "tool", "tool_call_id": "b", "content": "noon\n"},
        {"role": "assistant", "content": "Clear, noon.", "tool_calls": [call("time", "Paris", "c")]},
        {"role": "tool", "tool_call_id": "c", "content": "6"},
    ]
    if said:
        history.append({"role": "assistant", "content": "Clear, noon; 6 in Paris."})
    flat, messages = flat_and_messages(ChatPrompter(system="Help."), said, history, TOOLS, model=real.family)
    assert flat == real.render(messages, tools=TOOLS)


@each(LFM2)
def test_lfm2_shows_a_result_as_its_template_does(real: Real) -> None:
    history = [{"role": "user", "content": "Time?"}, {"role": "tool", "tool_call_id": "a", "content": "noon"}]
    expected = real.render(history)
    # Its calls have a form of their own, so the call that the history needs is cut out of what is compared.
    history.insert(1, {"role": "assistant", "content": None, "tool_calls": [call("time", "x", "a")]})  # type: ignore[dict-item]
    flat = ChatPrompter(system="").generate_prompt(None, history, model=real.family)
    before, _, rest = flat.partition("<|im_start|>assistant\n")
    assert before + rest.partition("<|im_end|>\n")[2] == expected


@each([real for real in REAL if real.family in ("llama-3.1", "llama-3.2")])
def test_llama_writes_a_call_as_its_template_does(real: Real) -> None:
    history = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": None, "tool_calls": [call("time", "巴黎", "a")]},
    ]
    flat, messages = flat_and_messages(ChatPrompter(system="Help."), "Well?", history, model=real.family)
    assert flat == real.render(messages)


# What the cards, the published templates or the models' own code say, for the families whose template is not at hand:
# a system text, one pair, and a question. In the comments, where to look.
EXPECTED = {
    # Old ChatML, as OpenHermes-2.5's template has it.
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    "<|im_start|>user\nN<|im_end|>\n<|im_start|>assistant\n",
    "qwen3-thinking-2507": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    "A<|im_end|>\n<|im_start|>user\nN<|im_end|>\n<|im_start|>assistant\n<think>\n",
    # Meta's llama repository, and the template of Llama-2-7b-chat-hf.
    "llama-2": "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nQ [/INST] A </s><s>[INST] N [/INST]",
    # mistralai/cookbook, concept-deep-dive/tokenization.
    "mistral-v1": "<s> [INST] S\n\nQ [/INST] A</s> [INST] N [/INST]",
    "mistral-v3": "<s>[INST] Q[/INST] A</s>[INST] S\n\nN[/INST]",
    "mistral-nemo": "<s>[INST]Q[/INST]A</s>[INST]S\n\nN[/INST]",
    "mistral-v7": "<s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] Q[/INST] A</s>[INST] N[/INST]",
    "mistral-v7-tekken": "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]Q[/INST]A</s>[INST]N[/INST]",
    "phi-4": "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>Q<|im_end|>"
    "<|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>N<|im_end|><|im_start|>assistant<|im_sep|>",
    "phi-4-mini": "<|system|>S<|end|><|user|>Q<|end|><|assistant|>A<|end|><|user|>N<|end|><|assistant|>",
    "deepseek-v2": "<｜begin▁of▁sentence｜>S\n\nUser: Q\n\nAssistant: A<｜end▁of▁sentence｜>User: N\n\nAssistant:",
    "deepseek-v3": "<｜begin▁of▁sentence｜>S<｜User｜>Q<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>N<｜Assistant｜>",
    "deepseek-v3.1": "<｜begin▁of▁sentence｜>S<｜User｜>Q<｜Assistant｜></think>A<｜end▁of▁sentence｜>"
    "<｜User｜>N<｜Assistant｜></think>",
    "internlm2": "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    "A<|im_end|>\n<|im_start|>user\nN<|im_end|>\n<|im_start|>assistant\n",
    "glm-4": "[gMASK]<sop><|system|>\nS<|user|>\nQ<|assistant|>\nA<|user|>\nN<|assistant|>\n",
    "chatglm3": "[gMASK]sop<|system|>\n S<|user|>\n Q<|assistant|>\n A<|user|>\n N<|assistant|>",
    # generation_utils.py of Baichuan2-13B-Chat: the ids 195 and 196.
    "baichuan2": "S<reserved_106>Q<reserved_107>A<reserved_106>N<reserved_107>",
    "yi-1.5": "S<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    "<|im_start|>user\nN<|im_end|>\n<|im_start|>assistant\n",
    "granite-3": "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Q"
    "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
    "<|start_of_role|>user<|end_of_role|>N<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    # FastChat, docs/vicuna_weights_version.md.
    "vicuna": "S USER: Q ASSISTANT: A</s>USER: N ASSISTANT:",
    "zephyr": "<|system|>\nS</s>\n<|user|>\nQ</s>\n<|assistant|>\nA</s>\n<|user|>\nN</s>\n<|assistant|>\n",
}
# Those that are as another family, but for a system text of their own.
AS = {
    "qwen2": "chatml", "yi": "chatml", "smollm2": "chatml", "qwen2.5-math": "chatml", "qwq": "qwen3-thinking-2507",
    "internlm3": "internlm2",
}  # fmt: skip


@pytest.mark.parametrize("family", [*EXPECTED, *AS])
def test_a_chat_is_what_the_models_card_shows(family: str) -> None:
    prompt = ChatPrompter(system="S").generate_prompt("N", [["Q", "A"]], model=family)
    assert prompt == EXPECTED[AS.get(family, family)]


def test_every_family_is_compared_with_something() -> None:
    # Llama 3.3 has the template of 3.1.
    assert FAMILIES["llama-3.3"].evolve(family="llama-3.1") == FAMILIES["llama-3.1"]
    assert {*EXPECTED, *AS, "llama-3.3", *(real.family for real in REAL)} == set(FAMILIES)


@pytest.mark.parametrize(("family", "markers"), FAMILIES.items(), ids=FAMILIES)
def test_a_family_is_found_by_its_own_name(family: str, markers: Markers) -> None:
    assert markers.family == family
    assert markers.exact
    assert family_of(family) is family_of(f" {family.upper()} ") is markers


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("Qwen2.5-7B-Instruct-GGUF", "qwen2.5"),
        ("/models/qwen2.5-7b-instruct-q4_k_m.gguf", "qwen2.5"),
        (r"C:\models\Qwen_Qwen2.5-7B-Instruct-Q4_K_M.gguf", "qwen2.5"),
        ("~/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct/", "qwen2.5"),
        ("qwen2_5-14b-instruct", "qwen2.5"),
        ("qwen2.5:7b", "qwen2.5"),
        ("Qwen2.5-Coder-32B-Instruct", "qwen2.5"),
        ("Qwen2.5-Math-7B-Instruct", "qwen2.5-math"),
        ("Qwen2.5-VL-7B-Instruct", "qwen2.5-vl"),
        ("Qwen2-VL-7B-Instruct", "qwen2.5-vl"),
        ("Qwen2-7B-Instruct", "qwen2"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("qwen3:0.6b", "qwen3"),
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3-instruct-2507"),
        ("Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-thinking-2507"),
        ("Qwen3-VL-8B-Instruct", "qwen3-instruct-2507"),
        ("Qwen3.5-0.8B", "qwen3.5-nothink"),
        ("Qwen3.5-9B", "qwen3.5"),
        ("Qwen3.6-27B", "qwen3.6"),
        ("qwq-32b", "qwq"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2"),
        ("Meta-Llama-3-8B-Instruct", "llama-3"),
        ("llama3:8b", "llama-3"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "llama-3.1"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2"),
        ("Llama-3.3-70B-Instruct", "llama-3.3"),
        ("llama3.3", "llama-3.3"),
        ("mistral-7b-instruct-v0.2", "mistral-v1"),
        ("mistral-7b-instruct-v0.3", "mistral-v3"),
        ("mistralai_Mistral-7B-Instruct-v0.3-Q4_K_M.gguf", "mistral-v3"),
        ("mixtral-8x7b-instruct", "mistral-v1"),
        ("Mistral-Nemo-Instruct-2407", "mistral-nemo"),
        ("Mistral-Large-Instruct-2411", "mistral-v7"),
        ("Mistral-Small-3.1-24B-Instruct-2503", "mistral-v7-tekken"),
        ("google/gemma-2b-it", "gemma"),
        ("gemma-2-9b-it", "gemma-2"),
        ("google_gemma-3-27b-it-Q4_K_M.gguf", "gemma-3"),
        ("gemma-3n-E4B-it", "gemma-3"),
        ("gemma-4-E2B-it", "gemma-4"),
        ("Phi-3-mini-4k-instruct", "phi-3"),
        ("Phi-3.5-mini-instruct", "phi-3.5"),
        ("microsoft/phi-4", "phi-4"),
        ("Phi-4-mini-instruct", "phi-4-mini"),
        ("deepseek-r1-distill-qwen-7b", "deepseek-r1-distill"),
        ("DeepSeek-R1-Distill-Llama-70B", "deepseek-r1-distill"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("DeepSeek-R1-0528-Qwen3-8B", "deepseek-v3"),
        ("DeepSeek-V3-0324", "deepseek-v3"),
        ("DeepSeek-V3.1", "deepseek-v3.1"),
        ("DeepSeek-V2-Lite-Chat", "deepseek-v2"),
        ("internlm2_5-7b-chat", "internlm2"),
        ("internlm2-chat-7b", "internlm2"),
        ("internlm3-8b-instruct", "internlm3"),
        ("THUDM/glm-4-9b-chat", "glm-4"),
        ("GLM-4.5-Air", "glm-4.5"),
        ("chatglm3-6b", "chatglm3"),
        ("Baichuan2-13B-Chat", "baichuan2"),
        ("Yi-34B-Chat", "yi"),
        ("Yi-1.5-9B-Chat", "yi-1.5"),
        ("c4ai-command-r-plus", "command-r"),
        ("granite-3.1-8b-instruct", "granite-3"),
        ("SmolLM2-1.7B-Instruct", "smollm2"),
        ("vicuna-7b-v1.5", "vicuna"),
        ("zephyr-7b-beta", "zephyr"),
        ("LFM2-1.2B", "lfm2"),
        ("LFM2.5-230M", "lfm2.5"),
        ("OpenHermes-2.5-Mistral-7B", "chatml"),
    ],
)
def test_a_model_is_found_by_its_name_its_repository_or_its_file(name: str, family: str) -> None:
    assert family_of(name).family == family


@pytest.mark.parametrize(
    "name",
    [
        "qwen25-7b", "qwen2.7-7b", "qwen3.8-27b", "Qwen3-Coder-30B-A3B-Instruct", "Qwen3-Embedding-8B", "qwen",
        "llama-31", "llama-3b", "llama-3.4-8b", "llama-30b", "llama-4-scout", "Llama-3_3-Nemotron-Super-49B-v1",
        "glm-45", "glm-4v-9b", "glm-4.7", "internlm-chat-7b", "internlm25", "internlm4", "gemma-5-9b", "gemma-31b",
        "mistral", "mistral-7b-instruct", "phi-2", "phi-4-reasoning", "deepseek-v3.2", "deepseek-v30", "yi-2-9b",
        "command-r7b", "granite-4.0-h", "smollm3-3b", "my-qwen2.5-finetune", "Nous-Mixtral", "gpt-oss-20b", "",
    ],
)  # fmt: skip
def test_no_model_is_taken_for_one_of_another_family(name: str) -> None:
    with pytest.raises(TemplateError):
        family_of(name)


def test_an_unknown_model_is_told_what_is_near_and_how_to_go_on() -> None:
    with pytest.raises(TemplateError) as caught:
        family_of("Qwen/Qwen25-7B-Instruct")
    message = str(caught.value)
    for part in ("'Qwen/Qwen25-7B-Instruct'", "did you mean 'qwen2.5'", "lazyprompt families", "with_markers(Markers("):
        assert part in message
    with pytest.raises(TemplateError, match="did you mean 'internlm"):
        ChatPrompter().generate_prompt("Hi", model="internlm4-8b")


@pytest.mark.parametrize("name", [None, 3, ["qwen2.5"], b"qwen2.5"])
def test_the_name_of_a_model_is_text(name: Any) -> None:
    with pytest.raises(TemplateError, match=type(name).__name__):
        family_of(name)


@pytest.mark.parametrize(
    ("family", "turns", "others"),
    [
        ("llama-2", {"<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"}, set()),
        ("deepseek-r1", {_DEEPSEEK_BOS, "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"}, {"<think>"}),
        ("gemma-2", {"<bos>", "<start_of_turn>", "<end_of_turn>"}, set()),
        ("vicuna", {"USER:", "ASSISTANT:", "</s>"}, set()),
        ("baichuan2", {"<reserved_106>", "<reserved_107>"}, set()),
        (
            "qwen2.5",
            {"<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>"},
            {"<tool_call>", "</tool_call>", "<tools>", "</tools>"},
        ),
        ("phi-4-mini", {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}, {"<|tool|>", "<|/tool|>"}),
    ],
)
def test_the_control_sequences_of_a_family(family: str, turns: set[str], others: set[str]) -> None:
    assert FAMILIES[family].turn_sequences == turns
    assert FAMILIES[family].control_sequences == turns | others


@pytest.mark.parametrize("markers", FAMILIES.values(), ids=FAMILIES)
def test_an_answer_may_think_in_every_family(markers: Markers) -> None:
    assert not {"<think>", "</think>"} & markers.turn_sequences


@pytest.mark.parametrize("markers", FAMILIES.values(), ids=FAMILIES)
def test_no_word_of_prose_is_a_control_sequence(markers: Markers) -> None:
    words = {sequence for sequence in markers.control_sequences if sequence[0] not in "<["}
    assert words <= {"USER:", "ASSISTANT:", "User:", "Assistant:"}
    assert not {"<function-name>", "<args-json-object>"} & markers.control_sequences
    assert not any(" " in sequence or "\n" in sequence for sequence in markers.control_sequences)


def test_the_sequences_of_all_families_hold_no_words() -> None:
    assert {"[INST]", "<|im_end|>", "<｜User｜>", "<start_of_turn>", "<reserved_106>"} <= known_sequences()
    assert not {sequence for sequence in known_sequences() if sequence[0].isalnum()}
    assert "User: hi" in ChatPrompter().generate_prompt("User: hi")


@pytest.mark.parametrize("trim", [True, "user", ("user", "human")])
def test_trim_names_roles(trim: Any) -> None:
    with pytest.raises(TemplateError, match="trim"):
        Markers(trim=trim)
