"""A report on a chat template's capabilities, which are tested by rendering sample chats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jinja2 import meta, nodes

from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.chat_templates.dialect import parse_template
from lazyprompt.chat_templates.jinja import CALLING, TOOL, ChatJinja, with_arguments, with_json_arguments
from lazyprompt.chat_templates.trained import answer_end
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.errors import TemplateError
from lazyprompt.safety.policy import NEUTRALIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt.safety.find import Controls


# The result (None if the test does not apply to the template), and an explanation of the result.
_Answer: TypeAlias = tuple[bool | None, str]
_GIVEN = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception", "range", "namespace")
)
_NAME = TOOL["function"]["name"]
_SYSTEM = {"role": "system", "content": "Regula."}
_USER = {"role": "user", "content": "Quaestio?"}
_ANSWER = {"role": "assistant", "content": "Responsum."}
_THOUGHTFUL = _ANSWER | {"reasoning_content": "Cogitatio.", "thinking": "Cogitatio."}


class Ability(NamedTuple):
    """The result of testing one capability of a chat template.

    Attributes:
        name: The name of the capability.
        holds: True if the template has the capability; None if the test does not apply to the template.
        detail: An explanation of the result; empty if there is nothing to explain.
    """

    name: str
    holds: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """The test results for the capabilities of a chat template.

    Args:
        findings: The test result for each capability.
    """

    findings: tuple[Ability, ...]

    def __getitem__(self, name: str) -> Ability:
        """Return the test result for a capability.

        Raises:
            KeyError: The report contains no capability with this name.
        """
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    def __str__(self) -> str:
        """Return the report as text, with one line for each capability."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        words = {True: "yes", False: "no", None: "-"}
        return "\n".join(
            f"{name:{width}}  {words[holds]:3}  {detail}".rstrip() for name, holds, detail in self.findings
        )


