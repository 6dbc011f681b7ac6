"""The choice of a target, and the cache of targets that copies of a prompter share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt.errors import FormatError, TemplateError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.prompters.targets import System, Target, TemplateTarget, TextTarget
from lazyprompt.rendering.markers import Markers
from lazyprompt.rendering.prompt_template import PromptTemplate, controls_for_model, controls_of, resolved_system
from lazyprompt.safety.policy import headers_in

if TYPE_CHECKING:
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.prompters.payload_target import EmptyTurn
    from lazyprompt.safety.find import Controls
    from lazyprompt.safety.policy import Policy
    from lazyprompt.templates.instruction import InstructionTemplate

# A name, or an object that the caller created.
FormatLike: TypeAlias = "str | Profile"
ModelLike: TypeAlias = "str | Markers | ChatTemplate"

FORMATS = ("flat", *PROVIDERS)
# Formats whose ``model`` is a model family, with markers and a system text.
OWN_FORMS = (None, "flat", "openai")


@dataclass(frozen=True, eq=False)
class TargetSpec:
    """The parts of a prompter that its targets depend on; :func:`target_spec` returns one object for equal parts.

    Attributes:
        template: The prompt template.
        markers: The markers of flat text.
        chat_template: The chat template that renders flat text in place of markers.
        added_system: A paragraph appended to the system text.
        instruction: The instruction, whose own text is trusted.
        tools: The default tools of every prompt.
        safety: The policy for control sequences in untrusted text.
    """

    template: PromptTemplate
    markers: Markers
    chat_template: ChatTemplate | None
    added_system: str
    instruction: InstructionTemplate
    tools: ToolSet
    safety: Policy

    def system_for(self, markers: Markers) -> System:
        """Return the system text of prompts with these markers."""
        return System(resolved_system(None, markers), self.added_system)

    def controls_for(self, model: ModelLike | None) -> Controls:
        """Return the control sequences of payloads for a model; by default, the prompter's own model."""
        headers = frozenset(header for text in self.instruction.literals for header in headers_in(text))
        if isinstance(model, str):
            return controls_for_model(model, headers)
        own = self.chat_template if model is None else model
        if own is None or isinstance(own, Markers):
            return controls_of(own or self.markers, headers)
        return own.controls(own.jinja(tools=True))


class ModelServer(NamedTuple):
    """The server that a module sends payloads to.

    Attributes:
        model: The model.
        tokenizes: True if the server applies the model's chat template to the messages; False for a hosted provider.
    """

    model: str
    tokenizes: bool


@lru_cache(maxsize=512)
def target_spec(
    template: PromptTemplate,
    markers: Markers,
    chat_template: ChatTemplate | None,
    added_system: str,
    instruction: InstructionTemplate,
    tools: ToolSet,
    safety: Policy,
) -> TargetSpec:
    """Return the :class:`TargetSpec` of these parts: the same object for equal parts."""
    return TargetSpec(template, markers, chat_template, added_system, instruction, tools, safety)


# Copies of a prompter and its modules share targets, so the text target's writer is created once.
@lru_cache(maxsize=512)
def target_for(
    spec: TargetSpec,
    form: FormatLike | None,
    model: ModelLike | None,
    chat_template: ChatTemplate | None,
    server: ModelServer | None = None,
) -> Target:
    """Return the target of a format.

    Args:
        spec: The parts of the prompter that the target depends on.
        form: One of ``FORMATS``, or the profile of a provider; None is ``flat``.
        model: The model: for a format in ``OWN_FORMS``, a family, its markers or its chat template; for others, the
            provider's name for the model.
        chat_template: The chat template that renders flat text in place of the prompter's markers.
        server: The server of a payload. By default, the provider's profile describes it.

    Raises:
        FormatError: The format is unknown.
        TemplateError: The model belongs to no known family, or both a model and a chat template are given.
    """
    if form not in (None, *FORMATS) and not _is_profile(form):
        raise FormatError(f"{_unknown(form)}; known are {', '.join(FORMATS)}, or a Profile of your own")
    if form not in OWN_FORMS:
        if not isinstance(model, str | None):
            raise FormatError(f"a {type(model).__name__} is for flat text; a provider takes the name of a model")
        guard = _guard(spec, form, model, server)
        return _payload(form, model, spec.system_for(spec.markers), "fill", guard)
    markers, template = _layout(spec, form, model, chat_template)
    system = spec.system_for(markers)
    if form == "openai":
        empty_turn: EmptyTurn = "keep" if spec.instruction.keeps_empty_turn else "drop"
        return _payload(form, None, system, empty_turn, _guard(spec, form, model, server))
    if template is not None:
        return TemplateTarget(template, system, spec.safety)
    return TextTarget(spec.template, markers, system, spec.instruction, spec.tools, spec.safety)


def _is_profile(form: object) -> bool:
    from lazyprompt.formatters.profile import Profile  # noqa: PLC0415 - named formats need no profile

    return isinstance(form, Profile)


def _unknown(form: object) -> str:
    if not isinstance(form, str):
        return f"a format is a name or a Profile, not a {type(form).__name__}"
    return f"format {form!r} is unknown{did_you_mean(form, FORMATS)}"


def _payload(
    provider: FormatLike, model: str | None, system: System, empty_turn: EmptyTurn, guard: MessageGuard | None
) -> Target:
    from lazyprompt.prompters.payload_target import PayloadTarget  # noqa: PLC0415 - flat text needs no formatter

    return PayloadTarget(provider, model, system, empty_turn, guard)


def _guard(
    spec: TargetSpec, provider: FormatLike, model: ModelLike | None, server: ModelServer | None
) -> MessageGuard | None:
    """Return the guard of a payload, or None if control sequences stay."""
    profile = profile_of(provider) if isinstance(provider, str | None) else provider
    tokenizes = profile.tokenizes if server is None else server.tokenizes
    policy = spec.safety.of_payload(tokenizes=tokenizes)
    if not policy.looks:
        return None
    from lazyprompt.formatters._guard import MessageGuard  # noqa: PLC0415 - as above

    return MessageGuard(spec.controls_for(model if server is None else server.model), policy)


def _layout(
    spec: TargetSpec, form: FormatLike | None, model: ModelLike | None, chat_template: ChatTemplate | None
) -> tuple[Markers, ChatTemplate | None]:
    """Return the markers of a format in ``OWN_FORMS``, and the chat template that replaces them in flat text."""
    if model is not None and chat_template is not None:
        raise TemplateError("model= and chat_template= both choose the layout of flat text; give one of them")
    if chat_template is not None:
        return _template_of(chat_template, "chat_template=").markers, chat_template
    if model is None:
        return spec.markers, spec.chat_template
    if isinstance(model, Markers):
        return model, None
    if not isinstance(model, str):
        own = _template_of(model, "model=")
        return own.markers, own
    try:
        return Markers.for_model(model), None
    except TemplateError:
        # OpenAI's format has no markers. An unknown model only means that there is no family's system text.
        if form != "openai":
            raise
        return spec.markers, None


def _template_of(given: object, where: str) -> ChatTemplate:
    """Return the argument if it is a chat template.

    Raises:
        TemplateError: The argument has another type.
    """
    from lazyprompt.chat_templates.template import ChatTemplate  # noqa: PLC0415 - only templates need Jinja

    if not isinstance(given, ChatTemplate):
        what = "a name, Markers or a ChatTemplate" if where == "model=" else "a ChatTemplate"
        raise TemplateError(f"{where} is a {type(given).__name__}; expected {what}, as ChatTemplate.load returns it")
    return given
