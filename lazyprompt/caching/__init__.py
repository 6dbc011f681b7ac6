"""Simulation of providers' prompt caches, including the causes of cache misses. Read simulation.py first."""

from lazyprompt.caching.logs import read_calls
from lazyprompt.caching.prefix import PrefixChange, check_prefix
from lazyprompt.caching.reading import PromptCall
from lazyprompt.caching.report import Break, CachedCall, CacheReport
from lazyprompt.caching.rules import RULES, CacheRules, rules_for
from lazyprompt.caching.simulation import simulate

__all__ = [
    "RULES",
    "Break",
    "CacheReport",
    "CacheRules",
    "CachedCall",
    "PrefixChange",
    "PromptCall",
    "check_prefix",
    "read_calls",
    "rules_for",
    "simulate",
]
