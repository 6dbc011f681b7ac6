"""A Look as JSON values, for programs: what ``lazyprompt inspect --json`` writes, and what the studio shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.inspect.look import Look


_ENTRY = ("where", "kind", "action", "reason", "is_loss")


def look_json(look: Look) -> JsonObject:
    """Return a look at a prompt as JSON values.

    Args:
        look: What there is to see.

    Returns:
        ``title``, ``form``, ``model``; ``text`` or ``payload`` (the other is None); ``segments`` (text, slot, trusted),
        ``slots`` (name, tokens), ``total``, ``unit``, ``window``, ``marks`` (slot, start, end, raw, safe; the places
        in signs), ``report`` (where, kind, action, reason, is_loss), ``trim`` (None, or the fields of
        :meth:`lazyprompt.TrimReport.as_dict` and text) and ``cautions`` (kind, values, text). The payload is the
        Look's own, no copy. With a tokenizer also ``tokens`` (id, text, message, slot, trusted, trained) and
        ``unmatched``, the patterns of the mask that match nowhere.
    """
    sample: JsonObject = {"tokens": [token._asdict() for token in look.tokens], "unmatched": [*look.unmatched]}
    return {
        "title": look.title,
        "form": look.form,
        "model": look.model,
        "text": look.sent if isinstance(look.sent, str) else None,
        "payload": None if isinstance(look.sent, str) else look.sent,
        "segments": [segment._asdict() for segment in look.segments],
        "slots": [{"name": name, "tokens": tokens} for name, tokens, _ in look.slots],
        "total": look.total,
        "unit": look.unit,
        "window": look.window,
        "marks": [mark._asdict() for mark in look.marks],
        "report": [{key: getattr(entry, key) for key in _ENTRY} for entry in look.report],
        "trim": None if look.trim is None else {**look.trim.as_dict(), "text": str(look.trim)},
        "cautions": [
            {"kind": caution.kind, "values": {**caution.values}, "text": str(caution)} for caution in look.cautions
        ],
        **(sample if look.tokens else {}),
    }
