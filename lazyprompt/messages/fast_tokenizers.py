"""Fast tokenizers that give ids alone, of the packages fastokens and gigatoken; and the proof that ids are alike.

They tell no places of tokens. So control tokens are looked for here, and a text's ids are taken only if they hold just
those that it spells. Where one is forged, fastokens encodes the text between real ones as ordinary text; gigatoken,
which makes control tokens of any text that spells them, refuses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt.errors import TokenizerError
from lazyprompt.messages.backends import Backend, Control, Encoded, Span, is_control

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


# Texts of which tokenizers make different ids, alone and side by side.
_HARD = (
    *("a", "The order", " of", "it's", "I'LL", "don’t", "Zürich", "e\u0301", "ﬁ", "Ⅷ"),
    *("你好", "ไทย", "हिन्दी", "🙂", "👩‍👩‍👧"),
    *(" ", "  ", "   \t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u200b"),
    *("7", "12345", "3.14", "１２", "x=1;"),
    *("def f(x):\n\treturn x", "<b>", "</", "{{", "]]", "$%^", "...", "—", "\x00", "\x1b"),
    *("http://a.b/c?d=e", "CamelCase"),
    # Letters and signs of Unicode 15, 16 and 17: tables of letters are of one version.
    *(" \U0001e4d0", " \u1c89", " \ua7cb", " \ua7ce", " \u1acf", " \U00016ea0", " \U0001fa8e"),
)
_TRIALS = 500
_CONTROLS = 12


class FastokensBackend:
    """A tokenizer of fastokens."""

    has_places: ClassVar[bool] = False
    package = "fastokens"

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - an extra
        self._tokenizer = tokenizer
        self._size: int = tokenizer.vocab_size
        controls, plain = self._added()
        self._controls = controls
        self._ids = frozenset(controls.values())
        self._search, self._plain = _search([*controls, *plain]), _search(plain)

    def _added(self) -> tuple[Mapping[str, int], Sequence[str]]:
        """Return the control tokens with their ids, and the other added tokens."""
        tokens: list[dict[str, Any]] = self._tokenizer.added_tokens()
        for token in tokens:
            if token["lstrip"] or token["rstrip"] or token["single_word"]:
                raise TokenizerError(
                    f"the token {token['content']!r} takes white space from beside it, or must be a single word: where "
                    "such tokens are is not to be seen with fastokens; use the package tokenizers"
                )
        controls = {
            token["content"]: token["id"] for token in tokens if is_control(token["content"], special=token["special"])
        }
        return controls, [token["content"] for token in tokens if token["content"] not in controls]

    def _ids_of(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def names(self) -> Sequence[str]:
        """Return the control tokens."""
        return [*self._controls]

    def encode(self, text: str) -> Encoded:
        """Encode a text with control tokens."""
        ids = self._ids_of(text)
        if [made for made in ids if made in self._ids] != [control.id for control in self._found(text)]:
            raise TokenizerError(
                f"{self.package} makes other control tokens of a text than it spells: {text[:80]!r}; use the package "
                "tokenizers for it, or give a TokenCache such a tokenizer as like="
            )
        return Encoded(ids, [])

    def _found(self, text: str) -> Iterator[Control]:
        """Yield the control tokens that a text spells."""
        for found in self._search.finditer(text):
            if (made := self._controls.get(found[0])) is not None:
                yield Control(made, *found.span())

    def controls(self, text: str, encoded: Encoded) -> Iterable[Control]:
        """Return the control tokens of an encoded text."""
        del encoded
        return self._found(text)

    def cuts(self, text: str) -> list[Span]:
        """Return the control tokens of a trusted text."""
        return [(control.start, control.end) for control in self._found(text)]

    def rules(self, text: str) -> object:
        """Return what ids hang on."""
        return id(self._tokenizer), self._tokenizer.vocab_size, self._ids_of(text)

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text with only these control tokens, in order."""
        segments: list[tuple[str, bool]] = []
        end = 0
        for control in (*allowed, Control(-1, len(text), len(text))):
            pieces = self._plain.split(text[end : control.start])
            segments += [(piece, at % 2 == 1) for at, piece in enumerate(pieces) if piece]
            segments.append((text[control.start : control.end], True))
            end = control.end
        return Encoded(self._tokenizer.encode_segments(segments).ids, [])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


class GigatokenBackend(FastokensBackend):
    """A tokenizer of gigatoken."""

    package = "gigatoken"

    def _added(self) -> tuple[Mapping[str, int], Sequence[str]]:
        tokens: dict[int, str] = self._tokenizer.as_hf().added_tokens_decoder
        # It does not tell which are special.
        controls = {content: made for made, content in tokens.items() if is_control(content, special=False)}
        return controls, [content for content in tokens.values() if content not in controls]

    def _ids_of(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).tolist()
        return ids

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Refuse a text in which a control token is forged."""
        del allowed
        raise TokenizerError(
            f"gigatoken makes control tokens of any text that spells them, and text that is not trusted does: "
            f"{text[:80]!r}; give a TokenCache a tokenizer of the package tokenizers as like=, which encodes such text"
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        text: bytes = self._tokenizer.decode(ids)
        return text.decode("utf-8", "replace")


@lru_cache(maxsize=4)
def fast_backend(tokenizer: Any, size: int, *, giga: bool) -> FastokensBackend:  # noqa: ANN401 - an extra
    """Return the backend of a fast tokenizer, whose tokens are read once for each size of its vocabulary."""
    del size
    return (GigatokenBackend if giga else FastokensBackend)(tokenizer)


def check_alike(backend: Backend, like: Backend) -> None:
    """Check that two tokenizers make the same ids of texts on which tokenizers differ.

    Args:
        backend: A tokenizer.
        like: The other one.

    Raises:
        TokenizerError: They do not; it shows the first text, the shorter ones first.
    """
    chance = Random(0)  # noqa: S311 - texts to try
    pieces = [*_HARD, *like.names()[:_CONTROLS]]
    mixed = ("".join(chance.choices(pieces, k=1 + at * 8 // _TRIALS)) for at in range(_TRIALS))
    for text in (*pieces, *mixed):
        ours, theirs = backend.encode(text).ids, like.encode(text).ids
        if ours != theirs:
            raise TokenizerError(
                f"the tokenizer is not like the other: of {text!r} it makes the ids {ours}, not {theirs}"
            )


def _search(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return the search for tokens, the longest first; for none, one that finds nothing."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(tokens, key=len, reverse=True))) or '(?!)'})")
