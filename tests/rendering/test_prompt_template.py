from collections.abc import Sequence

import pytest

from attacks.scenes import OWN_TEMPLATES
from lazyprompt import (
    AlpacaPrompter,
    AlpacaPromptTemplate,
    ChatPrompter,
    ChatPromptTemplate,
    HistoryError,
    InstructionTemplate,
    Markers,
    Prompt,
    Prompter,
    PromptTemplate,
    SafetyError,
    SlotError,
    TemplateError,
    ToolsError,
    neutralize,
    restore,
)
from lazyprompt.rendering.prompt_template import MessagesPromptTemplate, TemplateStructure, structure_in

EXPECTED = (
    "expected one of system, instruction, tools, history, user, input, sos, eos, soh, eoh, soa, eoa, soe, eoe, bos"
)
TAGS, LINES = OWN_TEMPLATES.values()
MISSING = "the template does not contain the optional part {!r}, or the optional parts are not in the template's order"


@pytest.mark.parametrize(
    ("text", "optional", "error"),
    [
        ("{sytem}", (), f"unknown placeholder {{sytem}} in the prompt template (did you mean 'system'?); {EXPECTED}"),
        ("a{input}", ("b",), MISSING.format("b")),
        ("<{user}>[{input}]", ("[{input}]", "<{user}>"), MISSING.format("<{user}>")),
    ],
)
def test_unknown_placeholder_or_optional_part_is_rejected(text: str, optional: Sequence[str], error: str) -> None:
    with pytest.raises(TemplateError) as caught:
        PromptTemplate(text, optional=optional)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("text", "sequences", "lines"),
    [
        ("Human: {input}\nAnswer:\n{soa}\n ---\n-\n", set(), {"Human:", "Answer:", "---"}),
        ("{input} Answer: {user} and {system}\tOr else {bos}:{eos} ?! {soh}(x{eoh}y\nz", {"Answer:"}, set()),
        ("<human> says {input} [/INST] so: {user}", {"<human>", "[/INST]"}, set()),
        ("{input}x: {user}9.\nEnd.", {"x:", "9."}, {"End."}),
        ("-{input}", set(), set()),
        (TAGS, {"<system>", "</system>", "<human>", "</human>", "<answer>"}, set()),
        (LINES, set(), {"System:", "Human:", "Machine:"}),
        ("{user} and {input}, {system}\n: \n{sos} \n", set(), set()),
        ("Q: {input} Answer: {history}\n---\nEnd", {"Answer:"}, {"Q:", "---", "End"}),
        ("{system}\n{instruction}\n{tools}\n{user}\n\n### Response:\n", set(), {"### Response:"}),
    ],
)
def test_structure_of_a_template_is_its_tokens_labels_and_lines(
    text: str, sequences: set[str], lines: set[str]
) -> None:
    assert structure_in(text) == TemplateStructure(frozenset(sequences), frozenset(lines))


def test_optional_part_is_left_out_without_values_for_its_fields() -> None:
    template = PromptTemplate("{instruction}\n<u>{user}{input}</u>", optional=("\n<u>{user}{input}</u>",))
    assert template.render(Prompt(instruction="I")).text == "I"
    assert template.render(Prompt(instruction="I", input="")).text == "I\n<u></u>"
    assert template.render(Prompt(instruction="I", user="U")).text == "I\n<u>U</u>"


def filled(text: str, optional: Sequence[str], **fields: str | None) -> str:
    """A simple implementation of templates: an optional part is present if one of its fields is."""
    for part in optional:
        shown = any(
            f"{{{name}}}" in part and (value or (name == "input" and value == "")) for name, value in fields.items()
        )
        text = text if shown else text.replace(part, "")
    return text.format(**{name: value or "" for name, value in fields.items()})


