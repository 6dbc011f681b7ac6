"""How each form of responses is parsed, and which model has which form."""

import itertools
import json
import pickle
from typing import Any

import pytest

from answers.helpers import ARGUMENTS, EXAMPLES, PLAIN, TOOLS, calls, check_deltas, message_contents, stream_deltas
from lazyprompt import ChatPrompter, Markers
from lazyprompt.answers.forms import FORMS, form_of, opens_thought
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.errors import LazyPromptError, TemplateError, ToolsError
from lazyprompt.messages.msg import Block, Msg, TextBlock, ToolUseBlock
from lazyprompt.rendering.tool_form import ToolForm

FAMILIES = {name: Markers.for_model(name) for name in Markers.families()}

CASES = [(form, dict[str, Any](), text, expected) for form, examples in EXAMPLES.items() for text, expected in examples]


@pytest.mark.parametrize(
    ("form", "options", "text", "expected"),
    [
        *CASES,
        # The prompt or the response opens the reasoning.
        ("hermes", {"thinking": True}, "<think>", []),
        ("hermes", {"thinking": True}, "to<think>", [("thinking", "to<think>")]),
        ("hermes", {"thinking": True}, '<think>"[', [("thinking", '"[')]),
        ("mistral", {"thinking": False}, "[THINK][THINK]", [("thinking", "[THINK]")]),
        ("harmony", {"thinking": True}, "hm", [("thinking", "hm")]),
        ("harmony", {"thinking": True}, "hm<|end|> <|constrain|>", [("thinking", "hm"), "<|constrain|>"]),
        # Text that resembles a tool call.
        ("glm-4.5", {}, ',<tool_call>{"name": "now"}', [',<tool_call>{"name": "now"}']),
        ("glm-4.5", {"thinking": False}, "<tool_call><|user|>", ["<tool_call>"]),
        ("glm-4", {}, "{}", ["{}"]),
        ("glm-4", {}, "now()<|assistant|>Look{}<|observation|>", ["now()", "Look{}"]),
        ("glm-4", {}, f"{'n' * 128}\n{{}}", [("n" * 128, {})]),
        *(("glm-4", {}, f"{'n' * 129}\n{{}}", [f"{'n' * 129}\n{{}}"]), ("llama", {"tools": TOOLS}, "\n{", ["\n{"])),
        ("llama", {"tools": TOOLS}, "so<|python_start|>\n{<|python_end|>", ["so{"]),
        ("llama", {}, "so<|python_start|><|python_end|>on", ["so", "on"]),
        ("llama", {}, '{"name": "now", "parameters": {}}{}', [("now", {}), "{}"]),
        ("llama", {}, '{"name": "now", "parameters": {}}; ', [("now", {})]),
        ("mistral", {"tools": TOOLS}, "so[TOOL_CALLS]now\n{}[INST]", ["so", ("now", {})]),
        ("hermes", {}, '<tool_call>{"name": "f", "arguments": {}x}</tool_call>', [("f", {}), "x}"]),
        ("hermes", {}, '<tool_call>{"name": "f"; "args": {}}</tool_call>', [("f", '{"name": "f"; "args": {}}')]),
        ("hermes", {}, '<tool_call>{"name": "f", "arguments"</tool_call>', [("f", '{"name": "f", "arguments"')]),
        ("hermes", {}, '<tool_call>{"function": {"name": "f", "parameters": {"a": 1}}}</tool_call>', [("f", {"a": 1})]),
        ("hermes", {}, '<tool_call>{"function": {"name": "f"}}</tool_call>', [("f", {})]),
        ("hermes", {}, '<tool_call>{"function": {"name": ""}}', ['<tool_call>{"function": {"name": ""}}']),
        ("hermes", {}, '<tool_call>{"function": "f", "args": {"a": 1}}</tool_call>', [("f", {"a": 1})]),
        ("hermes", {}, '<tool_call>[{"name": "f"}; {"name": "f"}] ]</tool_call>x', [("f", {}), ("f", {}), "x"]),
        ("hermes", {}, '<tool_call>[{"name": "f"}, 3]</tool_call>x', [("f", {}), "3]x"]),
        ("hermes", {}, '<tool_call>{"name": "f", "input": {}} so</tool_call>', [("f", {}), "so"]),
        ("hermes", {}, '<tool_call>{"name": "f", "input": 3}```</tool_c', [("f", "3")]),
        ("mistral", {}, "[TOOL_CALLS]now{}", [("now", {})]),
        ("mistral", {}, "[TOOL_CALLS]a b{}", ["[TOOL_CALLS]a b{}"]),
        # A message to a user is not a tool call.
        ("harmony", {}, "<|channel|>final to=user<|message|>a<|end|>", ["a"]),
        ("harmony", {}, "<|channel|>final to=all<|message|>a<|end|>", ["a"]),
        ("harmony", {}, "<|channel|>final to=assistant<|message|>a<|end|>", ["a"]),
        ("harmony", {}, "<|channel|>c to=now<|message|>{}<|call|><|call|>", [("now", {})]),
        ("harmony", {}, "<|channel|>c to=now<|message|>{}<|call|> so", [("now", {})]),
        ("harmony", {}, "<|end|>a<|call|>b<|start|>assistant<|channel|>final<|message|>c", ["a"]),
        ("harmony", {}, " to=now<|channel|>c<|message|>{}", [("now", {})]),
        ("harmony", {}, "<|end|>a to=now<|message|>{}", ["a to=now", "{}"]),
        ("harmony", {}, "<|channel|>c to=now<|end|>a", ["<|channel|>c to=nowa"]),
        ("harmony", {}, " to be<|end|>", [" to be"]),
        # Unmarked calls in text need a known tool, and marked calls don't.
        ("llama", {"tools": TOOLS}, 'Look.\n{"name": "now", "parameters": {}}', ["Look.", ("now", {})]),
        ("llama", {}, 'Look.\n{"name": "now", "parameters": {}}', ['Look.\n{"name": "now", "parameters": {}}']),
        ("llama", {"tools": TOOLS}, 'So:\n{"name": "Bob", "age": 3}\nSo.', ['So:\n{"name": "Bob", "age": 3}\nSo.']),
        ("llama", {"tools": TOOLS}, "<|python_start|>Look.<|python_end|>So.", ["Look.", "So."]),
        ("vicuna", {}, "a <s>b</s>c", ["a <s>b"]),  # HTML that equals a marker
        # A call without a marker may follow any number of reasoning blocks.
        (
            *("pythonic", {"thinking": True}, "hm</think><think>so</think>[f(a=1)]"),
            [("thinking", "hm"), ("thinking", "so"), ("f", {"a": 1})],
        ),
        ("hermes", {"tools": ["f"]}, '<tool_call>{"name": "g", "arguments": {}}</tool_call>', [("g", {})]),
    ],
)
def test_whole_and_streamed_responses_are_parsed_to_the_expected_blocks(
    form: str, options: dict[str, Any], text: str, expected: list[object]
) -> None:
    parser = ResponseParser(form, **options)
    assert message_contents(parser.parse(text)) == expected
    deltas, message = stream_deltas(parser, text)
    assert message_contents(message) == expected
    check_deltas(deltas, message)


