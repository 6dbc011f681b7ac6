"""How many tokens the prompt of a line has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.json import dump

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

# Where lines hold the prompt; in other lines it is the whole line.
_BODIES = ("body", "payload", "params", "request")
# What a prompt says, by the keys of all forms: messages; what is told the model beside them; texts alone.
_MESSAGES = ("messages", "input", "contents")
_TOLD = ("system", "system_instruction", "instructions")
_TEXTS = ("prompt", "completion", "instruction", "output", "history", "conversations")


@dataclass(frozen=True, slots=True)
class LineCounter:
    """Counts the tokens of lines.

    Args:
        name: What the counter is called, as ``tiktoken:gpt-4o``.
        counter: The counter.
    """

    name: str
    counter: TokenCounter

    def __call__(self, line: bytes) -> int:
        """The tokens of a line's prompt: its messages, its tools, its texts; not the names of rows and models.

        Args:
            line: The line, as JSON.

        Raises:
            LazyPromptError: The counter cannot count it.
        """
        found: dict[str, Any] = json.loads(line)
        body = next((found[key] for key in _BODIES if isinstance(found.get(key), dict)), found)
        # What a client of DashScope sends has a level more.
        body = {**body, **body["input"], **body.get("parameters", {})} if isinstance(body.get("input"), dict) else body
        messages, texts = [*_messages(body)], [*_texts(body)]
        tools = cast("Sequence[Mapping[str, Any]] | None", body.get("tools") or None)
        counted = sum(map(self.counter.count_text, texts))
        return counted + (self.counter.count(messages, tools) if messages else 0)


def _messages(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What is told the model, and the messages."""
    for key in _TOLD:
        said = body.get(key)
        if said:
            yield said if isinstance(said, dict) and "parts" in said else {"role": "system", "content": said}
    for key in _MESSAGES:
        said = body.get(key)
        if isinstance(said, str) and said:
            yield {"role": "user", "content": said}
        elif isinstance(said, list):
            for each in cast("list[object]", said):
                yield cast("Mapping[str, Any]", each) if isinstance(each, dict) else {"role": "user", "content": each}


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Texts that are no messages; messages in their place are read as text."""
    for key in _TEXTS:
        said = body.get(key)
        if said:
            yield said if isinstance(said, str) else dump(said)
