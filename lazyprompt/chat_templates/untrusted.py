"""What nobody trusts in a chat: found, made harmless, and traced through the template."""

from __future__ import annotations

import re
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.roles import ROLES
from lazyprompt.chat_templates.conversation import CONTINUED
from lazyprompt.chat_templates.traced import Origin, Traced, cut, map_texts, parts_of, trace
from lazyprompt.chat_templates.untraced import untraced_parts
from lazyprompt.errors import TemplateError
from lazyprompt.safety.policy import Neutralised

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt.chat_templates.jinja import ChatJinja
    from lazyprompt.chat_templates.traced import Run
    from lazyprompt.safety.policy import Controls, Policy

# The fields of a message that hold what somebody said.
_SAID = ("content", "reasoning_content", "reasoning", "thinking")
# What an assistant thought and then said, in one text; a generation prompt may have opened the thought, or
# it is to be gone on with.
_THOUGHT = re.compile(
    rf"\s*+(<think>)?(?:(?!<think>).)*?(</think>)|\s*+(<think>)(?=(?:(?!<think>).)*{CONTINUED}\Z)", re.DOTALL
)


class Traces(NamedTuple):
    """A chat that was rendered with its origins.

    Attributes:
        parts: Trusted and untrusted text in turn.
        origins: The origin of each part.
        note: The reason why the template loses origins, if it does; only its own control sequences are trusted then.
    """

    parts: Sequence[str]
    origins: Sequence[Origin]
    note: str = ""

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.parts)


def rendered_with_origins(
    template: ChatJinja,
    chat: Sequence[Mapping[str, Any]],
    given: Mapping[str, object],
    controls: Controls,
    safety: Policy,
) -> Traces:
    """Render a chat with its origins, and make harmless what nobody trusts.

    What somebody said is made harmless before the template sees it, so that no forged tag makes it cut there. What a
    template puts together itself (arguments, tools, a sequence that begins in its own text) is looked at behind it.

    Args:
        template: The template.
        chat: The messages, as plain data; what is traced already keeps its origins.
        given: The variables of the template.
        controls: Its control sequences.
        safety: What becomes of them in untrusted text.

    Returns:
        The text in parts.

    Raises:
        TemplateError: The template refuses the messages.
        SafetyError: There is a control sequence, and that is refused.
    """
    traced, variables = with_origins(chat, given, controls, safety)
    text = template.run(map_texts(traced, str.__str__), {**given})
    parts, origins, lost = _traced_parts(template, (traced, variables), text, controls)
    if lost:
        guard = partial(guarded, controls=controls, safety=safety)
        parts, origins = untraced_parts(template, map_texts((traced, variables), guard), controls, safety)
        return Traces(parts, origins, f"where its text came from is lost in the template: {lost}")
    if safety.looks:
        parts = controls.guard(parts, [origin.slot for origin in origins], safety)
    return Traces(parts, origins)


def _traced_parts(
    template: ChatJinja, run: tuple[list[dict[str, Any]], dict[str, object]], text: str, controls: Controls
) -> tuple[list[str], list[Origin], str]:
    """Return the parts of a text and their origins, or the reason why the template loses them."""
    try:
        parts, origins = parts_of(template.run(*run, traced=True))
    except TemplateError as error:
        return [], [], str(error)
    if "".join(parts) != text:
        return [], [], "it writes another text with them"
    mixed = any(origin.mixed and not controls.clean(part) for part, origin in zip(parts, origins, strict=True))
    return parts, origins, "it changes text of its own and of others as one" if mixed else ""


def with_origins(
    chat: Sequence[Mapping[str, Any]], given: Mapping[str, object], controls: Controls, safety: Policy
) -> tuple[list[dict[str, Any]], dict[str, object]]:
    """What a template is given, with its origins, what was said harmless.

    Args:
        chat: The messages, as plain data.
        given: The variables of the template.
        controls: Its control sequences.
        safety: What becomes of them in untrusted text.

    Returns:
        The messages and the variables.

    Raises:
        SafetyError: There is a control sequence, and that is refused.
    """
    traced = [_traced_message(message, at, controls, safety) for at, message in enumerate(chat)]
    return traced, {**given, **{name: trace(given[name], Origin(name)) for name in ("tools", "documents")}}


def guarded(text: Traced, controls: Controls, safety: Policy) -> Traced:
    """A text with its origins, what is not trusted in it made harmless.

    Args:
        text: The text.
        controls: The control sequences.
        safety: What becomes of them.

    Returns:
        The text.

    Raises:
        SafetyError: There is one, and that is refused.
    """
    if not safety.looks or controls.clean(text):
        return text
    parts, origins = parts_of(text)
    where = [
        origin.slot if origin.message is None else f"messages[{origin.message}] ({origin.slot})" for origin in origins
    ]
    parts = controls.guard(parts, [origin.slot for origin in origins], safety, where)
    return Traced("".join(parts), chain.from_iterable(map(_runs, parts, origins)))


def _runs(part: str, origin: Origin) -> Iterator[Run]:
    """Yield the runs of a guarded part: what was neutralised keeps what it was."""
    done = 0
    for start, end, raw in part.marks if isinstance(part, Neutralised) else ():
        yield start - done, origin
        yield end - start, origin._replace(raw=raw)
        done = end
    yield len(part) - done, origin


def _traced_message(message: Mapping[str, Any], at: int, controls: Controls, safety: Policy) -> dict[str, Any]:
    """A message whose texts know where they came from, what was said harmless."""
    role = message.get("role")
    known = role in ROLES
    origin = Origin(str(role) if known else "role", at)
    traced = {name: value if name == "role" and known else trace(value, origin) for name, value in message.items()}
    for name in _SAID:
        if name in traced:
            traced[name] = _said(traced[name], role == "assistant" and name == "content", controls, safety)
    return traced


def _said(value: object, may_think: bool, controls: Controls, safety: Policy) -> object:  # noqa: FBT001 - of the caller's own
    """What somebody said, harmless; in parts, each of them."""
    if isinstance(value, Traced):
        return guarded(_with_thought(value) if may_think else value, controls, safety)
    if isinstance(value, list):
        return [_said(item, may_think, controls, safety) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return {key: _said(item, may_think, controls, safety) for key, item in fields.items()}
    return value


def _with_thought(text: Traced) -> Traced:
    """What an assistant said, the tags of its thought trusted: what models write before an answer."""
    found = _THOUGHT.match(text)
    runs: list[Run] = []
    at = 0
    for start, end in map(found.span, (1, 2, 3)) if found else ():
        if start >= 0:
            tag = [(length, origin._replace(trusted=True)) for length, origin in cut(text.runs, start, end)]
            runs += (*cut(text.runs, at, start), *tag)
            at = end
    return Traced(text, (*runs, *cut(text.runs, at, len(text))))
