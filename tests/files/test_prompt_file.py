from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import pytest
import yaml

from lazyprompt import AlpacaPrompter, ChatPrompter, PromptFile, PromptFileError
from lazyprompt.files.prompt_file import FIELDS
from lazyprompt.files.yaml_nodes import MAX_BYTES, MAX_DEPTH, MAX_NODES
from support.paths import PROMPTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOOL = """\
  - type: function
    function: {name: add, description: Adds., parameters: {type: object, properties: {a: {type: integer}}}}
"""


def make_prompt(text: str, inputs: object = None, **options: object) -> str:
    prompt = PromptFile.loads(text).prompter.generate_prompt(inputs, **options)  # type: ignore[call-overload]
    assert isinstance(prompt, str)
    return prompt


def messages(text: str, inputs: object = None) -> object:
    return PromptFile.loads(text).prompter.generate_prompt(inputs, format="openai")["messages"]


def fault(text: str, name: str = "f.yaml") -> str:
    with pytest.raises(PromptFileError) as caught:
        PromptFile.loads(text, name)
    return str(caught.value)


def test_type_is_chat_by_default() -> None:
    inputs: Mapping[str, object] = {"question": "who", "input": "hi"}
    expected = ChatPrompter("Answer {question}").generate_prompt(inputs)
    assert make_prompt('instruction: "Answer {question}"', inputs) == expected
    assert isinstance(PromptFile.loads("instruction: x").prompter, ChatPrompter)
    assert make_prompt('type: chat\ninstruction: "Answer {question}"', inputs) == expected


@pytest.mark.parametrize(
    ("text", "inputs", "contents"),
    [
        ("instruction:\n  system: Be {m}.\n  user: Say {w}.\nsystem: ''", {"m": "a", "w": "b"}, ["Be a.", "Say b."]),
        ("system: Be brief.", "hi", ["Be brief.", "hi"]),
        ("system: ''", "hi", ["hi"]),
    ],
)
def test_system_text_and_instructions_become_messages(text: str, inputs: object, contents: list[str]) -> None:
    expected = [*zip(("system", "user")[-len(contents) :], contents, strict=True)]
    assert messages(text, inputs) == [{"role": role, "content": content} for role, content in expected]


@pytest.mark.parametrize("keys", ["extra_keys: a", "extra_keys: [a]", "extra_keys:\n- a"])
def test_extra_keys_can_be_text_or_a_list(keys: str) -> None:
    expected = ChatPrompter("x", extra_keys="a").generate_prompt({"a": 1})
    assert make_prompt(f"instruction: x\n{keys}", {"a": 1}) == expected


def test_tools_are_in_the_payload() -> None:
    prompter = PromptFile.loads(f"tools:\n{TOOL}").prompter
    assert prompter.generate_prompt("hi", format="openai")["tools"] == yaml.safe_load(TOOL)


def test_history_can_have_pairs_and_messages() -> None:
    text = "system: ''\nhistory:\n- [hi, hello]\n- {role: user, content: and?}\n- {role: assistant, content: so.}"
    assert messages(text, "ok") == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "so."},
        {"role": "user", "content": "ok"},
    ]


def test_chat_examples_are_turns_before_the_history() -> None:
    text = "system: ''\nexamples:\n- {input: '{a}', output: b}\n- [c, '{d}']\nhistory: [[e, f]]"
    sent = messages(text, "g")
    assert isinstance(sent, list)
    assert [turn["content"] for turn in sent] == ["{a}", "b", "c", "{d}", "e", "f", "g"]
    assert [turn["role"] for turn in sent] == ["user", "assistant"] * 3 + ["user"]


def test_alpaca_examples_are_text_after_the_instruction() -> None:
    text = "type: alpaca\ninstruction: |\n  Add {x}.\nexamples:\n- ['{x} {{x}}', '{y}']\n- ['3', '4']"
    expected = AlpacaPrompter("Add {x}.\n\nInput: {{x}} {{{x}}}\nOutput: {{y}}\n\nInput: 3\nOutput: 4")
    assert make_prompt(text, "7") == expected.generate_prompt("7")
    assert "Add 7.\n\nInput: {x} {{x}}\nOutput: {y}\n\nInput: 3\nOutput: 4\n\n" in make_prompt(text, "7")


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("{system: s, user: u}", {"system": "s\n\nInput: a\nOutput: b", "user": "u"}),
        ("{user: u}", {"user": "u\n\nInput: a\nOutput: b"}),
        ("{system: s}", {"system": "s\n\nInput: a\nOutput: b"}),
        ("''", "Input: a\nOutput: b"),
    ],
)
def test_alpaca_examples_follow_the_first_instruction_that_is_set(instruction: str, expected: str) -> None:
    text = f"type: alpaca\ninstruction: {instruction}\nexamples: [[a, b]]"
    assert make_prompt(text) == AlpacaPrompter(expected).generate_prompt()


