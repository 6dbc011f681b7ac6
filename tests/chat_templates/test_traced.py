"""Text that knows where it came from: all that is done with it gives str's text, and no character loses its origin."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.chat_templates.traced import (
    OWN,
    TextOrigin,
    Traced,
    common_start,
    contains_traced,
    cut_runs,
    find_traced,
    map_origins,
    parts_of,
    runs_of,
    trace,
    trace_opaque,
)

# Signs that are stripped, split at, joined from two, or become two in other letters.
SIGNS = "ab<  \n\r\t\x0b\x1c\x85\u2028\u3000ßŉΣσǆİ你"
TEXTS = st.text(SIGNS, max_size=12)
PIECES = st.text("ab< \n", min_size=1, max_size=2)
COUNTS = st.integers(-2, 4)


@st.composite
def _traced_texts(draw: st.DrawFn) -> Traced:
    """A text in runs of many lengths, nothing among them, each of an origin of its own."""
    lengths = draw(st.lists(st.integers(0, 3), max_size=6))
    text = draw(st.text(SIGNS, min_size=sum(lengths), max_size=sum(lengths)))
    return Traced(text, [(length, TextOrigin(f"run {at}", at)) for at, length in enumerate(lengths)])


TRACED = _traced_texts()


def origins(text: str) -> list[TextOrigin]:
    """The origin of each character."""
    found = [origin for length, origin in runs_of(text) for _ in range(length)]
    assert len(found) == len(text)
    return found


def same(made: str, text: str, expected: Sequence[TextOrigin]) -> None:
    assert isinstance(made, Traced)
    assert str.__str__(made) == text
    assert origins(made) == list(expected)


def plain_text(text: Traced) -> str:
    """The same text as a str of its own."""
    return "".join(str.__getitem__(text, at) for at in range(len(text)))


@given(TRACED, st.one_of(TRACED, TEXTS))
def test_texts_are_added_from_either_side(text: Traced, other: str) -> None:
    same(text + other, plain_text(text) + str.__str__(other), origins(text) + origins(other))
    same(other + text, str.__str__(other) + plain_text(text), origins(other) + origins(text))


@given(TRACED, COUNTS)
def test_a_text_is_repeated(text: Traced, times: int) -> None:
    same(text * times, plain_text(text) * times, origins(text) * times)
    same(times * text, plain_text(text) * times, origins(text) * times)


INDEXES = st.one_of(st.none(), st.integers(-15, 15))
# What takes pieces out of a text, by a separator and a number.
TAKING: dict[str, Callable[[Any, str, int], list[Any]]] = {
    "slice from": lambda text, _, number: [text[number:]],
    "slice to": lambda text, _, number: [text[:number]],
    "slice with a step": lambda text, _, number: [text[number::2]],
    "slice backwards": lambda text, _, number: [text[:number:-1]],
    "characters": lambda text, *_: [*text],
    "characters by index": lambda text, *_: [text[at] for at in range(len(text))],
    "strip": lambda text, *_: [text.strip()],
    "lstrip": lambda text, *_: [text.lstrip(None)],
    "rstrip": lambda text, *_: [text.rstrip(None)],
    "strip characters": lambda text, sep, _: [text.strip(sep)],
    "lstrip characters": lambda text, sep, _: [text.lstrip(sep)],
    "rstrip characters": lambda text, sep, _: [text.rstrip(sep)],
    "removeprefix": lambda text, sep, _: [text.removeprefix(sep)],
    "removeprefix that is there": lambda text, *_: [text.removeprefix(str.__str__(text)[:2])],
    "removesuffix": lambda text, sep, _: [text.removesuffix(sep)],
    "removesuffix that is there": lambda text, *_: [text.removesuffix(str.__str__(text)[-2:])],
    "split": lambda text, sep, _: text.split(sep),
    "split some": lambda text, sep, number: text.split(sep, number),
    "split by names": lambda text, sep, number: text.split(sep=sep, maxsplit=number),
    "rsplit": lambda text, sep, _: text.rsplit(sep),
    "rsplit some": lambda text, sep, number: text.rsplit(sep, number),
    "rsplit by names": lambda text, sep, number: text.rsplit(sep=sep, maxsplit=number),
    "words": lambda text, *_: text.split(),
    "some words": lambda text, _, number: text.split(None, number),
    "last words": lambda text, *_: text.rsplit(),
    "some last words": lambda text, _, number: text.rsplit(maxsplit=number),
    "lines": lambda text, *_: text.splitlines(),
    "lines with their ends": lambda text, *_: text.splitlines(keepends=True),
    "partition": lambda text, sep, _: [*text.partition(sep)],
    "rpartition": lambda text, sep, _: [*text.rpartition(sep)],
}


@pytest.mark.slow
@pytest.mark.parametrize("way", TAKING)
@given(text=TRACED, sep=PIECES, number=COUNTS)
def test_what_is_taken_out_of_a_text_keeps_its_origins(way: str, text: Traced, sep: str, number: int) -> None:
    bare, known = plain_text(text), origins(text)
    numbered = Traced(bare, [(1, TextOrigin("", at)) for at in range(len(bare))])
    made, marked, pieces = (TAKING[way](one, sep, number) for one in (text, numbered, bare))
    places = [[origin.message or 0 for origin in origins(one)] for one in marked]
    for one, piece, at in zip(made, pieces, places, strict=True):
        assert "".join(bare[each] for each in at) == piece
        same(one, piece, [known[each] for each in at])
    order = [each for at in places for each in at]
    assert order == sorted(set(order), reverse=way == "slice backwards")


def test_what_is_no_index_or_separator_is_an_error() -> None:
    text: Any = Traced.of("ab", OWN)
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        text[::0]
    with pytest.raises(IndexError, match="string index out of range"):
        text[2]
    for wrong in (text.split, text.rsplit, text.partition, text.rpartition):
        with pytest.raises(ValueError, match="empty separator"):
            wrong("")


@given(TRACED, PIECES, TEXTS, COUNTS)
def test_what_is_replaced_keeps_the_place_of_what_was_there(text: Traced, old: str, new: str, count: int) -> None:
    bare, known = plain_text(text), origins(text)
    pieces = bare.split(old, count)
    starts = accumulate((len(piece) + len(old) for piece in pieces[:-1]), initial=0)
    expected: list[TextOrigin] = []
    for start, piece in zip(starts, pieces, strict=True):
        expected += [known[start - len(old)]] * len(new) if start else []
        expected += known[start : start + len(piece)]
    same(text.replace(old, new, count), bare.replace(old, new, count), expected)
    if count < 0:
        same(text.replace(old, new), bare.replace(old, new), expected)


@given(TRACED, TEXTS, COUNTS)
def test_what_is_put_between_all_characters_is_of_the_text(text: Traced, new: str, count: int) -> None:
    made = text.replace("", new, count)
    assert made == plain_text(text).replace("", new, count)
    assert not any(origin.trusted for origin in origins(made)) or not text


OF_USER, OF_TOOLS, OF_TEMPLATE = TextOrigin("user", 0), TextOrigin("tools"), OWN


@pytest.mark.parametrize("old", ["{}", ""])
def test_what_is_not_trusted_stays_so_when_it_is_put_into_a_trusted_text(old: str) -> None:
    """A value took the origin of the place that it was put in, and became the template's own."""
    made = Traced.of("[{}]", OF_TEMPLATE).replace(old, Traced.of("value", OF_USER))
    assert made == "[{}]".replace(old, "value")
    trusted = "".join(part for part, origin in zip(str.__str__(made), origins(made), strict=True) if origin.trusted)
    assert "v" not in trusted