@pytest.mark.parametrize(("form", "text"), [("gemma-4", "["), ("glm-4", "["), ("hermes", "a")])
def test_text_that_cannot_start_a_tool_call_is_streamed_immediately(form: str, text: str) -> None:
    assert [delta.text for delta in ResponseParser(form, thinking=False).stream().feed(text)] == [text]


def test_every_form_has_an_example() -> None:
    assert set(EXAMPLES) == set(ResponseParser.forms()) == set(FORMS)


def test_the_parsed_message_has_the_assistant_role() -> None:
    message = ResponseParser("hermes").parse("Hello.<|im_end|>")
    assert (message.role, message.name, message.content) == ("assistant", "assistant", "Hello.")
    assert ResponseParser("hermes").parse("").content == ""
    two = ResponseParser("harmony").parse(
        "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"
    )
    assert two == Msg("assistant", [TextBlock("a"), TextBlock("b")], "assistant")


@pytest.mark.parametrize(
    ("form", "text", "ids"),
    [
        ("hermes", '<tool_call>[{"name": "f", "id": "x7"}, {"name": "g"}]</tool_call>', ["x7", "call_1"]),
        ("hermes", '<tool_call>[{"name": "f", "id": "call_1"}, {"name": "g"}]</tool_call>', ["call_1", "call_1_1"]),
        ("hermes", '<tool_call>[{"name": "f", "id": "a"}, {"name": "f", "id": "a"}]</tool_call>', ["a", "call_1"]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}, "id": 12}</tool_call>', ["12"]),
        ("hermes", '<tool_call>{"id": 12, "name": "f"}</tool_call>', ["12"]),
        ("hermes", '<tool_call>{"name": "f", "id": {"x": 1}}</tool_call>', ["call_0"]),
        ("mistral", EXAMPLES["mistral"][0][0], ["abcdefgh0"]),
        ("mistral", EXAMPLES["mistral"][1][0], ["call_0", "abcdefgh1"]),
        ("command-r7b", EXAMPLES["command-r7b"][0][0], ["0", "1"]),
        ("kimi-k2", EXAMPLES["kimi-k2"][0][0], ["functions.get_weather:0", "functions.now:1"]),
        ("kimi-k2", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>", ["call_0"]),
    ],
)
def test_tool_call_ids_are_those_of_the_model_or_made_from_the_call_index(form: str, text: str, ids: list[str]) -> None:
    assert [call.id for call in calls(ResponseParser(form).parse(text))] == ids


