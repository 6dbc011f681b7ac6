"""How many tokens OpenAI's models make of a picture: a table by model, and the two rules it speaks of.

Source: OpenAI's guide "Images and vision" (developers.openai.com/api/docs/guides/images-vision), "Model sizing
behavior" and "Calculating costs", as it stood in summer 2026, before GPT-6. Models that it no longer lists are as its
older versions have them; GPT-6 is as measured (huggingface.co/datasets/JOHNISKING/image-token-cost).
"""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOX: Final = 2048
_SHORT: Final = 768
_TILE: Final = 512
_MOST_TILES: Final = 8
_PATCH: Final = 32
# Products like 1.2 x 2500 must not be rounded up for a digit in the fifteenth place.
_DUST: Final = 1e-9

Size: TypeAlias = "tuple[int, int] | None"


class Tiles(NamedTuple):
    """A picture is a base and so much for each tile of 512 px; at low detail it is the base."""

    base: int
    each: int

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """The tokens of a picture; of one whose size is not known, the most they can be."""
        if detail == "low":
            return self.base
        return self.base + self.each * (_MOST_TILES if size is None else tiles(*size))


class Limit(NamedTuple):
    """What a picture is scaled down to: its longer side in pixels, and the number of patches; 0 is no limit."""

    side: int = 0
    patches: int = 0


_OLD: Final = Limit(2048, 1_536)
_HIGH: Final = Limit(2048, 2_500)
_SMALL: Final = Limit(512)
# Also what a picture of unknown size counts where a model sets no limit: the largest that any model sets.
_LARGE: Final = Limit(6000, 10_000)
_BROAD: Final = Limit(2048, 6_144)


class Patches(NamedTuple):
    """A picture is the number of its patches of 32 px, times a factor; how large it may be depends on the detail."""

    factor: float
    high: Limit
    low: Limit | None = None
    original: Limit | None = None
    # Which of them it is where none is asked for.
    auto: str = "high"

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """The tokens of a picture; of one whose size is not known, the most they can be."""
        asked = detail if detail in {"low", "high", "original"} else self.auto
        limit = {"low": self.low, "original": self.original}.get(asked) or self.high
        most = limit.patches or min(_LARGE.patches, ceil((limit.side or _LARGE.side) / _PATCH) ** 2)
        return ceil((most if size is None else patches(*size, limit)) * self.factor - _DUST)


def tiles(width: int, height: int) -> int:
    """How many tiles of 512 px a picture has at high detail.

    It is scaled down into a square of 2048 px, then until its shorter side has 768 px; small ones are not enlarged. The
    first step rounds and the second rounds down: so says the guide, and so do the bills (2049x513 px are 8 tiles,
    2050x513 px are 4: community.openai.com/t/1281361).

    Args:
        width: Its pixels.
        height: Its pixels.

    Returns:
        The number of tiles, from 1 to 8.
    """
    width, height = _within(width, height, _BOX)
    short, long = sorted((width, height))
    if short > _SHORT:
        short, long = _SHORT, long * _SHORT // short
    return ceil(short / _TILE) * ceil(long / _TILE)


def patches(width: int, height: int, limit: Limit) -> int:
    """How many patches of 32 px a picture has, scaled down to a limit.

    Args:
        width: Its pixels.
        height: Its pixels.
        limit: The limit.

    Returns:
        The number of patches.
    """
    if limit.side:
        width, height = _within(width, height, limit.side)
    count = ceil(width / _PATCH) * ceil(height / _PATCH)
    if not limit.patches or count <= limit.patches:
        return count
    scale = sqrt(_PATCH * _PATCH * limit.patches / (width * height))
    # One side ends with a whole patch, so that the other's last one cannot go beyond the limit.
    sides = [side * scale / _PATCH for side in (width, height)]
    scale *= min(floor(side + _DUST) / side if side >= 1 else 1 for side in sides)
    width, height = (max(1, floor(side * scale + _DUST)) for side in (width, height))
    return min(limit.patches, ceil(width / _PATCH) * ceil(height / _PATCH))


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    """A picture scaled down until its longer side fits."""
    longer = max(width, height)
    if longer <= side:
        return width, height
    return max(1, round(width * side / longer)), max(1, round(height * side / longer))


_NEWEST: Final = Patches(1.2, Limit(0, 2_500), _SMALL, Limit(), auto="original")
_GPT_4O_MINI: Final = Tiles(2833, 5667)

# Models by name; the longest that a model's name begins with counts, so that dated versions are found too.
_RULES: Final[Mapping[str, Tiles | Patches]] = {
    "gpt-4": Tiles(85, 170),
    "gpt-4o": Tiles(85, 170),
    "gpt-4o-mini": _GPT_4O_MINI,
    "chatgpt-4o": Tiles(85, 170),
    "gpt-4.1": Tiles(85, 170),
    "gpt-4.1-mini": Patches(1.62, _BROAD),
    "gpt-4.1-nano": Patches(2.46, _OLD),
    "gpt-4.5": Tiles(85, 170),
    "o1": Tiles(75, 150),
    "o3": Tiles(75, 150),
    "o4-mini": Patches(1.72, _OLD),
    "computer-use-preview": Tiles(65, 129),
    "gpt-5": Tiles(70, 140),
    "gpt-5-mini": Patches(1.2, _OLD),
    "gpt-5-nano": Patches(1.5, _OLD),
    "gpt-5-codex-mini": Patches(1.62, _OLD),
    "gpt-5.1": Tiles(70, 140),
    "gpt-5.1-codex-mini": Patches(1.62, _OLD),
    "gpt-5.2": Patches(1.2, _BROAD),
    "gpt-5.3": Patches(1.2, _BROAD),
    "gpt-5.4": Patches(1.2, _HIGH, _BROAD, _LARGE),
    "gpt-5.5": Patches(1.2, _HIGH, _SMALL, _LARGE, auto="original"),
    "gpt-5.6": Patches(1.2, _HIGH, _SMALL, Limit(65_535), auto="original"),
    "gpt-5.": _NEWEST,
    "gpt-6": _NEWEST,
    # The models of the older vocabulary that see pictures are GPT-4's.
    "cl100k_base": Tiles(85, 170),
}
# GPT-4o mini is left out: what it counts beyond GPT-4o is for the bill alone (pypi.org/project/pictoken), and no other
# model counts so.
_KNOWN: Final = tuple(rule for rule in dict.fromkeys(_RULES.values()) if rule is not _GPT_4O_MINI)


def rule_for(model: str) -> Tiles | Patches | None:
    """The rule for a model.

    Args:
        model: The name of a model, dated and fine-tuned ones too, or of an encoding.

    Returns:
        The rule, or None where the model is not known.
    """
    name = model.removeprefix("ft:")
    found = max((known for known in _RULES if name.startswith(known)), key=len, default=None)
    return None if found is None else _RULES[found]


def picture_tokens(rule: Tiles | Patches | None, size: Size, detail: str = "auto") -> int:
    """How many tokens a picture is.

    Args:
        rule: What :func:`rule_for` returned.
        size: Its width and height; None where they are not known.
        detail: ``low``, ``high``, ``original`` or ``auto``.

    Returns:
        The tokens; for a model that is not known, the most that any known one makes of it.
    """
    return rule.tokens(size, detail) if rule else max(known.tokens(size, detail) for known in _KNOWN)
