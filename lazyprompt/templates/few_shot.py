"""Few-shot prompts: a prefix, worked examples, a suffix. The examples are data: their braces stay."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.json import checked
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.call_input import called, fixed_with, refuse_none
from lazyprompt.templates.example_selection import ExampleOffer, check_selector, choose
from lazyprompt.templates.slots import SlotTemplate, misfit, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from lazyprompt.templates.call_input import Fixed
    from lazyprompt.templates.example_selection import ExampleSelector


class FewShotTemplate:
    """A text with worked examples before the question.

    Args:
        prefix: What stands first; may have slots.
        examples: A dict for each example, with a value for each slot of ``example_template``. With ``select`` it may
            have others, as a label or a vector, that only the selector looks at; these are kept as they are, no copies.
        example_template: How one example is written.
        suffix: What stands last, with the slots of the question.
        separator: What stands between prefix, examples and suffix.
        select: What decides at each rendering which examples are shown, and in which order; ``None`` shows all.

    Raises:
        SlotError: An example lacks a value or has one too many; the message names its index.
        TemplateError: The examples are no list of dicts, a text is none, or ``select`` is no selector.
    """

    def __init__(
        self,
        prefix: str,
        examples: Sequence[Mapping[str, object]],
        example_template: str,
        suffix: str,
        separator: str = "\n",
        *,
        select: ExampleSelector | None = None,
    ) -> None:
        if not isinstance(cast("object", examples), list | tuple):
            raise TemplateError(f"examples are a list of dicts, not a {type(examples).__name__}")
        if not isinstance(cast("object", separator), str):
            raise TemplateError(f"the separator is text, not a {type(separator).__name__}")
        self._prefix = SlotTemplate(prefix)
        self._suffix = SlotTemplate(suffix)
        self._separator = separator
        template = SlotTemplate(example_template)
        self._texts = tuple(
            _text(template, example, index, select is not None) for index, example in enumerate(examples)
        )
        self._select = select
        self._examples: tuple[Mapping[str, object], ...] = ()
        if select is not None:
            check_selector(select, "select")
            # Only a selector looks at them.
            self._examples = tuple(_frozen(example, template.slots) for example in examples)
        self._all_slots: tuple[str, ...] = tuple(dict.fromkeys(self._prefix.slots + self._suffix.slots))
        self._fixed: Fixed = ()
        self.slots = self._all_slots
        """The names of the slots that :meth:`render` fills."""

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some slots, which :meth:`render` may then leave out; those of a call win.

        Args:
            **values: A value for each slot, or a function without arguments, which is called once for each rendering.

        Raises:
            SlotError: A name is that of no slot, or a value is None or cannot become text.
        """
        changed = copy(self)
        changed._fixed = fixed_with(self._fixed, values, self._all_slots, value_text)  # noqa: SLF001 - a copy of our own
        changed.slots = tuple(name for name in self._all_slots if name not in dict(changed._fixed))  # noqa: SLF001 - as above
        return changed

    def render(self, /, **values: object) -> str:
        """The whole text.

        Args:
            **values: A value for each slot of prefix and suffix.

        Returns:
            Prefix, examples and suffix, joined by the separator; an empty one is left out.

        Raises:
            SlotError: A value is missing, or there is no slot for it.
            BudgetError: The text does not fit the limit of a :class:`LengthBudget`.
            TemplateError: The selector chose an example that is not there, or one twice; or it cannot choose.
        """
        offer = self._offer(values)
        return offer.whole(self._chosen(offer))

    def chosen(self, /, **values: object) -> tuple[int, ...]:
        """Which examples :meth:`render` shows.

        Args:
            **values: A value for each slot of prefix and suffix.

        Returns:
            Their indices, in the order in which they are shown.

        Raises:
            SlotError: As of :meth:`render`.
            BudgetError: As of :meth:`render`.
            TemplateError: As of :meth:`render`.
        """
        return self._chosen(self._offer(values))

    def _offer(self, values: dict[str, object]) -> ExampleOffer:
        values = {**called(self._fixed, values), **values}
        _check(values, self._all_slots, "the few-shot template")
        texts = {name: value_text(value, name) for name, value in values.items()}
        before, after = ("".join(part.fill(texts)) for part in (self._prefix, self._suffix))
        return ExampleOffer(MappingProxyType(values), self._examples, self._texts, before, after, self._separator)

    def _chosen(self, offer: ExampleOffer) -> tuple[int, ...]:
        return tuple(range(len(offer.texts))) if self._select is None else choose(self._select, offer)

    def __getstate__(self) -> dict[str, Any]:
        # A read-only view of a dict cannot be pickled or copied, the dict can.
        return {**self.__dict__, "_examples": tuple(map(dict, self._examples))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        examples: tuple[dict[str, object], ...] = state["_examples"]
        self.__dict__.update(state, _examples=tuple(map(MappingProxyType[str, object], examples)))


def _text(template: SlotTemplate, example: object, index: int, more: bool) -> str:  # noqa: FBT001 - private
    """An example as it is written; ``more`` lets it have values that no slot takes."""
    where = f"examples[{index}]"
    if not isinstance(example, Mapping):
        raise TemplateError(f"{where} is a {type(example).__name__}; an example is a dict with a value for each slot")
    values = cast("Mapping[str, object]", example)
    if more:
        values = {name: value for name, value in values.items() if name in template.slots}
    _check(values, template.slots, where)
    return "".join(template.fill({name: value_text(value, name) for name, value in values.items()}))


def _frozen(example: Mapping[str, object], slots: tuple[str, ...]) -> Mapping[str, object]:
    """An example that stays as it was written, whatever becomes of the one given."""
    held = {
        name: checked(cast("object", value), name, SlotError)
        for name, value in example.items()
        if name in slots and isinstance(value, Mapping | list | tuple)
    }
    return MappingProxyType({**example, **held})


def _check(values: Mapping[str, object], slots: tuple[str, ...], where: str) -> None:
    if fault := misfit(values, slots):
        raise SlotError(f"{where}: {fault}")
    try:
        refuse_none(values)
    except SlotError as error:
        raise SlotError(f"{where}: {error}") from error