NOW = [("now", dict[str, Any]())]


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 'a<tool_call>{"name": "now"}</tool_call><|im_end|>b', ["a", ("now", {})]),
        ("vicuna", 'a<tool_call>{"name": "now"}</tool_call>b</s>c', ["a", ("now", {}), "b"]),
        ("google/gemma-2-9b-it", "a<end_of_turn>\n<start_of_turn>user\nb", ["a"]),
        ("meta-llama/Llama-3.1-8B-Instruct", '{"name": "now", "parameters": {}}<|eom_id|>', [("now", {})]),
        ("Llama-3-8B-Instruct", "a<|start_header_id|>user<|end_header_id|>\n\nb", ["a"]),
        ("mistralai/Mistral-Nemo-Instruct-2407", "[TOOL_CALLS]now[ARGS]{}</s>", [("now", {})]),
        ("mistralai/Devstral-Small-2507", "[TOOL_CALLS]now[ARGS]{}</s>", [("now", {})]),
        ("openai/gpt-oss-20b", "<|channel|>final<|message|>a<|return|>", ["a"]),
        ("gpt-oss:20b", "<|channel|>final<|message|>a<|return|>", ["a"]),
        ("CohereLabs/c4ai-command-r7b-12-2024", "<|START_RESPONSE|>a<|END_RESPONSE|>", ["a"]),
        ("moonshotai/Kimi-K2-Instruct", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}", NOW),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", "hm</think>a", [("thinking", "hm"), "a"]),
        ("models--THUDM--glm-4-9b-chat", "now\n{}<|user|>", [("now", {})]),
        ("ibm-granite_granite-3.3-8b-instruct.gguf", "a<|end_of_text|>", ["a"]),
    ],
)
def test_a_model_uses_the_form_of_its_family(model: str, text: str, expected: list[object]) -> None:
    assert message_contents(ResponseParser(model).parse(text)) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_turn_markers_of_a_family_end_its_responses(family: str) -> None:
    markers = FAMILIES[family]
    parser = ResponseParser(family, thinking=False)
    text = parser.parse(f"Hello.{markers.eoa}{markers.soh}Forged.{markers.eoh}").text
    words = {"yi-1.5", "deepseek-v2"}  # their turns are separated by plain words
    assert text.startswith("Hello.")
    assert ("Forged" in text) == (family in words and markers.eoa.strip() == "")


# Which markers stop or are dropped is recorded in tests/golden/facts.
@pytest.mark.parametrize(("form", "marker"), [(form, marker) for form in FORMS for marker in FORMS[form].stop])
def test_each_stop_marker_of_a_form_ends_the_response(form: str, marker: str) -> None:
    assert ResponseParser(form, thinking=False).parse(f"a{marker}b").content == "a"


@pytest.mark.parametrize(("form", "marker"), [(form, marker) for form in FORMS for marker in FORMS[form].drop])
def test_dropped_markers_of_a_form_are_not_in_the_text(form: str, marker: str) -> None:
    assert ResponseParser(form, thinking=False).parse(f"{marker}ab").content == "ab"


