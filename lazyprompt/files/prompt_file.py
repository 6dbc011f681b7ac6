"""YAML prompt files, which store a prompter so that it can be reviewed, shared and rendered.

Every mistake in a file raises a :class:`PromptFileError` whose message begins with ``name:line:column:``.
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
from lazyprompt.files.yaml_nodes import KINDS, Node, SourceText, YamlReader, plain, require_text, text_of_file
from lazyprompt.messages.parse import parse_messages
from lazyprompt.messages.tools import ToolLike, ToolSet
from lazyprompt.prompters.definition import PromptOrigin
from lazyprompt.prompters.kinds import AlpacaPrompter, ChatPrompter
from lazyprompt.templates.slots import escape

if TYPE_CHECKING:
    from collections.abc import Generator

    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.prompter import Prompter


FIELDS = ("type", "instruction", "system", "extra_keys", "tools", "history", "examples", "model")
"""The optional fields of a YAML prompt file."""

TYPES = ("chat", "alpaca")
"""The allowed values of the field ``type``."""


@read_only
@dataclass(frozen=True, slots=True)
class PromptFile:
    """A prompter loaded from a YAML prompt file.

    Args:
        prompter: The prompter, with the model's markers if the file specifies a model.
        model: The model that the file specifies.
        name: The file's name in error messages.
        path: The file's path, or None if the prompter was loaded from text.
    """

    prompter: Prompter
    model: str | None = None
    name: str = "<string>"
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PromptFile:
        """Load a prompt file.

        Args:
            path: The path of the file. The file must be encoded in UTF-8.

        Raises:
            PromptFileError: The file can't be read or is invalid; the message begins with ``path:line:column:``.
        """
        name = os.fspath(path)
        return cls._parse(text_of_file(name), name, Path(name))

    @classmethod
    def of_file(cls, path: Path, text: str) -> PromptFile:
        """Parse a prompt file whose text was already read, such as a file in a library.

        Args:
            path: The path of the file.
            text: The text of the file.

        Raises:
            PromptFileError: The file is invalid.
        """
        return cls._parse(text, str(path), path)

    @classmethod
    def loads(cls, text: str, name: str = "<string>") -> PromptFile:
        """Parse a prompt file from text.

        Args:
            text: The text of the prompt file.
            name: The name to use in error messages.

        Raises:
            PromptFileError: The text is invalid; the message begins with ``name:line:column:``.
        """
        require_text(text, name, "PromptFile.load")
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
    """Return a file's fields after checking their names."""
    node = YamlReader(source).read()
    known = f"the fields are {', '.join(FIELDS)}"
    if node is None or node.value is None:
        raise source.fault_at(0, f"the file is empty; {known}")
    if not isinstance(node.value, dict):
        raise source.wrong_kind(node, "a prompt file must be a mapping", f"; {known}")
    for name, field in node.value.items():
        if name not in FIELDS:
            raise source.fault_at(field.key_at, f"unknown field {name!r}{did_you_mean(name, FIELDS)}; {known}")
    return node.value


def _prompter(source: SourceText, fields: dict[str, Node]) -> Prompter:
    """Create the prompter that the fields define."""
    kind = _text_of(source, fields["type"], "type") if "type" in fields else TYPES[0]
    if kind not in TYPES:
        known = f"{did_you_mean(kind, TYPES)}; expected one of {', '.join(TYPES)}"
        raise source.fault_at(fields["type"].at, f"unknown type {kind!r}{known}")
    instruction = _instruction(source, fields["instruction"]) if "instruction" in fields else None
    system = _text_of(source, fields["system"], "system") if "system" in fields else None
    keys = _extra_keys(source, fields["extra_keys"]) if "extra_keys" in fields else None
    tools = _tools(source, fields["tools"]) if "tools" in fields else None
    examples = _examples(source, fields["examples"]) if "examples" in fields else []
    history = _history(source, fields["history"]) if "history" in fields else ()
    # Add the file position to errors that the prompter raises, such as the error for ``extra_keys`` without
    # ``instruction``.
    at = fields.get("extra_keys") or fields.get("instruction") or Node(None, 0, 0)
    with _located(source, at):
        if kind == "chat":
            return ChatPrompter(instruction, keys, tools=tools, history=[*examples, *history], system=system)
        if history:
            what = "Alpaca prompts have no turns and can't have a history; use type: chat, or examples"
            raise source.fault_at(fields["history"].key_at, what)
        return AlpacaPrompter(_with_examples(instruction, examples), keys, tools=tools, system=system)