def test_model_selects_the_markers() -> None:
    file = PromptFile.loads("instruction: x\nmodel: qwen2.5")
    assert file.model == "qwen2.5"
    assert file.prompter.generate_prompt("hi") == ChatPrompter("x").generate_prompt("hi", model="qwen2.5")
    assert PromptFile.loads("instruction: x").model is None


def test_all_fields_can_be_used_together() -> None:
    text = f"""
type: chat
instruction: "Answer {{a}}"
system: Be brief.
extra_keys: b
tools:
{TOOL}
history: [[q, r]]
examples: [[s, t]]
model: qwen2.5
"""
    assert {line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha()} == set(FIELDS)
    assert PromptFile.loads(text).prompter.slots == ("a", "b")


def test_yaml_aliases_repeat_a_value() -> None:
    text = "system: &s Be brief.\ninstruction: {system: *s}\nhistory: [&p [a, b], *p]"
    assert messages(text, "x") == [
        {"role": "system", "content": "Be brief.\nBe brief."},
        *[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2,
        {"role": "user", "content": "x"},
    ]


def test_load_reads_a_path_with_bom_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "提示.yaml"
    path.write_bytes("\ufeffinstruction: 回答\r\nmodel: qwen2.5\r\n".encode())
    file = PromptFile.load(path)
    assert (file.path, file.name, file.model) == (path, str(path), "qwen2.5")
    assert "回答" in file.prompter.generate_prompt("x")
    assert PromptFile.load(str(path)).path == path


def test_loads_accepts_only_text_and_the_file_has_no_path() -> None:
    file = PromptFile.loads("instruction: x")
    assert (file.path, file.name) == (None, "<string>")
    with pytest.raises(PromptFileError, match=r"<string>:1:1: a prompt must be text, not bytes"):
        PromptFile.loads(b"instruction: x")  # type: ignore[arg-type]


def test_prompt_file_is_frozen_and_can_be_pickled() -> None:
    file = PromptFile.loads("instruction: x {a}\nmodel: qwen2.5")
    with pytest.raises(AttributeError):
        file.model = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(file))  # noqa: S301 - our own bytes
    assert again.prompter.generate_prompt({"a": 1}) == file.prompter.generate_prompt({"a": 1})


