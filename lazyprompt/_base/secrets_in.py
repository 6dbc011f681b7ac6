"""Detection and masking of secrets in a text. Secrets are found by a pattern or by a field name.

Masking preserves all positions, so that rules of ``lazyprompt check`` can check and quote the masked text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHOWN = 3
_FORMS: Final[tuple[tuple[str, str], ...]] = (
    ("a private key", r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----[\sA-Za-z0-9+/=\\]*"),
    ("a key of Anthropic", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    ("a key of OpenRouter", r"sk-or-[A-Za-z0-9_-]{16,}"),
    ("a key of the form sk-", r"sk-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{20,}"),
    ("an access key of AWS", r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    ("a token of GitHub", r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a key of Google", r"AIza[A-Za-z0-9_-]{30,}"),
    ("a key of xAI", r"xai-[A-Za-z0-9]{20,}"),
    ("a key of Groq", r"gsk_[A-Za-z0-9]{20,}"),
    ("a token of Hugging Face", r"hf_[A-Za-z0-9]{20,}"),
    ("a token of Slack", r"xox[abprs]-[A-Za-z0-9-]{10,}"),
)
_KNOWN = re.compile("|".join(f"(?P<form{index}>(?<![A-Za-z0-9_-]){form})" for index, (_, form) in enumerate(_FORMS)))
_NAMES = (
    *("api[_-]?key", "api[_-]?secret", "access[_-]?key", "secret[_-]?key", "access[_-]?token", "auth[_-]?token"),
    *("password", "passwd", "client[_-]?secret", "private[_-]?key", "secret", "bearer"),
)
# Matches a secret field whose value is a YAML block, a quoted string or the rest of the line, but not a nested mapping.
_FIELD = re.compile(
    rf"(?<![\w-])[\"']?(?P<name>{'|'.join(_NAMES)})[\"']?[ \t]*:[ \t]+"
    r"(?:[|>][-+0-9]{0,2}[ \t]*(?:\r\n?|\n)(?P<block>(?:(?P<indent>[ ]+)[^\r\n]*(?:\r\n?|\n|\Z))"
    r"(?:(?P=indent)[^\r\n]*(?:\r\n?|\n|\Z))*)"
    r"|\"(?P<double>(?:[^\"\\\r\n]|\\.)*)\"|'(?P<single>[^'\r\n]*)'"
    r"|(?P<plain>[^\s\"'{\[|>#&*!](?:\{[^{}\r\n]*\}|[^\r\n,}\]#])*))",
    re.IGNORECASE,
)
# Matches text that can precede a field name: the start of a line, or the inside of a YAML flow mapping.
_KEY_BEHIND = re.compile(r"(?:^|[\r\n])[ \t]*(?:-[ \t]+)*\Z|\{(?:[^\r\n]*,)?[ \t]*\Z")
_BEFORE = 1000
# Matches values that are not secrets, such as references and placeholders.
_NO_SECRET = re.compile(
    r"\$\{(?:env|file|params):[^{}]*\}|\$\{?\w+\}?|\{\{.*\}\}|<[^<>]*>|[*x.…-]*|null|~|true|false|string|your[-_ ].*"
    r"|change[-_ ]?me|todo|dummy|example|none",
    re.IGNORECASE,
)


class FoundSecret(NamedTuple):
    """A secret in a text.

    Attributes:
        begin: The index of the secret's first character.
        end: The index after the secret's last character.
        what: A description of the kind of secret.
        field: The name of the secret's field, or ``""`` if the secret was found by a known pattern.
        shown: The secret's first characters, which may be displayed.
    """

    begin: int
    end: int
    what: str
    field: str
    shown: str

    @property
    def length(self) -> int:
        """The length of the secret in characters."""
        return self.end - self.begin


def secrets_in(text: str, fields_end: int) -> list[FoundSecret]:
    """Find the secrets in a text.

    Args:
        text: The text.
        fields_end: The index where the YAML in the text ends; fields after this index are not searched.

    Returns:
        The secrets, in text order.
    """
    known = [*_known(text)]
    begins = [each.begin for each in known]
    found: list[FoundSecret] = []
    for match in _FIELD.finditer(text, 0, fields_end):
        if not _KEY_BEHIND.search(text[max(match.start() - _BEFORE, 0) : match.start()]):
            continue
        group = next(name for name in ("block", "double", "single", "plain") if match[name] is not None)
        begin, value = match.start(group), match[group].rstrip()
        begin += len(value) - len(value := value.lstrip())
        if group == "plain":
            # If a quoted string contains the field, the value's last character can be the string's closing quote.
            value = value.rstrip("\"'")
        end = begin + len(value)
        # The known secrets are sorted, so only the last one that begins before this value's end can overlap this value.
        before = bisect_left(begins, end)
        is_known = before > 0 and known[before - 1].end > begin
        if not is_known and not _NO_SECRET.fullmatch(value):
            found.append(_secret(text, begin, end, "a literal value", match["name"]))
    return sorted([*known, *found])


def _known(text: str) -> Iterator[FoundSecret]:
    for match in _KNOWN.finditer(text):
        index = next(number for number in range(len(_FORMS)) if match[f"form{number}"] is not None)
        end = match.start() + len(match[0].rstrip())
        yield _secret(text, match.start(), end, _FORMS[index][0], "")


def _secret(text: str, begin: int, end: int, what: str, field: str) -> FoundSecret:
    shown = text[begin : begin + min(_SHOWN, (end - begin) // 3)]
    return FoundSecret(begin, end, what, field, shown)


def masked(text: str, secrets: Sequence[FoundSecret]) -> str:
    """Mask the secrets in a text character by character, so that the length and the line breaks stay the same.

    Args:
        text: The text.
        secrets: The secrets from :func:`secrets_in`.
    """
    pieces: list[str] = []
    at = 0
    for each in secrets:
        begin = each.begin + len(each.shown)
        # Mask with the letter x, because an asterisk starts an alias in YAML.
        pieces += (text[at:begin], re.sub(r"[^\s\\]", "x", text[begin : each.end]))
        at = each.end
    return "".join([*pieces, text[at:]])
