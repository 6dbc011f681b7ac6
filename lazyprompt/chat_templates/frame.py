"""The text that a template puts around a plain chat, found by trials: such chats are written without the template.

Most templates do with a plain chat no more than put markers around the texts. What stands around the words of short
chats says which. That this holds for any plain chat is proven by comparing other chats, and by texts that write down
what the template asks of them: a chat that holds any of what it looks for is for the template itself.
"""

from __future__ import annotations

import re
from functools import lru_cache, wraps
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from jinja2 import nodes

from lazyprompt.chat_templates.controls import fills_in, is_list, sequences_in
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.traced import Origin, Run, Traced, common_start, parts_of
from lazyprompt.errors import TemplateError
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.prompt import Prompt
from lazyprompt.rendering.family_layout import FamilyLayout
from lazyprompt.rendering.markers import Markers
from lazyprompt.safety.pieces import JOINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja

# Words that are in no template, of different lengths.
SYSTEM, QUESTION, ANSWER, NEXT, LAST = "Zuerst.", "quaere", "responde quidem", "iterum quaere", "Quid nunc?"
SPACED = "\n  {} \t\n\n"
ROLES = ("system", "user", "assistant")
_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")
_LAST_TOKEN = re.compile(r".*(?:>|\])\n*", re.DOTALL)
# What a template may do to the white space around a text.
Trim: TypeAlias = Literal["kept", "rstrip", "lstrip", "strip"]
_TRIMS: dict[Trim, Callable[[str], str]] = {"kept": str, "rstrip": str.rstrip, "lstrip": str.lstrip, "strip": str.strip}
ALL_KEPT: tuple[Trim, Trim, Trim] = ("kept", "kept", "kept")
# A template with larger numbers may treat a long chat, or a long text, in another way than those that are tried.
_COUNTED = 9


class _Asked(Traced):
    """A text that writes down what it is asked."""

    __slots__ = ("log",)
    log: set[tuple[str, str]]

    @classmethod
    def noting(cls, text: str, origin: Origin, log: set[tuple[str, str]]) -> _Asked:
        """Return a text that came from one place, and writes to this log."""
        made = cls.of(text, origin)
        made.log = log
        return made

    def like(self, text: str, runs: Iterable[Run]) -> Traced:
        made = _Asked(text, runs)
        made.log = self.log
        return made

    def lost(self, what: str) -> None:
        self.log.add(("unknown", what))

    def __getattribute__(self, name: str) -> object:
        if name in _UNFOLLOWED:
            self.lost(name)
        return super().__getattribute__(name)


def _noting(name: str) -> Callable[..., object]:
    """Return a method that writes down what it is asked, and does the same as before."""
    method = cast("Callable[..., object]", getattr(Traced, name))

    @wraps(method)
    def noted(text: _Asked, *args: object, **options: object) -> object:
        first = next(iter((*args, *options.values())), None)
        given = cast("tuple[object, ...]", first if isinstance(first, tuple) else (first,))
        texts = [one for one in given if isinstance(one, str)]
        if name in _LOOKING:
            text.log.update(("holds", one) for one in texts)
        # Of white space the probes have some around them; what is cut at a text is cut by what the log says.
        harmless = (name in _STRIPPING and not "".join(texts).strip()) or (name in _CUTTING and any(texts))
        if not harmless and name in _UNKNOWN:
            text.lost(_UNKNOWN[name])
        return method(text, *args, **options)

    return noted


_CUTTING, _STRIPPING = frozenset(("replace", "rsplit", "split")), frozenset(("lstrip", "rstrip"))
_LOOKING = _CUTTING | {"__contains__", "__eq__", "__ne__", "count", "endswith", "find", "startswith"}
# What a template asks of a text so that other texts might be treated in another way.
_UNKNOWN = {
    **dict.fromkeys(_CUTTING, "its words"),
    **dict.fromkeys(_STRIPPING, "signs around it"),
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), "whether it is less or more"),
    "__getitem__": "a part of it by its place",
    "__hash__": "which key it is",
    "__iter__": "its letters",
}
_NOTED = _LOOKING | _UNKNOWN.keys()
for _name in _NOTED:
    setattr(_Asked, _name, _noting(_name))
