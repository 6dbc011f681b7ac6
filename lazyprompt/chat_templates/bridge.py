"""The next turn without rendering the history again: ids that begin with exactly what the engine saw and said.

An engine keeps what it has computed for ids that it has seen. Rendered and encoded again, a model's own words seldom
become the ids that it said: ``false`` comes back as ``False``, a space moves. So what was seen and said stays as it is,
and only what the template writes behind it is added: the end of the turn, the new messages, the generation prompt.
Where trials do not prove that the template goes on with a prompt and an answer, there is the reason instead.

Source of the idea: PrimeIntellect's renderers (``bridge``), which has it by hand for some twenty models.
"""

from __future__ import annotations

from itertools import groupby
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.chat_templates.bridge_chats import (
    Look,
    Setting,
    UnprovenError,
    before_answer,
    calls_for,
    results_in,
    without_space,
)
from lazyprompt.chat_templates.bridge_trials import Thought, behind_thoughts, proof_of, thought_in
from lazyprompt.chat_templates.untrusted import rendered_with_origins
from lazyprompt.errors import TemplateError
from lazyprompt.messages.encoding import encode
from lazyprompt.safety.policy import NEUTRALIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import tiktoken
    import tokenizers

    from lazyprompt.chat_templates.bridge_chats import Answer, Call
    from lazyprompt.chat_templates.bridge_trials import Marks, Proof, Shape, Trial
    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.safety.policy import Controls, Policy


class Bridge(NamedTuple):
    """The next prompt, or why there is none.

    Attributes:
        ids: The ids that the engine is to be given: those that it saw and said, and what comes behind. None where the
            template could write another prompt: the whole chat is to be rendered then.
        reason: Why there are none.
    """

    ids: list[int] | None
    reason: str = ""


class _Found(NamedTuple):
    """What stands for a prompt and an answer.

    Attributes:
        trial: The trial.
        shared: What ends the answer's turn, whatever it says.
        calls: Whether it calls.
        strict: Whether that end is to be seen in the completion, which else might say more behind its calls.
    """

    trial: Trial
    shared: str
    calls: bool
    strict: bool


def bridged(
    template: ChatJinja,
    controls: Controls,
    previous_ids: Iterable[int],
    completion_ids: Iterable[int],
    new_messages: Sequence[Mapping[str, Any]],
    tokenizer: TokenizerLike,
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    safety: Policy = NEUTRALIZE,
    **variables: object,
) -> Bridge:
    """The ids of the next prompt, out of those of the last one and of its answer.

    Args:
        template: The template.
        controls: Its control sequences.
        previous_ids: The prompt that the engine was given; it ends with what invites the assistant to speak.
        completion_ids: What the model said, with the token that ended it or without.
        new_messages: What comes behind it, as plain data: results of calls, what the user says.
        tokenizer: The tokenizer of both.
        tools: The tools that the prompt was rendered with.
        safety: What becomes of control sequences in the new messages.
        variables: What else the prompt was rendered with.

    Returns:
        The ids, or why there are none. Where the model wrote its words as the template does, they are the ids of the
        whole chat rendered and encoded.

    Raises:
        TokenizerError: The tokenizer is of no known kind, or cannot encode the text.
        SafetyError: There is a control sequence, and ``safety`` is ``raise``.
    """
    setting = Setting.of(template, variables, tools=bool(tools))
    # What is no tokenizer is no reason, but an error.
    encode([""], tokenizer)
    try:
        seen, said = _checked(previous_ids), _checked(completion_ids)
        shape = _shape(new_messages)
        proof = proof_of(setting, shape)
        answer = _decoded(said, tokenizer)
        found = _found(proof, seen, answer, tokenizer, answers_calls=shape[0][0] == "tool")
        parts = _behind(setting, found.trial, new_messages, answer, controls, safety)
        return Bridge([*seen, *said, *_added(parts, found, said, answer, tokenizer)])
    except (UnprovenError, TemplateError) as refused:
        return Bridge(None, str(refused))


