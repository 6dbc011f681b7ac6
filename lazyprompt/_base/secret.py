"""Secret values, which are displayed as ``***``."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Self

from lazyprompt._base.json import is_dict, is_list, is_mapping, is_sequence

SHOWN = "***"
# The minimum length of a value to mask; shorter values would match ordinary text by chance.
_SHORTEST = 4
# The minimum length of a value for which escaped and encoded variants are masked too.
_SHORTEST_ECHO = 8
# Whitespace, raw or escaped, can follow any character of a value, because a server may wrap the value.
_WRAP_CODES = "09|0a|0d|20"
_WRAP = rf"(?>(?:\s|\\{{1,4}}[nrt]|%(?:25){{0,3}}(?i:{_WRAP_CODES}))*)"
# Maps each base64 character that has a URL-safe variant to a character class of the two variants.
_ALIKE = {"+": "+-", "/": "/_"}
_NAMED = {'"': "quot", "'": "apos", "&": "amp", "<": "lt", ">": "gt"}
_VARIABLE = re.compile(r"\$\{env:([^{}]*)\}", re.IGNORECASE)


class _Unshown:
    """Base class for values that are displayed as ``***`` and never copied."""

    __slots__ = ()

    def __str__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


class Secret(_Unshown):
    """A secret such as a key or password, displayed as ``***`` in reprs, logs, errors and traces.

    Args:
        value: The value.

    Raises:
        TypeError: The value is not a string.
    """

    __slots__ = ("_echo", "_value")

    def __init__(self, value: str) -> None:
        self._value = _string(value)
        self._echo: re.Pattern[str] | None = None

    def reveal(self) -> str:
        """Return the secret value, for use in a request."""
        return self._value

    def hidden_in(self, text: str) -> str:
        """Mask the secret in a text, including its escaped and base64-encoded variants.

        Args:
            text: The text, such as a client's error message that may quote the key.
        """
        if len(self._value) < _SHORTEST:
            return text
        if len(self._value) >= _SHORTEST_ECHO:
            if self._echo is None:
                self._echo = re.compile("|".join(_echoes(self._value)))
            text = self._echo.sub(SHOWN, text)
        return text.replace(self._value, SHOWN)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({SHOWN!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret can't be pickled; pass it again when unpickling, or set it in the environment")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a secret must be a string, not {type(value).__name__}")
    return value


def _echoes(value: str) -> Iterator[str]:
    """Yield patterns that match a value when it is wrapped, escaped or base64-encoded at any alignment."""
    # If the secret itself contains "%09", don't treat "%09" as white space inserted by line wrapping.
    codes = "|".join(code for code in ("09", "0a", "0d", "20") if f"%{code}" not in value.lower()) or "(?!)"
    wrap = _WRAP.replace(_WRAP_CODES, codes)
    yield wrap.join(_forms(each) for each in value if not each.isspace())
    for shift in range(3):
        encoded = b64encode(bytes(shift) + value.encode()).decode().rstrip("=")
        # Each base64 character encodes six bits, so the first and last characters can contain bits of adjacent bytes.
        begin, shared = (0, 2, 3)[shift], bool((shift + len(value.encode())) % 3)
        inner = encoded[begin : len(encoded) - shared]
        any_one = "(?:[A-Za-z0-9+/_-])?"
        yield any_one * bool(shift) + _WRAP.join(map(_base64_forms, inner)) + any_one * shared


def _base64_forms(character: str) -> str:
    """Return a pattern that matches a base64 character or its variant in the URL-safe alphabet."""
    return f"(?:{'|'.join(map(_forms, _ALIKE[character]))})" if character in _ALIKE else character


def _forms(character: str) -> str:
    """Return a pattern for a character that is unescaped, or escaped one or more times in JSON, URLs or HTML."""
    code, escaped = ord(character), re.escape(character)
    percent = "".join(f"%(?:25){{0,3}}{byte:02x}" for byte in character.encode())
    units = character.encode("utf-16-be").hex()
    unicode = "".join(rf"\\{{1,4}}u{units[at : at + 4]}" for at in range(0, len(units), 4))
    entity = f"&(?:amp;){{0,3}}(?:#(?:0{{0,4}}{code}|x0{{0,4}}{code:x})|{_NAMED.get(character, '#')});"
    slashed = "" if character.isalnum() else rf"|\\{{1,4}}{escaped}"
    # The character "&" also starts its HTML entity, so the plain character must be the last alternative.
    return rf"(?:(?i:{percent}|{unicode}|\\{{1,4}}x0?{code:x}|{entity}){slashed}|{escaped})"


class SecretText(_Unshown, str):
    """Text that contains values of environment variables; the text is sent unchanged, but displayed as ``***``.

    A pickle of the text contains only the reference, which is resolved again when the pickle is loaded.

    Args:
        text: The text.
        reference: The text before its references are resolved, such as ``Bearer ${env:KEY}``.
    """

    __slots__ = ("reference",)
    reference: str

    def __new__(cls, text: str, reference: str) -> Self:
        made = super().__new__(cls, text)
        made.reference = reference
        return made

    def reveal(self) -> str:
        """Return the text without masking its secret values."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return repr(SHOWN)

    def __reduce__(self) -> tuple[object, ...]:
        return looked_up, (self.reference,)

    @property
    def values(self) -> tuple[str, ...]:
        """The secrets to mask: the complete text, and the value of each environment variable that it contains."""
        names = (each[1].partition(":")[0] for each in _VARIABLE.finditer(self.reference))
        found = (os.environ.get(name, "") for name in names)
        return (self.reveal(), *(value for value in found if value and value in self.reveal()))

    @property
    def is_hidden(self) -> bool:
        """True if the text's references are unresolved, as in a displayed prompt."""
        return self.reveal() == self.reference