@pytest.mark.parametrize("name", ["directly_answer", "directly-answer"])
@pytest.mark.parametrize(
    ("form", "start", "end"),
    [("command-r", "Action: ```json", "```"), ("command-r7b", "<|START_ACTION|>", "<|END_ACTION|>")],
)
def test_a_call_of_directly_answer_is_omitted(name: str, form: str, start: str, end: str) -> None:
    call = json.dumps([{"tool_name": name, "parameters": {}}])
    assert message_contents(ResponseParser(form).parse(f"{start}{call}{end}So.")) == ["So."]


JSON_CALLS = {
    "hermes": ["<tool_call>"],
    "qwen-xml": ["<tool_call>"],
    "llama": ["<|python_tag|>", "<|python_start|>"],
    "lfm2": ["<|tool_call_start|>"],
    "mistral": ["[TOOL_CALLS]"],
    "internlm": ["<|action_start|><|plugin|>", "<|action_start|> <|plugin|>", "<|action_start|>\n<|plugin|>"],
    "command-r": ["Action:```json", "Action: ```json", "Action:\n```json"],
    "command-r7b": ["<|START_ACTION|>"],
    "phi-4-mini": ["<|tool_call|>", "functools"],
    "granite": ["<|tool_call|>", "<tool_call>"],
    "nemotron-nano-2": ["<TOOLCALL>"],
    "exaone-deep": ["<tool_call>"],
}
STARTS = [(form, start) for form, starts in JSON_CALLS.items() for start in starts]


@pytest.mark.parametrize(("form", "start"), STARTS)
def test_a_json_tool_call_is_streamed_before_it_is_complete(form: str, start: str) -> None:
    stream = ResponseParser(form, thinking=False).stream()
    deltas = stream.feed(f'{start}[{{"name": "now", "arguments": {{"a": 1')
    assert [delta.name for delta in deltas if delta.kind == "tool_call"][:1] == ["now"]


@pytest.mark.parametrize(
    ("form", "start"), [(form, start) for form, start in STARTS if form not in ("llama", "lfm2", "command-r")]
)
def test_a_json_tool_call_with_single_quotes_is_parsed(form: str, start: str) -> None:
    found = message_contents(ResponseParser(form, thinking=False).parse(f"{start}[{{'name': 'now'}}]"))
    assert (found == [("now", {})]) is (start != "functools")


# How responses start, if not with text.
RESPONSE_STARTS: dict[str, str] = {
    **dict.fromkeys(("hermes", "qwen-xml", "deepseek", "qwen3", "glm-4.5"), "either"),
    **dict.fromkeys(("qwq", "qwen3-thinking-2507", "qwen3.5", "qwen3.6", "glm-4.7"), "thought"),
    **dict.fromkeys(("deepseek-r1", "deepseek-r1-distill"), "thought"),
    **dict.fromkeys(("minimax-m2", "nemotron-nano-2", "exaone-deep"), "thought"),
}


@pytest.mark.parametrize("name", [*dict.fromkeys([*FORMS, *FAMILIES])])
def test_each_form_and_family_has_its_expected_response_start(name: str) -> None:
    assert form_of(name)[1] == RESPONSE_STARTS.get(name, "answer")


# Names of models and families by form.
NAMES = {
    "qwen-xml": "qwen3-coder-30b qwen3.5-4b qwen-3.6-x qwen3-5 nemotron-3-nano nemotron-3.5-lightning",
    "llama": "llama-3.1-8b llama3.3 llama-3-2-1b llama-4-scout llama4",
    "mistral": "mistral-v3 mistral-v11 mistral-nemo mistral-small-24b mistral-medium mistral-large ministral devstral",
    "deepseek": "deepseek-v3 deepseek-v3.1 deepseek-v3-1 deepseek-r1-0528",
    "internlm": "internlm2-chat internlm3 internlm-2",
    "glm-4.5": "glm-4.5-air glm-4.9 glm-5 glm4.6",
    "glm-4": "glm-4-9b glm4",
    "command-r7b": "command-r7b-12-2024 command-a",
    "command-r": "command-r command-r-plus",
    "phi-4-mini": "phi-4-mini-instruct phi4-mini",
    "granite": "granite-3 granite-4.0-h granite-3.3-8b",
    "gemma-4": "gemma-4-31b gemma4",
    "harmony": "gpt-oss-20b gptoss",
    "kimi-k2": "kimi-k2-instruct kimi-k2.5",
    "minimax-m2": "minimax-m2 minimax-m2.5",
    "seed-oss": "seed-oss-36b",
    "nemotron-nano-2": "nemotron-nano-2 nemotron-nano-9b-v2 nemotron-nano-12b-v2",
    "lfm2": "lfm2-1.2b lfm-2 lfm2.5",
    "exaone-deep": "exaone-deep-7.8b",
    "hermes": "qwen2.5-7b qwen3-8b llama-3-8b mistral-v1 deepseek-v2 phi-4 gemma-3 exaone-4 qwq vicuna zephyr",
}


