"""The rules of ``lazyprompt check``: faulty texts, valid texts, and the documentation page of the rules."""

import re
from typing import Any

import pytest

from files.check.helpers import KEY, find_issues, front
from lazyprompt.files.check.check import RULES, SEVERITIES, Finding, check, github, sarif
from lazyprompt.files.spec import OPTIONS
from support.paths import DOCS

PAGE = DOCS / "reference" / "check.md"

TOOL = "tools:\n  - name: add\n    kind: function\n    description: Adds.\n"

# The code of a rule, a faulty text, and the line and column of the finding.
FINDINGS = [
    ("LP001", front("name: [a"), 3, 1),
    ("LP001", front("model: 7"), 2, 8),
    ("LP001", front("inputs:\n  - kind: string\noutputs: 7"), 4, 10),
    ("LP001", front("name: a", "x\n{% if %}\n"), 5, 1),
    ("LP001", "{% if a %}x{% endif %} {{ b + }} {{ c }}\n", 1, 24),
    ("LP001", "user:\nSay {% foo %}.\n", 2, 5),
    ("LP001", "user:\n{{ a }} {{ 'b }}\n", 2, 12),
    ("LP001", "user:\n{% include name %}\n", 2, 1),
    ("LP001", "user:\nx {% import 'a' as b %}\n", 2, 3),
    ("LP001", front("inputs:\n  - name: a\n  - name: a", "{{a}}"), 4, 5),
    ("LP001", front("template: {format: mustache}", "x\n{{#a}}\n"), 5, 1),
    ("LP001", front("template: {format: mustache}", "{{#a}}\n{{b}} {{/c}}\n"), 5, 7),
    ("LP001", "---\nname: a\n", 1, 1),
    ("LP001", "user:\n{{ a }} {% if a %}{% foo %}\n", 2, 1),
    ("LP001", front("name: b\ninstructions: \"{% include 'no.md' %}\"", ""), 3, 15),
    ("LP001", front("name: b\ninstructions: '{% if %}'", ""), 3, 15),
    ("LP002", "\ufeffuser:\nHi.\n", 1, 1),
    ("LP003", "user:\r\nHi.\nYou.\n", 2, 4),
    ("LP004", front('name: "a\tb"'), 2, 9),
    ("LP005", "system:  \nHi.\n", 1, 8),
    ("LP005", "system:\t\nHi.\n", 1, 8),
    ("LP010", front("name: a\nmodell: gpt-4o"), 3, 1),
    ("LP010", front("model:\n  id: gpt-4o\n  options:\n    temprature: 1"), 5, 5),
    ("LP010", front("model: gpt-4o\ninputs: [{name: a}]\noutptus: []", "{{a}}"), 4, 1),
    ("LP012", front("tools:\n  - name: add"), 3, 5),
    ("LP012", front("tools:\n  add:\n    kind: function"), 3, 3),
    ("LP013", front("inputs:\n  - {name: a, default: no}", "{{a}}"), 3, 24),
    ("LP013", front("inputs: {a: on, b: {kind: union, anyOf: [string], default: no}}", "{{a}}"), 2, 60),
    ("LP013", front("model: {id: a, connection: {kind: key, flag: yes}}"), 2, 46),
    ("LP013", front("metadata:\n  listed: No"), 3, 11),
    ("LP014", front("name: a\ntags: [a]"), 3, 1),
    ("LP014", front("model: {id: gpt-4o, options: {best_of: 2}}"), 2, 31),
    ("LP015", front("model: {id: gpt-4o, options: {temperature: hot}}"), 2, 44),
    ("LP015", front("model: {id: gpt-4o, options: {additionalProperties: x}}"), 2, 53),
    ("LP020", front("inputs:\n  - name: a"), 3, 5),
    ("LP020", front("inputs:\n  a: {kind: string}"), 3, 3),
    ("LP021", front("inputs:\n  - name: topic", "user:\n{{topic}} and {{ topik }}"), 6, 18),
    ("LP021", front("inputs:\n  - name: a\ntemplate: {format: mustache}", "user:\n{{a}}{{b}}"), 7, 8),
    ("LP021", front("inputs: [name: a]", "{{a.top}}{% set tops = 1 %}{{tops}}{{ top }}"), 4, 39),
    ("LP027", front("name: a\ninstructions: '{{ a }}'", ""), 3, 15),
    ("LP022", front("inputs:\n  - {name: a, required: true, default: x}", "{{a}}"), 3, 31),
    ("LP023", front("inputs:\n  - {name: a, kind: integer, default: x}", "{{a}}"), 3, 39),
    ("LP024", front("inputs:\n  - {name: a, kind: integer, example: x}", "{{a}}"), 3, 39),
    ("LP024", front("inputs:\n  - {name: a, kind: integer, enumValues: [1, x]}", "{{a}}"), 3, 42),
    ("LP025", front(f"{TOOL}    parameters: [{{name: a}}]\n    bindings: {{a: users}}"), 7, 16),
    ("LP025", front(f"inputs: [name: x]\n{TOOL}    parameters: [{{name: a}}]\n    bindings: {{b: x}}"), 8, 16),
    ("LP026", front("inputs:\n  city: string", "{{city}}"), 3, 9),
    ("LP030", "system:\nBe kind.\nasistant:\nHi.\n", 3, 1),
    ("LP030", "Sytem:\nBe kind.\n", 1, 1),
    ("LP030", "system:\nx\n # suer :\nHi.\n", 3, 4),
    # Lines that look like role lines, and were not reported.
    *(("LP030", f"system:\nx\n{line}\nHi.\n", 3, 1) for line in ("AI:", "Bot:", "用户：", "Assitant:", "user：")),
    *(("LP030", f"system:\nx\n{line}\nHi.\n", 3, 3) for line in ("**user:**", "**User**:", "- user:", "# user")),
    *(("LP030", f"system:\nx\n{line}\nHi.\n", 3, 5) for line in ("### Human:", "  ~~user~~:", "> **user**:")),
    ("LP030", "system:\nx\nuser [name=a]:\nHi.\n", 3, 1),
    ("LP030", "system:\nx\n```user\nHi.\n```\n", 3, 4),
    ("LP030", "Answer.\nHuman: {{ q }}\nAI:\n", 3, 1),
    ("LP031", "system:\nAs in:\n```\nuser:\nHi.\n```\nuser:\nHi.\n", 4, 1),
    ("LP032", "system:\n\nuser:\nHi.\n", 1, 1),
    ("LP032", "system:\nx\nuser:\n{# nothing #}\n", 3, 1),
    ("LP033", "You are kind.\nuser:\nHi.\n", 1, 1),
    ("LP034", "user:\nHi.\nsystem:\nBe kind.\n", 3, 1),
    ("LP035", "system:\nx\n{% if false %}\nuser:\nHi.\n{% endif %}\n", 3, 4),
    ("LP036", "You help.\nuser: {{ question }}\n", 2, 1),
    ("LP036", "system: Be kind.\n", 1, 1),
    ("LP036", "Answer.\nHuman: {{ q }}\nAI: {{ a }}\n", 2, 1),
    ("LP036", "**User :** {{ q }}\n**Assistant :** {{ a }}\n", 1, 3),
    # A single capitalized speaker with a space before the colon was not reported.
    *(("LP036", f"You help.\n{line} {{{{ q }}}}\n", 2, 1) for line in ("User :", "Human\t:")),
    ("LP040", "\n{# a\n #}{{ a }}{% if b %}[INST]{% endif %}\n", 3, 21),
    ("LP040", "<|im_start|> {{ a }}\n", 1, 1),
    ("LP040", "user:\n{% raw %}{{ a }} <think>{% endraw %}\n", 2, 18),
    ("LP040", "user:\n{% raw %}{{ a }}{% endraw %} [INST]\n", 2, 30),
    ("LP050", "user:\n{{ a.__class__ }}\n", 2, 6),
    ("LP050", "user:\n{{ a['__class__'] }}\n", 2, 7),
    ("LP050", "user:\n{{ a | attr('__class__') }}\n", 2, 14),
    ("LP052", "user:\n{{ a | lowr }}", 2, 8),
    ("LP052", "user:\n{% if a is evn %}x{% endif %}\n", 2, 12),
    ("LP053", "user:\n{{ a | safe }}\n", 2, 8),
    ("LP054", "user:\n{{ strange + ranges }}{% for i in range(n) %}x{% endfor %}\n", 2, 35),
    ("LP054", "user:\n{% for i in range(100001) %}x{% endfor %}\n", 2, 13),
    ("LP054", "user:\n{{ 'x' * n }}\n", 2, 8),
    ("LP054", "user:\n{{ (n + 1) * 'x' }}\n", 2, 12),
    ("LP060", f"user:\nUse {KEY}.\n", 2, 5),
    ("LP061", front("model:\n  connection:\n    apiKey: hunter2hunter2"), 4, 13),
    ("LP061", front('model: {connection: {api_key: "abcdefgh"}}'), 2, 32),
    ("LP061", front("model: {connection: {kind: key, apiKey: abcdefgh}}"), 2, 41),
    ("LP061", front("metadata:\n  keys:\n    - password: abcdefgh"), 4, 17),
    ("LP062", front("inputs: {a: {default: '${env:AWS_SECRET_ACCESS_KEY}'}}"), 2, 23),
    ("LP062", front("model: {options: {additionalProperties: {user: '${env:USER}'}}}"), 2, 48),
    ("LP062", front("tools:\n  - name: f\n    description: '${env:HOME}'"), 4, 18),
    ("LP062", front("inputs: {connection: {default: '${env:KEY:none}'}}"), 2, 32),
    ("LP062", front("metadata: {a: ['x', '${ENV:KEY}']}"), 2, 21),
    ("LP061", front("metadata:\n  password: |\n    hunter2\n    hunter3\n"), 4, 5),
    ("LP070", front("model: gpt-99", f"user:\n{'word ' * 9000}\n"), 2, 8),
    ("LP070", front("model: {id: gpt-99, options: {maxOutputTokens: 4088}}"), 2, 8),
    ("LP071", front("model: moonshot-v1-8k", f"user:\n{'word ' * 9000}\n"), 2, 8),
    ("LP071", front("model: {id: moonshot-v1-8k, options: {maxOutputTokens: 7992}}"), 2, 8),
    # The variable name was taken for the model, instead of the default in the file.
    ("LP071", front("model: '${env:MODEL:moonshot-v1-8k}'", f"user:\n{'word ' * 9000}\n"), 2, 8),
    ("LP090", "{# lazyprompt: ignore=LP999 #}\nuser:\nHi.\n", 1, 23),
    ("LP090", "{# lazyprompt: ignore=LP060 #}\nuser:\nHi.\n", 1, 23),
]

