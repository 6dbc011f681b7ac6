"""Tokenizers of several packages behind one interface: ids and places of tokens, with control tokens or without.

No search of ours finds control tokens, for flags, normalisers and overlapping tokens are a tokenizer's own business.
The tokenizer encodes the text, and its ids and offsets say which there are and where.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from itertools import accumulate, chain, compress, count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast
from weakref import WeakKeyDictionary

from lazyprompt.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tokenizers
    from tokenizers import models, normalizers

Span: TypeAlias = tuple[int, int]


class Encoded(NamedTuple):
    """A text as tokens.

    Attributes:
        ids: The token ids.
        offsets: The characters of each token in the text, from one index to another. A token with a part of a
            character's bytes has that character. What a tokenizer leaves out or moves, as white space, is as it says.
    """

    ids: list[int]
    offsets: list[Span]


class Control(NamedTuple):
    """A control token in a text, without white space that it takes from beside it."""

    id: int
    start: int
    end: int


class _AddedTokens(NamedTuple):
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
        special: The special tokens with their ids.
        names: The special tokens by their ids.
        search: The search for special tokens.
        signs: How many signs begin in a token, for those that were seen.
        inner: The tokens among them that begin inside a sign.
    """

    special: Mapping[str, int]
    names: Mapping[int, str]
    search: re.Pattern[str]
    signs: dict[int, int]
    inner: set[int]


# Read once for each tokenizer, and again when it has got more tokens; forgotten together with the tokenizer.
_KNOWN: WeakKeyDictionary[tokenizers.Tokenizer, _AddedTokens] = WeakKeyDictionary()
_VOCABULARIES: WeakKeyDictionary[object, _Vocabulary] = WeakKeyDictionary()

# Tokens of byte fallback are the only spelling of what they stand for, as are tokens of one sign.
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# SentencePiece's sign for a space.
_SPACE = "\u2581"
# Symbols that no word holds, no normaliser changes and hardly a text has: notes of Byzantine music, dominoes; then
# private signs.
_SIGNS = (range(0x1D000, 0x1D0F6), range(0x1F030, 0x1F094), range(0xF0000, 0x110000))
_NO_NORMALIZER: Mapping[str, object] = {"type": "Sequence", "normalizers": []}
# No model has learnt this one.
_UNKNOWN = "\U0010fffd"
# No sign's first byte in UTF-8.
_INNER_BYTES = bytes(range(0x80, 0xC0))
# Of a million white spaces in a row tiktoken's patterns overflow, and Rust panics.
_LONG = 500_000
_SPACES = re.compile(r"\s+")


