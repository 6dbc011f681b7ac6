"""The limits of the sandbox, each at its boundary: the last value that is accepted and the first that is refused."""

import re
from itertools import count
from typing import Any

import pytest
from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Namespace

from lazyprompt.templates import bounds
from lazyprompt.templates.bounds import Meter, as_text, check_filter, check_method, check_operator, size_of

TEXT = "a value would become longer than 20000000 characters or items"
OPERAND = "a value would become longer than 1000000 characters or items"
COPIED = "a value would become longer than 1000000000 characters or items"
BITS = " would have more than 10000 bits"
HALF = "x" * 10_000_000
SIZES = "{} accepts only numbers up to 10000"


def raises_security_error(error: str) -> Any:
    return pytest.raises(SecurityError, match=f"^{re.escape(error)}$")


@pytest.mark.parametrize(
    ("operator", "left", "accepted", "too_much", "error"),
    [
        ("*", "ab", 500_000, 500_001, OPERAND),
        ("*", 1_000_000, "x", "xy", OPERAND),
        ("*", 500_000, (1, 2), (1, 2, 3), OPERAND),
        ("*", [1, 2], 500_000, 500_001, OPERAND),
        ("*", b"x", 1_000_000, 1_000_001, OPERAND),
        ("*", 1 << 4999, 1 << 4999, 1 << 5000, "the result of '*'" + BITS),
        ("**", 2, 64, 65, "the exponent of '**' must not exceed 64"),
        ("**", 2.5, -64.0, -64.5, "the exponent of '**' must not exceed 64"),
        ("**", 1 << 199, 50, 51, "the result of '**'" + BITS),
        ("**", 1 << 199, -50, -51, "the result of '**'" + BITS),
        ("%", "%9999d", 1, None, ""),
        ("%", "%s", HALF + HALF, (HALF + HALF + "x",), TEXT),
        ("%", "%s%s", (HALF, ""), (HALF + "x", ""), TEXT),
        ("%", "%9999s%1s", ("x" * 9_995_000, ""), ("x" * 9_995_001, ""), TEXT),
        ("%", "%*d", (10_000, 1), (10_001, 1), SIZES.format("%")),
        ("%", "%.*f", (-10_000, 1.5), (-10_001, 1.5), SIZES.format("%")),
        ("%", 12345, 67890, None, ""),
    ],
)
def test_an_operator_is_refused_beyond_its_limit(
    operator: str, left: object, accepted: object, too_much: object, error: str
) -> None:
    check_operator(operator, left, accepted)
    if error:
        with raises_security_error(error):
            check_operator(operator, left, too_much)


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (b"%d", "'%' is not supported for bytes"),
        ("%12345d", "% accepts only widths up to 10000"),
        ("%-+ #.12345d", "% accepts only widths up to 10000"),
        ("%(a)12345d", "% accepts only widths up to 10000"),
        ("%(a(b))d", "'%' does not support mapping keys that contain parentheses"),
    ],
)
def test_an_unsupported_format_string_is_refused(left: object, error: str) -> None:
    with raises_security_error(error):
        check_operator("%", left, 1)
    if isinstance(left, str):
        with raises_security_error(error.replace("% accepts", "format accepts")):
            check_filter("format", left, (1,))


