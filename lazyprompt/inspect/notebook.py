"""Lists of messages in a notebook: ``%load_ext lazyprompt.inspect.notebook`` shows them as conversations.

A prompt, a message, a report and an answer show themselves in any notebook; a list is Python's own, so that it has to
be asked for. Any other list is shown as before. IPython hands over what is needed, and is imported nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, cast

from lazyprompt._base.roles import ROLES
from lazyprompt.errors import HistoryError
from lazyprompt.inspect.html import messages_html
from lazyprompt.messages.msg import Msg

Shows: TypeAlias = Callable[[object], str | None]
"""What makes HTML of a value, or None where it has none to make."""


class Formatter(Protocol):
    """IPython's formatter of HTML."""

    def for_type(self, typ: type, func: Shows | None = None, /) -> Shows | None:
        """Set what shows a type, and give what showed it before."""
        ...

    def pop(self, typ: type, default: None, /) -> Shows | None:
        """Take away what shows a type, and give it."""
        ...


class Formatters(Protocol):
    """IPython's formatters, by their MIME types."""

    @property
    def formatters(self) -> Mapping[str, Formatter]:
        """The formatters."""
        ...


class Shell(Protocol):
    """Part of IPython's shell that is used."""

    @property
    def display_formatter(self) -> Formatters:
        """Formatters of values."""
        ...


_TYPES: Final = (list, tuple)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """Shows lists of messages, and leaves all others to what showed them before."""

    before: Shows | None

    def __call__(self, given: object) -> str | None:
        items = cast("list[object] | tuple[object, ...]", given)
        if items and all(map(_is_message, items)):
            try:
                return messages_html(cast("list[Msg]", [*items]))
            except HistoryError:
                # They have roles, and are no messages for all that: a list like any other.
                pass
        return self.before(given) if self.before else None


def load_ipython_extension(ipython: Shell) -> None:
    """Show lists and tuples of messages as conversations: :class:`lazyprompt.Msg`, or dicts of the OpenAI form.

    Args:
        ipython: The shell, which IPython gives.
    """
    html = ipython.display_formatter.formatters["text/html"]
    for each in _TYPES:
        html.for_type(each, _Conversations(html.for_type(each)))


def unload_ipython_extension(ipython: Shell) -> None:
    """Show them as before.

    Args:
        ipython: The shell, which IPython gives.
    """
    html = ipython.display_formatter.formatters["text/html"]
    for each in _TYPES:
        ours = html.pop(each, None)
        before = ours.before if isinstance(ours, _Conversations) else ours
        if before is not None:
            html.for_type(each, before)


def _is_message(given: object) -> bool:
    if not isinstance(given, dict):
        return isinstance(given, Msg)
    fields = cast("dict[object, object]", given)
    return fields.get("role") in ROLES and ("content" in fields or "tool_calls" in fields)
