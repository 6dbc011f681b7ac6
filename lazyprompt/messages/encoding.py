"""Text into token ids, where only trusted text can become a control token.

A control token is one that a model reads as structure: a special token, or an added one that is no plain word, as
``<think>``. The tokenizer encodes the whole text, and its ids and offsets say which control tokens there are and where.
Mostly all of them lie in trusted text, and the result is the tokenizer's own.

Otherwise somebody forged one. Then the tokenizer says which control tokens there are in each trusted run alone, so that
no value can take one from the developer by what it puts beside it; and the text is encoded again with only those, in
stretches from one such token to the next. What was forged becomes the tokens of ordinary text.

A cache keeps ids, so that a chat that grows is not encoded again with each turn. A control token of trusted text parts
what stands on its two sides: no tokenizer makes one token of both. So a text is cut before such tokens, and each
stretch is encoded once. Where a tokenizer's rules let a token reach to its left, as one that takes white space from
before it, there is no cut, and the stretch goes on to the next.
"""

from __future__ import annotations

import re
import sys
from array import array
from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate, chain, pairwise
from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from lazyprompt._base.trusted import Trusted, is_trusted
from lazyprompt.errors import TokenizerError
from lazyprompt.messages.backends import Control, Encoded, HuggingFaceBackend, TekkenBackend, TiktokenBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import tiktoken
    import tokenizers

    from lazyprompt.messages.backends import Backend, Span


