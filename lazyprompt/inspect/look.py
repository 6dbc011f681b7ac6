"""A look at a prompt, which the terminal, the notebook, the page and programs show; and two of them slot by slot.

What is shown is what ``generate_prompt`` gives for the same call, to the byte, but for values of the environment;
nothing is computed in a view.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.difference import Part, compare, shared_length
from lazyprompt._base.display import html_of
from lazyprompt._base.signs import visible
from lazyprompt.budget.budget import Budget
from lazyprompt.formatters.report import Payload, Report
from lazyprompt.inspect.cautions import Caution, Facts, Mark, Piece, cautions_of, marks_of, texts_in
from lazyprompt.inspect.counting import CountedOnce, unit_of
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.prompt import MARKERS, Prompt, Segment, Text, filled_texts
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.windows import context_of

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.tokens.counter import TokenCounter
    from lazyprompt.training.masks import Mask
    from lazyprompt.training.samples import Token


# What a budget's report calls that which belongs to no slot: of flat text these are the markers.
FRAMING = "framing"


class Call(NamedTuple):
    """Arguments of a prompter's call.

    Attributes:
        input: As of :meth:`lazyprompt.Prompter.generate_prompt` (so with all others).
        history: The earlier messages.
        tools: What the model may call.
        label: The answer, in training data.
    """

    input: object = None
    history: HistoryLike | None = None
    tools: ToolsLike = None
    label: str | None = None


class Slot(NamedTuple):
    """Text and tokens of one slot in a prompt.

    Attributes:
        name: Its name; ``markers`` in flat text, and ``framing`` in a payload, for what stands around all slots.
        tokens: Its tokens.
        text: Its text, all of its places put together; of the history a line of JSON for each message, of the tools
            for each tool. Empty for ``framing``.
    """

    name: str
    tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """View of a prompt in one form.

    Attributes:
        title: What it is of, as the name of its file.
        form: ``flat``, or the provider.
        model: The model, where one was named.
        sent: What ``generate_prompt`` gives: a text, or a payload.
        segments: The segments of a flat prompt, which make up the text; none of a payload.
        slots: What each slot has, in the order of the prompt; their tokens add up to the total.
        total: The tokens of the whole.
        window: The tokens of the model's context window; None where that is not known.
        marks: The control sequences of a flat prompt that were neutralised.
        report: What a payload has not as it was given.
        trim: What a budget let go; None where there was none.
        cautions: What to look at twice.
        unit: What is counted: ``tokens``, ``tokens (about)`` where nothing counts them exactly, or ``characters``.
        tokens: The tokens of the training sample, if they are asked for.
        unmatched: The patterns of its mask that match nowhere.
    """

    title: str
    form: str
    model: str | None
    sent: str | JsonObject
    segments: tuple[Segment, ...]
    slots: tuple[Slot, ...]
    total: int
    window: int | None
    marks: tuple[Mark, ...]
    report: Report
    trim: TrimReport | None
    cautions: tuple[Caution, ...]
    unit: str = "tokens"
    tokens: tuple[Token, ...] = ()
    unmatched: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return html_of(self)


def look(  # noqa: PLR0913 - all but two are given by name
    prompter: Prompter,
    call: Call,
    *,
    title: str = "",
    form: str = "flat",
    model: str | None = None,
    counter: TokenCounter | None = None,
    max_tokens: int | None = None,
    window: int | None = None,
    tokenizer: TokenizerLike | None = None,
    mask: Mask = (),
) -> Look:
    """Look at a prompt. Values that a prompt file has from the environment are shown as their references.

    Args:
        prompter: The prompter.
        call: What it is called with.
        title: What it is of.
        form: As ``format`` of :meth:`lazyprompt.Prompter.generate_prompt`.
        model: As there.
        counter: What counts tokens; None is :class:`lazyprompt.ApproximateTokenCounter`. A prompter with a budget
            counts with that of its budget, unless ``max_tokens`` is given.
        max_tokens: The most tokens that the prompt may have, in the place of the prompter's own budget.
        window: The context window in tokens; None is what is known of the model.
        tokenizer: The tokenizer whose tokens of the training sample are shown, which has the label as its answer.
        mask: The mask of the sample, as of :meth:`lazyprompt.Prompter.training_sample`.

    Returns:
        What there is to see.

    Raises:
        LazyPromptError: As of :meth:`lazyprompt.Prompter.generate_prompt`.
    """
    given_counter = counter or ApproximateTokenCounter()
    counts = CountedOnce(given_counter)
    prompter = prompter.for_display()
    own_budget = max_tokens is None and prompter.made_of.has_budget
    limited = prompter if own_budget else prompter.with_budget(Budget(max_tokens, counts))
    target = limited.target(form, model)
    prompt = limited.fill(*call)
    fitted, trim = limited.fitted(prompt, target)
    trim = cast("TrimReport", trim)  # there is one, as there is a budget
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
        pieces = [Piece(slot, text, trusted) for text, slot, trusted in segments]
    else:
        pieces = _pieces_of(prompter, fitted)
    size = window if window is not None or model is None else context_of(model)
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
        form,
        model,
        cast("str | JsonObject", sent),
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


def _pieces_of(prompter: Prompter, prompt: Prompt) -> list[Piece]:
    """List the pieces of a payload in the order in which providers read it: tools, system text, turns."""
    pieces = [
        _json_piece("tools", [*prompt.tools], constant=True),
        Piece("system", prompter.made_of.system, constant=True),
        *_of_text(prompt.instruction),
        *_of_history(prompt.history.messages),
        *_of_text(prompt.user),
        Piece("input", prompt.input or "", constant=False),
        Piece("label", prompt.label or "", constant=False),
    ]
    return [piece for piece in pieces if piece.text]


def _of_text(text: Text) -> Iterable[Piece]:
    return (Piece(slot, part, at % 2 == 0) for at, (part, slot) in enumerate(zip(text.parts, text.slots, strict=True)))


def _of_history(messages: Sequence[Msg]) -> Iterator[Piece]:
    """Yield the pieces of a history: the parts of a text of the prompter's own, and the JSON of all other messages."""
    for filled, group in groupby(messages, lambda each: tuple(filled_texts(each))):
        if filled:
            yield from (piece for text in filled for piece in _of_text(text.origins))
        else:
            yield _json_piece("history", openai_dicts(group), constant=False)


