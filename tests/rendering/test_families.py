import json
import warnings
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyprompt import ChatPrompter, Markers
from lazyprompt.answers.forms import form_of
from lazyprompt.errors import TemplateError, ToolFormWarning
from lazyprompt.rendering.family_names import NAMES
from lazyprompt.rendering.prompt_template import controls_of
from lazyprompt.safety.special_tokens import tokens_of_calls, tokens_of_tokenizer
from support import real_templates, recorded_renders

FAMILIES = {name: Markers.for_model(name) for name in Markers.families()}


class Real(NamedTuple):
    """A model's own template, and the variables that it is rendered with."""

    family: str  # the model family of the template
    package: str  # the package that contains the template
    template: str  # the name of the template in the package
    bos: str = ""  # the token at the start of a text
    eos: str = ""  # the token at the end of a response
    options: dict[str, Any] = {}  # noqa: RUF012 - only read; further variables of the template
    # Whether the family omits its default system text (because of a date in it), or formats that text differently.
    own_text: bool = False
    # White space it drops: "lines" before a response, or the "seam" between system text and first user message.
    drops: str = ""

    def given(self, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """The template's variables."""
        variables = {"bos_token": self.bos, "eos_token": self.eos, "add_generation_prompt": True, **self.options}
        return {**variables, "messages": messages, **more}

    def render(self, messages: list[dict[str, Any]]) -> str:
        """The output of the template, for slow tests because it may be downloaded."""
        return real_templates.render(self.package, self.template, self.given(messages))

    def recorded(self, messages: list[dict[str, Any]], **more: Any) -> str:
        """The recorded output of the template."""
        return recorded_renders.recorded_render(self.package, self.template, self.given(messages, **more))

    def stripped(self, user: str, history: list[list[str]] | None = None) -> tuple[str, list[list[str]] | None]:
        """User text and history without the white space that only this template drops."""
        if self.drops == "lines" and history:
            history = [[question, answer.lstrip("\n")] for question, answer in history]
        if self.drops == "seam" and history:
            history = [[history[0][0].lstrip() or "!", history[0][1]], *history[1:]]
        return (user.lstrip() or "!") if self.drops == "seam" and not history else user, history


OLLAMA, AXOLOTL, LLAMA_CPP = "@huggingface/ollama-utils", "axolotl", "xllamacpp"
BEGIN, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
OUTPUT_ENDS = ("s▁begin", "▁begin", "▁end", "s▁end")
LLAMA_BOS = "<|begin_of_text|>"
NO_THINKING = {"enable_thinking": False}
TODAY = {"strftime_now": "the day's date"}

WITHOUT_SYSTEM_ROLE = [Real("gemma", "trl", "gemma", "<bos>"), Real("gemma-2", OLLAMA, "gemma2:2b", "<bos>")]
WITH_SYSTEM_ROLE = [
    Real("chatml", OLLAMA, "llava:34b"),  # the same as OpenHermes 2.5 has
    Real("qwen1.5", OLLAMA, "qwen:0.5b"),
    Real("qwen2", OLLAMA, "qwen2:0.5b"),
    Real("qwen2.5", "trl", "qwen2_5"),
    Real("qwen2.5", OLLAMA, "qwen2.5-coder:1.5b"),
    Real("qwen2.5-vl", "trl", "qwen2_5_vl"),
    Real("qwq", OLLAMA, "qwq:32b", drops="lines"),
    Real("qwen3", "trl", "qwen3"),
    Real("qwen3-nothink", "trl", "qwen3", options=NO_THINKING),
    Real("qwen3-instruct-2507", "trl", "qwen3_instruct_2507"),
    Real("qwen3-instruct-2507", "trl", "qwen3_vl"),
    Real("qwen3-thinking-2507", OLLAMA, "qwen3-next:80b"),  # the same as Qwen3-Thinking-2507 has
    Real("qwen3-coder", OLLAMA, "qwen3-coder:30b"),
    Real("qwen3.5", "trl", "qwen3_5_think"),
    Real("qwen3.5-nothink", "trl", "qwen3_5_nothink"),
    Real("qwen3.6", "trl", "qwen3_6"),
    Real("llama-2", OLLAMA, "llama2:7b", "<s>", "</s>", drops="seam"),
    Real("llama-3", "trl", "llama3", LLAMA_BOS),
    Real("llama-3.1", "trl", "llama3_1", LLAMA_BOS),
    Real("llama-3.1-nemotron", OLLAMA, "nemotron:70b", LLAMA_BOS),
    Real("llama-3.2", "trl", "llama3_2", LLAMA_BOS),
    Real("llama-3.2-vision", OLLAMA, "llama3.2-vision:latest", LLAMA_BOS),
    Real("llama-3.3", LLAMA_CPP, "meta-llama-Llama-3.3-70B-Instruct", LLAMA_BOS),
    Real("llama-4", OLLAMA, "llama4:latest", LLAMA_BOS),
    Real("hermes-2", OLLAMA, "nous-hermes2-mixtral:8x7b", "<s>"),
    Real("hermes-3", OLLAMA, "hermes3:70b", LLAMA_BOS),
    Real("tulu-3", OLLAMA, "tulu3:70b", eos="<|end_of_text|>"),
    Real("mistral-v1", OLLAMA, "mixtral:8x7b", "<s>", "</s>"),
    Real("mistral-v3", AXOLOTL, "mistral_v2v3", "<s>", "</s>"),
    Real("mistral-nemo", LLAMA_CPP, "mistralai-Mistral-Nemo-Instruct-2407", "<s>", "</s>"),
    Real("mistral-v7", OLLAMA, "mistral-large:123b", "<s>", "</s>"),
    Real("mistral-v7-tekken", OLLAMA, "mistral-small:24b", "<s>", "</s>"),
    Real("mistral-v7-tekken", LLAMA_CPP, "Mistral-Small-3.2-24B-Instruct-2506", "<s>", "</s>", TODAY, own_text=True),
    Real("mistral-v7-tekken", OLLAMA, "devstral:latest", "<s>", "</s>", TODAY, own_text=True),
    Real("mistral-v7-tekken", LLAMA_CPP, "mistralai-Ministral-3-14B-Reasoning-2512", "<s>", "</s>", own_text=True),
    Real("zephyr", OLLAMA, "tinyllama:1.1b", "<s>", "</s>"),  # the same as Zephyr 7B beta has
    Real("gemma-3", "trl", "gemma3", "<bos>"),
    Real("gemma-4", "trl", "gemma4_v5", "<bos>"),
    Real("gemma-4-31b", LLAMA_CPP, "google-gemma-4-31B-it", "<bos>"),
    Real("phi-3", "trl", "phi3"),
    Real("phi-3.5", "trl", "phi3_5"),
    Real("phi-4", OLLAMA, "phi4:14b"),
    Real("phi-4-mini", OLLAMA, "phi4-mini:3.8b"),
    Real("deepseek-v2", OLLAMA, "deepseek-coder-v2:16b", BEGIN, END),
    Real("deepseek-v2-0628", AXOLOTL, "deepseek_v2", BEGIN, END),
    Real("deepseek-v3", OLLAMA, "deepseek-v3:671b", BEGIN, END),
    Real("deepseek-v3.1", OLLAMA, "deepseek-v3.1:latest", BEGIN, END),
    # The template that trl has for DeepSeek-V3 opens the reasoning, so it is that of R1.
    Real("deepseek-r1", "trl", "deepseekv3", BEGIN),
    Real("deepseek-r1-distill", "trl", "deepseek_r1_distill", BEGIN),
    Real("internlm2", OLLAMA, "internlm2:1.8b", "<s>"),
    Real("internlm3", OLLAMA, "internlm2:1.8b", "<s>"),  # the same as InternLM2 has
    Real("chatglm3", "@lenml/tokenizer-chatglm3", "tokenizer_config"),
    Real("glm-4", OLLAMA, "glm4:9b"),
    Real("glm-4.5", "trl", "glm4moe"),
    Real("glm-4.5", LLAMA_CPP, "GLM-4.6"),
    Real("glm-4.7", LLAMA_CPP, "GLM-4.7-Flash"),
    Real("yi", OLLAMA, "yi-coder:1.5b"),
    Real("yi", OLLAMA, "dolphin-mixtral:8x7b"),  # the same as Yi-Chat has
    Real("yi-1.5", OLLAMA, "yi:6b"),
    Real("kimi-k2", LLAMA_CPP, "Kimi-K2-Instruct", own_text=True),
    Real("kimi-k2-thinking", LLAMA_CPP, "Kimi-K2-Thinking"),
    Real("seed-oss", LLAMA_CPP, "ByteDance-Seed-OSS"),
    Real("minimax-m2", LLAMA_CPP, "MiniMax-M2"),
    Real("command-r", "trl", "cohere", "<BOS_TOKEN>"),
    Real("command-r", OLLAMA, "command-r:35b", "<BOS_TOKEN>"),
    Real("granite-3", OLLAMA, "granite3-dense:2b"),
    Real("granite-3", OLLAMA, "granite3.1-moe:1b", options=TODAY, own_text=True),
    Real("granite-3", OLLAMA, "granite3.2:8b", options=TODAY, own_text=True),
    Real("granite-3", LLAMA_CPP, "ibm-granite-granite-3.3-2B-Instruct", options=TODAY, own_text=True),
    Real("granite-4", LLAMA_CPP, "ibm-granite-granite-4.0"),
    Real("granite-4.1", OLLAMA, "granite4:latest"),
    Real("smollm2", OLLAMA, "smollm2:135m"),
    Real("lfm2", "trl", "lfm2_v2", "<|startoftext|>"),
    Real("lfm2.5", "trl", "lfm2_2_5_v2", "<|startoftext|>"),
    Real("nemotron-nano-2", LLAMA_CPP, "NVIDIA-Nemotron-Nano-v2"),
    Real("olmo-2", OLLAMA, "olmo2:7b", "<|endoftext|>", "<|endoftext|>"),
    Real("exaone-3.5", OLLAMA, "exaone3.5:7.8b"),
    Real("exaone-deep", OLLAMA, "exaone-deep:2.4b"),
    Real("exaone-4", AXOLOTL, "exaone4"),
]
# FastChat's own code defines the format of Vicuna; it always adds a system text.
FASTCHAT = [Real("vicuna", "fschat", "vicuna_v1.1"), Real("baichuan2", "fschat", "baichuan2-chat")]
REAL = WITHOUT_SYSTEM_ROLE + WITH_SYSTEM_ROLE
WITH_DEFAULT_SYSTEM = [real for real in WITH_SYSTEM_ROLE if FAMILIES[real.family].system and not real.own_text]
NO_SYSTEM = [real for real in REAL if not FAMILIES[real.family].system and not real.own_text]
# The template of Phi-4-mini expects tools in the system message, and has no tool calls.
WITH_TOOLS = [
    real for real in WITH_SYSTEM_ROLE if not FAMILIES[real.family].tool_form.note and real.family != "phi-4-mini"
]
LLAMA_3 = ("llama-3.1", "llama-3.1-nemotron", "llama-3.2", "llama-3.2-vision", "llama-3.3")
MISTRAL = ("mistral-v3", "mistral-nemo")
# Templates that drop the text of a message with tool calls.
DROP_TEXT = (*LLAMA_3, *MISTRAL)
WITH_CALLS: list[tuple[Real, str | None]] = [(real, None) for real in WITH_TOOLS]
WITH_CALLS += [(real, "Let me see.") for real in WITH_TOOLS if real.family not in DROP_TEXT]
DEEPSEEK = [real for real in WITH_SYSTEM_ROLE if FAMILIES[real.family].tool_form.same_turn]


def each(reals: list[Real]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("real", reals, ids=lambda real: f"{real.family}={real.template}")


PAIRS = [["What is 1 + 1?", "2."], ["And 2 + 2?", "4, I think.\n\nYes."], ["你好，世界", "您好！"]]
SPACED_PAIRS = [["  What?\n", "\n That. \n\n"], ["\tAnd\n\nthen?  ", " \u3000Nothing \n"]]
# A history that begins with its own system text.
OWN_SYSTEM = [
    {"role": "system", "content": "You know cats.\n"},
    {"role": "user", "content": "Do they dream?"},
    {"role": "assistant", "content": "They do."},
    {"role": "user", "content": "Of what?"},
]
# Templates that reject a second system text, or omit one of the two.
ONE_SYSTEM_TEXT = {
    *(("gemma", "gemma"), ("gemma-2", "gemma2:2b"), ("gemma-3", "gemma3"), ("llama-2", "llama2:7b")),
    *(("qwen3.5", "qwen3_5_think"), ("qwen3.5-nothink", "qwen3_5_nothink"), ("qwen3.6", "qwen3_6")),
    *(("mistral-v1", "mixtral:8x7b"), ("mistral-v3", "mistral_v2v3")),
    ("mistral-nemo", "mistralai-Mistral-Nemo-Instruct-2407"),
    ("mistral-v7-tekken", "Mistral-Small-3.2-24B-Instruct-2506"),
    ("mistral-v7-tekken", "mistralai-Ministral-3-14B-Reasoning-2512"),
    *(("command-r", "cohere"), ("command-r", "command-r:35b"), ("qwen3-instruct-2507", "qwen3_vl")),
    *(("deepseek-r1-distill", "deepseek_r1_distill"), ("yi", "yi-coder:1.5b"), ("yi-1.5", "yi:6b")),
    *(("minimax-m2", "MiniMax-M2"), ("nemotron-nano-2", "NVIDIA-Nemotron-Nano-v2")),
    *(("vicuna", "vicuna_v1.1"), ("baichuan2", "baichuan2-chat")),
}
TOOLS: list[dict[str, Any]] = [
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


# Mistral's templates write a description without JSON's escapes.
PLAIN_TOOLS = [{**tool, "function": {**tool["function"], "description": "Say it."}} for tool in TOOLS]
VALUES = {"text": "it's\n'北京'", "list": [1, True, None], "object": {"a": False}, "n": 1.5, "yes": True, "none": None}


def tools_for(real: Real) -> list[dict[str, Any]]:
    return PLAIN_TOOLS if real.family in MISTRAL else TOOLS


def flat_and_messages(prompter: ChatPrompter, *given: Any, model: str, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    flat = prompter.generate_prompt(*given, model=model, **more)
    form: Any = prompter.generate_prompt(*given, model=model, return_dict=True, **more)
    return flat, [_for_template(message) for message in form["messages"]]


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """A message as templates expect it: arguments are a dict, content is text."""
    message["content"] = message["content"] or ""
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


def call(tool: str, id: str, **arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": tool, "arguments": text}}


def call_message(text: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": [*calls]}


def result(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


@pytest.mark.slow
@each(WITH_SYSTEM_ROLE)
@pytest.mark.parametrize("history", [None, PAIRS, SPACED_PAIRS], ids=["plain", "multi-turn", "white space"])
@pytest.mark.parametrize("user", ["Why?", "  为什么？\n"])
def test_chat_with_a_system_text_equals_the_output_of_the_models_template(real: Real, history: Any, user: str) -> None:
    prompter = ChatPrompter("Answer in {language}.\n", system="\nYou are a poet. ")
    user, history = real.stripped(user, history)
    given = {"language": "中文", "input": user}
    flat, messages = flat_and_messages(prompter, given, history, model=real.family)
    assert [message["role"] for message in messages][:1] == ["system"]
    assert flat == real.render(messages)


@each(NO_SYSTEM)
@pytest.mark.parametrize("history", [None, PAIRS, SPACED_PAIRS], ids=["plain", "multi-turn", "white space"])
def test_chat_without_a_system_text_equals_the_output_of_the_models_template(real: Real, history: Any) -> None:
    user, past = real.stripped(" Why? ", history)
    flat, messages = flat_and_messages(ChatPrompter(system=""), user, past, model=real.family)
    assert messages[0]["role"] == "user"
    assert flat == real.recorded(messages)
    in_order = ChatPrompter.from_messages([*messages[:-1], ("user", "{user}")])
    assert in_order.generate_prompt({"user": user}, model=real.family) == flat


@each(WITH_DEFAULT_SYSTEM)
def test_default_system_text_of_a_family_is_that_of_its_template(real: Real) -> None:
    flat, messages = flat_and_messages(ChatPrompter(), "Why?", PAIRS, model=real.family)
    assert flat == real.recorded(messages) == real.recorded(messages[1:])


@pytest.mark.slow
@each(REAL)
@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab \n\t\u3000。<|>{}[]/'\"\\"), min_size=1), min_size=3, max_size=7),
    words=st.text(st.sampled_from("ab \n{}<>"), min_size=1).filter(str.strip),
)
def test_chat_of_random_texts_equals_the_output_of_the_template(real: Real, texts: list[str], words: str) -> None:
    *turns, user = texts[: len(texts) // 2 * 2 + 1] if len(texts) % 2 else texts[:-1]
    # GLM drops the line before an answer that is blank.
    user, history = real.stripped(user, [[turns[at], turns[at + 1] + "!"] for at in range(0, len(turns), 2)])
    system = "" if real in NO_SYSTEM and real in WITHOUT_SYSTEM_ROLE else words
    prompter = ChatPrompter(system=system).with_safety("off")
    flat, messages = flat_and_messages(prompter, user, history, model=real.family)
    assert flat == real.render(messages)


@each(WITHOUT_SYSTEM_ROLE)
@pytest.mark.parametrize("history", [None, PAIRS], ids=["plain", "multi-turn"])
def test_family_without_a_system_role_has_the_system_text_in_the_first_user_turn(real: Real, history: Any) -> None:
    flat, messages = flat_and_messages(
        ChatPrompter("Be {a}."), {"a": "kind", "input": "Hi"}, history, model=real.family
    )
    messages[1]["content"] = f"{messages[0]['content']}\n\n{messages[1]['content']}"
    assert flat == real.recorded(messages[1:])


@each(WITH_TOOLS)
@pytest.mark.parametrize(
    ("system", "user", "history"),
    [("Be a clerk.", " Hi ", None), ("Be a clerk.", " Hi ", PAIRS), ("", "Hi", OWN_SYSTEM[:3])],
    ids=["no history", "with turns", "after a system message of the history"],
)
def test_tools_are_formatted_as_in_the_models_template(real: Real, system: str, user: str, history: Any) -> None:
    tools = tools_for(real)
    flat, messages = flat_and_messages(ChatPrompter(system=system), user, history, tools, model=real.family)
    assert flat == real.recorded(messages, tools=tools)


# QwQ's template puts two line breaks before tools if there is no system text.
@each([real for real in WITH_TOOLS if real in NO_SYSTEM and real.family != "qwq"])
def test_tools_without_a_system_text_are_formatted_as_in_the_models_template(real: Real) -> None:
    tools = tools_for(real)
    flat, messages = flat_and_messages(ChatPrompter(system=""), "Hi", PAIRS, tools, model=real.family)
    assert flat == real.recorded(messages, tools=tools)


@pytest.mark.parametrize(
    ("real", "text"), WITH_CALLS, ids=[f"{real.family}={real.template}-{text}" for real, text in WITH_CALLS]
)
@pytest.mark.parametrize("user", [None, "And tomorrow?"], ids=["ends with results", "with a new question"])
def test_calls_and_results_are_formatted_as_in_the_models_template(real: Real, text: str | None, user: Any) -> None:
    first, second = call("weather", "aaaaaaaaa", city="北京"), call("time", "bbbbbbbbb", city='"x"')
    results = [result("aaaaaaaaa", '{"sky": "clear"}'), result("bbbbbbbbb", "noon\n")]
    if real.family in LLAMA_3:  # their templates reject two calls in one message
        rounds = [call_message(text, first), results[0], call_message(text, second), results[1]]
    else:
        rounds = [call_message(text, first, second), *results]
    third = call_message(text and "Clear, noon.", call("time", "ccccccccc", **VALUES))
    history = [{"role": "user", "content": "Weather and time in 北京?"}, *rounds, third, result("ccccccccc", "6")]
    if user:
        history.append({"role": "assistant", "content": "Clear, noon; 6 in Paris."})
    # Mistral's templates omit the system text if the last message is a tool result.
    prompter = ChatPrompter(system="" if real.family in MISTRAL and not user else "Help.")
    tools = tools_for(real)
    flat, messages = flat_and_messages(prompter, user, history, tools, model=real.family)
    assert flat == real.recorded(messages, tools=tools)


@each(DEEPSEEK)
@pytest.mark.parametrize("user", [None, "And tomorrow?"], ids=["ends with results", "with a new question"])
def test_deepseek_tool_calls_and_results_are_formatted_as_in_its_template(real: Real, user: str | None) -> None:
    """The templates describe no tools, expect arguments as text, and support one round of calls."""
    calls = call_message(None, call("weather", "a", city="北京"), call("time", "b"))
    history = [{"role": "user", "content": "Well?"}, calls, result("a", "clear"), result("b", "noon")]
    if user:
        history.append({"role": "assistant", "content": "Clear, noon."})
    flat, messages = flat_and_messages(ChatPrompter(system="Help."), user, history, model=real.family)
    messages[2]["content"] = None
    for each_call in messages[2]["tool_calls"]:
        each_call["function"]["arguments"] = json.dumps(each_call["function"]["arguments"], ensure_ascii=False)
    assert flat == real.recorded(messages)


def test_deepseek_v3_1_continues_the_turn_of_its_tool_calls() -> None:
    history = [{"role": "user", "content": "Time?"}, call_message(None, call("time", "a")), result("a", "noon")]
    flat = ChatPrompter(system="").generate_prompt(None, history, model="deepseek-v3.1")
    assert flat == (
        f"{BEGIN}<｜User｜>Time?<｜Assistant｜></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{{}}"
        f"<｜tool▁call▁end｜><｜tool▁calls▁end｜>{END}<｜tool▁output▁begin｜>noon<｜tool▁output▁end｜>"
    )


def test_phi_4_mini_tools_are_formatted_as_in_its_template() -> None:
    flat, messages = flat_and_messages(ChatPrompter(system="Be a clerk."), "Hi", PAIRS, TOOLS, model="phi-4-mini")
    messages[0]["tools"] = json.dumps(TOOLS, ensure_ascii=False)
    assert flat == Real("phi-4-mini", OLLAMA, "phi4-mini:3.8b").recorded(messages)


def test_llama_message_keeps_its_text_and_all_its_tool_calls() -> None:
    """Llama's templates drop the text, and reject a second call."""
    calls = call_message("Let me see.", call("time", "a"), call("time", "b", city="x"))
    history = [{"role": "user", "content": "Time?"}, calls]
    flat = ChatPrompter(system="").generate_prompt("Well?", history, model="llama-3.1")
    calls_text = '{"name": "time", "parameters": {}}\n{"name": "time", "parameters": {"city": "x"}}'
    assert f"\n\nLet me see.\n{calls_text}<|eot_id|>" in flat


@pytest.mark.parametrize("family", FAMILIES)
def test_tools_in_a_format_that_the_family_was_not_trained_on_emit_a_warning(family: str) -> None:
    note = FAMILIES[family].tool_form.note
    expected = (
        f"the tools are described as JSON, which {family} was not trained to read: {note}; pass chat_template= to "
        "render the model's own format"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ChatPrompter("Help.").generate_prompt("Hi", model=family, tools=TOOLS)
        ChatPrompter("Help.").generate_prompt("Hi", model=family)
    assert [(each.category, str(each.message)) for each in caught] == [(ToolFormWarning, expected)] * bool(note)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_tool_calls_and_results_forge_no_control_sequence(family: str) -> None:
    """In JSON a control sequence is escaped, but some families write parameters as XML."""
    for mark in FAMILIES[family].control_sequences:
        evil = f"a {mark} b"
        values = {evil: evil, "list": [evil], "object": {evil: evil}}
        history = [
            {"role": "user", "content": "Go."},
            call_message(evil, {**call("f", "a"), "function": {"name": "f", "arguments": json.dumps(values)}}),
            result("a", evil),
        ]
        tool = {"name": "f", "description": evil, "parameters": {"type": "object", "properties": {"x": {evil: evil}}}}
        tools: Any = [{"type": "function", "function": tool}]
        assert evil not in ChatPrompter(system="").generate_prompt(None, history, tools, model=family)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_sample_has_the_message_index_of_each_call_and_result(family: str) -> None:
    history = [
        {"role": "user", "content": "Go"},
        call_message("Text one", call("one", "aaaaaaaaa", key="value", other="more"), call("two", "bbbbbbbbb")),
        result("aaaaaaaaa", "result one"),
        result("bbbbbbbbb", "result two"),
        {"role": "assistant", "content": "Said"},
    ]
    sample = ChatPrompter(system="").training_sample("Hi", "Yes.", history, model=family, train="all")
    parts = [*zip(sample.parts, sample.slots, sample.part_messages, strict=True)]
    for word, at in (("Go", 0), ("Text one", 1), ("value", 1), ("two", 1), ("result one", 2), ("Said", 4)):
        assert {index for text, slot, index in parts if slot == "history" and word in text} >= {at}
    prompt = ChatPrompter(system="").generate_prompt("Hi", history, model=family)
    assert sample.text.startswith(prompt)
    trained = "".join(text for text, is_trained in zip(sample.parts, sample.trained, strict=True) if is_trained)
    assert all(word in trained for word in ("Text one", "value", "two", "Said", "Yes."))
    assert not any(word in trained for word in ("Go", "Hi", "result"))


@each(FASTCHAT)
@pytest.mark.parametrize("history", [None, PAIRS, SPACED_PAIRS], ids=["plain", "multi-turn", "white space"])
def test_chat_equals_the_output_of_the_code_of_fastchat(real: Real, history: Any) -> None:
    flat, messages = flat_and_messages(ChatPrompter(system=" Be kind. "), " Why? ", history, model=real.family)
    assert flat == real.recorded(messages)
    flat, messages = flat_and_messages(ChatPrompter(), "Why?", history, model=real.family)
    if FAMILIES[real.family].system:
        assert flat == real.recorded(messages) == real.recorded(messages[1:])


@each(REAL + FASTCHAT)
@pytest.mark.parametrize("turns", [0, 2, 3], ids=["no turns", "with turns", "ends with the user"])
def test_system_message_at_the_start_of_the_history_is_the_system_text(real: Real, turns: int) -> None:
    """15 families wrote an empty turn before it, a second system turn, or only half of a turn opening."""
    user = None if turns == len(OWN_SYSTEM[1:]) else "And dogs?"
    flat, messages = flat_and_messages(ChatPrompter(system=""), user, OWN_SYSTEM[: turns + 1], model=real.family)
    assert messages[0] == OWN_SYSTEM[0]
    if real in WITHOUT_SYSTEM_ROLE:
        messages[1]["content"] = f"{messages[0]['content']}\n\n{messages[1]['content']}"
        del messages[0]
    assert flat == real.recorded(messages)


@each([real for real in REAL + FASTCHAT if (real.family, real.template) not in ONE_SYSTEM_TEXT])
def test_system_message_of_the_history_follows_the_system_text_of_the_prompter(real: Real) -> None:
    flat, messages = flat_and_messages(ChatPrompter(system="Be a clerk."), "Hi", OWN_SYSTEM[:3], model=real.family)
    assert flat == real.recorded(messages)


@each([real for real in WITH_SYSTEM_ROLE if FAMILIES[real.family].system_place == "last_user"])
def test_system_text_is_in_the_last_user_turn_of_the_history(real: Real) -> None:
    """The system text was in the first user turn if the history ends with a user message."""
    flat, messages = flat_and_messages(ChatPrompter(system="Be a clerk."), None, OWN_SYSTEM[1:], model=real.family)
    assert flat == real.recorded(messages)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_of_every_family_contains_both_of_two_system_texts(family: str) -> None:
    """A family without system turns joins them to one text, even if its template rejects or omits the second."""
    flat = ChatPrompter(system="Be a clerk.").generate_prompt("Hi", OWN_SYSTEM[:3], model=family)
    clerk, cats = flat.index("Be a clerk."), flat.index("You know cats.")
    assert clerk < cats
    if FAMILIES[family].system_place != "turn":
        both = ChatPrompter(system=f"Be a clerk.\n\n{OWN_SYSTEM[0]['content']}")
        assert flat == both.generate_prompt("Hi", OWN_SYSTEM[1:3], model=family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "with tools"])
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_system_message_of_the_history_is_untrusted(family: str, tools: Any) -> None:
    """Tools follow the system message, and the prompter checks the constant text up to the tools only once."""
    prompter = ChatPrompter(system="", tools=tools)
    prompter.generate_prompt("Hi", model=family)
    for mark in FAMILIES[family].turn_sequences:
        history = [{"role": "system", "content": f"a {mark} b"}]
        assert f"a {mark} b" not in prompter.generate_prompt("Hi", history, model=family)
        (segment,) = [each for each in prompter.render("Hi", history, model=family).segments if each.slot == "history"]
        assert not segment.trusted


@pytest.mark.parametrize("family", ["qwen2.5", "gemma-3", "mistral-v3", "deepseek-v3"])
def test_training_sample_has_the_message_index_of_a_system_message(family: str) -> None:
    sample = ChatPrompter(system="").training_sample("Hi", "Yes.", OWN_SYSTEM[:3], model=family)
    parts = zip(sample.parts, sample.slots, sample.part_messages, strict=True)
    found = {text.strip(): at for text, slot, at in parts if slot == "history" and text.strip()}
    assert found == {message["content"].strip(): at for at, message in enumerate(OWN_SYSTEM[:3])}


@pytest.mark.slow
@pytest.mark.parametrize("recorded", recorded_renders.read_renders()[1], ids=lambda recorded: recorded["template"])
def test_recorded_renders_equal_the_output_of_the_templates(recorded: recorded_renders.Render) -> None:
    given = recorded_renders.read_renders()[0][recorded["given"]]
    assert recorded["version"] == real_templates.version_of(recorded["package"])
    assert real_templates.render(recorded["package"], recorded["template"], given) == recorded["text"]


def test_every_family_is_compared_with_a_real_template() -> None:
    # Qwen2.5-Math's template is that of Qwen2.5 with another system text; no package contains it.
    math, qwen = FAMILIES["qwen2.5-math"], FAMILIES["qwen2.5"]
    assert math.evolve(family=qwen.family, system=qwen.system) == qwen
    assert {"qwen2.5-math", *(real.family for real in REAL + FASTCHAT)} == set(FAMILIES)


@pytest.mark.parametrize(("family", "markers"), FAMILIES.items(), ids=FAMILIES)
def test_a_family_is_found_by_its_own_name(family: str, markers: Markers) -> None:
    assert markers.family == family
    assert markers.exact
    assert Markers.for_model(family) is Markers.for_model(f" {family.upper()} ") is markers


# Names of models, repositories and files.
NAMED = {
    "qwen2.5": (
        "Qwen/Qwen2.5-7B-Instruct Qwen2.5-7B-Instruct-GGUF /models/qwen2.5-7b-instruct-q4_k_m.gguf "
        "C:\\models\\Qwen_Qwen2.5-7B-Instruct-Q4_K_M.gguf "
        "~/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct/ qwen2_5-14b-instruct qwen2.5:7b "
        "Qwen2.5-Coder-32B-Instruct"
    ),
    "qwen2.5-math": "Qwen2.5-Math-7B-Instruct",
    "qwen2.5-vl": "Qwen2.5-VL-7B-Instruct Qwen2-VL-7B-Instruct",
    "qwen2": "Qwen2-7B-Instruct",
    "qwen3": "Qwen/Qwen3-8B qwen3:0.6b qwen3",
    "qwen3-instruct-2507": "Qwen3-30B-A3B-Instruct-2507 Qwen3-VL-8B-Instruct qwen3-next-80b-a3b-instruct",
    "qwen3-thinking-2507": "Qwen3-30B-A3B-Thinking-2507-FP8 qwen3-next-80b-a3b-thinking qwen3-vl-8b-thinking",
    "qwen3.5-nothink": "Qwen3.5-0.8B qwen3.5-2b",
    "qwen3.5": "Qwen3.5-9B",
    "qwen3.6": "Qwen3.6-27B",
    "qwq": "qwq-32b",
    "llama-2": "meta-llama/Llama-2-7b-chat-hf CodeLlama-7b-Instruct-hf codellama-13b CodeLlama-34b",
    "llama-3": "Meta-Llama-3-8B-Instruct llama3:8b",
    "llama-3.1": "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
    "llama-3.2": "meta-llama/Llama-3.2-1B",
    "llama-3.3": "Llama-3.3-70B-Instruct llama3.3",
    "mistral-v1": (
        "mistral-7b-instruct-v0.2 mixtral-8x7b-instruct mistral-7b-v0.1 mixtral-8x7b mixtral-8x7b-instruct-v0.1"
    ),
    "mistral-v3": (
        "mistral-7b-instruct-v0.3 mistralai_Mistral-7B-Instruct-v0.3-Q4_K_M.gguf mistral-large-instruct-2407 "
        "mistral-small-instruct-2409 mistral-7b-v0.3"
    ),
    "mistral-nemo": "Mistral-Nemo-Instruct-2407 ministral-8b-instruct-2410",
    "mistral-v7": "Mistral-Large-Instruct-2411",
    "mistral-v7-tekken": (
        "Mistral-Small-3.1-24B-Instruct-2503 Mistral-Small-3.2-24B-Instruct-2506 mistralai/Devstral-Small-2505 "
        "Ministral-3-14B-Reasoning-2512 mistral-small-24b-instruct-2501 devstral-small-2507"
    ),
    "gemma": "google/gemma-2b-it codegemma-7b-it gemma-1.1-2b-it gemma:7b codegemma",
    "gemma-2": "gemma-2-9b-it",
    "gemma-3": "google_gemma-3-27b-it-Q4_K_M.gguf gemma-3n-E4B-it",
    "gemma-4": "gemma-4-E2B-it gemma4 gemma-4:e4b",
    "phi-3": "Phi-3-mini-4k-instruct",
    "phi-3.5": "Phi-3.5-mini-instruct",
    "phi-4": "microsoft/phi-4",
    "phi-4-mini": "Phi-4-mini-instruct",
    "deepseek-r1-distill": "deepseek-r1-distill-qwen-7b DeepSeek-R1-Distill-Llama-70B",
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-v3": "DeepSeek-R1-0528-Qwen3-8B DeepSeek-V3-0324",
    "deepseek-v3.1": "DeepSeek-V3.1",
    "deepseek-v2": "DeepSeek-V2-Lite-Chat deepseek-coder-v2-lite-instruct deepseek-llm-7b-chat deepseek-v2",
    "internlm2": "internlm2_5-7b-chat internlm2-chat-7b",
    "internlm3": "internlm3-8b-instruct",
    "glm-4": "THUDM/glm-4-9b-chat GLM-4-32B-0414 chatglm4-9b",
    "glm-4.5": "GLM-4.5-Air zai-org/GLM-4.6",
    "chatglm3": "chatglm3-6b",
    "baichuan2": "Baichuan2-13B-Chat",
    "yi": "Yi-34B-Chat Yi-Coder-9B-Chat",
    "yi-1.5": "Yi-1.5-9B-Chat",
    "command-r": "c4ai-command-r-plus aya-expanse-8b command-r command-r-plus c4ai-command-r-v01",
    "granite-3": "granite-3.1-8b-instruct ibm-granite/granite-3.3-8b-instruct",
    "smollm2": "SmolLM2-1.7B-Instruct",
    "vicuna": "vicuna-7b-v1.5",
    "zephyr": "zephyr-7b-beta TinyLlama-1.1B-Chat-v1.0 tinyllama tinyllama:1.1b",
    "lfm2": "LFM2-1.2B",
    "lfm2.5": "LFM2.5-230M",
    "chatml": "OpenHermes-2.5-Mistral-7B openhermes-2-mistral-7b",
    "qwen1.5": "Qwen1.5-7B-Chat",
    "qwen3-coder": "Qwen3-Coder-30B-A3B-Instruct qwen3-coder:480b",
    "llama-4": "meta-llama/Llama-4-Scout-17B-16E-Instruct llama4:latest",
    "llama-3.1-nemotron": "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF nemotron:70b",
    "llama-3.2-vision": "Llama-3.2-11B-Vision-Instruct llama3.2-vision:11b",
    "hermes-3": "NousResearch/Hermes-3-Llama-3.1-8B",
    "hermes-2": "Nous-Hermes-2-Mixtral-8x7B-DPO",
    "tulu-3": "allenai/Llama-3.1-Tulu-3-8B tulu-3-8b",
    "gemma-4-31b": "google/gemma-4-31B-it gemma-4-26B-A4B-it",
    "deepseek-v2-0628": "DeepSeek-V2-Chat-0628",
    "glm-4.7": "GLM-4.7-Flash GLM-5",
    "granite-4": "granite-4.0-h-tiny",
    "granite-4.1": "granite-4.1-8b",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct-0905",
    "kimi-k2-thinking": "Kimi-K2-Thinking",
    "seed-oss": "ByteDance-Seed/Seed-OSS-36B-Instruct",
    "minimax-m2": "MiniMaxAI/MiniMax-M2",
    "nemotron-nano-2": "nvidia/NVIDIA-Nemotron-Nano-9B-v2 nemotron-nano-12b-v2",
    "olmo-2": "allenai/OLMo-2-1124-7B-Instruct",
    "exaone-3.5": "LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct",
    "exaone-deep": "EXAONE-Deep-2.4B",
    "exaone-4": "EXAONE-4.0-32B",
}


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, names in NAMED.items() for name in names.split()]
)
def test_family_is_found_by_the_name_of_a_model_a_repository_or_a_file(family: str, name: str) -> None:
    assert Markers.for_model(name).family == family


PUBLISHERS = """01-ai allenai baichuan-inc ByteDance-Seed c4ai CohereForAI CohereLabs deepseek-ai google
    HuggingFaceH4 HuggingFaceTB ibm ibm-granite internlm LGAI-EXAONE LiquidAI lmsys meta meta-llama microsoft
    MiniMaxAI mistralai moonshotai NousResearch nvidia openai Qwen teknium THUDM TinyLlama zai-org"""


@pytest.mark.parametrize("publisher", PUBLISHERS.split())
def test_publisher_at_the_start_of_a_file_name_is_skipped(publisher: str) -> None:
    assert Markers.for_model(f"{publisher}_qwen2-7b.gguf").family == "qwen2"


@pytest.mark.parametrize(
    "name",
    [
        "qwen25-7b", "qwen2.7-7b", "Qwen3-Embedding-8B", "qwen", "Qwen3-Coder-Next", "qwen2.5-omni-7b",
        "llama-31", "llama-3b", "llama-3.4-8b", "llama-30b", "llama-40b", "Llama-3_3-Nemotron-Super-49B-v1",
        "Llama-3.1-Nemotron-Nano-8B-v1", "Llama-Guard-4-12B", "llama-4.1-scout",
        "glm-45", "glm-4v-9b", "glm-4.8", "glm-5.1", "internlm-chat-7b", "internlm25", "internlm4", "gemma-5-9b",
        "gemma-31b", "gemma4:latest", "mistral", "mistral-7b-instruct", "devstral-small-2512", "phi-2",
        "phi-4-multimodal-instruct", "deepseek-v3.2", "deepseek-v30", "DeepSeek-Coder-V2-Instruct-0724", "yi-2-9b",
        "granite4:latest", "granite-4.2-8b", "granite-3.2-vision", "Kimi-K2.5", "Kimi-K2-Base", "MiniMax-M2.5",
        "Hermes-4-70B", "EXAONE-4.5-33B", "OLMo-3-7B", "my-qwen2.5-finetune", "Nous-Mixtral", "",
        "deepseek-r1-zero", "qwen2-audio-7b", "qwq-32b-preview", "codellama-70b", "vicuna-7b-delta-v0", "lfm2-vl-1.6b",
        "zephyr-7b-gemma-v0.1", "lfm2-audio-1.5b", "lfm2.5-vl-1.6b", "lfm2.5-audio-1.5b", "phi-3-vision-128k",
        "phi-3-small-8k", "phi-3.5-vision-instruct", "glm-4-voice-9b", "granite-3.1-guardian", "granite-3.3-speech",
        "granite-4.0-speech", "granite-4.1-guardian", "llama-3.2-nemotron", "qwen3-omni-30b-instruct",
    ],
)  # fmt: skip
def test_name_of_an_unsupported_model_matches_no_similar_family(name: str) -> None:
    with pytest.raises(TemplateError, match="no model family is known"):
        Markers.for_model(name)


EFFORT = "its system turn begins with the reasoning effort, followed by a separator only if there is system text"
PREAMBLE = "its system turn begins with a fixed text, followed by a heading if there is system text"
QUIET = "it writes a fixed system text, and drops or joins all other system texts"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt-oss-20b", "its system turn contains the current date, and its responses are split into channels"),
        ("openai/gpt-oss-120b", "channels"),
        ("gpt-oss:20b", "channels"),
        ("unsloth/SmolLM3-3B-GGUF", "its system turn contains the current date"),
        ("Qwen3.8-27B", EFFORT),
        ("CohereForAI/c4ai-command-r7b-12-2024", PREAMBLE),
        ("command-a:111b", PREAMBLE),
        ("CohereLabs_tiny-aya-earth-Q4_K_M.gguf", PREAMBLE),
        ("microsoft/Phi-4-reasoning-plus", QUIET),
        ("Phi-4-mini-reasoning", QUIET),
        ("Phi-4-mini-flash-reasoning", QUIET),
        (
            "NVIDIA-Nemotron-3-Nano-30B-A3B",
            "it strips white space after earlier responses, but keeps white space before them",
        ),
        ("DeepSeek-V2.5-1210", "its prompt begins with one space for each system text"),
    ],
)
def test_error_for_a_model_that_markers_cannot_express_has_reason_and_alternative(name: str, why: str) -> None:
    with pytest.raises(TemplateError, match=f": .*{why}; render") as caught:
        ChatPrompter().generate_prompt("Hi", model=name)
    assert repr(name) in str(caught.value)
    assert "ChatTemplate.load(" in str(caught.value)


@pytest.mark.slow
def test_templates_that_markers_cannot_express_behave_as_the_errors_describe() -> None:
    """The models' own templates have the properties that the error messages state."""
    user = [{"role": "user", "content": "Hi"}]
    system = [{"role": "system", "content": "Be."}, *user]
    for first in ("gptoss", "qwen3_8", "cohere2"):
        real = Real("", "trl", first, options=TODAY)
        assert not real.render(system).replace("Be.", "").startswith(real.render(user)[:-1])
        assert len(real.render(system)) - len(real.render(user)) > len("Be.\n")
    assert "the day's date" in Real("", "trl", "gptoss", options=TODAY).render(user)
    assert "Be." not in Real("", OLLAMA, "phi4-reasoning:14b").render(system)
    assert Real("", OLLAMA, "deepseek-v2.5:236b").render(system).startswith("  ")
    answered = [*user, {"role": "assistant", "content": " A "}, *user]
    assert "</think> A<|im_end|>" in Real("", "trl", "nemotron_3_nano").render(answered)


def test_name_patterns_cover_every_family_except_qwen3_nothink() -> None:
    named = {family for _, family in NAMES}
    # This family is found only by its own name.
    assert set(FAMILIES) - named == {"qwen3-nothink"}
    assert named <= set(FAMILIES)


def test_error_for_an_unknown_model_suggests_a_similar_family_and_alternatives() -> None:
    with pytest.raises(TemplateError) as caught:
        Markers.for_model("Qwen/Qwen25-7B-Instruct")
    message = str(caught.value)
    for part in (
        "'Qwen/Qwen25-7B-Instruct'",
        "did you mean 'qwen2.5'",
        "lazyprompt list families",
        "with_markers(Markers(",
    ):
        assert part in message
    with pytest.raises(TemplateError, match="did you mean 'internlm"):
        ChatPrompter().generate_prompt("Hi", model="internlm4-8b")


@pytest.mark.parametrize("name", [None, 3, ["qwen2.5"], b"qwen2.5"])
def test_model_name_that_is_not_text_is_rejected(name: Any) -> None:
    with pytest.raises(TemplateError, match=type(name).__name__):
        Markers.for_model(name)


@pytest.mark.parametrize(
    ("family", "turns", "others"),
    [
        ("llama-2", {"<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"}, set()),
        (
            "deepseek-r1",
            {BEGIN, END, "<｜User｜>", "<｜Assistant｜>", *(f"<｜tool▁output{end}｜>" for end in OUTPUT_ENDS)},
            {"<think>", "<｜tool▁sep｜>", *(f"<｜tool▁call{end}｜>" for end in OUTPUT_ENDS)},
        ),
        ("chatml", {"<|im_start|>", "<|im_end|>"}, set()),
        ("gemma-2", {"<bos>", "<start_of_turn>", "<end_of_turn>"}, set()),
        ("vicuna", {"USER:", "ASSISTANT:", "</s>"}, set()),
        ("baichuan2", {"<reserved_106>", "<reserved_107>"}, set()),
        (
            "qwen2.5",
            {"<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>"},
            {"<tool_call>", "</tool_call>", "<tools>", "</tools>"},
        ),
        (
            "phi-4-mini",
            {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>"},
            {"<|/tool|>", "<|tool_call|>", "<|/tool_call|>"},
        ),
    ],
)
def test_family_has_the_expected_turn_and_control_sequences(family: str, turns: set[str], others: set[str]) -> None:
    assert FAMILIES[family].turn_sequences == turns
    unseen = {*tokens_of_calls(family), *tokens_of_tokenizer(family)}
    assert FAMILIES[family].control_sequences == turns | others | unseen


@pytest.mark.parametrize("family", FAMILIES)
def test_tool_call_and_reasoning_tokens_of_a_family_are_control_sequences(family: str) -> None:
    # The markers of most families contain no tool-call tokens, so a value could contain forged ones.
    controls = controls_of(FAMILIES[family])
    form = form_of(family)[0]
    marks = {mark for calls in form.calls for mark in (calls.start, calls.end, calls.separator, calls.quote)}
    marks |= {*(form.thought or ()), *form.stop}
    # Words and code fences are not tokens.
    tokens = {mark.split("\n")[0].strip() for mark in marks if mark.startswith(("<", "["))}
    assert not {mark for mark in tokens if controls.is_clean(mark) and not mark.endswith("=")}


@pytest.mark.parametrize(
    ("family", "token"),
    [
        *(("gemma-3", token) for token in ("<eos>", "<pad>", "<unused7>", "<start_of_image>")),
        *(("exaone-4", "[|assistant|]"), ("exaone-4", "[|tool|]"), ("granite-3", "<fim_prefix>"), ("kimi-k2", "[EOS]")),
        *(("mistral-v7-tekken", token) for token in ("[MODEL_SETTINGS]", "[/MODEL_SETTINGS]", "[TRANSCRIBE]")),
        *(("mistral-nemo", f"[STREAMING_{name}]") for name in ("PAD", "WORD")),
        *(("mistral-v3", f"[{name}_AUDIO_TEXT]") for name in ("NEXT", "REPEAT")),
        *(("deepseek-v2", "<pad>"), ("gemma-4", "<audio|>"), ("gemma-2", "<2mass>"), ("llama-2", "<FILL_ME>")),
        *(("internlm2", "[UNUSED_TOKEN_146]"), ("yi-1.5", "<fim_middle>")),
        *(("baichuan2", "</s>"), ("vicuna", "<s>"), ("nemotron-nano-2", "<SPECIAL_999>"), ("command-r", "<PAD>")),
    ],
)
def test_tokenizer_token_in_a_value_is_neutralized(family: str, token: str) -> None:
    # Only the sequences of the markers, and <|name|>, were neutralized.
    text = ChatPrompter("{a}", system="").generate_prompt({"a": f"x {token} y"}, model=family)
    assert f"x {token[0]}\\{token[1:]} y" in text
    if not token[-2].isdigit():  # numbered tokens are reserved in many vocabularies
        assert f"x {token} y" in ChatPrompter("{a}", system="").generate_prompt({"a": f"x {token} y"}, model="chatml")


@pytest.mark.parametrize("markers", FAMILIES.values(), ids=FAMILIES)
def test_reasoning_tags_are_turn_sequences_of_no_family(markers: Markers) -> None:
    assert not {"<think>", "</think>"} & markers.turn_sequences


@pytest.mark.parametrize("markers", FAMILIES.values(), ids=FAMILIES)
def test_control_sequences_of_a_family_contain_no_ordinary_words(markers: Markers) -> None:
    words = {sequence for sequence in markers.control_sequences if sequence[0].isalnum()}
    assert words <= {"USER:", "ASSISTANT:", "User:", "Assistant:"}
    assert not {"<function-name>", "<args-json-object>"} & markers.control_sequences
    # Except for the tokens of MiniMax, such as ]<]vision pad[>[, and the tags of its tool calls.
    plain = {each for each in markers.control_sequences if not each.startswith(("]<]", "<invoke ", "<parameter "))}
    assert not any(" " in sequence or "\n" in sequence for sequence in plain)


def test_known_sequences_of_all_families_contain_no_ordinary_words() -> None:
    known = Markers.known_sequences()
    assert {"[INST]", "<|im_end|>", "<｜User｜>", "<start_of_turn>", "<reserved_106>", "<s>", "<|eot_id|>"} <= known
    assert not {sequence for sequence in known if sequence[0].isalnum()}
    assert "User: hi" in ChatPrompter().generate_prompt("User: hi")


def test_error_for_an_online_model_suggests_its_payload_format() -> None:
    with pytest.raises(TemplateError, match="for 'gpt-4o'.*for an online model, .*format=.openai.*--format openai"):
        ChatPrompter("Help.").generate_prompt("Hi", model="gpt-4o")
