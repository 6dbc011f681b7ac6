"""Trying a template out: texts that write down what the template asks of them, and what it writes around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from lazyprompt.chat_templates.traced import Origin, Traced, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.chat_templates.traced import Run

# Words that are in no template, of different lengths.
SYSTEM, QUESTION, ANSWER, NEXT, LAST = "Zuerst.", "quaere", "responde quidem", "iterum quaere", "Quid nunc?"
SPACED = "\n  {} \t\n\n"


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

    def lost(self, what: str) -> None:
        self.log.add(("unknown", what))

    def _holds(self, *texts: object) -> None:
        self.log.update(("holds", text) for text in texts if isinstance(text, str))

    def __getattribute__(self, name: str) -> object:
        if name in _UNFOLLOWED:
            self.lost(name)
        return super().__getattribute__(name)

    def __contains__(self, text: object) -> bool:
        self._holds(text)
        return isinstance(text, str) and str.__contains__(self, text)

    def __eq__(self, other: object) -> bool:
        self._holds(other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self.lost("which key it is")
        return str.__hash__(self)

    def __lt__(self, other: str) -> bool:
        self.lost("whether it is less")
        return str.__lt__(self, other)

    def __gt__(self, other: str) -> bool:
        self.lost("whether it is more")
        return str.__gt__(self, other)

    def __le__(self, other: str) -> bool:
        self.lost("whether it is less")
        return str.__le__(self, other)

    def __ge__(self, other: str) -> bool:
        self.lost("whether it is more")
        return str.__ge__(self, other)

    def __getitem__(self, key: SupportsIndex | slice) -> Traced:
        self.lost("a part of it by its place")
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Traced]:
        self.lost("its letters")
        return super().__iter__()

    def startswith(self, prefix: str | tuple[str, ...], *places: SupportsIndex | None) -> bool:
        self._holds(*(prefix if isinstance(prefix, tuple) else (prefix,)))
        return str.startswith(self, prefix, *places)

    def endswith(self, suffix: str | tuple[str, ...], *places: SupportsIndex | None) -> bool:
        self._holds(*(suffix if isinstance(suffix, tuple) else (suffix,)))
        return str.endswith(self, suffix, *places)

    def find(self, text: str, *places: SupportsIndex | None) -> int:
        self._holds(text)
        return str.find(self, text, *places)

    def count(self, text: str, *places: SupportsIndex | None) -> int:
        self._holds(text)
        return str.count(self, text, *places)

    def lstrip(self, chars: str | None = None, /) -> Traced:
        self._stripped(chars)
        return super().lstrip(chars)

    def rstrip(self, chars: str | None = None, /) -> Traced:
        self._stripped(chars)
        return super().rstrip(chars)

    def _stripped(self, chars: str | None) -> None:
        # Of white space the probes have some around them.
        if chars is not None and not chars.isspace():
            self.lost("signs around it")

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._cut(sep)
        return super().split(sep, maxsplit)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._cut(sep)
        return super().rsplit(sep, maxsplit)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        self._cut(old)
        return super().replace(old, new, count)

    def _cut(self, text: str | None) -> None:
        if text:
            self._holds(text)
        else:
            self.lost("its words")


# The methods of a text that are not written down one by one.
_UNFOLLOWED = frozenset(name for name in dir(str) if not name.startswith("_")) - {
    *("count", "endswith", "find", "join", "lstrip", "replace", "rsplit", "rstrip", "split", "startswith", "strip")
}


class Probe:
    """A template that is tried out on plain chats.

    Args:
        template: The template.
    """

    def __init__(self, template: ChatJinja) -> None:
        self.template = template
        self._log: set[tuple[str, str]] = set()

    @property
    def looked_for(self) -> frozenset[str]:
        """What the template has looked for in texts; a text without any of it is treated as the words here were."""
        return frozenset(text for kind, text in self._log if kind == "holds" and text)

    @property
    def unknown(self) -> str:
        """What else it has asked of texts, so that other texts might be treated in another way."""
        return ", ".join(sorted(what for kind, what in self._log if kind != "holds"))

    def around(self, *contents: tuple[str, str], prompted: bool = True) -> list[str] | None:
        """What the template writes around contents: before the first, between two, behind the last.

        Args:
            contents: The role and the text of each message.
            prompted: Whether the assistant is invited to speak.

        Returns:
            One text more than contents; None where the template refuses them, or leaves one out.
        """
        chat = [
            {"role": role, "content": _Asked.noting(text, Origin(role, at), self._log)}
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
