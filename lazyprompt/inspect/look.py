"""The data for the terminal, notebook and JSON views of a prompt, and the comparison of two prompts slot by slot.

Views display exactly what ``generate_prompt`` returns for the same arguments, except for the values of environment
variables. Views only display this data; they compute nothing themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.characters import visible
from lazyprompt._base.difference import Part, compare, shared_length
from lazyprompt._base.display import html_of
from lazyprompt._base.json import is_mapping
from lazyprompt.budget.budget import Budget
from lazyprompt.formatters.report import Entries, Payload
from lazyprompt.inspect.cautions import Caution, Facts, Mark, PromptPiece, cautions_of, marks_of, texts_in
from lazyprompt.inspect.counting import CountedOnce, unit_of
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.prompt import MARKERS, Prompt, Segment, Text, filled_texts
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ModelLike
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.target_choice import FormatLike
    from lazyprompt.tokens.counter import TokenCounter
    from lazyprompt.training.masks import Mask
    from lazyprompt.training.samples import Token


# Budget reports use this name for tokens outside slots, such as ``<|im_start|>`` in flat text.
FRAMING = "framing"


class CallArguments(NamedTuple):
    """The arguments of a call to a prompter.

    Attributes:
        input: The input. :meth:`lazyprompt.Prompter.generate_prompt` documents all arguments.
        history: The earlier messages.
        tools: The tools.
        label: The expected response, in training data.
    """

    input: object = None
    history: HistoryLike | None = None
    tools: ToolsLike = None
    label: str | None = None


class SlotTokens(NamedTuple):
    """The text and token count of a slot in a prompt.

    Attributes:
        name: The slot's name. Text outside slots is named ``markers`` in flat text and ``framing`` in a payload.
        tokens: The number of tokens.
        text: The slot's text; if the slot appears several times, its texts are joined. For history and tools, the text
            contains one line of JSON for each message or tool. For ``framing``, the text is empty.
    """

    name: str
    tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """The data for the views of a prompt in one format.

    Attributes:
        title: The prompt's title, such as the name of its file.
        form: The format: ``flat``, or the name of a provider.
        model: The model, if specified.
        sent: The text or payload that ``generate_prompt`` returns.
        segments: The segments of a flat prompt, or an empty tuple for a payload.
        slots: The text and token count of each slot, in prompt order. The token counts add up to the total.
        total: The number of tokens in the prompt.
        window: The size of the model's context window in tokens, or None if unknown.
        marks: The neutralised control sequences in a flat prompt.
        report: The payload's report, which is empty for text.
        trim: The budget's report, or None if the prompt has no budget.
        cautions: The possible problems in the prompt.
        unit: The unit for token counts: ``tokens``, ``tokens (about)`` for estimates, or ``characters``.
        tokens: The tokens in the training sample, if requested.
        unmatched: The mask's patterns that match nothing.
    """

    title: str
    form: str
    model: str | None
    sent: str | JsonObject
    segments: tuple[Segment, ...]
    slots: tuple[SlotTokens, ...]
    total: int
    window: int | None
    marks: tuple[Mark, ...]
    report: Entries
    trim: TrimReport | None
    cautions: tuple[Caution, ...]
    unit: str = "tokens"
    tokens: tuple[Token, ...] = ()
    unmatched: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return html_of(self)


def look(  # noqa: PLR0913 - all but two arguments are keyword-only
    prompter: Prompter,
    call: CallArguments,
    *,
    title: str = "",
    form: FormatLike = "flat",
    model: ModelLike | None = None,
    counter: TokenCounter | None = None,
    max_tokens: int | None = None,
    window: int | None = None,
    tokenizer: TokenizerLike | None = None,
    mask: Mask = (),
) -> Look:
    """Compute the data that a view of a prompt displays, without resolving references to environment variables.

    Args:
        prompter: The prompter.
        call: The arguments of the call.
        title: The prompt's title.
        form: The ``format`` argument for :meth:`lazyprompt.Prompter.generate_prompt`.
        model: The ``model`` argument for :meth:`lazyprompt.Prompter.generate_prompt`.
        counter: The token counter; by default, :class:`lazyprompt.ApproximateTokenCounter`. If ``max_tokens`` is
            omitted and the prompter has a budget, the budget's counter is used instead.
        max_tokens: The maximum number of tokens, which overrides the prompter's own budget.
        window: The context window in tokens; by default, the model's context window, if known.
        tokenizer: The tokenizer for the training sample; the sample's response is the label.
        mask: The mask for the training sample; see :meth:`lazyprompt.Prompter.training_sample`.

    Returns:
        The data that the terminal, the notebook or the studio displays.

    Raises:
        LazyPromptError: See :meth:`lazyprompt.Prompter.generate_prompt`.
    """
    name = model if isinstance(model, str) else None
    given_counter = counter or ApproximateTokenCounter()
    counts = CountedOnce(given_counter)
    prompter = prompter.for_display()
    own_budget = max_tokens is None and prompter.made_of.has_budget
    limited = prompter if own_budget else prompter.with_budget(Budget(max_tokens, counts))
    target = limited.target(form, model)
    prompt = limited.fill(*call)
    fitted, trim = limited.fitted(prompt, target)
    trim = cast("TrimReport", trim)  # fitted() always returns a report if the prompter has a budget
    sent = target.render(fitted)
    segments: tuple[Segment, ...] = ()
    marks: tuple[Mark, ...] = ()
    forged: tuple[Mark, ...] = ()
    note = ""
    if isinstance(sent, str):
        shown, safe = (
            each.text_target(model).segments(fitted) for each in (limited, limited.with_safety("neutralize"))
        )
        segments, note = shown.segments, shown.note
        marks, forged = marks_of(shown, safe)
        pieces = [PromptPiece(slot, text, trusted) for text, slot, trusted in segments]
    else:
        pieces = _pieces_of(prompter, fitted)
    size = window if window is not None or name is None else context_of(name)
    report = sent.report if isinstance(sent, Payload) else ()
    tokens: tuple[Token, ...] = ()
    unmatched: tuple[str, ...] = ()
    if tokenizer is not None:
        sample = limited.training_sample(call.input, call.label, call.history, call.tools, mask=mask, model=model)
        tokens, unmatched = sample.tokens(tokenizer), sample.unmatched
    facts = Facts(
        _values(prompter, call.input), pieces, marks, forged, trim.after, size, report, note, counts.count_text
    )
    return Look(
        title,
        form if isinstance(form, str) else form.name,
        name,
        sent,
        segments,
        _slots(trim, pieces, flat=form == "flat"),
        trim.after,
        size,
        marks,
        report,
        trim if own_budget or max_tokens is not None else None,
        cautions_of(facts),
        "tokens" if own_budget else unit_of(given_counter),
        tokens,
        unmatched,
    )


def _pieces_of(prompter: Prompter, prompt: Prompt) -> list[PromptPiece]:
    """Return the pieces of a payload in the order in which providers read them."""
    pieces = [
        _json_piece("tools", [*prompt.tools], constant=True),
        PromptPiece("system", prompter.made_of.system, constant=True),
        *_of_text(prompt.instruction),
        *_of_history(prompt.history.messages),
        *_of_text(prompt.user),
        PromptPiece("input", prompt.input or "", constant=False),
        PromptPiece("label", prompt.label or "", constant=False),
    ]
    return [piece for piece in pieces if piece.text]


def _of_text(text: Text) -> Iterable[PromptPiece]:
    pairs = enumerate(zip(text.parts, text.slots, strict=True))
    return (PromptPiece(slot, part, at % 2 == 0) for at, (part, slot) in pairs)


def _of_history(messages: Sequence[Msg]) -> Iterator[PromptPiece]:
    """Yield the parts of history messages that were filled from templates, and all other messages as JSON."""
    for filled, group in groupby(messages, lambda each: tuple(filled_texts(each))):
        if filled:
            yield from (piece for text in filled for piece in _of_text(text.origins))
        else:
            yield _json_piece("history", openai_dicts(group), constant=False)


def _json_piece(slot: str, values: Sequence[object], *, constant: bool) -> PromptPiece:
    """Return a prompt piece whose text is one line of JSON for each value in a slot."""
    lines = "\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    return PromptPiece(slot, lines, constant, tuple(text for value in values for text in texts_in(value)))


def _slots(trim: TrimReport, pieces: Sequence[PromptPiece], *, flat: bool) -> tuple[SlotTokens, ...]:
    """Return each slot's text and token count in prompt order, followed by an entry for the text outside slots."""
    texts: dict[str, list[str]] = {}
    for slot, text, *_ in pieces:
        texts.setdefault(slot, []).append(text)
    around = MARKERS if flat else FRAMING
    tokens = {around if slot == FRAMING else slot: counts.after for slot, counts in trim.slots.items()}
    names = dict.fromkeys([*(slot for slot in texts if slot != around), *tokens])
    names.pop(around, None)
    return tuple(SlotTokens(name, tokens.get(name, 0), "".join(texts.get(name, ()))) for name in [*names, around])