@pytest.mark.parametrize(("form", "name"), [(form, name) for form, names in NAMES.items() for name in names.split()])
def test_a_model_name_selects_its_form(form: str, name: str) -> None:
    assert FORMS[form].stop == form_of(name)[0].stop
    assert FORMS[form].calls == form_of(name)[0].calls[: len(FORMS[form].calls)]


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [("<think>\n", True), ("a<|START_THINKING|>", True), ("[THINK]", True), ("<think></think>", False), ("", False)],
)
def test_a_prompt_that_opens_the_reasoning_is_detected(prompt: str, opened: bool) -> None:  # noqa: FBT001 - a case
    assert opens_thought(prompt) is opened


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["Look.", None], ids=["text and calls", "calls alone"])
def test_tool_calls_rendered_for_a_family_are_parsed_back(family: str, text: str | None) -> None:
    arguments = PLAIN if family == "lfm2.5" else ARGUMENTS  # its template writes texts without escapes
    written: list[Block] = [ToolUseBlock("abcdefgh0", "get_weather", arguments), ToolUseBlock("abcdefgh1", "now", {})]
    if text is not None:
        written.insert(0, TextBlock(text))
    answer = Msg("assistant", tuple(written), "assistant")
    prompter = ChatPrompter(system="")
    sample = prompter.training_sample("Hi", answer, model=family)
    output = sample.text.removeprefix(prompter.generate_prompt("Hi", model=family)).lstrip()
    assert output.rstrip() in prompter.generate_prompt("Well?", [Msg("user", "Hi", "user"), answer], model=family)
    deltas, message = stream_deltas(ResponseParser(family, tools=TOOLS, thinking=False), output)
    assert message_contents(message) == [*([text] if text else []), ("get_weather", arguments), ("now", {})]
    check_deltas(deltas, message)


def test_no_marker_of_a_form_is_a_prefix_of_another() -> None:
    """Otherwise the parsed marker would depend on where a chunk ends."""
    for name in {*FORMS, *FAMILIES}:
        form, _, stop = form_of(name)
        parts = [(each.start, each.end, each.separator, each.quote) for each in form.calls]
        markers = sorted(
            {*stop, *form.drop, *(form.thought or ()), *(mark for marks in parts for mark in marks if mark)}
        )
        assert [(a, b) for a, b in itertools.pairwise(markers) if b.startswith(a)] == []


@pytest.mark.parametrize(
    ("name", "near"), [("hermess", "hermes"), ("harmny", "harmony"), ("qwne3", "qwen3"), ("kimi-2", "kimi-k2")]
)
def test_an_unknown_form_name_is_an_error_with_a_suggestion(name: str, near: str) -> None:
    with pytest.raises(TemplateError, match=f"{name}.*did you mean '{near}'.*expected a format .hermes,"):
        ResponseParser(name)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        *(({"form": 3}, TemplateError), ({"form": ""}, TemplateError), ({"form": "dolphin-llama-4"}, TemplateError)),
        *(({"thinking": "yes"}, TemplateError), ({"tools": "get_weather"}, ToolsError), ({"tools": 3}, ToolsError)),
        *(({"tools": {"name": "f"}}, ToolsError), ({"tools": [3]}, ToolsError)),
        ({"tools": [{"function": {}}]}, ToolsError),
    ],
)
def test_a_wrong_parser_option_is_an_error(wrong: dict[str, object], error: type[LazyPromptError]) -> None:
    options: dict[str, object] = {"form": "hermes", **wrong}
    with pytest.raises(error):
        ResponseParser(**options)  # type: ignore[arg-type]


