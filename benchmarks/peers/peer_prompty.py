"""Prompty's own runtime: a ``.prompty`` file, loaded and filled."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driving import Case, Entry, Message, drive
from work import QUESTION, prompt_path

if TYPE_CHECKING:
    from collections.abc import Callable

prompty: Any = import_module("prompty")
HEAD = """---
name: NAME
model: {id: gpt-4o, provider: openai}
inputs:
"""
ATTACKED = (
    HEAD
    + "".join(f"  - name: {name}\n    kind: string\n" for name in ("text", "more", "secret"))
    + "template:\n  format:\n    kind: KIND\n  parser:\n    kind: prompty\n---\n"
    + "system:\nBe kind. The key is {{secret}}.\n\nuser:\nBEFORE{{text}}{{more}}BEHIND\n"
)


def as_dicts(made: Any) -> list[dict[str, object]]:
    """Return its messages as OpenAI's."""
    return [{"role": each.role, "content": each.parts[0].value} for each in made]


def file() -> Callable[[], object]:
    """Prepare the file; it is loaded and filled each time."""
    path = str(prompt_path())
    return lambda: as_dicts(prompty.prepare(prompty.load(path), QUESTION))


def kept() -> Callable[[], object]:
    """Prepare a loaded file; it does not check whether the file has changed."""
    agent = prompty.load(str(prompt_path()))
    return lambda: as_dicts(prompty.prepare(agent, QUESTION))


@lru_cache(maxsize=64)
def loaded(kind: str, before: str, behind: str) -> Any:
    """Load a file with the developer's text in it."""
    path = Path("attacked.prompty")
    text = ATTACKED.replace("KIND", kind).replace("BEFORE", before).replace("BEHIND", behind)
    path.write_text(text, encoding="utf-8")
    return prompty.load(str(path))


def prepared(case: Case, kind: str) -> list[Message]:
    """Put the values into a file."""
    made = prompty.prepare(loaded(kind, case.before, case.behind), case.slots)
    return [message(each) for each in made]


def message(made: Any) -> Message:
    """Return role, text and the number of other parts and of metadata."""
    texts = [part.value for part in made.parts if part.kind == "text"]
    return str(made.role), "".join(texts), len(made.parts) - len(texts) + len(made.metadata or {})


if __name__ == "__main__":
    drive(
        "prompty",
        {"file": file, "file kept": kept},
        [
            Entry("prepare, as it is (strict)", "", partial(prepared, kind="jinja2")),
            Entry("prepare, strict: false", "", partial(prepared, kind="jinja2\n    strict: false")),
            Entry("prepare, mustache", "", partial(prepared, kind="mustache")),
        ],
    )
