"""The payload that a formatter returns, with a report on changed and dropped content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.budget.report import TrimReport

Action: TypeAlias = Literal["left out", "changed", "moved", "added"]

# The kinds of report entries that don't count as losses: content that the provider's rules exclude, and empty messages.
_NO_LOSS = frozenset({"native", "thinking", "name", "signature", "cache", "message", "strict"})


@read_only
@dataclass(frozen=True, slots=True)
class Entry:
    """A difference between the input and the payload.

    Attributes:
        where: The location in the input, such as ``messages[3].content[1]``.
        kind: The kind of block, or one of ``message``, ``metadata``, ``name``, ``id``, ``signature``, ``tools``,
            ``strict``, ``cache``, ``native`` and ``safety``. The kind ``metadata`` refers to a message key, ``native``
            to a message, model or option of a single provider, and ``safety`` to control sequences.
        action: The kind of change: ``left out``, ``changed``, ``moved`` or ``added``.
        reason: The reason for the change, and a fix if one is known.
        text: The full text that was left out or changed.
    """

    where: str
    kind: str
    action: Action
    reason: str
    text: str = ""

    @property
    def is_loss(self) -> bool:
        """True if the entry reports lost content; content that the provider's rules exclude doesn't count as lost."""
        return self.action == "left out" and self.kind not in _NO_LOSS

    def __str__(self) -> str:
        return f"{self.where} ({self.kind}) {self.action}: {self.reason}"


class Report(tuple[Entry, ...]):
    """The entries of a payload's report, in the order of the input; empty if all content is sent unchanged."""

    __slots__ = ()

    @property
    def losses(self) -> tuple[Entry, ...]:
        """The entries for lost content."""
        return tuple(entry for entry in self if entry.is_loss)

    def raise_for_losses(self) -> None:
        """Raise an error if content was lost, as :class:`ChatFormatter` does with ``strict=True``.

        Raises:
            FormatError: Content was lost; the message lists each loss.
        """
        if losses := self.losses:
            raise FormatError(f"the payload would lose content: {'; '.join(map(str, losses))}")


# A report, or entries that become part of a report.
Entries: TypeAlias = "tuple[Entry, ...]"


class Payload(dict[str, Any]):
    """A provider's payload: a dict of JSON values, with a report as an attribute.

    Attributes:
        report: The content that was left out, changed, moved or added; ``report.raise_for_losses()`` makes lost content
            an error.
        trim: The budget's report on dropped content, or ``None`` without a budget.
        neutralised: Pairs of a neutralised control sequence and its original. If a reply quotes a neutralised sequence,
            ``OnlineChatModule`` and ``TrainableModule`` restore the original.
    """

    __slots__ = ("neutralised", "report", "trim")
    report: Report
    trim: TrimReport | None
    neutralised: tuple[tuple[str, str], ...]

    def __init__(
        self,
        fields: dict[str, Any],
        report: Iterable[Entry] = (),
        trim: TrimReport | None = None,
        neutralised: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(fields)
        self.report = Report(report)
        self.trim, self.neutralised = trim, neutralised

    def __reduce__(self) -> tuple[type[Payload], tuple[object, ...]]:
        return Payload, (dict(self), self.report, self.trim, self.neutralised)


class Notes(list[Entry]):
    """The report entries collected while messages are formatted."""

    __slots__ = ()

    def add(self, where: str, kind: str, action: Action, reason: str, text: str = "") -> None:
        """Add an entry to the report."""
        self.append(Entry(where, kind, action, reason, text))
