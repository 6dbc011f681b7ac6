"""The result of a formatter: the payload, and a report of all that is not in it as it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from lazyprompt.budget.report import TrimReport

Action: TypeAlias = Literal["left out", "changed", "moved", "added"]

# What a provider has no use for by its own rules, and empty messages: leaving them out loses no content.
_NO_LOSS = frozenset({"native", "thinking", "name", "signature", "cache", "message", "strict"})


@read_only
@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is not in the payload as it was given.

    Attributes:
        where: The place in the input, as ``messages[3].content[1]``.
        kind: The kind of block it is about, or ``message``, ``metadata`` (a key of a message), ``name``, ``id``,
            ``signature``, ``tools``, ``strict``, ``cache``, ``native`` (a message in the provider's own form),
            ``safety`` (control sequences).
        action: ``left out``, ``changed``, ``moved`` or ``added``.
        reason: Why, and what to do where something can be done.
        text: The text that was left out or changed, whole.
    """

    where: str
    kind: str
    action: Action
    reason: str
    text: str = ""

    @property
    def is_loss(self) -> bool:
        """True if content was lost that the provider would have used, had it been able to."""
        return self.action == "left out" and self.kind not in _NO_LOSS

    def __str__(self) -> str:
        return f"{self.where} ({self.kind}) {self.action}: {self.reason}"


Report: TypeAlias = tuple[Entry, ...]


class Payload(dict[str, Any]):
    """A provider's payload: a plain dict of JSON values, with a report of what it could not carry.

    Attributes:
        report: What was left out, changed, moved or added, place by place; empty where all is as it was given.
        trim: What a budget let go; ``None`` where there was none.
        neutralised: The neutralised control sequences in it, each with the sequence as it was given. An answer that
            quotes one has it as it was sent; modules restore it.
    """

    __slots__ = ("neutralised", "report", "trim")
    report: Report
    trim: TrimReport | None
    neutralised: tuple[tuple[str, str], ...]

    def __init__(
        self,
        fields: dict[str, Any],
        report: Report = (),
        trim: TrimReport | None = None,
        neutralised: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(fields)
        self.report, self.trim, self.neutralised = report, trim, neutralised

    def __reduce__(self) -> tuple[type[Payload], tuple[object, ...]]:
        return Payload, (dict(self), self.report, self.trim, self.neutralised)


class Notes(list[Entry]):
    """A report while it is being written."""

    __slots__ = ()

    def add(self, where: str, kind: str, action: Action, reason: str, text: str = "") -> None:
        """Add an entry."""
        self.append(Entry(where, kind, action, reason, text))

    def finished(self, *, strict: bool) -> Report:
        """Return the report.

        Args:
            strict: True if lost content is an error.

        Raises:
            FormatError: ``strict``, and content was lost.
        """
        if not self:
            return ()
        losses = [str(entry) for entry in self if entry.is_loss]
        if strict and losses:
            raise FormatError(f"strict=True, and the payload cannot carry all: {'; '.join(losses)}")
        return tuple(self)