@given(TRACED, st.lists(st.one_of(TRACED, TEXTS), max_size=4))
def test_texts_are_joined(text: Traced, items: list[str]) -> None:
    expected: list[TextOrigin] = []
    for index, item in enumerate(items):
        expected += (origins(text) if index else []) + origins(item)
    joined = plain_text(text).join(items)
    same(text.join(items), joined, expected)
    same(text.join(item for item in items), joined, expected)


@given(TRACED)
def test_a_text_joins_the_letters_of_another(text: Traced) -> None:
    expected = [one for origin in origins(text) for one in (OWN, origin)][1:]
    same(Traced.of("-", OWN).join(text), "-".join(plain_text(text)), expected)


LETTERS: dict[str, tuple[Callable[[Traced], Traced], Callable[[str], str]]] = {
    "upper": (Traced.upper, str.upper),
    "lower": (Traced.lower, str.lower),
    "title": (Traced.title, str.title),
    "capitalize": (Traced.capitalize, str.capitalize),
}


@pytest.mark.parametrize("way", LETTERS)
@given(text=TRACED)
def test_other_letters_keep_their_origins_as_long_as_they_are_as_many(way: str, text: Traced) -> None:
    ours, theirs = LETTERS[way]
    made, expected = ours(text), theirs(plain_text(text))
    if len(expected) == len(text):
        same(made, expected, origins(text))
    else:
        assert len({*origins(made)}) == 1
        same(made, expected, origins(made))
        assert not made.runs[0][1].trusted
        senders = {origin.message for origin in origins(text)}
        assert made.runs[0][1].message == (senders.pop() if len(senders) == 1 else None)


