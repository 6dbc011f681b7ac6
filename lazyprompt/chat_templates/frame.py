"""What a template puts around a plain chat, found by trying it out: such chats are then laid out without it.

Most templates do with a plain chat no more than put markers around what is said. What stands around the words of short
chats says which. That this holds for any plain chat is proven by comparing other chats, and by texts that write down
what the template asks of them: a chat that holds any of what it looks for is for the template itself.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from jinja2 import nodes

from lazyprompt.chat_templates.controls import is_list
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.probe import ANSWER, LAST, NEXT, QUESTION, SPACED, SYSTEM, Probe
from lazyprompt.safety.policy import JOINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja

ROLES = ("system", "user", "assistant")
_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")
# What a template may do to the white space around a text.
Trim: TypeAlias = Literal["kept", "rstrip", "lstrip", "strip"]
_TRIMS: dict[Trim, Callable[[str], str]] = {"kept": str, "rstrip": str.rstrip, "lstrip": str.lstrip, "strip": str.strip}
ALL_KEPT: tuple[Trim, Trim, Trim] = ("kept", "kept", "kept")
# A template with larger numbers may treat a long chat, or a long text, in another way than those that are tried.
_COUNTED = 9


class PlainChat(NamedTuple):
    """A plain chat: texts of the user and the assistant in turn, the user's at its end, and of the system before them.

    Attributes:
        texts: All texts.
        has_system: Whether the first is the system's.
        joined: All texts as one, joined by what is part of no control sequence.
    """

    texts: list[str]
    has_system: bool
    joined: str


def plain_chat(messages: object) -> PlainChat | None:
    """A plain chat, where messages are one: each has a role and a text, and nothing else.

    Args:
        messages: The messages.
    """
    if type(messages) is not list:
        return None
    given = cast("list[dict[str, Any]]", messages)
    try:
        # All of them in C: this is where the time of a long chat goes.
        roles, texts = [*map(_ROLE, given)], [*map(_CONTENT, given)]
        joined, fields = JOINT.join(texts), sum(map(len, given))
    except (KeyError, TypeError):
        return None
    has_system = "system" in roles[:1]
    if fields != 2 * len(given) or roles != _roles_of(len(given), has_system):
        return None
    return PlainChat(texts, has_system, joined)


@lru_cache(maxsize=256)
def _roles_of(count: int, has_system: bool) -> list[str] | None:  # noqa: FBT001 - by place, which is quicker
    """The roles of a plain chat of so many messages; None where there is none."""
    turns = count - has_system
    return ["system"] * has_system + ["user", "assistant"] * (turns // 2) + ["user"] if turns % 2 else None


class Frame(NamedTuple):
    """What stands around the texts of a plain chat.

    Attributes:
        opening: Before the first of the user's, where there is no system text.
        system: Before a system text and behind it; None where the template takes none in a place of its own.
        asked: Behind each of the user's but the last.
        answered: Behind each of the assistant's.
        end: Behind the last.
        trim: What becomes of the white space around the texts of the system, the user and the assistant; None where it
            is not so simple, and only texts without any will do.
        blank: Whether what the user or the assistant says is treated as ever where it is nothing but white space.
        looked_for: What the template looks for in texts.
    """

    opening: str
    system: tuple[str, str] | None
    asked: str
    answered: str
    end: str
    trim: tuple[Trim, Trim, Trim] | None
    blank: bool
    looked_for: frozenset[str]

    def lay_out(self, chat: PlainChat) -> str | None:
        """A plain chat as the template writes it; None where it is for the template itself.

        Args:
            chat: The chat.
        """
        texts, has_system, joined = chat
        # To look for a sign takes a thirtieth of the time of looking for a text.
        if self.looked_for and any(text[0] in joined and text in joined for text in self.looked_for):
            return None
        if self.trim is None:
            if texts != [*map(str.strip, texts)]:
                return None
        elif self.trim != ALL_KEPT:
            texts = self._trimmed(texts, has_system, *self.trim)
        if not self.blank and not all(map(str.strip, texts)):
            return None
        opening, behind = self.opening, [self.asked, self.answered] * ((len(texts) - 1) // 2)
        if has_system:
            # A system text of nothing is none to most.
            if self.system is None or not texts[0].strip():
                return None
            opening = self.system[0]
            behind.insert(0, self.system[1])
        behind.append(self.end)
        pieces = [opening] * (2 * len(texts) + 1)
        pieces[1::2] = texts
        pieces[2::2] = behind
        return "".join(pieces)

    @staticmethod
    def _trimmed(texts: list[str], has_system: bool, system: Trim, user: Trim, assistant: Trim) -> list[str]:  # noqa: FBT001 - the chat's
        """The texts without the white space that the template takes away."""
        if system == user == assistant:
            return [*map(_TRIMS[user], texts)]
        texts = texts.copy()
        places = slice(has_system), slice(has_system, None, 2), slice(has_system + 1, None, 2)
        for trim, place in zip((system, user, assistant), places, strict=True):
            if trim != "kept":
                texts[place] = map(_TRIMS[trim], texts[place])
        return texts


@lru_cache(maxsize=128)
def frame_of(template: ChatJinja) -> Frame | str:
    """The frame of a template's plain chats, or why there is none.

    Args:
        template: The template.
    """
    tree = parsed(template.text)
    if why := next((why for why, asks in _ASKS.items() if asks(tree)), ""):
        return why
    probe = Probe(template)
    found = _around(probe)
    if isinstance(found, str):
        return found
    if probe.unknown:
        return f"it asks of a text what cannot be foreseen: {probe.unknown}"
    # Where it is not simple what becomes of white space, texts without any around them may still do.
    for trim in (_trims(template, found), None):
        frame = found._replace(trim=trim, looked_for=probe.looked_for)
        if all(_holds(frame, template, chat) for chat in chats_for(frame)):
            return frame._replace(blank=all(_holds(frame, template, chat) for chat in blank_chats_for(frame)))
    return "it treats texts in a way of its own"


def _tells_time(tree: nodes.Template) -> bool:
    return "strftime_now" in {node.name for node in tree.find_all(nodes.Name)}


def _counts(tree: nodes.Template) -> bool:
    """Whether it has numbers for which a long chat, or a long text, is another thing than those that are tried."""
    return any(type(node.value) is int and abs(node.value) > _COUNTED for node in tree.find_all(nodes.Const))


def _looks_up(tree: nodes.Template) -> bool:
    """Whether something is looked for in a text of the template's own: no text of a chat can write that down."""
    operands = [
        operand for node in tree.find_all(nodes.Compare) for operand in node.ops if operand.op in ("in", "notin")
    ]
    return any(isinstance(one.expr, nodes.Const) and isinstance(one.expr.value, str) for one in operands)


