"""Token counters that call the provider's counting API, with one or two network requests per count.

Source: the pages "Count tokens in a Message" (Anthropic) and "Counting tokens" (Google) in the API references, and the
types in the official clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from lazyprompt._base.json import is_dict, is_list
from lazyprompt.errors import TokenizerError, missing_extra
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.tokens.counter import Form, content_of

if TYPE_CHECKING:
    import anthropic
    from google import genai

    from lazyprompt.messages.msg import Msg

_Client = TypeVar("_Client")
_SHORT = "x"  # a message of one token


class _AskingCounter(ABC, Generic[_Client]):
    """The base class of the Anthropic and Gemini token counters."""

    __slots__ = ("_client", "_formatter", "_frame", "model")
    additive: ClassVar[bool] = False
    # The provider, the payload key for system text, and the extra that installs the provider's SDK.
    _names: ClassVar[tuple[str, str, str]]

    def __init__(self, model: str, client: _Client | None = None) -> None:
        if not isinstance(cast("object", model), str):
            raise TokenizerError(f"model must be the provider's name for the model, not {type(model).__name__}")
        self.model = model
        self._client = client
        self._formatter = ChatFormatter(self._names[0], model=model)
        self._frame: int | None = None

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Return the number of tokens in messages and tools, with one request.

        The provider's API rejects a request without messages. To count system text or tools alone, the counter adds a
        short message and subtracts its token count, which takes one additional request per counter. If there are no
        messages, no system text and no tools, the count is 0 and no request is made.

        Args:
            messages: Msg objects, OpenAI dicts, or messages in the provider's format. System text may be passed as a
                leading ``{"role": "system", "content": ...}``. Messages in the provider's format are sent unchanged;
                all other messages are formatted by a :class:`ChatFormatter`. The list itself is not modified.
            tools: The tools, in the OpenAI format or in the provider's format.

        Returns:
            The token count that the provider reports.

        Raises:
            FormatError: The provider's format can't express the messages, or the messages have no content.
            MediaError: A media block refers to a local file, which the counter doesn't read; pass base64 data instead.
                Media URLs are allowed, because the provider fetches them itself.
            HistoryError: An item is not a message.
            ToolsError: An item is not a tool.
            TokenizerError: The response contains no count.
            MissingExtraError: The client is not installed.
            Exception: An error from the client, such as a missing API key or a network failure.
        """
        system, forms = self._parted(messages)
        own_tools = self._own_tools(tools or ())
        if not (forms or system or own_tools):
            return 0
        asked = self._ask(system, forms or self._user(_SHORT), own_tools)
        return asked if forms else asked - self._short()

    def count_text(self, text: str) -> int:
        """Return the number of tokens in a text, not counting the tokens that the provider adds around a message.

        Args:
            text: The text. The first count takes two requests, and each later count takes one. For an empty string, the
                count is 0 and no request is sent.

        Returns:
            The provider's count for a message with this text, minus the tokens that the provider adds around the text.

        Raises:
            TokenizerError: The response contains no count. :meth:`count` lists the other errors.
        """
        if not text:
            return 0
        if text.isspace():  # providers reject messages that contain only white space
            return self._ask(None, self._user(_SHORT + text), []) - self._short()
        return self._ask(None, self._user(text), []) - self._short() + 1

    def _user(self, text: str) -> list[Form]:
        """Return a user message in the provider's format."""
        return self._parted([{"role": "user", "content": text}])[1]

    def _short(self) -> int:
        """Return the token count of a user message with the text ``_SHORT``, which is requested only once."""
        if self._frame is None:
            self._frame = self._ask(None, self._user(_SHORT), [])
        return self._frame

    def _parted(self, messages: Sequence[Msg | Form]) -> tuple[object, list[Form]]:
        """Return the system text and the messages in the provider's format."""
        given = [dict(message) if isinstance(message, Mapping) else message for message in messages]
        forms: list[Form] = [message for message in given if isinstance(message, dict)]
        if len(forms) == len(given):
            leads = bool(forms) and forms[0].get("role") == "system"
            system, rest = forms[0].get("content") if leads else None, forms[leads:]
            if not forms or self._is_own(system, rest):
                return system, rest
        payload = self._formatter.format(given)
        return payload.get(self._names[1]), payload[self._formatter.profile.form.messages_key]

    def _own_tools(self, tools: Sequence[Form]) -> list[Form]:
        """Return tools in the provider's format."""
        own = [tool for tool in tools if "function" not in tool]
        if len(own) < len(tools):
            functions = [dict(tool) for tool in tools if "function" in tool]
            own += self._formatter.format({"role": "user", "content": _SHORT}, tools=functions)["tools"]
        return own

    @property
    def client(self) -> _Client:
        """The provider's official client, which is created on first use.

        Raises:
            MissingExtraError: The client is not installed.
        """
        if self._client is None:
            try:
                self._client = self._connect()
            except ImportError as error:
                extra = self._names[2]
                raise missing_extra(extra, extra) from error
        return self._client

    @abstractmethod
    def _connect(self) -> _Client:
        """Create the official client from the environment."""

    @abstractmethod
    def _is_own(self, system: object, messages: list[Form]) -> bool:
        """Return True if messages are in the provider's format and are not also valid OpenAI messages."""

    @abstractmethod
    def _ask(self, system: object, messages: list[Form], tools: list[Form]) -> int:
        """Request the provider's token count; ``messages`` must not be empty."""


