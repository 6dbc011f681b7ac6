"""An engine that runs, and what it puts before each text: a prompt that has a BOS of its own must not get two."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import EngineError, missing_extra
from lazyprompt.modules.clients._opened import key_of

if TYPE_CHECKING:
    import tokenizers

    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.modules._sending import Sender
    from lazyprompt.modules.client import Settings

# Seconds that the question may take: it is asked once, also by those who must not wait for long.
_SOON = 10.0


class Served:
    """An engine that runs.

    Args:
        url: Where it is.
        settings: How its clients are made.
        sender: What sends it requests.
    """

    __slots__ = ("_added", "_settings", "sender", "url")

    def __init__(self, url: str, settings: Settings, sender: Sender) -> None:
        self.url, self._settings, self.sender = url, settings, sender
        self._added: list[int] | None = None

    def added_by_llama_cpp(self) -> list[int] | None:
        """What it puts before each text, where it is llama.cpp; asked once.

        Its file says so, or else what kind of vocabulary it is.

        Returns:
            The ids; None where the server does not tell, being another or out of reach: the call itself will say so.
        """
        if self._added is None:
            self._added = self._asked()
        return self._added

    def _asked(self) -> list[int] | None:
        try:
            import openai  # noqa: PLC0415 - an extra, and slow
        except ImportError as error:
            raise missing_extra("openai", "openai") from error
        _, key, timeout, _, own = self._settings
        # An HTTP client that somebody gave is not ours to close.
        options: dict[str, Any] = {name: value for name, value in own.items() if name != "http_client"}
        options |= {"max_retries": 0, "timeout": min(timeout, _SOON)}
        with openai.OpenAI(base_url=self.url, api_key=key_of(key), **options) as client:
            try:
                said = client.post("/tokenize", cast_to=object, body={"content": "", "add_special": True})
            except openai.OpenAIError:
                return None
        tokens = cast("dict[str, object]", said).get("tokens") if isinstance(said, dict) else None
        return cast("list[int]", tokens) if isinstance(tokens, list) else None


def added_by(tokenizer: TokenizerLike) -> list[int]:
    """What a tokenizer puts before each text."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "encode_ordinary"):  # tiktoken adds nothing
        return []
    made = cast("tokenizers.Tokenizer", backend).encode("a")
    return [token for token, _ in takewhile(lambda one: one[1], zip(made.ids, made.special_tokens_mask, strict=True))]


def address_of(url: str) -> str:
    """Where an engine is, without the path that its client has.

    Raises:
        EngineError: It is no address.
    """
    if not url.startswith(("http://", "https://")):
        raise EngineError(f"url= is where the engine is, as http://127.0.0.1:8000, not {url!r}")
    return url.rstrip("/").removesuffix("/v1")


def checked(settings: Settings) -> Settings:
    """How clients are made, if they can be made so.

    Raises:
        EngineError: They cannot.
    """
    given = cast("object", settings.timeout)
    if not isinstance(given, int | float) or not given > 0:
        raise EngineError(f"timeout is in seconds, and more than 0, not {given!r}")
    if "api_key" in settings.options:  # where it would show
        raise EngineError("a key is given as api_key=, not among the options")
    return settings