def bridge_refusal(
    template: ChatJinja,
    roles: Sequence[str] = ("user",),
    *,
    tools: bool = False,
    thought: bool = False,
    **variables: object,
) -> str:
    """Why a template does not go on with its prompts and answers, as far as the template alone tells.

    Args:
        template: The template.
        roles: The roles of the new messages.
        tools: Whether there are tools.
        thought: Whether the answer, and answers before it, hold thoughts.
        variables: What else it is rendered with.

    Returns:
        The reason; nothing where it goes on with them.
    """
    setting = Setting.of(template, variables, tools=tools)
    refusals: list[str] = []
    # A template may say of each answer what was thought, be it nothing.
    for kind in (Thought.WHOLE,) if thought else (Thought.NONE, Thought.EMPTY):
        try:
            proof = proof_of(setting, _shape([setting.message(role, "") for role in roles]))
            prompt = next((trial.prompt for trial in proof.trials if trial.thought is kind), "")
            proof.trial(prompt, kind, kind, calls_only=True)
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


def _shape(messages: Sequence[Mapping[str, Any]]) -> Shape:
    """The kind of new messages."""
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


def _found(proof: Proof, seen: Sequence[int], answer: str, tokenizer: TokenizerLike, *, answers_calls: bool) -> _Found:
    """The trial that stands for a prompt and an answer."""
    told = _told(seen, proof.marks, tokenizer)
    prompt = next((prompt for prompt in proof.prompts if told.endswith(prompt)), None)
    if prompt is None:
        raise UnprovenError(f"the previous ids do not end as the template's prompts do, with {proof.prompts[-1]!r}")
    answer = without_space(answer)
    if not answer:
        raise UnprovenError("the completion says nothing")
    if proof.unlike and (not proof.calls or proof.calls.search(answer)):
        raise UnprovenError("the completion calls, and the template ends a call that nobody answers in another way")
    thought = thought_in(prompt + answer, proof.marks)
    earlier = thought_in(told.removesuffix(prompt), proof.marks)
    calls_only = answers_calls and proof.calls and proof.calls.match(behind_thoughts(answer, proof.marks))
    try:
        return _Found(*proof.trial(prompt, earlier, thought, calls_only=False), calls=answers_calls, strict=False)
    except UnprovenError:
        if not calls_only:
            raise
    return _Found(*proof.trial(prompt, earlier, thought, calls_only=True), calls=True, strict=True)


def _behind(
    setting: Setting, trial: Trial, new: Sequence[Mapping[str, Any]], said: str, controls: Controls, safety: Policy
) -> list[str]:
    """What the template writes behind an answer when these messages come, trusted and untrusted in turn."""
    before = before_answer(setting, trial.history)
    results = new[: results_in(str(message["role"]) for message in new)]

    def end_in(full: str, answer: Answer) -> int:
        look = Look.at(setting, before, answer)
        if look.last.endswith(trial.ending):
            # An id that ends it may look like anything.
            look = look._replace(end=len(look.last) - len(trial.ending))
        end, kept = look.end_in(full, answer.words[look.final])
        if end is None or kept < trial.kept:
            raise UnprovenError(look.difference(full))
        if not full.startswith(trial.common, end):
            raise UnprovenError("what the template writes behind an answer depends on what the new messages say")
        return end

    def tail(calls: Sequence[Call]) -> str | None:
        answer = setting.answer(trial.answer, calls)
        try:
            full = setting.text([*before.chat, answer.message, *new], prompted=True)
            return full[end_in(full, answer) :]
        except (TemplateError, UnprovenError):
            return None

    answer = setting.answer(trial.answer, calls_for(results))
    given = setting.given(prompted=True)
    traces = rendered_with_origins(setting.template, [*before.chat, answer.message, *new], given, controls, safety)
    if traces.note:
        raise UnprovenError(traces.note)
    parts = _from(traces.parts, end_in(traces.text, answer))
    # What a result does not say of its call is made up, in two ways: it must make no difference.
    if results and (written := tail(calls_for(results))) != tail(calls_for(_unnamed(results), 70000, "listen")):
        if written != tail(calls_for(results, 70000, "listen")):
            raise UnprovenError("the template shows with a result the name or id of its call, and the result has none")
        _check_names(results, said)
    return parts


def _unnamed(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in result.items() if key != "name"} for result in results]


def _check_names(results: Iterable[Mapping[str, Any]], said: str) -> None:
    """Check that what a template shows as the names of calls is what the model called, in this order."""
    at = 0
    for name in (str(result["name"]) for result in results if result.get("name")):
        at = said.find(name, at) + len(name)
        if at < len(name):
            raise UnprovenError(
                f"the template shows with a result the name of its call, and {name!r} is called nowhere"
            )


