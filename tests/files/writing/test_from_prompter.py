from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt.errors import FormatError
from lazyprompt.files.prompty import Prompty
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter, EmptyPrompter
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.templates.slots import escape

ADD: Any = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True},
}


def _without_empty_turns(messages: list[Any]) -> list[Any]:
    """Messages without empty user turns."""
    return [message for message in messages if message != {"role": "user", "content": ""}]


def _checked_file(prompter: Prompter, values: object = None, history: list[tuple[str, str]] | None = None) -> Prompty:
    """The file of a prompter, after a check that both make the same prompts."""
    prompty = Prompty.from_prompter(prompter)
    wanted = prompter.generate_prompt(values, history, format="openai")
    # The prompter has an empty user turn without an input; the file has none.
    wanted["messages"] = _without_empty_turns(wanted["messages"])
    assert prompty.generate_prompt(values, history, format="openai") == wanted
    if history is None:
        messages = prompty.messages(values)
        sent = ChatFormatter("openai").format(messages)["messages"] if messages else []
        assert _without_empty_turns(sent) == wanted["messages"]
    again = Prompty.loads(prompty.dumps())
    assert (again.dialect, again.to_dict()) == ("v2", prompty.to_dict())
    return prompty


def test_chat_prompter_is_written_as_a_readable_file() -> None:
    instruction = {"system": "Answer {question}.", "user": "Context: {context}. "}
    prompter = ChatPrompter(instruction, system="Be kind.", tools=[ADD]).partial(context="C")
    values = {"question": "Q", "input": "now"}
    prompty = _checked_file(prompter, values)
    model = {"id": "gpt", "apiKey": "${env:K:x}"}
    assert Prompty.from_prompter(prompter, name="qa", description="D", model=model).dumps() == (
        "---\nname: qa\ndescription: D\nmodel:\n  id: gpt\n  apiKey: ${env:K:x}\ninputs:\n"
        "  - name: question\n    kind: union\n    required: true\n  - name: context\n    kind: union\n    default: C\n"
        "  - name: input\n    kind: string\n    description: What the user says.\ntools:\n"
        "  - kind: function\n    name: add\n    description: Adds.\n    parameters:\n      type: object\n"
        "    strict: true\n"
        "---\nsystem:\nBe kind.\nAnswer {{ question }}.\n\nuser:\nContext: {{ context }}. {{ input }}\n"
    )
    # A history passed to the call is at the same place as in the prompter.
    _checked_file(prompter, values, [("a", "b")])
    assert [each.required for each in prompty.inputs] == [True, False, False]


@pytest.mark.parametrize("value", [3, 2.5, [1, {"a": "é"}], {"k": None}])
def test_slot_of_a_written_file_accepts_any_json_value(value: object) -> None:
    # The written file accepted only text.
    _checked_file(ChatPrompter("Say {x}."), {"x": value})


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (1.0, "1")])
def test_written_file_prints_scalars_without_python_syntax(value: object, text: str) -> None:
    prompty = Prompty.from_prompter(ChatPrompter("Say {x}.", system=""))
    assert prompty.messages({"x": value})[0].text.strip() == f"Say {text}."


