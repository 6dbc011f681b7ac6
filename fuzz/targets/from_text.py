"""Messages out of text that another program rendered: what is not a thread's mark is text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.rendered import messages_from_text
from fuzz.target import Target
from lazyprompt.files.roles import ROLES, boundaries
from lazyprompt.messages.history import messages_from

if TYPE_CHECKING:
    from fuzz.chance import Chance

_MARK = "__PROMPTY_THREAD_0123abcd_a__"


def _run(chance: Chance) -> None:
    text = chance.text()
    thread = [(chance.hostile(), chance.hostile()) for _ in range(chance.number(3))]
    found = messages_from_text(text, {"a": thread})
    within = messages_from(thread)
    plain = messages_from_text(text)
    if "__PROMPTY_THREAD_" not in text:
        require(found == plain, "a thread that the text does not name is in it")
        # Each begins in a line that names a role, but for the one before the first.
        lines = text.replace("\r\n", "\n").replace("\r", "\n")
        require(len(plain) <= 1 + len([*boundaries(lines)]), "a message begins where no line names a role")
    require(all(each.role in ROLES for each in plain), "a message has a role that is none")
    marked = messages_from_text(f"system:\na\n{_MARK}\nuser:\nb", {"a": thread})
    require(marked[1:-1] == within, "a thread was changed")
    require([each.text for each in (marked[0], marked[-1])] == ["a", "b"], "a thread changed what is around it")
    # A conversation of texts that name no role is read back as it was.
    texts = [chance.text().replace("\r", "").strip() for _ in range(2)]
    if not any([*boundaries(f"{each}\n")] for each in texts) and not any(
        sign in each for each in texts for sign in ("__PROMPTY_THREAD_", "```", "~~~", "\ufdd0")
    ):
        back = messages_from_text("user:\n" + texts[0] + "\n\nassistant:\n" + texts[1])
        require(
            [(each.role, each.text) for each in back] == [("user", texts[0]), ("assistant", texts[1])], "not as it was"
        )


FROM_TEXT = Target(
    "from-text",
    _run,
    (
        *("system:\n", "user:\n", "assistant:\n", "# user:\n", 'user[name="Ada"]:\n', "```\n", "~~~\n", _MARK),
        *("__PROMPTY_THREAD_", "_a__", "_b__", "\r\n", "\r", "\n", "\ufdd0", "[a=1]", ":"),
    ),
)
