"""Text into token ids, where only trusted text can become a control token.

A control token is one that a model reads as structure: a special token, or an added one that is no plain word, as
``<think>``. No search of ours finds them, for flags, normalisers and overlapping tokens are a tokenizer's own business.
The tokenizer encodes the whole text, and its ids and offsets say which control tokens there are and where. Mostly all
of them lie in trusted text, and the result is the tokenizer's own.

Otherwise somebody forged one. Then the tokenizer says which control tokens there are in each trusted run alone, so that
no value can take one from the developer by what it puts beside it; and the text is encoded again with only those. What
was forged becomes the tokens of ordinary text.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, compress, count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast
from weakref import WeakKeyDictionary

from lazyprompt._base.trusted import Trusted, is_trusted
from lazyprompt.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tiktoken
    import tokenizers
    from tokenizers import models, normalizers

Span: TypeAlias = tuple[int, int]


class FastTokenizer(Protocol):
    """A fast tokenizer of transformers."""

    @property
    def backend_tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer that does its work."""
        ...


TokenizerLike: TypeAlias = "tokenizers.Tokenizer | tiktoken.Encoding | FastTokenizer"


class Encoded(NamedTuple):
    """A text as tokens.

    Attributes:
        ids: The token ids.
        offsets: The characters of each token in the text, from one index to another. A token with a part of a
            character's bytes has that character. What a tokenizer leaves out or moves, as white space, is as it says.
    """

    ids: list[int]
    offsets: list[Span]


class _Control(NamedTuple):
    """A control token in a text, without white space that it takes from beside it."""

    id: int
    start: int
    end: int


class _Known(NamedTuple):
    """A tokenizer's added tokens.

    Attributes:
        size: The size of the vocabulary for which this holds.
        controls: The control tokens by their ids.
        plain: The other added tokens.
        unknown: What the model makes of signs it does not know, which is mostly a special token.
    """

    size: int
    controls: Mapping[int, tokenizers.AddedToken]
    plain: Sequence[tuple[int, tokenizers.AddedToken]]
    unknown: frozenset[int]


class _Vocabulary(NamedTuple):
    """An encoding's tokens.

    Attributes:
        special: The special tokens.
        special_ids: Their ids.
        signs: How many signs begin in a token, for those that were seen.
        inner: The tokens among them that begin inside a sign.
    """

    special: frozenset[str]
    special_ids: frozenset[int]
    signs: dict[int, int]
    inner: set[int]


# Read once for each tokenizer, and again when it has got more tokens; forgotten together with the tokenizer.
_KNOWN: WeakKeyDictionary[tokenizers.Tokenizer, _Known] = WeakKeyDictionary()
_VOCABULARIES: WeakKeyDictionary[tiktoken.Encoding, _Vocabulary] = WeakKeyDictionary()

_SURROGATE_PAIR_OR_SIGN = re.compile("[\ud800-\udbff][\udc00-\udfff]|.", re.DOTALL)
# Tokens of byte fallback are the only spelling of what they stand for, as are tokens of one sign.
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# SentencePiece's sign for a space.
_SPACE = "\u2581"
# Symbols that no word holds, no normaliser changes and hardly a text has: notes of Byzantine music, dominoes; then
# private signs.
_SIGNS = (range(0x1D000, 0x1D0F6), range(0x1F030, 0x1F094), range(0xF0000, 0x110000))
# No model has learnt this one.
_UNKNOWN = "\U0010fffd"
# No sign's first byte in UTF-8.
_INNER_BYTES = bytes(range(0x80, 0xC0))
# Of a million white spaces in a row tiktoken's patterns overflow, and Rust panics.
_LONG = 500_000
_SPACES = re.compile(r"\s+")