def _values(prompter: Prompter, given: object) -> Mapping[str, object]:
    """Return an input's values as a mapping keyed by slot name."""
    if is_mapping(given):
        return given
    return {} if given is None else {prompter.name_of_text(): given}


_ENTRY = ("where", "kind", "action", "reason", "is_loss")


def look_json(look: Look) -> JsonObject:
    """Convert a :class:`Look` to JSON, for ``lazyprompt inspect --json`` and the studio.

    Args:
        look: The Look to convert.

    Returns:
        A dict with the keys ``title``, ``form`` and ``model``; ``text`` and ``payload``, one of which is None;
        ``segments`` (text, slot, trusted), ``slots`` (name, tokens), ``total``, ``unit``, ``window``, ``marks`` (slot,
        start, end, raw, safe; indices in characters), ``report`` (where, kind, action, reason, is_loss), ``trim``
        (None, or text and the fields of :meth:`lazyprompt.TrimReport.as_dict`) and ``cautions`` (kind, values, text).
        The payload is not copied. If a tokenizer was used, the dict also contains ``tokens`` (id, text, message, slot,
        trusted, trained) and ``unmatched``, the mask's patterns that match nothing.
    """
    sample: JsonObject = {"tokens": [token._asdict() for token in look.tokens], "unmatched": [*look.unmatched]}
    return {
        "title": look.title,
        "form": look.form,
        "model": look.model,
        "text": look.sent if isinstance(look.sent, str) else None,
        "payload": None if isinstance(look.sent, str) else look.sent,
        "segments": [segment._asdict() for segment in look.segments],
        "slots": [{"name": name, "tokens": tokens} for name, tokens, _ in look.slots],
        "total": look.total,
        "unit": look.unit,
        "window": look.window,
        "marks": [mark._asdict() for mark in look.marks],
        "report": [{key: getattr(entry, key) for key in _ENTRY} for entry in look.report],
        "trim": None if look.trim is None else {**look.trim.as_dict(), "text": str(look.trim)},
        "cautions": [
            {"kind": caution.kind, "values": {**caution.values}, "text": str(caution)} for caution in look.cautions
        ],
        **(sample if look.tokens else {}),
    }


