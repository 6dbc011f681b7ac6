"""Traced text: each operation gives the same text as that of str, and each character keeps its origin."""

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

# Characters that are stripped, split at, joined from two, or become two when the case changes.
CHARACTERS = "ab<  \n\r\t\x0b\x1c\x85\u2028\u3000ßŉΣσǆİ你"
TEXTS = st.text(CHARACTERS, max_size=12)
PIECES = st.text("ab< \n", min_size=1, max_size=2)
COUNTS = st.integers(-2, 4)


@st.composite
def _traced_texts(draw: st.DrawFn) -> Traced:
    """A text in runs of various lengths, some empty, each with an origin of its own."""
    lengths = draw(st.lists(st.integers(0, 3), max_size=6))
    text = draw(st.text(CHARACTERS, min_size=sum(lengths), max_size=sum(lengths)))
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
def test_added_texts_keep_their_origins(text: Traced, other: str) -> None:
    same(text + other, plain_text(text) + str.__str__(other), origins(text) + origins(other))
    same(other + text, str.__str__(other) + plain_text(text), origins(other) + origins(text))


@given(TRACED, COUNTS)
def test_repeated_text_keeps_its_origins(text: Traced, times: int) -> None:
    same(text * times, plain_text(text) * times, origins(text) * times)
    same(times * text, plain_text(text) * times, origins(text) * times)


INDEXES = st.one_of(st.none(), st.integers(-15, 15))
# Operations that take pieces from a text, with a separator and a number.
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
def test_pieces_taken_from_a_text_keep_their_origins(way: str, text: Traced, sep: str, number: int) -> None:
    bare, known = plain_text(text), origins(text)
    numbered = Traced(bare, [(1, TextOrigin("", at)) for at in range(len(bare))])
    made, marked, pieces = (TAKING[way](one, sep, number) for one in (text, numbered, bare))
    places = [[origin.message or 0 for origin in origins(one)] for one in marked]
    for one, piece, at in zip(made, pieces, places, strict=True):
        assert "".join(bare[each] for each in at) == piece
        same(one, piece, [known[each] for each in at])
    order = [each for at in places for each in at]
    assert order == sorted(set(order), reverse=way == "slice backwards")


@pytest.mark.parametrize("method", ["split", "rsplit", "partition", "rpartition"])
def test_invalid_index_or_separator_is_an_error(method: str) -> None:
    text: Any = Traced.of("ab", OWN)
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        text[::0]
    with pytest.raises(IndexError, match="string index out of range"):
        text[2]
    with pytest.raises(ValueError, match="empty separator"):
        getattr(text, method)("")


@given(TRACED, PIECES, TEXTS, COUNTS)
def test_replacement_gets_the_origin_of_the_replaced_text(text: Traced, old: str, new: str, count: int) -> None:
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
def test_text_inserted_between_untrusted_characters_is_untrusted(text: Traced, new: str, count: int) -> None:
    made = text.replace("", new, count)
    assert made == plain_text(text).replace("", new, count)
    assert not any(origin.trusted for origin in origins(made)) or not text


OF_USER, OF_TOOLS, OF_TEMPLATE = TextOrigin("user", 0), TextOrigin("tools"), OWN


@pytest.mark.parametrize("old", ["{}", ""])
def test_untrusted_text_stays_untrusted_inside_trusted_text(old: str) -> None:
    """A value got the origin of the text that it was put into, and was trusted."""
    made = Traced.of("[{}]", OF_TEMPLATE).replace(old, Traced.of("value", OF_USER))
    assert made == "[{}]".replace(old, "value")
    trusted = "".join(part for part, origin in zip(str.__str__(made), origins(made), strict=True) if origin.trusted)
    assert "v" not in trusted


@given(TRACED, st.lists(st.one_of(TRACED, TEXTS), max_size=4))
def test_joined_texts_keep_their_origins(text: Traced, items: list[str]) -> None:
    expected: list[TextOrigin] = []
    for index, item in enumerate(items):
        expected += (origins(text) if index else []) + origins(item)
    joined = plain_text(text).join(items)
    same(text.join(items), joined, expected)
    same(text.join(item for item in items), joined, expected)


@given(TRACED)
def test_joined_characters_of_a_text_keep_their_origins(text: Traced) -> None:
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
def test_case_change_keeps_origins_if_the_length_stays_equal(way: str, text: Traced) -> None:
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


def test_characters_that_become_two_keep_an_untrusted_origin() -> None:
    text = Traced.of("Stra", OWN) + Traced.of("ße", OF_USER)
    same(text.upper(), "STRASSE", [OF_USER._replace(mixed=True)] * 7)
    same(Traced.of("ßa", OF_USER).title(), "Ssa", [OF_USER] * 3)


@given(TRACED)
def test_traced_text_behaves_as_its_plain_text(text: Traced) -> None:
    bare = plain_text(text)
    assert text == bare
    assert hash(text) == hash(bare)
    assert str(text) is text
    assert repr(text) == repr(bare)
    assert f"{text}" == bare
    assert {bare: 1}[text] == 1
    assert (text < "b") == (bare < "b")


