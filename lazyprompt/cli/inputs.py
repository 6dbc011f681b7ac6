"""How a prompt takes what options and pipes give it: a value for each slot, or for each input that a file declares."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import LazyPromptError, MediaError, SlotError, did_you_mean
from lazyprompt.prompters import ChatPrompter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lazyprompt.cli.streams import Stdin
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.properties import Property
    from lazyprompt.history import HistoryLike
    from lazyprompt.prompter import Prompter

# An address; the drive of a path is one letter.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Inputs(Protocol):
    """How a prompt takes its input."""

    @property
    def names(self) -> Collection[str]:
        """What there is a value for."""
        ...

    @property
    def takes_text(self) -> bool:
        """Whether text alone has somewhere to go."""
        ...

    def read(self, where: str, name: str, text: str, stdin: Stdin) -> object:
        """The value that an option gives, which may be in a file.

        Args:
            where: The option.
            name: Whose value it is.
            text: What the option was given.
            stdin: The standard input.

        Raises:
            WrongUseError: A file cannot be read.
        """
        ...

    def value(self, name: str, text: str) -> object:
        """A text as a value.

        Args:
            name: Whose value it is.
            text: The text.
        """
        ...

    def open(self, values: Mapping[str, object]) -> str:
        """The name of what text alone is a value for.

        Args:
            values: What has a value already.

        Raises:
            SlotError: There are several, or there is none.
        """
        ...

    def joined(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Return values with one that was given without a name.

        Args:
            values: What has a value already.
            name: The name of the other, as of :meth:`open`.
            value: Its value.

        Raises:
            SlotError: It would not be the user's text.
        """
        ...

    def check(self, given: object, *, history: bool = False) -> None:
        """Refuse an input of which is known already that it is wrong.

        Args:
            given: The input.
            history: Whether there is a history, which stands where a thread is.

        Raises:
            SlotError: All that is wrong.
        """
        ...


class SlotInputs(NamedTuple):
    """The slots of a prompter: their values are texts, and the prompter checks them."""

    prompter: Prompter

    @property
    def names(self) -> Collection[str]:
        """The slots."""
        return self.prompter.slots

    @property
    def takes_text(self) -> bool:
        """Whether there is a slot, or a turn of the user."""
        return bool(self.names) or isinstance(self.prompter, ChatPrompter)

    def read(self, where: str, name: str, text: str, stdin: Stdin) -> object:  # noqa: ARG002 - all are read alike
        """A text, or that of a file."""
        return stdin.value(where, text)

    def value(self, name: str, text: str) -> object:  # noqa: ARG002 - all are texts
        """The text."""
        return text

    def open(self, values: Mapping[str, object]) -> str:
        """The slot that a text alone fills; else ``input``, the user's text."""
        return self.prompter.name_of_text(values)

    def joined(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Return all values; the prompter checks them."""
        return {**values, name: value}

    def check(self, given: object, *, history: bool = False) -> None:
        """Nothing is known before the prompt is filled."""


class FileInputs(NamedTuple):
    """The inputs of a ``.prompty`` or ``.prompt`` file: their values are of the kinds that it declares."""

    prompt: Prompty

    @property
    def names(self) -> Collection[str]:
        """What the file declares, and what its template names besides."""
        return dict.fromkeys((*(each.name for each in self.prompt.inputs), *self.prompt.slots))

    @property
    def takes_text(self) -> bool:
        """Whether there is any input."""
        return bool(self.names)

    def read(self, where: str, name: str, text: str, stdin: Stdin) -> object:
        """A value; a picture and the like may be the content of a file, as any text may."""
        from lazyprompt.files.inputs import MEDIA  # noqa: PLC0415 - yaml costs 10 ms

        kind = self._kind(name)
        if kind not in MEDIA or not text.startswith("@") or text.startswith("@@"):
            return self.value(name, stdin.value(where, text))
        try:
            return MEDIA[kind].from_file(text[1:])
        except (MediaError, ValueError) as error:  # a path with a NUL character is a ValueError
            # What may follow is advice for programs.
            raise WrongUseError(where, f"{name}: {str(error).partition(';')[0]}") from error

    def value(self, name: str, text: str) -> object:
        """A text as a value of its kind; one that cannot be that stays text, and is refused with all else."""
        from lazyprompt.files.inputs import MEDIA, checked_inputs  # noqa: PLC0415 - as above

        declared = self._declared(name)
        if declared is None or declared.kind == "string" or declared.kind in MEDIA:
            return text
        try:
            value: object = json.loads(text)
            if declared.kind == "union":  # text is text, unless it is JSON that fits
                checked_inputs({name: value}, [declared])
        except (ValueError, RecursionError, SlotError):
            return text
        return value

    def open(self, values: Mapping[str, object]) -> str:
        """The input that a text alone is the value of, as the prompter says."""
        return self.prompt.prompter.name_of_text(values)

    def joined(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Return all values; that without a name must stand in a user turn, or be called ``input``."""
        return self.prompt.with_text(values, name, value)

    def check(self, given: object, *, history: bool = False) -> None:
        """Refuse names that are nowhere, and values that are missing or not of their kind."""
        from lazyprompt.files.inputs import checked_inputs  # noqa: PLC0415 - as above

        values = cast("dict[str, object]", given) if isinstance(given, dict) else {}
        known = {name: value for name, value in values.items() if name in self.names}
        declared = [each for each in self.prompt.inputs if each.kind != "thread" or not history]
        faults = [*self._faults(known)]
        try:
            checked_inputs(known, declared)
        except SlotError as error:
            faults.append(str(error))
            if any(isinstance(value, str) and self._kind(name) != "string" for name, value in known.items()):
                faults.append("all but texts and addresses are given as JSON")
        unknown = [f"no input named {name!r}{did_you_mean(name, self.names)}" for name in values if name not in known]
        if unknown:
            faults += (*unknown, f"the inputs are {', '.join(map(repr, self.names)) or 'none'}")
        if faults:
            raise SlotError("; ".join(faults))

    def _declared(self, name: str) -> Property | None:
        return next((each for each in self.prompt.inputs if each.name == name), None)

    def _kind(self, name: str) -> str:
        declared = self._declared(name)
        return "string" if declared is None else declared.kind

    def _faults(self, values: Mapping[str, object]) -> Iterator[str]:
        """What is wrong with threads and addresses."""
        from lazyprompt.files.inputs import MEDIA  # noqa: PLC0415 - as above
        from lazyprompt.history import messages_from  # noqa: PLC0415 - as above

        for name, value in values.items():
            kind = self._kind(name)
            if kind in MEDIA and isinstance(value, str) and value and not _ADDRESS.match(value):
                yield f"{name} is {value!r}, which is no address; the file itself is @{value}"
            if kind == "thread" and isinstance(value, list):
                try:
                    messages_from(cast("HistoryLike", value))
                except LazyPromptError as error:
                    yield f"{name}: {error}"


def with_text(where: str, values: dict[str, object], inputs: Inputs, read: Callable[[str], object]) -> object:
    """Values, and one that is given without a name.

    Args:
        where: The option that gives it.
        values: The values.
        inputs: How the prompt takes them.
        read: Reads it as the value of a name.

    Raises:
        WrongUseError: It could be the value of several names, or of none.
    """
    try:
        name = inputs.open(values)
        value = read(name)
        # A text alone stays one: the prompter then shows the dict to give.
        alone = isinstance(inputs, SlotInputs) and not values
        return value if alone else inputs.joined(values, name, value)
    except SlotError as error:
        raise WrongUseError(where, f"{error}; --set name=value gives one its value") from error