State: TypeAlias = Literal["same", "changed", "added", "removed"]


class SlotChange(NamedTuple):
    """A change to a slot between two prompts.

    Attributes:
        name: The slot's name.
        state: ``same``, ``changed``, ``added`` or ``removed``. The texts of the slot are compared, except for
            ``framing``, which has no text: its token counts are compared.
        before: The slot's token count in the first prompt, or 0 if that prompt lacks the slot.
        after: The slot's token count in the second prompt, or 0 if that prompt lacks the slot.
        lines: A unified diff between the slot's text in the first and in the second prompt, without file names; empty
            if the texts are equal.
    """

    name: str
    state: State
    before: int
    after: int
    lines: tuple[str, ...]


class SharedPrefix(NamedTuple):
    """The common prefix of two prompts, which a provider's cache can serve.

    Attributes:
        tokens: The approximate number of tokens in the common prefix. A slot that is only partly shared counts in
            proportion to the shared part of its text.
        total: The number of tokens in the second prompt.
        slot: The slot in the second prompt where the prefix ends, or None if the prompts are equal.
        line: The number of the line in ``slot`` where the prefix ends, counted from 1.
    """

    tokens: int
    total: int
    slot: str | None
    line: int

    def __str__(self) -> str:
        where = (
            "the prompts are the same" if self.slot is None else f"it ends in {visible(self.slot)}, line {self.line}"
        )
        return f"shared beginning: about {self.tokens:,} of {self.total:,}; {where}"