def test_letters_that_become_two_are_of_their_text() -> None:
    text = Traced.of("Stra", OWN) + Traced.of("ße", OF_USER)
    same(text.upper(), "STRASSE", [OF_USER._replace(mixed=True)] * 7)
    same(Traced.of("ßa", OF_USER).title(), "Ssa", [OF_USER] * 3)


@given(TRACED)
def test_a_traced_text_is_the_text(text: Traced) -> None:
    bare = plain_text(text)
    assert text == bare
    assert hash(text) == hash(bare)
    assert str(text) is text
    assert repr(text) == repr(bare)
    assert f"{text}" == bare
    assert {bare: 1}[text] == 1
    assert (text < "b") == (bare < "b")


@given(TRACED, INDEXES, INDEXES)
def test_runs_are_cut_as_text_is(text: Traced, start: int | None, stop: int | None) -> None:
    begin, end, _ = slice(start, stop).indices(len(text))
    found = cut_runs(text.runs, begin, end)
    assert all(length > 0 for length, _ in found)
    assert [origin for length, origin in found for _ in range(length)] == origins(text)[begin:end]


ORIGINS = [
    OWN,
    OWN._replace(generated=True),
    OWN._replace(json=True),
    OF_USER,
    OF_TOOLS._replace(json=True),
    OF_USER._replace(trusted=True),
]


@given(st.lists(st.tuples(TEXTS, st.sampled_from(ORIGINS)), max_size=8))
def test_parts_are_trusted_and_untrusted_in_turn(runs: list[tuple[str, TextOrigin]]) -> None:
    text = Traced("".join(piece for piece, _ in runs), [(len(piece), origin) for piece, origin in runs])
    parts, found = parts_of(text)
    assert "".join(parts) == plain_text(text)
    assert len(parts) == len(found)
    assert len(parts) % 2 == 1
    assert [origin for part, origin in zip(parts, found, strict=True) for _ in part] == origins(text)
    for at, (part, origin) in enumerate(zip(parts, found, strict=True)):
        assert type(part) is (JsonText if origin.json and not origin.trusted else str)
        assert not part or origin.trusted == (at % 2 == 0)


def test_neighbours_of_one_origin_are_one_part_also_with_nothing_between_them() -> None:
    """A run of no length between two of one origin kept them apart, JSON in the middle of a string too."""
    text = Traced.of('"a', OF_TOOLS) + "" + Traced.of('b"', OF_TOOLS)
    assert parts_of(text) == (["", '"ab"', ""], [OWN, OF_TOOLS, OWN])


@given(TEXTS)
def test_a_text_without_origins_is_the_templates_own(text: str) -> None:
    assert parts_of(text) == ([text], [OWN])
    assert runs_of(text) == ((len(text), OWN),)


DATA: dict[Any, Any] = {"a": ["b", ("c", 1, None)], 2: True, "e": {}}


def test_all_texts_of_plain_data_are_traced_keys_too() -> None:
    traced = trace(DATA, OF_USER)
    assert traced == DATA
    assert type(traced["a"][1]) is tuple
    assert sorted(find_traced(traced)) == ["a", "b", "c", "e"]
    assert {origin for text in find_traced(traced) for origin in origins(text)} == {OF_USER}


def test_what_is_traced_already_keeps_its_origin() -> None:
    known = Traced.of("a", OF_TOOLS)
    assert [origins(text) for text in find_traced(trace([known, "b"], OF_USER))] == [[OF_TOOLS], [OF_USER]]