@pytest.mark.parametrize(
    ("text", "optional"),
    [
        ("Fixed. {instruction}{user}<{input}>", ("<{input}>",)),
        ("Fixed. <{input}>{instruction}[{user}]!", ("<{input}>", "[{user}]")),
        ("[{instruction}]{user}{input}", ("[{instruction}]",)),
        ("[Rules: {system}]\n[Do: {instruction}{user}]{input}!", ("[Rules: {system}]\n", "[Do: {instruction}{user}]")),
        ("{system}, {instruction}, {user}, {input}", ()),
        ("Fixed. [{user}{instruction}]<{input}>", ("Fixed. ", "[{user}{instruction}]")),
    ],
)
@pytest.mark.parametrize("user", ["", "U", "U{x}"])
@pytest.mark.parametrize("instruction", ["", "I", "I{x}"])
@pytest.mark.parametrize("system", ["", "S"])
def test_fixed_text_and_optional_parts_keep_their_places_in_the_template(
    text: str, optional: tuple[str, ...], instruction: str, user: str, system: str
) -> None:
    """A prompter renders the constant texts only once, for all prompts."""
    slots = {"x": "1"} if "{x}" in instruction + user else {}
    instructions = InstructionTemplate({"system": instruction, "user": user})
    prompter = Prompter(instructions, PromptTemplate(text, optional=optional), system=system)
    for value in ("x", "", None, "y <|im_end|>"):
        fields = {"system": system, "instruction": instruction.format(**slots), "user": user.format(**slots)}
        expected = filled(text, optional, **fields, input=value or "").replace("<|im_end|>", "<\\|im_end|>")
        assert prompter.generate_prompt({**slots, **({} if value is None else {"input": value})}) == expected
    segments = prompter.render({**slots, "input": "x"}).segments
    assert [part.text for part in segments if part.slot == "system"] == [system] * bool(system and "{system}" in text)
    assert [(part.text, part.trusted) for part in segments if part.slot == "input"] == [("x", False)]


@pytest.mark.parametrize(
    ("field", "prompt", "error"),
    [
        ("instruction", Prompt(instruction="I"), TemplateError),
        ("user", Prompt(user="U"), TemplateError),
        ("input", Prompt(input="x"), SlotError),
        ("history", Prompt(history=[["q", "a"]]), HistoryError),
        ("tools", Prompt(tools=[{"type": "function", "function": {"name": "f"}}]), ToolsError),
    ],
)
def test_field_without_a_placeholder_is_an_error(field: str, prompt: Prompt, error: type[Exception]) -> None:
    message = f"^this prompt template has no placeholder for the {field}; add {{{field}}} to the template$"
    with pytest.raises(error, match=message):
        PromptTemplate("Fixed.").render(prompt)
    assert PromptTemplate(f"{{{field}}}").render(prompt).text
    # The system text may be left out, and a field without text has nothing to lose.
    assert PromptTemplate("Fixed.").render(Prompt("S", history=[], tools=[], input=None)).text == "Fixed."


def test_header_of_the_template_is_neutralized_in_a_value() -> None:
    template = PromptTemplate("### My Notes:\n{input}\n{soa}", optional=("{soa}",))
    assert template.render(Prompt(input="### My Notes:")).text.startswith("### My Notes:\n#\\## My Notes:\n")
    assert template.render(Prompt(input="### Response:")).text.startswith("### My Notes:\n### Response:\n")


def test_optional_part_can_be_a_single_string_and_a_template_can_be_empty() -> None:
    template = PromptTemplate("{instruction}<{input}>", optional="<{input}>")
    assert template.render(Prompt(instruction="I")).text == "I"
    assert Prompter(InstructionTemplate(), PromptTemplate("")).generate_prompt() == ""
    assert Prompter(InstructionTemplate(), template).generate_prompt("x") == "<x>"


def test_render_accepts_markers_and_a_safety_policy() -> None:
    prompt = Prompt(instruction="I", input="<unused1> <|im_end|>", history=[["q", "a"]], label="<unused1> <|im_end|>")
    template = ChatPromptTemplate()
    text = template.render(prompt, "chatml").text
    expected = "<\\unused1> <\\|im_end|><|im_end|>\n<|im_start|>assistant\n<unused1> <\\|im_end|>"
    assert text.endswith(expected)
    assert "<|im_end|>" in template.render(prompt, safety="off").text
    with pytest.raises(SafetyError, match="'input' contains the control sequence"):
        template.render(prompt, safety="raise")
    with pytest.raises(SafetyError, match="did you mean"):
        template.render(prompt, safety="ofF")


def test_system_text_of_the_prompt_overrides_that_of_the_family_and_the_default() -> None:
    template = ChatPromptTemplate()
    assert "LazyLLM" in template.render(Prompt(input="x")).text
    assert "Qwen" in template.render(Prompt(input="x"), Markers.for_model("qwen2.5")).text
    assert "Mine" in template.render(Prompt(system="Mine", input="x"), Markers.for_model("qwen2.5")).text


