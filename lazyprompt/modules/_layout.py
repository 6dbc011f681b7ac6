"""Determines a local model's prompt layout and response format, and the BOS token that its engine adds."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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

    from lazyprompt.answers.parser import AnswerFormLike
    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.prompt import Rendered
    from lazyprompt.modules.clients._base import ClientSettings
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.targets import TextTarget

# The timeout in seconds for the request that detects an engine's BOS token.
_BOS_TIMEOUT = 10.0


class PromptLayout(NamedTuple):
    """A model's prompt layout and response format.

    Attributes:
        template: The chat template, or None if markers are used instead.
        markers: The markers.
        answers: The format of the model's responses, as passed to :class:`~lazyprompt.ResponseParser`.
    """

    template: ChatTemplate | None
    markers: Markers
    answers: AnswerFormLike

    @property
    def bos(self) -> str:
        """The beginning-of-text (BOS) token of the prompts, or an empty string if there is none."""
        if self.template is not None:
            return self.template.special_tokens.get("bos_token", "")
        return self.markers.bos

    def opens_with_bos(self, rendered: Rendered, *, as_ids: bool) -> bool:
        """Return True if a prompt begins with the beginning-of-text token.

        Args:
            rendered: The prompt.
            as_ids: True if the prompt is sent as token ids, in which untrusted text never becomes a control token.
        """
        at, opening = next(((at, part) for at, part in enumerate(rendered.parts) if part), (0, ""))
        return bool(self.bos) and opening.startswith(self.bos) and (not as_ids or is_trusted(at, opening))

    def target(self, prompter: Prompter) -> TextTarget:
        """Return the target that renders a prompter's prompts in this layout."""
        return prompter.text_target(self.markers if self.template is None else None, self.template)


class LayoutSettings(NamedTuple):
    """The caller's layout settings. For a setting that is None, the model's default is used.

    Attributes:
        template: The chat template, its path, or its text.
        markers: The markers, or the name of a model family.
        answers: The format of the model's responses.
    """

    template: ChatTemplate | str | Path | None
    markers: Markers | str | None
    answers: AnswerFormLike | None

    def check(self) -> None:
        """Check the settings that don't depend on the model.

        Raises:
            TemplateError: Both a template and markers are set, or the model family or response format is unknown.
        """
        if self.template is not None and self.markers is not None:
            raise TemplateError("chat_template= and markers= both set the prompt layout; pass only one of them")
        if self.template is not None and not isinstance(cast("object", self.template), ChatTemplate | str | Path):
            raise TemplateError(
                f"chat_template must be a ChatTemplate, its path or its text, not {type(self.template).__name__}"
            )
        if self.markers is not None:
            Markers.for_model(self.markers)
        if self.answers is not None:
            ResponseParser(self.answers)


def layout_of(base_model: str, given: LayoutSettings) -> PromptLayout:
    """Return the prompt layout of a model.

    The caller's settings take precedence over the model's chat template, which takes precedence over the model family.

    Args:
        base_model: The model's file, directory or name, or an empty string if only the server knows the model.
        given: The caller's settings.

    Returns:
        The layout. A template passed as text or as a separate file uses the model's special tokens.

    Raises:
        TemplateError: The model has no chat template and no known family, or the template is invalid.
        TokenizerError: A model file cannot be read.
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
        raise TemplateError("the model's prompt format is unknown; pass base_model, chat_template= or markers=")
    try:
        return _by_markers(base_model, base_model, given.answers)
    except TemplateError as error:
        raise TemplateError(
            f"the prompt format of {base_model!r} is unknown: it has no chat template, and its name matches no model "
            "family; pass chat_template= (the template or its file) or markers= (a family from `lazyprompt list "
            "families`, or Markers); for an online model, use OnlineChatModule"
        ) from error


def _by_template(template: ChatTemplate, base_model: str, answers: AnswerFormLike | None) -> PromptLayout:
    # Search the template's text before the model name, because the name may match another model.
    text = f"{template.text}\n{template.jinja(tools=True).text}"
    return PromptLayout(template, template.markers, answers or form_in(text, _known_form(base_model) or "hermes"))


def _by_markers(markers: Markers | str, base_model: str, answers: AnswerFormLike | None) -> PromptLayout:
    if isinstance(markers, str):
        return PromptLayout(None, Markers.for_model(markers), answers or markers)
    # Markers without a family define no format for tool calls, so derive the format from the model name.
    named = "" if markers.family else _known_form(base_model)
    return PromptLayout(None, markers, answers or named or markers)


def _known_form(name: str) -> str:
    """Return the name if it is a known response format, family or model; otherwise, return an empty string."""
    try:
        ResponseParser(name)
    except TemplateError:
        return ""
    return name


def ids_before_text(tokenizer: TokenizerLike) -> list[int]:
    """Return the token ids that a tokenizer adds before each text."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "post_processor"):  # only the tokenizers package adds token ids to each text
        return []
    own: tokenizers.Tokenizer = backend
    made = own.encode("a")
    return [token for token, _ in takewhile(lambda one: one[1], zip(made.ids, made.special_tokens_mask, strict=True))]


def llama_cpp_ids_before_text(url: str, settings: ClientSettings) -> list[int] | None:
    """Return the token ids that llama.cpp adds before each text, or None if the server doesn't report them.

    Connection errors are ignored, because the next model call reports them.
    """
    # Omit the caller's HTTP client, because closing the client below would also close the caller's.
    own = {name: value for name, value in settings.options.items() if name != "http_client"}
    # The SDK requires a base URL, although this request uses an absolute URL.
    asked = settings._replace(base_url=url, retries=0, timeout=min(settings.timeout, _BOS_TIMEOUT), options=own)
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
