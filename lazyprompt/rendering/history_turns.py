"""The turns of a history, as flat text: pairs at once, messages one by one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lazyprompt.messages.prompt import MARKERS
from lazyprompt.rendering.layout import End, PartList, Said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.history import History
    from lazyprompt.rendering.markers import Markers


def put_history(history: History, markers: Markers, out: PartList, first: int = 0) -> None:
    """Add the turns of a history; errors name its messages from ``first`` on."""
    if history.questions:
        _put_pairs(history.questions, history.answers, markers, out)
    elif history:
        from lazyprompt.rendering.turns import put_messages  # noqa: PLC0415 - only messages need to know what they are

        put_messages(history.messages, markers, out, first)


def _put_pairs(questions: Sequence[str], answers: Sequence[str], markers: Markers, out: PartList) -> None:
    """Plain turns, all at once: this is where the time of a long chat would go."""
    if "user" in markers.trim:
        questions = [text.strip() for text in questions]
    if "assistant" in markers.trim:
        answers = [text.strip() for text in answers]
    # Each question stands behind what ends the answer before it, each answer behind what ends its question.
    parts = [markers.eoa + markers.soh, "", markers.eoh + markers.soa, ""] * len(questions)
    parts[0] = markers.soh
    parts[1::4] = questions
    parts[3::4] = answers
    parts.append(markers.eoa)
    out.add(parts, _pair_slots(len(questions)))


@lru_cache(maxsize=256)
def _pair_slots(count: int) -> tuple[str, ...]:
    """The slots of so many pairs: marker and text in turn, then the last marker."""
    return (MARKERS, *("history", MARKERS, Said("history"), End(MARKERS)) * count)