# The code of a rule, and a valid text.
NO_FINDINGS = [
    ("LP001", front("model:\n  connection: {kind: key, apiKey: '${env:NOT_SET_ANYWHERE}'}\nname: ${params:x}")),
    ("LP002", "user:\nHi.\n"),
    ("LP003", "user:\r\nHi.\r\n"),
    ("LP004", front("name: a", "\tcode\n")),
    ("LP005", "{% if a %}user:{% endif %} \nHi.\n"),
    ("LP010", front("name: a\nmodel: {id: gpt-4o, options: {temperature: 1, additionalProperties: {x: 1}}}")),
    ("LP012", front(f"{TOOL}  - {{name: files, kind: mcp}}")),
    ("LP013", front("inputs:\n  - {name: a, default: 'no'}\n  - {name: b, default: 12.5}", "{{a}}{{b}}")),
    # With kind: string the value is text; with another kind, another rule reports it.
    ("LP013", front("name: no\nmodel: on\ninputs:\n  - {name: a, kind: string, default: no, enumValues: [no, 12:30]}")),
    ("LP013", front("outputs:\n  - {name: a, kind: string, example: off}\nmetadata: {since: 2026-01-31}")),
    ("LP014", front(f"{TOOL}    foo: 1\nmetadata: {{tags: [a]}}\ntemplate: {{format: jinja2, foo: 1}}")),
    ("LP014", front("inputSchema: {properties: [{name: a}]}", "{{a}}")),
    ("LP015", front("model: {id: a, options: {temperature: 1, topP: '${params:p}', stopSequences: x, seed: null}}")),
    ("LP020", front("inputs:\n  - {name: a}\n  - {name: t, kind: thread}", "{{a}}")),
    ("LP020", front(f"inputs: [name: u]\n{TOOL}    parameters: [{{name: a}}]\n    bindings: {{a: u}}")),
    ("LP021", "user:\n{{ anything }}\n"),
    ("LP021", front("inputs:\n  - name: a", "{% for i in a %}{{ i }}{{ loop.index }}{% endfor %}")),
    ("LP027", front("name: a")),
    ("LP027", "user:\n{{ a }}"),
    ("LP027", front("sample: {a: b}", "{{a}}")),
    ("LP022", front("inputs:\n  - {name: a, default: x}\n  - {name: b, required: true}", "{{a}}{{b}}")),
    ("LP023", front("inputs:\n  - {name: a, kind: integer, default: '${params:n}'}", "{{a}}")),
    ("LP024", front("inputs:\n  - {name: a, kind: float, example: 1, enumValues: [1, 2.5]}", "{{a}}")),
    ("LP025", front(f"inputs: [name: x]\n{TOOL}    parameters: [{{name: a}}]\n    bindings: {{a: x}}")),
    ("LP026", front("inputs: {a: {kind: string}, b: [string], c: text}", "{{a}}{{b}}{{c}}")),
    ("LP030", "system:\nOur users:\nAda\nsummary:\nx\n```\nasistant:\n```\n"),
    # Role lines may have another case and blanks; other words, headings and JSON are text.
    ("LP030", "System:\nx\nUser :\nx\n# user:\nx\nUSER[name=a] :\nx\n"),
    ("LP030", 'system:\nUse:\nNotes:\n# System design\n## AI\nAssistance:\nuser;\n"user": 1,\n{ user:\n'),
    ("LP031", "system:\n```\nx\n```\nuser:\nHi.\n"),
    ("LP032", "system:\n{{ a }}\nuser:\n{% for m in b %}{{ m }}{% endfor %}\n"),
    ("LP033", "{{ thread }}\nuser:\nHi.\n"),
    ("LP033", "All of it is one text.\n"),
    ("LP034", "system:\nBe kind.\nassistant:\nHi.\nsystem:\nBe brief.\nuser:\nx\n"),
    ("LP035", "{% if a %}x{% endif %}"),
    ("LP036", "user:\nContinue:\nuser: Hi.\nassistant: Hello.\n"),
    ("LP036", "The system: it runs.\nUser: Ada\n"),
    ("LP040", "user:\n{{ '<|im_start|>' }} and <b> | [1]\n"),
    # A dict key may begin with _: it was reported, though the template works.
    ("LP050", "user:\n{{ a.b_c['_d'] }} {{ a._id }} {{ a['__e'] }} {{ a['f__'] }}\n"),
    ("LP052", "user:\n{{ a | lower }}{% if a is even %}x{% endif %}\n"),
    ("LP053", "user:\n{{ safe }}\n"),
    ("LP054", "user:\n{% for i in range(100000) %}{{ '-' * 3 }}{% endfor %}\n"),
    # Users cannot set a signed number, or the length of an existing value.
    ("LP054", "user:\n{% for i in range(9, 0, -1) %}{{ '-' * -1 }}{% endfor %}\n"),
    ("LP054", "user:\n{% for i in range(a | length) %}{{ '-' * (a | count) }}{% endfor %}\n"),
    ("LP060", "user:\nsk-learn and risk-assessment-of-all-kinds-of-things\n"),
    (
        "LP061",
        front("model: {connection: {apiKey: '${env:KEY}'}}\ninputs:\n  password: {kind: string}", "{{password}}"),
    ),
    ("LP061", front("model:\n  connection:\n    apiKey: ${env:OPENAI_API_KEY}\n    password: ${params:a} # b")),
    ("LP061", "user:\npassword: hunter2\n"),
    ("LP062", front("model:\n  connection:\n    apiKey: ${env:KEY}\n    headers: ['Bearer ${env:KEY}']")),
    ("LP062", front("model:\n  configuration:\n    azure_endpoint: ${env:URL}")),
    ("LP062", front("tools:\n  - name: f\n    kind: mcp\n    connection: {apiKey: '${env:KEY}'}")),
    # "password:" in a description is no field; masking it removed the closing quote and broke the YAML.
    ("LP061", front("description: 'the password: must be long, a secret: not'")),
    ("LP070", front("model: {id: gpt-99, options: {maxOutputTokens: 4087}}")),
    ("LP070", front("model: gpt-4o-2024-08-06", f"user:\n{'word ' * 9000}\n")),
    ("LP070", front("model: ${env:DEPLOYMENT}", f"user:\n{'word ' * 9000}\n")),
    ("LP071", front("model: gpt-4o", f"user:\n{'word ' * 9000}\n")),
    ("LP071", front("model: {id: moonshot-v1-8k, options: {maxOutputTokens: 7991}}")),
    ("LP090", "{# lazyprompt: ignore=LP040, LP030 #}\nuser:\nHi.\n"),
]


