"""A common interface to tokenizers from several packages, for encoding text with or without control tokens.

The backends don't search a text for control tokens, because each tokenizer has its own rules for matching these tokens.
Instead, the tokenizer encodes the text, and the resulting ids and offsets show where the control tokens are.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from itertools import accumulate, chain, compress, count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from lazyprompt.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tokenizers
    from tokenizers import models, normalizers

Span: TypeAlias = tuple[int, int]


class Encoded(NamedTuple):
    """The tokens of an encoded text.

    Attributes:
        ids: The token ids.
        offsets: The start and end index of each token in the text. A token that encodes only some bytes of a character
            spans the whole character. If a tokenizer drops or moves white space, the tokenizer's own offsets are used.
    """

    ids: list[int]
    offsets: list[Span]


class Control(NamedTuple):
    """A control token in a text; ``start`` and ``end`` exclude adjacent white space that the token consumes."""

    id: int
    start: int
    end: int


class _AddedTokens(NamedTuple):
    """A tokenizer's added tokens.

    Attributes:
        size: The size of the vocabulary when the tokens were read.
        controls: The settings of each control token, by token id.
        plain: The added tokens that are not control tokens, each as a pair of token id and settings.
        unknown: The ids that the model assigns to unknown characters, usually the id of a single special token.
        blank: The ids of the control tokens that are whitespace.
    """

    size: int
    controls: Mapping[int, tokenizers.AddedToken]
    plain: Sequence[tuple[int, tokenizers.AddedToken]]
    unknown: frozenset[int]
    blank: frozenset[int]


class _Vocabulary(NamedTuple):
    """The vocabulary of a tiktoken or Tekken encoding.

    Attributes:
        special: The ids of the special tokens, by their text.
        names: The special tokens by id.
        search: A pattern that matches special tokens.
        lengths: Maps the id of each token encoded so far to the number of characters that begin in the token.
        inner: The ids of the tokens encoded so far that begin in the middle of a character.
    """

    special: Mapping[str, int]
    names: Mapping[int, str]
    search: re.Pattern[str]
    lengths: dict[int, int]
    inner: set[int]


# Caches the added tokens of each tokenizer until the size of the tokenizer's vocabulary changes.
_KNOWN: WeakKeyDictionary[tokenizers.Tokenizer, _AddedTokens] = WeakKeyDictionary()
_VOCABULARIES: WeakKeyDictionary[object, _Vocabulary] = WeakKeyDictionary()

# Matches byte fallback tokens, which aren't control tokens, because the tokenizer needs them to encode ordinary text.
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# The character that represents a space in SentencePiece tokens.
_SPACE = "\u2581"
# Characters that can replace control tokens: Byzantine musical symbols, domino tiles and private-use characters.
# Musical symbols and domino tiles are rare in text, never part of a word, and unchanged by normalizers.
_STAND_INS = (range(0x1D000, 0x1D0F6), range(0x1F030, 0x1F094), range(0xF0000, 0x110000))
# The processing steps of a tokenizer before its model, and all its steps.
_STEPS_BEFORE = ("normalizer", "pre_tokenizer")
_STEPS = (*_STEPS_BEFORE, "post_processor")
_NO_NORMALIZER: Mapping[str, object] = {"type": "Sequence", "normalizers": []}
# A character that is presumably missing from every model's vocabulary.
_UNKNOWN = "\U0010fffd"
# UTF-8 continuation bytes, which never start a character.
_INNER_BYTES = bytes(range(0x80, 0xC0))
# The longest run of whitespace to pass to tiktoken, whose Rust code panics on a run of a million characters.
_LONG = 500_000
_SPACES = re.compile(r"\s+")


class Backend(Protocol):
    """The common interface to a tokenizer from any supported package."""

    def encode(self, text: str) -> Encoded:
        """Encode a text, including its control tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, including control tokens."""
        ...

    def controls(self, text: str, encoded: Encoded) -> Iterable[Control]:
        """Return the control tokens that occur in an encoded text."""
        ...

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text, and treat only the given tokens (in text order) as control tokens."""
        ...

    def cuts(self, text: str) -> list[Span]:
        """Return the spans of a trusted text's control tokens; omit a token if the text can't be split before it."""
        ...

    def rules(self, text: str) -> object:
        """Return the tokenizer's settings and the ids of a text, or None if the settings can't be read.

        A :class:`TokenCache` compares these results to detect changes to the tokenizer.

        Raises:
            TokenizerError: Tokenization is randomized.
        """
        ...


