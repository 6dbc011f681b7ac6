"""Huge inputs are refused, or processed in time and memory proportional to their size."""

import gc
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

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
from lazyprompt.chat_templates.pieces import at_edge, may_cross
from lazyprompt.chat_templates.source import ChatSource
from lazyprompt.errors import LazyPromptError, MediaError, PromptFileError
from lazyprompt.safety.find import Controls, controls_for
from lazyprompt.safety.policy import NEUTRALIZE, guard
from support.memory import peak_of

MB = 1_000_000
COUNT = 10_000
TEMPLATE = ChatTemplate.load("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}")


def measure_seconds(do: Callable[[], object]) -> float:
    # The garbage collector would traverse all objects of other tests.
    gc.disable()
    try:
        begun = time.process_time()
        do()
        return time.process_time() - begun
    finally:
        gc.enable()


def time_ratio(make: Callable[[int], object], do: Callable[[Any], object], size: int) -> float:
    """How many times as long an input of eight times the size takes."""
    small, large = make(size // 8), make(size)
    do(small)
    # The minimum of several runs, since other processes disturb the measurement.
    longer = min(measure_seconds(lambda: do(large)) for _ in range(2))
    return longer / max(min(measure_seconds(lambda: do(small)) for _ in range(3)), 0.002)


def naive_guard(text: str) -> str:
    """Neutralize control sequences one by one, searching from the start of the text each time."""
    while "<|im_end|>" in text:
        text = text.replace("<|im_end|>", "<\\|im_end|>", 1)
    return text


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


@pytest.mark.slow
@pytest.mark.parametrize("way", VALUE_WAYS)
@pytest.mark.parametrize(("piece", "most"), [("honest text. ", 12), ("城\n", 120), ("<|im_end|>", 90)])
def test_memory_for_a_huge_value_is_proportional_to_its_size(way: str, piece: str, most: int) -> None:
    size = MB // (1 if piece.startswith("honest") else 20)
    value = piece * (size // len(piece))
    VALUE_WAYS[way](piece)  # so that memory of the first call alone does not count
    assert peak_of(lambda: VALUE_WAYS[way](value)) < most * size


def as_json(text: str) -> str:
    return JsonText(json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("write", [str, as_json])
def test_neutralizing_a_marker_in_non_ascii_text_takes_little_memory(write: Callable[[str], str]) -> None:
    """The naive version keeps an index for each character. So did ours: 120 bytes each, 1.2 GB for ten million."""
    honest = "您好，您订购的三件商品已经发出…… " * (MB // 800)
    parts = ["", write(f"{honest}<|im_end|>{honest}"), ""]
    controls = Controls(["<|im_end|>"])

    def places() -> list[int]:
        return [place for place, character in enumerate(parts[1]) for _ in character]

    def guarded() -> None:
        assert guard(controls, parts, ["a", "b", "c"], NEUTRALIZE) != parts

    assert peak_of(places) > 30 * len(parts[1])
    assert peak_of(guarded) < 15 * len(parts[1])


def hostile(size: int) -> str:
    return "<|im_end|>\u200b" * (size // 11)


def fill_slots(names: list[str]) -> str:
    template = "".join(f"{{{name}}} " for name in names)
    return ChatPrompter(template, system="").generate_prompt(dict.fromkeys(names, "x"))


def alternating_messages(count: int) -> list[dict[str, str]]:
    # The user's message is always last: other conversations are handled by slower code.
    numbers = range(count // 2 * 2 + 1)
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": f"Number {n}."} for n in numbers]


HISTORY_WAYS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "flat": lambda history: PROMPTER.generate_prompt({"q": "x"}, history=history, model="chatml"),
    "openai": lambda history: ChatFormatter("openai").format(*history),
    "anthropic": lambda history: ChatFormatter("anthropic").format(*history),
    "budget": lambda history: Budget(1000, CharTokenCounter()).fit(history),
}


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


@pytest.mark.slow
def test_error_about_many_unknown_slots_is_limited_in_length() -> None:
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


def encode_tokens(tokens: list[str]) -> list[int]:
    tokenizer: Any = Tokenizer(models.BPE({chr(code): code for code in range(256)}, []))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    return Rendered([tokens[0], tokens[-1], tokens[1]], ["a", "b", "a"]).encode(tokenizer)


TOKEN_WAYS: dict[str, Callable[[list[str]], object]] = {
    "compiled": lambda tokens: at_edge(Controls(tokens), ["a <", "> b"]),
    "guarded": lambda tokens: guard(Controls(tokens), ["", tokens[-1], ""], ["a", "b", "a"], NEUTRALIZE),
    "literal": lambda tokens: may_cross(Controls(tokens), "<a"),
    "rendered": lambda tokens: with_tokens(tokens).render([{"role": "user", "content": tokens[-1], "name": "<"}]),
    "prompter": lambda tokens: ChatPrompter("<{q}>").generate_prompt(
        {"q": tokens[-1], "input": "x"}, chat_template=with_tokens(tokens)
    ),
    "encoded": encode_tokens,
}


def run_uncached(way: Callable[[list[str]], object], tokens: list[str]) -> None:
    """Process tokens with empty caches."""
    controls_of.cache_clear()
    controls_for.cache_clear()
    way(tokens)


# A function that makes an input of a given size, one that processes it, and the size.
Growth: TypeAlias = tuple[Callable[[int], Any], Callable[[Any], object], int]
CALLS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "calls of one id": calls_and_results(lambda _: "call_0"),
    "calls": calls_and_results(lambda n: f"call_{n}"),
    "parallel calls": parallel_items,
}
# Parallel calls are kept or dropped together, so the budget needs room for all.
CALL_WAYS = {**HISTORY_WAYS, "budget": lambda history: Budget(100 * MB, CharTokenCounter()).fit(history)}
TOKENS = {"added tokens": added_tokens, "long tokens": long_tokens}
GROWTHS: dict[str, Growth] = {
    **{f"hostile value, {name}": (hostile, way, 160_000) for name, way in VALUE_WAYS.items()},
    "restored": (lambda size: neutralize("<|im_end|>" * (size // 10)), restore, 160_000),
    # A naive budget counts all other messages again for each message that it drops: 10,000 times 10,000.
    **{f"messages, {name}": (alternating_messages, way, COUNT // 2) for name, way in HISTORY_WAYS.items()},
    # For calls of one id, a budget searched for a free id from the first number on. Of parallel calls, each was added
    # to those before, and all of them were checked again.
    **{f"{kind}, {name}": (make, way, COUNT // 2) for kind, make in CALLS.items() for name, way in CALL_WAYS.items()},
    "slots": (lambda count: [f"a{n}" for n in range(count)], fill_slots, COUNT // 2),
    # Each token was split into all its substrings, and one pattern of all was compiled: two minutes for 20,000.
    **{
        f"{kind}, {name}": (make, partial(run_uncached, way), 16_000)
        for kind, make in TOKENS.items()
        for name, way in TOKEN_WAYS.items()
    },
}


@pytest.mark.timing
@pytest.mark.parametrize("case", GROWTHS)
def test_time_is_linear_in_the_input_size(case: str) -> None:
    assert time_ratio(*GROWTHS[case]) < 24


@pytest.mark.timing
def test_naive_neutralization_takes_quadratic_time() -> None:
    assert time_ratio(lambda size: "<|im_end|>" * (size // 10), naive_guard, 40_000) > 16


FILE_WAYS: dict[str, Callable[[Path], object]] = {
    "prompty": Prompty.load,
    "library": lambda path: PromptLibrary(path.parent).get("huge"),
    "reference": lambda path: Prompty.loads(f"---\nmetadata: {{a: '${{file:{path.name}}}'}}\n---\n", path.parent),
    "include": lambda path: Prompty.loads(f'{{% include "{path.name}" %}}', path.parent),
    "medium": lambda path: MediaResolver(roots=[path.parent]).load(URLSource(str(path)), "messages[0]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", FILE_WAYS)
def test_huge_file_is_refused_before_it_is_read_into_memory(tmp_path: Path, way: str) -> None:
    """The naive version ``path.read_bytes()`` reads all of it into memory before its size is checked."""
    path = tmp_path / "huge.prompty"
    path.write_bytes(b"user:\nhi")
    os.truncate(path, 100_000_000)  # a sparse file, which takes no space on the disk
    assert peak_of(path.read_bytes) >= 100_000_000

    error: type[LazyPromptError] = PromptFileError
    message, most = "file is too large: 100,000,000 bytes; the limit is 5,000,000", 20_000_000
    if way == "medium":
        error, message, most = MediaError, r"^messages\[0\]: .*file is too large: 100,000,000 bytes", 5_000_000

    def load() -> None:
        with pytest.raises(error, match=message):
            FILE_WAYS[way](path)

    assert peak_of(load) < most


def test_prompt_text_of_more_than_5_megabytes_is_refused() -> None:
    with pytest.raises(PromptFileError, match="larger than 5000000 bytes"):
        Prompty.loads("x" * 5_000_001)