@pytest.mark.parametrize(("code", "text", "line", "column"), FINDINGS)
def test_rule_reports_a_faulty_text_at_its_place(code: str, text: str, line: int, column: int) -> None:
    assert (code, line, column) in find_issues(text)


@pytest.mark.parametrize(("code", "text"), NO_FINDINGS)
def test_rule_accepts_a_valid_text(code: str, text: str) -> None:
    assert code not in [each for each, _, _ in find_issues(text)]
    if code != "LP001":
        assert "LP001" not in [each for each, _, _ in find_issues(text)]


MANY = [f"v{number:03}" for number in range(101)]
KEPT = "the field model.options.best_of has no effect: it is kept, but not sent"
UNCLOSED = "Mustache: {{/c}} does not match the open tag {{#a}} on line 4; write {{/a}} first"
UNFIT = "the default does not fit: a is 'yes', but must be of kind"
IS_DEFAULT = "outputs.ok: a bare value is the default, here the text 'boolean'"
LITERAL = "apiKey contains a literal value: hun… (14 characters)"
IS_TEXT = "the line is text and doesn't begin a section"
UNKNOWN_MODEL = "the context window of 'gpt-99' is unknown, so the length is not checked"


@pytest.mark.parametrize(
    ("code", "text", "message", "advice"),
    [
        *(
            ("LP010", front(fields), f"unknown field {name} (did you mean {meant!r}?)", "correct its name")
            for fields, name, meant in (
                ("modell: gpt-4o", "modell", "model"),
                ("tools:\n  - {name: a, desciption: x}", "tools.a.desciption", "description"),
                ("tools: {a: {kind: function, paramters: []}}", "tools.a.paramters", "parameters"),
                ("template: {fromat: jinja2}", "template.fromat", "format"),
            )
        ),
        ("LP023", front("inputs: {a: {kind: boolean, default: yes}}"), f"{UNFIT} boolean", "write true or false"),
        ("LP023", front("inputs: {a: {kind: float, default: yes}}"), f"{UNFIT} float", "correct the value or the kind"),
        ("LP001", front("template: {format: mustache}", "{{#a}}\n{{/c}}\n"), UNCLOSED, ""),
        ("LP014", front("model: {options: {best_of: 2}}"), KEPT, "move it under model.options.additionalProperties"),
        *(
            (
                *("LP021", front(f"inputs: {{{': 1, '.join(MANY[:count])}: 1}}", "{{q}}")),
                "the template uses 'q', which is not an input",
                f"declare it; the inputs are {', '.join(MANY[:100])}{', …' * (count > 100)}",
            )
            for count in (100, 101)
        ),
        ("LP001", "user:\n{{ ` }}\n", "Jinja: unexpected char '`'", ""),
        ("LP026", front("outputs: {ok: boolean}"), IS_DEFAULT, "if the kind is meant, write {kind: boolean}"),
        ("LP061", front("model: {apiKey: hunter2hunter2}"), LITERAL, "write ${env:NAME} in its place"),
        ("LP030", "# user\nx\n", f"'# user' does not name a role here: {IS_TEXT}", "write user:"),
        ("LP030", "x\nusr:\nx\n", f"'usr' is not a role (did you mean 'user'?): {IS_TEXT}", "write user:"),
        (
            *("LP027", front("name: a", "".join(f"{{{{{name}}}}}" for name in MANY))),
            f"the template uses {str(MANY[:100])[1:-1]}, and no inputs are declared, so their values are not checked",
            "declare them under inputs",
        ),
        (
            *("LP070", front("model: gpt-99", f"user:\n{'x' * 16000}")),
            f"with defaults and examples, the prompt contains about 5607 tokens; {UNKNOWN_MODEL}",
            "look it up, or name a known model",
        ),
    ],
)
def test_finding_has_a_message_and_advice(code: str, text: str, message: str, advice: str) -> None:
    assert [(each.message, each.advice) for each in check(text) if each.code == code] == [(message, advice)]


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        (f"default: {'x' * 200}, example: y", 148),
        (f"required: true, example: {'x' * 200}", 148),
        *(("kind: string, required: true", 8), ("kind: integer", 11), ("kind: boolean", 10), ("kind: object", 10)),
        # Without a value for an image, the unfilled template is counted.
        ("kind: image", 8),
    ],
)
def test_token_count_uses_defaults_examples_or_empty_values(fields: str, tokens: int) -> None:
    model = "model: {id: gpt-99, options: {maxOutputTokens: 5000}}"
    text = front(f"{model}\ninputs: {{a: {{{fields}}}}}", "user:\n{{a}} {{a}} {# a comment of the template #}\n")
    (message,) = [each.message for each in check(text) if each.code == "LP070"]
    counts = f"about {tokens} tokens, and 5000 are reserved for the response; {UNKNOWN_MODEL}"
    assert message == f"with defaults and examples, the prompt contains {counts}"


