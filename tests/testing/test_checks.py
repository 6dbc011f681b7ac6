"""Checks of prompts and answers, without files and models."""

import re
from typing import Any

import pytest

from lazyprompt import CharTokenCounter, ChatPrompter, ImageBlock, Msg, URLSource
from lazyprompt._base.patterns import PatternTimeoutError
from lazyprompt.errors import BatchError, PromptFileError
from lazyprompt.files.yaml_nodes import SourceText, YamlReader
from lazyprompt.testing.checks import Check, Failure, answer_failures, make_check, prompt_failures, read_checks
from lazyprompt.testing.rendered import LoadedPrompt
from support.missing import needs


@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_too_deeply_nested_response_is_a_failure_and_raises_no_error(depth: int) -> None:
    """Python's reader of JSON, and the validator, raised a RecursionError."""
    schema = make_check("answer", "json_schema", {"items": {"$ref": "#"}})
    (failure,) = answer_failures("[" * depth + "]" * depth, [schema], None)
    assert "maximum recursion depth" in failure.message
    assert answer_failures("[[]]", [schema], None) == []


CASE = LoadedPrompt.of(ChatPrompter("Greet {name}.", system="Be kind.")).render(
    {"name": "Ann<|im_end|>", "input": "Hi, hi"}
)
OPENAI_REJECTS = "openai would reject this payload:\n  messages is empty; add at least 1, or remove the key"
LONGEST = "x" * 80


@pytest.mark.parametrize(
    ("kind", "value", "answer", "message"),
    [
        ("contains", "b", "abc", ""),
        ("contains", ["b", "d"], "abc", "the answer does not contain 'd'"),
        ("contains", " b", "ab", "the answer does not contain ' b'"),
        ("contains", LONGEST, "", f"the answer does not contain '{LONGEST}'"),
        ("contains", f"{LONGEST}y", "", f"the answer does not contain '{LONGEST}…'"),
        ("contains", 3, "3", ""),
        ("not_contains", "b", "abc", "the answer contains 'b'"),
        ("not_contains", "d", "abc", ""),
        ("not_contains", "a.c", "abc", ""),
        ("regex", "^c$", "a\nc", ""),
        ("regex", "^b$", "abc", "the answer does not match '^b$'"),
        ("not_regex", "a.c", "abc", "the answer matches 'a.c'"),
        ("equals", " a.c ", "\n a.c\n", ""),
        ("equals", "a.c", "abc", "the answer is not 'a.c'"),
        ("equals", "b", "a\nb", "the answer is not 'b'"),
        ("equals", "b", "b\na", "the answer is not 'b'"),
        ("starts_with", "a", " ab", ""),
        ("starts_with", "b", "a\nb", "the answer does not begin with 'b'"),
        ("ends_with", "b ", "ab\n", ""),
        ("ends_with", "a", "a\nb", "the answer does not end with 'a'"),
    ],
)
def test_failure_of_a_text_check_names_the_expected_text(kind: str, value: Any, answer: str, message: str) -> None:
    shown = "b" if kind == "not_contains" else answer
    expected = [Failure(kind, message, "answer" if kind.startswith("not_") else "", shown)] if message else []
    assert answer_failures(answer, [make_check("answer", kind, value)], None) == expected


@pytest.mark.parametrize(
    ("kind", "value", "role", "failures"),
    [
        ("contains", "Be kind.\nGreet Ann", "system", []),
        ("contains", "Hi", "system", [("contains", "the system message does not contain 'Hi'", "", "")]),
        ("contains", "x", None, [("contains", "the text does not contain 'x'", "", "")]),
        ("not_contains", "Ann", None, [("not_contains", "the text contains 'Ann'", "name", "Ann")]),
        ("not_regex", "K.*d", None, []),
        ("not_regex", "k.*d", None, [("not_regex", "the text matches 'k.*d'", "instruction", "kind")]),
        ("roles", ["system", "user"], None, []),
        ("roles", ["user"], None, [("roles", "the roles are system, user; expected were user", "", "")]),
        ("safe", True, None, [("safe", "the control sequence '<|im_end|>' is neutralised", "name", "<|im_end|>")]),
        ("valid", ["openai", "anthropic"], None, []),
        ("snapshot", True, None, [("snapshot", "default differs", "", "diff")]),
        ("snapshot", "other", None, [("snapshot", "other differs", "", "diff")]),
    ],
)
def test_failure_of_a_prompt_check_names_the_slot(kind: str, value: Any, role: str | None, failures: list[Any]) -> None:
    def differs(name: str, _: object) -> tuple[str, str, str]:
        return f"{name} differs", "", "diff"

    assert prompt_failures(CASE, [make_check("prompt", kind, value, role)], differs, "default") == failures


def test_a_snapshot_check_passes_without_a_stored_snapshot_or_a_difference() -> None:
    check = make_check("prompt", "snapshot", value=True)
    assert prompt_failures(CASE, [check]) == prompt_failures(CASE, [check], lambda *_: None) == []


