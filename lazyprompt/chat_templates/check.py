"""Report of the abilities of a chat template, found by rendering chats with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jinja2 import meta, nodes

from lazyprompt.chat_templates.bridge import bridge_refusal
from lazyprompt.chat_templates.dialect import parsed
from lazyprompt.chat_templates.jinja import CALLING, TOOL, ChatJinja, with_arguments, with_json_arguments
from lazyprompt.chat_templates.trained import answer_end
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.errors import TemplateError
from lazyprompt.safety.policy import NEUTRALIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt.safety.find import Controls


# True, False, or None where the template does not come that far; and more of it, in words.
_Answer: TypeAlias = tuple[bool | None, str]
_GIVEN = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception", "range", "namespace")
)
_NAME = TOOL["function"]["name"]
_SYSTEM = {"role": "system", "content": "Regula."}
_USER = {"role": "user", "content": "Quaestio?"}
_ANSWER = {"role": "assistant", "content": "Responsum."}
_THOUGHTFUL = _ANSWER | {"reasoning_content": "Cogitatio.", "thinking": "Cogitatio."}


class Finding(NamedTuple):
    """An answer about a template.

    Attributes:
        name: What was asked.
        holds: Whether it holds; None where the template does not come that far.
        detail: More of it, in words.
    """

    name: str
    holds: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """Abilities of a chat template.

    Args:
        findings: The answers.
    """

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        """The answer to a question, by its name.

        Raises:
            KeyError: It is not among those that were asked.
        """
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    def __str__(self) -> str:
        """A line for each answer."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        words = {True: "yes", False: "no", None: "-"}
        return "\n".join(
            f"{name:{width}}  {words[holds]:3}  {detail}".rstrip() for name, holds, detail in self.findings
        )