def test_every_rule_has_faulty_and_valid_texts_in_this_file() -> None:
    assert {code for code, *_ in FINDINGS} == {code for code, *_ in NO_FINDINGS} == set(RULES)


def test_documented_table_of_rules_matches_the_rules() -> None:
    rows = re.findall(
        r"^\| (LP\d+) \| (\S+) \| (\S+) \|(?: [^|](?:\\\||[^|])* \|){2}$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [(rule.code, rule.name, rule.severity) for rule in RULES.values()]


def test_documentation_lists_the_rules_that_comments_cannot_disable() -> None:
    (codes,) = re.findall(r"^Comments can't disable (LP[^;\n]*);", PAGE.read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"LP\d+", codes) == [rule.code for rule in RULES.values() if rule.fixed]


# The words that are reported as a misspelled role, and those that are text.
ROLE_WORDS = """
user: human usr 用户 人类 usr usre suer usxr
assistant: ai assist asst bot chatgpt gpt model 助手 助理 asistant asssistant
system: sys 系统 systm sytsem
developer: dev develper developper
text: use users uses used systems assistants assistance developers developed development ystems
"""


def test_synonyms_and_misspellings_of_a_role_are_reported_with_the_role() -> None:
    rows = dict(row.split(": ") for row in ROLE_WORDS.strip().split("\n"))
    reported: dict[str, list[str]] = {role: [] for role in rows}
    for word in (word for words in rows.values() for word in words.split()):
        hits = [each for each in check(f"system:\nx\n{word}:\nHi.\n") if each.code == "LP030"]
        reported[hits[0].advice.removeprefix("write ").removesuffix(":") if hits else "text"].append(word)
    assert reported == {role: words.split() for role, words in rows.items()}


def test_each_model_option_accepts_only_values_of_its_types() -> None:
    values = ("1", "1.5", "true", "x", "[x]", "{a: 1}")
    texts = {value: front(f"model: {{id: gpt-4o, options: {{NAME: {value}}}}}") for value in values}
    integer, number = {"1"}, {"1", "1.5"}
    assert {
        name: {value for value, text in texts.items() if "LP015" not in str(find_issues(text.replace("NAME", name)))}
        for name in (*OPTIONS, "additionalProperties")
    } == {
        **dict.fromkeys(("maxOutputTokens", "seed"), integer),
        **dict.fromkeys(("temperature", "topP", "topK", "frequencyPenalty", "presencePenalty"), number),
        "stopSequences": {"x", "[x]"},
        "allowMultipleToolCalls": {"true"},
        "reasoningEffort": {"x"},
        "additionalProperties": {"{a: 1}"},
    }


V2 = "name displayName description metadata model inputs outputs tools template instructions kind"


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [("v2", V2), ("agentschema", f"{V2} inputSchema outputSchema"), ("v1", f"{V2} version authors tags sample")],
)
def test_each_dialect_accepts_only_its_own_fields(dialect: str, fields: str) -> None:
    every = f"{V2} inputSchema outputSchema version authors tags sample".split()
    codes = {name: {each.code for each in check(front(f"{name}: null"), dialect=dialect)} for name in every}
    assert [name for name, found in codes.items() if not found & {"LP010", "LP014"}] == fields.split()


