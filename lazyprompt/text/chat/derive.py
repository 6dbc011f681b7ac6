"""Markers out of a chat template: tried out on short chats, and proven on others.

Most templates do with a plain chat no more than put markers around what is said. What stands around the words of short
chats says which; that it holds for any plain chat is proven by comparing, and by a text that writes down what the
template asked of it: whether it begins with something, or holds it. A chat without any of that can be laid out with
markers, in a fraction of the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import nodes

from lazyprompt.errors import TemplateError
from lazyprompt.history import History
from lazyprompt.prompt import MARKERS
from lazyprompt.text.chat.controls import sequences_in
from lazyprompt.text.chat.dialect import parsed
from lazyprompt.text.chat.traced import Origin, Traced, parts_of
from lazyprompt.text.family_layout import FamilyLayout
from lazyprompt.text.layout import Fields
from lazyprompt.text.markers import Markers
from lazyprompt.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lazyprompt.text.chat.jinja import ChatJinja
    from lazyprompt.text.chat.traced import Run
    from lazyprompt.text.markers import SystemPlace

_NO_TOOLS = ToolSet.of(None)
_BEGUN = re.compile(r"<[^<>]*\Z")
_LAST_TOKEN = re.compile(r".*(?:>|\])\n*", re.DOTALL)
# Words that are in no template.
_WORDS = ("Zuerst.", "quaere", "responde", "iterum quaere", "iterum responde", "Quid nunc?")
_SPACED = "\n  {} \t\n\n"
_NOTHING = "what it asks of a text cannot be followed: {}"


class Plain(NamedTuple):
    """A plain chat: text of the system, the user and the assistant in turn, and the user's at its end.

    Attributes:
        system: The system text; None where there is none.
        questions: What the user said and was answered.
        answers: The answers.
        said: What the user says now.
    """

    system: str | None
    questions: Sequence[str]
    answers: Sequence[str]
    said: str

    @property
    def texts(self) -> Iterable[str]:
        """All its texts."""
        return chain(() if self.system is None else (self.system,), self.questions, self.answers, (self.said,))

    def messages(self) -> list[dict[str, Any]]:
        """The chat as messages."""
        turns = [] if self.system is None else [{"role": "system", "content": self.system}]
        for question, answer in zip(self.questions, self.answers, strict=True):
            turns += {"role": "user", "content": question}, {"role": "assistant", "content": answer}
        return [*turns, {"role": "user", "content": self.said}]


def plain_chat(messages: object) -> Plain | None:
    """A plain chat, where messages are one; what is blank is for the template to judge.

    Args:
        messages: The messages.
    """
    if not isinstance(messages, list | tuple):
        return None
    contents: list[str] = []
    for message in messages:
        if type(message) is not dict or len(message) != 2:  # noqa: PLR2004 - role and content
            return None
        content = message.get("content")
        if type(content) is not str or not content or content.isspace():
            return None
        contents.append(content)
    roles = [message.get("role") for message in messages]
    first = 1 if roles[:1] == ["system"] else 0
    turns = len(roles[first:]) // 2
    if roles[first:] != ["user", "assistant"] * turns + ["user"]:
        return None
    said = contents[first:]
    return Plain(contents[0] if first else None, said[0:-1:2], said[1::2], said[-1])


@dataclass(frozen=True, slots=True)
class Derived:
    """What takes the place of a template for plain chats.

    Args:
        markers: The markers.
        takes_system: Whether the template takes a system text at all.
        asked: What the template looks for in texts: a chat with any of it is for the template itself.
    """

    markers: Markers
    takes_system: bool
    asked: frozenset[str]

    def text_of(self, chat: Plain, joined: str) -> str | None:
        """A plain chat as the template would write it; None where it is for the template itself.

        Args:
            chat: The chat.
            joined: Its texts, joined.
        """
        if (chat.system is not None and not self.takes_system) or any(text in joined for text in self.asked):
            return None
        return _laid_out(FamilyLayout(self.markers), self.markers, chat)


def _laid_out(layout: FamilyLayout, markers: Markers, chat: Plain) -> str:
    system = (markers.system or "") if chat.system is None else chat.system
    history = History(tuple(chat.questions), tuple(chat.answers))
    fields = Fields(system, ("",), (MARKERS,), ("",), (MARKERS,), chat.said, history, _NO_TOOLS)
    return "".join(layout.lay(fields).parts)


class _Asked(Traced):
    """A text that writes down what it is asked."""

    __slots__ = ("log",)
    log: set[tuple[str, str]]

    @classmethod
    def noting(cls, text: str, origin: Origin, log: set[tuple[str, str]]) -> _Asked:
        """A text that came from one place, and writes to this log."""
        made = cls.of(text, origin)
        made.log = log
        return made

    def like(self, text: str, runs: Iterable[Run]) -> Traced:
        made = _Asked(text, runs)
        made.log = self.log
        return made

    def _holds(self, *texts: object) -> None:
        self.log.update(("holds", text) for text in texts if isinstance(text, str))

    def __contains__(self, text: object) -> bool:
        self._holds(text)
        return isinstance(text, str) and str.__contains__(self, text)

    def __eq__(self, other: object) -> bool:
        self._holds(other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getitem__(self, key: Any) -> Traced:
        self.log.add(("cannot be followed", "a part of it by its place"))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Traced]:
        self.log.add(("cannot be followed", "its letters"))
        return super().__iter__()

    def startswith(self, prefix: Any, *places: Any) -> bool:
        self._holds(*(prefix if isinstance(prefix, tuple) else (prefix,)))
        return str.startswith(self, prefix, *places)

    def endswith(self, suffix: Any, *places: Any) -> bool:
        self._holds(*(suffix if isinstance(suffix, tuple) else (suffix,)))
        return str.endswith(self, suffix, *places)

    def find(self, text: str, *places: Any) -> int:
        self._holds(text)
        return str.find(self, text, *places)

    def split(self, sep: str | None = None, maxsplit: Any = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._noted(sep)
        return super().split(sep, maxsplit)

    def rsplit(self, sep: str | None = None, maxsplit: Any = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._noted(sep)
        return super().rsplit(sep, maxsplit)

    def replace(self, old: str, new: str, count: Any = -1, /) -> Traced:
        self._noted(old)
        return super().replace(old, new, count)

    def _noted(self, text: str | None) -> None:
        if text:
            self._holds(text)
        else:
            self.log.add(("cannot be followed", "its words"))


class _Probe:
    """A template that is tried out on plain chats.

    Args:
        template: The template.
    """

    def __init__(self, template: ChatJinja) -> None:
        self.template = template
        self.log: set[tuple[str, str]] = set()

    def around(self, *contents: tuple[str, str], prompted: bool = True) -> list[str] | None:
        """What the template writes around contents: before the first, between two, behind the last.

        Args:
            contents: The role and the text of each message.
            prompted: Whether the assistant is invited to speak.

        Returns:
            One text more than contents; None where the template refuses them, or leaves one out.
        """
        chat = [
            {"role": role, "content": _Asked.noting(text, Origin(role, at), self.log)}
            for at, (role, text) in enumerate(contents)
        ]
        text = self.template.writes(chat, traced=True, add_generation_prompt=prompted)
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


@lru_cache(maxsize=128)
def derived(template: ChatJinja) -> Derived | str:
    """Markers that take the place of a template for plain chats, or why there are none.

    Args:
        template: The template.
    """
    if "strftime_now" in {node.name for node in parsed(template.text).find_all(nodes.Name)}:
        return "it writes the time"
    probe = _Probe(template)
    found = _markers(probe)
    if isinstance(found, str):
        return found
    markers, takes_system = found
    if odd := sorted(what for kind, what in probe.log if kind != "holds"):
        return _NOTHING.format(", ".join(odd))
    asked = frozenset(text for kind, text in probe.log if kind == "holds" and text)
    made = Derived(markers, takes_system, asked)
    layout = FamilyLayout(markers)
    for chat in _probes(takes_system=takes_system):
        if template.writes(chat.messages(), add_generation_prompt=True) != _laid_out(layout, markers, chat):
            return f"no markers say what it makes of {chat.messages()}"
    return made


def _markers(probe: _Probe) -> tuple[Markers, bool] | str:
    """The markers that stand around the words of short chats."""
    first, answer, second, *_ = (("user", _WORDS[1]), ("assistant", _WORDS[2]), ("user", _WORDS[3]))
    whole = probe.around(first, answer, second)
    alone = probe.around(first)
    bare = probe.around(first, prompted=False)
    ended = probe.around(first, answer, prompted=False)
    if whole is None or alone is None or bare is None or ended is None:
        return "it refuses a short chat, or does not show all of it"
    before, asked, answered, end = whole
    eoh, eoa = _common(asked, end, bare[1]), _common(answered, ended[2])
    soh = answered.removeprefix(eoa)
    if alone != [before, end] or not before.endswith(soh):
        return "its first turn begins in another way than the others"
    markers = Markers(
        soh=soh,
        eoh=eoh,
        soa=asked.removeprefix(eoh),
        eoa=eoa,
        generation=end.removeprefix(eoh),
        stop=(eoa.strip(),) if eoa.strip() else (),
        exact=True,
        trim=tuple(role for role in ("user", "assistant") if _trims(probe, role)),
        controls=tuple(sorted(sequences_in(probe.template))),
        family="chat template",
    )
    return _with_system(probe, markers, before.removesuffix(soh) if soh else before)


def _common(*texts: str) -> str:
    """What texts begin with alike, up to the end of a token."""
    return _BEGUN.sub("", commonprefix(texts))


def _trims(probe: _Probe, role: str) -> bool:
    """Whether the text of a role loses the white space around it; in part is none of it, and shows itself later."""
    words = [("user", _WORDS[1]), ("assistant", _WORDS[2]), ("user", _WORDS[3])]
    spaced = [(who, _SPACED.format(word) if who == role else word) for who, word in words]
    chat = [
        {"role": who, "content": text}
        for who, text in ([("system", _SPACED.format(_WORDS[0])), *words] if role == "system" else spaced)
    ]
    text = probe.template.writes(chat, add_generation_prompt=True)
    word = _WORDS[{"system": 0, "user": 1, "assistant": 2}[role]]
    return text is not None and _SPACED.format(word) not in text


def _with_system(probe: _Probe, markers: Markers, head: str) -> tuple[Markers, bool] | str:
    """Markers with what stands around a system text, and before all else where there is none."""
    system, first, answer, second = (
        ("system", _WORDS[0]), ("user", _WORDS[1]), ("assistant", _WORDS[2]), ("user", _WORDS[3])
    )  # fmt: skip
    short, long = probe.around(system, first), probe.around(system, first, answer, second)
    if short is None:
        # As Gemma's: a system text of ours would go before the first thing the user says.
        return markers.evolve(bos=head, system="", system_place="first_user", eos="\n\n"), False
    opening, closing = short[0], short[1]
    trim = (*markers.trim, *(("system",) if _trims(probe, "system") else ()))
    soh = markers.soh
    place: SystemPlace = "turn"
    if soh and closing.endswith(soh):
        eos = closing.removesuffix(soh)
    elif opening.startswith(head + soh) and soh:
        place, eos = "first_user" if long is not None else "last_user", closing
    else:
        return "its system text stands in a place of its own"
    if place != "turn":
        return markers.evolve(
            bos=head, sos=opening.removeprefix(head + soh), eos=eos, system_place=place, system="", trim=trim
        ), True
    if opening.startswith(head):
        # Nothing stands there without a system text.
        return markers.evolve(bos=head, sos=opening.removeprefix(head), eos=eos, trim=trim, system=""), True
    if not (head.startswith(opening) and head.endswith(eos)):
        return "it begins in another way where there is a system text"
    brought = head.removeprefix(opening).removesuffix(eos)
    if brought:
        return markers.evolve(sos=opening, eos=eos, system=brought, trim=trim), True
    # There is a system turn also without a text: what the template writes into it by itself.
    token = _LAST_TOKEN.match(opening)
    sos = token[0] if token else ""
    if sos == opening:
        return "it writes a system turn with nothing in it"
    return markers.evolve(sos=sos, preamble=opening.removeprefix(sos), eos=eos, trim=trim, system=""), True


def _probes(*, takes_system: bool) -> Iterator[Plain]:
    """Plain chats to prove markers with: of all lengths, spaced, in several scripts."""
    turns = [
        (),
        ((_WORDS[1], _WORDS[2]),),
        ((_WORDS[1], _WORDS[2]), (_WORDS[3], _WORDS[4])),
        (("x", "y"), ("你好，世界", "您好！"), ("a\nb\n\nc", "1. one\n2. two"), ("ß" * 3000, "{}" * 2000)),
        ((_SPACED.format("a"), _SPACED.format("b")), ("\u3000c ", "\td"), (" e", "f ")),
        tuple((f"Frage {number}", f"Antwort {number}") for number in range(24)),
    ]
    for pairs in turns:
        questions, answers = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for system in (None, _WORDS[0], _SPACED.format("s"), "x", "ö\nü\n" * 500) if takes_system else (None,):
            for said in (_WORDS[5], _SPACED.format("g")):
                yield Plain(system, questions, answers, said)


def markers_of(template: ChatJinja) -> Markers:
    """The markers of a template.

    Args:
        template: The template.

    Returns:
        Markers that lay out any plain chat as the template does.

    Raises:
        TemplateError: There are none that do; the message says why.
    """
    found = derived(template)
    if isinstance(found, str):
        raise TemplateError(
            f"no markers take the place of this chat template: {found}; use it itself, with ChatTemplate"
        )
    return found.markers