class _Tried(NamedTuple):
    """A template with what it is tried on.

    Attributes:
        template: The template.
        controls: Its control sequences.
        adds_bos: True if the tokenizer puts a token before each text; None where nobody knows.
    """

    template: ChatJinja
    controls: Controls
    adds_bos: bool | None

    def shown(self, chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a chat in the form that the template takes."""
        return [self.template.with_content(self.template.takes.form(message)) for message in chat]

    def tried(self, *chat: dict[str, Any], tools: object = None, prompted: bool = False) -> tuple[str | None, str]:
        """Return what the template writes, or None and the reason why it refuses."""
        given = {"tools": tools, "documents": None, "add_generation_prompt": prompted}
        try:
            return self.template.run(self.shown(chat), given), ""
        except TemplateError as error:
            return None, str(error)

    def text(self, *chat: dict[str, Any], tools: object = None, prompted: bool = False) -> str | None:
        """Return what the template writes; None where it refuses."""
        return self.tried(*chat, tools=tools, prompted=prompted)[0]


def check_template(template: ChatJinja, controls: Controls, *, adds_bos: bool | None = None) -> TemplateReport:
    """Ask a template what it can do.

    Args:
        template: The template.
        controls: Its control sequences.
        adds_bos: Whether the tokenizer puts its beginning of text before each text; None where nobody knows.

    Returns:
        The answers.
    """
    tried = _Tried(template, controls, adds_bos)
    return TemplateReport(tuple(Finding(name, *ask(tried)) for name, ask in _QUESTIONS.items()))


def _unless(holds: bool, detail: str) -> _Answer:  # noqa: FBT001 - an answer
    return holds, "" if holds else detail


def _system(tried: _Tried) -> _Answer:
    text, why = tried.tried(_SYSTEM, _USER)
    return _unless(_SYSTEM["content"] in (text or ""), "it is left out" if text is not None else why)


def _alternation(tried: _Tried) -> _Answer:
    why = tried.tried(_USER, _USER)[1]
    return bool(why), why


def _tools(tried: _Tried) -> _Answer:
    text = tried.text(_USER, tools=[TOOL])
    return _unless(_NAME in (text or ""), "they are left out" if text is not None else "it refuses tools")


def _calls(tried: _Tried) -> _Answer:
    bare, why = tried.tried(*CALLING)
    text = tried.text(*CALLING, tools=[TOOL]) or bare
    if text is None:
        return False, why
    missing = [what for what, word in (("the call", _NAME), ("its arguments", "at")) if word not in text]
    return _unless(not missing, f"left out: {', '.join(missing)}")


def _string_arguments(tried: _Tried) -> _Answer:
    user, called, _ = CALLING
    called = tried.template.with_content(called)
    chats = [[tried.template.with_content(user), form(called)] for form in (with_arguments, with_json_arguments)]
    as_dict, as_json = map(tried.template.writes, chats)
    if as_json is None:
        return False, "it fails with them; they are read before it" if as_dict is not None else "it takes no calls"
    if as_dict is None:
        return True, "it takes nothing else; dicts are written as JSON before it"
    if _NAME not in as_dict + as_json:
        return None, "calls are left out"
    return _unless(as_dict == as_json, "it writes them in another way than dicts; they are read before it")


def _text_contents(tried: _Tried) -> _Answer:
    only_parts = "only parts: texts are given to it as such" if tried.template.shows_parts else ""
    return _unless(tried.template.shows_text, only_parts)


def _prefixes(tried: _Tried) -> _Answer:
    user, called, result = CALLING
    chats = {
        "plain turns": (_USER, _ANSWER, _USER, _ANSWER, _USER),
        "a call and its result": (user, called, result, _ANSWER),
        "thoughts before a user": (_USER, _THOUGHTFUL, _USER),
        "thoughts before a result": (user, called | {"reasoning_content": "Cogitatio."}, result),
    }
    broken = [what for what, chat in chats.items() if _broken(tried, chat)]
    return _unless(not broken, f"earlier text changes with later messages: {', '.join(broken)}")


def _broken(tried: _Tried, chat: Sequence[dict[str, Any]]) -> bool:
    """Return True if a longer chat does not begin as a shorter one, white space and the end of a text aside."""
    texts = [tried.text(*chat[:most]) for most in range(1, len(chat) + 1)]
    eos = tried.template.special_tokens.get("eos_token") or "\0"
    return any(
        before is not None and after is not None and not after.startswith(before.rstrip().removesuffix(eos).rstrip())
        for before, after in pairwise(texts)
    )


def _generation(tried: _Tried) -> _Answer:
    prompt, bare = tried.text(_USER, prompted=True), tried.text(_USER)
    whole = tried.text(_USER, _ANSWER)
    if prompt is None or whole is None:
        return None, "it refuses a short chat"
    holds = whole.startswith(prompt)
    none = "there is none: the prompt is the same without it; " if prompt == bare else ""
    return holds, none + ("" if holds else "an answer in a chat begins in another way than the prompt for it")


def _stop(tried: _Tried) -> _Answer:
    text, why = tried.tried(_USER, _ANSWER)
    if text is None:
        return None, why
    end = answer_end(tried.template, tried.controls)
    kept, why = _origins(tried)
    if not kept:
        return None, why
    if not end:
        return False, "nothing stands behind an answer, so that a model is not taught to stop"
    eos = tried.template.special_tokens.get("eos_token")
    return True, f"{end!r}" + (f", while the tokenizer's end of text is {eos!r}" if eos and eos not in end else "")


def _thoughts(tried: _Tried) -> _Answer:
    last, past = tried.text(_USER, _THOUGHTFUL), tried.text(_USER, _THOUGHTFUL, _USER)
    word = _THOUGHTFUL["reasoning_content"]
    places = [where for where, text in (("the last turn", last), ("earlier turns", past)) if text and word in text]
    return bool(places), f"in {' and '.join(places)}" if places else ""


def _bos(tried: _Tried) -> _Answer:
    bos = tried.template.special_tokens.get("bos_token")
    text = tried.text(_USER)
    if not bos or text is None:
        return None, "no beginning of text is known"
    if text.startswith(bos * 2):
        return True, "the template itself writes it twice"
    if not text.startswith(bos):
        return False, "the template writes none"
    if tried.adds_bos is None:
        return None, "the template writes it: encode without adding special tokens"
    return tried.adds_bos, "the tokenizer adds another: encode without adding special tokens" if tried.adds_bos else ""


def _clock(tried: _Tried) -> _Answer:
    names = meta.find_undeclared_variables(parsed(tried.template.text))
    return "strftime_now" in names, "give now= for the same text each day" if "strftime_now" in names else ""


def _variables(tried: _Tried) -> _Answer:
    tree = parsed(tried.template.text)
    set_by_itself = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    names = {name for name in meta.find_undeclared_variables(tree) if not name.endswith("_token")}
    names -= _GIVEN | set_by_itself
    return bool(names), ", ".join(sorted(names))


def _origins(tried: _Tried) -> _Answer:
    for chat, tools in (((_USER, _ANSWER, _USER), None), (CALLING, [TOOL])):
        if tried.text(*chat, tools=tools) is None:
            continue
        given = {"tools": tools, "documents": None, "add_generation_prompt": True}
        note = Rendering(tried.template, given, tried.controls, NEUTRALIZE).traced(tried.shown(chat)).note
        if note:
            return False, note
    return True, ""


def _bridged(tried: _Tried, role: str) -> _Answer:
    why = bridge_refusal(tried.template, (role,), tools=role == "tool")
    return not why, why


_QUESTIONS: dict[str, Callable[[_Tried], _Answer]] = {
    "system text supported": _system,
    "alternation required": _alternation,
    "tools supported": _tools,
    "tool calls supported": _calls,
    "string arguments accepted": _string_arguments,
    "null content accepted": lambda tried: _unless(tried.template.takes.null_content, "it is given an empty text"),
    "text contents shown": _text_contents,
    "content parts shown": lambda tried: (tried.template.shows_parts, ""),
    "thoughts shown": _thoughts,
    "prefix-preserving over turns": _prefixes,
    "generation prompt consistent": _generation,
    "stop token trained": _stop,
    "double beginning of text": _bos,
    "asks for the time": _clock,
    "further variables": _variables,
    "origins kept": _origins,
    "bridged to a user's turn": partial(_bridged, role="user"),
    "bridged to results of calls": partial(_bridged, role="tool"),
}
