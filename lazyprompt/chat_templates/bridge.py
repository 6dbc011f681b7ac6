"""Token ids for the next prompt that start with exactly the ids the engine has already processed.

An inference engine can reuse its cached computation only for a prompt that starts with the same token ids. Rendering
and encoding a model's response again rarely reproduces the sampled ids, because ``false`` may become ``False``, or a
space may move. The bridge therefore keeps the engine's ids and appends only the ids of the text after the response: the
end of the turn, the new messages and the generation prompt. If trial renderings don't show that the template keeps the
prompt and the response unchanged, the bridge returns the reason instead of ids.

The idea comes from PrimeIntellect's renderers, whose ``bridge`` is hand-written for about twenty models.
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
    """The token ids of the next prompt, or the reason why the bridge can't build them.

    Attributes:
        ids: The previous ids, the sampled ids and the new ids. If the template may change earlier text, ``ids`` is
            None, and you must render the whole chat.
        reason: The reason why ``ids`` is None; empty if the bridge built the ids.
    """

    ids: list[int] | None
    reason: str = ""


class _TurnEnd(NamedTuple):
    """The text that ends an assistant turn.

    Attributes:
        common: The text that the template writes directly after the response, whether or not new messages follow.
        shared: The longest suffix of ``common`` that is the same for all matching sample responses.
        calls: True if the response calls tools.
        strict: True if the completion must contain the end of the turn, because other text could follow the
            completion's tool calls.
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
    """Build the token ids of the next prompt from the ids of the previous prompt and the response.

    If the response has exactly the template's format, rendering and encoding the whole chat would return the same ids.

    Args:
        rendering: The template and the variables that the prompt was rendered with.
        previous_ids: The ids of the previous prompt, ending with the generation prompt.
        completion_ids: The ids of the model's response, with or without the token that ended it.
        new_messages: The messages after the response, such as tool results and user messages, as plain data.
        tokenizer: The tokenizer that produced the ids.
        messages: The messages of the previous prompt, which are rendered to check the bridge. If ``messages`` is
            None, the check renders sample chats.

    Returns:
        The ids, or the reason why the bridge can't build them.

    Raises:
        TokenizerError: The tokenizer is not supported, or cannot encode the text.
        SafetyError: A new message contains a control sequence and ``safety`` is ``raise``.
    """
    variables = {name: value for name, value in rendering.given.items() if name != "tools"}
    setting = Setting.of(rendering.template, variables, tools=bool(rendering.given["tools"]))
    # Encode an empty string, so that an unsupported tokenizer raises an error here and not in the ``try`` block below,
    # which would catch this error.
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
    """Build the ids of the next prompt, after checking that the rendered messages match the previous prompt."""
    answer = _decode(sampled, tokenizer)
    results = [message for message in new if message["role"] == "tool"]
    calls_only = False
    try:
        behind = behind_answer(rendering, messages, new, answer, calls_only=False)
    except (UnprovenError, TemplateError):
        # Many templates drop the text of a response that also calls tools.
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
    """Return the reason why no bridge is possible: how a template changes earlier text when more messages follow.

    Args:
        template: The template.
        roles: The roles of the new messages.
        tools: True if the chats contain tools.
        thought: True if all assistant messages contain reasoning.
        variables: Additional template variables.

    Returns:
        The reason why no bridge is possible, or ``""`` if the template leaves earlier prompts and responses unchanged.
    """
    setting = Setting.of(template, variables, tools=tools)
    refusals: list[str] = []
    # Some templates add an empty reasoning block to responses without reasoning, so check with and without this block.
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
    shape: list[tuple[str, bool]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role == "assistant":
            raise UnprovenError(f"a new message cannot have the role {role!r}; pass the model's response as ids")
        in_parts = is_sequence(content)
        if is_sequence(content) and not all(is_dict(part) and part.get("type") == "text" for part in content):
            raise UnprovenError("a new message contains media, which the engine replaces with its own ids")
        if shape[-2:] != [(role, in_parts)] * 2:
            shape.append((role, in_parts))
    if not shape:
        raise UnprovenError("no new messages; pass at least one")
    return tuple(shape)


def _find_trial(
    proof: Proof, seen: Sequence[int], answer: str, tokenizer: TokenizerLike, *, answers_calls: bool
) -> tuple[Trial, _TurnEnd]:
    """Find the sample chat whose rendering matches a prompt and a response."""
    text = _decode_prompt(seen, tokenizer)
    ends = sorted({trial.prompt for trial in proof.trials}, key=len, reverse=True)
    prompt = next((end for end in ends if text.endswith(end)), None)
    if prompt is None:
        raise UnprovenError(f"the previous ids must end with the template's generation prompt, such as {ends[-1]!r}")
    answer = without_space(answer)
    if not answer:
        raise UnprovenError("the completion is empty")
    if proof.unlike and (not proof.call or proof.call.search(answer)):
        raise UnprovenError(
            "the completion contains a tool call without a result, and the template ends a turn with such a call "
            "differently from other turns"
        )
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
    """Render a sample chat and the new messages after its response.

    Returns:
        The text after the sample chat's response, as alternating trusted and untrusted parts.
    """
    results = new[: results_in(str(message["role"]) for message in new)]

    def render(calls: Sequence[Call]) -> RenderedAnswer:
        found = setting.render_answer(trial.history, trial.answer, calls)
        # A template may repeat a tool call's id after the response, so the last id doesn't mark the response's end.
        # Find the response's end by the text that the template is known to write after a response.
        ends_so = found.last.endswith(trial.ending)
        return found._replace(end=len(found.last) - len(trial.ending)) if ends_so else found

    def start(full: str, look: RenderedAnswer) -> int:
        end, kept = look.end_in(full)
        if end is None or kept < trial.kept:
            raise UnprovenError(look.difference(full))
        if not full.startswith(trial.common, end):
            raise UnprovenError("the text that the template writes after a response depends on the new messages")
        return end

    looks = [render(calls_for(results))]
    traces = rendering.traced([*looks[0].chat, *new])
    if traces.note:
        raise UnprovenError(traces.note)
    at = start(traces.text, looks[0])
    if results:
        # Render again with other placeholders for missing call ids and names, because the text after the response must
        # not depend on the placeholders.
        looks.append(render(calls_for(results, 70000, "listen")))
        fulls = [setting.text([*look.chat, *new], prompted=True) for look in looks]
        if len({full[start(full, look) :] for look, full in zip(looks, fulls, strict=True)}) > 1:
            raise UnprovenError(
                "the template renders a tool call's id or name that is missing from a tool result; set tool_call_id "
                "and name in each tool result"
            )
    _check_names(results, completion)
    begun = accumulate(map(len, traces.parts), initial=0)
    return [part[max(at - before, 0) :] for part, before in zip(traces.parts, begun, strict=False)]


def _check_names(results: Iterable[Mapping[str, Any]], completion: str) -> None:
    """Check that the completion calls the tools that the results name, in the order of the results."""
    at = 0
    for name in (str(result["name"]) for result in results if result.get("name")):
        at = completion.find(name, at) + len(name)
        if at < len(name):
            raise UnprovenError(f"a tool result names the tool {name!r}, which the completion does not call")


def _select_added_ids(
    parts: Sequence[str], found: _TurnEnd, sampled: Sequence[int], answer: str, tokenizer: TokenizerLike
) -> Sequence[int]:
    """Return the ids of the text after a response, except the ids that already end the completion.

    The returned ids begin at or after a control token, because no tokenizer merges text across a control token.
    """
    text = "".join(parts)
    ids, offsets = encode(parts, tokenizer)
    common = len(found.common)
    shared = common - len(found.shared)
    untrusted = [*zip(parts, accumulate(map(len, parts)), strict=True)][1::2]
    trusted = next((max(end - len(part), common) for part, end in untrusted if end > common), len(text))
    own = sum(end <= trusted for _, end in offsets)
    starts = {at: offsets[at][0] for at in range(own) if _is_control(ids[at], tokenizer)}
    # Usually, a control token ends a turn. Try the control tokens that all sample turns end with, last token first.
    places = [at for at in starts if starts[at] >= shared and len(text[: offsets[at][1]].rstrip()) <= common][::-1]
    places = places or [at for at, start in starts.items() if start >= common][:1]
    before = {
        at: text[max(shared, *(starts[other] for other in starts if other < at), 0) : starts[at]] for at in places
    }
    for at in places:
        for end in range(own, at, -1):
            if sampled[at - end :] == ids[at:end] and _fits(found, sampled[: at - end], before[at], tokenizer):
                return ids[end:]
    # If no end token was found, the completion was truncated, or the engine removed the completion's end token.
    for at in places[:1] if found.calls else places:
        ends_so = answer.endswith(before[at]) and bool(before[at].strip())
        if ends_so or not (found.calls or before[at] or _is_control(sampled[-1], tokenizer)):
            return ids[at:]
    if not places:
        raise UnprovenError(f"the template writes {text[:20]!r} after a response; expected a control token")
    raise UnprovenError(
        f"the completion ends with {answer[-20:]!r}, but the template continues with {text[:40]!r} after a response"
    )


def _fits(found: _TurnEnd, sampled: Sequence[int], before: str, tokenizer: TokenizerLike) -> bool:
    """Return True if the end of the turn may follow the sampled ids.

    If ``found.strict`` is True, the decoded ids must end with ``before``.

    Raises:
        UnprovenError: The sampled ids decode to an empty text or to white space only.
    """
    answer = without_space(_decode(sampled, tokenizer))
    if not answer:
        raise UnprovenError("the completion is empty")
    return not found.strict or answer.endswith(without_space(before))


def _decode_prompt(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """Decode the ids of a prompt, and remove all white space.

    If a reasoning tag is a control token, also remove each copy of the tag that is encoded as ordinary tokens.
    """
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
    """Return True if an id is a control token; only trusted text is encoded to control tokens."""
    text = _decode([made], tokenizer)
    return encode([text], tokenizer).ids == [made] != encode(["", text], tokenizer).ids


def _decode(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    try:
        return backend_of(tokenizer).decode(ids)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the tokenizer cannot decode the ids: {error}") from error
