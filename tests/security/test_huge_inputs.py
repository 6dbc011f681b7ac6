"""Huge inputs are refused, or done within time and memory that grow as they do.

Here they are small enough for every run, and so done. With ``LAZYPROMPT_HUGE=1`` in the environment, this module
takes a hundred times as much (``-n 0``), of which some is refused: values of 100 MB, half a million messages, half a
million slots. It needs two minutes and 8 GB at most.
"""

from __future__ import annotations

import gc
import json
import os
import time
import tracemalloc
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, models

from lazyprompt import (
    Budget,
    CharTokenCounter,
    ChatFormatter,
    ChatPrompter,
    ChatTemplate,
    MediaResolver,
    PromptLibrary,
    Prompty,
    Rendered,
    URLSource,
    neutralize,
    restore,
)
from lazyprompt._base.json import JsonText
from lazyprompt.chat_templates.controls import controls_of
from lazyprompt.chat_templates.source import ChatSource
from lazyprompt.errors import LazyPromptError, PromptFileError
from lazyprompt.safety.policy import NEUTRALIZE, Controls, controls_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCALE = 100 if os.environ.get("LAZYPROMPT_HUGE") else 1
MB = 1_000_000 * SCALE
COUNT = 10_000 * SCALE
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}")


def peak_of(do: Callable[[], object]) -> int:
    """The most memory that it takes at once, in bytes."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds_of(do: Callable[[], object]) -> float:
    # The collector would look through all that other tests have left.
    gc.disable()
    try:
        begun = time.process_time()
        do()
        return time.process_time() - begun
    finally:
        gc.enable()


def grows(make: Callable[[int], object], do: Callable[[Any], object], size: int) -> float:
    """How many times as long it takes for eight times as much."""
    small, large = make(size // 8), make(size)
    do(small)
    # The least of some times: other work of the machine takes its caches, too.
    longer = min(seconds_of(lambda: do(large)) for _ in range(2))
    return longer / max(min(seconds_of(lambda: do(small)) for _ in range(3)), 0.002)


def naive_guard(text: str) -> str:
    """Control sequences broken one after the other, as often as there are any."""
    while "<|im_end|>" in text:
        text = text.replace("<|im_end|>", "<\\|im_end|>", 1)
    return text


def naive_fill(template: str, values: dict[str, str]) -> str:
    """Slots filled one after the other, each in the whole text."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


