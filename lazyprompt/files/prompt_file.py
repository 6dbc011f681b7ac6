"""YAML prompt files: a prompter written down, to be reviewed, shared and rendered.

Every mistake is one :class:`PromptFileError` that begins with ``name:line:column:``.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import LazyPromptError, PromptFileError, did_you_mean
from lazyprompt.files.library.names import key_and_version
from lazyprompt.files.yaml_nodes import KINDS, Node, SourceText, YamlReader, plain, text_of_file
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.messages.tools import ToolLike, ToolSet
from lazyprompt.prompters.definition import PromptOrigin
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter
from lazyprompt.templates.slots import escape

if TYPE_CHECKING:
    from collections.abc import Generator

    from lazyprompt.prompters.prompter import Prompter


FIELDS = ("type", "instruction", "system", "extra_keys", "tools", "history", "examples", "model")
"""The fields of a prompt file; all may be left out."""

TYPES = ("chat", "alpaca")
"""The values of the field ``type``."""


@read_only
@dataclass(frozen=True, slots=True)
class PromptFile:
    """A prompter that was read from a file.

    Args:
        prompter: The prompter; with the model's markers, where the file names a model.
        model: The model the file names.
        name: The name of the file in errors.
        path: The path; None for text.
    """

    prompter: Prompter
    model: str | None = None
    name: str = "<string>"
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PromptFile:
        """Read a prompt file.

        Args:
            path: The file, in UTF-8.

        Raises:
            PromptFileError: The file cannot be read or is no prompt file; the message begins ``path:line:column:``.
        """
        name = os.fspath(path)
        return cls._parse(text_of_file(name), name, Path(name))

    @classmethod
    def of_file(cls, path: Path, text: str) -> PromptFile:
        """Read a prompt file whose text was read already: one of a library.

        Args:
            path: The file.
            text: Its text.

        Raises:
            PromptFileError: As of :meth:`load`.
        """
        return cls._parse(text, str(path), path)

    @classmethod
    def loads(cls, text: str, name: str = "<string>") -> PromptFile:
        """Read the text of a prompt file.

        Args:
            text: The text.
            name: Its name in errors.

        Raises:
            PromptFileError: The text is no prompt file; the message begins ``name:line:column:``.
        """
        if not isinstance(cast("object", text), str):
            raise PromptFileError(f"{name}:1:1: a prompt file is text, not {type(text).__name__}; see PromptFile.load")
        return cls._parse(text, name, None)

    @classmethod
    def _parse(cls, text: str, name: str, path: Path | None) -> PromptFile:
        source = SourceText(text, name)
        fields = _fields(source)
        prompter = _prompter(source, fields)
        model = _text_of(source, fields["model"], "model") if "model" in fields else None
        if model is not None:
            with _located(source, fields["model"]):
                prompter = prompter.with_markers(model)
        if path is not None:
            prompter.origin = PromptOrigin(*key_and_version(path, ()))
        return cls(prompter, model, name, path)


def _fields(source: SourceText) -> dict[str, Node]:
    """Return the fields of a file, with right names."""
    node = YamlReader(source).read()
    known = f"the fields are {', '.join(FIELDS)}"
    if node is None or node.value is None:
        raise source.fault_at(0, f"the file is empty; {known}")
    if not isinstance(node.value, dict):
        raise source.wrong_kind(node, "a prompt file is a mapping, not", f"; {known}")
    for name, field in node.value.items():
        if name not in FIELDS:
            raise source.fault_at(field.key_at, f"unknown field {name!r}{did_you_mean(name, FIELDS)}; {known}")
    return node.value


def _prompter(source: SourceText, fields: dict[str, Node]) -> Prompter:
    """Return the prompter that the fields describe."""
    kind = _text_of(source, fields["type"], "type") if "type" in fields else TYPES[0]
    if kind not in TYPES:
        known = f"{did_you_mean(kind, TYPES)}; known are {', '.join(TYPES)}"
        raise source.fault_at(fields["type"].at, f"type {kind!r} is unknown{known}")
    instruction = _instruction(source, fields["instruction"]) if "instruction" in fields else None
    system = _text_of(source, fields["system"], "system") if "system" in fields else None
    keys = _extra_keys(source, fields["extra_keys"]) if "extra_keys" in fields else None
    tools = _tools(source, fields["tools"]) if "tools" in fields else None
    examples = _examples(source, fields["examples"]) if "examples" in fields else []
    history = _history(source, fields["history"]) if "history" in fields else ()
    # The parts were checked one by one; the extra keys, or their place in the instruction, can still be wrong.
    at = fields.get("extra_keys") or fields.get("instruction") or Node(None, 0, 0)
    with _located(source, at):
        if kind == "chat":
            return ChatPrompter(instruction, keys, tools=tools, history=[*examples, *history], system=system)
        if history:
            what = "the Alpaca form has no turns and takes no history; use type: chat, or examples"
            raise source.fault_at(fields["history"].key_at, what)
        return AlpacaPrompter(_with_examples(instruction, examples), keys, tools=tools, system=system)


@contextmanager
def _located(source: SourceText, node: Node) -> Generator[None]:
    """Give errors of the prompter the place of the field that they come from."""
    try:
        yield
    except PromptFileError:
        raise
    except LazyPromptError as error:
        raise source.fault_at(node.key_at, str(error)) from error


def _text_of(source: SourceText, node: Node, where: str) -> str:
    if isinstance(node.value, str):
        return node.value
    if node.value is None:
        raise source.fault_at(node.key_at, f"{where} is empty; give it text, or leave it out")
    advice = "" if isinstance(node.value, list | dict) else "; put it in quotes"
    advice = "; text that begins with { or [ goes into quotes" if node.flow else advice
    raise source.wrong_kind(node, f"{where} is", f", but must be text{advice}")


def _items_of(source: SourceText, node: Node, where: str, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        at = node.key_at if node.value is None else node.at
        raise source.fault_at(at, f"{where} is {KINDS[type(node.value)]}, but must be a list of {what}")
    return node.value


def _instruction(source: SourceText, node: Node) -> str | dict[str, str]:
    if not isinstance(node.value, dict):
        return _text_of(source, node, "instruction")
    levels = ("system", "user")
    for level, part in node.value.items():
        if level not in levels:
            advice = "; text that begins with { goes into quotes" if node.flow else ""
            what = f"the instruction has the key {level!r}{did_you_mean(level, levels)}; it takes system and user"
            raise source.fault_at(part.key_at, what + advice)
    return {level: _text_of(source, part, f"instruction.{level}") for level, part in node.value.items()}


def _extra_keys(source: SourceText, node: Node) -> str | list[str]:
    if isinstance(node.value, str):
        return node.value
    items = _items_of(source, node, "extra_keys", "names")
    return [_text_of(source, item, f"extra_keys[{index}]") for index, item in enumerate(items)]


def _tools(source: SourceText, node: Node) -> ToolSet:
    items = _items_of(source, node, "tools", "tools in the OpenAI form")
    with _located(source, node):
        return ToolSet.of(cast("list[ToolLike]", [plain(item) for item in items]))


def _history(source: SourceText, node: Node) -> HistoryLike:
    items = _items_of(source, node, "history", "pairs [question, answer] or messages")
    history = cast("HistoryLike", [plain(item) for item in items])
    with _located(source, node):
        History.of(history)
    return history


def _examples(source: SourceText, node: Node) -> list[tuple[str, str]]:
    """Return the examples as pairs of input and output."""
    parts = ("input", "output")
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(_items_of(source, node, "examples", "pairs or of {input, output}")):
        where = f"examples[{index}]"
        if isinstance(item.value, dict) and item.value.keys() == set(parts):
            pair = [item.value[part] for part in parts]
        elif isinstance(item.value, list) and len(item.value) == len(parts):
            pair = item.value
        else:
            has = f" with the keys {', '.join(map(repr, item.fields))}" if isinstance(item.value, dict) else ""
            has = f" of {len(item.value)}" if isinstance(item.value, list) else has
            form = "an example is {input: ..., output: ...} or [input, output]"
            raise source.wrong_kind(item, f"{where} is", f"{has}; {form}")
        pairs.append((_text_of(source, pair[0], f"{where} input"), _text_of(source, pair[1], f"{where} output")))
    return pairs


def _with_examples(instruction: str | dict[str, str] | None, examples: list[tuple[str, str]]) -> str | dict[str, str]:
    """Return an Alpaca instruction with its examples behind it; their braces are text."""
    if isinstance(instruction, dict):
        level = "system" if instruction.get("system") or "user" not in instruction else "user"
        text = cast("str", _with_examples(instruction.get(level), examples))
        return {**instruction, level: text}
    if not examples:
        return instruction or ""
    written = [escape(f"Input: {given}\nOutput: {answer}") for given, answer in examples]
    # A block of YAML ends in a newline, which would make two blank lines of the one.
    return "\n\n".join([*filter(None, [(instruction or "").rstrip("\n")]), *written])