class Backend(Protocol):
    """A tokenizer of some package."""

    def encode(self, text: str) -> Encoded:
        """Encode a text with control tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens too."""
        ...

    def controls(self, text: str, encoded: Encoded) -> Iterable[Control]:
        """Return the control tokens of an encoded text."""
        ...

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text with only these control tokens, in order."""
        ...

    def cuts(self, text: str) -> list[Span]:
        """Return the control tokens of a trusted text before which it can be cut."""
        ...

    def rules(self, text: str) -> object:
        """Return what the ids of all texts hang on, with those of this one; None if nobody knows it.

        Raises:
            TokenizerError: They hang on chance.
        """
        ...


class HuggingFaceBackend:
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

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def controls(self, text: str, encoded: Encoded) -> Iterator[Control]:
        """Yield the control tokens of an encoded text."""
        controls, unknown = self._known.controls, self._known.unknown
        for at in compress(count(), map(controls.__contains__, encoded.ids)):
            made = encoded.ids[at]
            content = controls[made].content
            start, end = encoded.offsets[at]
            behind = text[start:end].lstrip()
            if not behind and (place := text.find(content, start, end)) >= 0:
                # A token of white space alone: its own text comes first, then what it takes from beside it.
                yield Control(made, place, place + len(content))
                continue
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
            yield Control(made, start, end)

    def rules(self, text: str) -> object:
        """Return what ids hang on."""
        tokenizer = self._tokenizer
        if dropout := getattr(tokenizer.model, "dropout", None):
            raise TokenizerError(
                f"the tokenizer's model leaves out merges by chance (dropout={dropout}), so that a text has other ids "
                "each time; set its dropout to None"
            )
        try:
            steps = (tokenizer.normalizer, tokenizer.pre_tokenizer)
            states = [None if step is None else step.__getstate__() for step in steps]
        except Exception:  # noqa: BLE001 - the package has no other error; of a part written in Python nobody knows
            return None
        return id(tokenizer), self._known.size, tokenizer.encode_special_tokens, *states, self.encode(text).ids

    def cuts(self, text: str) -> list[Span]:
        """Return the control tokens of a trusted text before which it can be cut."""
        tokenizer, normalizer = self._tokenizer, self._tokenizer.normalizer
        if tokenizer.encode_special_tokens:
            return []
        as_written = normalizer is None or json.loads(normalizer.__getstate__()) == _NO_NORMALIZER
        found: list[Span] = []
        for control in self.controls(text, self.encode(text)):
            token = self._known.controls[control.id]
            first = token.content[0]
            if (
                not (token.lstrip or token.single_word or first.isspace() or first.isalnum() or first == "_")
                and (as_written or not token.normalized)
                and text[control.start : control.end] == token.content
            ):
                found.append((control.start, control.end))
        return found

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text with only these control tokens, in order.

        Cutting it at them would change what the tokenizer does where a text begins. So a copy without any control token
        has signs that the text does not hold in their place.
        """
        known = self._known
        signs = _unused(text)
        # Tokens that overlap are left out: only then does each round below leave fewer of them, and the loop ends.
        before = accumulate((control.end for control in allowed), max, initial=0)
        allowed = [control for control, end in zip(allowed, before, strict=False) if control.start >= end]
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


