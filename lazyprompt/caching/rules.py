"""Rules of prompt caches as dated data: one entry for each provider. A field that is None is not published."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        look_back: The number of blocks before a breakpoint at which a cached prefix is looked for.
        read_price: The price of a token read from the cache, as a part of the price of an input token.
        write_prices: The price of a token written to the cache, likewise, by lifetime; an input token's if empty.
        recomputes_last: True if the last token of a prompt is always computed.
        caches_replies: True if the reply is cached behind its prompt.
        places: The places that get a breakpoint in payloads rendered from a prompter.
        unknown: The rules that are not published, in words.
    """

    name: str
    source: str
    date: str
    kind: Literal["prefix", "units", "breakpoints"] = "prefix"
    form: str = "openai"
    least: tuple[tuple[str, int], ...] = ()
    step: int = 1
    lifetime: float | None = None
    lifetimes: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    look_back: int = 0
    read_price: float | None = None
    write_prices: Mapping[float, float] = field(default_factory=dict[float, float], hash=False)
    recomputes_last: bool = False
    caches_replies: bool = False
    places: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def least_for(self, model: str | None) -> int:
        """Return the fewest tokens that are cached for a model; the strictest known number for an unknown model."""
        found = (least for pattern, least in self.least if model and re.search(pattern, model))
        return next(found, max((least for _, least in self.least), default=0))

    def knows(self, model: str | None) -> bool:
        """Return True if the fewest cached tokens of a model are known."""
        return len({least for _, least in self.least}) <= 1 or any(
            model and re.search(pattern, model) for pattern, _ in self.least
        )

    @property
    def longest_lifetime(self) -> float | None:
        """The seconds after which nothing unused is cached; None if not published."""
        return max(self.lifetimes.values(), default=self.lifetime)


RULES: Mapping[str, CacheRules] = {
    rules.name: rules
    for rules in (
        CacheRules(
            name="openai",
            source="https://platform.openai.com/docs/guides/prompt-caching",
            date="2026-11-23",
            least=(("", 1024),),
            step=128,
            lifetime=5 * _MINUTES,
            unknown=(
                "the lifetime is 5 to 10 minutes without use, at most an hour (24 if asked for); 5 minutes are assumed",
                "calls may reach machines that have not seen the prefix; one machine is assumed",
            ),
        ),
        CacheRules(
            name="anthropic",
            source="https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
            date="2026-11-23",
            kind="breakpoints",
            form="anthropic",
            least=(
                (r"(opus|fable|mythos)-5", 512),
                (r"opus-4-7", 2048),
                (r"opus-4-[56]|haiku-4-5", 4096),
                (r"haiku", 2048),
                (r"opus|sonnet", 1024),
            ),
            lifetimes={"5m": 5 * _MINUTES, "1h": _HOURS},
            look_back=20,
            read_price=0.1,
            write_prices={5 * _MINUTES: 1.25, _HOURS: 2.0},
            places=("tools", "system", "history"),
        ),
        CacheRules(
            name="gemini",
            source="https://ai.google.dev/gemini-api/docs/caching",
            date="2026-11-23",
            form="gemini",
            least=((r"flash", 1024), (r"pro", 4096)),
            unknown=(
                "hits of implicit caching are not guaranteed; every shared prefix is assumed to hit",
                "the step and the lifetime are not published; 1 token and no end are assumed",
            ),
        ),
        CacheRules(
            name="deepseek",
            source="https://api-docs.deepseek.com/guides/kv_cache",
            date="2026-11-23",
            kind="units",
            form="deepseek",
            caches_replies=True,
            unknown=(
                "long texts also have units at fixed intervals, whose length is not published; none are assumed",
                "the lifetime is hours to days; no end is assumed",
            ),
        ),
        CacheRules(
            name="vllm",
            source="https://docs.vllm.ai/en/latest/design/prefix_caching.html",
            date="2026-11-23",
            form="vllm",
            step=16,
            recomputes_last=True,
            caches_replies=True,
            unknown=("blocks are dropped when memory is short; enough memory is assumed",),
        ),
        CacheRules(
            name="llama.cpp",
            source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            date="2026-11-23",
            form="flat",
            recomputes_last=True,
            caches_replies=True,
            unknown=("each slot of the server keeps one prompt; a slot for each open conversation is assumed",),
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