@pytest.mark.parametrize("path", sorted(PROMPTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_example_prompt_files_can_be_loaded_and_filled(path: Path) -> None:
    assert len([*PROMPTS.glob("*.yaml")]) >= 3
    prompter = PromptFile.load(path).prompter
    inputs = {name: f"<{name}>" for name in prompter.slots}
    text = prompter.generate_prompt(inputs)
    assert all(f"<{name}>" in text for name in prompter.slots)


def test_missing_file_and_invalid_path_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "no.yaml"
    with pytest.raises(PromptFileError, match="file not found") as caught:
        PromptFile.load(path)
    assert str(caught.value).startswith(f"{path}:1:1: ")
    with pytest.raises(PromptFileError, match="cannot be read: .*embedded null"):
        PromptFile.load("a\0b")


def test_file_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"instruction: " + "中".encode() * (MAX_BYTES // 3))
    with pytest.raises(PromptFileError, match="bytes; the limit is 5,000,000"):
        PromptFile.load(path)
    with pytest.raises(PromptFileError, match="^f:1:1: the file is larger than 5000000 bytes$"):
        PromptFile.loads("instruction: " + "中" * (MAX_BYTES // 3), "f")
    assert PromptFile.loads("instruction: ".ljust(MAX_BYTES, "x")).prompter.slots == ()


def test_file_in_another_encoding_is_an_error_at_the_first_invalid_byte(tmp_path: Path) -> None:
    path = tmp_path / "gbk.yaml"
    path.write_bytes(b"\xef\xbb\xbfmodel: qwen2.5\ninstruction: " + "回答".encode("gbk"))
    with pytest.raises(PromptFileError) as caught:
        PromptFile.load(path)
    assert str(caught.value) == f"{path}:2:14: byte 0xbb is not UTF-8; save the file as UTF-8"


PAIR = "f.yaml:2:3: examples[0] must be {input: ..., output: ...} or [input, output], not "
FAULTS = {
    "": "f.yaml:1:1: the file is empty; the fields are type, instruction,",
    "---\n": "f.yaml:1:1: the file is empty; ",
    "[a]": "f.yaml:1:1: a prompt file must be a mapping, not a list; ",
    "\n  hello": "f.yaml:2:3: a prompt file must be a mapping, not text; ",
    "type: chat\ninstructon: x": "f.yaml:2:1: unknown field 'instructon' (did you mean 'instruction'?); the fields",
    "1: x": "f.yaml:1:1: a key must be text, not a number",
    "[a]: x": "f.yaml:1:1: a key must be text, not a list",
    "type: alpca": "f.yaml:1:7: unknown type 'alpca' (did you mean 'alpaca'?); expected one of chat, alpaca",
    "type: 5": "f.yaml:1:7: type must be text, not a number; put it in quotes",
    "instruction: 5": "f.yaml:1:14: instruction must be text, not a number; put it in quotes",
    "instruction: true": "f.yaml:1:14: instruction must be text, not true or false; put it in quotes",
    "instruction:": "f.yaml:1:1: instruction is empty; add text, or remove the field",
    "instruction: [a]": "f.yaml:1:14: instruction must be text, not a list; put text that begins with { or [",
    "instruction:\n- a": "f.yaml:2:1: instruction must be text, not a list\n- a\n",
    "instruction: {q}": "f.yaml:1:15: unknown key 'q' of the instruction; its keys are system, user; put text",
    "instruction:\n  q: x": "f.yaml:2:3: unknown key 'q' of the instruction; its keys are system, user\n",
    "instruction:\n  usr: x": "f.yaml:2:3: unknown key 'usr' of the instruction (did you mean 'user'?); its keys are",
    "instruction: {user: 1}": "f.yaml:1:21: instruction.user must be text, not a number",
    "system: {q}": "f.yaml:1:9: system must be text, not a mapping; put text that begins with { or [ in quotes",
    "extra_keys: 5\ninstruction: x": "f.yaml:1:13: extra_keys must be a list of names, not a number",
    "instruction: x\nextra_keys: [a, 1]": "f.yaml:2:17: extra_keys[1] must be text, not a number",
    "instruction: x\nextra_keys: [a b]": "f.yaml:2:1: extra_keys[0] must contain only letters",
    "extra_keys: a": "f.yaml:1:1: extra_keys requires an instruction",
    "tools: 5": "f.yaml:1:8: tools must be a list of tools in the OpenAI format, not a number",
    "system: x\ntools: [{}]": "f.yaml:2:1: tools[0] ",
    "system: x\nhistory: {a: b}": "f.yaml:2:10: history must be a list of [question, answer] pairs",
    "system: x\nhistory:": "f.yaml:2:1: history must be a list of [question, answer] pairs",
    "system: x\nhistory: [[a, b], [c]]": "f.yaml:2:1: history[1] contains 1 items; ",
    "system: x\nhistory: [{role: usr, content: x}]": "f.yaml:2:1: history[0]",
    "type: alpaca\nhistory: [[a, b]]": "f.yaml:2:1: Alpaca prompts have no turns",
    "examples: x": "f.yaml:1:11: examples must be a list of pairs",
    "examples:\n- {input: a}": f"{PAIR}a mapping with the keys 'input'",
    "examples:\n- {input: a, output: b, c: d}": f"{PAIR}a mapping with the keys 'input', ",
    "examples:\n- [a, b, c]": f"{PAIR}a list of 3",
    "examples:\n- a": f"{PAIR}text",
    "examples:\n- [a, 4]": "f.yaml:2:7: examples[0] output must be text, not a number; put it in quotes",
    "model: 7": "f.yaml:1:8: model must be text, not a number",
    "system: x\nmodel: no-such-model": "f.yaml:2:1: ",
    "system: a\nsystem: b": "f.yaml:2:1: duplicate key 'system'; the first is on line 1",
    "tools:\n- {a: 1, a: 2}": "f.yaml:2:10: duplicate key 'a'; the first is on line 2",
    "a: &a {}\n<<: *a": "f.yaml:2:1: merge keys (<<) are not supported; write the fields out",
    "system: *x": "f.yaml:1:9: unknown alias *x; put text that begins with '*' in quotes",
    "history: &h [*h]": "f.yaml:1:14: unknown alias *h",
    "system: !!python/object/apply:os.system [x]": "f.yaml:1:9: the tag !!python/object/apply:os.system is not",
    "system: !!int '5'": "f.yaml:1:9: the tag !!int is not supported; a prompt file can contain only text",
    "system: !x y": "f.yaml:1:9: the tag !x is not supported",
    "history: !!set {a}": "f.yaml:1:10: the tag !!set is not supported",
    "system: a\n---\nsystem: b": "f.yaml:2:1: a prompt file must contain exactly one YAML document",
    "system: a\0b": "f.yaml:1:10: the character U+0000 is not allowed in YAML",
    "system: a\n\x1b[31m": "f.yaml:2:1: the character U+001B is not allowed in YAML; write an escape in double quotes",
    "system: a\ud800": "f.yaml:1:10: the character U+D800",
    "tools: [" + "9" * 301 + "]": "f.yaml:1:9: the number has too many digits (301); put it in quotes if it is text",
    "\r\n\rsystem: 5": "f.yaml:3:9: system must be text, not a number",
    "system: x\u2028\ntools: 5": "f.yaml:2:8: tools must be a list of tools in the OpenAI format, not a number",
}


@pytest.mark.parametrize(("text", "message"), FAULTS.items())
@pytest.mark.parametrize("loader", ["C", "Python"])
def test_faulty_prompt_file_is_one_error_with_its_place(
    text: str, message: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    found = fault(text)
    assert found.startswith(message)
    assert found.endswith("^")


SYNTAX = {
    "instruction: 回答: 是": (
        "f.yaml:1:16: mapping values are not allowed in this context; "
        "put text that contains ': ' in quotes, or after a |\n"
        "instruction: 回答: 是\n"
        "                 ^"
    ),
    "system: x\ntools:\n\t- b\n": (
        "f.yaml:3:1: while scanning for the next token, found character that cannot start any token; "
        "indent YAML with spaces, not tabs\n"
        " - b\n"
        "^"
    ),
    "instruction: @x": (
        "f.yaml:1:14: while scanning for the next token, found character that cannot start any token; "
        "put text that begins with '@' in quotes\n"
        "instruction: @x\n"
        "             ^"
    ),
    "a: 'x\n\n\n": ("f.yaml:1:4: while scanning a quoted scalar, found unexpected end of stream\na: 'x\n   ^"),
}


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="these messages are those of libyaml, which CI has")
@pytest.mark.parametrize(("text", "message"), SYNTAX.items())
def test_yaml_syntax_error_shows_the_line(text: str, message: str) -> None:
    assert fault(text) == message


@pytest.mark.parametrize("text", [*SYNTAX, "a: [1, 2", "key: |\n  text\n bad", '"\\q": x', "%YAML 9.0\n---\na", "{"])
def test_yaml_syntax_error_of_the_python_parser_shows_the_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    first, line, caret = fault(text).split("\n")
    assert first.startswith("f.yaml:")
    assert line in [*text.replace("\t", " ").split("\n")]
    assert caret.strip() == "^"


def test_lone_surrogate_is_refused_with_the_python_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert fault('system: "\\ud800"').startswith("f.yaml:1:9: the text has a lone surrogate")


@pytest.mark.slow
def test_number_of_yaml_values_is_limited() -> None:
    assert "more than 100000 values" in fault(f"history: [{'a,' * MAX_NODES}]")


def test_alias_of_a_redefined_yaml_anchor_has_the_last_value() -> None:
    assert "Be b." in make_prompt("history: [&a [x, y]]\nsystem: &a Be b.\ninstruction: *a", "x")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
@pytest.mark.parametrize("loader", ["C", "Python"])
def test_yaml_nesting_depth_is_limited(opening: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loader == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert f"nested deeper than {MAX_DEPTH} levels" in fault(opening * 100_000)


def test_path_like_object_is_named_by_its_path_in_errors(tmp_path: Path) -> None:
    class Named(os.PathLike[str]):
        def __fspath__(self) -> str:
            return str(tmp_path / "none.yaml")

    with pytest.raises(PromptFileError, match=r"none\.yaml:1:1"):
        PromptFile.load(Named())
