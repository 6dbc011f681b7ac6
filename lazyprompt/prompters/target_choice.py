"""Selects a prompter's target, which renders prompts; a cache lets equal copies of a prompter share targets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt.errors import FormatError, TemplateError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.prompters.targets import System, Target, TemplateTarget, TextTarget
from lazyprompt.rendering.markers import Markers
from lazyprompt.rendering.prompt_template import PromptTemplate, controls_for_model, resolved_system
from lazyprompt.safety.policy import headers_in

if TYPE_CHECKING:
    from lazyprompt.chat_templates.template import ChatTemplate, ModelLike
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.prompters.payload_target import EmptyTurn
    from lazyprompt.safety.find import Controls
    from lazyprompt.safety.policy import Policy
    from lazyprompt.templates.instruction import InstructionTemplate

# A format name or a provider profile.
FormatLike: TypeAlias = "str | Profile"

FORMATS = ("flat", *PROVIDERS)
# Formats that use a model family's markers and system text.
OWN_FORMS = (None, "flat", "openai")


@dataclass(frozen=True, eq=False)
class TargetSpec:
    """The parts of a prompter that its targets depend on; :func:`target_spec` returns cached specs.

    Attributes:
        template: The prompt template.
        markers: The markers for flat text.
        chat_template: The chat template that is used instead of markers to render flat text.
        added_system: A paragraph appended to the system text.
        instruction: The instruction template, whose literal text is trusted.
        tools: The default tools for every prompt.
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
        """Return the system text for prompts with these markers."""
        return System(resolved_system(None, markers), self.added_system)

    def controls_for(self, model: ModelLike | None) -> Controls:
        """Return the control sequences to detect in payloads for a model; by default, the prompter's own model."""
        headers = frozenset(header for text in self.instruction.literals for header in headers_in(text))
        return controls_for_model(self.chat_template or self.markers if model is None else model, headers)


class ModelServer(NamedTuple):
    """The server to which a module sends payloads.

    Attributes:
        model: The server's name for the model.
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
    """Return a cached :class:`TargetSpec`; calls with equal arguments return the same object."""
    return TargetSpec(template, markers, chat_template, added_system, instruction, tools, safety)


# Cache targets, so that a prompter, its copies and the modules that use them share one renderer for flat text.
@lru_cache(maxsize=512)
def target_for(
    spec: TargetSpec,
    form: FormatLike | None,
    model: ModelLike | None,
    chat_template: ChatTemplate | None,
    server: ModelServer | None = None,
) -> Target:
    """Return the target that renders a prompter's prompts in a given format.

    Args:
        spec: The parts of the prompter that the target depends on.
        form: One of ``FORMATS``, or a provider's profile; None for ``flat``.
        model: The name of a model or model family, its Markers, or its ChatTemplate. For a format outside
            ``OWN_FORMS``, also the provider's name for the model; markers and templates then only determine the control
            sequences.
        chat_template: The chat template that renders flat text in place of the prompter's markers.
        server: The server that receives a payload. By default, the provider's profile determines whether the server
            tokenizes messages.

    Raises:
        FormatError: The format is unknown.
        TemplateError: The model matches no known family, or both a model and a chat template were passed.
    """
    if form not in (None, *FORMATS) and not _is_profile(form):
        raise FormatError(f"{_unknown(form)}; expected one of {', '.join(FORMATS)}, or a Profile")
    if form not in OWN_FORMS:
        if not isinstance(model, str | Markers | None):
            chat_template_of(model, "model=")
        guard = _guard(spec, form, model, server)
        name = model if isinstance(model, str) else None
        return _payload(form, name, spec.system_for(spec.markers), "fill", guard)
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
        return f"format must be a name or a Profile, not {type(form).__name__}"
    return f"unknown format {form!r}{did_you_mean(form, FORMATS)}"


def _payload(
    provider: FormatLike, model: str | None, system: System, empty_turn: EmptyTurn, guard: MessageGuard | None
) -> Target:
    from lazyprompt.prompters.payload_target import PayloadTarget  # noqa: PLC0415 - flat text needs no formatter

    return PayloadTarget(provider, model, system, empty_turn, guard)


def _guard(
    spec: TargetSpec, provider: FormatLike, model: ModelLike | None, server: ModelServer | None
) -> MessageGuard | None:
    """Return the guard for a payload, or None if control sequences are kept."""
    profile = profile_of(provider)
    tokenizes = profile.tokenizes if server is None else server.tokenizes
    policy = spec.safety.of_payload(tokenizes=tokenizes)
    if not policy.looks:
        return None
    from lazyprompt.formatters._guard import MessageGuard  # noqa: PLC0415 - as above

    return MessageGuard(spec.controls_for(model if server is None else server.model), policy)


def _layout(
    spec: TargetSpec, form: FormatLike | None, model: ModelLike | None, chat_template: ChatTemplate | None
) -> tuple[Markers, ChatTemplate | None]:
    """Return the markers for a format in ``OWN_FORMS``, and the chat template that replaces them in flat text."""
    if model is not None and chat_template is not None:
        raise TemplateError("model= and chat_template= both set the layout of flat text; pass only one of them")
    if chat_template is not None:
        return chat_template_of(chat_template).markers, chat_template
    if model is None:
        return spec.markers, spec.chat_template
    if isinstance(model, Markers):
        return model, None
    if not isinstance(model, str):
        own = chat_template_of(model, "model=")
        return own.markers, own
    try:
        return Markers.for_model(model), None
    except TemplateError:
        # Accept an unknown model in OpenAI's format: messages contain no markers, so the prompt only lacks a family's
        # system text.
        if form != "openai":
            raise
        return spec.markers, None


def chat_template_of(given: object, where: str = "chat_template=") -> ChatTemplate:
    """Return the argument after checking that it is a chat template.

    Raises:
        TemplateError: The argument is not a chat template.
    """
    from lazyprompt.chat_templates.template import ChatTemplate  # noqa: PLC0415 - only templates need Jinja

    if not isinstance(given, ChatTemplate):
        what = "a name, Markers or a ChatTemplate" if where == "model=" else "a ChatTemplate"
        raise TemplateError(f"{where} must be {what}, as returned by ChatTemplate.load, not {type(given).__name__}")
    return given
