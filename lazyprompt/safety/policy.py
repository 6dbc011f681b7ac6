r"""The policy for control sequences in untrusted text: neutralise, reject or ignore them.

A control sequence is any text that a model or its engine interprets as structure. Examples are the family's markers,
special tokens, thinking and tool tags, and section headers in the developer's own template. In trusted text, control
sequences are intentional. In untrusted text, control sequences could forge a turn, a role or a tool. Only sequences
that contain untrusted text are changed, including a sequence that begins in the template and ends in a value.

:func:`guard` finds control sequences, rejects or neutralises them, and repeats the search until none are left.
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
    """A policy for control sequences in untrusted text.

    Attributes:
        default: The ``safety`` value for all slots that are not listed in ``slots``.
        slots: The ``safety`` values for individual slots, by slot name.
        asked: True if the caller chose the policy; False for the default, which doesn't apply to hosted providers.
    """

    default: Safety = "neutralize"
    slots: tuple[tuple[str, Safety], ...] = ()
    asked: bool = False

    @property
    def looks(self) -> bool:
        """True if text is searched for control sequences."""
        return self.default != "off" or any(safety != "off" for _, safety in self.slots)

    def of(self, slot: str) -> Safety:
        """Return the ``safety`` value for the text of a slot."""
        return dict(self.slots).get(slot, self.default) if self.slots else self.default

    def of_payload(self, *, tokenizes: bool) -> Policy:
        """Return the policy for a provider's payload.

        Args:
            tokenizes: True if the server renders the messages with the model's chat template and tokenizes the rendered
                text.
        """
        return self if self.asked or tokenizes else OFF


NEUTRALIZE, OFF = Policy(), Policy("off")

# Tags that many chat templates and engines interpret as structure, regardless of the model family.
COMMON_TAGS = frozenset(
    f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "tools") for slash in ("", "/")
)

# Matches the thinking tags at the start of a reply. The opening tag may be missing if the generation prompt has it.
# Thinking tags in replies are trusted, because chat templates need them to remove old reasoning.
LEADING_THOUGHT = re.compile(r"\s*+(<think>)?(?:(?!<think>).)*?(</think>)", re.DOTALL)

_HEADER = re.compile(r"^[ \t]*+(#{2,}+[ \t]++\S(?:.*[^ \t\n])?)", re.MULTILINE)

# The maximum number of neutralising passes. Normal input needs one pass, or two if control sequences overlap.
_MOST_PASSES = 100


def guard(
    controls: Controls, parts: Sequence[str], slots: Sequence[str], policy: Policy, where: Sequence[str] | None = None
) -> list[str]:
    """Return the parts with every control sequence in untrusted text neutralised.

    Args:
        controls: The control sequences to search for.
        parts: The text as alternating trusted and untrusted parts.
        slots: The slot name of each part.
        policy: The policy for control sequences.
        where: The names that error messages use for the entries of ``parts``; None to use the slot names.

    Returns:
        A list with a new text for each part.

    Raises:
        SafetyError: The policy is ``raise`` and a control sequence was found, or a control sequence can't be
            neutralised.
    """
    guarded, names = parts, where or slots
    matches: list[ControlMatch] = []
    for _ in range(_MOST_PASSES):
        matches = controls.find(guarded, lambda at: policy.of(slots[at]) == "off")
        if not matches:
            return [*guarded]
        # If a run of backslashes is a control sequence, each pass creates more sequences than it neutralises.
        # Stop when the sequences outnumber the original text's characters, because further passes would exhaust memory.
        if len(matches) > sum(map(len, parts)):
            break
        for match in matches:
            if policy.of(slots[match.part]) == "raise":
                raise SafetyError(
                    f"{names[match.part]!r} contains the control sequence {match.text!r}; "
                    'remove it, or use safety="neutralize" to make it harmless'
                )
        guarded = neutralise(guarded, matches)
    raise SafetyError(
        f"{names[matches[0].part]!r} contains control sequences that can't be neutralised, such as {matches[0].text!r}"
    )


def headers_in(text: str) -> list[str]:
    """Return the section headers (``## …`` and deeper) in a trusted text, which count as structure."""
    return _HEADER.findall(text)


def policy_of(safety: str, slots: Mapping[str, str] | None = None) -> Policy:
    """Return the policy for the caller's ``safety`` settings.

    Args:
        safety: The default policy, which is ``neutralize``, ``raise`` or ``off``.
        slots: The ``safety`` values for individual slots, by slot name.

    Raises:
        SafetyError: A ``safety`` value is unknown.
    """
    return Policy(_checked(safety), tuple((name, _checked(each)) for name, each in (slots or {}).items()), asked=True)


def _checked(safety: str) -> Safety:
    for known in SAFETIES:
        if safety == known:
            return known
    raise SafetyError(
        f"unknown safety policy {safety!r}; expected one of {', '.join(SAFETIES)}{did_you_mean(str(safety), SAFETIES)}"
    )
