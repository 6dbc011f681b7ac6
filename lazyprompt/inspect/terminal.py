"""Text views of a prompt, colored by slot in a terminal and uncolored if the output is piped."""

from __future__ import annotations

import json
import os
from io import StringIO
from itertools import cycle
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.bar import Bar
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from lazyprompt._base.characters import split_hidden, visible
from lazyprompt._base.secret import shown
from lazyprompt.inspect.cautions import Mark, split_at_marks
from lazyprompt.inspect.look import Look, SlotChange, shared_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.prompt import Rendered, Segment


Color: TypeAlias = Literal["auto", "always", "never"]

# Users can configure these standard terminal colors, which are assigned to slots in this order.
_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")
PALETTE = (*_COLORS, *(f"bright_{color}" for color in _COLORS))
# Symbols in uncolored output for the start of a line, a continued line and untrusted text.
_BEGINS, _GOES_ON, _STAR = "|", "+", "*"
_BAR = 24
_PIPE = 100_000
_MARKED = "reverse"
_UNTRUSTED = "underline"
_GRAVE = frozenset({"forged", "loss", "refused"})
_STANDS_OUT = frozenset({"neutralised", "forged", "hidden"})
_DIFF = {"+": "green", "-": "red", "@": "cyan"}


def rendered_text(rendered: Rendered, color: Color = "auto", *, terminal: bool) -> str:
    """Return the text to print for a flat prompt, unchanged if the output is neither a terminal nor colored.

    In a terminal, control characters are escaped. With color, each slot is colored, untrusted text is underlined, and a
    legend is appended.

    Args:
        rendered: The rendered prompt.
        color: ``always``, ``never``, or ``auto``, which uses color in a terminal unless ``NO_COLOR`` is set.
        terminal: True if the output is a terminal.

    Returns:
        The text to print.
    """
    if not is_colored(color, terminal=terminal):
        text = visible(rendered.text)
        return rendered.text if not terminal else text if text.endswith("\n") else f"{text}\n"
    segments = rendered.segments
    styles = _styles(slot for _, slot, _ in segments)
    legend = Text(" · ").join(Text(visible(slot), style) for slot, style in styles.items())
    if not all(trusted for _, _, trusted in segments):
        legend.append(" · ").append("not trusted", _UNTRUSTED)
    return _printed([_prompt(segments, (), styles), Text("── ").append_text(legend)], colored=True, terminal=True)


def look_text(look: Look, color: Color = "auto", *, terminal: bool) -> str:
    """Return a text view with the prompt, the tokens by slot, the budget and payload reports, and the cautions.

    With color, a flat prompt is colored by slot as in :func:`rendered_text`, and neutralised or escaped characters
    appear in reverse video. Without color, each line begins with the name of its slot. Control characters and invisible
    characters are always escaped.

    Args:
        look: The data to display.
        color: The color setting; see :func:`rendered_text`.
        terminal: True if the output is a terminal; otherwise, the line width is unlimited.

    Returns:
        The text to print.
    """
    colored = is_colored(color, terminal=terminal)
    styles = _styles(slot.name for slot in look.slots)
    if not isinstance(look.sent, str):
        body = _json(look.sent)
    elif colored:
        body = _prompt(look.segments, look.marks, styles)
    else:
        body = _by_line(look.segments)
    table = _table(look, styles, colored=colored)
    tokens = _tokens(look, styles) if look.tokens else Text()
    parts = (_title(look), body, _key(look, colored=colored), table, tokens, _changes(look), _cautions(look))
    return _printed(_with_blank_lines(parts), colored=colored, terminal=terminal)


