"""Preference pairs: two answers to the same prompt, exported for TRL's trainers.

TRL documents the forms in "Dataset formats and types". The ids follow ``DataCollatorForPreference`` in
``trl/trainer/dpo_trainer.py`` and ``reward_trainer.py``, and ``DataCollatorForUnpairedPreference`` in
``kto_trainer.py`` (trl 1.16). These train every token after the prompt.
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
    """The input of TRL's collator for DPO."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]


class UnpairedFeatures(TypedDict):
    """The input of TRL's collator for KTO."""

    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool


class RewardFeatures(TypedDict):
    """The input of TRL's collator for reward models: the ids of the prompt followed by each answer."""

    chosen_ids: list[int]
    rejected_ids: list[int]


class _Ids(NamedTuple):
    """The ids of a sample, and the range of the trained ones."""

    ids: list[int]
    start: int
    end: int


@read_only
@dataclass(frozen=True, slots=True)
class PreferenceSample:
    """Two answers to the same prompt, one of them preferred.

    Args:
        chosen: The sample with the preferred answer.
        rejected: The sample with the other answer.

    Raises:
        FormatError: The samples have different prompts, or the same trained text.
    """

    chosen: TrainingSample
    rejected: TrainingSample

    def __post_init__(self) -> None:
        prompts = [sample.text[: sample.answers[0][0]] if sample.answers else sample.text for sample in self._both]
        if prompts[0] != prompts[1]:
            at = _common(*prompts)
            raise FormatError(
                f"the prompts of chosen and rejected differ from character {at} on: "
                f"{prompts[0][at : at + 40]!r} and {prompts[1][at : at + 40]!r}; a pair needs one prompt"
            )
        texts = [[sample.text[start:end] for start, end in sample.spans] for sample in self._both]
        if texts[0] == texts[1]:
            where = " except for masked text" if self.chosen.text != self.rejected.text else ""
            raise FormatError(
                f"chosen and rejected have the same answer{where}: {''.join(texts[0])[:80]!r}; leave the pair out"
            )

    @property
    def _both(self) -> tuple[TrainingSample, TrainingSample]:
        return self.chosen, self.rejected

    def _check_masks(self) -> str:
        """Return the masked text at the beginning of both answers, which belongs to the prompt."""
        first, other = (
            sample.text[sample.answers[0][0] : sample.spans[0][0]] if sample.spans else "" for sample in self._both
        )
        if first != other:
            raise FormatError(
                f"one answer begins with the masked text {first!r}, the other with {other!r}; TRL's prompt is the same "
                "for both, so write this text into both answers, or into none"
            )
        return first

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The mask's patterns that match in neither answer."""
        return tuple(pattern for pattern in self.chosen.unmatched if pattern in self.rejected.unmatched)

    def export(self, form: str) -> JsonObject:
        """Export the pair for TRL's trainers of DPO, KTO and reward models.

        Args:
            form: ``trl`` for messages, ``trl-text`` for text.

        Returns:
            A new dict with ``prompt``, ``chosen``, ``rejected``, and ``tools`` if there are any.

        Raises:
            FormatError: The form is unknown, or can't express part of the pair.
        """
        if form not in _FORMS:
            raise FormatError(
                f"form {form!r} is unknown for pairs{did_you_mean(str(form), _FORMS)}; known are {', '.join(_FORMS)}"
            )
        self._check_masks()
        chosen, rejected = (sample.export(form) for sample in self._both)
        completion = chosen.pop("completion")
        return {**chosen, "chosen": completion, "rejected": rejected["completion"]}

    def export_unpaired(self, form: str) -> tuple[JsonObject, JsonObject]:
        """Export two rows for KTO: ``prompt``, ``completion`` and a ``label``, True for the chosen answer.

        Args:
            form: The form; see :meth:`export`.

        Raises:
            FormatError: See :meth:`export`.
        """
        pair = self.export(form)
        answers = pair.pop("chosen"), pair.pop("rejected")
        return {**pair, "completion": answers[0], "label": True}, {**pair, "completion": answers[1], "label": False}

    def features(self, tokenizer: TokenizerLike) -> PairFeatures:
        """Return the ids for TRL's collator for DPO, with one prompt for both answers.

        The ids are those of the samples, up to the end of each answer. A token across the border of prompt and answer
        belongs to the answers, unless both share it. Masked text at the beginning of both answers belongs to the
        prompt.

        Args:
            tokenizer: The tokenizer; see :meth:`TrainingSample.labels`.

        Raises:
            FormatError: Masked text is inside an answer, or at the beginning of only one.
            TokenizerError: See :meth:`TrainingSample.labels`.
        """
        begins_masked = self._check_masks()
        chosen, rejected = (_completion(sample, tokenizer) for sample in self._both)
        end = _common(chosen.ids[: chosen.start], rejected.ids[: rejected.start])
        if begins_masked and end < max(chosen.start, rejected.start):
            raise FormatError(
                "a token contains the end of masked text and the beginning of one answer; also mask the white space "
                r"after the masked text, as with \s*"
            )
        return {
            "prompt_ids": chosen.ids[:end],
            "chosen_ids": chosen.ids[end : chosen.end],
            "rejected_ids": rejected.ids[end : rejected.end],
        }

    def unpaired_features(self, tokenizer: TokenizerLike) -> tuple[UnpairedFeatures, UnpairedFeatures]:
        """Return two rows of ids for TRL's collator for KTO.

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
        """Return the ids for TRL's collator for reward models: the whole text of both samples.

        A mask has no effect, because a reward model reads the whole answer.

        Args:
            tokenizer: The tokenizer; see :meth:`features`.

        Raises:
            TokenizerError: See :meth:`features`.
        """
        chosen, rejected = (sample.labels(tokenizer).input_ids for sample in self._both)
        return {"chosen_ids": chosen, "rejected_ids": rejected}


def _completion(sample: TrainingSample, tokenizer: TokenizerLike) -> _Ids:
    """Return the ids of a sample and the range of the trained ones, which must be contiguous for TRL's collators."""
    ids, labels, _ = sample.labels(tokenizer)
    trained = [at for at, label in enumerate(labels) if label != IGNORED]
    start, end = (trained[0], trained[-1] + 1) if trained else (len(ids), len(ids))
    if end - start > len(trained):
        raise FormatError(
            "TRL's collators train each token after the prompt, so text inside an answer can't be masked; mask only "
            "text at the beginning of both answers, or give .chosen.features() and .rejected.features() to your own "
            "collator"
        )
    return _Ids(ids, start, end)


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
