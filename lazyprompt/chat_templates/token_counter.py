"""An offline token counter that uses a model's own ``tokenizer.json`` and chat template.

The counting rules match transformers 5. As in ``PreTrainedTokenizerBase.apply_chat_template``, the rendered chat is
encoded without adding special tokens. As in ``TokenizersBackend.__init__``, the tokens in a model's configuration are
added to the tokenizer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lazyprompt._base.files import read_regular
from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt.chat_templates.jinja import ChatJinja, without_none
from lazyprompt.chat_templates.source import ChatSource, read_chat_source
from lazyprompt.errors import TemplateError, TokenizerError, missing_extra
from lazyprompt.messages.encoding import TokenizerLike, backend_of, well_formed
from lazyprompt.tokens.counter import Form, content_of, forms, json_text
from lazyprompt.tokens.media import estimate_media_tokens, media_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import tokenizers

    from lazyprompt.messages.msg import Msg

_FILE = "tokenizer.json"
# The maximum size of tokenizer.json, in bytes; the largest published files are about 35 MB.
_MOST = 134_217_728
_FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
# The message keys of formats other than OpenAI's Chat Completions format.
_OTHER_FORMS = frozenset(("parts", "output", "arguments"))
_ROLES = {"model": "assistant", "function": "tool"}
_ITEM_ROLES = {"function_call": "assistant", "function_call_output": "tool", "reasoning": "assistant"}
# The roles of the short test messages, in an order that every template accepts.
_TURNS = ("user", "assistant", "user")
_SHORT = "x"


class HuggingFaceTokenCounter:
    """A token counter that renders messages with a model's own chat template and encodes them with its tokenizer.

    The count includes tools and the generation prompt. The count equals the number of ids that transformers returns for
    ``apply_chat_template(messages, tools, add_generation_prompt=True)``. Contents are passed as text or parts,
    whichever the template renders. For images and other media, the count includes the template's placeholder text and
    the result of :func:`~lazyprompt.tokens.media.estimate_media_tokens`.

    If a template rejects the whole chat, each message is rendered and counted alone. Many templates require alternating
    roles, and some accept no system message. If the template rejects even a single message, the message's texts are
    counted, plus the template's text around a user message. If a template rejects the chat, the total is more likely to
    be too high than too low.

    Without a template, only texts, roles, names and tools are counted. Nothing is ever downloaded.

    Args:
        tokenizer: A model's ``tokenizer.json`` or its directory, whose chat template and special tokens are also read.
            Alternatively, a tokenizer that :meth:`~lazyprompt.Rendered.encode` accepts.
        chat_template: The source text of a chat template to use instead of the template in the directory.

    Raises:
        TokenizerError: The path contains no tokenizer, or a file cannot be read.
        TemplateError: The chat template's syntax is invalid.
        MissingExtraError: The ``tokenizers`` package is not installed.
    """

    __slots__ = ("_backend", "_chats", "chat_template", "tokenizer")
    additive: ClassVar[bool] = False

    def __init__(self, tokenizer: str | Path | TokenizerLike, *, chat_template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        if not isinstance(tokenizer, str | Path):
            self._backend = backend_of(tokenizer)
            chat = None if chat_template is None else ChatJinja(chat_template)
            self._chats: tuple[ChatJinja | None, ...] = (chat, chat)
            return
        loaded, source = load_tokenizer(tokenizer)
        self._backend = backend_of(loaded)
        own = None if chat_template is None else ChatJinja(chat_template, source.special_tokens)
        self._chats = tuple(own or source.template(with_tools=with_tools) for with_tools in (False, True))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the constructor arguments; unpickling reads the vocabulary again."""
        return partial(type(self), chat_template=self.chat_template), (self.tokenizer,)

    def __repr__(self) -> str:
        shown = str(self.tokenizer) if isinstance(self.tokenizer, Path) else self.tokenizer
        return f"{type(self).__name__}({shown!r})"

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Count the tokens of messages, tools and the generation prompt.

        Args:
            messages: ``Msg`` objects or messages in OpenAI's format. For a message in another provider's format, only
                its text strings are counted.
            tools: The tools in OpenAI's format.

        Returns:
            The number of tokens. For an empty list, the count covers the text that the template renders without
            messages.

        Raises:
            FormatError: A message or tool is not a JSON value.
        """
        given = forms(messages)
        media = sum(estimate_media_tokens(part) for message in given for part in content_of(message)[1])
        chat = self._chats[bool(tools)]
        if chat is None:
            roles = [role for message in given if isinstance(role := message.get("role"), str)]
            texts = [text for message in given for text in content_of(message)[0]]
            return media + self._count_texts((*roles, *texts)) + self._count_tools(tools)
        return media + self._count_chat(chat, given, tools or None)

    def count_text(self, text: str) -> int:
        """Count the tokens of a text, without beginning-of-text and end-of-text tokens."""
        return len(self._backend.encode(well_formed(text)).ids)

    def _count_texts(self, texts: Iterable[str]) -> int:
        return sum(map(self.count_text, texts))

    def _count_tools(self, tools: Sequence[Form] | None) -> int:
        return self._count_texts(json_text(tool, "a tool") for tool in tools or ())

    def _count_chat(self, chat: ChatJinja, given: Sequence[Form], tools: Sequence[Form] | None) -> int:
        """Count the tokens of rendered messages, or of each message alone if the template rejects the chat."""
        shown = without_none(_adapt_message(message, chat) for message in given)
        whole = self._count_rendered(chat, shown, tools)
        return self._count_one_by_one(chat, given, shown, tools) if whole is None else whole

    def _count_one_by_one(
        self, chat: ChatJinja, given: Sequence[Form], shown: Sequence[Form], tools: Sequence[Form] | None
    ) -> int:
        """Count the tokens of each message rendered alone, and count the text before the first message only once."""
        turns = [{"role": role, "content": _content(_SHORT, chat)} for role in _TURNS]
        one, two, three = (self._count_rendered(chat, turns[:most], add_generation_prompt=False) for most in (1, 2, 3))
        opening = self._count_rendered(chat, turns[:1], tools)
        # ``frame`` is the number of tokens that the template adds to each turn, and ``before`` is the number of tokens
        # before the first turn.
        turn = one or 0
        frame = turn if two is None or three is None else min(turn, abs(three - two))
        before = turn - frame
        counted = before + self._count_tools(tools) if opening is None else max(before, opening - frame)
        for message, form in zip(given, shown, strict=True):
            texts = self._count_texts(content_of(message)[0])
            alone = self._count_rendered(chat, (form,), add_generation_prompt=False)
            counted += texts + frame if alone is None else max(texts, alone - before)
        return counted

    def _count_rendered(
        self,
        chat: ChatJinja,
        messages: Sequence[Form],
        tools: Sequence[Form] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> int | None:
        """Count the tokens of the rendered text, or return None if the template rejects the messages."""
        try:
            return self.count_text(chat.render(messages, tools, add_generation_prompt=add_generation_prompt))
        except TemplateError:
            return None


def load_tokenizer(path: str | Path) -> tuple[tokenizers.Tokenizer, ChatSource]:
    """Load a model's tokenizer with its added tokens, and the model's chat templates.

    Args:
        path: The model's ``tokenizer.json`` or its directory.

    Raises:
        TokenizerError: The path contains no tokenizer, or a file cannot be read.
        MissingExtraError: The ``tokenizers`` package is not installed.
    """
    path = Path(path)
    file = path / _FILE if path.is_dir() else path
    if not file.exists():
        raise TokenizerError(
            f"{file} does not exist; pass the path of a model's {_FILE} or its directory (nothing is downloaded)"
        )
    source = read_chat_source(file)
    return _load(file, source), source


def _load(file: Path, source: ChatSource) -> tokenizers.Tokenizer:
    tokenizer = read_tokenizer(file)
    from tokenizers import AddedToken  # noqa: PLC0415 - an extra

    try:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        there = tokenizer.get_added_tokens_decoder().values()
        known = {repr(token) for token in there}
        given = [AddedToken(**_flags(token)) for token in source.added_tokens]
        added: list[Any] = [token for token in given if repr(token) not in known]
        contents = {token.content for token in (*there, *added)}
        added += [AddedToken(text, special=True) for text in source.whole_tokens if text not in contents]
        cast("Any", tokenizer).add_tokens(added)
    except Exception as error:  # the tokenizers package raises only plain Exception objects
        raise _unreadable(file, error) from error
    return tokenizer


def read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """Read a tokenizer from a ``tokenizer.json`` file.

    Raises:
        TokenizerError: The file does not contain a tokenizer, is not a regular file, or is too large.
        MissingExtraError: The ``tokenizers`` package is not installed.
    """
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("tokenizers", "hf") from error
    try:
        data = read_regular(file, _MOST)
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}; pass a model's {_FILE}") from error
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the tokenizers package raises only plain Exception objects
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> TokenizerError:
    return TokenizerError(
        f"the tokenizers package cannot read {file}: {error}; download or copy it again, or install a newer tokenizers"
    )


def _flags(token: Mapping[str, object]) -> dict[str, Any]:
    """Return only the token fields that the ``tokenizers`` package accepts."""
    return {name: token[name] for name in _FLAGS if name in token}


def _adapt_message(message: Form, chat: ChatJinja) -> dict[str, Any]:
    """Convert a message to the format that a template renders, without the data of its media."""
    role = message.get("role")
    if not isinstance(role, str) or not _OTHER_FORMS.isdisjoint(message):
        role = _ROLES.get(role, role) if isinstance(role, str) else _ITEM_ROLES.get(str(message.get("type")), "user")
        return {"role": role, "content": _content("\n".join(content_of(message)[0]), chat)}
    # Omit images, which Ollama's message format stores in a field named ``images``.
    shown = {key: value for key, value in message.items() if key != "images"}
    if isinstance(message.get("function_call"), dict):
        # ``function_call`` is the deprecated format for tool calls.
        shown["tool_calls"] = [{"type": "function", "function": shown.pop("function_call")}]
    return shown | {"content": _content(shown["content"], chat)} if "content" in shown else shown


def _content(content: object, chat: ChatJinja) -> object:
    """Convert message content to text or parts, whichever the template renders."""
    if isinstance(content, str):
        return chat.content(content)
    if not is_sequence(content):
        return content
    if not chat.shows_parts:
        return "\n".join(content_of({"content": content})[0])
    return [part for item in content for part in _parts(item)]


def _parts(item: object) -> list[Mapping[str, object]]:
    """Convert an item of message content to parts that templates render; media parts contain only the kind of media."""
    texts, media = content_of({"content": [item]})
    if is_dict(item) and not media and item.get("type") in ("text", "thinking"):
        return [item]
    kinds = [medium.kind for part in media for medium in media_in(part)]
    return [*({"type": "text", "text": text} for text in texts), *({"type": kind} for kind in kinds)]
