"""OpenAI's tokens, counted on this machine with tiktoken.

Sources: OpenAI's cookbook, "How to count tokens with tiktoken" (messages, tools); its guide "Images and vision"
(pictures; see ``media.py``). What neither tells (sound, documents, other parts) counts as ``media.py`` has it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, cast, get_args

from lazyprompt._base.json import checked
from lazyprompt.errors import ApproximateCountWarning, FormatError, TokenizerError, did_you_mean
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.counter import Form, content_of, forms, json_text
from lazyprompt.tokens.media import estimate_tokens, image_size, media_in, picture_tokens, rule_for
from lazyprompt.tokens.vocabulary import check_vocabulary, encoding_for, encoding_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from lazyprompt.messages.msg import Msg


Missing: TypeAlias = Literal["error", "approximate"]

# The cookbook's numbers. Every message is framed, and every answer begins with <|start|>assistant<|message|>.
_MESSAGE: Final = 3
_NAME: Final = 1
_PRIMING: Final = 3
# The beginning of a function: for GPT-4o and what came after it, and for what was before.
_FUNCTION: Final = 7
_FUNCTION_BEFORE: Final = 10
_PROPERTIES: Final = 3
_PROPERTY: Final = 3
_ENUM: Final = -3
_ENUM_ITEM: Final = 3
_FUNCTIONS_END: Final = 12

# Longer texts are counted in pieces: of a million spaces tiktoken's patterns overflow, and Rust panics.
_LONG: Final = 200_000
_NEAR: Final = 1_000
_BEFORE_A_WORD: Final = re.compile(r"\S(?= \S)")
# What content_of() has taken from a message, or what says nothing.
_SAID: Final = frozenset({"role", "name", "content", "parts", "output", "reasoning_content", "thinking", "arguments"})
# Where providers' forms have the parameters of a function.
_PARAMETERS: Final = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
_NO_PARAMETERS: Final[dict[str, Any]] = {}
# What the formula knows of a schema, and what tells the model nothing.
_SCHEMA: Final = frozenset(
    {"type", "description", "enum", "properties", "items", "required", "title", "default", "additionalProperties"}
)


class TiktokenCounter:
    """Counts as OpenAI does, with the vocabulary of tiktoken; nothing is downloaded.

    Messages may be in any provider's form; those of others count with OpenAI's framing. Special tokens in a text are
    text. The vocabulary is read on first use and shared with all other counters. A pickle leaves it out.

    Args:
        encoding_or_model: The name of a model, as ``gpt-4o``, or of an encoding, as ``o200k_base``. Where an encoding
            is given, or OpenAI's guide does not know the model, pictures count the most that any model makes of them.
        bpe_file: The vocabulary's file, where it does not lie in tiktoken's cache folder.
        missing: What to do where the vocabulary is not on this machine: an ``error``, or a warning and
            ``approximate`` counts. A ``bpe_file`` that is not what it should be is always an error.

    Raises:
        TokenizerError: The vocabulary is not on this machine, its file is another, or a name is unknown.
    """

    __slots__ = ("_approximate", "_encode", "_function", "_rule", "bpe_file", "missing", "name")
    additive: ClassVar[bool] = True

    def __init__(
        self, encoding_or_model: str, bpe_file: str | Path | None = None, *, missing: Missing = "error"
    ) -> None:
        if missing not in get_args(Missing):
            known = get_args(Missing)
            raise TokenizerError(f"missing={missing!r} is neither of {known}{did_you_mean(str(missing), known)}")
        self.name = encoding_or_model
        self.bpe_file = bpe_file
        self.missing: Missing = missing
        self._approximate: ApproximateTokenCounter | None = None
        self._encode: Callable[[str], list[int]] | None = None
        try:
            check_vocabulary(encoding_or_model, bpe_file)
        except TokenizerError as error:
            if missing == "error" or bpe_file is not None:
                raise
            self._approximate = _approximate(error)
            return
        self._rule = rule_for(encoding_or_model)
        is_new = encoding_name(encoding_or_model).startswith("o200k")
        self._function = _FUNCTION if is_new else _FUNCTION_BEFORE

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), missing=self.missing), (self.name, self.bpe_file)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """The number of tokens of messages and tools, and of the beginning of the answer.

        Args:
            messages: Messages in any provider's form, or Msg.
            tools: The tools in any provider's form.

        Returns:
            What OpenAI's API would count as prompt tokens, as far as the cookbook's formula goes.

        Raises:
            FormatError: A call or a tool is no JSON value.
            TokenizerError: The vocabulary's file has changed since this counter was made.
        """
        if self._approximate is not None:
            return self._approximate.count(messages, tools)
        counted = _PRIMING + sum(map(self._message, forms(messages)))
        return counted + self._tools(tools) if tools else counted

    def count_text(self, text: str) -> int:
        """The number of tokens of a text, without any framing.

        Args:
            text: The text.

        Returns:
            The number.

        Raises:
            TokenizerError: The vocabulary's file has changed since this counter was made.
        """
        if self._approximate is not None:
            return self._approximate.count_text(text)
        if self._encode is None:
            self._encode = encoding_for(self.name, self.bpe_file).encode_ordinary
        encode = self._encode
        if len(text) < _LONG:
            return len(encode(text))
        return sum(len(encode(piece)) for piece in _pieces(text))

    def _message(self, message: Form) -> int:
        """A message of any shape: all that it says, its media, and its other texts, such as ids."""
        texts, media = content_of(message)
        role = message.get("role")
        if isinstance(role, str):
            texts.append(role)
        texts += [text for key, text in message.items() if isinstance(text, str) and key not in _SAID]
        named = _NAME if isinstance(message.get("name"), str) else 0
        return _MESSAGE + named + self._texts(texts) + sum(map(self._part, media))

    def _texts(self, texts: Iterable[str]) -> int:
        return sum(map(self.count_text, texts))

    def _part(self, part: Form) -> int:
        """A part that is no text: pictures as the model has them, all else about."""
        counted = 0
        for medium in media_in(part):
            if medium.kind == "image":
                counted += picture_tokens(self._rule, image_size(medium), medium.detail)
            else:
                counted += estimate_tokens(medium) if medium.text is None else self.count_text(medium.text)
        return counted

    def _tools(self, tools: Iterable[Form]) -> int:
        plain = (cast("Form", checked(tool, "a tool", FormatError)) for tool in tools)
        return _FUNCTIONS_END + sum(self._tool(function) for tool in plain for function in _functions(tool))

    def _tool(self, tool: Form) -> int:
        """A function by the cookbook's formula; what is none, such as a provider's own tool, as JSON."""
        name = tool.get("name")
        parameters = next((tool[key] for key in _PARAMETERS if tool.get(key)), _NO_PARAMETERS)
        if not isinstance(name, str) or not isinstance(parameters, dict):
            return self._function + self.count_text(json_text(tool, "a tool"))
        line = f"{name}:{_described(tool)}"
        return self._function + self.count_text(line) + self._properties(cast("Form", parameters))

    def _properties(self, schema: Form) -> int:
        """The properties of an object; the cookbook has those of functions alone, nested ones count the same."""
        # Alternatives, definitions, limits.
        rest = {key: value for key, value in schema.items() if key not in _SCHEMA}
        counted = self.count_text(json_text(rest, "the schema of a tool")) if rest else 0
        properties = schema.get("properties")
        if properties and isinstance(properties, dict):
            counted += _PROPERTIES
            for name, given in cast("Mapping[str, object]", properties).items():
                counted += _PROPERTY + self._property(str(name), given)
        items = schema.get("items")
        return counted + self._properties(cast("Form", items)) if isinstance(items, dict) else counted

    def _property(self, name: str, given: object) -> int:
        if not isinstance(given, dict):
            return self.count_text(f"{name}:{json_text(given, 'a property of a tool')}")
        schema = cast("Form", given)
        kind = json_text(schema.get("type", ""), "the type of a property of a tool")
        counted = self.count_text(f"{name}:{kind}:{_described(schema)}") + self._properties(schema)
        values = schema.get("enum")
        if isinstance(values, list | tuple):
            items = [json_text(value, "a value of a tool's enum") for value in cast("Sequence[object]", values)]
            counted += _ENUM + _ENUM_ITEM * len(items) + self._texts(items)
        return counted


def _approximate(error: TokenizerError) -> ApproximateTokenCounter:
    import warnings  # noqa: PLC0415 - only here

    warnings.warn(f"tokens are counted approximately: {error}", ApproximateCountWarning, stacklevel=3)
    return ApproximateTokenCounter()


def _pieces(text: str) -> Iterable[str]:
    """A long text in pieces, cut before a word where there is one: tokens begin there."""
    start = 0
    while start < len(text):
        end = start + _LONG
        cuts = [found.end() for found in _BEFORE_A_WORD.finditer(text, end - _NEAR, end)] if end < len(text) else []
        # Where there is none the cut may split a token, which is a token more.
        end = cuts[-1] if cuts else end
        yield text[start:end]
        start = end


def _functions(tool: Form) -> Iterable[Form]:
    """The functions that a tool in any provider's form declares."""
    for key in ("function_declarations", "functionDeclarations"):
        if isinstance(tool.get(key), list | tuple):
            return cast("Sequence[Form]", tool[key])
    function = tool.get("function")
    return (cast("Form", function) if isinstance(function, dict) else tool,)


def _described(schema: Form) -> str:
    """A description, without the full stop that it ends with."""
    description = schema.get("description")
    return description.removesuffix(".") if isinstance(description, str) else ""