@contextmanager
def _located(source: SourceText, node: Node) -> Generator[None]:
    """Add a field's position to errors that the prompter raises."""
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
        raise source.fault_at(node.key_at, f"{where} is empty; add text, or remove the field")
    advice = "" if isinstance(node.value, list | dict) else "; put it in quotes"
    advice = "; put text that begins with { or [ in quotes" if node.flow else advice
    raise source.wrong_kind(node, f"{where} must be text", advice)


def _items_of(source: SourceText, node: Node, where: str, what: str) -> list[Node]:
    if not isinstance(node.value, list):
        at = node.key_at if node.value is None else node.at
        raise source.fault_at(at, f"{where} must be a list of {what}, not {KINDS[type(node.value)]}")
    return node.value


def _instruction(source: SourceText, node: Node) -> str | dict[str, str]:
    if not isinstance(node.value, dict):
        return _text_of(source, node, "instruction")
    levels = ("system", "user")
    for level, part in node.value.items():
        if level not in levels:
            advice = "; put text that begins with { in quotes" if node.flow else ""
            what = f"unknown key {level!r} of the instruction{did_you_mean(level, levels)}; its keys are system, user"
            raise source.fault_at(part.key_at, what + advice)
    return {level: _text_of(source, part, f"instruction.{level}") for level, part in node.value.items()}


def _extra_keys(source: SourceText, node: Node) -> str | list[str]:
    if isinstance(node.value, str):
        return node.value
    items = _items_of(source, node, "extra_keys", "names")
    return [_text_of(source, item, f"extra_keys[{index}]") for index, item in enumerate(items)]


def _tools(source: SourceText, node: Node) -> ToolSet:
    items = _items_of(source, node, "tools", "tools in the OpenAI format")
    with _located(source, node):
        return ToolSet.of(cast("list[ToolLike]", [plain(item) for item in items]))


def _history(source: SourceText, node: Node) -> list[Msg]:
    items = _items_of(source, node, "history", "[question, answer] pairs or messages")
    with _located(source, node):
        return parse_messages([plain(item) for item in items])


def _examples(source: SourceText, node: Node) -> list[tuple[str, str]]:
    """Return the examples as (input, output) pairs."""
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
            form = "{input: ..., output: ...} or [input, output]"
            raise source.wrong_kind(item, f"{where} must be {form}", has)
        pairs.append((_text_of(source, pair[0], f"{where} input"), _text_of(source, pair[1], f"{where} output")))
    return pairs


def _with_examples(instruction: str | dict[str, str] | None, examples: list[tuple[str, str]]) -> str | dict[str, str]:
    """Return an Alpaca instruction followed by its examples."""
    if isinstance(instruction, dict):
        level = "system" if instruction.get("system") or "user" not in instruction else "user"
        return {**instruction, level: _append_examples(instruction.get(level, ""), examples)}
    return _append_examples(instruction or "", examples)


def _append_examples(text: str, examples: list[tuple[str, str]]) -> str:
    """Append examples to a text, with the braces in the examples escaped."""
    if not examples:
        return text
    # Strip the final newline of a YAML block scalar, because the newline would add a second blank line.
    written = [escape(f"Input: {given}\nOutput: {answer}") for given, answer in examples]
    return "\n\n".join([*filter(None, [text.rstrip("\n")]), *written])