# The methods of a text that are not written down one by one.
_UNFOLLOWED = frozenset(name for name in dir(str) if not name.startswith("_")) - _NOTED - {"join", "strip"}


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
    """Text that stands around the texts of a plain chat.

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
            texts = _trimmed(texts, self.trim, has_system=has_system)
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


def _trimmed(texts: list[str], trims: Sequence[Trim], *, has_system: bool) -> list[str]:
    """Return the texts without the white space that the template takes away."""
    texts = texts.copy()
    places = slice(has_system), slice(has_system, None, 2), slice(has_system + 1, None, 2)
    for trim, place in zip(trims, places, strict=True):
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
    log: set[tuple[str, str]] = set()
    found = _frame(template, log)
    if isinstance(found, str):
        return found
    if unknown := sorted(what for kind, what in log if kind != "holds"):
        return f"it asks of a text what cannot be foreseen: {', '.join(unknown)}"
    # A text without any of what the template has looked for is treated as the words here were.
    looked_for = frozenset(text for _, text in log if text)
    # Where it is not simple what becomes of white space, texts without any around them may still do.
    for trim in (_trims(template, found), None):
        frame = found._replace(trim=trim, looked_for=looked_for)
        if all(_holds(frame, template, chat) for chat in _chats_for(frame)):
            return frame._replace(blank=all(_holds(frame, template, chat) for chat in _blank_chats_for(frame)))
    return "it treats texts in a way of its own"


def _tells_time(tree: nodes.Template) -> bool:
    return "strftime_now" in {node.name for node in tree.find_all(nodes.Name)}


def _counts(tree: nodes.Template) -> bool:
    """Return True if it has numbers by which a long chat or text could differ from those that are tried."""
    return any(type(node.value) is int and abs(node.value) > _COUNTED for node in tree.find_all(nodes.Const))


def _looks_up(tree: nodes.Template) -> bool:
    """Return True if a text is looked up in one of the template's own: no text of a chat can show that."""
    operands = [
        operand for node in tree.find_all(nodes.Compare) for operand in node.ops if operand.op in ("in", "notin")
    ]
    return any(isinstance(one.expr, nodes.Const) and isinstance(one.expr.value, str) for one in operands)


def _measures(tree: nodes.Template) -> bool:
    """Return True if it uses a length, and not only to see whether it is empty."""
    asked = {
        id(node.expr)
        for node in tree.find_all(nodes.Compare)
        if len(node.ops) == 1 and isinstance(node.ops[0].expr, nodes.Const) and node.ops[0].expr.value == 0
    }
    lengths = [node for node in tree.find_all(nodes.Filter) if node.name in ("length", "count")]
    return any(id(node) not in asked and not is_list(node.node) for node in lengths)


_ASKS: dict[str, Callable[[nodes.Template], bool]] = {
    "it writes the time": _tells_time,
    "it counts": _counts,
    "it looks a text up in another": _looks_up,
    "it asks how long a text is": _measures,
    "it fills in texts": fills_in,
}


def _around(
    template: ChatJinja, log: set[tuple[str, str]], *contents: tuple[str, str], prompted: bool = True
) -> list[str] | None:
    """Return the template's own text before, between and behind contents; None if it refuses them or leaves one out.

    Args:
        template: The template.
        log: The place to write down what the template asks of the texts.
        contents: The role and the text of each message.
        prompted: True to invite the assistant to speak.
    """
    chat = [
        {"role": role, "content": _Asked.noting(text, Origin(role, at), log)}
        for at, (role, text) in enumerate(contents)
    ]
    text = template.writes(chat, traced=True, add_generation_prompt=prompted)
    if text is None:
        return None
    between, found = [""], list[str]()
    for at, part in enumerate(parts_of(text)[0]):
        if at % 2 == 0:
            between[-1] += part
        elif part:
            found.append(part)
            between.append("")
    return between if found == [text for _, text in contents] else None


