"""No pattern of the package takes longer than about linearly for any text: ratios are measured, never times.

Whole functions are held to the same elsewhere: tests/files/test_roles.py and test_includes.py,
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

# What is tried at first, so that what takes forever is found before it does; then the two that are compared.
SHORT, SMALL, LARGE = 16, 400, 3200
# Eight times the text: a linear pattern takes eight times as long, a quadratic one sixty-four times.
STEEP = 24
# What a pattern may take in terms of a plain linear one before it is looked at closely.
QUICK = 150
SEARCHING = {"search", "finditer", "findall", "sub", "subn", "split"}
# Patterns that are steep by themselves, and why no text makes them so.
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
    """The patterns that a value of a module is, holds or is a method of."""
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
    """What is called on a name in the modules that know it: ``_NAME.match``, ``_NAME[key].search``."""
    call = re.compile(rf"\b{name}(?:\[[^\]]*\])?\.([a-z]+)\b")
    return {found for source in sources for found in call.findall(source)} & {*SEARCHING, "match", "fullmatch"}


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
    """The dearest way it is used; where nobody can tell, each place of a text is tried."""
    if called and not called & SEARCHING:
        return pattern.match if "match" in called else pattern.fullmatch

    def every(text: Any) -> None:
        for _ in cast("Iterator[object]", pattern.finditer(text)):
            pass

    return every


def attacks(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    """Texts of any length that begin as a pattern does, say one thing over and over, and end as nothing does."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    signs = set(re.sub(r"\\[a-zA-Z]", "", text)) & set("<>{}[]()=-.%#:|`\"'\\/,*&+~!$@;_^")
    single = sorted(signs | set(" \t\naA0"))
    words = list(dict.fromkeys(re.findall(r"[A-Za-z]{3,}", text)))[:4]
    pumps = dict.fromkeys((*single, *words, *(sign + " " for sign in sorted(signs)), "a b", "{{", "a=", "\n ", '\\"'))
    begins = re.match(r"(?:\\[^a-zA-Z0-9]|[A-Za-z<>=:'\"#%`~/ -])+", text)
    heads = dict.fromkeys(("", re.sub(r"\\(.)", r"\1", begins[0]) if begins else "", *({'"', "{"} & signs)))
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


def is_steep(
    run: Callable[[Any], object], attack: Callable[[int], Any], sizes: tuple[int, ...] = (SHORT, SMALL, LARGE)
) -> bool:
    """Whether a text that is eight times as long takes far more than eight times as long."""
    for size in sizes:
        text = attack(size)
        if took(run, text) > quick()[size] and took(run, text, 3) > quick()[size]:
            shorter = took(run, attack(size // 8), 5)
            if took(run, text, 3) > STEEP * shorter:
                return True
    return False


@pytest.mark.timing
@pytest.mark.parametrize("naive", [r"(a+)+b", r"<\s*/?\s*history", r"```\s*\n(.*?)\n?\s*```", r"[.!?;]+(?=\s)"])
def test_patterns_that_are_steep_are_found(naive: str) -> None:
    """The naive version: patterns as anybody writes them, three of which stood in this package."""
    pattern = re.compile(naive, re.DOTALL)
    run = _runs(pattern, set())
    assert any(is_steep(run, attack) for attack in attacks(pattern))


@pytest.mark.timing
@pytest.mark.parametrize("share", range(2))
def test_no_pattern_is_steep(share: int) -> None:
    """Four patterns that read untrusted text were: some 100,000 blanks behind a ``<`` took a minute."""
    steep = {
        each.name
        for each in used_patterns()[share::2]
        if any(is_steep(each.run, attack) for attack in attacks(each.pattern))
    }
    assert steep - BOUNDED.keys() == set()


@pytest.mark.slow
def test_what_is_let_off_is_there() -> None:
    assert BOUNDED.keys() <= {each.name for each in used_patterns()}
    assert len(used_patterns()) > 150


def merge_talk(text: str) -> object:
    talk = [Msg("a", text, "user"), Msg("b", text, "assistant"), Msg("c", text, "user")]
    return MultiAgentFormatter("anthropic").format(*talk)


FUNCTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "neutralize markers": (neutralize, "<|im_end|>"),
    "neutralize invisible signs": (neutralize, "<\u200b|"),
    "restore": (lambda text: restore(neutralize(text)), "<|"),
    "merge tags": (merge_talk, "<  /  history "),
    "merge speakers": (merge_talk, "\nBob: "),
    "merge blanks behind a bracket": (lambda text: merge_talk(f"<{text}"), " "),
    "cut": (lambda text: shorten(text, 10, len), ";"),
    "headers": (lambda text: headers_in(f"## x{text}y"), " "),
}


@pytest.mark.timing
@pytest.mark.parametrize(("what", "pump"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_function_is_steep(what: Callable[[str], object], pump: str) -> None:
    """The naive version ``re.sub(r"<\\s*/?\\s*history", ...)`` is steep: see above."""
    assert not is_steep(what, lambda size: pump * (size // len(pump)), (LARGE,))
