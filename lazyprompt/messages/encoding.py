"""Text into token ids, where only trusted text can become a control token.

A control token is one that a model reads as structure: a special token, or an added one that is no plain word, as
``<think>``. The tokenizer encodes the whole text, and its ids and offsets say which control tokens there are and where.
Mostly all of them lie in trusted text, and the result is the tokenizer's own.

Otherwise somebody forged one. Then the tokenizer says which control tokens there are in each trusted run alone, so that
no value can take one from the developer by what it puts beside it; and the text is encoded again with only those, in
stretches from one such token to the next. What was forged becomes the tokens of ordinary text.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from lazyprompt._base.trusted import Trusted, is_trusted
from lazyprompt.errors import TokenizerError
from lazyprompt.messages.backends import Control, Encoded, HuggingFaceBackend, TekkenBackend, TiktokenBackend
from lazyprompt.messages.fast_tokenizers import fast_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import tiktoken
    import tokenizers

    from lazyprompt.messages.backends import Backend, Span

__all__ = ["Encoded", "FastTokenizer", "TokenizerLike", "backend_of", "cut", "encode", "encode_ids", "stretches"]


class FastTokenizer(Protocol):
    """A fast tokenizer of transformers, or a TokenCache."""

    @property
    def backend_tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer that does its work."""
        ...


class OtherTokenizer(Protocol):
    """A tokenizer of mistral-common, fastokens or gigatoken, which may not be installed."""

    def encode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - each its own
        """Return the ids of a text."""
        ...

    def decode(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - each its own
        """Return the text of ids."""
        ...


TokenizerLike: TypeAlias = "tokenizers.Tokenizer | tiktoken.Encoding | FastTokenizer | OtherTokenizer"


_SURROGATE_PAIR_OR_SIGN = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)


def encode(parts: Sequence[str], tokenizer: TokenizerLike) -> Encoded:
    """Return token ids in which only trusted text is a control token.

    Nothing is added, and nothing is cut off or filled up: a text that is to begin with a token holds it. Where no
    control token was forged, the ids are the tokenizer's own.

    Args:
        parts: The parts, trusted text and other text in turn (``messages/prompt.py``).
        tokenizer: A tokenizer that tells places: of tokenizers, transformers, tiktoken or mistral-common. It is not
            changed.

    Returns:
        The ids, and the place of each in the joined parts.

    Raises:
        TokenizerError: The tokenizer is none of these, or cannot encode the text.
    """
    backend = backend_of(tokenizer)
    if not backend.has_places:
        raise TokenizerError(
            f"{tokenizer!r} does not tell the places of tokens in a text, which are needed here; give a tokenizer of "
            "the package tokenizers"
        )
    given = [*map(well_formed, parts)]
    encoded = _encoded(given, backend)
    if sum(map(len, given)) == sum(map(len, parts)):
        return encoded
    origins = _origins(parts)
    return Encoded(encoded.ids, [(origins[start], origins[end]) for start, end in encoded.offsets])


def encode_ids(parts: Sequence[str], tokenizer: TokenizerLike) -> list[int]:
    """Return the ids of :func:`encode`, also of tokenizers that do not tell places: of fastokens and gigatoken.

    Args:
        parts: The parts.
        tokenizer: The tokenizer.

    Raises:
        TokenizerError: The tokenizer is of no known kind, or cannot encode the text.
    """
    return _encoded([*map(well_formed, parts)], backend_of(tokenizer)).ids


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
    for package in ("fastokens", "gigatoken"):
        if _is_a(fast, package, "Tokenizer"):
            return fast_backend(fast, fast.vocab_size, giga=package == "gigatoken")
    given = type(tokenizer)
    raise TokenizerError(
        f"the tokenizer is a {given.__module__}.{given.__qualname__}; it must be a tokenizers.Tokenizer, a "
        "tiktoken.Encoding, a Tekkenizer of mistral-common, a Tokenizer of fastokens or gigatoken, or a fast tokenizer "
        "of transformers, which has one of the first as its backend_tokenizer"
    )


def _is_a(value: object, package: str, name: str) -> bool:
    """Return True for a value of a package's class; a package that nobody imported has made no value."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