def slot_diff_text(
    before: Look, after: Look, changes: Sequence[SlotChange], color: Color = "auto", *, terminal: bool
) -> str:
    """Return the lines that differ between two prompts, grouped by slot, and the names of unchanged slots.

    Args:
        before: The first prompt.
        after: The second prompt.
        changes: The changes returned by :func:`lazyprompt.inspect.look.slot_diff`.
        color: The color setting; see :func:`rendered_text`.
        terminal: True if the output is a terminal; see :func:`look_text`.

    Returns:
        The text to print.
    """
    titles = Text.assemble(("--- ", "red"), _title(before), "\n", ("+++ ", "green"), _title(after))
    same = ", ".join(change.name for change in changes if change.state == "same")
    parts = [titles, Text(str(shared_prefix(before, after))), Text(f"same: {visible(same)}" if same else "")]
    parts += [_changed(change) for change in changes if change.state != "same"]
    return _printed(_with_blank_lines(parts), colored=is_colored(color, terminal=terminal), terminal=terminal)


def is_colored(color: Color, *, terminal: bool) -> bool:
    """Return True if the output should be colored.

    Args:
        color: The color setting. ``auto`` uses color in a terminal unless ``NO_COLOR`` (https://no-color.org) or
            ``TERM=dumb`` is set.
        terminal: True if the output is a terminal.
    """
    allowed = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color == "always" or (color == "auto" and terminal and allowed)


def _styles(slots: Iterable[str]) -> Mapping[str, str]:
    """Assign a color from the palette to each slot in rotation."""
    return dict(zip(dict.fromkeys(slots), cycle(PALETTE), strict=False))


def _title(look: Look) -> Text:
    """Return a heading with the prompt's title, format, model and size."""
    tokens = f"{look.total:,} {look.unit}"
    if look.window is not None:
        tokens = f"{look.total:,} of {look.window:,} {look.unit}, {look.total / look.window:.0%}"
    names = (look.title, look.form, look.model or "")
    return Text(" · ").join([*(Text(visible(name), "bold") for name in names if name), Text(tokens)])


def _prompt(segments: Iterable[Segment], marks: Sequence[Mark], styles: Mapping[str, str]) -> Text:
    """Return a flat prompt colored by slot, with control sequences and escaped characters highlighted."""
    body = Text()
    for (text, slot, trusted), is_mark in split_at_marks(segments, marks):
        style = styles[slot] if trusted else f"{styles[slot]} {_UNTRUSTED}"
        for piece, is_hidden in split_hidden(text):
            body.append(visible(piece), f"{style} {_MARKED}" if is_mark or is_hidden else style)
    return body


def _by_line(segments: Iterable[Segment]) -> Text:
    """Return a flat prompt without color, split into lines that each contain text from only one slot."""
    found = [*segments]
    width = max((cell_len(visible(slot)) for _, slot, _ in found), default=0)
    lines: list[str] = []
    sign = _BEGINS
    for text, slot, trusted in found:
        name = visible(slot)
        head = f"{name}{' ' * (width - cell_len(name))} {' ' if trusted else _STAR}"
        for line in text.removesuffix("\n").split("\n"):
            lines.append(f"{head}{sign}{' ' if line else ''}{visible(line)}")
            sign = _BEGINS
        sign = _BEGINS if text.endswith("\n") else _GOES_ON
    return Text("\n".join(lines))


def _json(payload: JsonObject) -> Text:
    body = Text(visible(json.dumps(shown(payload), ensure_ascii=False, indent=2)))
    JSONHighlighter().highlight(body)
    return body


def _key(look: Look, *, colored: bool) -> Text:
    """Return a legend for the symbols and styles that appear in a flat prompt."""
    signs: list[Text] = []
    if any(not trusted for _, _, trusted in look.segments):
        signs.append(Text("not trusted", _UNTRUSTED) if colored else Text(f"{_STAR} not trusted"))
    if colored and any(caution.kind in _STANDS_OUT for caution in look.cautions):
        signs.append(Text("neutralised or shown as a code", _MARKED))
    if not colored and len(look.segments) > 1:
        signs.append(Text(f"{_GOES_ON} goes on in the line above"))
    return Text(" · ").join(signs)


