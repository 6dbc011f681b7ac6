"""The next turn without rendering the history again: ids that begin with exactly those of the engine.

An engine keeps what it has computed for ids that it has seen. Rendered and encoded again, a model's own words seldom
become the ids that it sampled: ``false`` comes back as ``False``, a space moves. So the engine's ids stay as they are,
and only what the template writes behind it is added: the end of the turn, the new messages, the generation prompt.
Where trials do not prove that the template goes on with a prompt and an answer, there is the reason instead.

Source of the idea: PrimeIntellect's renderers (``bridge``), which has it by hand for some twenty models.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.chat_templates.bridge_proof import (
    MARKS,
    Setting,
    Thought,
    UnprovenError,
    behind_thoughts,
    call_opening,
    calls_for,
    proof_of,
    results_in,
    thought_in,
    without_space,
)
from lazyprompt.chat_templates.bridge_rendered import behind_answer, check_prompt
from lazyprompt.errors import TemplateError
from lazyprompt.messages.encoding import TokenizerLike, backend_of, encode

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt.chat_templates.bridge_proof import Call, Proof, Shape, Shown, Trial
    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.chat_templates.untrusted import Rendering


class Bridge(NamedTuple):
    """The next prompt, or the reason why there is none.

    Attributes:
        ids: The ids for the engine: those that it was given and sampled, and the new ones. None if the template could
            write another prompt: render the whole chat then.
        reason: The reason why there are none.
    """

    ids: list[int] | None
    reason: str = ""


class _TurnEnd(NamedTuple):
    """The end of an answer's turn.

    Attributes:
        common: The text behind the answer that stays where new messages come.
        shared: The text that ends the answer's turn, whatever it says.
        calls: True if it calls.
        strict: True if the completion must show that end: else it might say more behind its calls.
    """

    common: str
    shared: str
    calls: bool
    strict: bool


def bridged(
    rendering: Rendering,
    previous_ids: Iterable[int],
    completion_ids: Iterable[int],
    new_messages: Chat,
    tokenizer: TokenizerLike,
    messages: Chat | None = None,
) -> Bridge:
    """Make the ids of the next prompt out of those of the last one and of its answer.

    Args:
        rendering: The template, with all that the prompt was rendered with.
        previous_ids: The prompt that the engine was given, with the generation prompt at its end.
        completion_ids: The model's answer, with the token that ended it or without.
        new_messages: The messages behind it, as plain data: results of calls, a user's text.
        tokenizer: The tokenizer of both.
        messages: The chat that the prompt was rendered of, to prove the bridge by rendering it; None for trials.

    Returns:
        The ids, or the reason why there are none. Where the model wrote its words as the template does, they are the
        ids of the whole chat rendered and encoded.

    Raises:
        TokenizerError: The tokenizer is of no known kind, or cannot encode the text.
        SafetyError: There is a control sequence, and ``safety`` is ``raise``.
    """
    variables = {name: value for name, value in rendering.given.items() if name != "tools"}
    setting = Setting.of(rendering.template, variables, tools=bool(rendering.given["tools"]))
    # What is no tokenizer is no reason, but an error.
    encode([""], tokenizer)
    try:
        seen, sampled = _checked(previous_ids), _checked(completion_ids)
        shape = _shape(new_messages)
        answer = _decoded(sampled, tokenizer)
        if messages is not None:
            asked = rendering._replace(given={"documents": None, **rendering.given, "add_generation_prompt": True})
            return _by_rendering(asked, call_opening(setting), messages, new_messages, seen, sampled, tokenizer)
        proof = proof_of(setting, shape)
        trial, found = _found(proof, seen, answer, tokenizer, answers_calls=shape[0][0] == "tool")
        tried = rendering._replace(template=setting.template, given=setting.given(prompted=True))
        parts = _behind(setting, tried, trial, new_messages, answer)
        return Bridge([*seen, *sampled, *_added(parts, found, sampled, answer, tokenizer)])
    except (UnprovenError, TemplateError) as refused:
        return Bridge(None, str(refused))


def _by_rendering(
    rendering: Rendering,
    call: re.Pattern[str] | None,
    messages: Chat,
    new: Chat,
    seen: list[int],
    sampled: list[int],
    tokenizer: TokenizerLike,
) -> Bridge:
    """Make the ids, proven by rendering the chat."""
    answer = _decoded(sampled, tokenizer)
    results = [message for message in new if message["role"] == "tool"]
    calls_only = False
    try:
        behind = behind_answer(rendering, messages, new, answer, calls_only=False)
    except (UnprovenError, TemplateError):
        # Many templates leave out what is said beside a call.
        calls_only = bool(results and call and call.match(behind_thoughts(without_space(answer))))
        if not calls_only:
            raise
        behind = behind_answer(rendering, messages, new, answer, calls_only=True)
    check_prompt(behind.prompt, seen, tokenizer)
    _check_names(results, answer)
    found = _TurnEnd(behind.common, behind.shared, calls=bool(results), strict=calls_only)
    return Bridge([*seen, *sampled, *_added(behind.parts, found, sampled, answer, tokenizer)])


def bridge_refusal(
    template: ChatJinja,
    roles: Sequence[str] = ("user",),
    *,
    tools: bool = False,
    thought: bool = False,
    **variables: object,
) -> str:
    """Explain why a template does not go on with its prompts and answers, as far as the template alone tells.

    Args:
        template: The template.
        roles: The roles of the new messages.
        tools: True if there are tools.
        thought: True if the answer, and answers before it, hold thoughts.
        variables: The other variables of the template.

    Returns:
        The reason; nothing where it goes on with them.
    """
    setting = Setting.of(template, variables, tools=tools)
    refusals: list[str] = []
    # A template may say of each answer what was thought, be it nothing.
    for kind in (Thought.WHOLE,) if thought else (Thought.NONE, Thought.EMPTY):
        try:
            proof = proof_of(setting, _shape([{"role": role, "content": template.content("")} for role in roles]))
            prompt = next((trial.prompt for trial in proof.trials if trial.thought is kind), "")
            proof.trial(prompt, kind, kind, calls_only=bool(proof.call))
        except UnprovenError as refused:
            refusals.append(str(refused))
        else:
            return ""
    return refusals[0]


def _checked(ids: Iterable[int]) -> list[int]:
    try:
        return [*map(index, ids)]
    except TypeError as error:
        raise UnprovenError(f"ids are whole numbers: {error}") from error


def _shape(messages: Chat) -> Shape:
    """Return the shape of new messages."""
    shape: list[tuple[str, bool]] = []
    for message in messages:
        role, content = message.get("role"), cast("object", message.get("content"))
        if not isinstance(role, str) or role == "assistant":
            raise UnprovenError(f"a new message is of the role {role!r}: what the model says comes as ids")
        in_parts = isinstance(content, list | tuple)
        parts = cast("Sequence[object]", content) if in_parts else ()
        if any(
            not isinstance(part, dict) or cast("Mapping[str, object]", part).get("type") != "text" for part in parts
        ):
            raise UnprovenError("a new message holds more than text, in whose place an engine puts ids of its own")
        if shape[-2:] != [(role, in_parts)] * 2:
            shape.append((role, in_parts))
    if not shape:
        raise UnprovenError("there are no new messages")
    return tuple(shape)


def _found(
    proof: Proof, seen: Sequence[int], answer: str, tokenizer: TokenizerLike, *, answers_calls: bool
) -> tuple[Trial, _TurnEnd]:
    """Find the trial that stands for a prompt and an answer."""
    shown = _told(seen, tokenizer)
    ends = sorted({trial.prompt for trial in proof.trials}, key=len, reverse=True)
    prompt = next((end for end in ends if shown.endswith(end)), None)
    if prompt is None:
        raise UnprovenError(f"the previous ids do not end as the template's prompts do, with {ends[-1]!r}")
    answer = without_space(answer)
    if not answer:
        raise UnprovenError("the completion says nothing")
    if proof.unlike and (not proof.call or proof.call.search(answer)):
        raise UnprovenError("the completion calls, and the template ends a call that nobody answers in another way")
    earlier, thought = thought_in(shown.removesuffix(prompt)), thought_in(prompt + answer)
    calls_only = answers_calls and proof.call and proof.call.match(behind_thoughts(answer))
    try:
        trial, shared = proof.trial(prompt, earlier, thought, calls_only=False)
    except UnprovenError:
        if not calls_only:
            raise
    else:
        return trial, _TurnEnd(trial.common, shared, calls=answers_calls, strict=False)
    trial, shared = proof.trial(prompt, earlier, thought, calls_only=True)
    return trial, _TurnEnd(trial.common, shared, calls=True, strict=True)


def _behind(setting: Setting, rendering: Rendering, trial: Trial, new: Chat, completion: str) -> list[str]:
    """Render the new messages behind a trial's answer; return the text there, trusted and untrusted in turn."""
    results = new[: results_in(str(message["role"]) for message in new)]

    def shown(calls: Sequence[Call]) -> Shown:
        found = setting.shown(trial.history, trial.answer, calls)
        # An id that ends the answer may look like anything.
        ends_so = found.last.endswith(trial.ending)
        return found._replace(end=len(found.last) - len(trial.ending)) if ends_so else found

    def start(full: str, look: Shown) -> int:
        end, kept = look.end_in(full)
        if end is None or kept < trial.kept:
            raise UnprovenError(look.difference(full))
        if not full.startswith(trial.common, end):
            raise UnprovenError("what the template writes behind an answer depends on what the new messages say")
        return end

    looks = [shown(calls_for(results))]
    traces = rendering.traced([*looks[0].chat, *new])
    if traces.note:
        raise UnprovenError(traces.note)
    at = start(traces.text, looks[0])
    if results:
        # What a result does not say of its call is made up, in two ways: it must make no difference.
        looks.append(shown(calls_for(results, 70000, "listen")))
        fulls = [setting.text([*look.chat, *new], prompted=True) for look in looks]
        if len({full[start(full, look) :] for look, full in zip(looks, fulls, strict=True)}) > 1:
            raise UnprovenError("the template shows with a result the name or id of its call, and the result has none")
    _check_names(results, completion)
    begun = accumulate(map(len, traces.parts), initial=0)
    return [part[max(at - before, 0) :] for part, before in zip(traces.parts, begun, strict=False)]


