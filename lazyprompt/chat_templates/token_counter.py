"""A model's own tokens: its ``tokenizer.json`` and its chat template, counted on this machine.

Source of the rules: transformers 5, ``PreTrainedTokenizerBase.apply_chat_template`` (what a template is given, and that
no special tokens are added to what it writes) and ``TokenizersBackend.__init__`` (which tokens are added).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lazyprompt._base.files import read_regular
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
# The largest in use have some 35 MB.
_MOST = 134_217_728
_FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
# What makes a message one of another form than OpenAI's, and who speaks in it.
_OTHER_FORMS = frozenset(("parts", "output", "arguments"))
_ROLES = {"model": "assistant", "function": "tool"}
_ITEM_ROLES = {"function_call": "assistant", "function_call_output": "tool", "reasoning": "assistant"}
# Short turns in an order that no template refuses, to see what it puts around them.
_TURNS = ("user", "assistant", "user")
_SHORT = "x"


class HuggingFaceTokenCounter:
    """Counts what a model's own chat template makes of messages, with the model's own tokenizer.

    Messages count as the template shows them, tools and the beginning of the answer included: what transformers'
    ``apply_chat_template(messages, tools, add_generation_prompt=True)`` counts. Contents go to the template in the form
    it shows, text or parts. Pictures and other media count what the template writes for them and what
    :func:`~lazyprompt.tokens.media.estimate_media_tokens` says. Messages that a template refuses (many want users and
    assistants to alternate, some take no system) count one by one, each as the template shows it alone; one that it
    refuses even alone counts its texts and what the template puts around a user's. Such a count is rather too high than
    too low.

    Without any template, texts count, with roles and names, and nothing around them. Nothing is ever downloaded.

    Args:
        tokenizer: A model's ``tokenizer.json``, or the directory it lies in. What lies beside it is read too: the chat
            template and the special tokens. Or a tokenizer, as of :meth:`~lazyprompt.Rendered.encode`.
        chat_template: The chat template as text, in the place of the one beside the tokenizer.

    Raises:
        TokenizerError: There is no tokenizer at the path, or a file cannot be read.
        TemplateError: The chat template's syntax is wrong.
        MissingExtraError: The package tokenizers is not installed.
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
        # Without tools, and with.
        self._chats = tuple(own or source.template(with_tools=with_tools) for with_tools in (False, True))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its path: the vocabulary is read again."""
        return partial(type(self), chat_template=self.chat_template), (self.tokenizer,)

    def __repr__(self) -> str:
        shown = str(self.tokenizer) if isinstance(self.tokenizer, Path) else self.tokenizer
        return f"{type(self).__name__}({shown!r})"

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """The number of tokens of messages and tools, and of the beginning of the answer.

        Args:
            messages: Messages in the OpenAI form or Msg; those in other forms count by their texts.
            tools: The tools, in the OpenAI form.

        Returns:
            The number; for no messages, what the template writes for none.

        Raises:
            FormatError: A message or tool is no JSON value.
        """
        given = forms(messages)
        media = sum(estimate_media_tokens(part) for message in given for part in content_of(message)[1])
        chat = self._chats[bool(tools)]
        if chat is None:
            roles = [role for message in given if isinstance(role := message.get("role"), str)]
            texts = [text for message in given for text in content_of(message)[0]]
            return media + self._texts((*roles, *texts)) + self._json(tools)
        return media + self._chat(chat, given, tools or None)

    def count_text(self, text: str) -> int:
        """The number of tokens of a text, without any that stand for its beginning or end."""
        return len(self._backend.encode(well_formed(text)).ids)

    def _texts(self, texts: Iterable[str]) -> int:
        return sum(map(self.count_text, texts))

    def _json(self, tools: Sequence[Form] | None) -> int:
        return self._texts(json_text(tool, "a tool") for tool in tools or ())

    def _chat(self, chat: ChatJinja, given: Sequence[Form], tools: Sequence[Form] | None) -> int:
        """Render messages; if the template refuses them, each by itself."""
        shown = without_none(_shown(message, chat) for message in given)
        whole = self._rendered(chat, shown, tools)
        return self._one_by_one(chat, given, shown, tools) if whole is None else whole

    def _one_by_one(
        self, chat: ChatJinja, given: Sequence[Form], shown: Sequence[Form], tools: Sequence[Form] | None
    ) -> int:
        """Each message as the template shows it alone, what stands before all messages counted once."""
        turns = [{"role": role, "content": _content(_SHORT, chat)} for role in _TURNS]
        one, two, three = (self._rendered(chat, turns[:most], add_generation_prompt=False) for most in (1, 2, 3))
        opening = self._rendered(chat, turns[:1], tools)
        # What the template puts around a turn, and before all of them.
        turn = one or 0
        frame = turn if two is None or three is None else min(turn, abs(three - two))
        before = turn - frame
        counted = before + self._json(tools) if opening is None else max(before, opening - frame)
        for message, form in zip(given, shown, strict=True):
            texts = self._texts(content_of(message)[0])
            alone = self._rendered(chat, (form,), add_generation_prompt=False)
            counted += texts + frame if alone is None else max(texts, alone - before)
        return counted

    def _rendered(
        self,
        chat: ChatJinja,
        messages: Sequence[Form],
        tools: Sequence[Form] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> int | None:
        """The number of tokens of what the template writes; None where it refuses."""
        try:
            return self.count_text(chat.render(messages, tools, add_generation_prompt=add_generation_prompt))
        except TemplateError:
            return None


def load_tokenizer(path: str | Path) -> tuple[tokenizers.Tokenizer, ChatSource]:
    """Load a model's tokenizer with the tokens that stand beside it, and what else does.

    Args:
        path: A model's ``tokenizer.json``, or the directory it lies in.

    Raises:
        TokenizerError: There is no tokenizer at the path, or a file cannot be read.
        MissingExtraError: The package tokenizers is not installed.
    """
    path = Path(path)
    file = path / _FILE if path.is_dir() else path
    if not file.exists():
        raise TokenizerError(
            f"there is no tokenizer at {file}; give the path of a model's {_FILE}, or of the directory it lies in "
            "(nothing is downloaded)"
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
    except Exception as error:  # the package has no other error
        raise _unreadable(file, error) from error
    return tokenizer


def read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """Read a file ``tokenizer.json``.

    Args:
        file: Its path.

    Raises:
        TokenizerError: It is not a tokenizer, not a regular file, or too large.
        MissingExtraError: The package tokenizers is not installed.
    """
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("tokenizers", "hf") from error
    try:
        data = read_regular(file, _MOST)
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}; give a model's {_FILE}") from error
    try:
        return Tokenizer.from_buffer(data)
    except Exception as error:  # the package has no other error
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> TokenizerError:
    return TokenizerError(
        f"{file} is no tokenizer that the package tokenizers can read: {error}; copy it again from where the model is "
        "kept, or install a newer tokenizers"
    )


def _flags(token: Mapping[str, object]) -> dict[str, Any]:
    """A token as the package takes it; files may say more of it."""
    return {name: token[name] for name in _FLAGS if name in token}


def _shown(message: Form, chat: ChatJinja) -> dict[str, Any]:
    """A message in the form that a template shows, without the content of its media."""
    role = message.get("role")
    if not isinstance(role, str) or not _OTHER_FORMS.isdisjoint(message):
        role = _ROLES.get(role, role) if isinstance(role, str) else _ITEM_ROLES.get(str(message.get("type")), "user")
        return {"role": role, "content": _content("\n".join(content_of(message)[0]), chat)}
    # Ollama's form has pictures beside the text.
    shown = {key: value for key, value in message.items() if key != "images"}
    if isinstance(message.get("function_call"), dict):
        # The form of calls before there were tools.
        shown["tool_calls"] = [{"type": "function", "function": shown.pop("function_call")}]
    return shown | {"content": _content(shown["content"], chat)} if "content" in shown else shown


def _content(content: object, chat: ChatJinja) -> object:
    """A content as text or as parts, whichever the template shows."""
    if isinstance(content, str):
        return chat.content(content)
    if not isinstance(content, list | tuple):
        return content
    items = cast("Sequence[object]", content)
    if not chat.shows_parts:
        return "\n".join(content_of({"content": items})[0])
    return [part for item in items for part in _parts(item)]


def _parts(item: object) -> list[Mapping[str, object]]:
    """An item of a content as parts that templates know: text, thoughts, and media by their kind alone."""
    texts, media = content_of({"content": [item]})
    if isinstance(item, dict) and not media:
        part = cast("Mapping[str, object]", item)
        if part.get("type") in ("text", "thinking"):
            return [part]
    kinds = [medium.kind for part in media for medium in media_in(part)]
    return [*({"type": "text", "text": text} for text in texts), *({"type": kind} for kind in kinds)]