class HiddenEnvironment(Mapping[str, str]):
    """A mapping from environment variable names to unresolved references, for displaying or converting a prompt.

    The output can't reveal the value of an environment variable, because the value is never read.

    Args:
        names: The variable names; by default, all variables of the process.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self._names = None if names is None else frozenset(names)

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            raise KeyError(name)
        return f"${{env:{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def _known(self) -> Collection[str]:
        return os.environ if self._names is None else self._names


class SecretAddress(str):
    """A URL that contains a user name or password; its repr is ``***``, and it can't be pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(SHOWN)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a URL with a password can't be pickled; create the OnlineChatModule or TrainableModule in the "
            "process that would load the pickle"
        )


def address_of(url: str) -> str:
    """Convert a URL with a user name or password to a :class:`SecretAddress`; return any other URL unchanged."""
    return SecretAddress(url) if "@" in url.partition("//")[2].partition("/")[0] else url


def looked_up(reference: str) -> SecretText:
    """Replace the references in a text with the values of environment variables.

    Args:
        reference: The text, such as ``Bearer ${env:KEY}``.

    Raises:
        ValueError: A variable is not set, and its reference has no default.
    """
    return SecretText(_VARIABLE.sub(lambda found: variable(found[1], os.environ), reference), reference)


def variable(given: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable, or the default from its reference.

    Args:
        given: The name and optional default, written as ``KEY`` or ``KEY:default``.
        environment: The variables.

    Raises:
        ValueError: The variable is not set, and the reference has no default.
    """
    name, _, default = given.partition(":")
    found = environment.get(name, default or None) if name else None
    if found is None:
        raise ValueError(
            f"Environment variable '{name}' not set; set it or add a default: ${{env:{name or 'X'}:default}}"
        )
    return found


def shown(value: Any, secrets: Iterable[SecretText] = ()) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
    """Return a JSON value for display, with each :class:`SecretText` replaced by its reference.

    Args:
        value: The value.
        secrets: The secrets to mask wherever they occur in the value's strings.
    """
    masks = [Secret(value) for value in dict.fromkeys(value for each in secrets for value in each.values)]

    def masked(text: str) -> str:
        for mask in masks:
            text = mask.hidden_in(text)
        return text

    def of(value: object) -> object:
        if isinstance(value, SecretText):
            return value.reference
        if isinstance(value, str):
            return masked(value) if masks else value
        if is_sequence(value):
            return [*map(of, value)]
        if is_mapping(value):
            return {of(name): of(item) for name, item in value.items()}
        return value

    return of(value)


def secrets_within(value: object) -> Iterator[SecretText]:
    """Yield every :class:`SecretText` within a value."""
    if isinstance(value, SecretText):
        yield value
    elif is_sequence(value):
        for item in value:
            yield from secrets_within(item)
    elif is_mapping(value):
        yield from secrets_within([*value.values()])


def revealed(value: object) -> object:
    """Return a JSON value with its secret texts revealed, ready to send."""
    if is_list(value):
        return [*map(revealed, value)]
    if is_dict(value):
        return {name: revealed(item) for name, item in value.items()}
    return value.reveal() if isinstance(value, SecretText) else value