def _measures(tree: nodes.Template) -> bool:
    """Whether it asks how long something is, and not only whether it is empty."""
    asked = {
        id(node.expr)
        for node in tree.find_all(nodes.Compare)
        if len(node.ops) == 1 and isinstance(node.ops[0].expr, nodes.Const) and node.ops[0].expr.value == 0
    }
    lengths = [node for node in tree.find_all(nodes.Filter) if node.name in ("length", "count")]
    return any(id(node) not in asked and not is_list(node.node) for node in lengths)


def _fills_in(tree: nodes.Template) -> bool:
    """Whether it fills texts in with ``%``, for which a text with that sign is another thing."""
    operands = [node.right for node in tree.find_all(nodes.Mod)]
    return not all(isinstance(one, nodes.Const) and isinstance(one.value, int) for one in operands)


_ASKS: dict[str, Callable[[nodes.Template], bool]] = {
    "it writes the time": _tells_time,
    "it counts": _counts,
    "it looks a text up in another": _looks_up,
    "it asks how long a text is": _measures,
    "it fills in texts": _fills_in,
}


def _around(probe: Probe) -> Frame | str:
    """What stands around the words of short chats."""
    turns = (("user", QUESTION), ("assistant", ANSWER), ("user", NEXT))
    short, long = probe.around(turns[0]), probe.around(*turns)
    if short is None or long is None:
        return "it refuses a short chat, or does not show all of it"
    opening, asked, answered, end = long
    if short != [opening, end]:
        return "its turns do not stand for themselves"
    with_system = probe.around(("system", SYSTEM), *turns)
    system = (with_system[0], with_system[1]) if with_system and with_system[2:] == [asked, answered, end] else None
    return Frame(opening, system, asked, answered, end, trim=None, blank=True, looked_for=frozenset())


