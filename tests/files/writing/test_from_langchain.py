"""Prompts that LangChain saved, read as prompt files: the same messages, or a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import Prompty
from lazyprompt.errors import FormatError, LazyPromptError
from lazyprompt.files.writing.langchain import from_langchain, langchain_data
from lazyprompt.messages.openai_form import to_openai

# Written by langchain-core 1.7.2 with dumps() and save(), with the messages that it makes of the values.
SAVED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("langchain_prompts.json").read_text("utf-8"))


def read(data: object, name: str = "x.json") -> Prompty:
    found = langchain_data(json.dumps(data), name)
    assert found is not None
    return Prompty.loads(from_langchain(found, "x").text)


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without empty fields, arguments as values."""
    made = [{key: value for key, value in each.items() if value} for each in json.loads(json.dumps(messages))]
    for each in made:
        for call in each.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return made


def lc(kind: str, **fields: object) -> dict[str, object]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", kind], "kwargs": fields}


def chat(*messages: object, **fields: object) -> dict[str, object]:
    return lc("ChatPromptTemplate", messages=[*messages], **fields)


def human(template: str, syntax: str = "f-string") -> dict[str, object]:
    return lc("HumanMessagePromptTemplate", prompt=lc("PromptTemplate", template=template, template_format=syntax))


@pytest.mark.parametrize("case", SAVED)
def test_a_prompt_makes_the_messages_that_it_makes_in_langchain(case: dict[str, Any]) -> None:
    prompt = read(case["saved"])
    made = [form for each in prompt.messages(case["values"]) for form in to_openai(each)]
    assert plain(made) == plain(case["messages"])
    assert Prompty.loads(prompt.dumps()).to_dict() == prompt.to_dict()


def test_the_oldest_form_in_json_and_in_yaml() -> None:
    old = {"input_variables": ["city"], "template": "Tell of {city}.", "output_parser": None}
    yaml = "_type: prompt\ninput_variables: [city]\ntemplate: Tell of {city}.\n"
    for data in (langchain_data(json.dumps(old), "a.json"), langchain_data(yaml, "a.yaml")):
        assert data is not None
        made = from_langchain(data, "a")
        assert made.notes == ()
        assert Prompty.loads(made.text).messages({"city": "Graz"})[0].text == "Tell of Graz."


def test_what_a_file_leaves_out_is_noted() -> None:
    place = lc("MessagesPlaceholder", variable_name="past", n_messages=2)
    found = chat(place, human("{{q}}", "mustache"), metadata={"a": 1})
    made = from_langchain(found, "x")  # type: ignore[arg-type]
    assert [note.split(":")[0] for note in made.notes] == [
        "n_messages=2 of past is left out",
        "LangChain escapes values in Mustache as HTML; they are written as they are here",
        "metadata is left out",
    ]


def test_values_that_are_given_already_are_defaults() -> None:
    prompt = read(chat(human("{a} {b} {c}"), partial_variables={"a": "A"}, optional_variables=["b"]))
    assert {each.name: (each.required, each.default) for each in prompt.inputs} == {
        "a": (False, "A"),
        "b": (False, None),
        "c": (True, None),
    }
    assert prompt.messages({"b": 2, "c": "C"})[0].text == "A 2 C"


def test_pictures_are_inputs() -> None:
    parts = [
        lc("PromptTemplate", template="See {x}:", template_format="f-string"),
        lc("ImagePromptTemplate", template={"url": "{pic}"}),
        lc("ImagePromptTemplate", template={"url": "https://a.example/b.png"}),
    ]
    prompt = read(chat(lc("HumanMessagePromptTemplate", prompt=parts)))
    (message,) = prompt.messages({"x": "this", "pic": "https://a.example/a.png"})
    assert [block.kind for block in message.blocks] == ["text", "image", "image"]


def test_names_of_a_prompt_are_never_those_that_the_file_sets() -> None:
    """The second turn's ``text`` would be the first turn's whole text."""
    two = lc("PromptTemplate", template="2 {{ a }}", template_format="jinja2")
    both = lc("HumanMessagePromptTemplate", prompt=[two, lc("PromptTemplate", template="3", template_format="jinja2")])
    prompt = read(chat(human("1 {{ a }}", "jinja2"), both, human("{{ text }} {{ fixed }}", "jinja2")))
    texts = [each.text for each in prompt.messages({"a": "A", "text": "T", "fixed": "F"})]
    assert texts == ["1 A", "2 A3", "T F"]


