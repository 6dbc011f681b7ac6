from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.helpers import Ran


def test_providers(run: Callable[..., Ran]) -> None:
    header, *rows = run("providers").out.decode().splitlines()
    assert header.split()[:2] == ["provider", "text"]
    assert [row.split()[0] for row in rows] == list(PROVIDERS)


def test_providers_as_json(run: Callable[..., Ran]) -> None:
    found = {row["provider"]: row for row in json.loads(run("providers", "--json").out)}
    assert found["anthropic"]["thinking"] == "signed"
