"""Gemini's stream of chunks, put together to the answer.

Source: the API reference, "GenerateContentResponse"; the guide "Thought signatures"; the types of the official client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lazyprompt.answers.parser import Delta
from lazyprompt.modules.clients._said import fields_of, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.json import Fields

# What is the client's own in a chunk, or is put together of many.
_ASIDE = frozenset({"candidates", "sdk_http_response", "parsed", "automatic_function_calling_history"})
_TEXT = frozenset({"text", "thought"})


class GeminiCollector:
    """Puts the chunks of a stream together; see :class:`lazyprompt.modules.client.Collector`."""

    __slots__ = ("_answer", "_calls", "_candidates")

    def __init__(self) -> None:
        # Each chunk tells anew what there is besides the candidates, the tokens among it.
        self._answer: dict[str, object] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._calls = 0

    def feed(self, event: object) -> list[Delta]:
        """What is new in a chunk; the first candidate is the answer."""
        chunk = fields_of(event)
        self._answer |= {key: value for key, value in chunk.items() if key not in _ASIDE}
        news: list[Delta] = []
        for fields in map(fields_of, listed(chunk.get("candidates"))):
            index = fields.get("index")
            at = index if isinstance(index, int) else 0
            parts = self._candidates.setdefault(at, _Candidate()).add(fields)
            news += [delta for part in parts for delta in self._said(part)] if at == 0 else []
        return news

    @property
    def complete(self) -> bool:
        """Whether all candidates said why they ended, or the prompt was blocked."""
        blocked = fields_of(self._answer.get("prompt_feedback")).get("block_reason")
        ended = [candidate.fields.get("finish_reason") for candidate in self._candidates.values()]
        return bool(blocked) or (bool(ended) and all(ended))

    def answer(self) -> dict[str, Any]:
        """The answer so far."""
        candidates = [self._candidates[index].whole() for index in sorted(self._candidates)]
        return {**self._answer, "candidates": candidates}

    def _said(self, part: Fields) -> Iterator[Delta]:
        call = fields_of(part.get("function_call"))
        text = part.get("text")
        if call:
            index, self._calls = self._calls, self._calls + 1
            own_id = str(call.get("id") or f"call_{index}")
            yield Delta("tool_call", _written(call.get("args")), index, own_id, str(call.get("name") or ""))
        elif isinstance(text, str) and text:
            yield Delta("thinking" if part.get("thought") is True else "text", text)


class _Candidate:
    """One of the answers: its parts, and what else is told of it."""

    __slots__ = ("_parts", "fields")

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        # A part, and the pieces of its text.
        self._parts: list[tuple[Fields, list[str]]] = []

    def add(self, fields: Fields) -> list[Fields]:
        """Take a piece of it; its parts are given back."""
        self.fields |= {key: value for key, value in fields.items() if key != "content"}
        content = fields_of(fields.get("content"))
        # Of a part that the client does not know, nothing is left.
        parts = [part for part in map(fields_of, listed(content.get("parts"))) if part]
        for part in parts:
            text = part.get("text")
            if self._parts and isinstance(text, str) and _joined(self._parts[-1][0], part):
                self._parts[-1][1].append(text)
            else:
                self._parts.append((part, [text] if isinstance(text, str) else []))
        return parts

    def whole(self) -> dict[str, object]:
        """The candidate as one that was not streamed."""
        parts = [{**part, "text": "".join(pieces)} if pieces else part for part, pieces in self._parts]
        return {**self.fields, "content": {"role": "model", "parts": parts}} if parts else self.fields


def _joined(last: Fields, part: Fields) -> bool:
    """Whether two parts are pieces of one text or thought. A signature belongs to its own part: Google's guide."""
    plain = last.keys() | part.keys() <= _TEXT and "text" in last
    return plain and bool(last.get("thought")) == bool(part.get("thought"))


def _written(args: object) -> str:
    return json.dumps(args or {}, ensure_ascii=False)