def _trims(template: ChatJinja, frame: Frame) -> tuple[Trim, Trim, Trim]:
    """What becomes of the white space around the texts of each role."""
    said = [SPACED.format(word) for word in (SYSTEM, QUESTION, ANSWER)]
    chat = [{"role": role, "content": text} for role, text in zip(ROLES, said, strict=True)]
    chat.append({"role": "user", "content": LAST})
    written = template.writes(chat if frame.system else chat[1:], add_generation_prompt=True) or ""

    def done_to(text: str) -> Trim:
        for name, trim in _TRIMS.items():
            if trim(text) in written:
                return name
        return "strip"

    return done_to(said[0]), done_to(said[1]), done_to(said[2])


def chats_for(frame: Frame) -> Iterator[PlainChat]:
    """Plain chats to prove a frame with: of many lengths, spaced, in several scripts."""
    spaced = SPACED.format
    turns: Sequence[Sequence[str]] = (
        (),
        (QUESTION, ANSWER),
        (QUESTION, ANSWER, NEXT, ANSWER),
        (
            "x",
            "y",
            "你好，世界",
            "您好！",
            "a\nb\n\nc",
            "1. one\n2. two",
            "a < b & 'c'",
            'd > "e"',
            "ß" * 3000,
            "{}" * 2000,
        ),
        tuple(f"Wort {number}" for number in range(48)),
        *([(spaced("a"), spaced("b")), ("\u3000c ", "\td", " e", "f ")] if frame.trim is not None else []),
    )
    systems = (None, SYSTEM, "x", "ö\nü\n" * 500 + "ä", *([spaced("s")] if frame.trim is not None else []))
    for said in turns:
        for system in systems if frame.system else (None,):
            for last in (LAST, spaced(LAST)) if frame.trim is not None else (LAST,):
                yield _chat(system, *said, last)


def blank_chats_for(frame: Frame) -> Iterator[PlainChat]:
    """Plain chats with texts of nothing but white space.

    Args:
        frame: The frame that is to be proven.
    """
    for blank in ("", " ", "\n\n", "\u3000\t"):
        for system in (None, SYSTEM) if frame.system else (None,):
            for said in ((blank,), (blank, ANSWER, NEXT), (QUESTION, blank, NEXT), (QUESTION, ANSWER, blank)):
                yield _chat(system, *said)
        yield _chat(None, *[blank] * 5)


def _chat(system: str | None, *said: str) -> PlainChat:
    texts = [*said] if system is None else [system, *said]
    return PlainChat(texts, system is not None, JOINT.join(texts))


def _holds(frame: Frame, template: ChatJinja, chat: PlainChat) -> bool:
    return template.writes(messages_of(chat), add_generation_prompt=True) == frame.lay_out(chat)


def messages_of(chat: PlainChat) -> list[Mapping[str, str]]:
    """A plain chat as messages.

    Args:
        chat: The chat.
    """
    roles = _roles_of(len(chat.texts), chat.has_system) or ()
    return [{"role": role, "content": text} for role, text in zip(roles, chat.texts, strict=True)]