def test_github_and_sarif_reports_have_severities_and_escaped_characters() -> None:
    hits = [Finding("LP010", severity, "50%\n: a, b", "a,b:c%.prompty", 1, 2) for severity in SEVERITIES]
    kinds = dict(zip(SEVERITIES, ("error", "warning", "notice"), strict=True))
    head = "file=a%2Cb%3Ac%25.prompty,line=1,col=2,title=LP010 unknown-field"
    assert github(hits, 1).split("\n")[:3] == [f"::{kinds[each]} {head}::50%25%0A: a, b" for each in SEVERITIES]
    run: Any = sarif(hits)
    assert [each["level"] for each in run["runs"][0]["results"]] == ["error", "warning", "note"]
    levels = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in run["runs"][0]["tool"]["driver"]["rules"]}
    assert levels == {rule.code: rule.severity.replace("info", "note") for rule in RULES.values()}


def test_scalars_that_other_yaml_readers_parse_differently_are_reported() -> None:
    unsafe = "yes no on off YES Off 12:30 -1:59:59 017 +00 1_000 -1_0"
    safe = "true null y n 12:60 1:2:60 08 18 1000 _1 'no' 'yes'"
    codes = {
        word: [code for code, *_ in find_issues(front(f"metadata:\n  a: {word}"))]
        for word in f"{unsafe} {safe}".split()
    }
    assert [word for word, each in codes.items() if "LP013" in each] == unsafe.split()
    hits = {word: check(front(f"metadata:\n  a: {word}"))[0] for word in ("off", "12:30", "017", "1_000")}
    kinds = {"off": "true or false", "12:30": "a base-60 number", "017": "an octal number", "1_000": "a number"}
    assert [word for word, hit in hits.items() if kinds[word] not in hit.message] == []
    quoted = "if other programs read the file too, put it in quotes"
    assert [hit.advice for hit in hits.values()] == [
        "write true or false; or put it in quotes",
        *(quoted, quoted),
        "write the number without _; or put it in quotes",
    ]


def test_undeclared_slot_with_a_default_or_an_is_defined_test_is_not_reported() -> None:
    tests = ("b is defined", "b is undefined", "b | default('x')", "b | d('x')", "b is none", "b | upper")
    texts = {test: front("inputs:\n  - name: a", f"{{{{ a }}}}{{{{ {test} }}}}") for test in tests}
    assert [test for test, text in texts.items() if "LP021" in [code for code, *_ in find_issues(text)]] == [*tests[4:]]
