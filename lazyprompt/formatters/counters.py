"""Token counters that ask the provider: its own count, at the price of a request over the network each time.

Source: Anthropic's API reference, "Count tokens in a Message"; Google's, "Counting tokens" (``models.countTokens``);
the types of the official clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from lazyprompt.errors import TokenizerError, missing_extra
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.tokens.counter import Form, content_of

if TYPE_CHECKING:
    import anthropic
    from google import genai

    from lazyprompt.messages.msg import Msg

_Client = TypeVar("_Client")
_SHORT = "x"  # content where some must be; a token by itself


class _AskingCounter(ABC, Generic[_Client]):
    """The base of both counters: it formats messages, and counts a short message where there is none."""

    __slots__ = ("_client", "_formatter", "_frame", "model")
    additive: ClassVar[bool] = False
    # The provider, the key of its payloads that holds system text, and the extra with its client.
    _names: ClassVar[tuple[str, str, str]]

    def __init__(self, model: str, client: _Client | None = None) -> None:
        self.model = model
        self._client = client
        self._formatter = ChatFormatter(self._names[0], model=model)
        self._frame: int | None = None

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Return the number of tokens of messages, and of the tools sent with them; one request.

        A request without messages is refused: system text or tools alone are counted beside a short message, whose own
        count (a second request, once for a counter) is taken off. Nothing at all counts 0, without any request.

        Args:
            messages: Msg, OpenAI dicts, or messages in the provider's form as a payload holds them, system text as a
                leading ``{"role": "system", "content": ...}``. Those in the provider's form are sent as they are, all
                others as a :class:`ChatFormatter` writes them, with what it repairs, adds or leaves out. None changes.
            tools: The tools in the OpenAI form, or in the provider's.

        Returns:
            What the provider says.

        Raises:
            FormatError: The provider has no form for the messages (a result without its call), or they say nothing.
            MediaError: A picture or the like is a local file: nothing is read here, give it as base64. What is at an
                address the provider fetches itself, as it would for an answer.
            HistoryError: Something is no message.
            ToolsError: Something is no tool.
            TokenizerError: The answer holds no count.
            MissingExtraError: The client is not installed.
            Exception: The client's own errors (no key, no network, a refusal of the API) come as they are.
        """
        system, forms = self._parted(messages)
        own_tools = self._own_tools(tools or ())
        if not (forms or system or own_tools):
            return 0
        asked = self._ask(system, forms or self._user(_SHORT), own_tools)
        return asked if forms else asked - self._short()

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text, without those that the provider puts around a message.

        Args:
            text: The text. An empty one counts 0, without any request; any other takes one, and the first a second.

        Returns:
            What the provider says of a message of this text, less what surrounds it.

        Raises:
            TokenizerError: As of :meth:`count`, and so are all others.
        """
        if not text:
            return 0
        if text.isspace():  # by itself it would be refused
            return self._ask(None, self._user(_SHORT + text), []) - self._short()
        return self._ask(None, self._user(text), []) - self._short() + 1

    def _user(self, text: str) -> list[Form]:
        """Return a user's message of a text, in the provider's form."""
        return self._parted([{"role": "user", "content": text}])[1]

    def _short(self) -> int:
        """Return the count of the short message."""
        if self._frame is None:
            self._frame = self._ask(None, self._user(_SHORT), [])
        return self._frame

    def _parted(self, messages: Sequence[Msg | Form]) -> tuple[object, list[Form]]:
        """Return system text, and the messages in the provider's form."""
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
        """Return tools in the provider's form."""
        own = [tool for tool in tools if "function" not in tool]
        if len(own) < len(tools):
            functions = [dict(tool) for tool in tools if "function" in tool]
            own += self._formatter.format({"role": "user", "content": _SHORT}, tools=functions)["tools"]
        return own

    @property
    def client(self) -> _Client:
        """The client; made here where none was given.

        Raises:
            MissingExtraError: It is not installed.
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
        """Make the official client from the environment."""

    @abstractmethod
    def _is_own(self, system: object, messages: list[Form]) -> bool:
        """Return True if messages are in the provider's form, and not in the OpenAI form as well."""

    @abstractmethod
    def _ask(self, system: object, messages: list[Form], tools: list[Form]) -> int:
        """Ask for the provider's count, of one message at least."""


class AnthropicTokenCounter(_AskingCounter["anthropic.Anthropic"]):
    """Counts by asking Anthropic (``POST /v1/messages/count_tokens``).

    Args:
        model: The model.
        client: The official client. Without one, ``anthropic.Anthropic()`` is made on first use; it takes its key from
            the environment.
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
    """Return True for text, or parts of text alone: the OpenAI form, and Anthropic's as well."""
    return isinstance(content, str | None) or (
        isinstance(content, list)
        and all(isinstance(part, dict) and part.keys() == {"type", "text"} for part in cast("list[object]", content))
    )


class GeminiTokenCounter(_AskingCounter["genai.Client"]):
    """Counts by asking Google (``models/{model}:countTokens`` of the Gemini Developer API, or of Vertex AI).

    For the Developer API the client's ``CountTokensConfig`` refuses system text and tools, which it hands on to Vertex
    AI. The API itself counts them, in a ``generateContentRequest`` in the place of ``contents``; so that is what is
    sent where there are any, by the client's own means for what it has no argument for: ``extra_body``.

    Args:
        model: The model.
        client: The official client. Without one, ``google.genai.Client()`` is made on first use; it takes its key, or
            project and location, from the environment.
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
        # An instruction is text and nothing else, whatever holds it.
        instruction = "\n".join(content_of({"content": system})[0])
        config: dict[str, Any] = {"system_instruction": instruction} if instruction else {}
        if tools:
            config["tools"] = tools
        if config and not self.client.vertexai:
            config = {"http_options": {"extra_body": _whole(self.model, instruction, contents, tools)}}
        models: Any = self.client.models  # its types name classes that need not be there
        count: int | None = models.count_tokens(model=self.model, contents=contents, config=config or None).total_tokens
        if count is None:
            raise TokenizerError(f"Google's answer to countTokens for the model {self.model!r} holds no totalTokens")
        return count


def _with_objects(content: Form) -> Form:
    """Make parts that are texts objects: Gemini's first client took texts as well, and a history style has them so."""
    parts = content.get("parts")
    if not isinstance(parts, list):
        return content
    items = cast("list[object]", parts)
    return {**content, "parts": [{"text": part} if isinstance(part, str) else part for part in items]}


def _whole(model: str, instruction: str, contents: list[Form], tools: list[Form]) -> dict[str, Any]:
    """Return a body with a ``GenerateContentRequest``, checked and written by the client's own types."""
    from google.genai.types import Content, Tool  # noqa: PLC0415 - an extra, and here, for there is a client

    items = [*map(Content.model_validate, contents), *map(Tool.model_validate, tools)]
    wire = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]
    said_first = {"systemInstruction": {"parts": [{"text": instruction}]}} if instruction else {}
    path = model if "/" in model else f"models/{model}"
    request = {"model": path, **said_first, "contents": wire[: len(contents)], "tools": wire[len(contents) :]}
    # An empty list is none: it takes away what the client writes there.
    return {"contents": [], "generateContentRequest": request}
