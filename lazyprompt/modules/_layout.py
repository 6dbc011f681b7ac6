"""The layout of a local model's prompts, the BOS that an engine adds to them, and the form of its answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.trusted import is_trusted
from lazyprompt.answers.forms import FORMS, form_in
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
    from lazyprompt.modules.clients._base import Settings
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.targets import TextTarget

# Seconds that the question for a BOS may take: it is asked once, also by those who must not wait for long.
_SOON = 10.0
# What opens a thought, in any form.
_THOUGHTS = tuple({form.thought[0] for form in FORMS.values() if form.thought})


class Layout(NamedTuple):
    """The layout of a model's prompts.

    Attributes:
        template: Its chat template; None where markers lay them out.
        markers: Its markers.
        answers: The form of its answers, as of :class:`~lazyprompt.ResponseParser`.
    """

    template: ChatTemplate | None
    markers: Markers
    answers: str

    @property
    def bos(self) -> str:
        """The beginning-of-text token of its prompts, or ""."""
        if self.template is not None:
            return self.template.special_tokens.get("bos_token", "")
        return self.markers.bos

    def opens_with_bos(self, rendered: Rendered, *, as_ids: bool) -> bool:
        """Return True if a prompt begins with the beginning-of-text token.

        Args:
            rendered: The prompt.
            as_ids: True if token ids are sent, in which untrusted text is never that token; in text, engines read the
                token in any case.
        """
        at, opening = next(((at, part) for at, part in enumerate(rendered.parts) if part), (0, ""))
        return bool(self.bos) and opening.startswith(self.bos) and (not as_ids or is_trusted(at, opening))

    def target(self, prompter: Prompter) -> TextTarget:
        """Return what lays out the prompts of a prompter."""
        return prompter.text_target(self.markers if self.template is None else None, self.template)


class Given(NamedTuple):
    """A caller's settings of a layout; None leaves a setting to the model.

    Attributes:
        template: The chat template, its path or its text.
        markers: The markers, or the family.
        answers: The form of the model's answers.
    """

    template: ChatTemplate | str | Path | None
    markers: Markers | str | None
    answers: str | None

    def check(self) -> None:
        """Refuse what is wrong in itself, whatever the model is.

        Raises:
            TemplateError: Both a template and markers are given, or there is no such family or form.
        """
        if self.template is not None and self.markers is not None:
            raise TemplateError("chat_template= and markers= both say how prompts are laid out; give one of them")
        if isinstance(self.markers, str):
            Markers.for_model(self.markers)
        if self.answers is not None:
            ResponseParser(self.answers)


def layout_of(base_model: str, given: Given) -> Layout:
    """Return the layout of a model's prompts: as it was given, of the model's own template, or of its family.

    Args:
        base_model: The model's file or directory, or its name; empty where only a server knows it.
        given: The caller's settings.

    Returns:
        The layout. A template that was given as text, or in a file of its own, has the special tokens of the model.

    Raises:
        TemplateError: There is neither a template nor a family, or the template is wrong.
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


def opens_thought(prompt: str) -> bool:
    """Return True if a prompt ends by opening a thought, so that the answer begins within it."""
    return prompt.rstrip().endswith(_THOUGHTS)


def _by_template(template: ChatTemplate, base_model: str, answers: str | None) -> Layout:
    # What the template itself writes is what the model was taught; a name may be that of another model inside.
    text = f"{template.text}\n{template.jinja(tools=True).text}"
    return Layout(template, template.markers, answers or form_in(text, _known(base_model)))


def _by_markers(markers: Markers | str, base_model: str, answers: str | None) -> Layout:
    if isinstance(markers, Markers):
        return Layout(None, markers, answers or _known(markers.family or base_model))
    return Layout(None, Markers.for_model(markers), answers or _known(markers))


def _known(name: str) -> str:
    """Return the name if the form of its answers is known; else that of the form in which lazyprompt writes."""
    try:
        ResponseParser(name)
    except TemplateError:
        return "hermes"
    return name


def added_by(tokenizer: TokenizerLike) -> list[int]:
    """Return the ids that a tokenizer puts before each text."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "post_processor"):  # of all packages, tokenizers alone adds any
        return []
    made = cast("tokenizers.Tokenizer", backend).encode("a")
    return [token for token, _ in takewhile(lambda one: one[1], zip(made.ids, made.special_tokens_mask, strict=True))]


def added_by_llama_cpp(url: str, settings: Settings) -> list[int] | None:
    """Return the ids that llama.cpp puts before each text: its file says so, or else the kind of its vocabulary.

    None is for a server that does not tell, being another or out of reach: the call itself will say so.
    """
    # An HTTP client that somebody gave is not ours to close.
    own = {name: value for name, value in settings.options.items() if name != "http_client"}
    # The client wants a base URL, and is asked for another address.
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
    return cast("list[int]", tokens) if isinstance(tokens, list) else None
