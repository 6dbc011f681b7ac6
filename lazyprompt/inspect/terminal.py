"""A prompt on a terminal: coloured by slot, and unable to do anything to the terminal; in a pipe, plain lines.

This decides where there is colour; :mod:`lazyprompt.inspect.painted` lays out with rich, which is imported when it is
needed, not before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt._base.signs import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.inspect.look import Look
    from lazyprompt.inspect.slot_diff import SlotChange
    from lazyprompt.messages.prompt import Rendered

Color: TypeAlias = Literal["auto", "always", "never"]


def rendered_text(rendered: Rendered, color: Color = "auto", *, terminal: bool) -> str:
    """A flat prompt to be written: coloured for a terminal, byte-exact for anything else.

    On a terminal each slot has a colour, text that is not trusted is underlined, and a legend follows; control
    characters are written out. Without colour there is no legend.

    Args:
        rendered: The prompt.
        color: ``always``, ``never``, or ``auto`` for a terminal whose user has not set ``NO_COLOR``.
        terminal: Whether it goes to a terminal.

    Returns:
        The text to write.
    """
    if is_colored(color, terminal=terminal):
        from lazyprompt.inspect.painted import rendered_page  # noqa: PLC0415 - rich costs 30 ms, and only colour needs it

        return rendered_page(rendered)
    text = visible(rendered.text)
    return rendered.text if not terminal else text if text.endswith("\n") else f"{text}\n"


def look_text(look: Look, color: Color = "auto", *, terminal: bool) -> str:
    """Return a view of a prompt: the prompt, tokens by slot, the budget's report, cautions.

    In colour a flat prompt is coloured by slot, as of :func:`rendered_text`; what was made harmless, and signs that are
    written out, are reversed. Without colour each line begins with its slot. Everywhere signs that a terminal would
    obey, or nobody would see, are written out.

    Args:
        look: What there is to see.
        color: As of :func:`rendered_text`.
        terminal: Whether it goes to a terminal; lines for anything else have no width to keep to.

    Returns:
        The text to write.
    """
    from lazyprompt.inspect.painted import look_page  # noqa: PLC0415 - as above

    return look_page(look, colored=is_colored(color, terminal=terminal), terminal=terminal)


def slot_diff_text(
    before: Look, after: Look, changes: Sequence[SlotChange], color: Color = "auto", *, terminal: bool
) -> str:
    """Two prompts slot by slot: the lines that differ; slots that are the same are only named.

    Args:
        before: The one.
        after: The other.
        changes: What :func:`lazyprompt.inspect.slot_diff.slot_diff` found.
        color: As of :func:`rendered_text`.
        terminal: As of :func:`look_text`.

    Returns:
        The text to write.
    """
    from lazyprompt.inspect.painted import slot_diff_page  # noqa: PLC0415 - as above

    return slot_diff_page(before, after, changes, colored=is_colored(color, terminal=terminal), terminal=terminal)


def is_colored(color: Color, *, terminal: bool) -> bool:
    """Return True if output is coloured.

    Args:
        color: What the user asked for; ``auto`` is a terminal that has colour and is to show it
            (``NO_COLOR``, https://no-color.org, and ``TERM=dumb`` say that it is not).
        terminal: Whether it goes to a terminal.
    """
    allowed = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color == "always" or (color == "auto" and terminal and allowed)
