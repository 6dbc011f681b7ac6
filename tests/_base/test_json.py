import json
import pickle
from collections import OrderedDict
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import (
    MAX_DEPTH,
    MAX_INT_BITS,
    JsonText,
    checked,
    checked_object,
    dump,
    fresh,
    fresh_json,
    texts_in,
    well_formed,
)
from lazyprompt.errors import HistoryError, LazyPromptError, ToolsError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Level(IntEnum):
    HIGH = 3


class Color(StrEnum):
    RED = "red"


class Metre(float):
    pass


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "loud"


def containers(value: object) -> list[int]:
    """The identity of each list and dict in a value."""
    if isinstance(value, dict):
        return [id(value), *(found for item in value.values() for found in containers(item))]
    if isinstance(value, list):
        return [id(value), *(found for item in value for found in containers(item))]
    return []


@given(VALUES)
def test_a_checked_value_is_an_equal_deep_copy(value: Any) -> None:
    before = json.dumps(value)
    made = checked(value, "x", ToolsError)
    for copy, source in ((made, value), (fresh_json(made), made), (fresh({"a": made})["a"], made)):
        assert copy == value
        assert not set(containers(copy)) & set(containers(source))
    assert json.dumps(value) == before


@given(VALUES)
def test_json_text_reads_back_as_the_value(value: Any) -> None:
    text = dump(checked(value, "x", ToolsError))
    assert type(text) is JsonText
    assert json.loads(text) == value
    assert "\n" not in text


def test_all_strings_of_a_value_are_found() -> None:
    assert sorted(texts_in({"a": ["b", ("c", 1)], "d": {"e": None, "f": "g"}})) == list("abcdefg")
    assert (texts_in("a"), texts_in(1)) == (["a"], [])


def test_json_text_does_not_escape_chinese_and_has_uniform_spacing() -> None:
    assert dump({"城市": ["北京", 1.5, True, None]}) == '{"城市": ["北京", 1.5, true, null]}'


def test_json_text_stays_json_text_when_pickled() -> None:
    twin = pickle.loads(pickle.dumps(JsonText("[1]")))  # noqa: S301 - our own bytes
    assert type(twin) is JsonText
    assert twin == "[1]"


def test_subclasses_become_plain_values() -> None:
    copy = checked([Level.HIGH, Color.RED, Metre(1.5), Loud("quiet"), OrderedDict(a=1), True], "x", ToolsError)
    assert copy == [3, "red", 1.5, "quiet", {"a": 1}, True]
    assert [type(item) for item in cast("list[object]", copy)] == [int, str, float, str, dict, bool]
    assert checked({"a": (1, (2,))}, "x", ToolsError) == {"a": [1, [2]]}
    (key,) = checked_object({Loud("quiet"): 1}, "x", ToolsError)
    assert (key, type(key)) == ("quiet", str)
    assert checked_object(MappingProxyType({"a": [1]}), "x", ToolsError) == {"a": [1]}


LOOP: list[object] = []
LOOP.append(LOOP)
LOOP_OF_A_DICT: dict[str, object] = {}
LOOP_OF_A_DICT["me"] = [LOOP_OF_A_DICT]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *(
            ({"a": [0.0, float(number)]}, rf"x\.a\[1\] is {number}, which is not valid JSON")
            for number in ("nan", "inf", "-inf")
        ),
        *(
            ({"k": value}, rf"x\.k has type {type(value).__name__}, which is not a JSON value")
            for value in ({1, 2}, frozenset[int](), b"x", object(), 1j, range(3))
        ),
        *(([{key: 1}], r"x\[0\] has the key .* keys in JSON objects must be strings$") for key in (1, None, ("a",))),
        *((LOOP, ".*contains itself"), (LOOP_OF_A_DICT, ".*contains itself")),
        ({"a\ud800": 1}, r"x has a lone surrogate \(\\ud800\) at index 1"),
        ({"a": ["\ud800"]}, r"x\.a\[0\] has a lone surrogate \(\\ud800\) at index 0"),
    ],
)
@pytest.mark.parametrize("kind", [ToolsError, HistoryError])
def test_non_json_values_are_refused_with_their_path(value: object, message: str, kind: type[LazyPromptError]) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        checked(value, "x", kind)
    if isinstance(value, dict):
        with pytest.raises(kind, match=f"^{message}"):
            checked_object(cast("dict[str, object]", value), "x", kind)


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a": ', "}")])
def test_nesting_beyond_the_limit_is_refused(start: str, end: str) -> None:
    value = json.loads(start * (MAX_DEPTH - 1) + "[]" + end * (MAX_DEPTH - 1))
    assert checked(value, "x", ToolsError) == value
    with pytest.raises(ToolsError, match=f"deeper than {MAX_DEPTH} levels"):
        checked([value], "x", ToolsError)


def test_an_integer_longer_than_the_limit_is_refused() -> None:
    longest = 2**MAX_INT_BITS - 1
    assert json.loads(dump(checked(longest, "x", ToolsError))) == longest
    with pytest.raises(ToolsError, match=r"^x\[0\] is an integer of 14001 bits"):
        checked([longest + 1], "x", ToolsError)


@pytest.mark.parametrize(("text", "index"), [("\ud800", 0), ("ok \udfff", 3), ("😀\ude00\ud83d", 1)])
def test_a_lone_surrogate_is_refused_with_its_index(text: str, index: int) -> None:
    with pytest.raises(ToolsError, match=rf"^x has a lone surrogate \(\\u{ord(text[index]):04x}\) at index {index},"):
        well_formed(text, "x", ToolsError)


@given(st.text())
def test_well_formed_text_is_returned_unchanged(text: str) -> None:
    assert well_formed(text, "x", ToolsError) is text
