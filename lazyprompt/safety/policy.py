r"""The treatment of control sequences in untrusted text: neutralised, refused or left.

A control sequence is any text that a model or its engine reads as structure: a marker of its family, a special token, a
thinking or tool tag, or a section header of the developer's own template. In trusted text the developer meant it. In
untrusted text it would forge a turn, a role or a tool. Only a sequence with untrusted text is changed, even if it
begins in the template and ends in a value.

:func:`guard` finds the sequences, refuses or neutralises them, and repeats this until there are none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from lazyprompt.errors import SafetyError, did_you_mean
from lazyprompt.safety.neutralised import neutralise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.safety.find import ControlMatch, Controls


Safety: TypeAlias = Literal["neutralize", "raise", "off"]
SAFETIES: tuple[Safety, ...] = get_args(Safety)


class Policy(NamedTuple):
    """Treatment of control sequences in untrusted text.

    Attributes:
        default: The treatment in slots without one of their own.
        slots: The treatment in the text of single slots, by name.
        asked: True if the caller chose the policy. Payloads for hosted providers are searched only then.
    """

    default: Safety = "neutralize"
    slots: tuple[tuple[str, Safety], ...] = ()
    asked: bool = False

    @property
    def looks(self) -> bool:
        """True if text is searched for control sequences."""
        return self.default != "off" or any(safety != "off" for _, safety in self.slots)

    def of(self, slot: str) -> Safety:
        """Return the treatment of control sequences in the text of a slot."""
        return dict(self.slots).get(slot, self.default) if self.slots else self.default

    def of_payload(self, *, tokenizes: bool) -> Policy:
        """Return the treatment of control sequences in a payload.

        Args:
            tokenizes: True if the server tokenizes texts with the model's chat template.
        """
        return self if self.asked or tokenizes else OFF


NEUTRALIZE, OFF = Policy(), Policy("off")

# Tags that chat templates and engines of many families read as structure, in addition to the family's markers.
COMMON_TAGS = frozenset(
    f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "tools") for slash in ("", "/")
)

# The tags of a thought at the start of an answer; a generation prompt may have opened the thought. Chat templates cut
# off old thoughts at these tags.
LEADING_THOUGHT = re.compile(r"\s*+(<think>)?(?:(?!<think>).)*?(</think>)", re.DOTALL)

_HEADER = re.compile(r"^[ \t]*+(#{2,}+[ \t]++\S(?:.*[^ \t\n])?)", re.MULTILINE)

# Overlapping sequences need a second pass; only crafted input needs more.
_MOST_PASSES = 100


def guard(
    controls: Controls, parts: Sequence[str], slots: Sequence[str], policy: Policy, where: Sequence[str] | None = None
) -> list[str]:
    """Return the parts with every control sequence in untrusted text neutralised.

    Args:
        controls: The control sequences.
        parts: Trusted and untrusted text in turn.
        slots: The slot of each part.
        policy: The treatment of the sequences.
        where: The name of each part in errors; None means its slot.

    Returns:
        New parts of the same number.

    Raises:
        SafetyError: A sequence is refused, or cannot be neutralised.
    """
    guarded, names = parts, where or slots
    matches: list[ControlMatch] = []
    for number in range(_MOST_PASSES):
        matches = controls.find(guarded, lambda at: policy.of(slots[at]) == "off")
        if not matches:
            return [*guarded]
        # A text has at most one sequence per character. There are more only if a run of backslashes is a sequence: then
        # each pass creates more sequences than it breaks, and a hundred passes would fill the memory.
        if number and len(matches) > sum(map(len, parts)):
            break
        for match in matches:
            if policy.of(slots[match.part]) == "raise":
                raise SafetyError(
                    f"{names[match.part]!r} holds the control sequence {match.text!r}; "
                    'take it out, or use safety="neutralize" to make it harmless'
                )
        guarded = neutralise(guarded, matches)
    raise SafetyError(
        f"{names[matches[0].part]!r} holds control sequences that cannot be made harmless, such as {matches[0].text!r}"
    )


def headers_in(text: str) -> list[str]:
    """Return the section headers (``## …`` and deeper) of a trusted text, which are structure there."""
    return _HEADER.findall(text)


def policy_of(safety: str, slots: Mapping[str, str] | None = None) -> Policy:
    """Return the policy that a caller asked for.

    Args:
        safety: The treatment of control sequences: ``neutralize``, ``raise`` or ``off``.
        slots: The treatment in the text of single slots, by name.

    Raises:
        SafetyError: A treatment is unknown.
    """
    return Policy(_checked(safety), tuple((name, _checked(each)) for name, each in (slots or {}).items()), asked=True)


def _checked(safety: str) -> Safety:
    for known in SAFETIES:
        if safety == known:
            return known
    raise SafetyError(
        f"safety {safety!r} is unknown; known are {', '.join(SAFETIES)}{did_you_mean(str(safety), SAFETIES)}"
    )