def _frame(template: ChatJinja, log: set[tuple[str, str]]) -> Frame | str:
    """Find what stands around the words of short chats, and write down what the template asks of them."""
    turns = (("user", QUESTION), ("assistant", ANSWER), ("user", NEXT))
    short, long = _around(template, log, turns[0]), _around(template, log, *turns)
    if short is None or long is None:
        return "it refuses a short chat, or does not show all of it"
    opening, asked, answered, end = long
    if short != [opening, end]:
        return "its turns do not stand for themselves"
    with_system = _around(template, log, ("system", SYSTEM), *turns)
    system = (with_system[0], with_system[1]) if with_system and with_system[2:] == [asked, answered, end] else None
    return Frame(opening, system, asked, answered, end, trim=None, blank=True, looked_for=frozenset())


def _trims(template: ChatJinja, frame: Frame) -> tuple[Trim, Trim, Trim]:
    """Find which white space is trimmed around the texts of each role."""
    texts = [SPACED.format(word) for word in (SYSTEM, QUESTION, ANSWER)]
    chat = [{"role": role, "content": text} for role, text in zip(ROLES, texts, strict=True)]
    chat.append({"role": "user", "content": LAST})
    written = template.writes(chat if frame.system else chat[1:], add_generation_prompt=True) or ""

    def done_to(text: str) -> Trim:
        for name, trim in _TRIMS.items():
            if trim(text) in written:
                return name
        return "strip"

    return done_to(texts[0]), done_to(texts[1]), done_to(texts[2])


def _chats_for(frame: Frame) -> Iterator[PlainChat]:
    """Plain chats to prove a frame with: of many lengths, spaced, in several scripts."""
    spaced = SPACED.format
    scripts = ("x", "y", "你好，世界", "您好！", "a\nb\n\nc", "1. one\n2. two", "a < b & 'c'", 'd > "e"')
    turns: Sequence[Sequence[str]] = (
        *((), (QUESTION, ANSWER), (QUESTION, ANSWER, NEXT, ANSWER), (*scripts, "ß" * 3000, "{}" * 2000)),
        tuple(f"Wort {number}" for number in range(48)),
        *([(spaced("a"), spaced("b")), ("\u3000c ", "\td", " e", "f ")] if frame.trim is not None else []),
    )
    systems = (None, SYSTEM, "x", "ö\nü\n" * 500 + "ä", *([spaced("s")] if frame.trim is not None else []))
    for texts in turns:
        for system in systems if frame.system else (None,):
            for last in (LAST, spaced(LAST)) if frame.trim is not None else (LAST,):
                yield _chat(system, *texts, last)


def _blank_chats_for(frame: Frame) -> Iterator[PlainChat]:
    """Plain chats with texts of nothing but white space.

    Args:
        frame: The frame that is to be proven.
    """
    for blank in ("", " ", "\n\n", "\u3000\t"):
        for system in (None, SYSTEM) if frame.system else (None,):
            for texts in ((blank,), (blank, ANSWER, NEXT), (QUESTION, blank, NEXT), (QUESTION, ANSWER, blank)):
                yield _chat(system, *texts)
        yield _chat(None, *[blank] * 5)


def _chat(system: str | None, *turns: str) -> PlainChat:
    texts = [*turns] if system is None else [system, *turns]
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


