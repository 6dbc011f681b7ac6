"""Names that type checkers see, compared with the table that Python reads."""

from __future__ import annotations

from typing import get_args

from lazyprompt.formatters.providers import PROVIDERS, OtherProvider


def test_type_checkers_know_all_providers() -> None:
    assert ("openai", *get_args(OtherProvider)) == PROVIDERS
