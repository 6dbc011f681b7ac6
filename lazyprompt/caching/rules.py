"""Rules of prompt caches as dated data: one entry for each provider. A field that is None is not published."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    _T = TypeVar("_T")
    # Values by a pattern of the model's name; the first that matches counts.
    ByModel: TypeAlias = "tuple[tuple[str, _T], ...]"

_MINUTES = 60.0
_HOURS = 3600.0


@read_only
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """The rules of one provider's prompt cache. Make a variant with ``dataclasses.replace``.

    Args:
        name: The provider or server.
        source: The page that the rules were read from.
        date: The day on which it was read.
        kind: How a cached prefix is found. ``prefix``: the longest prefix that any earlier call shares. ``units``: the
            longest whole unit; each prompt is one, and so is a prefix that two calls share. ``breakpoints``: the
            longest prefix that ended at a mark of an earlier call.
        form: The form that a prompter renders for the provider, as ``format`` of ``generate_prompt``.
        least: The fewest tokens that are cached, by a pattern of the model's name; the first that matches counts.
        step: The number of tokens by which a cached prefix grows.
        lifetime: The seconds that a prefix stays cached after its last use.
        lifetimes: The seconds of each lifetime that a breakpoint may name, the default first.
        look_back: The number of blocks before a breakpoint at which a cached prefix is looked for; consecutive calls
            of tools count as one, and so do their results.
        marks_itself: True if the provider sets a breakpoint behind the newest message of the user or a tool, and looks
            behind earlier ones.
        read_price: The price of a token read from the cache, as a part of the price of an input token, by model.
        write_prices: The price of a token written to the cache, likewise, by lifetime; an input token's if empty.
        recomputes_last: True if the last token of a prompt is always computed.
        caches_replies: True if the reply is cached behind its prompt.
        places: The places that get a breakpoint in payloads rendered from a prompter.
        unknown: The rules that are not published, in words.
        others: The rules of models that have their own, by a pattern of the model's name.
    """

    name: str
    source: str
    date: str
    kind: Literal["prefix", "units", "breakpoints"] = "prefix"
    form: str = "openai"
    least: ByModel[int] = ()
    step: int = 1
    lifetime: float | None = None
    lifetimes: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    look_back: int = 0
    marks_itself: bool = False
    read_price: ByModel[float] = ()
    write_prices: Mapping[float, float] = field(default_factory=dict[float, float], hash=False)
    recomputes_last: bool = False
    caches_replies: bool = False
    places: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    others: ByModel[CacheRules] = ()

    def of(self, model: str | None) -> CacheRules:
        """Return the rules of a model."""
        return _by_model(self.others, model) or self

    def least_for(self, model: str | None) -> int:
        """Return the fewest tokens that are cached for a model; the strictest known number for an unknown model."""
        found = _by_model(self.least, model)
        return max((least for _, least in self.least), default=0) if found is None else found

    def knows(self, model: str | None) -> bool:
        """Return True if the fewest cached tokens of a model are known."""
        return not self.least or _by_model(self.least, model) is not None

    def read_price_for(self, model: str | None) -> float | None:
        """Return the price of a token read from the cache, as a part of an input token's; None if not published."""
        return _by_model(self.read_price, model)

    @property
    def longest_lifetime(self) -> float | None:
        """The seconds after which nothing unused is cached; None if not published."""
        return max(self.lifetimes.values(), default=self.lifetime)


def _by_model(table: ByModel[_T], model: str | None) -> _T | None:
    return next((value for pattern, value in table if re.search(pattern, model or "")), None)


_DATE = "2026-11-23"
_openai = partial(
    CacheRules,
    name="openai",
    source="https://developers.openai.com/api/docs/guides/prompt-caching",
    date=_DATE,
)
_ONE_MACHINE = "calls may reach machines that have not seen the prefix; one machine is assumed"

