"""A conversation with a local model that goes on by token ids.

Rendered and encoded again, what a model said seldom becomes the ids that it said; then the engine finds little of the
conversation in its cache, and the model reads its own words cut otherwise. So the next prompt is made of the ids that
the engine was given and said, and of what the chat template writes behind them (:meth:`ChatTemplate.bridge`). It is
sent only where it says, white space aside, what the prompt would say that is rendered as a whole: not where a budget
trims, another instruction was given, or a template writes past turns otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import at, user_turn
from lazyprompt.messages.history import History
from lazyprompt.modules._reading import Streamed
from lazyprompt.modules.chat import ChatModule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tokenizers

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import Delta
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules._base import Call
    from lazyprompt.modules._reading import Exchange, Reader
    from lazyprompt.modules._sending import Sender
    from lazyprompt.modules.engines import AnswerIds


class _Told(NamedTuple):
    """What an engine knows of a conversation: what it was given, and what it said."""

    history: tuple[Msg, ...]
    prompt: list[int]
    answer: list[int]


class Bridged(ChatModule):
    """A local model in one conversation; not to be used by several threads at once.

    Args:
        sender: Returns what sends its requests.
        ask: Makes its requests, of token ids with ``as_ids``.
        template: Its chat template; None where it has none.
        tokenizer: Its tokenizer.
        ids: The way to the ids of its answers.
    """

    def __init__(
        self,
        sender: Callable[[], Sender],
        ask: Callable[..., Exchange],
        template: ChatTemplate | None,
        tokenizer: TokenizerLike,
        ids: AnswerIds,
    ) -> None:
        super().__init__({})
        self._sending, self._ask, self._template, self._tokenizer, self._ids = sender, ask, template, tokenizer, ids
        self._told: _Told | None = None

    def _open(self) -> None:
        """Do nothing: it asks through the connection of the model that it was made of."""

    def _sender(self) -> Sender:
        return self._sending()

    def _exchange(self, call: Call) -> Exchange:
        template = self._template
        if template is None or bridge_refusal(template.jinja()):
            return self._ask(call)
        exchange = self._ask(call, as_ids=True)
        known = (*History.of(call.history).messages, *user_turn(exchange.said))
        whole = cast("list[int]", exchange.request.payload["prompt"])
        prompt = self._going_on(template, known, exchange.tools, whole) or whole

        def keep(answer: list[int], message: Msg) -> None:
            self._told = _Told((*known, message), prompt, answer)

        request = exchange.request
        extra = {**request.params.get("extra_body", {}), **self._ids.fields}
        return exchange._replace(
            request=request._replace(payload={"prompt": prompt}, params={**request.params, "extra_body": extra}),
            reader=_Hearing(cast("Reader", exchange.reader), self._ids.place, keep),
        )

    def _going_on(
        self, template: ChatTemplate, known: tuple[Msg, ...], tools: Sequence[JsonObject], whole: list[int]
    ) -> list[int] | None:
        """The ids that go on with what the engine knows; None where they would not say the same as the whole prompt."""
        told, tokenizer = self._told, self._tokenizer
        if told is None or known[: len(told.history)] != told.history:
            return None
        ids = template.bridge(told.prompt, told.answer, known[len(told.history) :], tokenizer, tools)
        return ids if ids is not None and _words(ids, tokenizer) == _words(whole, tokenizer) else None


class _Hearing(NamedTuple):
    """Reads answers as another reader does, and hears their ids."""

    reader: Reader
    place: tuple[str | int, ...]
    keep: Callable[[list[int], Msg], None]

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """Return a whole answer, and as a dict."""
        message, fields = self.reader.message(answer)
        self.heard(_ids_at(answer, self.place), message)
        return message, fields

    def stream(self) -> Streamed:
        """Return a new answer in pieces."""
        return _HearingStream(self)

    def heard(self, ids: list[int], message: Msg) -> None:
        """Keep the ids of an answer if they are all there: streams of llama.cpp leave out those of half characters."""
        if ids and message.usage is not None and message.usage["completion_tokens"] == len(ids):
            self.keep(ids, message)


class _HearingStream(Streamed):
    def __init__(self, hearing: _Hearing) -> None:
        super().__init__(hearing.reader)
        self._hearing = hearing
        self._ids: list[int] = []

    def feed(self, event: object) -> list[Delta]:
        self._ids += _ids_at(event, self._hearing.place)
        return super().feed(event)

    def message(self) -> tuple[Msg, dict[str, Any]]:
        message, fields = super().message()
        if self.complete:
            self._hearing.heard(self._ids, message)
        return message, fields


def _ids_at(answer: object, place: tuple[str | int, ...]) -> list[int]:
    # What the client does not know lies apart, some of it under names that look private.
    apart: dict[str, object] = getattr(answer, "model_extra", None) or {}
    found = at({**as_dict(answer), **apart}, place)
    return cast("list[int]", found) if isinstance(found, list) else []


def _words(ids: list[int], tokenizer: TokenizerLike) -> str:
    """What ids say, control tokens too, without white space."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "encode_ordinary"):
        text = cast("str", backend.decode(ids))
    else:
        text = cast("tokenizers.Tokenizer", backend).decode(ids, skip_special_tokens=False)
    return "".join(text.split())
