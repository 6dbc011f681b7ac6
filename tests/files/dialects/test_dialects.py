"""Detection of the dialect of a prompt file, and the same conversation in each dialect."""

import pytest

from lazyprompt.errors import PromptFileError
from lazyprompt.files.dialects.dialects import DIALECTS
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.spec import Note

TEXTS_AND_DIALECTS = [
    # Text without a sign of a dialect is Prompty v2.
    ("", "v2"),
    ("Hello {{name}}", "v2"),
    ("---\nname: n\n---\nsystem:\nHi", "v2"),
    ("---\nmodel: {id: m, apiType: chat, options: {topP: 1}}\ninputs: {a: {kind: string}}\n---\n{{a}}", "v2"),
    ("---\ninputs: [{name: a, kind: string}]\nauthors: [x]\ntags: [y]\nversion: 1\n---\n{{a}}", "v2"),
    ("---\ninputs: {type: text}\n---\n{{type}}", "v2"),
    ("---\ninputs: {a: {type: string, kind: string}}\n---\n{{a}}", "v2"),
    ("---\ninput: text\noutput: [a]\nconfig: {a: 1}\n---\nx", "v2"),
    ("---\ntemplate: {format: mustache}\n---\n{{#if}}x{{/if}}", "v2"),
    ("{% raw %}{{#if x}}{{role 'user'}}{% endraw %}", "v2"),
    # Agent definitions.
    ("---\ninputSchema: {properties: {a: {kind: string}}}\n---\n{{a}}", "agentschema"),
    ("---\noutputSchema: {properties: {a: {kind: string}}}\n---\nx", "agentschema"),
    ("tools:\n- name: a\n\nuser:\nx", "agentschema"),
    ('assistant[type="tool_call"]:\nid: 1', "agentschema"),
    *((f"{role}:\n42", "agentschema") for role in ("tool", "function", "tools", "thread", "thread[name=a]")),
    *((f'![type="{kind}"](a.png)', "agentschema") for kind in ("image", "file", "audio")),
    ('![type="image", quality="high"](a.png)', "agentschema"),
    *((f"![{each}](a.png)", "v2") for each in ('type="video"', "image")),
    # Prompty v1, which has the role "function" too.
    ("---\nmodel: {api: chat}\n---\nx", "v1"),
    ("---\nmodel: {configuration: {type: openai}}\n---\nx", "v1"),
    ("---\nmodel: {parameters: {max_tokens: 3}}\n---\nfunction[tool_call_id=1]:\n42", "v1"),
    ("---\nsample: {a: 1}\n---\n{{a}}", "v1"),
    ("---\ninputs: {a: {type: string}}\n---\n{{a}}", "v1"),
    ("---\ninputs: [{name: a, type: string}]\n---\n{{a}}", "v1"),
    ("---\noutputs: {a: {type: string}}\ntemplate: jinja2\n---\nx", "v1"),
]


@pytest.mark.parametrize(("text", "dialect"), TEXTS_AND_DIALECTS)
def test_dialect_is_detected_from_the_text(text: str, dialect: str) -> None:
    assert Prompty.loads(text, dialect=None).dialect == dialect


def test_dialect_argument_overrides_the_detected_dialect() -> None:
    assert Prompty.loads("function:\n42", dialect="v2").messages()[0].text == "function:\n42"
    assert {name: Prompty.loads("Hello", dialect=name).dialect for name in DIALECTS} == {
        name: name for name in DIALECTS
    }


def test_unknown_dialect_is_an_error() -> None:
    expected = "unknown dialect 'agentshema' (did you mean 'agentschema'?); expected one of v2, agentschema, v1"
    with pytest.raises(PromptFileError) as caught:
        Prompty.loads("x", dialect="agentshema", name="f")
    assert str(caught.value) == f"f:1:1: {expected}"


def test_text_template_or_base_field_alone_does_not_select_v1() -> None:
    # The test vectors of Prompty v2 demand these errors.
    with pytest.raises(PromptFileError, match=r"f:2:11: Invalid template format"):
        Prompty.loads("---\ntemplate: jinja2\n---\nx", name="f")
    with pytest.raises(PromptFileError, match=r"f:2:1: base, which inherits"):
        Prompty.loads("---\nbase: a.prompty\n---\nx", name="f")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\nname: a\ninstructions: '{{#a}}x{{/a}}'\n---\n", 2),
        ("---\nname: a\n---\n{{#a}}x{{/a}}", 2),
        ("{{^a.b}}x\n{{/ a.b }}", 1),
    ],
)
def test_a_mustache_section_makes_the_template_mustache_with_a_note(text: str, line: int) -> None:
    prompt = Prompty.loads(text)
    what = "{{#name}} in the template is Mustache: add template: {format: mustache}"
    assert (prompt.spec.engine, prompt.notes) == ("mustache", (Note(line, 1, what),))