def test_failure_of_max_tokens_names_the_longest_slot() -> None:
    tokens = CASE.count(CharTokenCounter())
    check, fits = (make_check("prompt", "max_tokens", most, counter="chars") for most in (tokens - 1, tokens))
    message = f"{tokens} tokens by the counter chars, 1 more than {tokens - 1}"
    assert prompt_failures(CASE, [check, fits]) == [
        Failure("max_tokens", message, "instruction", "Be kind.\nGreet .\n\n")
    ]


def test_a_prompt_rejected_by_a_provider_fails_the_check_valid() -> None:
    case = LoadedPrompt.of(ChatPrompter("", system="")).render(None, [])
    assert prompt_failures(case, [make_check("prompt", "valid", ["openai", "anthropic"])]) == [
        ("valid", f"openai: {OPENAI_REJECTS}", "", ""),
        ("valid", "anthropic: no messages to format; pass at least one", "", ""),
    ]


IMAGE = Msg("user", [ImageBlock(URLSource("https://a.example/b.png"))], "user")


def test_the_check_safe_finds_control_sequences_in_a_prompt_with_images() -> None:
    case = LoadedPrompt.of(ChatPrompter("<|im_end|>{name}")).render({"name": "<|im_end|>", "input": "x"}, [IMAGE])
    failure = Failure("safe", "a control sequence is neutralised", "name", "<|im_end|>")
    assert prompt_failures(case, [make_check("prompt", "safe", value=True)]) == [failure]


OBJECT = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^b"}}, "additionalProperties": False}
PATTERNS = {"patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "answer", "messages"),
    [
        (OBJECT, '{"a": "bc"}', []),
        (OBJECT, '{"a": 1}', ["$.a: 1 is not of type 'string'"]),
        (OBJECT, '{"a": "cb"}', ["$.a: 'cb' does not match '^b'"]),
        (OBJECT, '{"c": 1}', ["$: False schema does not allow 1"]),
        (OBJECT, "[]", ["$: [] is not of type 'object'"]),
        (PATTERNS, '{"n": 1, "an": "x"}', []),
        (PATTERNS, '{"n": "x", "a": 1}', ["$.n: 'x' is not of type 'integer'", "$.a: 1 is not of type 'string'"]),
        ({"pattern": "a"}, "1", []),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"const": 1}}}, "[1, 2]", ["$[1]: 1 was expected"]),
        ({"$ref": "#/$defs/a"}, "1", ["the schema is wrong: /$defs/a doesn't exist"]),
        ({"type": "text"}, "1", ["the schema is wrong: $.type: 'text' is not valid under any of the given schemas"]),
        ({}, "{", ["the answer is not JSON: Expecting property name enclosed in double quotes: line 1 column 2"]),
        *(
            ({"items": {"const": 1}}, str([0] * wrong), [f"$[{at}]: 1 was expected" for at in range(min(wrong, 100))])
            for wrong in (99, 100, 101)
        ),
    ],
)
def test_a_json_schema_check_reports_each_fault_up_to_100(schema: Any, answer: str, messages: list[str]) -> None:
    needs("jsonschema")
    failures = answer_failures(answer, [make_check("answer", "json_schema", schema)], None)
    assert len(failures) == len(messages)
    for failure, message in zip(failures, messages, strict=True):
        text = "" if message.startswith("the schema is wrong") else answer
        assert failure == Failure("json_schema", failure.message, text=text)
        assert failure.message.startswith(message)


def test_a_json_schema_check_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("jsonschema")
    monkeypatch.setattr("lazyprompt.testing.checks._SCHEMA_SECONDS", -1.0)
    message = "the schema cannot be used: validating the response took more than -1 s"
    failure = Failure("json_schema", message, text="1")
    assert answer_failures("1", [make_check("answer", "json_schema", {"const": 1})], None) == [failure]


def check_function(answer: str, inputs: Any) -> Any:
    assert answer != "asserted", inputs["why"]
    assert answer != "bare"
    return {"false": False, "text": "no good", "empty": ""}.get(answer)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", None),
        ("false", "returned False"),
        ("text", "no good"),
        ("empty", "returned False"),
        ("asserted", "because"),
    ],
)
def test_failure_of_a_python_check_has_the_message_of_the_function(answer: str, message: str | None) -> None:
    check = make_check("answer", "python", f"{__name__}:check_function")
    failures = answer_failures(answer, [check], {"why": "because"})
    expected = f"{__name__}:check_function: {message}"
    assert [failure.message.splitlines()[0] for failure in failures] == ([expected] if message else [])
    assert all(failure == Failure("python", failure.message, text=answer) for failure in failures)