@pytest.mark.parametrize(
    ("name", "subject", "accepted", "too_much", "error"),
    [
        *((name, "x", (10_000,), (10_001,), SIZES.format(name)) for name in ("center", "ljust", "rjust", "zfill")),
        *(("to_bytes", 7, (10_000, "big"), (size, "big"), SIZES.format("to_bytes")) for size in (10_001, -10_001)),
        ("expandtabs", "", (10_000,), (10_001,), SIZES.format("expandtabs")),
        ("expandtabs", "\t" * 4_000, (5_000,), (5_001,), TEXT),
        ("replace", "x" * 1000, ("x", "y" * 1000), ("x", "y" * 1001), OPERAND),
        ("join", "ab", ([""] * 500_000,), ([""] * 500_001,), OPERAND),
        ("join", "", ([HALF, HALF[:-6]],), ([HALF, HALF[:-5]],), TEXT),
        ("format", "{}{}", (HALF, ""), (HALF + "x", ""), TEXT),
        ("format", "{0:9999}{0:1}a", ("x" * 9_995_000,), ("x" * 9_995_001,), TEXT),
        ("format_map", "{a}{b}", ({"a": HALF[14:], "b": ""},), ({"a": HALF[13:], "b": ""},), TEXT),
        ("strip", HALF, ("x" * 20_001,), None, ""),
        ("decode", b"x", ("utf-8",), None, ""),
    ],
)
def test_a_method_is_refused_beyond_its_limit(
    name: str, subject: Any, accepted: tuple[object, ...], too_much: tuple[object, ...] | None, error: str
) -> None:
    assert check_method(name, subject, accepted, ()) == accepted
    for given, named in ((too_much, ()), ((), too_much)):
        # The items of a join have no name.
        if given is not None and named is not None and (given or name != "join"):
            with raises_security_error(error):
                check_method(name, subject, given, named)


@pytest.mark.parametrize(
    ("name", "subject", "args", "error"),
    [
        ("translate", "x", ({},), "the method translate is not available in templates; use replace"),
        ("center", b"x", (1,), "the method center is not available in templates; use replace"),
        ("format", "{:12345}", (1,), "format accepts only widths up to 10000"),
        ("format", "{:{}}", (1, 10_001), "format accepts only numbers up to 10000"),
        *(
            (
                *(name, "{:{}}", (1, 10_000)),
                "format does not support nested replacement fields like '{:{width}}'; write the width as a number",
            )
            for name in ("format", "format_map")
        ),
    ],
)
def test_unsupported_method_calls_are_refused(name: str, subject: Any, args: tuple[object, ...], error: str) -> None:
    with raises_security_error(error):
        check_method(name, subject, args, ())


@pytest.mark.parametrize(
    ("name", "subject", "accepted", "too_much", "error"),
    [
        *((name, "x", (-10_000,), (-10_001,), SIZES.format(name)) for name in ("batch", "center", "indent", "slice")),
        ("round", 1.5, (10_000,), (10_001,), SIZES.format("round")),
        ("indent", "\n" * 4_000, (5_000,), (5_001,), TEXT),
        ("indent", "\n" * 2, (HALF,), (HALF + "x",), TEXT),
        ("wordwrap", "x", (79, True, HALF), (79, True, HALF + "x"), TEXT),
        ("urlize", "x", (10_000_001, False, HALF), (1, False, HALF + "x"), TEXT),
        ("tojson", ["x"], (5_000_000,), (5_000_001,), TEXT),
        ("tojson", ["x"], (["  " * 2_500_000],), (["  " * 2_500_001],), TEXT),
        ("tojson", [HALF, HALF[:-6]], (0,), None, ""),
        ("sum", [[]] * 18_257, ("x", []), None, ""),
        ("sum", [[]] * 18_258, (0,), ((),), COPIED),
        ("replace", "x" * 1000, ("x", "y" * 1000), ("y" * 1001, "x"), OPERAND),
        ("replace", ["x"] * 1000, ("x", "y" * 1000), ("x", "y" * 1001), OPERAND),
        ("format", ["%s"], ("x",), (HALF + HALF + "x",), TEXT),
        ("join", "x" * 1000, ("y" * 1000,), ("y" * 1001,), OPERAND),
        ("join", [1, 2], ("y" * 500_000, "real"), ("y" * 500_001, "real"), OPERAND),
        ("join", [HALF, HALF[:-6]], (), None, ""),
        ("upper", [HALF, HALF[:-6]], (), None, ""),
    ],
)
def test_a_filter_is_refused_beyond_its_limit(
    name: str, subject: object, accepted: tuple[object, ...], too_much: tuple[object, ...] | None, error: str
) -> None:
    expected = str(subject) if name in ("format", "replace") else subject
    assert check_filter(name, subject, accepted) == expected
    if too_much is not None:
        with raises_security_error(error):
            check_filter(name, subject, too_much)


