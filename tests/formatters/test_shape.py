"""The shape checks of provider forms: which values each accepts, and how it reports the others."""

from typing import Any

import pytest

from lazyprompt.formatters.shape import check_of, list_of, new_kind, one_of, parts_of, path_text, tagged_object, text_or

INT = 2**13_998
# A shape, valid values, and invalid values by the expected report.
SHAPES: list[tuple[Any, list[Any], dict[str, Any]]] = [
    ("any", [None, 5, []], {}),
    ("text", ["", "a"], {" is None; use text": None, " is the float 1.5; use text": 1.5}),
    ("text", [], {" is a int; use text": 2 * INT}),
    ("text|null", ["a", None], {" is a list; use text": ["a"], f" is the int {str(INT)[:60]}; use text": INT}),
    ("bool", [True, False], {" is the int 1; use true or false": 1}),
    ("object", [{}, {"a": 1}], {f" is the str '{'x' * 59}; use a JSON object": "x" * 99}),
    ("base64", ["eA==", "a-_b"], {" is the str 'eA='; use base64": "eA=", " is the str 'e A='; use base64": "e A="}),
    (one_of("left", "right"), ["left", "right"], {
        " is the int 5; use 'left' or 'right'": 5,
        " is the str 'rigth'; use 'left' or 'right' (did you mean 'right'?)": "rigth",
    }),
    (["text"], [[], ["a", "b"]], {" is a dict; use a list": {}, "[1] is the int 5; use text": ["a", 5]}),
    (list_of("bool", 2), [[True, False, True]], {" is empty; add at least 2, or remove the key": [True]}),
    (text_or(["bool"]), ["a", [True]], {"[0] is the int 5; use true or false": [5]}),
    ({"name": "text", "size?": "bool"}, [{"name": "a"}, {"name": "a", "size": True}], {
        " is a list; use a JSON object": [],
        "size is the int 5; use true or false\nname is missing; add it": {"size": 5},
        "nmae is an unknown key; remove it (did you mean 'name'?)": {"name": "a", "nmae": 5},
    }),
    ({"name": "text", "...": "any"}, [{"name": "a", "more": 1}], {"name is missing; add it": {"more": 1}}),
    (tagged_object("kind", {"a": {"x": "text"}, "b": "any"}, default="a"),
     [{"kind": "a", "x": ""}, {"x": ""}, {"kind": None, "x": ""}, {"kind": "b", "y": 1}], {
        "kind is the str 'c'; use 'a' or 'b'": {"kind": "c"},
        "x is missing; add it": {"kind": "a"},
        " is the int 5; use a JSON object": 5,
    }),
    (tagged_object("kind", {"a": {"x": "text"}}, {"kind": "text", "...": "any"}),
     [{"kind": "a", "x": ""}, {"kind": "z", "y": 1}], {"kind is None; use 'a'": {"x": ""}}),
    (parts_of({"text": {"text": "text"}}, 0, new_kind({"text": {}, "image": {}})),
     ["a", [], [{"type": "text", "text": "a"}, {"type": "hologram"}]],
     {"[1].type is the str 'audio'; use 'text' or 'image'": [{"type": "text", "text": "a"}, {"type": "audio"}]}),
    (parts_of({"text": {}}), [[{"type": "text"}]], {" is empty; add at least 1, or remove the key": []}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "valid", "invalid"), SHAPES)
def test_shape_check_reports_the_path_the_problem_and_the_fix(
    shape: Any, valid: list[Any], invalid: dict[str, Any]
) -> None:
    check = check_of(shape)
    assert [list(check(value)) for value in valid] == [[]] * len(valid)
    reported = [
        "\n".join(f"{path_text(at)} {what}; {fix}" for at, what, fix in check(each)) for each in invalid.values()
    ]
    assert reported == [*invalid]