class TiktokenBackend:
    """An encoding of tiktoken."""

    __slots__ = ("_encoding", "_known")

    def __init__(self, encoding: Any) -> None:  # noqa: ANN401 - Tekken's is another
        self._encoding = encoding
        known = _VOCABULARIES.get(encoding)
        if known is None:
            special = self._special()
            names = {made: name for name, made in special.items()}
            search = re.compile(f"({'|'.join(map(re.escape, sorted(special, key=len, reverse=True)))})")
            known = _VOCABULARIES[encoding] = _Vocabulary(special, names, search, {}, set())
        self._known = known

    def _special(self) -> dict[str, int]:
        """Return the special tokens with their ids."""
        return {name: self._encoding.encode_single_token(name) for name in self._encoding.special_tokens_set}

    def _whole(self, text: str) -> list[int]:
        """Encode a text with special tokens."""
        return cast("list[int]", self._encoding.encode(text, allowed_special="all"))

    def _plain(self, text: str) -> list[int]:
        """Encode a text without special tokens."""
        return cast("list[int]", self._encoding.encode_ordinary(text))

    def _bytes(self, made: int) -> bytes:
        """Return the bytes of a token."""
        return cast("bytes", self._encoding.decode_single_token_bytes(made))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return cast("str", self._encoding.decode(ids))

    def encode(self, text: str) -> Encoded:
        """Encode a text with special tokens."""
        pieces = [*map(self._whole, _pieces(text))]
        return self._encoded(pieces[0] if len(pieces) == 1 else [*chain.from_iterable(pieces)])

    def controls(self, text: str, encoded: Encoded) -> Iterator[Control]:
        """Yield the special tokens of an encoded text."""
        del text
        for at in compress(count(), map(self._known.names.__contains__, encoded.ids)):
            yield Control(encoded.ids[at], *encoded.offsets[at])

    def rules(self, text: str) -> object:
        """Return what ids hang on: an encoding never changes."""
        del text
        return id(self._encoding)

    def cuts(self, text: str) -> list[Span]:
        """Return the special tokens of a trusted text."""
        return [(control.start, control.end) for control in self.controls(text, self.encode(text))]

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text with only these special tokens, in order; tiktoken itself cuts a text at them first."""
        ids: list[int] = []
        end = 0
        for control in allowed:
            ids += self._ordinary(text[end : control.start])
            ids.append(control.id)
            end = control.end
        return self._encoded(ids + self._ordinary(text[end:]))

    def _ordinary(self, text: str) -> list[int]:
        return [made for piece in _pieces(text) for made in self._plain(piece)]

    def _encoded(self, ids: list[int]) -> Encoded:
        """Add offsets to ids."""
        signs, inner = self._known.signs, self._known.inner
        for made in set(ids).difference(signs):
            piece = self._bytes(made)
            if piece[0] in _INNER_BYTES:
                inner.add(made)
            signs[made] = len(piece.translate(None, _INNER_BYTES))
        offsets = list(pairwise(accumulate(map(signs.__getitem__, ids), initial=0)))
        # A token that begins inside a sign has that sign too.
        for at in compress(count(), map(inner.__contains__, ids)):
            start, end = offsets[at]
            offsets[at] = (start - 1, end)
        return Encoded(ids, offsets)


class TekkenBackend(TiktokenBackend):
    """A tokenizer of mistral-common, which makes no special tokens of text: they are put in here."""

    __slots__ = ()

    def _special(self) -> dict[str, int]:
        return {self._encoding.id_to_piece(made): made for made in self._encoding.special_ids}

    def _whole(self, text: str) -> list[int]:
        special = self._known.special
        pieces = self._known.search.split(text)
        return [
            made
            for at, piece in enumerate(pieces)
            for made in ((special[piece],) if at % 2 else self._plain(piece) if piece else ())
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return b"".join(map(self._bytes, ids)).decode("utf-8", "replace")

    def _plain(self, text: str) -> list[int]:
        return cast("list[int]", self._encoding.encode(text, bos=False, eos=False))

    def _bytes(self, made: int) -> bytes:
        name = self._known.names.get(made)
        return cast("bytes", self._encoding.id_to_byte_piece(made)) if name is None else name.encode()


def _known(tokenizer: tokenizers.Tokenizer) -> _AddedTokens:
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


def _read(tokenizer: tokenizers.Tokenizer, size: int) -> _AddedTokens:
    model = tokenizer.model
    controls: dict[int, tokenizers.AddedToken] = {}
    plain: list[tuple[int, tokenizers.AddedToken]] = []
    for made, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        content = token.content
        if _is_control(content, special=token.special) or (
            len(content) == 1 and token.special and model.token_to_id(content) != made
        ):
            controls[made] = token
        else:
            plain.append((made, token))
    try:
        unknown = [token.id for token in _tokens(model, _UNKNOWN)]
    except TokenizerError:
        unknown = []
    return _AddedTokens(size, controls, plain, frozenset(unknown))


def _is_control(content: str, *, special: bool) -> bool:
    """Return True if an added token is a control token: a special one, or one that is no plain word."""
    if len(content) == 1 or _BYTE.fullmatch(content):
        return False
    return special or not all(sign.isalnum() or sign.isspace() or sign == _SPACE for sign in content)


def _tokens(model: models.Model, text: str) -> list[tokenizers.Token]:
    """Encode a text by the model alone."""
    try:
        return model.tokenize(text)
    except Exception as error:  # the package has no other error
        raise TokenizerError(f"the tokenizer's model cannot encode {text!r}: {error}") from error


def _encoding(tokenizer: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the package has no other error, and a panic in its Rust is no Exception
        raise TokenizerError(f"the tokenizer cannot encode the text: {error}") from error


def _unused(text: Iterable[str]) -> Iterator[str]:
    """Yield characters that a text does not hold."""
    used = set(text)
    return (sign for sign in map(chr, chain(*_SIGNS)) if sign not in used)


def _marked(text: str, controls: Sequence[Control], sign_of: Mapping[int, str]) -> tuple[str, list[int], list[int]]:
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
