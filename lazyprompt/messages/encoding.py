"""Encodes text to token ids; only trusted text can become a control token.

A control token is a special token, or an added token that is not a plain word, such as ``<think>``. A model interprets
control tokens as structure. The tokenizer encodes the whole text, and the resulting ids and offsets show where the
control tokens are. Usually all control tokens are in trusted text, and the result is the tokenizer's own encoding.

A control token outside trusted text must have been forged by a value. If the text contains a forged token, each trusted
run is encoded alone to find its control tokens, because an adjacent value could hide them. The text is then encoded
again with only the trusted control tokens, in chunks that each begin with a control token. Forged tokens become
ordinary text.

A :class:`TokenCache` stores ids, so a growing chat is not encoded again with each turn. No token extends across a
trusted control token, so the text is split before each control token and each chunk is encoded once. The text is not
split before a token that may consume text to its left, such as white space.
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
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from lazyprompt._base.trusted import Trusted, is_trusted
from lazyprompt.errors import TokenizerError
from lazyprompt.messages.backends import Control, Encoded, HuggingFaceBackend, TekkenBackend, TiktokenBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import tiktoken
    import tokenizers

    from lazyprompt.messages.backends import Backend, Span


class FastTokenizer(Protocol):
    """A fast tokenizer from transformers, or a :class:`TokenCache`."""

    @property
    def backend_tokenizer(self) -> tokenizers.Tokenizer:
        """The wrapped ``tokenizers.Tokenizer``."""
        ...


class Tekkenizer(Protocol):
    """The interface of mistral-common's Tekkenizer, for type checking without that package."""

    def encode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - not typed here
        """Encode a text to token ids."""
        ...

    def decode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - not typed here
        """Decode token ids to text."""
        ...


TokenizerLike: TypeAlias = "tokenizers.Tokenizer | tiktoken.Encoding | FastTokenizer | Tekkenizer"


_SURROGATE_PAIR_OR_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)


def encode(parts: Sequence[str], tokenizer: TokenizerLike) -> Encoded:
    """Encode parts to token ids, so that only trusted text can become a control token.

    No special tokens are added, and the ids are neither truncated nor padded. If the untrusted text forges no control
    token, the ids equal the tokenizer's encoding of the joined parts.

    Args:
        parts: Alternating trusted and untrusted texts (see ``messages/prompt.py``).
        tokenizer: A tokenizer from tokenizers, transformers, tiktoken or mistral-common. It is not modified.

    Returns:
        The ids, and the offsets of each token in the joined parts.

    Raises:
        TokenizerError: The tokenizer's type is not supported, or it cannot encode the text.
    """
    backend = backend_of(tokenizer)
    given = [*map(well_formed, parts)]
    encoded = _encoded(given, backend)
    if sum(map(len, given)) == sum(map(len, parts)):
        return encoded
    origins = _origins(parts)
    return Encoded(encoded.ids, [(origins[start], origins[end]) for start, end in encoded.offsets])


