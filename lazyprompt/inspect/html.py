"""What a notebook shows of a prompt, of messages, of a budget's report and of an answer: one string of HTML each.

A view stands for itself: it has no script, asks for nothing, and reaches nothing beside it. A long text is folded, and
what a notebook would be too large with is left out, which a line says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lazyprompt.budget.report import TrimReport
from lazyprompt.formatters.reply import Reply
from lazyprompt.inspect.html_messages import blocks, conversation, message, usage_text
from lazyprompt.inspect.html_page import page
from lazyprompt.inspect.html_slots import legend, numbered, runs_of
from lazyprompt.inspect.html_text import (
    ELEMENT,
    Html,
    Room,
    element,
    flow,
    folded,
    joined,
    json_view,
    label,
    left_out,
    name,
    text,
)
from lazyprompt.inspect.look import Look
from lazyprompt.messages.history import messages_from
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.prompt import Prompt, Rendered
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.budget.report import Trimmed
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.prompt import Text

# How many rows of a table are open before the rest is folded.
_ROWS: Final = 60
_ROW: Final = 12 * ELEMENT


def rendered_html(rendered: Rendered) -> str:
    """A flat prompt, coloured by slot, with about the tokens of each.

    Args:
        rendered: The prompt.
    """
    segments = rendered.segments
    tokens = rendered.tokens(ApproximateTokenCounter())
    numbers = numbered(tokens)
    return page(
        _head(f"about {sum(tokens.values()):,} tokens"),
        _note(f"where the text comes from is not known: {rendered.note}" if rendered.note else ""),
        legend(tokens, numbers, untrusted=not all(trusted for _, _, trusted in segments)),
        flow(runs_of(segments, numbers), Room()),
    )


def prompt_html(prompt: Prompt) -> str:
    """A prompt, field by field; fields that are empty are left out.

    Args:
        prompt: The prompt.
    """
    room = Room()
    numbers = numbered([*prompt.instruction.slots, *prompt.user.slots])
    fields: Mapping[str, Html | None] = {
        "system": _system(prompt.system, room),
        "instruction": _slotted(prompt.instruction, numbers, room),
        "tools": _tools(prompt, room),
        "history": conversation(prompt.history.messages, room) if prompt.history else None,
        "user": _slotted(prompt.user, numbers, room),
        "input": None if prompt.input is None else text(prompt.input, room),
        "label": None if prompt.label is None else text(prompt.label, room),
    }
    return page(*(_field(what, inside) for what, inside in fields.items() if inside is not None))


def message_html(given: Msg) -> str:
    """A message, block by block.

    Args:
        given: The message.
    """
    return page(message(given, Room()))


def messages_html(given: HistoryLike) -> str:
    """A conversation.

    Args:
        given: Messages, as :class:`lazyprompt.Msg` or in any other form of a history.

    Raises:
        HistoryError: It is no history.
    """
    messages = messages_from(given)
    return page(_head(f"{len(messages):,} messages"), conversation(messages, Room()))


def trim_html(report: TrimReport) -> str:
    """What a budget did to each message, with the tokens before and after.

    Args:
        report: The report; what it has not counted yet is counted.
    """
    return page(_trim(report, Room()))


def reply_html(reply: Reply) -> str:
    """An answer: its blocks, why it ended and what it cost.

    Args:
        reply: The answer.
    """
    room = Room()
    said = {"model": reply.model, "ended": reply.finish, "cost": usage_text(reply.usage) if reply.usage else ""}
    facts = (element("li", label(f"{what}: "), name(value)) for what, value in said.items() if value)
    parsed = () if reply.parsed is None else (_field("parsed", text(repr(reply.parsed), room)),)
    return page(element("ul", *facts, look="lp-list"), blocks(reply.message.blocks, room), *parsed)


def html_of(value: object) -> str:
    """Return the view of a value of the package that a notebook shows.

    Args:
        value: A flat prompt, a prompt, a message, a budget's report or an answer.

    Raises:
        TypeError: It is none of these.
    """
    view = next((_VIEWS[kind] for kind in type(value).__mro__ if kind in _VIEWS), None)
    if view is None:
        raise TypeError(f"there is no view of a {type(value).__name__}")
    return view(value)


def look_html(look: Look) -> str:
    """What there is to see of a prompt.

    Args:
        look: What there is to see.
    """
    room = Room()
    numbers = numbered(slot for _, slot, _ in look.segments)
    sent = (
        joined((_legend(look, numbers), flow(runs_of(look.segments, numbers, look.marks), room)))
        if isinstance(look.sent, str)
        else json_view(look.sent, room)
    )
    return page(
        _head(*filter(None, (look.title, look.form, look.model or "", _size(look)))),
        *([element("ul", *(_item(caution) for caution in look.cautions), look="lp-cautions")] if look.cautions else []),
        sent,
        _slots(look, room),
        *([_field("what the payload has not as it was given", _report(look, room))] if look.report else []),
        *([_field("trimmed", _trim(look.trim, room))] if look.trim else []),
    )


_VIEWS: Final[Mapping[type, Callable[[Any], str]]] = {
    Rendered: rendered_html,
    Prompt: prompt_html,
    Msg: message_html,
    TrimReport: trim_html,
    Reply: reply_html,
    Look: look_html,
}


def _head(title: str, *more: str) -> Html:
    first = element("span", name(title), look="lp-title")
    return element("div", first, *(element("span", name(each), look="lp-note") for each in more), look="lp-head")


def _note(said: str) -> Html:
    return element("p", label(said), look="lp-note") if said else Html("")


def _item(said: object) -> Html:
    return element("li", label(said))


def _field(what: str, inside: Html) -> Html:
    return element("div", element("div", label(what), look="lp-title"), inside, look="lp-field")


def _system(given: str | None, room: Room) -> Html:
    if given is None:
        return _note("none given: it is the model's own, or else the default")
    return text(given, room) if given else _note("none at all")


def _slotted(given: Text, numbers: Mapping[str, int], room: Room) -> Html | None:
    segments = Rendered(given.parts, given.slots).segments
    return flow(runs_of(segments, numbers), room) if segments else None


def _tools(prompt: Prompt, room: Room) -> Html | None:
    names = prompt.tools.names
    if not names:
        return None
    items = (element("li", name(tool)) for tool in names[:_ROWS])
    return joined((element("ul", *items, look="lp-list"), folded("as JSON", json_view([*prompt.tools], room))))


def _legend(look: Look, numbers: Mapping[str, int]) -> Html:
    tokens = {slot.name: slot.tokens for slot in look.slots if slot.name in numbers}
    return legend(tokens, numbers, untrusted=not all(trusted for _, _, trusted in look.segments))


def _size(look: Look) -> str:
    return f"{look.total:,} {look.unit}" + (f" of {look.window:,}" if look.window else "")


def _slots(look: Look, room: Room) -> Html:
    whole = look.window or look.total
    rows = [(_cell(name(slot.name)), _number(slot.tokens), _cell(_bar(slot.tokens, whole))) for slot in look.slots]
    return _table(("slot", look.unit, "share of the window" if look.window else "share"), rows, room)


def _report(look: Look, room: Room) -> Html:
    entries = look.report
    rows = [
        (_cell(name(entry.where)), _cell(name(entry.kind)), _cell(label(entry.action)), _cell(text(entry.reason, room)))
        for entry in entries
    ]
    return _table(("where", "what", "done", "why"), rows, room)


def _trim(report: TrimReport, room: Room) -> Html:
    messages = report.messages
    most = max((each.before for each in messages), default=0)
    rows = [_trimmed(each, most) for each in messages]
    return joined(
        (
            element("p", label(report), look="lp-title"),
            _bar(report.after, max(report.before, report.after)),
            _table(("place", "role", "part", "tokens", "of them sent", "what became of it"), rows, room),
        )
    )


def _trimmed(each: Trimmed, most: int) -> tuple[Html, ...]:
    counts = f"{each.before:,}" if each.before == each.after else f"{each.before:,} → {each.after:,}"
    fate = f"{each.fate}: {each.reason}" if each.reason else each.fate
    return (
        _number(each.index),
        _cell(name(each.role)),
        _cell(name(each.slot)),
        element("td", label(counts), look="lp-cell lp-number"),
        _cell(_bar(each.after, most)),
        _cell(label(fate)),
    )


def _table(heads: Sequence[str], rows: Sequence[tuple[Html, ...]], room: Room) -> Html:
    """A table: its first rows, the rest of them folded, as far as there is room."""
    fits = rows[: max(room.signs // _ROW, 0)]
    room.signs -= len(fits) * _ROW
    first, more = fits[:_ROWS], fits[_ROWS:]
    parts = [_rows(heads, first)]
    if more:
        parts.append(folded(f"{len(more):,} more rows", _rows(heads, more)))
    if len(fits) < len(rows):
        parts.append(left_out(len(rows) - len(fits), "rows"))
    return joined(parts)


def _rows(heads: Sequence[str], rows: Sequence[tuple[Html, ...]]) -> Html:
    head = element("tr", *(element("th", label(each), look="lp-cell", scope="col") for each in heads), look="lp-row")
    body = (element("tr", *cells, look="lp-row") for cells in rows)
    return element("table", element("thead", head), element("tbody", *body), look="lp-table")


def _cell(inside: Html) -> Html:
    return element("td", inside, look="lp-cell")


def _number(count: int) -> Html:
    return element("td", label(f"{count:,}"), look="lp-cell lp-number")


def _bar(part: int, whole: int) -> Html:
    """A bar that is filled as far as a part goes; the numbers stand beside it."""
    percent = round(100 * min(part, whole) / whole) if whole > 0 else 0
    return element(
        "span", element("span", look="lp-part", style=f"width:{percent}%"), look="lp-bar", aria_hidden="true"
    )
