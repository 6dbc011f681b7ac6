"""What a prompt says, as a short number: the same content has the same one, wherever the file is and whenever."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyprompt._base.json import Json, JsonObject


def content_hash(dialect: str, content: JsonObject) -> str:
    """The hash of a prompt.

    Args:
        dialect: What it is written in: the same text says something else in another one.
        content: Its front matter, with what it refers to, and its template, with what it includes. How the model is
            reached (``model.connection``) is not counted: it differs from place to place, and may hold keys.

    Returns:
        SHA-256 in hexadecimal, over its canonical JSON.
    """
    model = content.get("model")
    if isinstance(model, dict):
        content = {**content, "model": {name: value for name, value in model.items() if name != "connection"}}
    told: Json = [dialect, content]
    return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