class FastTokenizer(Protocol):
    """A fast tokenizer of transformers, or a TokenCache."""

    @property
    def backend_tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer that does its work."""
        ...


class Tekkenizer(Protocol):
    """A tokenizer of mistral-common, which may not be installed."""

    def encode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - not typed here
        """Return the ids of a text."""
        ...

    def decode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - not typed here
        """Return the text of ids."""
        ...


TokenizerLike: TypeAlias = "tokenizers.Tokenizer | tiktoken.Encoding | FastTokenizer | Tekkenizer"


_SURROGATE_PAIR_OR_SIGN = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)


def encode(parts: Sequence[str], tokenizer: TokenizerLike) -> Encoded:
    """Return token ids in which only trusted text is a control token.

    Nothing is added, and nothing is cut off or filled up: a text that is to begin with a token holds it. Where no
    control token was forged, the ids are the tokenizer's own.

    Args:
        parts: The parts, trusted text and other text in turn (``messages/prompt.py``).
        tokenizer: A tokenizer of tokenizers, transformers, tiktoken or mistral-common. It is not changed.

    Returns:
        The ids, and the place of each in the joined parts.

    Raises:
        TokenizerError: The tokenizer is none of these, or cannot encode the text.
    """
    backend = backend_of(tokenizer)
    given = [*map(well_formed, parts)]
    encoded = _encoded(given, backend)
    if sum(map(len, given)) == sum(map(len, parts)):
        return encoded
    origins = _origins(parts)
    return Encoded(encoded.ids, [(origins[start], origins[end]) for start, end in encoded.offsets])


def stretches(parts: Sequence[str], pieces: Callable[[str], Sequence[str]]) -> list[tuple[str, ...]]:
    """Return parts in stretches that a tokenizer encodes on their own as in the whole; none is empty.

    Args:
        parts: The parts.
        pieces: Cuts trusted text (:func:`cut`) before control tokens that part it. These are all but those that a
            tokenizer's rules let reach to their left.

    Returns:
        The parts of each, in which trusted text and other text take turns. All but the first begin with a control
        token.
    """
    found: list[tuple[str, ...]] = []
    stretch: list[str] = []
    for at, text in enumerate(_merged(parts)):
        if at % 2:
            stretch.append(text)
            continue
        first, *others = pieces(text)
        stretch.append(first)
        for piece in others:
            found.append(tuple(stretch))
            stretch = [piece]
    return [each for each in (*found, tuple(stretch)) if each != ("",)]


def cut(text: str, tokens: Iterable[Span]) -> tuple[str, ...]:
    """Cut a text before control tokens; all pieces but the first, which may be empty, begin with one."""
    return tuple(text[start:end] for start, end in pairwise((0, *(start for start, _ in tokens), len(text))))


def _merged(parts: Sequence[str]) -> list[str]:
    """Return parts in which trusted text and other text take turns, and none but the first is empty."""
    merged = [""]
    for index, part in enumerate(parts):
        if not part:
            continue
        if is_trusted(index, part) != len(merged) % 2:
            merged.append(part)
        else:
            # Halves of a surrogate pair in two parts are two signs.
            merged[-1] = well_formed(merged[-1]) + well_formed(part) if merged[-1] else part
    return merged


def _encoded(parts: Sequence[str], backend: Backend) -> Encoded:
    """Encode well-formed parts."""
    text = "".join(parts)
    runs = _trusted_runs(parts)
    encoded = backend.encode(text)
    if all(_lies_in(control, runs) for control in backend.controls(text, encoded)):
        return encoded
    apart = stretches(parts, lambda text: cut(text, backend.cuts(text)))
    if len(apart) > 1:
        whole, at = Encoded([], []), 0
        for stretch in apart:
            ids, offsets = _encoded(stretch, backend)
            whole.ids.extend(ids)
            whole.offsets.extend((start + at, end + at) for start, end in offsets)
            at += sum(map(len, stretch))
        return whole
    allowed = [
        Control(control.id, start + control.start, start + control.end)
        for start, end in runs
        for control in backend.controls(text[start:end], backend.encode(text[start:end]))
    ]
    return backend.encode_with(text, allowed)


def well_formed(part: str) -> str:
    """Replace halves of surrogate pairs, which are no text for tokenizers."""
    if part.isascii():
        return part
    made = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Trusted(made) if isinstance(part, Trusted) else made


def _origins(parts: Iterable[str]) -> list[int]:
    """Return the place that each character of well-formed parts had in the parts as given: some had two halves."""
    signs = (found.end() - found.start() for part in parts for found in _SURROGATE_PAIR_OR_SIGN.finditer(part))
    return list(accumulate(signs, initial=0))


def _trusted_runs(parts: Iterable[str]) -> list[Span]:
    """Return the spans of trusted text; parts with nothing between them are one."""
    runs: list[Span] = []
    end = 0
    for index, part in enumerate(parts):
        start, end = end, end + len(part)
        if part and is_trusted(index, part):
            runs.append((runs.pop()[0] if runs and runs[-1][1] == start else start, end))
    return runs


def _lies_in(control: Control, runs: Sequence[Span]) -> bool:
    """Return True if a control token is wholly in one of the runs."""
    at = bisect_right(runs, (control.start, sys.maxsize)) - 1
    return at >= 0 and control.end <= runs[at][1]


def backend_of(tokenizer: TokenizerLike) -> Backend:
    """Return a tokenizer behind the interface of all.

    Raises:
        TokenizerError: It is of no known kind.
    """
    fast: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if _is_a(fast, "tokenizers", "Tokenizer"):
        return HuggingFaceBackend(cast("tokenizers.Tokenizer", fast))
    for package, name, kind in (
        ("tiktoken", "Encoding", TiktokenBackend),
        ("mistral_common.tokens.tokenizers.tekken", "Tekkenizer", TekkenBackend),
    ):
        if _is_a(fast, package, name):
            return kind(fast)
    given = type(tokenizer)
    raise TokenizerError(
        f"the tokenizer is a {given.__module__}.{given.__qualname__}; it must be a tokenizers.Tokenizer, a "
        "tiktoken.Encoding, a Tekkenizer of mistral-common, or a fast tokenizer of transformers, which has one of the "
        "first as its backend_tokenizer"
    )


def _is_a(value: object, package: str, name: str) -> bool:
    """Return True for a value of a package's class; a package that nobody imported has made no value."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


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

    Raises:
        TokenizerError: It is no tokenizer, or makes other ids of the same text each time.
    """

    def __init__(self, tokenizer: TokenizerLike, max_bytes: int = 64 * 1024 * 1024) -> None:
        if isinstance(tokenizer, TokenCache):
            raise TokenizerError("the tokenizer is a TokenCache: use it as it is, threads and modules may share it")
        self.tokenizer = tokenizer
        self.max_bytes = max_bytes
        self._lock = Lock()
        # The pieces of trusted texts, and the ids of stretches.
        self._kept: OrderedDict[str | tuple[str, ...], Any] = OrderedDict()
        self._size = 0
        # The control tokens at which texts were cut, and the tokenizer's rules, with what it makes of them.
        self._tokens = ""
        self._rules = self._rules_with("")

    @property
    def backend_tokenizer(self) -> Any:  # noqa: ANN401 - of any package
        """The tokenizer, without what a fast one of transformers adds."""
        return getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)

    @property
    def size(self) -> int:
        """The number of bytes in use."""
        return self._size

    def __repr__(self) -> str:
        return f"TokenCache({self.tokenizer!r}, max_bytes={self.max_bytes})"

    def __reduce__(self) -> tuple[object, ...]:
        return TokenCache, (self.tokenizer, self.max_bytes)

    def encode(self, parts: Sequence[str]) -> list[int]:
        """Return the ids of parts, as :func:`~lazyprompt.messages.encoding.encode` does.

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
        if rules is None:
            return encode(parts, self.tokenizer).ids
        return [*chain.from_iterable(map(self._ids, stretches(parts, self._pieces)))]

    def _rules_with(self, tokens: str) -> object:
        return backend_of(self.tokenizer).rules(tokens)

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
        ids = array("I", encode(stretch, self.tokenizer).ids)
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