class _Subject(NamedTuple):
    """The template under test.

    Attributes:
        template: The template.
        controls: The template's control sequences.
        adds_bos: True if the tokenizer adds a beginning-of-text token to each text; None if unknown.
    """

    template: ChatJinja
    controls: Controls
    adds_bos: bool | None

    def adapt(self, chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Convert a chat to the message format that the template accepts."""
        return [self.template.with_content(self.template.call_form.convert(message)) for message in chat]

    def try_render(self, *chat: dict[str, Any], tools: object = None, prompted: bool = False) -> tuple[str | None, str]:
        """Return the rendered chat; if the template rejects the chat, return None and the reason."""
        given = {"tools": tools, "documents": None, "add_generation_prompt": prompted}
        try:
            return self.template.run(self.adapt(chat), given), ""
        except TemplateError as error:
            return None, str(error)

    def text(self, *chat: dict[str, Any], tools: object = None, prompted: bool = False) -> str | None:
        """Return the rendered chat, or None if the template rejects the chat."""
        return self.try_render(*chat, tools=tools, prompted=prompted)[0]


def check_template(template: ChatJinja, controls: Controls, *, adds_bos: bool | None = None) -> TemplateReport:
    """Test the capabilities of a template by rendering sample chats.

    Args:
        template: The template.
        controls: The template's control sequences.
        adds_bos: True if the tokenizer adds its beginning-of-text token to each text; None if unknown.

    Returns:
        The report.
    """
    subject = _Subject(template, controls, adds_bos)
    return TemplateReport(tuple(Ability(name, *ask(subject)) for name, ask in _QUESTIONS.items()))


def _unless(holds: bool, detail: str) -> _Answer:  # noqa: FBT001 - an answer
    return holds, "" if holds else detail


def _system(subject: _Subject) -> _Answer:
    text, why = subject.try_render(_SYSTEM, _USER)
    return _unless(_SYSTEM["content"] in (text or ""), "it is dropped" if text is not None else why)


def _alternation(subject: _Subject) -> _Answer:
    why = subject.try_render(_USER, _USER)[1]
    return bool(why), why


def _tools(subject: _Subject) -> _Answer:
    text = subject.text(_USER, tools=[TOOL])
    return _unless(_NAME in (text or ""), "they are dropped" if text is not None else "it rejects tools")


def _calls(subject: _Subject) -> _Answer:
    bare, why = subject.try_render(*CALLING)
    text = subject.text(*CALLING, tools=[TOOL]) or bare
    if text is None:
        return False, why
    missing = [what for what, word in (("the call", _NAME), ("its arguments", "at")) if word not in text]
    return _unless(not missing, f"dropped: {', '.join(missing)}")


def _string_arguments(subject: _Subject) -> _Answer:
    user, called, _ = CALLING
    called = subject.template.with_content(called)
    chats = [[subject.template.with_content(user), form(called)] for form in (with_arguments, with_json_arguments)]
    as_dict, as_json = map(subject.template.try_render, chats)
    if as_json is None:
        return False, "it fails with them; lazyprompt passes dicts" if as_dict is not None else "it accepts no calls"
    if as_dict is None:
        return True, "it accepts nothing else; lazyprompt passes JSON"
    if _NAME not in as_dict + as_json:
        return None, "calls are dropped"
    return _unless(as_dict == as_json, "it writes them differently from dicts; lazyprompt passes dicts")


def _null_content(subject: _Subject) -> _Answer:
    return _unless(subject.template.call_form.null_content, "lazyprompt passes empty text")


def _text_contents(subject: _Subject) -> _Answer:
    only_parts = "only parts; lazyprompt passes texts as parts" if subject.template.shows_parts else ""
    return _unless(subject.template.shows_text, only_parts)


def _prefixes(subject: _Subject) -> _Answer:
    user, called, result = CALLING
    chats = {
        "plain turns": (_USER, _ANSWER, _USER, _ANSWER, _USER),
        "a call and its result": (user, called, result, _ANSWER),
        "thoughts before a user": (_USER, _THOUGHTFUL, _USER),
        "thoughts before a result": (user, called | {"reasoning_content": "Cogitatio."}, result),
    }
    broken = [what for what, chat in chats.items() if _broken(subject, chat)]
    return _unless(not broken, f"later messages change earlier text: {', '.join(broken)}")


def _broken(subject: _Subject, chat: Sequence[dict[str, Any]]) -> bool:
    """Return True if adding a message changes earlier text; white space and the end-of-text token are ignored."""
    texts = [subject.text(*chat[:most]) for most in range(1, len(chat) + 1)]
    eos = subject.template.special_tokens.get("eos_token") or "\0"
    return any(
        before is not None and after is not None and not after.startswith(before.rstrip().removesuffix(eos).rstrip())
        for before, after in pairwise(texts)
    )


def _generation(subject: _Subject) -> _Answer:
    prompt, bare = subject.text(_USER, prompted=True), subject.text(_USER)
    whole = subject.text(_USER, _ANSWER)
    if prompt is None or whole is None:
        return None, "it rejects a short chat"
    holds = whole.startswith(prompt)
    notes = ["there is none: the prompt is the same without it"] if prompt == bare else []
    notes += [] if holds else ["an answer in a chat begins differently from the generation prompt"]
    return holds, "; ".join(notes)


def _stop(subject: _Subject) -> _Answer:
    text, why = subject.try_render(_USER, _ANSWER)
    if text is None:
        return None, why
    end = answer_end(subject.template, subject.controls)
    kept, why = _origins(subject)
    if not kept:
        return None, why
    if not end:
        return False, "no text ends an answer, so training does not teach the model to stop"
    eos = subject.template.special_tokens.get("eos_token")
    return True, f"{end!r}" + (f", but the tokenizer's end of text is {eos!r}" if eos and eos not in end else "")


def _thoughts(subject: _Subject) -> _Answer:
    last, past = subject.text(_USER, _THOUGHTFUL), subject.text(_USER, _THOUGHTFUL, _USER)
    word = _THOUGHTFUL["reasoning_content"]
    places = [where for where, text in (("the last turn", last), ("earlier turns", past)) if text and word in text]
    return bool(places), f"in {' and '.join(places)}" if places else ""


def _bos(subject: _Subject) -> _Answer:
    bos = subject.template.special_tokens.get("bos_token")
    text = subject.text(_USER)
    if not bos or text is None:
        return None, "there is no known beginning-of-text token"
    if text.startswith(bos * 2):
        return True, "the template writes the token twice"
    if not text.startswith(bos):
        return False, "the template does not write the token"
    if subject.adds_bos is None:
        return None, "the template writes the token: encode without adding special tokens"
    note = "the tokenizer adds another: encode without adding special tokens" if subject.adds_bos else ""
    return subject.adds_bos, note


def _clock(subject: _Subject) -> _Answer:
    names = meta.find_undeclared_variables(parse_template(subject.template.text))
    return "strftime_now" in names, "pass now= to get the same text every day" if "strftime_now" in names else ""


def _variables(subject: _Subject) -> _Answer:
    tree = parse_template(subject.template.text)
    set_by_itself = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    names = {name for name in meta.find_undeclared_variables(tree) if not name.endswith("_token")}
    names -= _GIVEN | set_by_itself
    return bool(names), ", ".join(sorted(names))


def _origins(subject: _Subject) -> _Answer:
    for chat, tools in (((_USER, _ANSWER, _USER), None), (CALLING, [TOOL])):
        if subject.text(*chat, tools=tools) is None:
            continue
        given = {"tools": tools, "documents": None, "add_generation_prompt": True}
        note = Rendering(subject.template, given, subject.controls, NEUTRALIZE).traced(subject.adapt(chat)).note
        if note:
            return False, note
    return True, ""


def _bridge(subject: _Subject, role: str) -> _Answer:
    why = bridge_refusal(subject.template, (role,), tools=role == "tool")
    return not why, why


_QUESTIONS: dict[str, Callable[[_Subject], _Answer]] = {
    "system text supported": _system,
    "alternation required": _alternation,
    "tools supported": _tools,
    "tool calls supported": _calls,
    "string arguments accepted": _string_arguments,
    "null content accepted": _null_content,
    "text contents shown": _text_contents,
    "content parts shown": lambda subject: (subject.template.shows_parts, ""),
    "thoughts shown": _thoughts,
    "prefix-preserving over turns": _prefixes,
    "generation prompt consistent": _generation,
    "stop token trained": _stop,
    "double beginning of text": _bos,
    "asks for the time": _clock,
    "further variables": _variables,
    "origins kept": _origins,
    "bridged to a user's turn": partial(_bridge, role="user"),
    "bridged to results of calls": partial(_bridge, role="tool"),
}
