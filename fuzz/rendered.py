"""Messages read out of rendered text, as a program does that has no values in it to tell apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lazyprompt.files.properties import Thread
from lazyprompt.files.roles import sections
from lazyprompt.files.turns import messages_of, steps_of
from lazyprompt.messages.history import messages_from
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg

_MARK = re.compile(r"__PROMPTY_THREAD_[0-9a-f]{8}_(\w+?)__(?!\w)")


def messages_from_text(rendered: str, threads: Mapping[str, HistoryLike] | None = None) -> list[Msg]:
    """Return the messages of a filled template.

    Args:
        rendered: Its text, with lines that name roles. Text before the first is the system's.
        threads: The messages of each thread, by the name of its input; they take the place of the thread's mark,
            ``__PROMPTY_THREAD_`` with eight hexadecimal digits, ``_``, the name, and ``__``. Any other mark is text.
    """
    rendered = rendered.replace("\r\n", "\n").replace("\r", "\n")
    given = {name: Thread(name, messages_from(thread)) for name, thread in (threads or {}).items()}
    parts: list[str] = []
    end = 0
    for mark in _MARK.finditer(rendered):
        thread = given.get(mark[1])
        if thread is not None:
            parts += (rendered[end : mark.start()], Value("", mark[1], thread))
            end = mark.end()
    parts.append(rendered[end:])
    return messages_of([step for section in sections(parts) for step in steps_of(section)])
