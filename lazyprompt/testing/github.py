"""GitHub's prompt files, ``name.prompt.yml``: messages with ``{{name}}`` in them, test data and evaluators.

Sources: docs.github.com, "Storing prompts in GitHub repositories"; the types and the ``eval`` of github/gh-models.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.errors import did_you_mean
from lazyprompt.files.yaml_nodes import Reader, Source, plain, text_of_file
from lazyprompt.prompters.kinds import ChatPrompter
from lazyprompt.templates.slots import SlotTemplate, escape, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.rows import Row
    from lazyprompt.files.yaml_nodes import Node
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter

GITHUB_ENDS: Final = (".prompt.yml", ".prompt.yaml")
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_ROLES: Final = ("system", "user", "assistant")
_STRINGS: Final = {
    "equals": "equals",
    "contains": "contains",
    "startsWith": "starts_with",
    "endsWith": "ends_with",
}
_PARAMS: Final = {"maxTokens": "max_tokens", "temperature": "temperature", "topP": "top_p"}


class GitHubPrompt(NamedTuple):
    """A prompt file of GitHub.

    Attributes:
        prompter: Its first system message, and its last message if that is the user's.
        between: The role and the text of each message between these.
        settings: The model, its parameters and the form of the answer.
    """

    prompter: Prompter
    between: tuple[tuple[str, SlotTemplate], ...]
    settings: JsonObject

    @property
    def params(self) -> JsonObject:
        """The parameters of a call."""
        given = cast("JsonObject", self.settings.get("parameters") or {})
        return {_PARAMS[name]: value for name, value in given.items() if name in _PARAMS}

    def arguments(self, row: Row) -> tuple[object, list[JsonObject], ToolsLike]:
        """Return the inputs, the history and the tools of test data."""
        inputs = {slot: row[slot] for slot in self.prompter.slots if slot in row}
        history: list[JsonObject] = []
        for role, text in self.between:
            values = {slot: value_text(row.get(slot, f"{{{{{slot}}}}}"), slot) for slot in text.slots}
            history.append({"role": role, "content": "".join(text.fill(values))})
        return inputs, history, None


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
    turns = [_turn(source, f"messages[{at}]", item) for at, item in enumerate(items)]
    if not turns:
        raise source.pointed(0, "there are no messages; give messages: [{role: user, content: ...}]")
    levels: dict[str, str] = {}
    if turns[0][0] == "system":
        levels["system"] = turns.pop(0)[1]
    if turns and turns[-1][0] == "user":
        levels["user"] = turns.pop()[1]
    given = {name: plain(fields.get(name)) for name in ("model", "modelParameters", "responseFormat", "jsonSchema")}
    settings: JsonObject = {
        "model": given["model"],
        "parameters": given["modelParameters"],
        "answer form": [given["responseFormat"], given["jsonSchema"]],
    }
    between = tuple((role, SlotTemplate(text)) for role, text in turns)
    return GitHubPrompt(ChatPrompter(levels, system=""), between, settings)


def _turn(source: Source, where: str, node: Node) -> tuple[str, str]:
    fields = source.mapping_of(node, where)
    role, text = (source.text_of(fields.get(name), f"{where}.{name}") for name in ("role", "content"))
    if (role or "").lower() not in _ROLES:
        raise source.pointed(node.at, f"{where} has the role {role!r}; it is {', '.join(_ROLES)}")
    # Its slots become this package's.
    own = _SLOT.split(text or "")
    return (role or "").lower(), "".join(f"{{{piece}}}" if at % 2 else escape(piece) for at, piece in enumerate(own))


def github_evaluators(source: Source, node: Node | None) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the checks of evaluators, as names and texts; and the names of evaluators that ask a model.

    Args:
        source: The file.
        node: The evaluators.

    Raises:
        PromptFileError: They are wrong.
    """
    checks: list[tuple[str, str]] = []
    asking: list[str] = []
    for at, item in enumerate(source.list_of(node, "evaluators") if node else []):
        fields = source.mapping_of(item, f"evaluators[{at}]")
        if fields.keys() & {"llm", "uses"}:
            asking.append(str(plain(fields.get("name")) or at))
            continue
        wanted = source.mapping_of(fields.get("string"), f"evaluators[{at}].string")
        if not wanted:
            known = f"string ({', '.join(_STRINGS)}), llm or uses"
            raise source.pointed(item.at, f"evaluators[{at}] checks nothing; it has {known}")
        for name, value in wanted.items():
            if name not in _STRINGS:
                near = did_you_mean(name, _STRINGS)
                raise source.pointed(value.key_at, f"{name!r} is no check of text{near}; it is {', '.join(_STRINGS)}")
            checks.append((_STRINGS[name], source.text_of(value, name) or ""))
    return checks, tuple(asking)


def filled_in(text: str, row: Mapping[str, object]) -> str:
    """Return a text of an evaluator with the values of test data in it."""
    return _SLOT.sub(lambda found: str(row.get(found[1], found[0])), text)