def _check_names(results: Iterable[Mapping[str, Any]], completion: str) -> None:
    """Check that results name what the model called, in this order."""
    at = 0
    for name in (str(result["name"]) for result in results if result.get("name")):
        at = completion.find(name, at) + len(name)
        if at < len(name):
            raise UnprovenError(f"a result is of the tool {name!r}, and {name!r} is called nowhere")


def _added(
    parts: Sequence[str], found: _TurnEnd, sampled: Sequence[int], answer: str, tokenizer: TokenizerLike
) -> Sequence[int]:
    """Return the ids of the text behind an answer, without those that the completion ends with already.

    They begin at a control token or behind one: no tokenizer makes one token of what stands on its two sides.
    """
    text = "".join(parts)
    ids, offsets = encode(parts, tokenizer)
    common = len(found.common)
    shared = common - len(found.shared)
    untrusted = [*zip(parts, accumulate(map(len, parts)), strict=True)][1::2]
    trusted = next((max(end - len(part), common) for part, end in untrusted if end > common), len(text))
    own = sum(end <= trusted for _, end in offsets)
    starts = {at: offsets[at][0] for at in range(own) if _is_control(ids[at], tokenizer)}
    # The turn ends with a token in what ends all such turns, the last first; or else where the next turn begins. Such a
    # token may have taken white space from behind it.
    places = [at for at in starts if starts[at] >= shared and len(text[: offsets[at][1]].rstrip()) <= common][::-1]
    places = places or [at for at, start in starts.items() if start >= common][:1]
    # The text between a place and the one before it, or where the shared end begins.
    before = {
        at: text[max(shared, *(starts[other] for other in starts if other < at), 0) : starts[at]] for at in places
    }
    for at in places:
        for end in range(own, at, -1):
            if sampled[at - end :] == ids[at:end] and _fits(found, sampled[: at - end], before[at], tokenizer):
                return ids[end:]
    # It was cut off, within a text or behind a call; or the engine took away the token that ended it.
    for at in places[:1] if found.calls else places:
        ends_so = answer.endswith(before[at]) and bool(before[at].strip())
        if ends_so or not (found.calls or before[at] or _is_control(sampled[-1], tokenizer)):
            return ids[at:]
    if not places:
        raise UnprovenError(f"no control token stands behind an answer, where the template writes {text[:20]!r}")
    raise UnprovenError(f"the completion ends with {answer[-20:]!r}, and the template goes on with {text[:40]!r}")