def encode(parts: Sequence[str], tokenizer: TokenizerLike) -> Encoded:
    """Return token ids in which only trusted text is a control token.

    Nothing is added, and nothing is cut off or filled up: a text that is to begin with a token holds it. Where no
    control token was forged, the ids are the tokenizer's own.

    Args:
        parts: The parts, trusted text and other text in turn (``messages/prompt.py``).
        tokenizer: A ``tokenizers.Tokenizer``, a ``tiktoken.Encoding`` or a fast tokenizer of transformers. It is not
            changed.

    Returns:
        The ids, and the place of each in the joined parts.

    Raises:
        TokenizerError: The tokenizer is none of these, or cannot encode the text.
    """
    backend = _backend(tokenizer)
    given = list(map(_well_formed, parts))
    text = "".join(given)
    runs = _trusted_runs(given)
    encoded = backend.encode(text)
    if not all(_lies_in(control, runs) for control in backend.controls(text, encoded)):
        allowed = [
            _Control(control.id, start + control.start, start + control.end)
            for start, end in runs
            for control in backend.controls(text[start:end], backend.encode(text[start:end]))
        ]
        encoded = backend.encode_with(text, allowed)
    if len(text) == sum(map(len, parts)):
        return encoded
    origins = _origins(parts)
    return Encoded(encoded.ids, [(origins[start], origins[end]) for start, end in encoded.offsets])


def _well_formed(part: str) -> str:
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


def _lies_in(control: _Control, runs: Sequence[Span]) -> bool:
    """Return True if a control token is wholly in one of the runs."""
    at = bisect_right(runs, (control.start, sys.maxsize)) - 1
    return at >= 0 and control.end <= runs[at][1]


def _backend(tokenizer: TokenizerLike) -> _HuggingFace | _Tiktoken:
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if _is_a(fast, "tokenizers", "Tokenizer"):
        return _HuggingFace(cast("tokenizers.Tokenizer", fast))
    if _is_a(tokenizer, "tiktoken", "Encoding"):
        return _Tiktoken(cast("tiktoken.Encoding", tokenizer))
    kind = type(tokenizer)
    raise TokenizerError(
        f"the tokenizer is a {kind.__module__}.{kind.__qualname__}; it must be a tokenizers.Tokenizer, a "
        "tiktoken.Encoding, or a fast tokenizer of transformers, which has one of the first as its backend_tokenizer"
    )


