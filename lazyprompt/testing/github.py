"""GitHub's prompt files, ``name.prompt.yml``: messages with ``{{name}}`` in them, test data and evaluators.

Source: docs.github.com, "Storing prompts in GitHub repositories".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.files.yaml_nodes import Reader, Source, plain, text_of_file
from lazyprompt.prompters.kinds import ChatPrompter
from lazyprompt.templates.slots import escape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.yaml_nodes import Node
    from lazyprompt.prompters.prompter import Prompter

GITHUB_ENDS: Final = (".prompt.yml", ".prompt.yaml")
_SLOT = re.compile(r"\{\{\{?\s*(\w+)\s*\}?\}\}")
_STRINGS: Final = {
    "contains": "contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
    "equals": "equals",
}
_SETTINGS: Final = ("model", "modelParameters", "responseFormat", "jsonSchema")


class GitHubPrompt(NamedTuple):
    """A prompt file of GitHub.

    Attributes:
        prompter: Its messages.
        settings: The model and its parameters.
    """

    prompter: Prompter
    settings: JsonObject


def read_github(path: Path) -> GitHubPrompt:
    """Read a prompt file of GitHub.

    Args:
        path: The file.

    Raises:
        PromptFileError: It is wrong.
    """
    source = Source(text_of_file(str(path)), str(path))
    fields = source.mapping_of(Reader(source).read(), "a prompt file")
    items = source.list_of(fields["messages"], "messages") if "messages" in fields else []
    turns = [_turn(source, at, item) for at, item in enumerate(items)]
    if not turns:
        raise source.pointed(0, "there are no messages; give messages: [{role: user, content: ...}]")
    levels: dict[str, str] = {}
    if turns[0][0] == "system":
        levels["system"] = _with_slots(turns.pop(0)[1])
    if turns and turns[-1][0] == "user":
        levels["user"] = _with_slots(turns.pop()[1])
    for role, text, node in turns:
        if _SLOT.search(text):
            raise source.pointed(
                node.at,
                f"a slot in an earlier {role} message is not read; move it to the first "
                "system message, or to the last message",
            )
    history = [{"role": role, "content": text} for role, text, _ in turns]
    prompter = ChatPrompter(levels, history=history, system="")
    return GitHubPrompt(prompter, {name: plain(fields[name]) for name in _SETTINGS if name in fields})


def _turn(source: Source, at: int, node: Node) -> tuple[str, str, Node]:
    fields = source.mapping_of(node, f"messages[{at}]")
    role, text = (source.text_of(fields.get(name), f"messages[{at}].{name}") for name in ("role", "content"))
    if role not in ("system", "user", "assistant"):
        raise source.pointed(node.at, f"messages[{at}] has the role {role!r}; it is system, user or assistant")
    return role, text or "", node


def _with_slots(text: str) -> str:
    """Return a text with this package's slots."""
    own = _SLOT.split(text)
    return "".join(f"{{{piece}}}" if at % 2 else escape(piece) for at, piece in enumerate(own))


def github_checks(source: Source, node: Node | None) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the checks of evaluators, and the names of those that are not run here, which ask a model.

    Args:
        source: The file.
        node: The evaluators.

    Raises:
        PromptFileError: They are wrong.
    """
    checks: list[tuple[str, str]] = []
    unused: list[str] = []
    for at, item in enumerate(source.list_of(node, "evaluators") if node else []):
        fields = source.mapping_of(item, f"evaluators[{at}]")
        wanted = source.mapping_of(fields.get("string"), f"evaluators[{at}].string")
        if not wanted:
            unused.append(str(plain(fields.get("name")) or at))
        for name, value in wanted.items():
            if name not in _STRINGS:
                raise source.pointed(value.key_at, f"{name!r} is no check of text; it is {', '.join(_STRINGS)}")
            checks.append((_STRINGS[name], source.text_of(value, name) or ""))
    return checks, tuple(unused)


def filled_in(text: str, fields: Mapping[str, Json]) -> str:
    """Return a text of an evaluator with the fields of a row in it."""
    return _SLOT.sub(lambda found: str(cast("object", fields.get(found[1], found[0]))), text)