def shared_prefix(before: Look, after: Look) -> SharedPrefix:
    """Find where the common prefix of two prompts ends.

    Args:
        before: The first prompt.
        after: The second prompt.

    Returns:
        The token count of the common prefix, and the slot and line of the second prompt where the prefix ends. For
        payloads, slots are compared in order and framing is ignored.
    """
    parts = _parts(after)
    one, other = ("".join(text for _, text in each) for each in (_parts(before), parts))
    left = shared = shared_length(one, other)
    if one == other:
        return SharedPrefix(after.total, after.total, None, 1)
    lengths, counts = dict[str, int](), {slot.name: slot.tokens for slot in after.slots}
    for slot, text in parts:
        lengths[slot] = lengths.get(slot, 0) + len(text)
    tokens, ends, line = 0.0, "", 1
    for slot, text in parts:
        ends, line = slot, text.count("\n", 0, left) + 1
        tokens += counts.get(slot, 0) * min(left, len(text)) / lengths[slot]
        left -= len(text)
        if left < 0:
            break
    return SharedPrefix(round(tokens) if shared else 0, after.total, ends, line)


def _parts(look: Look) -> list[tuple[str, str]]:
    """List the slots of a prompt with their texts, in sending order; in a payload, the tools come first."""
    given = [(slot, text) for text, slot, _ in look.segments]
    given = given or sorted(((slot.name, slot.text) for slot in look.slots), key=lambda part: part[0] != "tools")
    return [(slot, text) for slot, text in given if text]


def slot_diff(before: Look, after: Look) -> tuple[SlotChange, ...]:
    """Compare two prompts slot by slot.

    Args:
        before: The first prompt.
        after: The second prompt.

    Returns:
        One change for each slot, in the order of the first prompt's slots; then one for each added slot; and finally
        one for the text outside slots, named ``markers`` or ``framing``.
    """
    one, other = ({slot.name: slot for slot in look.slots} for look in (before, after))
    changes = {
        each.name: each
        for each in compare(*([Part(slot.name, slot.text) for slot in look.slots] for look in (before, after)))
    }
    around = [look.slots[-1].name for look in (before, after) if look.slots]
    names = [name for name in dict.fromkeys((*one, *other)) if name not in around]
    found: list[SlotChange] = []
    for name in (*names, *dict.fromkeys(around)):
        change = changes.get(name)
        spent, spends = (side[name].tokens if name in side else 0 for side in (one, other))
        # The entry for framing contains no text, so two framing entries are equal if their token counts are equal.
        is_same = change is None and (bool(one[name].text) or spent == spends)
        state: State = "same" if is_same else "changed" if change is None else change.state
        found.append(SlotChange(name, state, spent, spends, () if change is None else change.lines))
    return tuple(found)