def test_an_iterator_is_converted_to_a_list_before_its_size_is_checked() -> None:
    assert check_method("join", ",", (iter("ab"), 1), ()) == (["a", "b"], 1)
    assert check_filter("join", iter("ab"), ()) == ["a", "b"]
    assert check_filter("sum", iter([1, 2]), ()) == [1, 2]
    for name in ("join", "sum", "upper"):
        with raises_security_error(TEXT):
            check_filter(name, [HALF, HALF, ""], ())
    unbounded = count()
    assert check_filter("upper", unbounded, ()) is unbounded


@pytest.mark.parametrize(
    ("value", "size"),
    [
        *(("ab", 2), (1 << 29, 10), (-(1 << 29), 10), (True, 0), (1.5, 0), (None, 0), (b"ab", 0), (range(9), 0)),
        *(([], 0), (["ab"], 5), (("a", ["b", "c"]), 3 * 4 + 3), ({"a": "bc"}, 3 * 2 + 3), ({"a": {"b": [7]}}, 18)),
        *((Undefined(), 0), ({"ab"}, 5), ({"a": 1}.values(), 3), ({"a": 1}.items(), 3 * 3 + 1), (iter("ab"), 0)),
        *((Namespace(a="bc"), 3 * 2 + 3), ([Namespace(a=["b"])], 3 * 4 + 2)),
    ],
)
def test_the_size_of_a_value_is_its_text_lengths_plus_three_characters_per_item(value: object, size: int) -> None:
    assert size_of(value, size) == size
    if size:
        with raises_security_error(f"a value would become longer than {size - 1} characters or items"):
            size_of(value, size - 1)


def test_the_size_of_a_value_is_checked_before_it_is_converted_to_text() -> None:
    text = "x" * 20_000_001
    assert as_text(text) is text
    assert [as_text(each) for each in (1.5, None, Undefined(), ["a", 1])] == ["1.5", "None", "", "['a', 1]"]
    with raises_security_error(TEXT):
        as_text([text])


@pytest.mark.parametrize(("most", "steps"), [(33, 33), (34, 66), (100, 132)])
def test_the_step_limit_is_checked_at_the_first_step_and_every_33rd_step(most: int, steps: int) -> None:
    meter = Meter(most, 0)
    for at in range(steps):
        assert meter.stepped(at) == at
    with raises_security_error(f"the loops and calls took more than {most} steps in one rendering"):
        list(meter.counted(["a"]))
    assert list(Meter(most, 0).counted("ab")) == ["a", "b"]


def test_cpu_time_is_read_only_when_the_time_limit_may_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, cpu = [0.0], [100.0]
    monkeypatch.setattr(bounds, "monotonic", lambda: wall[0])
    monkeypatch.setattr(bounds, "thread_time", cpu.pop)
    meter = Meter(500_000, 0)
    # The limit of five seconds begins at the first reading, after 0.05 seconds.
    for wall[0], seconds in ((0.04, None), (0.05, 100.0), (5.0, None), (5.05, 103.0), (7.0, None), (7.05, 105.0)):
        cpu[:] = [] if seconds is None else [seconds]
        meter.look()
        assert not cpu
    wall[0], cpu[:] = 7.06, [105.1]
    with raises_security_error("rendering took more than 5 seconds of CPU time"):
        meter.look()


def test_sizes_of_buffered_texts_and_ranges_are_summed_over_one_rendering() -> None:
    meter = Meter(1, 250_000)
    assert [meter.kept(text) for text in (HALF, HALF[:-32])] == [HALF, HALF[:-32]]
    with raises_security_error(TEXT):
        meter.kept("")
    assert [meter.numbers(*each) for each in ((100_000,), (0, 200_000, 2))] == [range(100_000), range(0, 200_000, 2)]
    with raises_security_error("range() returned more than 100000 numbers at once"):
        meter.numbers(100_001)
    assert len(meter.numbers(50_000)) == 50_000
    with raises_security_error("range() returned more than 250000 numbers in one rendering"):
        meter.numbers(1)