def stretches(parts: Sequence[str], pieces: Callable[[str], Sequence[str]]) -> list[tuple[str, ...]]:
    """Split parts into non-empty chunks that can be encoded separately without changing the ids.

    Args:
        parts: Alternating trusted and untrusted texts.
        pieces: A function that splits trusted text before each control token (see :func:`cut`), but not before tokens
            that may consume text to their left.

    Returns:
        The parts of each chunk, with trusted and untrusted texts alternating. Each chunk after the first begins with a
        control token.
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
    """Split a text before each control token.

    The first returned string is the text before the first control token, which may be empty.
    """
    return tuple(text[start:end] for start, end in pairwise((0, *(start for start, _ in tokens), len(text))))


def _merged(parts: Sequence[str]) -> list[str]:
    """Merge adjacent parts that are both trusted or both untrusted, and drop empty parts after the first."""
    merged = [""]
    for index, part in enumerate(parts):
        if not part:
            continue
        if is_trusted(index, part) != len(merged) % 2:
            merged.append(part)
        else:
            # A high surrogate at the end of a part must not combine with a low surrogate at the start of the next part.
            merged[-1] = well_formed(merged[-1]) + well_formed(part) if merged[-1] else part
    return merged


def _encoded(parts: Sequence[str], backend: Backend) -> Encoded:
    """Encode parts that contain no lone surrogates."""
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
    """Replace lone surrogates, because tokenizers reject them."""
    if part.isascii():
        return part
    text = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Trusted(text) if isinstance(part, Trusted) else text


def _origins(parts: Iterable[str]) -> list[int]:
    """Map each character index after :func:`well_formed` to the character's index in the original parts.

    :func:`well_formed` combines a surrogate pair, which is two characters, into a single character.
    """
    found = (match for part in parts for match in _SURROGATE_PAIR_OR_CHARACTER.finditer(part))
    return list(accumulate((match.end() - match.start() for match in found), initial=0))


def _trusted_runs(parts: Iterable[str]) -> list[Span]:
    """Return the spans of trusted text. Adjacent trusted parts form one span."""
    runs: list[Span] = []
    end = 0
    for index, part in enumerate(parts):
        start, end = end, end + len(part)
        if part and is_trusted(index, part):
            runs.append((runs.pop()[0] if runs and runs[-1][1] == start else start, end))
    return runs


def _lies_in(control: Control, runs: Sequence[Span]) -> bool:
    """Return True if a single run of trusted text contains the whole control token."""
    at = bisect_right(runs, (control.start, sys.maxsize)) - 1
    return at >= 0 and control.end <= runs[at][1]


def backend_of(tokenizer: TokenizerLike) -> Backend:
    """Wrap a tokenizer in the common :class:`Backend` interface.

    Raises:
        TokenizerError: The tokenizer's type is not supported.
    """
    fast: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if _is_a(fast, "tokenizers", "Tokenizer"):
        return HuggingFaceBackend(fast)
    for package, name, kind in (
        ("tiktoken", "Encoding", TiktokenBackend),
        ("mistral_common.tokens.tokenizers.tekken", "Tekkenizer", TekkenBackend),
    ):
        if _is_a(fast, package, name):
            return kind(fast)
    given = type(tokenizer)
    raise TokenizerError(
        "the tokenizer must be a tokenizers.Tokenizer, a tiktoken.Encoding, a Tekkenizer from mistral-common, or a "
        "fast tokenizer from transformers (with a tokenizers.Tokenizer as its backend_tokenizer), not "
        f"{given.__module__}.{given.__qualname__}"
    )


def _is_a(value: object, package: str, name: str) -> bool:
    """Return True if a value is an instance of a class, without importing the package that defines the class.

    Instances of a class can't exist before its package is imported.
    """
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


_V = TypeVar("_V")
# The memory overhead of a cache entry, in bytes.
_ENTRY = 250
# An entry larger than the cache's size limit divided by this number is not cached.
_SHARE = 4


class TokenCache:
    """A tokenizer wrapper that caches the ids of encoded text, for use as ``rendered.encode(cache)``.

    The cache returns exactly the ids that the tokenizer itself would return. Threads and modules may share a cache.

    Args:
        tokenizer: A tokenizer that :meth:`Rendered.encode` accepts.
        max_bytes: The size limit for cached texts and ids, in bytes; the most recently used entries are kept.

    Raises:
        TokenizerError: The tokenizer's type is not supported, or its tokenization is randomized.
    """

    def __init__(self, tokenizer: TokenizerLike, max_bytes: int = 64 * 1024 * 1024) -> None:
        if isinstance(tokenizer, TokenCache):
            raise TokenizerError(
                "the tokenizer is already a TokenCache; use this TokenCache directly (threads can share it)"
            )
        self.tokenizer = tokenizer
        self.max_bytes = max_bytes
        self._lock = Lock()
        # Maps each trusted text to its pieces (see ``cut``), and each separately encoded tuple of prompt parts to its
        # token ids.
        self._kept: OrderedDict[str | tuple[str, ...], Any] = OrderedDict()
        self._size = 0
        # The control tokens used to split the input, as text. `_rules` includes the ids of the control tokens.
        self._tokens = ""
        self._rules = self._rules_with("")

    @property
    def backend_tokenizer(self) -> Any:  # noqa: ANN401 - any package's type
        """The underlying tokenizer, without the transformers wrapper."""
        return getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)

    @property
    def size(self) -> int:
        """The size of the cache in bytes."""
        return self._size

    def __repr__(self) -> str:
        return f"TokenCache({self.tokenizer!r}, max_bytes={self.max_bytes})"

    def __reduce__(self) -> tuple[object, ...]:
        return TokenCache, (self.tokenizer, self.max_bytes)

    def encode(self, parts: Sequence[str]) -> list[int]:
        """Encode parts to token ids, using cached ids where possible.

        The result equals the ids from :func:`~lazyprompt.messages.encoding.encode`.

        Args:
            parts: Alternating trusted and untrusted texts.

        Raises:
            TokenizerError: The tokenizer has changed since the cache was created, or cannot encode the text.
        """
        with self._lock:
            tokens, rules = self._tokens, self._rules
        if self._rules_with(tokens) != rules:
            raise TokenizerError(
                "the tokenizer has changed since its TokenCache was created: its tokens, its rules or the ids of "
                f"{tokens!r} differ; create a new TokenCache"
            )
        if rules is None:
            return encode(parts, self.tokenizer).ids
        return [*chain.from_iterable(map(self._ids, stretches(parts, self._pieces)))]

    def _rules_with(self, tokens: str) -> object:
        return backend_of(self.tokenizer).rules(tokens)

    def _pieces(self, text: str) -> tuple[str, ...]:
        """Split trusted text before its control tokens."""
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
        known: array[int] | None = self._known(stretch)
        if known is not None:
            return known
        ids = array("I", encode(stretch, self.tokenizer).ids)
        return self._keep(stretch, ids, sum(map(getsizeof, stretch)) + len(ids) * ids.itemsize)

    def _known(self, key: str | tuple[str, ...]) -> Any:  # noqa: ANN401 - returns a text's pieces or a stretch's ids
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
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped
        return value
