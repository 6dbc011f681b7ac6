"""The JSON format of saved conversations."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lazyprompt._base.json import checked
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg, message_of
from lazyprompt.messages.native import Native

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FORMAT = "lazyprompt.chat/1"


def dump_chat(history: Iterable[Msg]) -> bytes:
    """Serialize a conversation as JSON."""
    saved = {"format": _FORMAT, "messages": [*map(_dump_message, history)]}
    return json.dumps(saved, ensure_ascii=False, indent=1).encode()


def load_chat(data: bytes, name: str) -> tuple[Msg, ...]:
    """Deserialize a conversation from :func:`dump_chat`.

    Args:
        data: The JSON.
        name: The file name for error messages.

    Raises:
        HistoryError: The data is not a saved conversation, or has an unsupported format.
    """
    messages: tuple[Msg, ...] = ()
    try:
        saved: Any = json.loads(data)
        form, dumped = saved["format"], saved["messages"]
        if form == _FORMAT:
            messages = tuple(map(_load_message, dumped))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise HistoryError(f"{name} is not a conversation saved by Chat.save: {error}") from error
    if form != _FORMAT:
        raise HistoryError(f"{name} is a conversation in the format {form!r}; this version reads only {_FORMAT!r}")
    return messages


def _dump_message(message: Msg) -> Mapping[str, Any]:
    """Convert a message to a JSON-serializable dict that :func:`_load_message` can read."""
    content = message.content if isinstance(message.content, str) else [asdict(block) for block in message.content]
    return {
        "name": message.name,
        "role": message.role,
        "content": content,
        **({} if message.url is None else {"url": message.url}),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
        **({"usage": dict(message.usage)} if message.usage else {}),
        **({"native": message.native._asdict()} if message.native else {}),
    }


def _load_message(saved: dict[str, Any]) -> Msg:
    """Convert a dict from :func:`_dump_message` to a message."""
    fields = {**saved}
    native = fields.pop("native", None)
    message = Msg(**fields)
    own = None if native is None else Native(str(native["provider"]), checked(native["data"], "native", HistoryError))
    speaker = "" if message.name == message.role else message.name
    return message_of(speaker, message.content, message.role, message.url, message.metadata, message.usage, own)
