"""The values of a prompt's slots, or of the inputs that a prompt file declares, read from options and pipes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lazyprompt.cli.errors import WrongUseError
from lazyprompt.cli.reading import json_or_text
from lazyprompt.errors import LazyPromptError, MediaError, SlotError, did_you_mean
from lazyprompt.messages.history import messages_from
from lazyprompt.prompters.kinds import ChatPrompter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lazyprompt.cli.reading import Stdin
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.files.properties import Property
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.prompters.prompter import Prompter

# An address; the drive of a path is one letter.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class SlotInputs:
    """The slots of a prompter: their values are texts, and the prompter checks them."""

    prompter: Prompter

    @property
    def names(self) -> Collection[str]:
        """The names of the slots or inputs."""
        return self.prompter.slots

    @property
    def takes_text(self) -> bool:
        """True if a text without a name can be a value: there is a slot, or the user's turn."""
        return bool(self.names) or isinstance(self.prompter, ChatPrompter)

    def read(self, where: str, name: str, text: str, stdin: Stdin) -> object:
        """Read the value that an option gives, which may be in a file.

        Args:
            where: The option.
            name: The slot or input.
            text: The option's text.
            stdin: The standard input.

        Raises:
            WrongUseError: A file cannot be read.
        """
        return self.value(name, stdin.value(where, text))

    def value(self, name: str, text: str) -> object:  # noqa: ARG002 - a file's inputs have kinds by name
        """Convert a text to the value of a slot or input."""
        return text

    def open_name(self, values: Mapping[str, object]) -> str:
        """Find the slot or input that a text without a name is the value of; ``input`` for the user's turn.

        Args:
            values: The values given by name.

        Raises:
            SlotError: There are several, or there is none.
        """
        return self.prompter.name_of_text(values)

    def with_named(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Add a value that was given without a name.

        Args:
            values: The values given by name.
            name: The name of :meth:`open_name`.
            value: The value.

        Raises:
            SlotError: It would not be the user's text.
        """
        return {**values, name: value}

    def with_text(self, values: Mapping[str, object], name: str, value: object) -> object:
        """Return the input of a call, as :meth:`with_named` does; without other values a slot's text stays text."""
        # The prompter's error about a text alone shows the dict to give.
        return self.with_named(values, name, value) if values else value

    def check(self, given: object, *, history: bool = False) -> None:
        """Refuse an input that is known to be wrong; a slot's values are checked when the prompt is filled.

        Args:
            given: The input.
            history: True if there is a history, which stands where a thread is.

        Raises:
            SlotError: All that is wrong.
        """


@dataclass(frozen=True)
class FileInputs(SlotInputs):
    """The inputs of a ``.prompty`` or ``.prompt`` file: their values are of the kinds that it declares."""

    prompt: Prompty

    @property
    def names(self) -> Collection[str]:
        """The inputs that the file declares, and those that only its template names."""
        return dict.fromkeys((*(each.name for each in self.prompt.inputs), *self.prompt.slots))

    @property
    def takes_text(self) -> bool:
        """True if there is any input."""
        return bool(self.names)

    def read(self, where: str, name: str, text: str, stdin: Stdin) -> object:
        """Read a value; an input of a media kind may be the content of a file."""
        from lazyprompt.files.inputs import MEDIA  # noqa: PLC0415 - yaml costs 10 ms

        kind = self._kind(name)
        if kind not in MEDIA or not text.startswith("@") or text.startswith("@@"):
            return super().read(where, name, text, stdin)
        try:
            return MEDIA[kind].from_file(text[1:])
        except (MediaError, ValueError) as error:  # a path with a NUL character is a ValueError
            # The rest of the message is advice for programs.
            raise WrongUseError(where, f"{name}: {str(error).partition(';')[0]}") from error

    def value(self, name: str, text: str) -> object:
        """Convert a text to a value of the input's kind; if that fails it stays text, and :meth:`check` refuses it."""
        from lazyprompt.files.inputs import MEDIA, checked_inputs  # noqa: PLC0415 - as above

        declared = self._declared(name)
        if declared is None or declared.kind == "string" or declared.kind in MEDIA:
            return text
        value = json_or_text(text)
        if declared.kind == "union":  # JSON only if it fits
            try:
                checked_inputs({name: value}, [declared])
            except SlotError:
                return text
        return value

    def with_named(self, values: Mapping[str, object], name: str, value: object) -> dict[str, object]:
        """Add a value that was given without a name: its input must stand in a user turn, or be called ``input``."""
        return self.prompt.with_text(values, name, value)

    def with_text(self, values: Mapping[str, object], name: str, value: object) -> object:
        """Return the input of a call, always by name."""
        return self.with_named(values, name, value)

    def check(self, given: object, *, history: bool = False) -> None:
        """Refuse unknown names, and values that are missing or of another kind."""
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
        """Find threads and addresses that are wrong."""
        from lazyprompt.files.inputs import MEDIA  # noqa: PLC0415 - as above

        for name, value in values.items():
            kind = self._kind(name)
            if kind in MEDIA and isinstance(value, str) and value and not _ADDRESS.match(value):
                yield f"{name} is {value!r}, which is no address; the file itself is @{value}"
            if kind == "thread" and isinstance(value, list):
                try:
                    messages_from(cast("HistoryLike", value))
                except LazyPromptError as error:
                    yield f"{name}: {error}"