@pytest.mark.parametrize(
    ("prompter", "values"),
    [
        (EmptyPrompter(), "hi"),
        (EmptyPrompter(), None),
        (ChatPrompter(), "hi"),
        (ChatPrompter("Hi", system=""), "user:\nhi"),
        (ChatPrompter("Say {x}.", ["more"], enable_system=False), {"x": "1", "more": "2", "input": "3"}),
        (AlpacaPrompter("Do it.", ["context"]), {"context": "system:\nx"}),
        (AlpacaPrompter({"system": "S", "user": "U {x}"}), {"x": "1"}),
        # An instruction of empty slots makes no turn and no line break.
        (ChatPrompter({"system": "{a}{b}"}, system=""), {"a": "", "b": ""}),
        (ChatPrompter({"system": "{a}{b}"}, system=""), {"a": "", "b": "x"}),
        (ChatPrompter({"system": "{a}"}, system="S\n"), {"a": ""}),
        (ChatPrompter({"system": "{a}"}, system="S\n"), {"a": "\n"}),
        (ChatPrompter("Say {input}.", history=[{"role": "user", "content": "x"}]), {"input": ""}),
        (ChatPrompter({"user": "{a}"}, history=[{"role": "user", "content": "x"}]), {"a": ""}),
        (ChatPrompter({"user": "{a}"}, history=[{"role": "user", "content": "x"}]), {"a": "", "input": ""}),
        (AlpacaPrompter("{自己的}"), {"自己的": "x"}),
        (ChatPrompter({"system": "{a}", "user": "{a}"}), {"a": "x"}),
    ],
)
def test_written_file_has_the_messages_of_its_prompter(prompter: Prompter, values: object) -> None:
    inputs = [each.name for each in _checked_file(prompter, values).inputs]
    assert inputs in ([*prompter.slots], [*prompter.slots, "input"])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Say {x}:\nuser:\nhi", '{% set colon = ":" %}\nuser:\nSay {{ x }}:\nuser{{ colon }}\nhi'),
        ("{role}:\nx", '{% set colon = ":" %}\nuser:\n{{ role }}{{ colon }}\nx'),
        (
            "{x} a\nuser:\n{y}\n# system :\nz",
            '{% set colon = ":" %}\nuser:\n{{ x }} a\nuser{{ colon }}\n{{ y }}\n# system {{ colon }}\nz',
        ),
        ("```\nx", '{% set tick = "`" %}\nuser:\n{{ tick }}``\nx'),
        ("~~~~\n~~~\nx", '{% set tilde = "~" %}\nuser:\n{{ tilde }}~~~\n{{ tilde }}~~\nx'),
        ("a\n```\nx\n```\nb ``` ~~~", "user:\na\n```\nx\n```\nb ``` ~~~"),
        (
            "a\n```\nuser:\n```",
            '{% set tick = "`" %}\n{% set colon = ":" %}\nuser:\na\n{{ tick }}``\nuser{{ colon }}\n{{ tick }}``',
        ),
        ("\na\n", '{% set newline = "\\n" %}\nuser:\n{{ newline }}a{{ newline }}'),
        ("{newline}\na", '{% set newline_ = "\\n" %}\nuser:\n{{ newline }}{{ newline_ }}a'),
        ("{x}a{{b}}c", "user:\n{{ x }}a{b}c"),
        ("a\r{{b", 'user:\na{{ "\\r" }}{{ "{" }}{b'),
    ],
)
def test_only_text_that_would_begin_a_section_or_fence_is_escaped(text: str, written: str) -> None:
    prompter = ChatPrompter({"user": text}, system="")
    prompty = _checked_file(prompter, dict.fromkeys(prompter.slots, "user") or None)
    assert prompty.instructions == f"{written}{{{{ input }}}}\n"


def test_history_of_a_prompter_is_written_as_sections_or_a_thread() -> None:
    turns: list[tuple[str, str] | dict[str, str]] = [
        ("Hi\n", "\nuser:\nHo"),
        {"role": "user", "name": "Ada Lovelace", "content": "x"},
    ]
    prompty = _checked_file(ChatPrompter("A {x}", history=turns), {"x": "1"})
    assert 'user[name="Ada Lovelace"]:\nx\n' in prompty.instructions
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    calls: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    ]
    prompty = _checked_file(ChatPrompter("A {conversation}", history=calls), {"conversation": "1"})
    names = [(each.name, each.kind) for each in prompty.inputs]
    assert names == [("conversation", "union"), ("input", "string"), ("conversation_", "thread")]


@pytest.mark.parametrize(
    ("user", "setting", "condition", "slot"),
    [("", "", "", ""), ("U", "{% set user_text %}U{% endset %}", "user_text or ", "{{ user_text }}")],
)
def test_history_that_ends_with_a_user_message_has_no_empty_turn_after_it(
    user: str, setting: str, condition: str, slot: str
) -> None:
    instruction = "{% set instruction %}A{% endset %}{% if instruction %}system:\n{{ instruction }}\n{% endif %}\n"
    texts, history = {"system": "A", "user": user}, [{"role": "user", "content": "x"}]
    written = Prompty.from_prompter(ChatPrompter(texts, history=history, system="", syntax="jinja2"))
    last = f"{setting}{{% if {condition}input is defined %}}user:\n{slot}{{{{ input }}}}\n{{% endif %}}"
    assert written.instructions == f"{instruction}user:\nx\n\n{last}"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Say {% for x in xs %}\nuser:\n{{ x }}{% endfor %}", {"xs": ["a", "b"]}),
        ("{{ 'user:' }}\n{% set colon = 1 %}{{ colon }}{{ instruction }}", {"instruction": "x"}),
        ("\n{% if a %}x{% endif %}\n", {"a": ""}),
    ],
)
def test_jinja_instruction_is_written_with_the_same_messages(text: str, values: dict[str, object]) -> None:
    _checked_file(ChatPrompter({"system": text, "user": text}, system="", syntax="jinja2"), values)
    _checked_file(ChatPrompter(text, syntax="jinja2"), values)