REFUSED: list[tuple[object, str]] = [
    ({"a": 1}, "no prompt that LangChain saved"),
    ([1], "no prompt that LangChain saved"),
    (chat(human("{n:>5}")), "has the format '>5'"),
    (chat(human("{n!r}")), "has the format 'r'"),
    (chat(human("{a.b}")), "is no name of an input"),
    (chat(human("{0}")), "is no name of an input"),
    (chat(human("{")), "is no f-string"),
    (chat(human("{% if %}", "jinja2")), "cannot be read"),
    (chat(human("{{#a}}x{{/a}}", "mustache")), "more than names"),
    (chat(human("x", "handlebars")), "'handlebars' is unknown"),
    (chat(lc("ChatMessagePromptTemplate", role="critic", prompt={})), "with the role 'critic'"),
    (chat("text"), "must be an object"),
    (chat(lc("HumanMessage", content=[{"type": "text", "text": "x"}])), "several blocks"),
    (chat(lc("MessagesPlaceholder", variable_name="a"), human("{a}")), "is both a union and a thread"),
    (lc("PipelinePromptTemplate"), "is no prompt that can be read"),
    ({"lc": 1, "type": "not_implemented", "id": ["x", "FewShotPromptTemplate"], "repr": "x"}, "only the repr"),
    ({"lc": 1, "type": "secret", "id": ["KEY"]}, "must be a constructor"),
    ({"_type": "prompt", "template_path": "a.txt"}, "is in another file, a.txt"),
    (
        {"_type": "few_shot", "examples": "a.json", "example_prompt": {"template": "x"}},
        "are selected, or in a file",
    ),
    ({"_type": "few_shot", "examples": [{}], "example_prompt": {"template": "{q}"}}, "has no 'q'"),
    (chat(human("{a}"), partial_variables={"a": "${env:HOME}"}), "would look up"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED)
def test_what_no_file_can_say_is_refused_with_a_reason(data: object, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read(data)


@pytest.mark.parametrize(("text", "name"), [("{", "a.json"), ("[" * 9999, "a.json"), ("a: [", "a.json")])
def test_a_broken_file_is_refused(text: str, name: str) -> None:
    with pytest.raises(FormatError, match="neither JSON nor YAML"):
        langchain_data(text, name)


@pytest.mark.parametrize(
    "text", ["user:\nHi.", "---\nname: a\n---\n{{ x }}", "{{ x }} is\n", "[user]\nHi.", "a: [", ""]
)
def test_other_text_is_left_to_other_readers(text: str) -> None:
    assert langchain_data(text, "a.prompty") is None


NAMES = (
    "template prompt content role messages variable_name examples example_prompt prefix template_format "
    "partial_variables tool_calls name url n_messages optional"
)
KINDS = (
    "PromptTemplate ChatPromptTemplate HumanMessagePromptTemplate MessagesPlaceholder AIMessage ImagePromptTemplate "
    "ToolMessage FewShotPromptTemplate StructuredPrompt"
)
TEXT = st.text(st.sampled_from("{}ab :!\n\ud800\x00`é"), max_size=6)
FIELDS = st.sampled_from(NAMES.split())


def constructed(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Constructors and mappings whose fields are such parts."""
    fields = st.dictionaries(FIELDS, part | st.lists(part, max_size=2), max_size=4)
    kinds = st.sampled_from(KINDS.split())
    return fields | st.tuples(kinds, fields).map(lambda made: lc(made[0], **made[1]))


PARTS = st.recursive(st.none() | st.booleans() | st.integers(-2, 2) | TEXT, constructed, max_leaves=12)


@given(constructed(PARTS), st.sampled_from(KINDS.split()))
def test_whatever_stands_in_a_file_it_is_read_or_refused(fields: dict[str, Any], kind: str) -> None:
    try:
        made = from_langchain(lc(kind, **fields), "x")  # type: ignore[arg-type]
        Prompty.loads(made.text)
    except LazyPromptError:
        return
    assert made.text.startswith("---\n")