@pytest.mark.parametrize("name", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_check_function_that_does_not_exist_is_an_error(name: str) -> None:
    with pytest.raises(BatchError, match=f"the check function {name} can't be called: "):
        answer_failures("", [make_check("answer", "python", name)], None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("prompt", "contain", "x"), "unknown prompt check 'contain' (did you mean 'contains'?); expected one of cont"),
        (("answer", "roles", "x"), "unknown answer check 'roles'"),
        (("prompt", "equals", "x"), "unknown prompt check 'equals'"),
        (("answer", "contains", "x", "user"), "the answer check 'contains' does not support a role; only the prompt"),
        (("prompt", "roles", ["user"], "user"), "the prompt check 'roles' does not support a role"),
        (("prompt", "contains", "x", "usr"), "unknown role 'usr' (did you mean 'user'?); expected one of system, dev"),
        (("prompt", "contains", "x", None, "chars"), "the check 'contains' does not support a counter"),
        (("prompt", "max_tokens", 1, None, "chrs"), "unknown token counter 'chrs'"),
        (("prompt", "max_tokens", -1), "max_tokens must be a non-negative number"),
        (("prompt", "max_tokens", True), "max_tokens must be a non-negative number"),
        (("prompt", "safe", False), "safe must be true"),
        (("prompt", "snapshot", ""), "snapshot must be true or a snapshot name"),
        (("prompt", "snapshot", 1), "snapshot must be true or a snapshot name"),
        (("prompt", "valid", ["openai", "opnai"]), "valid must be a provider or a list of providers, not 'opnai'"),
        (("prompt", "contains", []), "contains must be a string or a list of strings"),
        (("prompt", "contains", ["a", ""]), "contains must be a string or a list of strings"),
        (("prompt", "contains", [None]), "contains must be a string or a list of strings"),
        (("prompt", "contains", {}), "contains must be a string or a list of strings"),
        (("prompt", "regex", "("), "regex must be a valid regular expression: "),
        (("answer", "json_schema", []), "json_schema must be a JSON Schema, written as a mapping"),
        (("answer", "json_schema", {"a": [{"$ref": "x"}]}), "json_schema must be a JSON Schema whose $ref is local"),
        (("answer", "json_schema", {"$dynamicRef": "x"}), "json_schema must be a JSON Schema whose $dynamicRef is"),
        (("answer", "json_schema", {"$recursiveRef": "x"}), "json_schema must be a JSON Schema whose $recursiveRef"),
        (
            ("answer", "json_schema", {"patternProperties": {}, "unevaluatedProperties": {}}),
            "json_schema must not contain unevaluatedProperties and patternProperties in the same schema",
        ),
        *(
            (("answer", "python", name), "python must be the name of a function, written as module:name")
            for name in ("a", "a:", ":f", "a:f.g", "a-b:f", "a..b:f")
        ),
    ],
)
def test_a_check_with_an_invalid_name_role_or_value_is_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        make_check(*given)


SCHEMAS: list[Any] = [{"unevaluatedProperties": {}}, {"patternProperties": {}}, {"$ref": "#"}, {"$ref": {}}]


@pytest.mark.parametrize(
    ("of", "kind", "value", "read"),
    [
        ("prompt", "max_tokens", 0, 0),
        ("prompt", "safe", True, True),
        ("prompt", "roles", "user", ["user"]),
        ("prompt", "valid", ["openai", "gemini"], ["openai", "gemini"]),
        ("prompt", "snapshot", "a", "a"),
        ("answer", "python", "a.b:f", "a.b:f"),
        *(("answer", "json_schema", schema, schema) for schema in SCHEMAS),
    ],
)
def test_valid_values_of_checks_are_accepted(of: str, kind: str, value: Any, read: Any) -> None:
    assert make_check(of, kind, value) == Check(kind, read)


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "model", "tool"])
def test_a_text_check_accepts_any_role(role: str) -> None:
    check = make_check("prompt", "contains", "x", role)
    assert [failure.message for failure in prompt_failures(CASE, [check])] == [
        f"the {role} message does not contain 'x'"
    ]


def test_a_regex_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise PatternTimeoutError("too slow")

    monkeypatch.setattr("lazyprompt.testing.checks.find_first", stopped)
    check = make_check("answer", "not_regex", "a")
    assert answer_failures("a", [check], None) == [Failure("not_regex", "too slow")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {max_tokens: -1}", "a.yaml:1:16: max_tokens must be a non-negative number of tokens"),
        ("- {max: 1}", "a.yaml:1:4: unknown prompt check 'max'"),
        ("- {role: user}", "a.yaml:1:3: empty check; expected a mapping"),
        ("- {role: user, roles: [user]}", "a.yaml:1:16: the prompt check 'roles' does not support a role"),
    ],
)
def test_error_for_an_invalid_check_in_a_file_names_its_line_and_column(text: str, message: str) -> None:
    source = SourceText(text, "a.yaml")
    with pytest.raises(PromptFileError, match=re.escape(message)):
        read_checks(source, YamlReader(source).read(), "prompt")
