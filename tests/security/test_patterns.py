"""Regular expressions of the package take about linear time for any text: ratios are measured, never times.

Related tests of whole functions: tests/files/test_roles.py and test_includes.py,
tests/messages/test_encoding.py.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import getsource
from time import process_time
from typing import Any, NamedTuple, cast

import pytest

import lazyprompt
from lazyprompt import Msg, MultiAgentFormatter, neutralize, restore
from lazyprompt.budget.cut import shorten
from lazyprompt.safety.policy import headers_in

# Lengths of texts: a short one first, since longer ones may take forever, then two to compare.
SHORT, SMALL, LARGE = 16, 400, 3200
# Eight times the text: a linear pattern takes eight times as long, a quadratic one sixty-four times.
MAX_RATIO = 24
# How many times as long as a plain linear pattern a pattern may take before its growth is measured.
QUICK = 150
SEARCH_METHODS = {"search", "finditer", "findall", "sub", "subn", "split"}
# Patterns that are superlinear by themselves, and why they are not as the package uses them.
BOUNDED = {
    "lazyprompt.answers.values._GEMMA_TOKEN": "reading ends at the first quote that nothing closes",
    "lazyprompt.answers.values._STRUCTURE": "reading ends at the first quote that nothing closes",
    "lazyprompt.files.check.subject._TAGS": "only for templates that were parsed: all tags in them are closed",
    "lazyprompt.files.check.rules_fields._YAML_1_1": "matched as a whole",
    "lazyprompt._base.secrets_in._KEY_BEHIND": "given 1,000 characters at most",
    "lazyprompt.files.check.subject._TAG": "given a line that an error shows",
    "lazyprompt.files.roles._ATTRIBUTE": "only within brackets that were read as attributes",
    "lazyprompt.files.writing.conversion._TAG": "only for templates that were parsed",
    "lazyprompt.safety.neutralised._JSON_STRING": "only for JSON, in which all strings are closed",
}


class Used(NamedTuple):
    name: str
    pattern: re.Pattern[Any]
    run: Callable[[Any], object]


def patterns_in(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value of a module: itself, its items, or the object of a bound method."""
    bound = getattr(value, "__self__", None)
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(bound, re.Pattern):
        yield bound
    elif depth < 4 and isinstance(value, dict | list | tuple | set | frozenset):
        held = cast("dict[str, object] | list[object]", value)
        for item in held.values() if isinstance(held, dict) else held:
            yield from patterns_in(item, depth + 1)


def methods_of(name: str, sources: list[str]) -> set[str]:
    """The methods that are called on a name in the modules that use it: ``_NAME.match``, ``_NAME[key].search``."""
    call = re.compile(rf"\b{name}(?:\[[^\]]*\])?\.([a-z]+)\b")
    return {found for source in sources for found in call.findall(source)} & {*SEARCH_METHODS, "match", "fullmatch"}


@lru_cache(maxsize=1)
def used_patterns() -> tuple[Used, ...]:
    """All patterns that the modules of the package hold, as they are used."""
    names = [each.name for each in pkgutil.walk_packages(lazyprompt.__path__, "lazyprompt.")]
    modules = {name: importlib.import_module(name) for name in names if not name.endswith("__main__")}
    sources = {name: getsource(module) for name, module in modules.items()}
    found: dict[tuple[object, int], Used] = {}
    for name, module in modules.items():
        for key, value in vars(module).items():
            for pattern in patterns_in(value):
                known = [text for each, text in sources.items() if each == name or f"from {name} import" in text]
                made = Used(f"{name}.{key}", pattern, _runs(pattern, methods_of(key, known)))
                found.setdefault((pattern.pattern, pattern.flags), made)
    return tuple(found.values())


def _runs(pattern: re.Pattern[Any], called: set[str]) -> Callable[[Any], object]:
    """The most expensive use of a pattern; if its use is unknown, a search through the whole text."""
    if called and not called & SEARCH_METHODS:
        return pattern.match if "match" in called else pattern.fullmatch

    def every(text: Any) -> None:
        for _ in cast("Iterator[object]", pattern.finditer(text)):
            pass

    return every