RULES: Mapping[str, CacheRules] = {
    rules.name: rules
    for rules in (
        _openai(
            least=(("", 1024),),
            step=128,
            lifetime=5 * _MINUTES,
            unknown=(
                "the least length and the step vary by request; 1,024 tokens and 128, as once published, are assumed",
                "the lifetime is 5 to 10 minutes without use, or 30 minutes to 24 hours if asked for; 5 are assumed",
                _ONE_MACHINE,
            ),
            others=(
                (
                    r"gpt-(5\.([6-9]|\d\d)|[6-9]\b|[12]\d)",
                    _openai(
                        kind="breakpoints",
                        marks_itself=True,
                        least=(("", 1024),),
                        lifetimes={"30m": 30 * _MINUTES},
                        read_price=(("gpt-6.1-sol", 0.05), ("", 0.1)),
                        write_prices={30 * _MINUTES: 1.25},
                        unknown=("entries may live longer than 30 minutes; 30 are assumed", _ONE_MACHINE),
                    ),
                ),
                (
                    r"gpt-5\.5",
                    _openai(
                        least=(("", 2048),),
                        step=2048,
                        lifetime=30 * _MINUTES,
                        unknown=(
                            "steps of GPT-5.5 are counted with hidden tokens of OpenAI; none are assumed",
                            "entries of GPT-5.5 live for about 30 minutes, at most 24 hours; 30 minutes are assumed",
                            _ONE_MACHINE,
                        ),
                    ),
                ),
            ),
        ),
        CacheRules(
            name="anthropic",
            source="https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
            date=_DATE,
            kind="breakpoints",
            form="anthropic",
            least=(
                (r"opus-4[.-]7|mythos-preview|3([.-]5)?-haiku|haiku-3", 2048),
                (r"opus-4[.-][56]|haiku-4[.-]5", 4096),
                (r"(opus|fable|mythos)-5|(sonnet|haiku)-5[.-]5", 512),
                (r"opus-[34]|sonnet-[345]|3([.-][57])?-(opus|sonnet)", 1024),
            ),
            lifetimes={"5m": 5 * _MINUTES, "1h": _HOURS},
            look_back=20,
            read_price=((r"(opus|sonnet)-5[.-]5", 0.05), (r"(fable|mythos)-5[.-]1", 0.025), ("", 0.1)),
            write_prices={5 * _MINUTES: 1.25, _HOURS: 2.0},
            places=("tools", "system", "history"),
        ),
        CacheRules(
            name="gemini",
            source="https://ai.google.dev/gemini-api/docs/caching",
            date=_DATE,
            form="gemini",
            least=((r"gemini-2\.5", 2048), (r"gemini-[34]", 4096)),
            unknown=(
                "hits of implicit caching are not guaranteed; every shared prefix is assumed to hit",
                "the step and the lifetime are not published; 1 token and no end are assumed",
            ),
        ),
        CacheRules(
            name="deepseek",
            source="https://api-docs.deepseek.com/guides/kv_cache",
            date=_DATE,
            kind="units",
            form="deepseek",
            caches_replies=True,
            unknown=(
                "long texts also have units at fixed intervals, whose length is not published; none are assumed",
                "an unused prefix is kept for some hours to days; no end is assumed",
                "hits are not guaranteed; every unit is assumed to be kept",
            ),
        ),
        CacheRules(
            name="vllm",
            source="https://docs.vllm.ai/en/latest/design/prefix_caching/",
            date=_DATE,
            form="vllm",
            step=16,
            recomputes_last=True,
            caches_replies=True,
            unknown=(
                "blocks are dropped when memory is short; enough memory is assumed",
                "servers and some models have blocks of another size; 16 tokens, the default, are assumed",
            ),
        ),
        CacheRules(
            name="llama.cpp",
            source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            date=_DATE,
            form="flat",
            recomputes_last=True,
            caches_replies=True,
            unknown=(
                "each slot of the server keeps one prompt; a slot for each open conversation is assumed",
                "models with a sliding window or a recurrent state reuse less; full attention is assumed",
            ),
        ),
    )
}


def rules_for(rules: CacheRules | str) -> CacheRules:
    """Return the rules of a provider.

    Args:
        rules: The provider's name, or rules, which are returned.

    Raises:
        FormatError: No rules of this name are known.
    """
    if isinstance(rules, CacheRules):
        return rules
    if rules not in RULES:
        raise FormatError(f"no cache rules of {rules!r}{did_you_mean(rules, RULES)}; known are {', '.join(RULES)}")
    return RULES[rules]
