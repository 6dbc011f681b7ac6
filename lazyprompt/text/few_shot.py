"""Few-shot prompts: a prefix, worked examples, a suffix. The examples are data: their braces stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.text.slots import SlotTemplate, misfit, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence


class FewShotTemplate:
    """A text with worked examples before the question.

    Args:
        prefix: What stands first; may have slots.
        examples: A dict for each example, with a value for each slot of ``example_template``.
        example_template: How one example is written.
        suffix: What stands last, with the slots of the question.
        separator: What stands between prefix, examples and suffix.

    Raises:
        SlotError: An example lacks a value or has one too many; the message names its index.
        TemplateError: The examples are no list of dicts, or a text is none.
    """

    def __init__(
        self,
        prefix: str,
        examples: Sequence[Mapping[str, object]],
        example_template: str,
        suffix: str,
        separator: str = "\n",
    ) -> None:
        if not isinstance(cast("object", examples), list | tuple):
            raise TemplateError(f"examples are a list of dicts, not a {type(examples).__name__}")
        if not isinstance(cast("object", separator), str):
            raise TemplateError(f"the separator is text, not a {type(separator).__name__}")
        self._prefix = SlotTemplate(prefix)
        self._suffix = SlotTemplate(suffix)
        self._separator = separator
        template = SlotTemplate(example_template)
        self._examples = tuple(_example(template, example, index) for index, example in enumerate(examples))
        self.slots: tuple[str, ...] = tuple(dict.fromkeys(self._prefix.slots + self._suffix.slots))
        """The names of the slots that :meth:`render` takes."""

    def render(self, /, **values: object) -> str:
        """The whole text.

        Args:
            **values: A value for each slot of prefix and suffix.

        Returns:
            Prefix, examples and suffix, joined by the separator; an empty one is left out.

        Raises:
            SlotError: A value is missing, or there is no slot for it.
        """
        _check(values, self.slots, "the few-shot template")
        texts = {name: value_text(value, name) for name, value in values.items()}
        pieces = ("".join(self._prefix.fill(texts)), *self._examples, "".join(self._suffix.fill(texts)))
        return self._separator.join(piece for piece in pieces if piece)


def _example(template: SlotTemplate, example: object, index: int) -> str:
    where = f"examples[{index}]"
    if not isinstance(example, Mapping):
        raise TemplateError(f"{where} is a {type(example).__name__}; an example is a dict with a value for each slot")
    values = cast("Mapping[str, object]", example)
    _check(values, template.slots, where)
    return "".join(template.fill({name: value_text(value, name) for name, value in values.items()}))


def _check(values: Mapping[str, object], slots: tuple[str, ...], where: str) -> None:
    if fault := misfit(values, slots):
        raise SlotError(f"{where}: {fault}")
