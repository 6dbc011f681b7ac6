"""Prompt files for the tests of ``lazyprompt check``."""

from typing import Any

from lazyprompt.files.check.check import check

KEY = "sk-proj-abcdefghij0123456789"


def front(fields: str, body: str = "user:\nHi.\n") -> str:
    return f"---\n{fields}\n---\n{body}"


def find_issues(text: str, name: str = "p.prompty", **more: Any) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in check(text, name=name, **more)]