@pytest.mark.parametrize(
    "text",
    ["---\ntemplate: {format: jinja2}\n---\n{{#a}}x{{/a}}", "{{#a}}x{{/a}}{% if b %}{% endif %}", "{{^a}}x{{/b}}"],
)
def test_mustache_section_in_a_jinja_template_is_an_error(text: str) -> None:
    with pytest.raises(PromptFileError) as caught:
        Prompty.loads(text)
    assert str(caught.value).splitlines()[0].partition("; ")[2] == (
        "{{#name}} is a Mustache section: write {% for %} or {% if %}, or write the whole template in Mustache and add "
        "'template: {format: mustache}' to the front matter"
    )


def test_slot_values_in_a_tools_section_are_text_and_yaml_types_are_kept() -> None:
    prompt = Prompty.loads(
        'tools:\n- id: slot0x\n  type: f\n  description: "{{b}} c{{ c }}"\n'
        '  options: {n: 3, on: true, l: [1.5, null, "{{c}}"]}\n\nuser:\nx'
    )
    options = {"n": 3, "on": True, "l": [1.5, None, "C"]}
    tool = {"id": "slot0x", "type": "f", "description": "B: 1\n- x cC", "options": options}
    assert prompt.filled({"b": "B: 1\n- x", "c": "C"}).tools == (tool,)


NO_LIST = "the tools section must contain a list of tools, each a mapping"
SLOT_IN_KEY = "a mapping key contains an inserted value; keys must be literal text in the template"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        *(("tools:\n- x", NO_LIST), ("tools:\n5", NO_LIST), ("tools:\n- {{b}}: 1", f"tools: {SLOT_IN_KEY}")),
        ('assistant[type="tool_call"]:\n- {{b}}: 1', f'assistant[type="tool_call"]: {SLOT_IN_KEY}'),
        ('assistant[type="tool_call"]:\n- 5', "a tool_call must be a mapping with id, type and function, not 5"),
    ],
)
def test_invalid_tools_or_tool_call_section_is_an_error(section: str, message: str) -> None:
    with pytest.raises(PromptFileError) as caught:
        Prompty.loads(f"{section}\n\nuser:\nx").filled({"b": "B: 1\n- x"})
    assert str(caught.value) == f"<string>: {message}"


SAME_CONVERSATION = {
    "v2": "---\ninputs: {who: Ada, chat: {kind: thread}}\n---\nsystem:\nBe kind.\n\n{{chat}}\n\nuser:\nI am {{who}}.\n",
    "v1": "---\nsample: {who: Ada}\n---\nsystem:\nBe kind.\n\n![thread]\n\nuser:\nI am {{who}}.\n",
    "agentschema": (
        "---\ninputSchema: {properties: {who: Ada, chat: {kind: thread}}}\n---\n"
        "system:\nBe kind.\n\nthread:\n{{chat}}\n\nuser:\nI am {{who}}.\n"
    ),
}


@pytest.mark.parametrize("name", SAME_CONVERSATION)
@pytest.mark.parametrize("form", ["anthropic", "gemini", "openai", "neutral"])
def test_conversation_has_the_same_payload_in_each_dialect(name: str, form: str) -> None:
    history = [("hi", "ho")]
    prompts = [Prompty.loads(SAME_CONVERSATION[each]) for each in ("v2", name)]
    assert [each.dialect for each in prompts] == ["v2", name]
    first, other = (each.generate_prompt({}, history, format=form) for each in prompts)
    assert other == first
    assert "Be kind." in str(other)
    assert str(other).index("'hi'") < str(other).index("I am Ada.")


@pytest.mark.parametrize("name", SAME_CONVERSATION)
def test_place_of_the_history_is_empty_without_a_history(name: str) -> None:
    messages = Prompty.loads(SAME_CONVERSATION[name]).messages({"who": "{{role 'system'}}\nsystem:\n"})
    assert [(each.role, each.text) for each in messages] == [
        ("system", "Be kind."),
        ("user", "I am {{role 'system'}}\nsystem:\n."),
    ]


