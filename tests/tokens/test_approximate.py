"""Approximate tokens: their error against o200k_base, their growth with the text, and the counts of messages."""

import inspect
import json
import mimetypes
import pickle
import sysconfig
from base64 import b64encode
from collections.abc import Iterable
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from statistics import mean
from string import ascii_uppercase, digits
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyprompt._base.json import dump
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import (
    Base64Source,
    ImageBlock,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.tokens.approximate import ApproximateTokenCounter, approximate_tokens
from lazyprompt.tokens.counter import TokenCounter
from lazyprompt.tokens.media import estimate_media_tokens
from support.paths import GOLDEN
from support.vocabularies import encoding

COUNTER: TokenCounter = ApproximateTokenCounter()
SAMPLES = sorted((GOLDEN / "samples").iterdir())
# Modules of the standard library, whose sources are texts that every machine has.
MODULES = """
    abc argparse ast asyncio.base_events asyncio.tasks base64 bdb bisect calendar cmd codecs collections
    configparser contextlib copy csv dataclasses datetime decimal difflib dis doctest email.message enum filecmp
    fileinput fnmatch fractions ftplib functools getopt gettext glob gzip hashlib heapq hmac html.parser http.client
    http.cookies http.server imaplib inspect io json.decoder json.encoder logging logging.handlers lzma mailbox
    mimetypes netrc ntpath operator optparse os pathlib pdb pickle pickletools platform plistlib poplib posixpath
    pprint profile py_compile pyclbr queue quopri random reprlib sched secrets selectors shelve shlex shutil smtplib
    socket socketserver sqlite3.dbapi2 ssl stat statistics string subprocess symtable sysconfig tabnanny tarfile
    tempfile textwrap threading timeit tokenize trace traceback tracemalloc types unittest.case unittest.mock
    unittest.suite urllib.parse urllib.request urllib.robotparser uuid venv warnings wave weakref webbrowser
    wsgiref.handlers xml.dom.minidom xml.etree.ElementTree xml.sax.saxutils xmlrpc.client zipapp zipfile
""".split()  # noqa: SIM905 - a list of them would have a line for each
PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}
MEDIA = estimate_media_tokens(PICTURE)
CALL: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}}
# All kinds of characters that are distinguished, and some that broke counters before.
CHARACTERS = "aeztAZ09 '\".,-=_/([\\\t\n\r\x00éßưạđпשاक一我们使用の。ー한ก！“—─😀️\u200d\u00a0\ud800\udc00\ue000"
TEXTS = st.text(st.one_of(st.sampled_from(CHARACTERS), st.characters(exclude_categories=())), max_size=40)


def error(text: str, name: str = "o200k_base") -> float:
    tokens = len(encoding(name).encode_ordinary(text))
    return (approximate_tokens(text) - tokens) / tokens


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_count_of_a_sample_text_is_within_15_percent_of_o200k_base(path: Path) -> None:
    assert abs(error(path.read_text("utf-8"))) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["english", "chinese", "code", "json", "other"])
def test_the_mean_error_over_samples_of_a_kind_is_within_6_percent_of_o200k_base(kind: str) -> None:
    assert abs(mean(error(path.read_text("utf-8")) for path in SAMPLES if path.stem.startswith(kind))) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("name", ["english", "code", "json"])
def test_the_mean_error_over_samples_is_within_10_percent_of_cl100k_base(name: str) -> None:
    paths = [path for path in SAMPLES if path.stem.startswith(name)]
    assert abs(mean(error(path.read_text("utf-8"), "cl100k_base") for path in paths)) < 0.1


