"""Preference pairs of two responses to the same prompt, and their export for TRL's trainers.

TRL documents the formats in "Dataset formats and types". The ids are compatible with the collators
``DataCollatorForPreference`` in ``trl/trainer/dpo_trainer.py`` and ``reward_trainer.py``, and
``DataCollatorForUnpairedPreference`` in ``kto_trainer.py`` (trl 1.16). These collators train on every token after the
prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from lazyprompt._base.frozen import read_only
from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.training.samples import IGNORED, TrainingSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.encoding import TokenizerLike

_FORMS = ("trl", "trl-text")


class PairFeatures(TypedDict):
    """The input for TRL's DPO collator."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]


class UnpairedFeatures(TypedDict):
    """The input for TRL's KTO collator."""

    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool


class RewardFeatures(TypedDict):
    """The input for TRL's reward-model collator; each list contains the ids of the prompt and one response."""

    chosen_ids: list[int]
    rejected_ids: list[int]


class _Ids(NamedTuple):
    """The token ids of a sample, and the range of ids that is included in the loss."""

    ids: list[int]
    start: int
    end: int


@read_only
@dataclass(frozen=True, slots=True)
class PreferenceSample:
    """A preferred and a rejected response to the same prompt.

    Args:
        chosen: The sample with the preferred response.
        rejected: The sample with the rejected response.

    Raises:
        FormatError: The samples have different prompts, or the same text to train on.
    """

    chosen: TrainingSample
    rejected: TrainingSample

    def __post_init__(self) -> None:
        prompts = [sample.text[: sample.answers[0][0]] if sample.answers else sample.text for sample in self._both]
        if prompts[0] != prompts[1]:
            at = _common(*prompts)
            raise FormatError(
                f"the prompts of chosen and rejected differ, starting at character {at}: "
                f"{prompts[0][at : at + 40]!r} and {prompts[1][at : at + 40]!r}; use the same prompt for both"
            )
        texts = [[sample.text[start:end] for start, end in sample.spans] for sample in self._both]
        if texts[0] == texts[1]:
            where = " except for masked text" if self.chosen.text != self.rejected.text else ""
            raise FormatError(
                f"chosen and rejected have the same response{where}: {''.join(texts[0])[:80]!r}; omit this pair"
            )

    @property
    def _both(self) -> tuple[TrainingSample, TrainingSample]:
        return self.chosen, self.rejected

    def _check_masks(self) -> str:
        """Return the masked text that both responses begin with, which TRL treats as part of the prompt."""
        first, other = (
            sample.text[sample.answers[0][0] : sample.spans[0][0]] if sample.spans else "" for sample in self._both
        )
        if first != other:
            raise FormatError(
                f"one response begins with the masked text {first!r}, the other with {other!r}; TRL requires the same "
                "prompt for both, so add this text to both responses or to neither"
            )
        return first

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The mask's patterns that match in neither response."""
        return tuple(pattern for pattern in self.chosen.unmatched if pattern in self.rejected.unmatched)

    def export(self, form: str) -> JsonObject:
        """Export the pair for TRL's DPO, KTO and reward-model trainers.

        Args:
            form: The export format: ``trl`` for messages, ``trl-text`` for text.

        Returns:
            A new dict with the keys ``prompt``, ``chosen`` and ``rejected``, and ``tools`` if the pair uses tools.

        Raises:
            FormatError: The export format is unknown, or can't express part of the pair.
        """
        if form not in _FORMS:
            raise FormatError(
                f"unknown export format {form!r} for pairs{did_you_mean(str(form), _FORMS)}; "
                f"expected one of {', '.join(_FORMS)}"
            )
        self._check_masks()
        chosen, rejected = (sample.export(form) for sample in self._both)
        completion = chosen.pop("completion")
        return {**chosen, "chosen": completion, "rejected": rejected["completion"]}

    def export_unpaired(self, form: str) -> tuple[JsonObject, JsonObject]:
        """Export two rows for KTO with ``prompt``, ``completion`` and ``label``, which is True for the chosen response.

        Args:
            form: The export format; see :meth:`export`.

        Raises:
            FormatError: See :meth:`export`.
        """
        pair = self.export(form)
        answers = pair.pop("chosen"), pair.pop("rejected")
        return {**pair, "completion": answers[0], "label": True}, {**pair, "completion": answers[1], "label": False}

    def features(self, tokenizer: TokenizerLike) -> PairFeatures:
        """Return the ids for TRL's DPO collator, with one prompt for both responses.

        The ids cover each sample up to the end of its response. A token that crosses the boundary between prompt and
        response is assigned to the response, unless both responses share it. Masked text at the beginning of both
        responses is part of the prompt.

        Args:
            tokenizer: The tokenizer; see :meth:`TrainingSample.labels`.

        Raises:
            FormatError: Masked text is inside a response, or only one response begins with masked text.
            TokenizerError: See :meth:`TrainingSample.labels`.
        """
        begins_masked = self._check_masks()
        chosen, rejected = (_completion(sample, tokenizer) for sample in self._both)
        end = _common(chosen.ids[: chosen.start], rejected.ids[: rejected.start])
        if begins_masked and end < max(chosen.start, rejected.start):
            raise FormatError(
                "a token contains the end of masked text and the beginning of one response; also mask the whitespace "
                r"after the masked text, for example with \s*"
            )
        return {
            "prompt_ids": chosen.ids[:end],
            "chosen_ids": chosen.ids[end : chosen.end],
            "rejected_ids": rejected.ids[end : rejected.end],
        }

    def unpaired_features(self, tokenizer: TokenizerLike) -> tuple[UnpairedFeatures, UnpairedFeatures]:
        """Return the token ids for TRL's KTO collator: one row for the chosen and one for the rejected response.

        Args:
            tokenizer: The tokenizer; see :meth:`features`.

        Raises:
            FormatError: See :meth:`features`.
            TokenizerError: See :meth:`features`.
        """
        pair = self.features(tokenizer)
        prompt = pair["prompt_ids"]
        return (
            {"prompt_ids": prompt, "completion_ids": pair["chosen_ids"], "label": True},
            {"prompt_ids": [*prompt], "completion_ids": pair["rejected_ids"], "label": False},
        )

    def reward_features(self, tokenizer: TokenizerLike) -> RewardFeatures:
        """Return the token ids of the chosen and the rejected sample's whole texts, for TRL's reward-model collator.

        A mask has no effect, because a reward model reads the whole response.

        Args:
            tokenizer: The tokenizer; see :meth:`features`.

        Raises:
            TokenizerError: See :meth:`features`.
        """
        chosen, rejected = (sample.labels(tokenizer).input_ids for sample in self._both)
        return {"chosen_ids": chosen, "rejected_ids": rejected}


def _completion(sample: TrainingSample, tokenizer: TokenizerLike) -> _Ids:
    """Return a sample's ids and the range of trained ids, which TRL's collators require to be contiguous."""
    ids, labels, _ = sample.labels(tokenizer)
    trained = [at for at, label in enumerate(labels) if label != IGNORED]
    start, end = (trained[0], trained[-1] + 1) if trained else (len(ids), len(ids))
    if end - start > len(trained):
        raise FormatError(
            "TRL's collators include every token after the prompt in the loss, so text inside a response can't be "
            "masked; mask only text at the beginning of both responses, or pass .chosen.features() and "
            ".rejected.features() to a custom collator"
        )
    return _Ids(ids, start, end)


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