def _json_piece(slot: str, values: Sequence[object], *, constant: bool) -> Piece:
    """Values, a line of JSON each."""
    lines = "\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    return Piece(slot, lines, constant, tuple(text for value in values for text in texts_in(value)))


def _slots(trim: TrimReport, pieces: Sequence[Piece], *, flat: bool) -> tuple[Slot, ...]:
    """The slots in the order of the prompt; what stands around them comes last."""
    texts: dict[str, list[str]] = {}
    for slot, text, *_ in pieces:
        texts.setdefault(slot, []).append(text)
    around = MARKERS if flat else FRAMING
    tokens = {around if slot == FRAMING else slot: counts.after for slot, counts in trim.slots.items()}
    names = dict.fromkeys([*(slot for slot in texts if slot != around), *tokens])
    names.pop(around, None)
    return tuple(Slot(name, tokens.get(name, 0), "".join(texts.get(name, ()))) for name in [*names, around])


def _values(prompter: Prompter, given: object) -> Mapping[str, object]:
    """Return the values of an input by name."""
    if isinstance(given, Mapping):
        return cast("Mapping[str, object]", given)
    return {} if given is None else {prompter.name_of_text(): given}


_ENTRY = ("where", "kind", "action", "reason", "is_loss")


def look_json(look: Look) -> JsonObject:
    """Return a look at a prompt as JSON values, which ``lazyprompt inspect --json`` writes and the studio shows.

    Args:
        look: What there is to see.

    Returns:
        ``title``, ``form``, ``model``; ``text`` or ``payload`` (the other is None); ``segments`` (text, slot, trusted),
        ``slots`` (name, tokens), ``total``, ``unit``, ``window``, ``marks`` (slot, start, end, raw, safe; the places
        in signs), ``report`` (where, kind, action, reason, is_loss), ``trim`` (None, or the fields of
        :meth:`lazyprompt.TrimReport.as_dict` and text) and ``cautions`` (kind, values, text). The payload is the
        Look's own, no copy. With a tokenizer also ``tokens`` (id, text, message, slot, trusted, trained) and
        ``unmatched``, the patterns of the mask that match nowhere.
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
    """Change of a slot from one prompt to another.

    Attributes:
        name: Its name.
        state: ``same``, ``changed``, ``added`` (only the other has it) or ``removed``. Slots of the same text are the
            same; of ``framing``, which has none, the tokens are compared.
        before: Its tokens in the one; 0 where it is not there.
        after: Its tokens in the other.
        lines: A unified diff of its texts, without the lines that name files; nothing where the texts are the same.
    """

    name: str
    state: State
    before: int
    after: int
    lines: tuple[str, ...]


class SharedPrefix(NamedTuple):
    """Beginning that two prompts share, which a provider's cache can serve.

    Attributes:
        tokens: Its tokens, about: of the slot in which it ends, as many as its part of the text has.
        total: The tokens of the other prompt.
        slot: The slot of the other prompt in which it ends; None if the prompts are the same.
        line: The line of that slot, from 1.
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
    """Find where the beginning ends that two prompts share.

    Args:
        before: The one.
        after: The other.

    Returns:
        The place in the other. Of payloads, the slots are compared in their order, without what stands around them.
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
    """List the texts of a prompt with their slots, in the order in which they are sent; of payloads, tools first."""
    given = [(slot, text) for text, slot, _ in look.segments]
    given = given or sorted(((slot.name, slot.text) for slot in look.slots), key=lambda part: part[0] != "tools")
    return [(slot, text) for slot, text in given if text]


def slot_diff(before: Look, after: Look) -> tuple[SlotChange, ...]:
    """Compare two prompts slot by slot.

    Args:
        before: The one.
        after: The other.

    Returns:
        All slots of both: in the order of the one, then those that only the other has; what stands around the slots
        (``markers`` or ``framing``) comes last.
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
        # What stands around the slots of a payload has no text.
        is_same = change is None and (bool(one[name].text) or spent == spends)
        state: State = "same" if is_same else "changed" if change is None else change.state
        found.append(SlotChange(name, state, spent, spends, () if change is None else change.lines))
    return tuple(found)
