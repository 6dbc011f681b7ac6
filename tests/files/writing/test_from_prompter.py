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
    """Messages without empty turns of the user."""
    return [message for message in messages if message != {"role": "user", "content": ""}]


def _same(prompter: Prompter, values: object = None, history: list[tuple[str, str]] | None = None) -> Prompty:
    """The file of a prompter, after its prompts were found to be the same."""
    prompty = Prompty.from_prompter(prompter)
    wanted = prompter.generate_prompt(values, history, format="openai")
    # The empty turn that the documents print for Alpaca alone.
    wanted["messages"] = _without_empty_turns(wanted["messages"])
    assert prompty.generate_prompt(values, history, format="openai") == wanted
    if history is None:
        messages = prompty.messages(values)
        sent = ChatFormatter("openai").format(messages)["messages"] if messages else []
        assert _without_empty_turns(sent) == wanted["messages"]
    again = Prompty.loads(prompty.dumps())
    assert (again.dialect, again.to_dict()) == ("v2", prompty.to_dict())
    return prompty


def test_a_chat_prompter_reads_well() -> None:
    instruction = {"system": "Answer {question}.", "user": "Context: {context}. "}
    prompter = ChatPrompter(instruction, system="Be kind.", tools=[ADD]).partial(context="C")
    values = {"question": "Q", "input": "now"}
    prompty = _same(prompter, values)
    model = {"id": "gpt", "apiKey": "${env:K:x}"}
    assert Prompty.from_prompter(prompter, name="qa", description="D", model=model).dumps() == (
        "---\nname: qa\ndescription: D\nmodel:\n  id: gpt\n  apiKey: ${env:K:x}\ninputs:\n"
        "  - name: question\n    kind: union\n    required: true\n  - name: context\n    kind: union\n    default: C\n"
        "  - name: input\n    kind: string\n    description: What the user says.\ntools:\n"
        "  - kind: function\n    name: add\n    description: Adds.\n    parameters:\n      type: object\n"
        "    strict: true\n"
        "---\nsystem:\nBe kind.\nAnswer {{ question }}.\n\nuser:\nContext: {{ context }}. {{ input }}\n"
    )
    # A history that is given at the call has its place, as in the prompter.
    _same(prompter, values, [("a", "b")])
    assert [each.required for each in prompty.inputs] == [True, False, False]


@pytest.mark.parametrize("value", [3, 2.5, [1, {"a": "é"}], {"k": None}])
def test_a_slot_takes_any_value(value: object) -> None:
    # The file took text alone.
    _same(ChatPrompter("Say {x}."), {"x": value})


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (1.0, "1")])
def test_a_file_prints_a_scalar_as_files_do(value: object, text: str) -> None:
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
        # An instruction of nothing but slots that are empty is no turn, and no line break either.
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
def test_prompters(prompter: Prompter, values: object) -> None:
    inputs = [each.name for each in _same(prompter, values).inputs]
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
    prompty = _same(prompter, dict.fromkeys(prompter.slots, "user") or None)
    assert prompty.instructions == f"{written}{{{{ input }}}}\n"


def test_history() -> None:
    turns: list[tuple[str, str] | dict[str, str]] = [
        ("Hi\n", "\nuser:\nHo"),
        {"role": "user", "name": "Ada Lovelace", "content": "x"},
    ]
    prompty = _same(ChatPrompter("A {x}", history=turns), {"x": "1"})
    assert 'user[name="Ada Lovelace"]:\nx\n' in prompty.instructions
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    calls: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    ]
    prompty = _same(ChatPrompter("A {conversation}", history=calls), {"conversation": "1"})
    names = [(each.name, each.kind) for each in prompty.inputs]
    assert names == [("conversation", "union"), ("input", "string"), ("conversation_", "thread")]