class AnthropicTokenCounter(_AskingCounter["anthropic.Anthropic"]):
    """Token counter that calls Anthropic's API (``POST /v1/messages/count_tokens``).

    Args:
        model: The model.
        client: The official client. By default, ``anthropic.Anthropic()`` is created on first use, with the API key
            from the environment.
    """

    __slots__ = ()
    _names = ("anthropic", "system", "anthropic")

    def _connect(self) -> anthropic.Anthropic:
        from anthropic import Anthropic  # noqa: PLC0415 - an extra

        return Anthropic()

    def _is_own(self, system: object, messages: list[Form]) -> bool:
        if all(map(_is_plain, (system, *(message.get("content") for message in messages)))):
            return False
        profile = self._formatter.profile
        payload = {"messages": messages or self._user(_SHORT)} | ({} if system is None else {"system": system})
        return not profile.form.shape(profile)(payload)

    def _ask(self, system: object, messages: list[Form], tools: list[Form]) -> int:
        beside = {key: value for key, value in (("system", system), ("tools", tools)) if value}
        asked: dict[str, Any] = {"model": self.model, "messages": messages, **beside}
        return self.client.messages.count_tokens(**asked).input_tokens


def _is_plain(content: object) -> bool:
    """Return True if content is None, a string or a list of text parts, as OpenAI's and Anthropic's formats allow."""
    if not is_list(content):
        return isinstance(content, str | None)
    return all(is_dict(part) and part.keys() == {"type", "text"} for part in content)


class GeminiTokenCounter(_AskingCounter["genai.Client"]):
    """Token counter that calls ``models/{model}:countTokens`` in the Gemini Developer API or in Vertex AI.

    For the Developer API, the client's ``CountTokensConfig`` rejects system text and tools, although the API accepts
    them in a ``generateContentRequest`` in place of ``contents``. Requests with system text or tools are therefore sent
    in the client's ``extra_body``.

    Args:
        model: The model.
        client: The official client. By default, ``google.genai.Client()`` is created on first use, with the API key, or
            the project and location, from the environment.
    """

    __slots__ = ()
    _names = ("gemini", "system_instruction", "google-genai")

    def _connect(self) -> genai.Client:
        from google.genai import Client  # noqa: PLC0415 - an extra

        return Client()

    def _is_own(self, system: object, messages: list[Form]) -> bool:
        return any("parts" in message for message in messages)

    def _ask(self, system: object, messages: list[Form], tools: list[Form]) -> int:
        contents = [_with_objects(message) for message in messages]
        # The SDK accepts the system instruction only as a string.
        instruction = "\n".join(content_of({"content": system})[0])
        config: dict[str, Any] = {"system_instruction": instruction} if instruction else {}
        if tools:
            config["tools"] = tools
        if config and not self.client.vertexai:
            config = {"http_options": {"extra_body": _whole(self.model, instruction, contents, tools)}}
        models: Any = self.client.models  # typed as Any, because the SDK's types use optional packages
        count: int | None = models.count_tokens(model=self.model, contents=contents, config=config or None).total_tokens
        if count is None:
            raise TokenizerError(f"Google's countTokens response for the model {self.model!r} contains no totalTokens")
        return count


def _with_objects(content: Form) -> Form:
    """Convert string parts to objects; some history styles write strings, which Google's original SDK accepted."""
    parts = content.get("parts")
    if not is_list(parts):
        return content
    return {**content, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def _whole(model: str, instruction: str, contents: list[Form], tools: list[Form]) -> dict[str, Any]:
    """Build a request body with a ``GenerateContentRequest``, validated and serialized by the client's own types."""
    from google.genai.types import Content, Tool  # noqa: PLC0415 - an extra

    items = [*map(Content.model_validate, contents), *map(Tool.model_validate, tools)]
    wire = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]
    system = {"systemInstruction": {"parts": [{"text": instruction}]}} if instruction else {}
    path = model if "/" in model else f"models/{model}"
    request = {"model": path, **system, "contents": wire[: len(contents)], "tools": wire[len(contents) :]}
    # The SDK requires ``contents``, but the API must only receive the contents inside the request object.
    return {"contents": [], "generateContentRequest": request}