class HuggingFaceBackend:
    """A tokenizer from the ``tokenizers`` package."""

    __slots__ = ("_known", "_tokenizer")

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known = _known(tokenizer)

    def encode(self, text: str) -> Encoded:
        """Encode a text without truncation or padding."""
        tokenizer = self._tokenizer
        if all(getattr(tokenizer, name) is None for name in ("truncation", "padding")):
            encoding = _encoding(tokenizer, text)
            encoded = Encoded(encoding.ids, encoding.offsets)
        else:
            encoded = self._encode_copy(text, _STEPS)
        # A post-processor may trim whitespace from all offsets, which would lose the place of a whitespace token.
        return encoded if self._known.blank.isdisjoint(encoded.ids) else self._encode_copy(text, _STEPS_BEFORE)

    def _encode_copy(self, text: str, steps: Sequence[str]) -> Encoded:
        """Encode a text with a copy of the tokenizer that has only the given processing steps."""
        copy, ids = self._copy((*self._known.plain, *self._known.controls.items()), _unused(text), steps)
        copy.encode_special_tokens = self._tokenizer.encode_special_tokens
        encoding = _encoding(copy, text)
        return Encoded([ids.get(token_id, token_id) for token_id in encoding.ids], encoding.offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, including special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def controls(self, text: str, encoded: Encoded) -> Iterator[Control]:
        """Yield the control tokens of an encoded text."""
        controls, unknown = self._known.controls, self._known.unknown
        for at in compress(count(), map(controls.__contains__, encoded.ids)):
            token_id = encoded.ids[at]
            content = controls[token_id].content
            start, end = encoded.offsets[at]
            behind = text[start:end].lstrip()
            if not behind and (place := text.find(content, start, end)) >= 0:
                # If a control token is whitespace, exclude the whitespace after it, which is ordinary text that the
                # tokenizer stripped.
                yield Control(token_id, place, place + len(content))
                continue
            inner = behind.rstrip()
            if token_id in unknown and self._normal(inner) != self._normal(content):
                continue
            start = end - len(behind)
            end = start + len(inner)
            # Exclude whitespace that the tokenizer stripped around a control token, but include whitespace in the
            # token's content.
            own = content.lstrip()
            before, after = content[: len(content) - len(own)], own[len(own.rstrip()) :]
            if text.endswith(before, 0, start):
                start -= len(before)
            if text.startswith(after, end):
                end += len(after)
            yield Control(token_id, start, end)

    def rules(self, text: str) -> object:
        """Return the tokenizer's settings and the ids of a text, or None if the settings can't be read."""
        tokenizer = self._tokenizer
        if dropout := getattr(tokenizer.model, "dropout", None):
            raise TokenizerError(
                f"the tokenizer's model skips merges at random (dropout={dropout}), so the same text can get different "
                "ids; set the model's dropout to None"
            )
        try:
            steps = (tokenizer.normalizer, tokenizer.pre_tokenizer)
            states = [None if step is None else step.__getstate__() for step in steps]
        except Exception:  # noqa: BLE001 - tokenizers raises no narrower error for components written in Python
            return None
        return id(tokenizer), self._known.size, tokenizer.encode_special_tokens, *states, self.encode(text).ids

    def cuts(self, text: str) -> list[Span]:
        """Return the spans of a trusted text's control tokens; omit a token if the text can't be split before it."""
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
        """Encode a text, and treat only the given tokens (in text order) as control tokens.

        Splitting the text at these tokens would change the encoding, because tokenizers treat the start of a text
        differently. Instead, each token is replaced by a character that the text doesn't contain, and a copy of the
        tokenizer treats these characters as its only control tokens.
        """
        known = self._known
        characters = _unused(text)
        # Drop overlapping tokens, so that each iteration of the loop below processes fewer tokens and the loop ends.
        before = accumulate((control.end for control in allowed), max, initial=0)
        allowed = [control for control, end in zip(allowed, before, strict=False) if control.start >= end]
        stand_ins = dict(zip(dict.fromkeys(control.id for control in allowed), characters, strict=False))
        added = [(token_id, self._stand_in(each, known.controls[token_id])) for token_id, each in stand_ins.items()]
        copy, real = self._copy((*known.plain, *added), characters)
        while True:
            marked, starts, shrunk = _marked(text, allowed, stand_ins)
            encoding = _encoding(copy, marked)
            encoded_tokens = list(zip(encoding.ids, encoding.offsets, strict=True))
            seen = [(real[token_id], span) for token_id, span in encoded_tokens if real.get(token_id) in stand_ins]
            if len(seen) >= len(allowed):
                break
            # Adjacent text can prevent the tokenizer from matching a token, for example a `single_word` token.
            places = {marked.find(stand_ins[token_id], start, end) for token_id, (start, end) in seen}
            allowed = [control for control, start in zip(allowed, starts, strict=True) if start in places]
        encoded = Encoded([], [])
        for token_id, (start, end) in encoded_tokens:
            ids = [real[token_id]] if token_id in real else self._harmless(token_id)
            span = (start + shrunk[bisect_left(starts, start)], end + shrunk[bisect_left(starts, end)])
            encoded.ids.extend(ids)
            encoded.offsets.extend([span] * len(ids))
        return encoded

    def _copy(
        self,
        added: Sequence[tuple[int, tokenizers.AddedToken]],
        characters: Iterator[str],
        steps: Sequence[str] = _STEPS,
    ) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        """Copy the tokenizer with a given list of added tokens. The copy shares the tokenizer's model.

        Returns:
            The copy of the tokenizer, and a map from the ids of the copy's added tokens to their ids in the original.
        """
        from tokenizers import AddedToken, Tokenizer  # noqa: PLC0415 - an extra

        model = self._tokenizer.model
        copy: Any = Tokenizer(model)
        for name in steps:
            if (part := getattr(self._tokenizer, name)) is not None:
                setattr(copy, name, part)
        size = copy.get_vocab_size()
        if any(model.id_to_token(token_id) is not None for token_id in range(size, size + len(added))):
            # A vocabulary with gaps contains ids beyond its size. Fill the gaps, so that each id is assigned only once.
            character, top = next(characters), max(copy.get_vocab().values())
            fillers = (f"{character}{token_id}" for token_id in range(size, top + 1))
            copy.add_tokens([AddedToken(filler, normalized=False) for filler in fillers])
        copy.add_tokens([token for _, token in added])
        return copy, {copy.token_to_id(token.content): token_id for token_id, token in added}

    def _stand_in(self, character: str, token: tokenizers.AddedToken) -> tokenizers.AddedToken:
        from tokenizers import AddedToken  # noqa: PLC0415 - an extra

        return AddedToken(
            character,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            # Disable normalization if the normalizer would drop the character.
            normalized=token.normalized and character in self._normal(character),
        )

    def _harmless(self, token_id: int) -> list[int]:
        """Return the ids of ordinary tokens that encode a control token's text; return any other token id unchanged."""
        if not self._is_control(token_id):
            return [token_id]
        model: models.Model = self._tokenizer.model
        value = model.id_to_token(token_id) or ""
        ids: list[int] = []
        # Split off the first character. If the rest still encodes to a control token, encode each character separately.
        # A single character never encodes to a control token.
        for pieces in ((value[0], value[1:]), value):
            ids = [token.id for piece in pieces for token in _tokens(model, piece)]
            if not any(map(self._is_control, ids)):
                break
        return ids

    def _normal(self, text: str) -> str:
        normalizer: normalizers.Normalizer | None = self._tokenizer.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _is_control(self, token_id: int) -> bool:
        return token_id in self._known.controls and token_id not in self._known.unknown


class TiktokenBackend:
    """A tiktoken encoding."""

    __slots__ = ("_encoding", "_known")

    def __init__(self, encoding: Any) -> None:  # noqa: ANN401 - an Encoding, or a Tekkenizer in the subclass
        self._encoding = encoding
        known = _VOCABULARIES.get(encoding)
        if known is None:
            special = self._special()
            names = {token_id: name for name, token_id in special.items()}
            search = re.compile(f"({'|'.join(map(re.escape, sorted(special, key=len, reverse=True)))})")
            known = _VOCABULARIES[encoding] = _Vocabulary(special, names, search, {}, set())
        self._known = known

    def _special(self) -> dict[str, int]:
        """Return the ids of the special tokens, by their text."""
        return {name: self._encoding.encode_single_token(name) for name in self._encoding.special_tokens_set}

    def _whole(self, text: str) -> list[int]:
        """Encode a text, and convert each special token in the text to its id."""
        ids: list[int] = self._encoding.encode(text, allowed_special="all")
        return ids

    def _plain(self, text: str) -> list[int]:
        """Encode a text, and treat special tokens in the text as ordinary characters."""
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    def _bytes(self, token_id: int) -> bytes:
        data: bytes = self._encoding.decode_single_token_bytes(token_id)
        return data

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, including special tokens."""
        text: str = self._encoding.decode(ids)
        return text

    def encode(self, text: str) -> Encoded:
        """Encode a text, and convert each special token in the text to its id."""
        pieces = [*map(self._whole, _pieces(text))]
        return self._encoded(pieces[0] if len(pieces) == 1 else [*chain.from_iterable(pieces)])

    def controls(self, text: str, encoded: Encoded) -> Iterator[Control]:
        """Yield the special tokens of an encoded text."""
        del text
        for at in compress(count(), map(self._known.names.__contains__, encoded.ids)):
            yield Control(encoded.ids[at], *encoded.offsets[at])

    def rules(self, text: str) -> object:
        """Return the ``id()`` of the encoding. Encodings are immutable, so their settings need no comparison."""
        del text
        return id(self._encoding)

    def cuts(self, text: str) -> list[Span]:
        """Return the spans of the special tokens in a trusted text."""
        return [(control.start, control.end) for control in self.controls(text, self.encode(text))]

    def encode_with(self, text: str, allowed: Sequence[Control]) -> Encoded:
        """Encode a text, and treat only the given tokens (in text order) as special tokens.

        The text is split at the given tokens, as tiktoken splits text at special tokens.
        """
        ids: list[int] = []
        end = 0
        for control in allowed:
            ids += self._ordinary(text[end : control.start])
            ids.append(control.id)
            end = control.end
        return self._encoded(ids + self._ordinary(text[end:]))

    def _ordinary(self, text: str) -> list[int]:
        return [token_id for piece in _pieces(text) for token_id in self._plain(piece)]

    def _encoded(self, ids: list[int]) -> Encoded:
        lengths, inner = self._known.lengths, self._known.inner
        for token_id in set(ids).difference(lengths):
            piece = self._bytes(token_id)
            if piece[0] in _INNER_BYTES:
                inner.add(token_id)
            lengths[token_id] = len(piece.translate(None, _INNER_BYTES))
        offsets = list(pairwise(accumulate(map(lengths.__getitem__, ids), initial=0)))
        # Extend a token that begins inside a character to cover the whole character.
        for at in compress(count(), map(inner.__contains__, ids)):
            start, end = offsets[at]
            offsets[at] = (start - 1, end)
        return Encoded(ids, offsets)


class TekkenBackend(TiktokenBackend):
    """A Tekken tokenizer from mistral-common; its ``encode`` method never creates special tokens."""

    __slots__ = ()

    def _special(self) -> dict[str, int]:
        return {self._encoding.id_to_piece(token_id): token_id for token_id in self._encoding.special_ids}

    def _whole(self, text: str) -> list[int]:
        special = self._known.special
        pieces = self._known.search.split(text)
        return [
            token_id
            for at, piece in enumerate(pieces)
            for token_id in ((special[piece],) if at % 2 else self._plain(piece) if piece else ())
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, including special tokens."""
        return b"".join(map(self._bytes, ids)).decode("utf-8", "replace")

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._encoding.encode(text, bos=False, eos=False)
        return ids

    def _bytes(self, token_id: int) -> bytes:
        name = self._known.names.get(token_id)
        data: bytes = self._encoding.id_to_byte_piece(token_id) if name is None else name.encode()
        return data


def _known(tokenizer: tokenizers.Tokenizer) -> _AddedTokens:
    size = tokenizer.get_vocab_size()
    try:
        known = _KNOWN.get(tokenizer)
    except TypeError:
        # Tokenizers from older versions of the tokenizers package don't support weak references.
        return _read(tokenizer, size)
    if known is None or known.size != size:
        known = _KNOWN[tokenizer] = _read(tokenizer, size)
    return known


def _read(tokenizer: tokenizers.Tokenizer, size: int) -> _AddedTokens:
    model = tokenizer.model
    controls: dict[int, tokenizers.AddedToken] = {}
    plain: list[tuple[int, tokenizers.AddedToken]] = []
    for token_id, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        content = token.content
        if _is_control(content, special=token.special) or (
            len(content) == 1 and token.special and model.token_to_id(content) != token_id
        ):
            controls[token_id] = token
        else:
            plain.append((token_id, token))
    try:
        unknown = [token.id for token in _tokens(model, _UNKNOWN)]
    except TokenizerError:
        unknown = []
    blank = frozenset(token_id for token_id, token in controls.items() if token.content.isspace())
    return _AddedTokens(size, controls, plain, frozenset(unknown), blank)


def _is_control(content: str, *, special: bool) -> bool:
    """Return True if an added token is special, or if its text isn't a plain word.

    A token that is a single character or a byte is never a control token.
    """
    if len(content) == 1 or _BYTE.fullmatch(content):
        return False
    return special or not all(each.isalnum() or each.isspace() or each == _SPACE for each in content)


def _tokens(model: models.Model, text: str) -> list[tokenizers.Token]:
    """Encode a text with the model only, without the normalizer or the pre-tokenizer."""
    try:
        return model.tokenize(text)
    except Exception as error:  # the tokenizers package raises only plain Exception objects
        raise TokenizerError(f"the tokenizer's model cannot encode {text!r}: {error}") from error


def _encoding(tokenizer: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is not an `Exception`
        raise TokenizerError(f"the tokenizer cannot encode the text: {error}") from error


def _unused(text: Iterable[str]) -> Iterator[str]:
    """Yield the characters of ``_STAND_INS`` that a text doesn't contain."""
    used = set(text)
    return (each for each in map(chr, chain(*_STAND_INS)) if each not in used)


def _marked(text: str, controls: Sequence[Control], stand_ins: Mapping[int, str]) -> tuple[str, list[int], list[int]]:
    """Replace each control token in a text with the stand-in character for its id.

    Returns:
        The text with stand-in characters, and the index of each stand-in character in this text. The last list contains
        the number of characters removed before each stand-in character and before the end of the text.
    """
    pieces: list[str] = []
    starts: list[int] = []
    shrunk = [0]
    before = 0
    for control in controls:
        pieces += (text[before : control.start], stand_ins[control.id])
        starts.append(control.start - shrunk[-1])
        shrunk.append(shrunk[-1] + control.end - control.start - 1)
        before = control.end
    return "".join((*pieces, text[before:])), starts, shrunk


def _pieces(text: str) -> Iterator[str]:
    """Split a text within very long runs of white space, so that tiktoken can encode each piece."""
    start = 0
    if len(text) > _LONG:
        for spaces in _SPACES.finditer(text):
            for end in range(spaces.start() + _LONG, spaces.end(), _LONG):
                yield text[start:end]
                start = end
    yield text[start:]