def test_a_history_that_waits_has_no_empty_turn_behind_it() -> None:
    instruction = "{% set instruction %}A{% endset %}{% if instruction %}system:\n{{ instruction }}\n{% endif %}\n"
    for user, setting, condition, slot in (
        ("", "", "", ""),
        ("U", "{% set user_text %}U{% endset %}", "user_text or ", "{{ user_text }}"),
    ):
        texts, history = {"system": "A", "user": user}, [{"role": "user", "content": "x"}]
        waiting = Prompty.from_prompter(ChatPrompter(texts, history=history, system="", syntax="jinja2"))
        last = f"{setting}{{% if {condition}input is defined %}}user:\n{slot}{{{{ input }}}}\n{{% endif %}}"
        assert waiting.instructions == f"{instruction}user:\nx\n\n{last}"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Say {% for x in xs %}\nuser:\n{{ x }}{% endfor %}", {"xs": ["a", "b"]}),
        ("{{ 'user:' }}\n{% set colon = 1 %}{{ colon }}{{ instruction }}", {"instruction": "x"}),
        ("\n{% if a %}x{% endif %}\n", {"a": ""}),
    ],
)
def test_jinja(text: str, values: dict[str, object]) -> None:
    _same(ChatPrompter({"system": text, "user": text}, system="", syntax="jinja2"), values)
    _same(ChatPrompter(text, syntax="jinja2"), values)


# What means something to YAML, to Jinja, to the lines of roles, to fences and to front matters.
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
# A fence that one section opens would hide the role of the next.
@example("```\nx", "```", "", [], {})
# A slot whose name ends in "role" would stand for one before a colon.
@example("", "{role}:\nx", "", [], {"role": "user"})
def test_the_messages_are_those_of_the_prompter(
    system: str, instruction: str, user: str, history: list[tuple[str, str]], given_values: dict[str, str]
) -> None:
    # Text that is no slot may still look like one once it stands beside other text.
    prompter = ChatPrompter({"system": instruction, "user": user}, system=system, history=history)
    values = {slot: given_values.get(slot, "v") for slot in prompter.slots}
    if "input" in given_values:
        values["input"] = given_values["input"]
    _same(prompter, values)


@pytest.mark.slow
@given(st.text(), st.text())
def test_any_text_stays_as_it_is(system: str, instruction: str) -> None:
    _same(ChatPrompter({"system": escape(instruction)}, system=system), "x")


def test_what_a_file_cannot_say() -> None:
    for slot in ("self", "true", "range", "not"):
        with pytest.raises(FormatError, match=f"the slot '{slot}' cannot be an input"):
            Prompty.from_prompter(ChatPrompter(f"A {{{slot}}}"))
    with pytest.raises(FormatError, match="pre_hook"):
        Prompty.from_prompter(ChatPrompter("A").pre_hook(lambda *call: call))
    with pytest.raises(FormatError, match="with_budget"):
        Prompty.from_prompter(ChatPrompter("A {x}", budget={"x": 10}))
    with pytest.raises(FormatError, match=r"tools\[0\] has type 'web_search'"):
        Prompty.from_prompter(ChatPrompter("A", tools=[{"type": "web_search"}]))
    more = {"type": "function", "function": {**ADD["function"], "more": 1}}
    with pytest.raises(FormatError, match="function with description, name, parameters, strict"):
        Prompty.from_prompter(ChatPrompter("A", tools=[more]))
    function = {**ADD["function"], "description": "of ${env:HOME}"}
    with pytest.raises(FormatError, match=r"tools\[0\] contains \$\{env:"):
        Prompty.from_prompter(ChatPrompter("A", tools=[{"type": "function", "function": function}]))

    class Own(InstructionTemplate):
        def fill(self, input: object = None) -> object:  # type: ignore[override]
            return super().fill(input)

    with pytest.raises(FormatError, match="of the class Own, which fills templates in its own way"):
        Prompty.from_prompter(Prompter(Own("A"), ChatPrompter().prompt_template))
    with pytest.raises(FormatError, match="of the class _FileInstruction"):
        Prompty.from_prompter(Prompty.loads("hi").prompter)