def _fits(found: _TurnEnd, sampled: Sequence[int], before: str, tokenizer: TokenizerLike) -> bool:
    """Return True if the sampled ids before the end of the turn are an answer like the trial's."""
    answer = without_space(_decoded(sampled, tokenizer))
    if not answer:
        raise UnprovenError("the completion says nothing")
    return not found.strict or answer.endswith(without_space(before))


def _told(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """Return the text of ids, without white space; of marks that are tokens, only the real ones."""
    shown = without_space(_decoded(ids, tokenizer))
    made = {text: encode([text], tokenizer).ids for pair in MARKS for text in pair if text and text in shown}
    real = {known[0]: text for text, known in made.items() if len(known) == 1 and _is_control(known[0], tokenizer)}
    if not real:
        return shown
    pieces: list[str] = []
    for is_real, group in groupby(ids, key=real.__contains__):
        piece = without_space(_decoded([*group], tokenizer))
        for mark in () if is_real else real.values():
            piece = piece.replace(mark, "")
        pieces.append(piece)
    return "".join(pieces)


def _is_control(made: int, tokenizer: TokenizerLike) -> bool:
    """Return True if an id is a control token: trusted text alone makes it."""
    text = _decoded([made], tokenizer)
    return encode([text], tokenizer).ids == [made] != encode(["", text], tokenizer).ids


def _decoded(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """Return the text of ids, control tokens too."""
    try:
        return backend_of(tokenizer).decode(ids)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the ids are none of the tokenizer's: {error}") from error