def _table(look: Look, styles: Mapping[str, str], *, colored: bool) -> Table:
    """Return a table with the token count and percentage for each slot."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SLOT", overflow="fold")
    table.add_column(look.unit.partition(" ")[0].upper(), justify="right", no_wrap=True)
    table.add_column("SHARE", justify="right", no_wrap=True)
    whole = look.total or 1
    if colored:
        table.add_column("", max_width=_BAR)
    for slot in look.slots:
        style = styles[slot.name]
        bar = [Bar(whole, 0, slot.tokens, color=style)] if colored else []
        table.add_row(Text(visible(slot.name), style), f"{slot.tokens:,}", f"{slot.tokens / whole:.0%}", *bar)
    table.add_row("total", f"{look.total:,}", "100%")
    return table


def _tokens(look: Look, styles: Mapping[str, str]) -> Table:
    """Return a table of the tokens in the training sample, with a column that marks the trained tokens."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("#", "ID", "MESSAGE"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("SLOT", "ORIGIN", "TRAINED", "TOKEN"):
        table.add_column(name, overflow="fold")
    for at, token in enumerate(look.tokens):
        style, text = styles.get(token.slot, ""), visible(json.dumps(token.text, ensure_ascii=False))
        message = "" if token.message is None else f"{token.message}"
        origin, trained = "trusted" if token.trusted else "value", "yes" if token.trained else ""
        style = style if token.trusted else f"{style} {_UNTRUSTED}"
        table.add_row(f"{at}", f"{token.id}", message, visible(token.slot), origin, trained, Text(text, style))
    return table


def _changes(look: Look) -> Text:
    """Return the budget's and the payload's reports, omitting entries about lost content, which the cautions list."""
    lines: list[str] = []
    if look.trim is not None:
        lines.append(f"budget: {look.trim}")
        for item in look.trim.messages:
            if item.fate != "kept":
                place = item.slot if item.role == "slot" else f"{item.slot}[{item.index}] ({item.role})"
                lines.append(f"- {place} {item.fate}: {item.reason}; {item.before:,} → {item.after:,}")
    lines += (f"- {entry}" for entry in look.report if not entry.is_loss)
    lines += (f"- the mask {pattern!r} matches nowhere in the answers" for pattern in look.unmatched)
    return Text(visible("\n".join(lines)))


def _cautions(look: Look) -> Text:
    signed = (
        Text.assemble(("! ", "bold red" if caution.kind in _GRAVE else "bold yellow"), str(caution))
        for caution in look.cautions
    )
    return Text("\n").join(signed)


def _changed(change: SlotChange) -> Text:
    """Return a description of a slot's change with the lines that differ."""
    tokens = (
        f"{change.before:,} → {change.after:,}" if change.state == "changed" else f"{change.before + change.after:,}"
    )
    lines = [Text.assemble((visible(change.name), "bold"), f": {change.state}, {tokens}")]
    lines += (Text(visible(line), _DIFF.get(line[:1], "")) for line in change.lines)
    return Text("\n").join(lines)


def _with_blank_lines(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """Yield the nonempty sections of a view, separated by empty lines."""
    for at, part in enumerate(part for part in parts if not isinstance(part, Text) or part):
        if at:
            yield Text()
        yield part


def _printed(parts: Iterable[RenderableType], *, colored: bool, terminal: bool) -> str:
    file = StringIO()
    console = Console(
        file=file,
        width=None if terminal else _PIPE,
        force_terminal=colored,
        color_system="standard" if colored else None,
        no_color=not colored,
        legacy_windows=False,
        highlight=False,
        # By default, rich reads an os.environ object that the datasets package replaces with a copy.
        _environ=os.environ,
    )
    for part in parts:
        # With soft_wrap, rich inserts no line breaks into a long line, so a line copied from the terminal is complete.
        text = part.plain if isinstance(part, Text) else None
        console.print(part, soft_wrap=text is not None, end="" if text is not None and text.endswith("\n") else "\n")
    return file.getvalue()
