"""The longest prefix that a text shares with earlier ones, and the earlier text that it is of."""

import pytest

from lazyprompt.caching.prefix_tree import PrefixMatch, PrefixTree

Found = tuple[int, int | None, str]
TWO = [("abcd", 100.0), ("abxy", 160.0)]
WORDS = ["one two three", "one two three four", "one two tower", "one ten"]


def build_tree(calls: list[tuple[str, float | None]], lifetime: float | None = None) -> PrefixTree:
    """A tree in which each text has ten tokens a character, and one for each text before it."""
    tree = PrefixTree(lifetime)
    for at, (text, time) in enumerate(calls):
        tree.add(text, at, time, {end: 10 * end + at for end in range(2, len(text) + 1, 2)})
    return tree


def match_fields(match: PrefixMatch) -> Found:
    return match.length, match.call, match.behind


@pytest.mark.parametrize(
    ("calls", "text", "expected", "later", "tokens"),
    [
        ([], "ab", (0, None, ""), None, [None, None, None]),
        (["", "ab"], "", (0, None, ""), None, [None, None, None]),
        (["ab"], "xy", (0, None, ""), None, [None, None, None]),
        (["abcd"], "abx", (2, 0, "cd"), None, [20, 40, None]),
        (["abcd"], "abcdef", (4, 0, ""), None, [20, 40, None]),
        (["abcd", "abcd"], "abcd", (4, 1, ""), None, [21, 41, None]),
        # The later of two calls, unless an earlier one ends where the texts begin to differ.
        (["abcd", "abxy"], "abz", (2, 1, "xy"), None, [21, None, None]),
        (["abxy", "abcd"], "abz", (2, 1, "cd"), None, [21, None, None]),
        (["ab", "abcd"], "abz", (2, 0, ""), (2, 1, "cd"), [21, 41, None]),
        (["ab", "abcd", "abxy"], "abz", (2, 0, ""), (2, 2, "xy"), [22, None, None]),
        (["abcd", "ab"], "abcz", (3, 0, "d"), (2, 1, ""), [21, 40, None]),
        # A later call may share all but the last word.
        (["a cat sat down", "a dog", "a car sat"], "a cats", (5, 0, " sat down"), (4, 2, "r sat"), [22, 42, 60]),
        (WORDS, WORDS[0], (13, 0, ""), (9, 2, "ower"), [23, 43, 62]),
        (["one two", "one to"], "one two", (7, 0, ""), (5, 1, "o"), [21, 41, 60]),
        (["x" * 40 + "1", "x" * 9], "x" * 40 + "2", (40, 0, "1"), None, [21, 41, 61]),
    ],
)
def test_the_longest_prefix_is_found_with_its_call_and_tokens(
    calls: list[str], text: str, expected: Found, later: Found | None, tokens: list[int | None]
) -> None:
    match = build_tree([(each, None) for each in calls]).match(text, None, None)
    assert match_fields(match) == expected
    other = match.later(text)
    assert (other and match_fields(other)) == later
    assert [match.tokens_at(at) for at in (2, 4, 6)] == tokens


@pytest.mark.parametrize(
    ("calls", "now", "lifetime", "expected"),
    [
        (TWO, 200.0, 100, (3, 0, "d")),
        (TWO, 200.0, 99, (2, 1, "xy")),
        (TWO, 210.0, 50, (2, 1, "xy")),
        (TWO, 211.0, 50, (0, None, "")),
        (TWO, 999.0, None, (3, 0, "d")),
        (TWO, None, 50, (3, 0, "d")),
        # A call without a time keeps a text forever, and an earlier time does not end it.
        ([("abcd", None), ("abxy", 160.0)], 900.0, 50, (3, 0, "d")),
        ([("abcd", 100.0), ("abcd", 10.0)], 100.0, 50, (3, 1, "d")),
    ],
)
def test_a_text_is_forgotten_a_lifetime_after_its_last_use(
    calls: list[tuple[str, float | None]], now: float | None, lifetime: float | None, expected: Found
) -> None:
    assert match_fields(build_tree(calls).match("abcz", now, lifetime)) == expected


@pytest.mark.parametrize(
    ("calls", "lifetime", "lengths"), [(1_000, 500, [3, 4, 4]), (1_000, None, [4, 4, 4]), (999, 400, [4, 4, 3])]
)
def test_expired_texts_are_removed_after_1000_calls(calls: int, lifetime: float | None, lengths: list[int]) -> None:
    tree = build_tree([(f"{at:04}", at) for at in range(calls)], lifetime)
    assert [tree.match(f"{at:04}", None, None).length for at in (498, 499, 999)] == lengths
    assert tree.time == calls - 1