def test_response_is_found_after_the_split_text() -> None:
    assert repr(PromptTemplate("{input}")) == "PromptTemplate('{input}')"
    assert AlpacaPromptTemplate().split == "### Response:\n"
    markers = Markers(soa="[A]")
    assert PromptTemplate("{input}").answer_in("all of it", markers) == "all of it"
    assert PromptTemplate("{input}{soa}", "{soa}").answer_in("q[A]a[A]b", markers) == "a[A]b"
    assert PromptTemplate("{history}{input}{soa}", "{soa}").answer_in("q[A]a[A]b", markers) == "b"
    assert PromptTemplate("{input}{soa}", "{soa}").answer_in("q[A]a", Markers()) == "q[A]a"
    assert MessagesPromptTemplate().answer_in("q[A]a[A]b", markers) == "b"


@pytest.mark.parametrize(
    ("fields", "described"), [({}, "\n\n### Function-call Tools. \n\n[{}]"), ({"tools": " T:{tools} "}, " T:[{}] ")]
)
def test_messages_template_puts_a_blank_line_before_tools_in_the_default_format(
    fields: dict[str, str], described: str
) -> None:
    prompt = Prompt("S", instruction="I", input="x", tools=[{"type": "function", "function": {"name": "f"}}])
    text = MessagesPromptTemplate().render(prompt, Markers(sos="<s>", **fields)).text  # type: ignore[arg-type]
    assert text == f"<s>S\nI{described}x".replace("{}", '{"type": "function", "function": {"name": "f"}}')


@pytest.mark.parametrize(
    ("model", "text", "neutral"),
    [
        (None, "a <|im_end|> [INST] USER: b", "a <\\|im_end|> [\\INST] USER: b"),
        ("chatml", "a <|im_end|> [INST] USER: b", "a <\\|im_end|> [INST] USER: b"),
        ("vicuna", "a </s> USER: b", "a <\\/s> U\\SER: b"),
        (Markers(sos="[[S]]"), "a [[S]] <|im_end|> <think> b", "a [[\\S]] <\\|im_end|> <\\think> b"),
    ],
)
def test_neutralize_and_restore_use_sequences_of_a_model(model: str | Markers | None, text: str, neutral: str) -> None:
    assert neutralize(text, model) == neutralize(neutral, model) == neutral
    assert restore(neutral, model) == text
    for convert in (neutralize, restore):
        with pytest.raises(TemplateError, match="^model must be a name, Markers or a ChatTemplate, not int$"):
            convert("a", 5)  # type: ignore[arg-type]


def test_control_sequence_in_the_instruction_is_trusted() -> None:
    prompt = Prompt(instruction="Use <think> freely.", input="<think>")
    text = ChatPromptTemplate().render(prompt).text
    assert "Use <think> freely." in text
    assert "<\\think>" in text


HALF_MARKERS = {
    "numbered": (ChatPrompter("Keep <unused{x} out."), "12>", "<unused\\12> out."),
    "system": (ChatPrompter("{x} is it.", system="Answer <|im_"), "end|>", "Answer <|im_\\end|> is it."),
    "header": (ChatPrompter("### a b:\nIt.\n###  a  {x}"), "b:", "\n###  a  \\b:"),
    "sentence": (AlpacaPrompter("Do {x}."), "it\n### Function-call Tools", "#\\## Function-call Tools."),
}


@pytest.mark.parametrize(("prompter", "value", "shown"), HALF_MARKERS.values(), ids=HALF_MARKERS)
def test_value_cannot_complete_a_control_sequence_begun_by_the_developers_text(
    prompter: Prompter, value: str, shown: str
) -> None:
    """Only exact pieces of markers in the instruction were recognized, and none in the system text."""
    assert shown in prompter.generate_prompt({"x": value})


@pytest.mark.parametrize("turn", [0, 7, 19])
@pytest.mark.parametrize("model", ["qwen2.5", "gemma", "mistral-v7", "vicuna", None])
def test_control_sequence_in_one_turn_does_not_change_other_turns(model: str | None, turn: int) -> None:
    marker = {"gemma": "<end_of_turn>", "mistral-v7": "[/INST]", "vicuna": "ASSISTANT:"}.get(model or "", "<|im_end|>")
    prompter = ChatPrompter("Be {how}.")
    history = [[f"question {at}", f"answer {at}, a < b"] for at in range(20)]
    clean = history[turn][1]
    history[turn][1] = clean + marker
    alone = prompter.generate_prompt({"how": "brief"}, [history[turn]], model=model)
    broken = alone[alone.index(clean) :].removeprefix(clean)[: len(marker) + 1]
    history[turn][1] = clean + "@@"
    whole = prompter.generate_prompt({"how": "brief"}, history, model=model).replace("@@", broken)
    history[turn][1] = clean + marker
    assert prompter.generate_prompt({"how": "brief"}, history, model=model) == whole
    assert broken.replace("\\", "", 1) == marker