@pytest.mark.timing
def test_the_naive_versions_grow_faster_than_what_they_are_given() -> None:
    assert grows(lambda size: "<|im_end|>" * (size // 10), naive_guard, 40_000) > 16
    many = grows(
        lambda size: ("".join(f"{{a{n}}}" for n in range(size)), {f"a{n}": "x" for n in range(size)}),
        lambda given: naive_fill(*given),
        4000,
    )
    assert many > 16


PROMPTER = ChatPrompter("Use {q}.", system="")
FILE = Prompty.loads("system:\n{{ q }}\nuser:\nhi")
VALUE_WAYS: dict[str, Callable[[str], object]] = {
    "flat": lambda value: PROMPTER.generate_prompt({"q": value}, model="chatml"),
    "template": lambda value: PROMPTER.generate_prompt({"q": value}, chat_template=TEMPLATE),
    "openai": lambda value: PROMPTER.generate_prompt({"q": value}, format="openai"),
    "anthropic": lambda value: PROMPTER.generate_prompt({"q": value}, format="anthropic"),
    "file": lambda value: FILE.messages({"q": value}),
    "neutralize": neutralize,
}


@pytest.mark.parametrize("way", VALUE_WAYS)
@pytest.mark.parametrize(("piece", "most"), [("honest text. ", 12), ("城\n", 120), ("<|im_end|>", 90)])
def test_a_huge_value_takes_memory_by_its_size(way: str, piece: str, most: int) -> None:
    """The naive version breaks one sequence after the other: see the test above."""
    size = MB // (1 if piece.startswith("honest") else 20)
    value = piece * (size // len(piece))

    def do() -> None:
        with suppress(LazyPromptError) if SCALE > 1 else nullcontext():
            VALUE_WAYS[way](value)

    assert peak_of(do) < most * size


def as_json(text: str) -> str:
    return JsonText(json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("write", [str, as_json])
def test_a_marker_in_a_text_that_is_not_ascii_takes_little_memory(write: Callable[[str], str]) -> None:
    """The naive version keeps a place for each sign. So did ours: 120 bytes a character, 1.2 GB for ten million."""
    honest = "您好，您订购的三件商品已经发出…… " * (MB // 800)
    parts = ["", write(f"{honest}<|im_end|>{honest}"), ""]
    controls = Controls(["<|im_end|>"])

    def places() -> list[int]:
        return [place for place, sign in enumerate(parts[1]) for _ in sign]

    def guard() -> None:
        assert controls.guard(parts, ["a", "b", "c"], NEUTRALIZE) != parts

    assert peak_of(places) > 30 * len(parts[1])
    assert peak_of(guard) < 15 * len(parts[1])


@pytest.mark.timing
@pytest.mark.parametrize("way", VALUE_WAYS)
def test_a_hostile_value_takes_time_by_its_size(way: str) -> None:
    assert grows(lambda size: "<|im_end|>\u200b" * (size // 11), VALUE_WAYS[way], 160_000) < 24


@pytest.mark.timing
def test_what_was_made_harmless_is_restored_in_time() -> None:
    assert grows(lambda size: neutralize("<|im_end|>" * (size // 10)), restore, 160_000) < 24


def talk(count: int) -> list[dict[str, str]]:
    # The last is always the user's: a talk that ends otherwise has another way to go, which takes longer.
    said = range(count // 2 * 2 + 1)
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": f"Number {n}."} for n in said]


TALK_WAYS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "flat": lambda history: PROMPTER.generate_prompt({"q": "x"}, history=history, model="chatml"),
    "openai": lambda history: ChatFormatter("openai").format(*history),
    "anthropic": lambda history: ChatFormatter("anthropic").format(*history),
    "budget": lambda history: Budget(1000, CharTokenCounter()).fit(history),
}


@pytest.mark.timing
@pytest.mark.parametrize("way", TALK_WAYS)
def test_many_messages_take_time_by_their_number(way: str) -> None:
    """The naive version of a budget counts all that is left for each message that goes: 10,000 times 10,000."""
    assert grows(talk, TALK_WAYS[way], COUNT // 2) < 24


def calls_and_results(ids: Callable[[int], str]) -> Callable[[int], list[dict[str, Any]]]:
    def made(count: int) -> list[dict[str, Any]]:
        return [
            message
            for n in range(count)
            for message in (
                {"role": "assistant", "tool_calls": [{"id": ids(n), "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "content": "r", "tool_call_id": ids(n)},
            )
        ]

    return made


def parallel_items(count: int) -> list[dict[str, Any]]:
    """Calls of one turn as the Responses API has them, then their results."""
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(count)]
    return [*calls, *({"type": "function_call_output", "call_id": f"c{n}", "output": "r"} for n in range(count))]


CALL_SHAPES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "one id": calls_and_results(lambda _: "call_0"),
    "ids": calls_and_results(lambda n: f"call_{n}"),
    "parallel items": parallel_items,
}


# Calls of one turn go together, and so need room for all.
CALL_WAYS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    **TALK_WAYS,
    "budget": lambda history: Budget(100 * MB, CharTokenCounter()).fit(history),
}


@pytest.mark.timing
@pytest.mark.parametrize("way", CALL_WAYS)
@pytest.mark.parametrize("shape", CALL_SHAPES)
def test_many_calls_take_time_by_their_number(shape: str, way: str) -> None:
    """A budget looked for a free id from the first number on, where a server gives each call the same one.

    Of calls in one turn, each was put to those before, and all of them checked again.
    """
    assert grows(CALL_SHAPES[shape], CALL_WAYS[way], COUNT // 2) < 24


@pytest.mark.timing
def test_many_slots_take_time_by_their_number() -> None:
    """The naive version looks for each of them in the whole text: see above."""

    def fill(names: list[str]) -> str:
        template = "".join(f"{{{name}}} " for name in names)
        return ChatPrompter(template, system="").generate_prompt(dict.fromkeys(names, "x"))

    assert grows(lambda count: [f"a{n}" for n in range(count)], fill, COUNT // 2) < 24


def test_many_unknown_slots_are_an_error_that_can_be_read() -> None:
    values = {f"a{n}": "x" for n in range(COUNT)}
    with pytest.raises(LazyPromptError) as caught:
        PROMPTER.generate_prompt({"q": "x", **values})
    assert len(str(caught.value)) < 60 * COUNT


def added_tokens(size: int) -> list[str]:
    return [f"<{'a' * (n % 60)}{n}>" for n in range(size)]


def long_tokens(size: int) -> list[str]:
    return [f"<{n}{'ab' * (size // 40)}>" for n in range(20)]


def with_tokens(tokens: list[str]) -> ChatTemplate:
    """A chat template whose tokenizer has these tokens."""
    template = "{% for m in messages %}<|im_{{ m.content }}|>{{ (m.name or '')|indent }}{% endfor %}"
    return ChatTemplate(ChatSource({"default": template}, whole_tokens=tuple(tokens)))


def encoded(tokens: list[str]) -> list[int]:
    tokenizer: Any = Tokenizer(models.BPE({chr(code): code for code in range(256)}, []))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    return Rendered([tokens[0], tokens[-1], tokens[1]], ["a", "b", "a"]).encode(tokenizer)


TOKEN_WAYS: dict[str, Callable[[list[str]], object]] = {
    "compiled": lambda tokens: Controls(tokens).at_edge(["a <", "> b"]),
    "guarded": lambda tokens: Controls(tokens).guard(["", tokens[-1], ""], ["a", "b", "a"], NEUTRALIZE),
    "literal": lambda tokens: Controls(tokens).may_cross("<a"),
    "rendered": lambda tokens: with_tokens(tokens).render([{"role": "user", "content": tokens[-1], "name": "<"}]),
    "prompter": lambda tokens: ChatPrompter("<{q}>").generate_prompt(
        {"q": tokens[-1], "input": "x"}, chat_template=with_tokens(tokens)
    ),
    "encoded": encoded,
}


@pytest.mark.timing
@pytest.mark.parametrize("way", TOKEN_WAYS)
@pytest.mark.parametrize("make", [added_tokens, long_tokens])
def test_special_tokens_take_time_by_their_number_and_length(way: str, make: Callable[[int], list[str]]) -> None:
    """Each was cut into all of its pieces, and a pattern of all was compiled: two minutes for 20,000 long ones."""

    def do(tokens: list[str]) -> None:
        # As if they had not been seen before.
        controls_of.cache_clear()
        controls_for.cache_clear()
        TOKEN_WAYS[way](tokens)

    assert grows(make, do, 16_000) < 24


def sparse(path: Path, begin: bytes = b"") -> Path:
    """A file of a hundred times a megabyte that takes none on the disk."""
    path.write_bytes(begin)
    os.truncate(path, 100_000_000)
    return path


FILE_WAYS: dict[str, Callable[[Path], object]] = {
    "prompty": Prompty.load,
    "library": lambda path: PromptLibrary(path.parent).get("huge"),
    "reference": lambda path: Prompty.loads(f"---\nmetadata: {{a: '${{file:{path.name}}}'}}\n---\n", path.parent),
    "include": lambda path: Prompty.loads(f'{{% include "{path.name}" %}}', path.parent),
}


@pytest.mark.parametrize("way", FILE_WAYS)
def test_a_huge_file_is_refused_before_it_is_in_the_memory(tmp_path: Path, way: str) -> None:
    """The naive version ``path.read_bytes()`` has all of it in the memory before anybody looks at its size."""
    path = sparse(tmp_path / "huge.prompty", b"user:\nhi")
    assert peak_of(path.read_bytes) >= 100_000_000

    def load() -> None:
        with pytest.raises(PromptFileError, match="it has 100,000,000 bytes; the limit is 5,000,000"):
            FILE_WAYS[way](path)

    assert peak_of(load) < 20_000_000


def test_a_huge_medium_is_refused_before_it_is_in_the_memory(tmp_path: Path) -> None:
    path = sparse(tmp_path / "huge.png", b"\x89PNG\r\n\x1a\n")
    resolver = MediaResolver(roots=[tmp_path])

    def load() -> None:
        with pytest.raises(LazyPromptError, match=r"^messages\[0\]: .*it has 100,000,000 bytes"):
            resolver.load(URLSource(str(path)), "messages[0]")

    assert peak_of(load) < 5_000_000


def test_a_text_of_a_prompt_that_is_too_long_is_refused() -> None:
    with pytest.raises(PromptFileError, match="larger than 5000000 bytes"):
        Prompty.loads("x" * 5_000_001)
