"""The environment of prompt files: what an expression becomes, and the limits of its containers."""

from typing import Any

import pytest
from jinja2 import ChainableUndefined
from jinja2.exceptions import SecurityError

from lazyprompt._base.trusted import Trusted
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.environment import ValueEnvironment, environment_of, finalize, portable
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.slots import JsonValue, Opaque, TrustedValue, Value

HELD = Opaque()


def render(text: str, *, is_portable: bool = False, **values: Any) -> str:
    environment_of.cache_clear()
    return "".join(JinjaTemplate(text, is_portable=is_portable).fill(values))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (-0.0, "0"),
        (1.0, "1"),
        (2.5, "2.5"),
        (3, 3),
        ("a", "a"),
        ([1], [1]),
    ],
)
def test_a_scalar_is_converted_to_its_portable_text(value: object, expected: object) -> None:
    assert portable(value) == expected
    assert type(portable(value)) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "text", "held"),
    [
        ("ab", Value, "ab", None),
        (1.0, Value, "1.0", None),
        (None, Value, "None", None),
        ([1, {"a": None}], JsonValue, '[1, {"a": null}]', None),
        (Trusted("ab"), TrustedValue, "ab", None),
        (ChainableUndefined(), Value, "", None),
        (HELD, Value, "", HELD),
    ],
)
def test_finalized_values_have_the_expressions_name(value: object, kind: type[Value], text: str, held: object) -> None:
    made = finalize(value, "a.b")
    assert (type(made), str.__str__(made), made.source, made.root, made.held) == (kind, text, "a.b", "a", held)
    assert finalize(made, "c") is made
    assert finalize(value).source == ""


def test_finalize_applies_the_scalar_converter_first() -> None:
    assert finalize(1.0, "a", portable) == Value("1", "a")
    assert finalize(Value("x", "a"), "b", lambda _: 3) == "3"


@pytest.mark.parametrize(("source", "name"), [("a.b", "a.b"), ("", "a Jinja expression")])
def test_error_for_a_value_that_is_not_text_names_its_slot(source: str, name: str) -> None:
    with pytest.raises(SlotError, match=f"the value of slot '{name}' must be text, not bytes"):
        finalize(b"", source)


def test_a_value_longer_than_20_million_characters_is_refused() -> None:
    assert len(finalize("x" * 20_000_000)) == 20_000_000
    with pytest.raises(SecurityError):
        finalize("x" * 20_000_001)


def test_the_size_of_a_list_is_checked_before_it_is_converted_to_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("lazyprompt.templates.environment.value_text")
    with pytest.raises(SecurityError):
        finalize(["x" * 1_000_000] * 21)


@pytest.mark.parametrize("text", ["[[x], [x]]", "((x,), (x,))", "{'a': (x,), 'b': {'c': x}}", "[1, (x, x)]"])
def test_a_nested_container_of_more_than_6_million_characters_is_refused(text: str) -> None:
    """Comparing containers that share their items takes a time that grows exponentially with the depth."""
    template = f"{{% if {text} == 1 %}}a{{% else %}}b{{% endif %}}"
    assert render(template, x="x" * 1_900_000) == "b"
    with pytest.raises(TemplateError, match="longer than 6000000 characters"):
        render(template, x="x" * 6_000_000)


@pytest.mark.parametrize("value", [["x" * 3_000_000] * 3, ("x" * 3_000_000,) * 3, {"a": "x" * 7_000_000}, [[]], {}])
def test_the_size_of_a_flat_container_is_not_limited(value: Any) -> None:
    assert ValueEnvironment.listed(value) is value


@pytest.mark.parametrize(
    ("text", "plain", "converted"),
    [
        ("{{ 1.0 ~ none ~ true }}", "1.0NoneTrue", "1true"),
        ("{{ [true, 1.0, none] | join(none) }}", "TrueNone1.0NoneNone", "true1"),
        ("{{ [{'a': true}, {'a': 1.0}] | join(',', attribute='a') }}", "True,1.0", "true,1"),
        *((f"{{{{ none | {name} }}}}", "None", "") for name in ("capitalize", "string", "title", "trim")),
        ("{{ none | lower }}{{ none | upper }}{{ 1.0 | replace('1', '2') }}", "noneNONE2.0", "2"),
        *((f"{{{{ true | {name} }}}}", "1", "1") for name in ("int", "abs")),
        ("{% for a, b in [(1, 2)] %}{{ b }}{{ a }}{% endfor %}\n", "21\n", "21\n"),
    ],
)
def test_a_portable_environment_converts_scalars(text: str, plain: str, converted: str) -> None:
    assert [render(text, is_portable=each) for each in (False, True)] == [plain, converted]
