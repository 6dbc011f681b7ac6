"""Offline token counts for OpenAI models, with tiktoken.

The formula for messages and tools is from "How to count tokens with tiktoken" in OpenAI's cookbook. The rules for
images are from OpenAI's guide "Images and vision"; see ``media.py``. Other media, such as audio and documents, are
estimated.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

from lazyprompt._base.json import checked_object, is_dict, is_sequence
from lazyprompt.errors import ApproximateCountWarning, FormatError, TokenizerError, did_you_mean
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.counter import Form, content_of, forms, json_text
from lazyprompt.tokens.media import estimate_tokens, image_size, media_in, picture_tokens, rule_for
from lazyprompt.tokens.vocabulary import check_vocabulary, encoding_for, encoding_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from lazyprompt.messages.msg import Msg


Missing: TypeAlias = Literal["error", "approximate"]

# The token counts in OpenAI's cookbook for a message's framing, a name, and a response's <|start|>assistant<|message|>.
_MESSAGE: Final = 3
_NAME: Final = 1
_PRIMING: Final = 3
# The token counts in OpenAI's cookbook for a function's framing: the first for GPT-4o and later models, the second for
# earlier models.
_FUNCTION: Final = 7
_FUNCTION_BEFORE: Final = 10
_PROPERTIES: Final = 3
_PROPERTY: Final = 3
_ENUM: Final = -3
_ENUM_ITEM: Final = 3
_FUNCTIONS_END: Final = 12

# Texts of at least this length are split and counted in pieces, because tiktoken overflows on a million spaces.
_LONG: Final = 200_000
_NEAR: Final = 1_000
_BEFORE_A_WORD: Final = re.compile(r"\S(?= \S)")
# Message fields that contain no text or that content_of() already reads.
_SAID: Final = frozenset({"role", "name", "content", "parts", "output", "reasoning_content", "thinking", "arguments"})
# The keys for a function's parameters in all provider formats.
_PARAMETERS: Final = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
_NO_PARAMETERS: Final[dict[str, Any]] = {}
# The schema keys that are not counted as JSON. OpenAI's cookbook counts these keys separately, or the model never
# receives them.
_SCHEMA: Final = frozenset(
    {"type", "description", "enum", "properties", "items", "required", "title", "default", "additionalProperties"}
)


class TiktokenCounter:
    """A token counter for OpenAI models, based on tiktoken's vocabularies, which are never downloaded.

    Messages may be in any provider's format; all are counted with OpenAI's framing. Special tokens in text are counted
    as ordinary text. The vocabulary is loaded on first use and shared by all counters. Pickles don't contain the
    vocabulary.

    Args:
        encoding_or_model: The name of a model, such as ``gpt-4o``, or of an encoding, such as ``o200k_base``. If the
            name is an encoding or an unknown model, images are counted at the highest cost of any known model.
        bpe_file: The path of the vocabulary file, if it is not in tiktoken's cache folder.
        missing: ``error`` to raise an error if the vocabulary is not on this machine, or ``approximate`` for
            approximate counts with a warning. An invalid ``bpe_file`` always raises an error.

    Raises:
        TokenizerError: The vocabulary is not on this machine, its file has the wrong content, or the name is unknown.
    """

    __slots__ = ("_approximate", "_encode", "_function", "_rule", "bpe_file", "missing", "name")
    additive: ClassVar[bool] = True

    def __init__(
        self, encoding_or_model: str, bpe_file: str | Path | None = None, *, missing: Missing = "error"
    ) -> None:
        if missing not in get_args(Missing):
            known = get_args(Missing)
            raise TokenizerError(f"missing must be one of {known}, not {missing!r}{did_you_mean(str(missing), known)}")
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
        """Return the number of tokens in messages and tools, including the start of the response.

        Args:
            messages: The messages, as Msg or in any provider's format.
            tools: The tools, in any provider's format.

        Returns:
            The number of prompt tokens that OpenAI's API reports, according to the formula in OpenAI's cookbook.

        Raises:
            FormatError: A tool call or a tool is not JSON-serializable.
            TokenizerError: The vocabulary file changed after this counter was created.
        """
        if self._approximate is not None:
            return self._approximate.count(messages, tools)
        counted = _PRIMING + sum(map(self._message, forms(messages)))
        return counted + self._tools(tools) if tools else counted

    def count_text(self, text: str) -> int:
        """Return the number of tokens in a text, without the tokens that frame a message.

        Raises:
            TokenizerError: The vocabulary file changed after this counter was created.
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
        """Return the token count of a message in any format: its content, media, and other texts such as ids."""
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
        """Return the token count of a media part: by the model's rule for an image, by an estimate for other media."""
        counted = 0
        for medium in media_in(part):
            if medium.kind == "image":
                counted += picture_tokens(self._rule, image_size(medium), medium.detail)
            else:
                counted += estimate_tokens(medium) if medium.text is None else self.count_text(medium.text)
        return counted

    def _tools(self, tools: Iterable[Form]) -> int:
        plain = (checked_object(tool, "a tool", FormatError) for tool in tools)
        return _FUNCTIONS_END + sum(self._tool(function) for tool in plain for function in _functions(tool))

    def _tool(self, tool: Form) -> int:
        """Return a function's token count by the formula in OpenAI's cookbook.

        A tool is counted as JSON if it has no name or its parameters are not a dict.
        """
        name = tool.get("name")
        parameters = next((tool[key] for key in _PARAMETERS if tool.get(key)), _NO_PARAMETERS)
        if not isinstance(name, str) or not is_dict(parameters):
            return self._function + self.count_text(json_text(tool, "a tool"))
        line = f"{name}:{_description(tool)}"
        return self._function + self.count_text(line) + self._properties(parameters)

    def _properties(self, schema: Form) -> int:
        """Return the token count of a schema's properties; unlike OpenAI's cookbook, also count nested properties."""
        # Count the schema keys that the cookbook's formula omits, such as alternatives, definitions and limits.
        rest = {key: value for key, value in schema.items() if key not in _SCHEMA}
        counted = self.count_text(json_text(rest, "the schema of a tool")) if rest else 0
        properties = schema.get("properties")
        if properties and is_dict(properties):
            counted += _PROPERTIES
            for name, given in properties.items():
                counted += _PROPERTY + self._property(str(name), given)
        items = schema.get("items")
        return counted + self._properties(items) if is_dict(items) else counted

    def _property(self, name: str, schema: object) -> int:
        if not is_dict(schema):
            return self.count_text(f"{name}:{json_text(schema, 'a property of a tool')}")
        kind = json_text(schema.get("type", ""), "the type of a property of a tool")
        counted = self.count_text(f"{name}:{kind}:{_description(schema)}") + self._properties(schema)
        values = schema.get("enum")
        if is_sequence(values):
            items = [json_text(value, "a value of a tool's enum") for value in values]
            counted += _ENUM + _ENUM_ITEM * len(items) + self._texts(items)
        return counted


def _approximate(error: TokenizerError) -> ApproximateTokenCounter:
    import warnings  # noqa: PLC0415 - only here

    warnings.warn(f"tokens are counted approximately: {error}", ApproximateCountWarning, stacklevel=3)
    return ApproximateTokenCounter()


def _pieces(text: str) -> Iterable[str]:
    """Split a long text, if possible before a word, because words always begin at a token boundary."""
    start = 0
    while start < len(text):
        end = start + _LONG
        cuts = [found.end() for found in _BEFORE_A_WORD.finditer(text, end - _NEAR, end)] if end < len(text) else []
        # Without a word boundary, the split may fall inside a token.
        end = cuts[-1] if cuts else end
        yield text[start:end]
        start = end


def _functions(tool: Form) -> Iterable[Form]:
    """Return the functions that a tool declares, in any provider's format."""
    for key in ("function_declarations", "functionDeclarations"):
        if isinstance(tool.get(key), list | tuple):
            functions: Sequence[Form] = tool[key]
            return functions
    function = tool.get("function")
    return (function if is_dict(function) else tool,)


def _description(schema: Form) -> str:
    """Return a description without its final full stop."""
    description = schema.get("description")
    return description.removesuffix(".") if isinstance(description, str) else ""
