"""Prompt tests with test cases, checks and comparisons of two prompt versions. Read cases.py first."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyprompt.testing.cases import assert_prompt, render_cases

__all__ = ["assert_prompt", "render_cases"]


def __getattr__(name: str) -> object:
    # Import lazily, because pytest imports this package on every run to load lazyprompt's plugin.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("lazyprompt.testing.cases"), name)