@pytest.mark.parametrize("value", ["a", 1, None, [], {}, ["a", {"b": ("c",)}], DATA], ids=repr)
def test_whether_data_hold_traced_text_is_found_at_any_depth(value: object) -> None:
    assert not contains_traced(value)
    assert contains_traced([value, {"x": ({Traced.of("", OWN): 1},)}])


@pytest.mark.parametrize(
    ("given_texts", "expected"),
    [
        ([], OWN),
        (["a"], OWN),
        ([Traced.of("a", OWN)], OWN),
        ([Traced.of("a", OWN), Traced.of("b", OF_USER)], OF_USER._replace(mixed=True)),
        (["a", Traced.of("b", OF_USER)], OF_USER),
        ([Traced.of("b", OF_USER), Traced.of("c", TextOrigin("user", 1))], TextOrigin("user", None)),
        ([Traced.of("b", OF_USER), Traced.of("c", OF_TOOLS)], TextOrigin("user", None)),
        ([Traced.of("", OF_USER)], OF_USER),
        # Nothing came from the place that is cut away.
        ([Traced("b", [(0, OF_TOOLS), (1, OF_USER)])], OF_USER),
        ([{Traced.of("key", OF_USER): "plain"}], OF_USER),
    ],
    ids=repr,
)
def test_what_nobody_can_follow_came_from_what_it_was_made_of(given_texts: list[str], expected: TextOrigin) -> None:
    same(trace_opaque("xyz", given_texts), "xyz", [expected] * 3)
    same(trace_opaque("xyz", given_texts, json=True), "xyz", [expected._replace(json=True)] * 3)


@pytest.mark.parametrize(("own", "mixed"), [("<|", True), ("a b", False), ({"width": 4}, False)])
def test_what_may_hold_a_control_sequence_of_the_templates_own_says_so(own: object, mixed: bool) -> None:  # noqa: FBT001 - a table
    given_texts = (Traced.of("b", OF_USER), own)
    same(trace_opaque("xyz", given_texts), "xyz", [OF_USER._replace(mixed=mixed)] * 3)
    same(trace_opaque("xyz", given_texts, json=True), "xyz", [OF_USER._replace(json=True)] * 3)


def test_what_was_neutralised_is_found_in_what_was_made_of_it() -> None:
    raw = OF_USER._replace(raw="<|x|>")
    text = Traced('a"<\\|x|>', [(2, OF_USER), (6, raw)])
    same(trace_opaque("b: <\\|x|>!", [text]), "b: <\\|x|>!", [OF_USER] * 3 + [raw] * 6 + [OF_USER])
    same(trace_opaque("lost", [text]), "lost", [OF_USER] * 4)
    json = [origin._replace(json=True) for origin in [OF_USER] * 4 + [raw] * 7 + [OF_USER]]
    same(trace_opaque('"a\\"<\\\\|x|>"', [text], json=True), '"a\\"<\\\\|x|>"', json)


@given(TRACED)
def test_origins_are_changed_one_by_one(text: Traced) -> None:
    made = map_origins(text, lambda origin: origin._replace(generated=True))
    same(made, plain_text(text), [origin._replace(generated=True) for origin in origins(text)])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), ""),
        (("abc",), "abc"),
        (("abc", "abd", "ab"), "ab"),
        (("<|end|>\n<|user|>", "<|end|>\n<|tool|>"), "<|end|>\n"),
        (("<|end|>", "<|end|>"), "<|end|>"),
        (("a < b", "a < c"), "a "),
        (("x", ""), ""),
    ],
)
def test_what_texts_begin_with_alike_ends_with_a_whole_token(texts: tuple[str, ...], expected: str) -> None:
    assert common_start(*texts) == expected


@given(TEXTS, TEXTS)
def test_joined_parts_are_the_text_however_it_was_made(one: str, other: str) -> None:
    assume(other)
    text = (Traced.of(one, OF_USER) + other).strip().replace(other[0], other) + Traced.of(one, OF_TOOLS)[::-1]
    assert "".join(parts_of(text)[0]) == (one + other).strip().replace(other[0], other) + one[::-1]