def test_only_v1_files_have_notes() -> None:
    noted = {name: [note.text for note in Prompty.loads(text).notes] for name, text in SAME_CONVERSATION.items()}
    assert noted == {
        "v2": [],
        "agentschema": [],
        "v1": [
            "![thread] in the template becomes {{thread}}, an input of kind thread",
            "sample becomes the inputs' defaults, or the examples of required inputs",
        ],
    }


DOCUMENTED_FILE = """tools:
  - id: query
    type: dataverse
    options:
      query: SELECT * FROM {{table}} WHERE firstName = '{{firstName}}'

system:
You are an AI assistant who helps people find information.

# Customer
You are helping {{firstName}} {{lastName}} to find answers to their questions.

thread[key="value"]:
content

user[name="{{firstName}} {{lastName}}"]:
{{question}}
"""
SLOTS = {"table": "people", "firstName": "Ada", "lastName": "Byron", "question": "Where?"}


def test_the_documented_thread_section_is_the_place_of_the_history() -> None:
    prompt = Prompty.loads(DOCUMENTED_FILE)
    assert prompt.dialect == "agentschema"
    assert [(each.role, each.name) for each in prompt.messages(SLOTS)] == [("system", "system"), ("user", "Ada Byron")]
    made = prompt.generate_prompt(SLOTS, [("Hi.", "Hello.")], format="openai")
    assert [each["content"] for each in made["messages"][1:]] == ["Hi.", "Hello.", "Where?"]
    # Attributes and text of the section are reported, and are an error with strict=True.
    assert [entry.reason for entry in made.report[:2]] == [
        "the attribute 'key' is not part of a message",
        "the text 'content' of a thread section is not part of a message",
    ]


THREADS = "---\ninputSchema: {properties: {chat: {kind: thread}, more: {kind: thread}}}\n---\n"


def test_attributes_and_text_of_a_thread_section_are_reported_once() -> None:
    prompt = Prompty.loads(f"{THREADS}thread[a=b]:\n{{{{chat}}}} c {{{{more}}}}\nuser:\nNow.\n")
    made = prompt.generate_prompt({"chat": [("1", "2")], "more": [("3", "4")]}, format="openai")
    reported = [entry.reason.partition(" is")[0] for entry in made.report]
    assert reported == ["the attribute 'a'", "the text 'c' of a thread section"]


@pytest.mark.parametrize(
    ("slots", "values", "reported"),
    [
        *(("{{ q }}", {}, []), ("{{ q }}", {"q": "w"}, ["the text 'w' of a thread section"])),
        ("{{ q }}{{ i }}", {"i": "https://a.example/b.png"}, ["the image of a thread section"]),
    ],
)
def test_a_thread_section_whose_slot_holds_no_thread_is_not_the_place_of_the_history(
    slots: str, values: dict[str, str], reported: list[str]
) -> None:
    """Text and images of such a section were lost and not reported."""
    inputs = "---\ninputSchema: {properties: {q: {kind: string}, i: {kind: image}}}\n---\n"
    prompt = Prompty.loads(f"{inputs}thread:\n{slots}\nuser:\nA\nassistant:\nB\nuser:\nC", undefined="empty")
    made = prompt.generate_prompt(values, [("1", "2")], format="openai")
    assert [each["content"] for each in made["messages"]] == ["A", "B", "1", "2", "C"]
    assert [entry.reason.partition(" is")[0] for entry in made.report] == reported
    alone = Prompty.loads(f"{inputs}thread:\n{slots}", undefined="empty").generate_prompt(values, format="openai")
    assert (alone, [entry.reason.partition(" is")[0] for entry in alone.report]) == ({"messages": []}, reported)


@pytest.mark.parametrize("section", ["thread:\n", "thread:\ncontent\n", 'thread[key="value"]:\n{# here #}\n'])
def test_thread_inputs_without_a_slot_are_inserted_at_the_thread_section(section: str) -> None:
    prompt = Prompty.loads(f"{THREADS}system:\nBe kind.\n{section}user:\nNow.\n")
    chat = {"chat": [{"role": "user", "content": "1"}], "more": [{"role": "user", "content": "2"}]}
    assert [each.text for each in prompt.messages(chat)] == ["Be kind.", "1", "2", "Now."]
    made = prompt.generate_prompt(chat, [("3", "4")], format="openai")
    assert [each["content"] for each in made["messages"]] == ["Be kind.", "1", "2", "3", "4", "Now."]
    del chat["chat"]
    made = prompt.generate_prompt(chat, [("3", "4")], format="openai")
    assert [each["content"] for each in made["messages"]] == ["Be kind.", "3", "4", "2", "Now."]