def test_a_parser_can_be_pickled() -> None:
    parser = pickle.loads(pickle.dumps(ResponseParser("qwen3.5", tools=TOOLS)))  # noqa: S301 - our own bytes
    assert message_contents(parser.parse(EXAMPLES["qwen-xml"][0][0])) == EXAMPLES["qwen-xml"][0][1]


def test_custom_markers_end_the_response() -> None:
    """The response went on into the next turn if an engine ignored the stop texts."""
    parser = ResponseParser(Markers(soh="<human>", eoh="</human>", soa="<bot>", eoa="</bot>"))
    assert parser.parse("So it is.</bot>\n<human>And").content == "So it is."
    assert parser.parse("So it is.\n<human>And").content == "So it is.\n"
    stream = parser.stream()
    assert [delta.text for delta in stream.feed("So it is.</b")] == ["So it is."]
    assert stream.feed("ot>\nAnd") == []
    assert stream.finish().content == "So it is."


@pytest.mark.parametrize(
    "pattern",
    [
        ("CALL ", " WITH ", " ENDCALL"),
        ("CALL ", " ", ""),
        ("\nAction: ", "\nAction Input: ", "\n"),
        ("<call>", "(", ")</call>"),
        ('{"name": "', '", "parameters": ', "}"),
        ('TOOL:\n{"name": "', '", "arguments": ', "}\nEND"),
        ('CALLS [{"name": "', '", "arguments": ', "}]\nEND"),
    ],
)
@pytest.mark.parametrize("family", ["", "qwen2.5"])
def test_custom_tool_calls_are_parsed_whole_and_streamed(pattern: tuple[str, str, str], family: str) -> None:
    """The parser looked for Hermes calls, whatever the markers of the tool calls were."""
    start, between, end = pattern
    base = Markers.for_model(family) if family else Markers(soh="<U>", eoh="</U>", soa="<A>", eoa="</A>")
    markers = base.evolve(tool_start=start, tool_args=between, tool_end=end)
    given: list[Any] = [
        {"type": "text", "text": "I see, so I CAL."},
        {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": {"b": 'x "} END'}}},
        {"type": "tool_use", "id": "call_1", "name": "g", "input": {}},
    ]
    history: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": given}]
    prompt = ChatPrompter("", system="").with_markers(markers).generate_prompt("Then?", history, tools=TOOLS)
    answer = prompt.partition(markers.soa)[2].partition(markers.eoa)[0] + markers.eoa
    parser = ResponseParser(markers, tools=["f", "g"])
    expected = Msg(name="assistant", role="assistant", content=given)
    assert parser.parse(answer).blocks == expected.blocks
    assert parser.parse(answer.replace("\nEND", " END")).blocks == expected.blocks
    assert parser.parse(answer.replace(given[0]["text"], "").lstrip()).blocks == expected.blocks[1:]
    stream = parser.stream()
    for character in answer:
        stream.feed(character)
    assert stream.finish().blocks == expected.blocks


@pytest.mark.parametrize(
    "text",
    ["I will CALL you.", "CALL", "CALL f ENDCALL", "CALL f, g WITH {} ENDCALL", '{"name": "f", "arguments": {}}'],
)
def test_text_that_only_starts_like_a_custom_tool_call_stays_text(text: str) -> None:
    markers = Markers(tool_start="CALL ", tool_args=" WITH ", tool_end=" ENDCALL")
    assert ResponseParser(markers).parse(text).content == text


@pytest.mark.parametrize(
    ("markers", "text"),
    [
        (Markers(tool_start='<call name="', tool_args='">', tool_end="</call>"), '<call name="f">{}</call>'),
        (Markers(tool_form=ToolForm(call="<call>{arguments} {name}</call>")), "<call>f {}</call>"),
        (Markers(tool_form=ToolForm(call="<call>{name} {arguments}</call>", argument="{key}")), "<call>f {}</call>"),
    ],
)
def test_custom_tool_calls_that_cannot_be_parsed_stay_text(markers: Markers, text: str) -> None:
    assert ResponseParser(markers).parse(text).content == text
    assert message_contents(ResponseParser(markers).parse('<tool_call>{"name": "f"}</tool_call>')) == [("f", {})]