def attacks(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    """Texts of any length: a start that fits the pattern, a repeated piece, and an end that fits nothing."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    symbols = set(re.sub(r"\\[a-zA-Z]", "", text)) & set("<>{}[]()=-.%#:|`\"'\\/,*&+~!$@;_^")
    single = sorted(symbols | set(" \t\naA0"))
    words = list(dict.fromkeys(re.findall(r"[A-Za-z]{3,}", text)))[:4]
    pumps = dict.fromkeys((*single, *words, *(each + " " for each in sorted(symbols)), "a b", "{{", "a=", "\n ", '\\"'))
    begins = re.match(r"(?:\\[^a-zA-Z0-9]|[A-Za-z<>=:'\"#%`~/ -])+", text)
    heads = dict.fromkeys(("", re.sub(r"\\(.)", r"\1", begins[0]) if begins else "", *({'"', "{"} & symbols)))
    for head in heads:
        for pump in pumps:
            if isinstance(pattern.pattern, str):
                yield lambda size, head=head, pump=pump: f"{head}{pump * (size // len(pump))}\1"  # type: ignore[misc]
            else:
                yield lambda size, head=head, pump=pump: f"{head}{pump * (size // len(pump))}\1".encode()  # type: ignore[misc]


def took(run: Callable[[Any], object], text: object, times: int = 1) -> float:
    spans: list[float] = []
    for _ in range(times):
        begun = process_time()
        run(text)
        spans.append(process_time() - begun)
    return min(spans)


@lru_cache(maxsize=1)
def quick() -> dict[int, float]:
    plain = re.compile("[^b]*b").match
    return {size: took(plain, "a" * size, 20) * QUICK for size in (SHORT, SMALL, LARGE)}


def is_superlinear(
    run: Callable[[Any], object], attack: Callable[[int], Any], sizes: tuple[int, ...] = (SHORT, SMALL, LARGE)
) -> bool:
    """Whether a text of eight times the length takes far more than eight times as long."""
    for size in sizes:
        text = attack(size)
        if took(run, text) > quick()[size] and took(run, text, 3) > quick()[size]:
            shorter = took(run, attack(size // 8), 5)
            if took(run, text, 3) > MAX_RATIO * shorter:
                return True
    return False


@pytest.mark.timing
@pytest.mark.parametrize("naive", [r"(a+)+b", r"<\s*/?\s*history", r"```\s*\n(.*?)\n?\s*```", r"[.!?;]+(?=\s)"])
def test_patterns_that_take_superlinear_time_are_detected(naive: str) -> None:
    """The naive version: typical patterns, three of which were once in this package."""
    pattern = re.compile(naive, re.DOTALL)
    run = _runs(pattern, set())
    assert any(is_superlinear(run, attack) for attack in attacks(pattern))


@pytest.mark.timing
@pytest.mark.parametrize("share", range(2))
def test_patterns_of_the_package_take_linear_time(share: int) -> None:
    """Four patterns for untrusted text were superlinear: about 100,000 spaces after a ``<`` took a minute."""
    superlinear = {
        each.name
        for each in used_patterns()[share::2]
        if any(is_superlinear(each.run, attack) for attack in attacks(each.pattern))
    }
    assert superlinear - BOUNDED.keys() == set()


@pytest.mark.slow
def test_exempted_patterns_exist() -> None:
    assert BOUNDED.keys() <= {each.name for each in used_patterns()}
    assert len(used_patterns()) > 150


def merge_conversation(text: str) -> object:
    messages = [Msg("a", text, "user"), Msg("b", text, "assistant"), Msg("c", text, "user")]
    return MultiAgentFormatter("anthropic").format(*messages)


FUNCTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "neutralize markers": (neutralize, "<|im_end|>"),
    "neutralize invisible characters": (neutralize, "<\u200b|"),
    "restore": (lambda text: restore(neutralize(text)), "<|"),
    "merge tags": (merge_conversation, "<  /  history "),
    "merge speakers": (merge_conversation, "\nBob: "),
    "merge spaces after a bracket": (lambda text: merge_conversation(f"<{text}"), " "),
    "cut": (lambda text: shorten(text, 10, len), ";"),
    "headers": (lambda text: headers_in(f"## x{text}y"), " "),
}


@pytest.mark.timing
@pytest.mark.parametrize(("function", "pump"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_text_functions_take_linear_time(function: Callable[[str], object], pump: str) -> None:
    """The naive version ``re.sub(r"<\\s*/?\\s*history", ...)`` is superlinear, as shown above."""
    assert not is_superlinear(function, lambda size: pump * (size // len(pump)), (LARGE,))
