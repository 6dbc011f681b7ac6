"""A cache of token ids, so that a chat that grows is not encoded again with each turn.

A control token of trusted text parts what stands on its two sides: no tokenizer makes one token of both. So a text is
cut before such tokens, and each stretch is encoded once. Where a tokenizer's rules let a token reach to its left, as
one that takes white space from before it, there is no cut, and the stretch goes on to the next.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from functools import partial
from itertools import chain
from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from lazyprompt.errors import TokenizerError
from lazyprompt.messages.encoding import backend_of, cut, encode_ids, stretches
from lazyprompt.messages.fast_tokenizers import check_alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.encoding import TokenizerLike

_V = TypeVar("_V")
# An entry's place in the cache, beside its texts and its ids.
_ENTRY = 250
# Larger stretches would push out all others.
_SHARE = 4


class TokenCache:
    """A tokenizer that keeps the ids of what it has encoded: ``rendered.encode(cache)``.

    The ids are always those of the tokenizer itself. Threads and modules may share a cache.

    Args:
        tokenizer: A tokenizer, as of :meth:`Rendered.encode`.
        max_bytes: The most bytes that texts and ids may take; those that were used last are kept.
        like: A tokenizer of the package tokenizers that makes the same ids, which some hundred texts prove at once. It
            encodes what a fast one refuses, as gigatoken a text with forged control tokens.

    Raises:
        TokenizerError: It is no tokenizer, or makes other ids of the same text each time; or other ids than ``like``,
            with the text that shows it.
    """

    def __init__(
        self, tokenizer: TokenizerLike, max_bytes: int = 64 * 1024 * 1024, *, like: TokenizerLike | None = None
    ) -> None:
        if isinstance(tokenizer, TokenCache):
            raise TokenizerError("the tokenizer is a TokenCache: use it as it is, threads and modules may share it")
        self.tokenizer = tokenizer
        self.max_bytes = max_bytes
        self.like = like
        self._lock = Lock()
        # The pieces of trusted texts, and the ids of stretches.
        self._kept: OrderedDict[str | tuple[str, ...], Any] = OrderedDict()
        self._size = 0
        # The control tokens at which texts were cut, and the tokenizer's rules, with what it makes of them.
        self._tokens = ""
        self._rules = self._rules_with("")
        if like is not None:
            check_alike(backend_of(tokenizer), backend_of(like))

    @property
    def backend_tokenizer(self) -> Any:  # noqa: ANN401 - of any package
        """The tokenizer that tells the places of tokens: ``like``, if there is one."""
        tokenizer = self.tokenizer if self.like is None else self.like
        return getattr(tokenizer, "backend_tokenizer", tokenizer)

    @property
    def size(self) -> int:
        """The number of bytes in use."""
        return self._size

    def __repr__(self) -> str:
        return f"TokenCache({self.tokenizer!r}, max_bytes={self.max_bytes})"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(TokenCache, like=self.like), (self.tokenizer, self.max_bytes)

    def encode(self, parts: Sequence[str]) -> list[int]:
        """Return the ids of parts, as :func:`~lazyprompt.messages.encoding.encode_ids` does.

        Args:
            parts: The parts, trusted text and other text in turn.

        Raises:
            TokenizerError: The tokenizer has changed since the cache was made, or cannot encode the text.
        """
        with self._lock:
            tokens, rules = self._tokens, self._rules
        if self._rules_with(tokens) != rules:
            raise TokenizerError(
                "the tokenizer has changed since its TokenCache was made: it has other tokens or rules, or makes other "
                f"ids of {tokens!r}; make a new TokenCache"
            )
        if None in rules:
            return encode_ids(parts, self.tokenizer)
        return [*chain.from_iterable(map(self._ids, stretches(parts, self._pieces)))]

    def _rules_with(self, tokens: str) -> list[object]:
        return [backend_of(each).rules(tokens) for each in (self.tokenizer, self.like) if each is not None]

    def _pieces(self, text: str) -> tuple[str, ...]:
        """Return trusted text in pieces; all but the first begin with a control token."""
        known: tuple[str, ...] | None = self._known(text)
        if known is not None:
            return known
        tokens = backend_of(self.tokenizer).cuts(text)
        with self._lock:
            for token in dict.fromkeys(f" {text[start:end]} " for start, end in tokens):
                if token not in self._tokens:
                    self._tokens += token
            self._rules = self._rules_with(self._tokens)
        pieces = cut(text, tokens)
        return self._keep(text, pieces, getsizeof(text) + sum(map(getsizeof, pieces)))

    def _ids(self, stretch: tuple[str, ...]) -> array[int]:
        """Return the ids of a stretch."""
        known: array[int] | None = self._known(stretch)
        if known is not None:
            return known
        try:
            made = encode_ids(stretch, self.tokenizer)
        except TokenizerError:
            if self.like is None:
                raise
            made = encode_ids(stretch, self.like)
        ids = array("I", made)
        return self._keep(stretch, ids, sum(map(getsizeof, stretch)) + len(ids) * ids.itemsize)

    def _known(self, key: str | tuple[str, ...]) -> Any:  # noqa: ANN401 - of a text pieces, of a stretch ids
        with self._lock:
            if (kept := self._kept.get(key)) is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def _keep(self, key: str | tuple[str, ...], value: _V, size: int) -> _V:
        size += _ENTRY
        with self._lock:
            if size * _SHARE <= self.max_bytes and key not in self._kept:
                self._kept[key] = value, size
                self._size += size
            while self._size > self.max_bytes:
                _, (_, let_go) = self._kept.popitem(last=False)
                self._size -= let_go
        return value
