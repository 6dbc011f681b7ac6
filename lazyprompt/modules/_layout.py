"""The layout of a local model's prompts, the BOS that an engine adds, and the form of the model's answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import is_list
from lazyprompt._base.trusted import is_trusted
from lazyprompt.answers.forms import form_in
from lazyprompt.answers.parser import ResponseParser
from lazyprompt.chat_templates.source import ChatSource, read_source
from lazyprompt.chat_templates.template import ChatTemplate
from lazyprompt.errors import TemplateError
from lazyprompt.modules.clients.openai import CompletionsClient, Server
from lazyprompt.rendering.markers import Markers

if TYPE_CHECKING:
    import tokenizers

    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.prompt import Rendered
    from lazyprompt.modules.clients._base import ClientSettings
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.targets import TextTarget

# Timeout in seconds of the request that asks an engine for its BOS.
_SOON = 10.0


class PromptLayout(NamedTuple):
    """The layout of a model's prompts.

    Attributes:
        template: The chat template; None if markers are used.
        markers: The markers.
        answers: The form of the answers, a name of :class:`~lazyprompt.ResponseParser`.
    """

    template: ChatTemplate | None
    markers: Markers
    answers: str

    @property
    def bos(self) -> str:
        """The prompts' beginning-of-text token, or ""."""
        if self.template is not None:
            return self.template.special_tokens.get("bos_token", "")
        return self.markers.bos

    def opens_with_bos(self, rendered: Rendered, *, as_ids: bool) -> bool:
        """Return True if a prompt begins with the beginning-of-text token.

        Args:
            rendered: The prompt.
            as_ids: True if token ids are sent, in which untrusted text never becomes that token.
        """
        at, opening = next(((at, part) for at, part in enumerate(rendered.parts) if part), (0, ""))
        return bool(self.bos) and opening.startswith(self.bos) and (not as_ids or is_trusted(at, opening))

    def target(self, prompter: Prompter) -> TextTarget:
        """Return the target that renders a prompter's prompts."""
        return prompter.text_target(self.markers if self.template is None else None, self.template)


class LayoutSettings(NamedTuple):
    """A caller's settings of a layout; None is the model's own.

    Attributes:
        template: The chat template, its path or its text.
        markers: The markers, or the family.
        answers: The form of the model's answers.
    """

    template: ChatTemplate | str | Path | None
    markers: Markers | str | None
    answers: str | None

    def check(self) -> None:
        """Check the settings that don't depend on the model.

        Raises:
            TemplateError: Both a template and markers are given, or the family or form is unknown.
        """
        if self.template is not None and self.markers is not None:
            raise TemplateError("chat_template= and markers= both set the layout of prompts; give one of them")
        if isinstance(self.markers, str):
            Markers.for_model(self.markers)
        if self.answers is not None:
            ResponseParser(self.answers)


def layout_of(base_model: str, given: LayoutSettings) -> PromptLayout:
    """Return the layout of a model's prompts: the caller's, that of the model's template, or that of its family.

    Args:
        base_model: The model's file, directory or name; empty if only a server knows it.
        given: The caller's settings.

    Returns:
        The layout. A template given as text, or in a file of its own, gets the model's special tokens.

    Raises:
        TemplateError: The model has neither a template nor a family, or the template is invalid.
        TokenizerError: A file cannot be read.
    """
    if isinstance(given.template, ChatTemplate):
        return _by_template(given.template, base_model, given.answers)
    if given.markers is not None:
        return _by_markers(given.markers, base_model, given.answers)
    own = read_source(base_model) if base_model and Path(base_model).exists() else ChatSource()
    if given.template is not None:
        source = read_source(given.template)
        tokens = source if source.special_tokens or source.added_tokens else own
        return _by_template(ChatTemplate(replace(tokens, templates=source.templates)), base_model, given.answers)
    if own.templates:
        return _by_template(ChatTemplate(own), base_model, given.answers)
    if not base_model:
        raise TemplateError("the prompt format of the model is unknown: give base_model, chat_template= or markers=")
    try:
        return _by_markers(base_model, base_model, given.answers)
    except TemplateError as error:
        raise TemplateError(
            f"the prompt format of {base_model!r} is unknown: it has no chat template, and no model family has its "
            "name; give chat_template= (the template, or a file that has it) or markers= (a family of `lazyprompt "
            "list families`, or Markers); an online model is an OnlineChatModule"
        ) from error


def _by_template(template: ChatTemplate, base_model: str, answers: str | None) -> PromptLayout:
    # The model was trained on the template's own text; its name may be that of another model.
    text = f"{template.text}\n{template.jinja(tools=True).text}"
    return PromptLayout(template, template.markers, answers or form_in(text, _known_form_or_default(base_model)))


def _by_markers(markers: Markers | str, base_model: str, answers: str | None) -> PromptLayout:
    if isinstance(markers, Markers):
        return PromptLayout(None, markers, answers or _known_form_or_default(markers.family or base_model))
    return PromptLayout(None, Markers.for_model(markers), answers or _known_form_or_default(markers))


def _known_form_or_default(name: str) -> str:
    """Return the name if it is a known form of answers, else ``hermes``, the form that lazyprompt writes."""
    try:
        ResponseParser(name)
    except TemplateError:
        return "hermes"
    return name


def ids_before_text(tokenizer: TokenizerLike) -> list[int]:
    """Return the ids that a tokenizer puts before each text."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "post_processor"):  # only the package tokenizers adds any
        return []
    own: tokenizers.Tokenizer = backend
    made = own.encode("a")
    return [token for token, _ in takewhile(lambda one: one[1], zip(made.ids, made.special_tokens_mask, strict=True))]


def llama_cpp_ids_before_text(url: str, settings: ClientSettings) -> list[int] | None:
    """Return the ids that llama.cpp puts before each text; None if the server doesn't tell.

    An unreachable server is an error of the call that follows.
    """
    # A given HTTP client must not be closed here.
    own = {name: value for name, value in settings.options.items() if name != "http_client"}
    # The client requires a base URL; the request has an address of its own.
    asked = settings._replace(base_url=url, retries=0, timeout=min(settings.timeout, _SOON), options=own)
    client = CompletionsClient(asked, Server())
    try:
        answer = client.post(f"{url}/tokenize", {"content": "", "add_special": True})
    except Exception as error:
        if client.fault(error) is None:
            raise
        return None
    finally:
        client.close()
    tokens = fields_of(answer).get("tokens")
    return [token for token in tokens if isinstance(token, int)] if is_list(tokens) else None
