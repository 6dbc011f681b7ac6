"""A conversation with a local model that goes on by token ids.

Rendered and encoded again, what a model said seldom becomes the ids that it said; then the engine finds little of the
conversation in its cache, and the model reads its own words cut otherwise. So the next prompt is made of the ids that
the engine was given and said, and of what the chat template writes behind them (:meth:`ChatTemplate.bridge`). It is
sent only where it says, white space aside, what the prompt would say that is rendered as a whole: not where a budget
trims, another instruction was given, or a template writes past turns otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import at, user_turn
from lazyprompt.messages.history import History
from lazyprompt.modules.chat import ChatModule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import tokenizers

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import Delta
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules._base import Call
    from lazyprompt.modules._reading import Exchange, Reader, Streamed
    from lazyprompt.modules._sending import Sender
    from lazyprompt.modules.engines import Engine


class AnswerIds(NamedTuple):
    """How an engine tells the ids of an answer.

    Attributes:
        fields: The fields of the request that ask for them.
        place: Where they are in the answer, and in each event of a stream.
    """

    fields: Mapping[str, Any]
    place: tuple[str | int, ...]


_OF_CHOICE = AnswerIds({"return_token_ids": True}, ("choices", 0, "token_ids"))
# By the engines' names. What does not come is not missed: the conversation goes on as text then.
ANSWER_IDS: Mapping[str, AnswerIds] = {
    "llama.cpp": AnswerIds({"return_tokens": True, "verbose": True}, ("__verbose", "tokens")),
    "vllm": _OF_CHOICE,
    "sglang": _OF_CHOICE,
}


class Asked(NamedTuple):
    """How a call is put.

    Attributes:
        exchange: The request, and how its answer is read.
        tools: What the model is offered.
    """

    exchange: Exchange
    tools: Sequence[JsonObject]


class Ask(Protocol):
    """What puts a call."""

    def __call__(self, call: Call, *, as_ids: bool = False) -> Asked:
        """The call, as text or as ids."""
        ...


class Local(NamedTuple):
    """A local model, as a conversation needs it.

    Attributes:
        sender: What sends its requests.
        ask: What puts its calls.
        template: Its chat template.
        tokenizer: Its tokenizer.
        ids: How its engine tells the ids of answers.
    """

    sender: Callable[[], Sender]
    ask: Ask
    template: Callable[[], ChatTemplate | None]
    tokenizer: TokenizerLike
    ids: AnswerIds


class _Told(NamedTuple):
    """What an engine knows of a conversation: what it was given, and what it said."""

    history: tuple[Msg, ...]
    prompt: list[int]
    answer: list[int]


class Bridged(ChatModule):
    """A local model in one conversation; not to be used by several threads at once.

    Args:
        local: The model.
    """

    def __init__(self, local: Local) -> None:
        super().__init__({})
        self._local = local
        self._told: _Told | None = None

    def _sender(self) -> Sender:
        return self._local.sender()

    def _exchange(self, call: Call) -> Exchange:
        template, local = self._local.template(), self._local
        if template is None or _refuses(template):
            return local.ask(call).exchange
        exchange, offered = local.ask(call, as_ids=True)
        past = History.of(call.history).messages
        known = (*past, *user_turn(exchange.said))
        whole = cast("list[int]", exchange.request.payload["prompt"])
        prompt = self._going_on(template, known, offered, whole) or whole

        def keep(answer: list[int], message: Msg) -> None:
            self._told = _Told((*known, message), prompt, answer)

        request = exchange.request
        extra = {**request.params.get("extra_body", {}), **local.ids.fields}
        return exchange._replace(
            request=request._replace(payload={"prompt": prompt}, params={**request.params, "extra_body": extra}),
            reader=_Hearing(exchange.reader, local.ids.place, keep),
        )

    def _going_on(
        self, template: ChatTemplate, known: tuple[Msg, ...], tools: Sequence[JsonObject], whole: list[int]
    ) -> list[int] | None:
        """The ids that go on with what the engine knows; None where they would not say the same as the whole prompt."""
        told, tokenizer = self._told, self._local.tokenizer
        if told is None or known[: len(told.history)] != told.history:
            return None
        ids = template.bridge(told.prompt, told.answer, known[len(told.history) :], tokenizer, tools)
        return ids if ids is not None and _words(ids, tokenizer) == _words(whole, tokenizer) else None


class _Hearing(NamedTuple):
    """Reads answers as another does, and hears the ids."""

    reader: Reader
    place: tuple[str | int, ...]
    keep: Callable[[list[int], Msg], None]

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """A whole answer, and as a dict."""
        message, fields = self.reader.message(answer)
        self.heard(_ids_at(answer, self.place), message)
        return message, fields

    def stream(self) -> Streamed:
        """A new answer in pieces."""
        return _HearingStream(self)

    def heard(self, ids: list[int], message: Msg) -> None:
        """Keep the ids of an answer if they are all there: streams of llama.cpp leave out those of half characters."""
        if ids and message.usage is not None and message.usage["completion_tokens"] == len(ids):
            self.keep(ids, message)


class _HearingStream:
    def __init__(self, hearing: _Hearing) -> None:
        self._hearing, self._said = hearing, hearing.reader.stream()
        self._ids: list[int] = []

    @property
    def complete(self) -> bool:
        return self._said.complete

    def feed(self, event: object) -> list[Delta]:
        self._ids += _ids_at(event, self._hearing.place)
        return self._said.feed(event)

    def finish(self) -> list[Delta]:
        return self._said.finish()

    def message(self) -> tuple[Msg, dict[str, Any]]:
        message, fields = self._said.message()
        if self.complete:
            self._hearing.heard(self._ids, message)
        return message, fields


def _refuses(template: ChatTemplate) -> bool:
    """Whether a template never goes on with its own prompts and answers."""
    return bool(bridge_refusal(template.jinja()))


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


def answer_ids(engine: Engine) -> AnswerIds | None:
    """How an engine tells the ids of an answer; None where it does not, or takes none itself."""
    return ANSWER_IDS.get(engine.name) if engine.takes_ids else None
