"""Checks of answers, apart from files and models."""

from lazyprompt.testing.checks import answer_failures, make_check


def test_an_answer_that_is_nested_too_deep_fails_and_stops_nothing() -> None:
    """Python's reader of JSON, and the validator, raised a RecursionError."""
    schema = make_check("answer", "json_schema", {"items": {"$ref": "#"}})
    for depth in (400, 100_000):
        (failure,) = answer_failures("[" * depth + "]" * depth, [schema], None)
        assert "maximum recursion depth" in failure.message
    assert answer_failures("[[]]", [schema], None) == []