def _is_a(value: object, package: str, name: str) -> bool:
    """Return True for a value of a package's class; a package that nobody imported has made no value."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


class _HuggingFace:
    """A tokenizer of the package tokenizers."""

    __slots__ = ("_known", "_tokenizer")

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known = _known(tokenizer)

    def encode(self, text: str) -> Encoded:
        """Encode a whole text."""
        tokenizer = self._tokenizer
        if all(getattr(tokenizer, name) is None for name in ("truncation", "padding")):
            encoding = _encoding(tokenizer, text)
            return Encoded(encoding.ids, encoding.offsets)
        whole, ids = self._copy((*self._known.plain, *self._known.controls.items()), _unused(text))
        whole.encode_special_tokens = tokenizer.encode_special_tokens
        encoding = _encoding(whole, text)
        return Encoded([ids.get(made, made) for made in encoding.ids], encoding.offsets)

    def controls(self, text: str, encoded: Encoded) -> Iterator[_Control]:
        """Yield the control tokens of an encoded text."""
        controls, unknown = self._known.controls, self._known.unknown
        for at in compress(count(), map(controls.__contains__, encoded.ids)):
            made = encoded.ids[at]
            content = controls[made].content
            start, end = encoded.offsets[at]
            behind = text[start:end].lstrip()
            inner = behind.rstrip()
            if made in unknown and self._normal(inner) != self._normal(content):
                continue
            start = end - len(behind)
            end = start + len(inner)
            # White space around a token may be taken from beside it; or be its own, and left out of the offsets.
            own = content.lstrip()
            before, after = content[: len(content) - len(own)], own[len(own.rstrip()) :]
            if text.endswith(before, 0, start):
                start -= len(before)
            if text.startswith(after, end):
                end += len(after)
            yield _Control(made, start, end)

    def encode_with(self, text: str, allowed: Sequence[_Control]) -> Encoded:
        """Encode a text with only these control tokens, in order.

        Cutting it at them would change what the tokenizer does where a text begins. So a copy without any control token
        has signs that the text does not hold in their place.
        """
        known = self._known
        signs = _unused(text)
        sign_of = dict(zip(dict.fromkeys(control.id for control in allowed), signs, strict=False))
        stand_ins = [(made, self._stand_in(sign, known.controls[made])) for made, sign in sign_of.items()]
        copy, real = self._copy((*known.plain, *stand_ins), signs)
        while True:
            marked, starts, shrunk = _marked(text, allowed, sign_of)
            encoding = _encoding(copy, marked)
            made_of = list(zip(encoding.ids, encoding.offsets, strict=True))
            seen = [(real[made], span) for made, span in made_of if real.get(made) in sign_of]
            if len(seen) >= len(allowed):
                break
            # What stands beside a token can keep the tokenizer from seeing it, as one that must be a single word.
            places = {marked.find(sign_of[made], start, end) for made, (start, end) in seen}
            allowed = [control for control, start in zip(allowed, starts, strict=True) if start in places]
        encoded = Encoded([], [])
        for made, (start, end) in made_of:
            ids = [real[made]] if made in real else self._harmless(made)
            span = (start + shrunk[bisect_left(starts, start)], end + shrunk[bisect_left(starts, end)])
            encoded.ids.extend(ids)
            encoded.offsets.extend([span] * len(ids))
        return encoded

    def _copy(
        self, added: Sequence[tuple[int, tokenizers.AddedToken]], signs: Iterator[str]
    ) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        """Return a copy with these added tokens, which shares the model, and their ids by their ids in the copy."""
        from tokenizers import AddedToken, Tokenizer  # noqa: PLC0415 - an extra

        model = self._tokenizer.model
        copy: Any = Tokenizer(model)
        for name in ("normalizer", "pre_tokenizer", "post_processor"):
            if (part := getattr(self._tokenizer, name)) is not None:
                setattr(copy, name, part)
        size = copy.get_vocab_size()
        if any(model.id_to_token(made) is not None for made in range(size, size + len(added))):
            # A vocabulary with gaps has ids beyond its size, which are not to be given once more.
            sign, top = next(signs), max(copy.get_vocab().values())
            copy.add_tokens([AddedToken(f"{sign}{made}", normalized=False) for made in range(size, top + 1)])
        copy.add_tokens([token for _, token in added])
        return copy, {copy.token_to_id(token.content): made for made, token in added}

    def _stand_in(self, sign: str, token: tokenizers.AddedToken) -> tokenizers.AddedToken:
        """Return a character as an added token that the tokenizer treats as it treats another one."""
        from tokenizers import AddedToken  # noqa: PLC0415 - an extra

        return AddedToken(
            sign,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            # Where the normaliser drops the sign it must not see it.
            normalized=token.normalized and sign in self._normal(sign),
        )

    def _harmless(self, made: int) -> list[int]:
        """Return a token that the model made of text; a control token is broken into others."""
        if not self._is_control(made):
            return [made]
        model: models.Model = self._tokenizer.model
        value = cast("str", model.id_to_token(made))
        ids: list[int] = []
        # Signs that all stand apart cannot make a control token: one sign is none that the model has.
        for pieces in ((value[0], value[1:]), value):
            ids = [token.id for piece in pieces for token in _tokens(model, piece)]
            if not any(map(self._is_control, ids)):
                break
        return ids

    def _normal(self, text: str) -> str:
        normalizer: normalizers.Normalizer | None = self._tokenizer.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _is_control(self, made: int) -> bool:
        return made in self._known.controls and made not in self._known.unknown


class _Tiktoken:
    """An encoding of tiktoken."""

    __slots__ = ("_encoding", "_known")

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        known = _VOCABULARIES.get(encoding)
        if known is None:
            special = frozenset(encoding.special_tokens_set)
            ids = frozenset(map(encoding.encode_single_token, special))
            known = _VOCABULARIES[encoding] = _Vocabulary(special, ids, {}, set())
        self._known = known

    def encode(self, text: str) -> Encoded:
        """Encode a text with special tokens."""
        encode, special = self._encoding.encode, self._known.special
        pieces = [encode(piece, allowed_special=special, disallowed_special=()) for piece in _pieces(text)]
        return self._encoded(pieces[0] if len(pieces) == 1 else [*chain.from_iterable(pieces)])

    def controls(self, text: str, encoded: Encoded) -> Iterator[_Control]:
        """Yield the special tokens of an encoded text."""
        del text
        for at in compress(count(), map(self._known.special_ids.__contains__, encoded.ids)):
            yield _Control(encoded.ids[at], *encoded.offsets[at])

    def encode_with(self, text: str, allowed: Sequence[_Control]) -> Encoded:
        """Encode a text with only these special tokens, in order; tiktoken itself cuts a text at them first."""
        ids: list[int] = []
        end = 0
        for control in allowed:
            ids += self._ordinary(text[end : control.start])
            ids.append(control.id)
            end = control.end
        return self._encoded(ids + self._ordinary(text[end:]))

    def _ordinary(self, text: str) -> list[int]:
        return [made for piece in _pieces(text) for made in self._encoding.encode_ordinary(piece)]

    def _encoded(self, ids: list[int]) -> Encoded:
        """Add offsets to ids."""
        signs, inner = self._known.signs, self._known.inner
        for made in set(ids).difference(signs):
            piece = self._encoding.decode_single_token_bytes(made)
            if piece[0] in _INNER_BYTES:
                inner.add(made)
            signs[made] = len(piece.translate(None, _INNER_BYTES))
        offsets = list(pairwise(accumulate(map(signs.__getitem__, ids), initial=0)))
        # A token that begins inside a sign has that sign too.
        for at in compress(count(), map(inner.__contains__, ids)):
            start, end = offsets[at]
            offsets[at] = (start - 1, end)
        return Encoded(ids, offsets)


def _known(tokenizer: tokenizers.Tokenizer) -> _Known:
    """Return a tokenizer's added tokens, read again where some were added."""
    size = tokenizer.get_vocab_size()
    try:
        known = _KNOWN.get(tokenizer)
    except TypeError:
        # Older versions of the package know no weak references.
        return _read(tokenizer, size)
    if known is None or known.size != size:
        known = _KNOWN[tokenizer] = _read(tokenizer, size)
    return known