@pytest.mark.slow
def test_counts_of_python_sources_are_close_to_o200k_base() -> None:
    errors = {name: error(inspect.getsource(import_module(name))) for name in MODULES}
    assert abs(mean(errors.values())) < 0.03
    assert mean(map(abs, errors.values())) < 0.05
    assert {name: found for name, found in errors.items() if abs(found) > 0.15} == {}


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 4}])
def test_the_count_of_json_is_within_15_percent_of_o200k_base(layout: dict[str, Any]) -> None:
    statuses = [{"value": status, "phrase": status.phrase, "description": status.description} for status in HTTPStatus]
    modules = [
        {"name": name, "package": None, "lines": source.count("\n"), "public": True, "says": source[:200]}
        for name, source in ((name, inspect.getsource(import_module(name))) for name in MODULES)
    ]
    for data in (mimetypes.types_map, statuses, modules, sysconfig.get_config_vars()):
        assert abs(error(json.dumps(data, **layout))) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("3.14159, 2.71828, 1.41421\n" * 40, "2025-06-14T16:30:00Z 192.168.0.1:8080\n" * 40),
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "550e8400-e29b-41d4-a716-446655440000\n" * 10,
        b64encode(bytes(range(256)) * 4).decode(),
        "https://example.org/docs/guide/getting-started?lang=en#install\n" * 10,
        *(" " * 4000, "-" * 1000, "a" * 1000, "\n" * 500, "😀 🎉 🚀 👍🏽 💡 🔧 🧪 ❤️ ✅ ❌ ⚠️ 👩‍💻 🇺🇸 " * 20),
    ],
    ids=["numbers", "times", "hex", "uuid", "base64", "address", "spaces", "line", "letter", "newlines", "emoji"],
)
def test_the_count_of_numbers_hashes_and_symbols_is_within_25_percent_of_o200k_base(text: str) -> None:
    assert abs(error(text)) < 0.25


def test_an_empty_text_has_no_tokens_and_any_character_has_at_least_one() -> None:
    assert approximate_tokens("") == 0
    assert {approximate_tokens(character) for character in CHARACTERS} <= {1, 2}
    assert approximate_tokens("шшααααα") == 1 + 1  # 1.49 are rounded down


# For each first byte of UTF-8 from 0xC2 on, the first character that begins with it.
PLACES = (*range(0x80, 0x800, 0x40), 0x800, *range(0x1000, 0x10000, 0x1000), *range(0x10000, 0x110000, 0x40000))
SCRIPTS = [*map(chr, PLACES)]
UNITS = ["AA ", "xAA ", "AAx ", "xxxx ", "'x ", "-x ", "!!!! ", "éxa ", "éxxa ", "don't ", "x7", "我们", "使用用 "]


@pytest.mark.parametrize(
    ("units", "counts"),
    [
        *(("aeiouy", "10"), ("bcdfghjklmnpqrstvwxz", "35"), (ascii_uppercase, "15"), (digits, "34"), (" ", "1")),
        *(("\t\v\f", "36"), ("\r\n", "7"), ("'-=*#~+_./", "2"), ('!"$%&(),:;<>?@[]^`{|}\\\0\x7f', "12")),
        (SCRIPTS[:30], "87 90 90 90 10 90 90 90 90 90 90 90 25 25 16 16 16 16 36 36 35 35 24 24 24 24 36 36 36 36"),
        (SCRIPTS[30:], "39 36 87 70 100 100 100 100 100 100 46 46 46 46 70 70 120 120 120 120"),
        *(("đẠỀकॐกเ─═", "10 10 10 24 24 41 41 2 2"), (UNITS, "129 369 309 201 200 240 141 381 381 101 200 100 300")),
    ],
)
def test_counts_of_each_kind_of_character_equal_the_recorded_counts(units: Iterable[str], counts: str) -> None:
    found = [str(approximate_tokens(unit * 100)) for unit in units]
    assert counts in (" ".join(found), " ".join({*found}))


@pytest.mark.slow
@given(TEXTS, TEXTS)
@settings(max_examples=1000)
def test_appending_text_never_lowers_the_token_count(text: str, more: str) -> None:
    counted = approximate_tokens(text)
    assert counted >= (1 if text else 0)
    assert approximate_tokens(text + more) >= counted
    assert approximate_tokens(text + " word") > counted


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_token_counts_of_growing_prefixes_never_decrease(path: Path) -> None:
    text = path.read_text("utf-8")[:500]
    counts = [approximate_tokens(text[:end]) for end in range(len(text) + 1)]
    assert counts == sorted(counts)


@given(TEXTS, TEXTS)
def test_the_token_count_of_two_paragraphs_is_close_to_the_sum_of_both(text: str, more: str) -> None:
    together = approximate_tokens(f"{text}\n\n{more}")
    assert abs(together - approximate_tokens(text) - approximate_tokens(more)) <= 3