@given(TRACED, INDEXES, INDEXES)
def test_cut_runs_equal_the_slice_of_the_origins(text: Traced, start: int | None, stop: int | None) -> None:
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
def test_parts_alternate_between_trusted_and_untrusted(runs: list[tuple[str, TextOrigin]]) -> None:
    text = Traced("".join(piece for piece, _ in runs), [(len(piece), origin) for piece, origin in runs])
    parts, found = parts_of(text)
    assert "".join(parts) == plain_text(text)
    assert len(parts) == len(found)
    assert len(parts) % 2 == 1
    assert [origin for part, origin in zip(parts, found, strict=True) for _ in part] == origins(text)
    for at, (part, origin) in enumerate(zip(parts, found, strict=True)):
        assert type(part) is (JsonText if origin.json and not origin.trusted else str)
        assert not part or origin.trusted == (at % 2 == 0)


def test_runs_of_one_origin_around_an_empty_run_become_one_part() -> None:
    """An empty run between two runs of one origin kept them apart, even within a string of JSON."""
    text = Traced.of('"a', OF_TOOLS) + "" + Traced.of('b"', OF_TOOLS)
    assert parts_of(text) == (["", '"ab"', ""], [OWN, OF_TOOLS, OWN])


@given(TEXTS)
def test_text_without_origins_is_template_text(text: str) -> None:
    assert parts_of(text) == ([text], [OWN])
    assert runs_of(text) == ((len(text), OWN),)


DATA: dict[Any, Any] = {"a": ["b", ("c", 1, None)], 2: True, "e": {}}


def test_trace_covers_all_values_and_keys_of_plain_data() -> None:
    traced = trace(DATA, OF_USER)
    assert traced == DATA
    assert type(traced["a"][1]) is tuple
    assert sorted(find_traced(traced)) == ["a", "b", "c", "e"]
    assert {origin for text in find_traced(traced) for origin in origins(text)} == {OF_USER}


def test_already_traced_text_keeps_its_origin() -> None:
    known = Traced.of("a", OF_TOOLS)
    assert [origins(text) for text in find_traced(trace([known, "b"], OF_USER))] == [[OF_TOOLS], [OF_USER]]


@pytest.mark.parametrize("value", ["a", 1, None, [], {}, ["a", {"b": ("c",)}], DATA], ids=repr)
def test_contains_traced_searches_at_any_depth(value: object) -> None:
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
        # The run of the tools is empty.
        ([Traced("b", [(0, OF_TOOLS), (1, OF_USER)])], OF_USER),
        ([{Traced.of("key", OF_USER): "plain"}], OF_USER),
    ],
    ids=repr,
)
def test_opaque_text_gets_the_origin_of_its_sources(given_texts: list[str], expected: TextOrigin) -> None:
    same(trace_opaque("xyz", given_texts), "xyz", [expected] * 3)
    same(trace_opaque("xyz", given_texts, json=True), "xyz", [expected._replace(json=True)] * 3)


@pytest.mark.parametrize(("own", "mixed"), [("<|", True), ("a b", False), ({"width": 4}, False)])
def test_opaque_text_is_mixed_if_the_template_text_may_hold_a_control_sequence(own: object, mixed: bool) -> None:  # noqa: FBT001 - a table
    given_texts = (Traced.of("b", OF_USER), own)
    same(trace_opaque("xyz", given_texts), "xyz", [OF_USER._replace(mixed=mixed)] * 3)
    same(trace_opaque("xyz", given_texts, json=True), "xyz", [OF_USER._replace(json=True)] * 3)


def test_neutralized_text_is_found_again_in_opaque_text() -> None:
    raw = OF_USER._replace(raw="<|x|>")
    text = Traced('a"<\\|x|>', [(2, OF_USER), (6, raw)])
    same(trace_opaque("b: <\\|x|>!", [text]), "b: <\\|x|>!", [OF_USER] * 3 + [raw] * 6 + [OF_USER])
    same(trace_opaque("lost", [text]), "lost", [OF_USER] * 4)
    json = [origin._replace(json=True) for origin in [OF_USER] * 4 + [raw] * 7 + [OF_USER]]
    same(trace_opaque('"a\\"<\\\\|x|>"', [text], json=True), '"a\\"<\\\\|x|>"', json)


@given(TRACED)
def test_map_origins_changes_every_origin(text: Traced) -> None:
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
def test_common_start_of_texts_ends_with_a_whole_token(texts: tuple[str, ...], expected: str) -> None:
    assert common_start(*texts) == expected


@given(TEXTS, TEXTS)
def test_joined_parts_equal_the_text_after_text_operations(one: str, other: str) -> None:
    assume(other)
    text = (Traced.of(one, OF_USER) + other).strip().replace(other[0], other) + Traced.of(one, OF_TOOLS)[::-1]
    assert "".join(parts_of(text)[0]) == (one + other).strip().replace(other[0], other) + one[::-1]
