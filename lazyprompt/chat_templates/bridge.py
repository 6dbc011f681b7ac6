"""The ids of the next turn without rendering the history again: they begin with exactly the engine's ids.

An engine caches its computation for ids that it has seen. Rendering and encoding a model's answer seldom reproduces the
sampled ids: ``false`` becomes ``False``, or a space moves. Therefore the engine's ids are kept, and only the text that
the template writes after the answer is added: the end of the turn, the new messages and the generation prompt. If
trials do not prove that the template continues the prompt and the answer unchanged, the caller gets the reason.

Source of the idea: ``bridge`` of PrimeIntellect's renderers, hand-written for about twenty models.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt.chat_templates.bridge_proof import (
    MARKS,
    Setting,
    Thought,
    UnprovenError,
    behind_thoughts,
    call_opening,
    calls_for,
    prove,
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

    from lazyprompt.chat_templates.bridge_proof import Call, Proof, RenderedAnswer, Shape, Trial
    from lazyprompt.chat_templates.jinja import Chat, ChatJinja
    from lazyprompt.chat_templates.untrusted import Rendering


class Bridge(NamedTuple):
    """The ids of the next prompt, or the reason why there are none.

    Attributes:
        ids: The previous and sampled ids, followed by the new ones. None if the template may render a different prompt;
            then render the whole chat.
        reason: The reason if ``ids`` is None, else empty.
    """

    ids: list[int] | None
    reason: str = ""


class _TurnEnd(NamedTuple):
    """The end of an answer's turn.

    Attributes:
        common: The text after the answer that stays when new messages follow.
        shared: The text that ends the turn of every such answer.
        calls: True if the answer calls tools.
        strict: True if the completion must contain this end, because text could follow its calls.
    """

    common: str
    shared: str
    calls: bool
    strict: bool


def build_bridge(
    rendering: Rendering,
    previous_ids: Iterable[int],
    completion_ids: Iterable[int],
    new_messages: Chat,
    tokenizer: TokenizerLike,
    messages: Chat | None = None,
) -> Bridge:
    """Build the ids of the next prompt from those of the previous prompt and its answer.

    Args:
        rendering: The template and the variables that the prompt was rendered with.
        previous_ids: The ids of the previous prompt, ending with the generation prompt.
        completion_ids: The ids of the model's answer, with or without the token that ended it.
        new_messages: The messages after the answer, as plain data: tool results, user messages.
        tokenizer: The tokenizer of all ids.
        messages: The messages of the previous prompt, to prove the bridge by rendering them; None for trials.

    Returns:
        The ids, or the reason why there are none. If the model formatted its answer as the template does, they equal
        the ids of the whole chat rendered and encoded.

    Raises:
        TokenizerError: The tokenizer is not supported, or cannot encode the text.
        SafetyError: A new message contains a control sequence and ``safety`` is ``raise``.
    """
    variables = {name: value for name, value in rendering.given.items() if name != "tools"}
    setting = Setting.of(rendering.template, variables, tools=bool(rendering.given["tools"]))
    # An unsupported tokenizer raises an error instead of a reason.
    encode([""], tokenizer)
    try:
        seen, sampled = _check_ids(previous_ids), _check_ids(completion_ids)
        shape = _shape(new_messages)
        answer = _decode(sampled, tokenizer)
        if messages is not None:
            asked = rendering._replace(given={"documents": None, **rendering.given, "add_generation_prompt": True})
            return _bridge_by_rendering(asked, call_opening(setting), messages, new_messages, seen, sampled, tokenizer)
        proof = prove(setting, shape)
        trial, found = _find_trial(proof, seen, answer, tokenizer, answers_calls=shape[0][0] == "tool")
        tried = rendering._replace(template=setting.template, given=setting.given(prompted=True))
        parts = _render_behind(setting, tried, trial, new_messages, answer)
        return Bridge([*seen, *sampled, *_select_added_ids(parts, found, sampled, answer, tokenizer)])
    except (UnprovenError, TemplateError) as refused:
        return Bridge(None, str(refused))


def _bridge_by_rendering(
    rendering: Rendering,
    call: re.Pattern[str] | None,
    messages: Chat,
    new: Chat,
    seen: list[int],
    sampled: list[int],
    tokenizer: TokenizerLike,
) -> Bridge:
    """Build the ids, proven by rendering the chat."""
    answer = _decode(sampled, tokenizer)
    results = [message for message in new if message["role"] == "tool"]
    calls_only = False
    try:
        behind = behind_answer(rendering, messages, new, answer, calls_only=False)
    except (UnprovenError, TemplateError):
        # Many templates drop the text of an answer that also calls tools.
        calls_only = bool(results and call and call.match(behind_thoughts(without_space(answer))))
        if not calls_only:
            raise
        behind = behind_answer(rendering, messages, new, answer, calls_only=True)
    check_prompt(behind.prompt, seen, tokenizer)
    _check_names(results, answer)
    found = _TurnEnd(behind.common, behind.shared, calls=bool(results), strict=calls_only)
    return Bridge([*seen, *sampled, *_select_added_ids(behind.parts, found, sampled, answer, tokenizer)])


def bridge_refusal(
    template: ChatJinja,
    roles: Sequence[str] = ("user",),
    *,
    tools: bool = False,
    thought: bool = False,
    **variables: object,
) -> str:
    """Explain why a template does not continue its prompts and answers unchanged.

    Args:
        template: The template.
        roles: The roles of the new messages.
        tools: True if the chats have tools.
        thought: True if all answers contain thoughts.
        variables: Further variables of the template.

    Returns:
        The reason, or ``""`` if the template continues them unchanged.
    """
    setting = Setting.of(template, variables, tools=tools)
    refusals: list[str] = []
    # A template may write an empty thought into each answer.
    for kind in (Thought.WHOLE,) if thought else (Thought.NONE, Thought.EMPTY):
        try:
            proof = prove(setting, _shape([{"role": role, "content": template.content("")} for role in roles]))
            prompt = next((trial.prompt for trial in proof.trials if trial.thought is kind), "")
            proof.trial(prompt, kind, kind, calls_only=bool(proof.call))
        except UnprovenError as refused:
            refusals.append(str(refused))
        else:
            return ""
    return refusals[0]


def _check_ids(ids: Iterable[int]) -> list[int]:
    try:
        return [*map(index, ids)]
    except TypeError as error:
        raise UnprovenError(f"ids must be integers: {error}") from error


def _shape(messages: Chat) -> Shape:
    """Return the shape of new messages."""
    shape: list[tuple[str, bool]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role == "assistant":
            raise UnprovenError(f"a new message cannot have the role {role!r}; pass the model's answer as ids")
        in_parts = is_sequence(content)
        if is_sequence(content) and not all(is_dict(part) and part.get("type") == "text" for part in content):
            raise UnprovenError("a new message contains media, for which an engine inserts its own ids")
        if shape[-2:] != [(role, in_parts)] * 2:
            shape.append((role, in_parts))
    if not shape:
        raise UnprovenError("there are no new messages")
    return tuple(shape)


def _find_trial(
    proof: Proof, seen: Sequence[int], answer: str, tokenizer: TokenizerLike, *, answers_calls: bool
) -> tuple[Trial, _TurnEnd]:
    """Find the trial that matches a prompt and an answer."""
    text = _decode_prompt(seen, tokenizer)
    ends = sorted({trial.prompt for trial in proof.trials}, key=len, reverse=True)
    prompt = next((end for end in ends if text.endswith(end)), None)
    if prompt is None:
        raise UnprovenError(f"the previous ids do not end as the template's prompts do, with {ends[-1]!r}")
    answer = without_space(answer)
    if not answer:
        raise UnprovenError("the completion is empty")
    if proof.unlike and (not proof.call or proof.call.search(answer)):
        raise UnprovenError("the completion calls a tool, and the template ends a call without a result differently")
    earlier, thought = thought_in(text.removesuffix(prompt)), thought_in(prompt + answer)
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


def _render_behind(setting: Setting, rendering: Rendering, trial: Trial, new: Chat, completion: str) -> list[str]:
    """Render the new messages after a trial's answer.

    Returns:
        The text after the answer, as alternating trusted and untrusted parts.
    """
    results = new[: results_in(str(message["role"]) for message in new)]

    def render(calls: Sequence[Call]) -> RenderedAnswer:
        found = setting.render_answer(trial.history, trial.answer, calls)
        # A call id at the end of the answer can contain any text.
        ends_so = found.last.endswith(trial.ending)
        return found._replace(end=len(found.last) - len(trial.ending)) if ends_so else found

    def start(full: str, look: RenderedAnswer) -> int:
        end, kept = look.end_in(full)
        if end is None or kept < trial.kept:
            raise UnprovenError(look.difference(full))
        if not full.startswith(trial.common, end):
            raise UnprovenError("the text that the template writes after an answer depends on the new messages")
        return end

    looks = [render(calls_for(results))]
    traces = rendering.traced([*looks[0].chat, *new])
    if traces.note:
        raise UnprovenError(traces.note)
    at = start(traces.text, looks[0])
    if results:
        # Missing ids and names of calls are invented. Two different inventions must render the same text.
        looks.append(render(calls_for(results, 70000, "listen")))
        fulls = [setting.text([*look.chat, *new], prompted=True) for look in looks]
        if len({full[start(full, look) :] for look, full in zip(looks, fulls, strict=True)}) > 1:
            raise UnprovenError("the template renders the name or id of a result's call, and the result has none")
    _check_names(results, completion)
    begun = accumulate(map(len, traces.parts), initial=0)
    return [part[max(at - before, 0) :] for part, before in zip(traces.parts, begun, strict=False)]


def _check_names(results: Iterable[Mapping[str, Any]], completion: str) -> None:
    """Check that the results name the called tools, in the order of the calls."""
    at = 0
    for name in (str(result["name"]) for result in results if result.get("name")):
        at = completion.find(name, at) + len(name)
        if at < len(name):
            raise UnprovenError(f"a result names the tool {name!r}, which the completion does not call")


def _select_added_ids(
    parts: Sequence[str], found: _TurnEnd, sampled: Sequence[int], answer: str, tokenizer: TokenizerLike
) -> Sequence[int]:
    """Return the ids of the text after an answer, without those at the end of the completion.

    They begin at or after a control token, because no tokenizer merges text across one.
    """
    text = "".join(parts)
    ids, offsets = encode(parts, tokenizer)
    common = len(found.common)
    shared = common - len(found.shared)
    untrusted = [*zip(parts, accumulate(map(len, parts)), strict=True)][1::2]
    trusted = next((max(end - len(part), common) for part, end in untrusted if end > common), len(text))
    own = sum(end <= trusted for _, end in offsets)
    starts = {at: offsets[at][0] for at in range(own) if _is_control(ids[at], tokenizer)}
    # The turn ends with a control token in the text that ends all such turns (the last one first), or where the next
    # turn begins. The token may include the white space that follows it.
    places = [at for at in starts if starts[at] >= shared and len(text[: offsets[at][1]].rstrip()) <= common][::-1]
    places = places or [at for at, start in starts.items() if start >= common][:1]
    # The text between each place and the preceding place or the beginning of the shared end.
    before = {
        at: text[max(shared, *(starts[other] for other in starts if other < at), 0) : starts[at]] for at in places
    }
    for at in places:
        for end in range(own, at, -1):
            if sampled[at - end :] == ids[at:end] and _fits(found, sampled[: at - end], before[at], tokenizer):
                return ids[end:]
    # The completion was cut off, within a text or after a call, or the engine removed the token that ended it.
    for at in places[:1] if found.calls else places:
        ends_so = answer.endswith(before[at]) and bool(before[at].strip())
        if ends_so or not (found.calls or before[at] or _is_control(sampled[-1], tokenizer)):
            return ids[at:]
    if not places:
        raise UnprovenError(f"no control token follows an answer; the template writes {text[:20]!r} there")
    raise UnprovenError(f"the completion ends with {answer[-20:]!r}, and the template continues with {text[:40]!r}")


def _fits(found: _TurnEnd, sampled: Sequence[int], before: str, tokenizer: TokenizerLike) -> bool:
    """Return True if the sampled ids before the end of the turn form an answer like the trial's."""
    answer = without_space(_decode(sampled, tokenizer))
    if not answer:
        raise UnprovenError("the completion is empty")
    return not found.strict or answer.endswith(without_space(before))


def _decode_prompt(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """Decode ids without white space, and drop thought tags that the text imitates where the real tags are tokens."""
    text = without_space(_decode(ids, tokenizer))
    made = {tag: encode([tag], tokenizer).ids for pair in MARKS for tag in pair if tag and tag in text}
    real = {known[0]: tag for tag, known in made.items() if len(known) == 1 and _is_control(known[0], tokenizer)}
    if not real:
        return text
    pieces: list[str] = []
    for is_real, group in groupby(ids, key=real.__contains__):
        piece = without_space(_decode([*group], tokenizer))
        for mark in () if is_real else real.values():
            piece = piece.replace(mark, "")
        pieces.append(piece)
    return "".join(pieces)


def _is_control(made: int, tokenizer: TokenizerLike) -> bool:
    """Return True if an id is a control token, which only trusted text encodes to."""
    text = _decode([made], tokenizer)
    return encode([text], tokenizer).ids == [made] != encode(["", text], tokenizer).ids


def _decode(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """Return the text of ids, control tokens included."""
    try:
        return backend_of(tokenizer).decode(ids)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the tokenizer cannot decode the ids: {error}") from error
