"""YAML values in prompt files, and the errors for text that is not valid YAML."""

import re
from typing import Any

import pytest

from lazyprompt.errors import PromptFileError
from lazyprompt.files.yaml_nodes import Node, SourceText, YamlReader, is_same, is_text, plain, split, to_node


def parse_yaml(text: str) -> Any:
    return plain(YamlReader(SourceText(text, "a")).read())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("~", None), ("Null", None), ("TRUE", True), ("false", False), ("yes", "yes"), ("12:30", "12:30")),
        *(("-0.5e3", -500.0), ("1e2", 100.0), ("0", 0), ("1.0", 1.0), ("01", "01"), (".5", ".5"), ("1.", "1.")),
        *(("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("! 1", "1"), ("!!seq [a]", ["a"]), ("0x1", "0x1")),
        *(("!!map {a: 1}", {"a": 1}), ("{'<<': 1}", {"<<": 1}), ("[&x [b], *x]", [["b"], ["b"]]), ("# c", None)),
        *((text, text) for text in ("no", "on", "off", "010", "0x1f", "1_000", "2026-01-01", ".inf")),
        ("1" * 300, int("1" * 300)),
    ],
)
def test_yaml_scalar_is_text_unless_it_is_a_json_scalar(text: str, value: object) -> None:
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\tb: c", "1:5: mapping values are not allowed in this context; put text that contains ': ' in quotes"),
        ("[a\n\n", "1:3: while parsing a flow sequence"),
        ("{~: 2}", "1:2: a key must be text, not empty; put it in quotes"),
    ],
)
def test_yaml_fault_is_an_error_at_its_place(text: str, message: str) -> None:
    with pytest.raises(PromptFileError, match="^" + re.escape(f"a:{message}")):
        parse_yaml(text)


def test_error_shows_the_faulty_line_with_a_caret() -> None:
    text = f"x\r\n\t{'中' * 70}e\u0301\u202e!{'y' * 60}"
    shown = f"a:2:76: what\n{'中' * 56}e\u0301\\u202e!{'y' * 40}\n{' ' * 120}^"
    assert str(SourceText(text, "a").fault_at(text.index("!") + 1, "what")) == shown
    assert SourceText("\ufeffa\rb\nc", "a").place(4) == (3, 1)


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("a\r\nb", None, "a\nb"),
        ("\n ---\na: 1\n ---\n\n b\r", {"a": 1}, " b\n"),
        (" ---\na: 1\n---", {"a": 1}, ""),
        ("+++\n# c\n+++\nb", {}, "b"),
        ("----\na", None, "----\na"),
    ],
)
def test_file_is_split_into_front_matter_and_body(text: str, fields: Any, body: str) -> None:
    parts = split(SourceText(text, "a"))
    found = None if parts.fields is None else {name: plain(node) for name, node in parts.fields.items()}
    assert (found, parts.body) == (fields, body)
    assert text[parts.body_at :].replace("\r\n", "\n").replace("\r", "\n") == body


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\0a", "1:1: the file contains the character U+0000, which is not allowed"),
        ("a\0", "1:2: the file contains the character U+0000, which is not allowed"),
        ("\n ---\na: 1\n", "2:2: invalid frontmatter: it begins here but is not closed by a line that contains only"),
        ("---\na: 1\na: 2\n---\n", "3:1: invalid frontmatter: duplicate key 'a'"),
        ("---\n[a]\n---\n", "2:1: invalid frontmatter: it must be a mapping of fields, not a list"),
        ("---\na: [\n---\n", "3:1: invalid frontmatter: while parsing a flow node, did not find expected node content"),
    ],
)
def test_invalid_front_matter_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PromptFileError, match="^" + re.escape(f"a:{message}")):
        split(SourceText(text, "a"))


def test_to_node_places_values_at_another_node() -> None:
    inner = Node("x", 1, 2)
    made = to_node({"a": [inner, 1, None], "b": "c"}, Node("", 7, 8))
    assert plain(made) == {"a": ["x", 1, None], "b": "c"}
    assert made.fields["a"].parts == [inner, Node(1, 7, 8), Node(None, 7, 8)]
    assert [is_same(1, other) for other in (1, True, 1.0)] == [True, False, False]
    assert [is_text(text) for text in ("a", "", "1", "true", "<<")] == [True, False, False, False, False]