def _read(tokenizer: tokenizers.Tokenizer, size: int) -> _Known:
    model = tokenizer.model
    controls: dict[int, tokenizers.AddedToken] = {}
    plain: list[tuple[int, tokenizers.AddedToken]] = []
    for made, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        content = token.content
        if len(content) == 1:
            is_control = token.special and model.token_to_id(content) != made
        else:
            is_control = (token.special or not _is_plain(content)) and not _BYTE.fullmatch(content)
        if is_control:
            controls[made] = token
        else:
            plain.append((made, token))
    try:
        unknown = [token.id for token in _tokens(model, _UNKNOWN)]
    except TokenizerError:
        unknown = []
    return _Known(size, controls, plain, frozenset(unknown))


def _is_plain(content: str) -> bool:
    return all(sign.isalnum() or sign.isspace() or sign == _SPACE for sign in content)


def _tokens(model: models.Model, text: str) -> list[tokenizers.Token]:
    """Encode a text by the model alone."""
    try:
        return model.tokenize(text)
    except Exception as error:  # the package has no other error
        raise TokenizerError(f"the tokenizer's model cannot encode {text!r}: {error}") from error


def _encoding(tokenizer: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # the package has no other error
        raise TokenizerError(f"the tokenizer cannot encode the text: {error}") from error


def _unused(text: Iterable[str]) -> Iterator[str]:
    """Yield characters that a text does not hold."""
    used = set(text)
    return (sign for sign in map(chr, chain(*_SIGNS)) if sign not in used)


def _marked(text: str, controls: Sequence[_Control], sign_of: Mapping[int, str]) -> tuple[str, list[int], list[int]]:
    """Put characters in the place of control tokens.

    Args:
        text: The text.
        controls: The control tokens in it, in order.
        sign_of: The sign for each id.

    Returns:
        The text, where each sign is in it, and by how much it is shorter before the first of them, the second, and so
        on, and in the end.
    """
    pieces: list[str] = []
    starts: list[int] = []
    shrunk = [0]
    before = 0
    for control in controls:
        pieces += (text[before : control.start], sign_of[control.id])
        starts.append(control.start - shrunk[-1])
        shrunk.append(shrunk[-1] + control.end - control.start - 1)
        before = control.end
    return "".join((*pieces, text[before:])), starts, shrunk


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that tiktoken can encode: only very long white space makes two or more."""
    start = 0
    if len(text) > _LONG:
        for spaces in _SPACES.finditer(text):
            for end in range(spaces.start() + _LONG, spaces.end(), _LONG):
                yield text[start:end]
                start = end
    yield text[start:]