def _from(parts: Sequence[str], start: int) -> list[str]:
    """Parts from a place on."""
    at = 0
    while start >= len(parts[at]) and at + 1 < len(parts):
        start -= len(parts[at])
        at += 1
    return [*([""] if at % 2 else []), parts[at][start:], *parts[at + 1 :]]


def _added(
    parts: Sequence[str], found: _Found, said: Sequence[int], answer: str, tokenizer: TokenizerLike
) -> Sequence[int]:
    """The ids of what the template writes behind an answer, without those that the completion ends with already.

    They begin at a control token or behind one: no tokenizer makes one token of what stands on its two sides.
    """
    text = "".join(parts)
    ids, offsets = encode(parts, tokenizer)
    common = len(found.trial.common)
    trusted = _trusted_until(parts, common)
    own = sum(end <= trusted for _, end in offsets)
    starts = {at: offsets[at][0] for at in range(own) if _is_control(ids[at], tokenizer)}
    # Where the turn ends: in what ends all such turns, the last first; or else where the next one begins.
    shared = common - len(found.shared)
    places = [at for at, start in starts.items() if start >= shared and _stop(text, offsets[at]) <= common][::-1]
    places = places or [at for at, start in starts.items() if start >= common][:1]
    # What is between a place and the one before it; or what such turns end with before it.
    before = {
        at: text[max(shared, *(starts[other] for other in starts if other < at), 0) : starts[at]] for at in places
    }
    for at in places:
        for end in range(own, at, -1):
            if said[at - end :] == ids[at:end] and _fits(found, said[: at - end], before[at], tokenizer):
                return ids[end:]
    # It was cut off, within a text or behind a call; or the engine took away the token that ended it.
    for at in places[:1] if found.calls else places:
        ends_so = answer.endswith(before[at]) and bool(before[at].strip())
        if ends_so or not (found.calls or before[at] or _is_control(said[-1], tokenizer)):
            return ids[at:]
    if not places:
        raise UnprovenError(f"no control token stands behind an answer, where the template writes {text[:20]!r}")
    raise UnprovenError(f"the completion ends with {answer[-20:]!r}, and the template goes on with {text[:40]!r}")


def _fits(found: _Found, said: Sequence[int], before: str, tokenizer: TokenizerLike) -> bool:
    """Whether what was said before the end of its turn is an answer as the trials had it."""
    answer = without_space(_decoded(said, tokenizer))
    if not answer:
        raise UnprovenError("the completion says nothing")
    return not found.strict or answer.endswith(without_space(before))


def _trusted_until(parts: Sequence[str], start: int) -> int:
    """Where the trusted text at a place ends."""
    end = 0
    for at, part in enumerate(parts):
        if at % 2 and end + len(part) > start:
            return max(end, start)
        end += len(part)
    return end


def _stop(text: str, span: tuple[int, int]) -> int:
    """Where a token ends that may have taken white space from behind it."""
    return span[0] + len(text[slice(*span)].rstrip())


def _told(ids: Sequence[int], marks: Marks, tokenizer: TokenizerLike) -> str:
    """What ids say, without white space; marks that are tokens are real ones only."""
    made = {text: encode([text], tokenizer).ids for pair in marks for text in pair if text}
    real = {known[0]: text for text, known in made.items() if len(known) == 1 and _is_control(known[0], tokenizer)}
    told: list[str] = []
    for is_real, group in groupby(ids, key=real.__contains__):
        if is_real:
            told += (real[made] for made in group)
            continue
        text = without_space(_decoded([*group], tokenizer))
        for mark in real.values():
            text = text.replace(mark, "")
        told.append(text)
    return "".join(told)


def _is_control(made: int, tokenizer: TokenizerLike) -> bool:
    """Whether an id is a control token: text makes it where it is trusted, and only there."""
    text = _decoded([made], tokenizer)
    return encode([text], tokenizer).ids == [made] != encode(["", text], tokenizer).ids


def _decoded(ids: Sequence[int], tokenizer: TokenizerLike) -> str:
    """The text of ids, control tokens too."""
    backend = cast("object", getattr(tokenizer, "backend_tokenizer", tokenizer))
    try:
        if hasattr(backend, "encode_ordinary"):
            return cast("tiktoken.Encoding", backend).decode(ids)
        return cast("tokenizers.Tokenizer", backend).decode(ids, skip_special_tokens=False)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnprovenError(f"the ids are none of the tokenizer's: {error}") from error
