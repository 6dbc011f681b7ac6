"""Trying a template out: texts that write down what the template asks of them, and what it writes around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from lazyprompt.text.chat.traced import Origin, Traced, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.text.chat.jinja import ChatJinja
    from lazyprompt.text.chat.traced import Run

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

    def __getitem__(self, key: SupportsIndex | slice) -> Traced:
        self.log.add(("unknown", "a part of it by its place"))
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Traced]:
        self.log.add(("unknown", "its letters"))
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

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._noted(sep)
        return super().split(sep, maxsplit)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Traced]:  # type: ignore[override]  # as Traced's
        self._noted(sep)
        return super().rsplit(sep, maxsplit)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Traced:
        self._noted(old)
        return super().replace(old, new, count)

    def _noted(self, text: str | None) -> None:
        if text:
            self._holds(text)
        else:
            self.log.add(("unknown", "its words"))


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
