"""Objects of clients as the JSON of their APIs."""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from enum import Enum
from math import inf
from types import MappingProxyType

import pytest
from pydantic import BaseModel

from lazyprompt._base.client_objects import (
    fields_of,
    items_of,
    json_or_text,
    members_of,
    plain,
    plain_fields,
    snake_keys,
    standard_base64,
)
from lazyprompt._base.json import MAX_DEPTH, MAX_INT_BITS


class Unset:
    """The placeholder for a missing value in the Mistral client."""


class Answer(BaseModel, extra="allow", arbitrary_types_allowed=True):
    text: str | None = None
    when: object = None
    _own: int = 1


class Level(Enum):
    LOW = "low"
    DATA = b"a"


class Number(int):
    """A subclass of int, as in a client."""


B = Answer.model_validate({"text": "b", "none": None})
ANSWER = Answer.model_validate({"text": "a", "when": Unset(), "more": [B]})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((same, same) for same in ("a", True, 1.5, None, 3)),
        *((Level.LOW, "low"), (Level.DATA, "YQ=="), (b"ab", "YWI="), (date(2026, 1, 2), "2026-01-02")),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        *((object, "<type>"), ({1}, "<set>")),
        *(((1, (b"a",)), [1, ["YQ=="]]), ({"a": {2: Level.LOW}}, {"a": {"2": "low"}})),
        *((MappingProxyType({"a": (1,)}), {"a": [1]}), (ANSWER, {"text": "a", "more": [{"text": "b"}]})),
    ],
)
def test_client_values_become_plain_json_values(value: object, expected: object) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def test_an_integer_too_long_for_json_becomes_infinity() -> None:
    most = MAX_INT_BITS
    assert plain([1 << (most - 1), Number(1 << (most - 1)), Number(1 << most)]) == [1 << (most - 1)] * 2 + [inf]


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a": ', "}")])
def test_values_beyond_the_nesting_limit_become_an_ellipsis(start: str, end: str) -> None:
    deep = MAX_DEPTH + 30
    value = json.loads(start * deep + "1" + end * deep)
    for text, depth in ((json_or_text(value), MAX_DEPTH + 1), (json.dumps(plain(value)), MAX_DEPTH + 21)):
        assert json.loads(text) == json.loads(start * depth + '"…"' + end * depth)


def test_members_of_an_object_are_the_fields_that_are_set() -> None:
    assert members_of(ANSWER) == {"text": "a", "more": [B]}
    assert members_of(Answer(text="a")) == {"text": "a"}
    assert members_of({1: None, "a": 2}) == {"1": None, "a": 2}
    assert members_of([1]) is plain_fields("a") is None
    assert plain_fields({"a": b"a"}) == {"a": "YQ=="}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((None, ""), ("a", "a"), ("é", "é"), ("a\ud800b", "a\ufffdb"), (1, "1")),
        *(({"a": "é"}, '{"a": "é"}'), (["\ud800"], '["\\ud800"]'), (b"a", '"YQ=="')),
    ],
)
def test_json_or_text_converts_values_to_text(value: object, expected: str) -> None:
    assert json_or_text(value) == expected


@pytest.mark.parametrize("data", [b"", b"\xfb\xef\xff", b"\xfb", b"\xfb\xfe", b"abcd"])
def test_all_base64_variants_become_standard_base64(data: bytes) -> None:
    text = b64encode(data).decode()
    bare = text.rstrip("=")
    for given in (data, text, bare, text.replace("+", "-").replace("/", "_"), f"{bare}=="):
        assert standard_base64(given) == text


@pytest.mark.parametrize("text", ["a", "ab!", "https://a.example"])
def test_text_that_is_not_base64_is_unchanged(text: str) -> None:
    assert standard_base64(text) == text


def test_top_level_keys_become_snake_case() -> None:
    keys = {"functionCall": 1, "role": {"aB": 2}, "a_b": 3, 4: 5}
    assert snake_keys(keys) == {"function_call": 1, "role": {"aB": 2}, "a_b": 3}
    assert snake_keys([]) == fields_of([]) == {}
    assert [*items_of((1,)), *items_of("a"), *items_of({})] == [1]
