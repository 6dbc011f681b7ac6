"""The report of a simulated cache: tokens and cost of each call, and the breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from lazyprompt.caching.rules import CacheRules

# Prices of a million tokens (``input``, ``read``, ``write``, ``write_1h`` for a longer lifetime), by model or for all.
Prices: TypeAlias = "Mapping[str, float] | Mapping[str, Mapping[str, float]]"

_MILLION = 1_000_000
_HOUR = 3600.0
_SUMS = ("hit_rate", "read", "written", "uncached", "cost", "cost_without")
_PRICES = ("input", "read", "write", "write_1h")


class CachedCall(NamedTuple):
    """The tokens of one call.

    Attributes:
        read: The tokens read from the cache.
        written: The tokens written to it.
        uncached: The other tokens.
        shared: The tokens shared with the compared earlier call: the index of the first differing token.
        compared: The index of that call; None if there is none.
        cost: The price of the input; None without prices.
        cost_without: The price without a cache.
        conversation: The id of its conversation, if known.
    """

    read: int
    written: int
    uncached: int
    shared: int = 0
    compared: int | None = None
    cost: float | None = None
    cost_without: float | None = None
    conversation: str | None = None

    @property
    def total(self) -> int:
        """All tokens of the call."""
        return self.read + self.written + self.uncached

    @property
    def hit_rate(self) -> float:
        """The part of the tokens that was read from the cache."""
        return self.read / (self.total or 1)


class Break(NamedTuple):
    """A place at which a call differs from an earlier one, so that cached tokens were lost.

    Attributes:
        call: The index of the call.
        message: The index of the message; None outside of the messages, as in the tools or in flat text.
        slot: The slot that changed, or ``tools``, ``system``, ``history``; None if a payload does not tell.
        line: The line within the message, the system text, the tool or the flat text, from 1.
        before: The text that stood there in the earlier call; secrets are masked.
        after: The text that stands there now.
        lost: The tokens that were cached and are computed again.
        advice: What to do about it.
    """

    call: int
    message: int | None
    slot: str | None
    line: int
    before: str
    after: str
    lost: int
    advice: str

    @property
    def where(self) -> str:
        """The slot; the message where no slot is known."""
        return self.slot or f"message {self.message}"


@read_only
@dataclass(frozen=True, slots=True)
class CacheReport:
    """Tokens, cost and breaks of a series of calls with a prompt cache.

    Attributes:
        rules: The rules that were simulated.
        calls: The tokens of each call.
        breaks: The breaks, in order.
        notes: What the rules do not tell, and what was assumed.
    """

    rules: CacheRules
    calls: tuple[CachedCall, ...]
    breaks: tuple[Break, ...]
    notes: tuple[str, ...] = ()

    @property
    def read(self) -> int:
        """The tokens read from the cache, of all calls."""
        return sum(call.read for call in self.calls)

    @property
    def written(self) -> int:
        """The tokens written to the cache, of all calls."""
        return sum(call.written for call in self.calls)

    @property
    def uncached(self) -> int:
        """The other tokens, of all calls."""
        return sum(call.uncached for call in self.calls)

    @property
    def hit_rate(self) -> float:
        """The part of all tokens that was read from the cache."""
        return self.read / ((self.read + self.written + self.uncached) or 1)

    @property
    def cost(self) -> float | None:
        """The price of all input; None without prices."""
        return self._sum("cost")

    @property
    def cost_without(self) -> float | None:
        """The price of all input without a cache; None without prices."""
        return self._sum("cost_without")

    def _sum(self, name: str) -> float | None:
        costs = [cast("float | None", getattr(call, name)) for call in self.calls]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) and costs else None

    @property
    def slots(self) -> dict[str, int]:
        """The tokens lost in each slot, the worst first; ``message N`` where no slot is known."""
        lost: dict[str, int] = {}
        for each in self.breaks:
            lost[each.where] = lost.get(each.where, 0) + each.lost
        return dict(sorted(lost.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "rules": {"name": self.rules.name, "source": self.rules.source, "date": self.rules.date},
            **{name: getattr(self, name) for name in _SUMS},
            "slots": self.slots,
            "breaks": [each._asdict() for each in self.breaks],
            "calls": [each._asdict() for each in self.calls],
            "notes": [*self.notes],
        }


class PriceList:
    """The prices of a model's input.

    Args:
        prices: The prices, as given.
        rules: The rules, which know how the prices of some providers depend on each other.

    Raises:
        FormatError: A price is unknown, or no number.
    """

    def __init__(self, prices: Prices, rules: CacheRules) -> None:
        given = cast("dict[str, Any]", prices)
        self._models: dict[str, dict[str, Any]] = {"": given} if "input" in given else given
        self._rules = rules
        for model, table in self._models.items():
            where = f"prices of {model}" if model else "prices"
            if not isinstance(cast("object", table), Mapping) or "input" not in table:
                raise FormatError(f"{where}: give the price of a million input tokens as 'input'")
            for name, price in table.items():
                if name not in _PRICES or isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
                    raise FormatError(f"{where}: {name}: {price!r}; give numbers for {', '.join(_PRICES)}")

    def cost(self, model: str | None, read: int, written: dict[float, int], uncached: int) -> tuple[float, float]:
        """Return the cost of a call, and its cost without a cache.

        Args:
            model: The model.
            read: The tokens read.
            written: The tokens written, by lifetime.
            uncached: The other tokens.

        Raises:
            FormatError: There are no prices of the model, or none of tokens read.
        """
        table = self._models.get(model or "", self._models.get(""))
        if table is None:
            raise FormatError(f"no prices of the model {model!r}; there are those of {', '.join(self._models)}")
        price, rules = table["input"], self._rules.of(model)
        of_read = rules.read_price_for(model)
        if "read" not in table and of_read is None:
            raise FormatError(f"prices of {model or 'calls'}: give 'read', which {rules.name} sets for each model")
        spent = uncached * price + read * table.get("read", price * (of_read or 0))
        for lifetime, tokens in written.items():
            name = "write_1h" if lifetime >= _HOUR and "write_1h" in table else "write"
            spent += tokens * table.get(name, price * rules.write_prices.get(lifetime, 1.0))
        total = read + sum(written.values()) + uncached
        return spent / _MILLION, total * price / _MILLION