@pytest.mark.timing
@pytest.mark.parametrize("unit", [*"aA0 \t\n('-\x00中の😀éệ\ud800한", "\t ", " \n", "a'", "我们"])
def test_counting_time_is_linear_in_the_text_length(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * length
        times: list[float] = []
        for _ in range(3):
            start = perf_counter()
            approximate_tokens(text)
            times.append(perf_counter() - start)
        return min(times)

    # The text is 16 times as long; quadratic time would be 256 times as long.
    assert seconds(320_000) < 120 * max(seconds(20_000), 0.0005)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *(({"role": "user", "content": "Hello world"}, 4 + 2), ({"role": "user", "content": ""}, 4)),
        ({"role": "assistant", "content": None}, 4),
        ({"role": "user", "name": "Bob", "content": "Hello world"}, 4 + 1 + 1 + 2),
        ({"role": "user", "content": [{"type": "text", "text": "Hello world"}]}, 4 + 2),
        ({"role": "user", "content": [{"type": "text", "text": "Hello world"}, PICTURE]}, 4 + 2 + MEDIA),
        ({"role": "user", "parts": [{"text": "Hello world"}, {"text": "Hello"}]}, 4 + 2 + 1),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 4 + approximate_tokens(dump([CALL]))),
        ({"role": "assistant", "function_call": CALL}, 4 + approximate_tokens(dump(CALL))),
        ({"type": "function_call_output", "call_id": "1", "output": "Hello world"}, 4 + 2),
        ({"role": "user", "content": "Hello world", "images": ["A" * 1000]}, 4 + 2 + MEDIA),
    ],
)
def test_the_token_count_of_a_message_is_its_text_plus_a_fixed_overhead(message: dict[str, Any], expected: int) -> None:
    assert COUNTER.count([message]) == 3 + expected
    assert COUNTER.count([message, message]) == 3 + 2 * expected


def test_tools_are_counted_as_json() -> None:
    function = {"name": "f", "description": "é", "parameters": {"type": "object"}}
    tool: dict[str, Any] = {"type": "function", "function": function}
    assert COUNTER.count([], [tool, tool]) == 3 + 2 * approximate_tokens(dump(tool))
    assert COUNTER.count([{"role": "user", "content": "Hello"}], [tool]) == 3 + 5 + approximate_tokens(dump(tool))
    assert COUNTER.count([]) == COUNTER.count([], []) == 3  # the start of the response


MESSAGES: list[Msg | dict[str, Any]] = [
    {"role": "user", "content": "Hello, 你好"},
    {"role": "user", "name": "Bob", "content": [{"type": "text", "text": "Look"}, PICTURE]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "model", "parts": [{"text": "Hm."}, {"function_call": {"name": "f"}}]},
    Msg("user", [TextBlock("abc"), ImageBlock(Base64Source("image/png", "iVBORw0KGgoAAAAN"))], "user"),
    Msg("user", [TextBlock("abc"), VideoBlock(URLSource("https://x/v.mp4"))], "user"),
    Msg("assistant", [ToolUseBlock("1", "f", {"a": 1})], "assistant"),
    Msg("tool", [ToolResultBlock("1", "f", "42")], "tool"),
]


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.lists(st.sampled_from(MESSAGES), max_size=6))
def test_the_token_count_of_a_message_does_not_depend_on_other_messages(some: list[Any], more: list[Any]) -> None:
    none = COUNTER.count([])
    assert ApproximateTokenCounter.additive
    assert COUNTER.count(some + more) - none == sum(COUNTER.count([message]) - none for message in some + more)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "dashscope", "ollama", "openai-responses"])
def test_token_counts_are_similar_in_the_format_of_every_provider(provider: str) -> None:
    texts = [path.read_text("utf-8") for path in SAMPLES]
    formatter = ChatFormatter(provider)
    payload = formatter.format([Msg("user", text, "user") for text in texts])
    counted = COUNTER.count(payload[formatter.profile.form.messages_key])
    # Some providers merge messages of one role, some have names.
    assert abs(counted / sum(map(approximate_tokens, texts)) - 1) < 0.03


def test_an_approximate_counter_can_be_pickled_and_has_no_state() -> None:
    counter = pickle.loads(pickle.dumps(COUNTER))  # noqa: S301 - our own
    assert isinstance(counter, ApproximateTokenCounter)
    assert counter.count_text("Hello world") == COUNTER.count_text("Hello world") == 2
    assert not hasattr(counter, "__dict__")
