"""Each provider's rules for prompt caching, with the URL of the documentation and the date of the last check.

A value of None means that the provider hasn't published the rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    _T = TypeVar("_T")
    # Pairs of a model name pattern and the value of a cache rule for matching models; the first matching pattern
    # applies.
    ByModel: TypeAlias = "tuple[tuple[str, _T], ...]"

_MINUTES = 60.0


@read_only
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """A provider's rules for caching prompt prefixes. Create variants with ``dataclasses.replace``.

    Args:
        name: The name of the provider or server.
        source: The URL of the provider's documentation.
        date: The date when the provider's documentation was last checked.
        form: The ``format`` argument of ``generate_prompt`` for this provider.
        least: Pairs of a model-name pattern and the minimum length of a cached prefix, in tokens; the first match
            applies.
        step: The increment in tokens by which a cached prefix grows.
        lifetime: The number of seconds that an unused prefix stays cached, or None if unpublished.
        unknown: The rules that are unpublished or not simulated, each with the assumption made instead.
        others: Pairs of a model-name pattern and the separate rules for models that match the pattern.
    """

    name: str
    source: str
    date: str
    form: str = "openai"
    least: ByModel[int] = ()
    step: int = 1
    lifetime: float | None = None
    unknown: tuple[str, ...] = ()
    others: ByModel[CacheRules] = ()

    def of(self, model: str | None) -> CacheRules:
        """Return the rules for a model."""
        return _by_model(self.others, model) or self

    def least_for(self, model: str | None) -> int:
        """Return the minimum length of a cached prefix in tokens; for an unknown model, the highest known minimum."""
        found = _by_model(self.least, model)
        return max((least for _, least in self.least), default=0) if found is None else found

    def knows(self, model: str | None) -> bool:
        """Return True if the minimum length of a cached prefix is known for a model."""
        return not self.least or _by_model(self.least, model) is not None


def _by_model(table: ByModel[_T], model: str | None) -> _T | None:
    return next((value for pattern, value in table if re.search(pattern, model or "")), None)


_DATE = "2026-11-23"
_openai = partial(
    CacheRules,
    name="openai",
    source="https://developers.openai.com/api/docs/guides/prompt-caching",
    date=_DATE,
)
_BREAKPOINTS = "a breakpoint is assumed wherever two calls begin to differ"
_REPLIES = "the server also caches replies; they are left out, so more may be read"
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
                        least=(("", 1024),),
                        lifetime=30 * _MINUTES,
                        unknown=("entries may live longer than 30 minutes; 30 are assumed", _BREAKPOINTS, _ONE_MACHINE),
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
            form="anthropic",
            least=(
                (r"opus-4[.-]7|mythos-preview|3([.-]5)?-haiku|haiku-3", 2048),
                (r"opus-4[.-][56]|haiku-4[.-]5", 4096),
                (r"(opus|fable|mythos)-5|(sonnet|haiku)-5[.-]5", 512),
                (r"opus-[34]|sonnet-[345]|3([.-][57])?-(opus|sonnet)", 1024),
            ),
            lifetime=5 * _MINUTES,
            unknown=(_BREAKPOINTS, "a breakpoint may live for an hour; 5 minutes are assumed"),
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
            form="deepseek",
            unknown=(
                "prompts are cached in units of unpublished length; every shared token is assumed to be read",
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
            unknown=(
                "blocks are dropped when memory is short; enough memory is assumed",
                "servers and some models have blocks of another size; 16 tokens, the default, are assumed",
                _REPLIES,
            ),
        ),
        CacheRules(
            name="llama.cpp",
            source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            date=_DATE,
            form="flat",
            unknown=(
                "each slot of the server keeps one prompt; a slot for each open conversation is assumed",
                "models with a sliding window or a recurrent state reuse less; full attention is assumed",
                _REPLIES,
            ),
        ),
    )
}


def rules_for(rules: CacheRules | str) -> CacheRules:
    """Return a provider's cache rules.

    Args:
        rules: The provider's name, or rules to return unchanged.

    Raises:
        FormatError: The provider's name is unknown.
    """
    if isinstance(rules, CacheRules):
        return rules
    if rules not in RULES:
        known = ", ".join(RULES)
        raise FormatError(
            f"no cache rules for {rules!r}{did_you_mean(rules, RULES)}; expected one of {known}, or CacheRules"
        )
    return RULES[rules]