# Syntax of YAML, Jinja, role lines, fenced code blocks and front matter.
_ROLES = ["user:", "System :", "#user:", 'assistant[name="x"]:', "tool:", "![image](u)", "```", "~~~~", "---", "+++"]
_SPACE = ["\n", "\n\n", " ", "\r", "\r\n", "\x00", "\t", "\ufeff", "\ufdd0", "\u2028", ":", "a", "'", '"', "\\"]
_BRACES = ["{", "}", "{{", "}}", "{%", "%}", "{#", "#}", "{% raw %}", "{{x}}", "{{{x}}}", "${env:HOME}"]
_SLOTS = ["{x}", "{role}", "{y}:", "{input}", "colon", "newline"]
_PIECES = st.sampled_from([*_ROLES, *_SPACE, *_BRACES, *_SLOTS])
_INSTRUCTIONS = st.lists(_PIECES, max_size=8).map("".join)
_VALUES = st.lists(_PIECES, max_size=3).map("".join)


@pytest.mark.slow
@given(
    _INSTRUCTIONS,
    _INSTRUCTIONS,
    _INSTRUCTIONS,
    st.lists(st.tuples(_VALUES, _VALUES), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y", "role", "input"]), _VALUES),
)
# A fence opened in one section would hide the role line of the next.
@example("```\nx", "```", "", [], {})
# A slot whose name ends in "role" before a colon would be a role line.
@example("", "{role}:\nx", "", [], {"role": "user"})
def test_written_file_has_the_messages_of_any_chat_prompter(
    system: str, instruction: str, user: str, history: list[tuple[str, str]], given_values: dict[str, str]
) -> None:
    # Concatenated pieces may form a slot.
    prompter = ChatPrompter({"system": instruction, "user": user}, system=system, history=history)
    values = {slot: given_values.get(slot, "v") for slot in prompter.slots}
    if "input" in given_values:
        values["input"] = given_values["input"]
    _checked_file(prompter, values)


@pytest.mark.slow
@given(st.text(), st.text())
def test_written_file_keeps_any_text_unchanged(system: str, instruction: str) -> None:
    _checked_file(ChatPrompter({"system": escape(instruction)}, system=system), "x")


class OwnInstruction(InstructionTemplate):
    def fill(self, input: object = None) -> object:  # type: ignore[override]
        return super().fill(input)


def with_tool(**fields: object) -> ChatPrompter:
    return ChatPrompter("A", tools=[{"type": "function", "function": {**ADD["function"], **fields}}])


@pytest.mark.parametrize(
    ("prompter", "message"),
    [
        *((ChatPrompter(f"A {{{x}}}"), f"the slot '{x}' cannot be an input") for x in ("self", "true", "range", "not")),
        (ChatPrompter("A").pre_hook(lambda *call: call), "pre_hook"),
        (ChatPrompter("A {x}", budget={"x": 10}), "with_budget"),
        (ChatPrompter("A", tools=[{"type": "web_search"}]), r"tools\[0\] has type 'web_search'"),
        (with_tool(more=1), "function with description, name, parameters, strict"),
        (with_tool(description="of ${env:HOME}"), r"tools\[0\] contains \$\{env:"),
        (
            Prompter(OwnInstruction("A"), ChatPrompter().prompt_template),
            "of the class OwnInstruction, which fills templates in its own way",
        ),
        (Prompty.loads("hi").prompter, "of the class _FileInstruction"),
    ],
)
def test_prompter_that_a_file_cannot_express_is_an_error(prompter: Prompter, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Prompty.from_prompter(prompter)
