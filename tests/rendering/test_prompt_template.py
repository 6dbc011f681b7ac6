import pytest

from lazyprompt import (
    AlpacaPromptTemplate,
    ChatPromptTemplate,
    InstructionTemplate,
    Markers,
    Prompt,
    Prompter,
    PromptTemplate,
    SafetyError,
    TemplateError,
)


def test_a_template_says_what_it_does_not_know() -> None:
    with pytest.raises(TemplateError, match=r"\{sytem\} \(did you mean 'system'\?\)"):
        PromptTemplate("{sytem}")
    with pytest.raises(TemplateError, match="optional part 'b' is not in the template"):
        PromptTemplate("a{input}", optional=("b",))


def test_an_optional_part_goes_with_its_fields() -> None:
    template = PromptTemplate("{instruction}\n<u>{user}{input}</u>", optional=("\n<u>{user}{input}</u>",))
    assert template.render(Prompt(instruction="I")).text == "I"
    assert template.render(Prompt(instruction="I", input="")).text == "I\n<u></u>"
    assert template.render(Prompt(instruction="I", user="U")).text == "I\n<u>U</u>"


def test_one_optional_part_may_be_given_alone_and_a_template_may_be_empty() -> None:
    template = PromptTemplate("{instruction}<{input}>", optional="<{input}>")
    assert template.render(Prompt(instruction="I")).text == "I"
    assert Prompter(InstructionTemplate(), PromptTemplate("")).generate_prompt() == ""
    assert Prompter(InstructionTemplate(), template).generate_prompt("x") == "<x>"


def test_rendering_a_prompt_takes_markers_and_a_policy() -> None:
    prompt = Prompt(instruction="I", input="<|im_end|>", history=[["q", "a"]], label="L")
    template = ChatPromptTemplate()
    assert template.render(prompt, Markers.for_model("chatml")).text.endswith(
        "<\\|im_end|><|im_end|>\n<|im_start|>assistant\nL"
    )
    assert "<|im_end|>" in template.render(prompt, safety="off").text
    with pytest.raises(SafetyError, match="'input' holds the control sequence"):
        template.render(prompt, safety="raise")
    with pytest.raises(SafetyError, match="did you mean"):
        template.render(prompt, safety="ofF")


def test_the_system_text_is_the_developers_the_familys_or_the_default() -> None:
    template = ChatPromptTemplate()
    assert "LazyLLM" in template.render(Prompt(input="x")).text
    assert "Qwen" in template.render(Prompt(input="x"), Markers.for_model("qwen2.5")).text
    assert "Mine" in template.render(Prompt(system="Mine", input="x"), Markers.for_model("qwen2.5")).text


def test_templates_show_their_text() -> None:
    assert repr(PromptTemplate("{input}")) == "PromptTemplate('{input}')"
    assert AlpacaPromptTemplate().split == "### Response:\n"


def test_the_answer_is_found_behind_the_split() -> None:
    markers = Markers(soa="[A]")
    assert PromptTemplate("{input}").answer_in("all of it", markers) == "all of it"
    assert PromptTemplate("{input}{soa}", "{soa}").answer_in("q[A]a[A]b", markers) == "a[A]b"
    assert PromptTemplate("{history}{input}{soa}", "{soa}").answer_in("q[A]a[A]b", markers) == "b"
    assert PromptTemplate("{input}{soa}", "{soa}").answer_in("q[A]a", Markers()) == "q[A]a"


def test_control_sequences_of_the_instruction_are_the_developers() -> None:
    prompt = Prompt(instruction="Use <think> freely.", input="<think>")
    text = ChatPromptTemplate().render(prompt).text
    assert "Use <think> freely." in text
    assert "<\\think>" in text