def markers_of(template: ChatJinja) -> Markers:
    """The markers of a template.

    Args:
        template: The template.

    Returns:
        Markers that lay out any plain chat as the template does.

    Raises:
        TemplateError: There are none that do; the message says why.
    """
    frame = frame_of(template)
    found = frame if isinstance(frame, str) else _markers(frame, template)
    if isinstance(found, Markers) and not isinstance(frame, str):
        for chat in _chats_for(frame._replace(trim=ALL_KEPT)):
            if template.writes(messages_of(chat), add_generation_prompt=True) != _laid_out(found, chat):
                found = f"they would lay out {chat.texts!r:.200} in another way"
                break
        else:
            return found
    raise TemplateError(
        f"no markers take the place of this chat template: {found}; render with ChatTemplate, which knows the template"
    )


def _laid_out(markers: Markers, chat: PlainChat) -> str:
    texts = chat.texts[int(chat.has_system) :]
    system = chat.texts[0] if chat.has_system else markers.system or ""
    history = History(tuple(texts[0:-1:2]), tuple(texts[1::2])) if len(texts) > 1 else EMPTY_HISTORY
    prompt = Prompt(system, input=texts[-1], history=history)
    return "".join(FamilyLayout(markers).lay(prompt).parts)


def _markers(frame: Frame, template: ChatJinja) -> Markers | str:
    """The markers of a frame: where one ends and the next begins, unprompted chats tell."""
    bare = _around(template, set(), ("user", QUESTION), prompted=False)
    ended = _around(template, set(), ("user", QUESTION), ("assistant", ANSWER), prompted=False)
    trim = frame.trim
    if bare is None or ended is None or trim is None or not {"kept", "strip"}.issuperset(trim):
        return "what becomes of white space, or of a chat that nobody goes on with, is not simple"
    eoh, eoa = common_start(frame.asked, frame.end, bare[1]), common_start(frame.answered, ended[2])
    soh = frame.answered.removeprefix(eoa)
    if not frame.opening.endswith(soh):
        return "its first turn begins in another way than the others"
    markers = Markers(
        soh=soh,
        eoh=eoh,
        soa=frame.asked.removeprefix(eoh),
        eoa=eoa,
        generation=frame.end.removeprefix(eoh),
        stop=(eoa.strip(),) if eoa.strip() else (),
        exact=True,
        trim=tuple(sorted(role for role, done in zip(ROLES, trim, strict=True) if done == "strip")),
        controls=tuple(sorted(sequences_in(template))),
        family="chat template",
    )
    return _with_system(markers, frame.opening.removesuffix(soh), frame.system)


def _with_system(markers: Markers, head: str, around: tuple[str, str] | None) -> Markers | str:
    """Markers with what stands around a system text, and before all else where there is none."""
    if around is None:
        # As Gemma's: a system text of ours would go before the first thing the user says.
        return markers.evolve(bos=head, system="", system_place="first_user", eos="\n\n")
    opening, closing = around
    if markers.soh and closing.endswith(markers.soh):
        return _in_turn_of_its_own(markers, head, opening, closing.removesuffix(markers.soh))
    if opening.startswith(head + markers.soh):
        sos = opening.removeprefix(head + markers.soh)
        return markers.evolve(bos=head, sos=sos, eos=closing, system_place="first_user", system="")
    return "its system text stands in a place of its own"


def _in_turn_of_its_own(markers: Markers, head: str, opening: str, eos: str) -> Markers | str:
    """Markers with those of a system turn."""
    if opening.startswith(head):
        # Nothing stands there without a system text.
        return markers.evolve(bos=head, sos=opening.removeprefix(head), eos=eos)
    if not (head.startswith(opening) and head.endswith(eos)):
        return "it begins in another way where there is a system text"
    if brought := head.removeprefix(opening).removesuffix(eos):
        return markers.evolve(sos=opening, eos=eos, system=brought)
    # There is a system turn also without a text: what the template writes into it by itself.
    token = _LAST_TOKEN.match(opening)
    sos = token[0] if token else ""
    if sos == opening:
        return "it writes a system turn with nothing in it"
    return markers.evolve(sos=sos, preamble=opening.removeprefix(sos), eos=eos)
