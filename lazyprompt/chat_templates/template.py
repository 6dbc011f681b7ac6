"""A model's own chat template, for rendering prompts and training samples and for extending a prompt's token ids."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import texts_in
from lazyprompt.chat_templates.bridge import Bridge, build_bridge
from lazyprompt.chat_templates.check import TemplateReport, check_template
from lazyprompt.chat_templates.controls import controls_of, is_clean, own_texts
from lazyprompt.chat_templates.conversation import TAG, tag_last_message, template_dicts, texts_of, tool_dicts
from lazyprompt.chat_templates.jinja import Chat, ChatJinja, plain_data, plain_tools
from lazyprompt.chat_templates.source import ChatSource, read_source
from lazyprompt.chat_templates.traced import common_start
from lazyprompt.chat_templates.trained import answer_end, trained_parts
from lazyprompt.chat_templates.untrusted import Rendering, Traces
from lazyprompt.errors import HistoryError, TemplateError, did_you_mean
from lazyprompt.messages.openai_form import OpenAIWriter, UrlPart, openai_dicts
from lazyprompt.messages.parse import parse_messages
from lazyprompt.messages.prompt import Composition, Rendered
from lazyprompt.rendering.markers import Markers
from lazyprompt.safety.policy import OFF, Policy, policy_of
from lazyprompt.training.samples import Train, TrainingSample, trained_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import tokenizers

    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolLike
    from lazyprompt.safety.find import Controls
    from lazyprompt.training.masks import Mask


# A model name, a family name, custom markers or a chat template.
ModelLike: TypeAlias = "str | Markers | ChatTemplate"

# Training samples include reasoning, because the rendered text also contains reasoning.
_SAMPLE_FORM = OpenAIWriter(
    text_lists=True, named_results=True, thinking="reasoning_content", parts={"video": UrlPart("video_url")}
)
_TAG = re.compile(re.escape(str.__str__(TAG).rstrip()))
_UNTRUSTED = frozenset(("tools", "documents"))


@read_only
@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A model's own chat template.

    Args:
        source: The template or templates, with the special tokens.
        name: The name of the template to use. None selects ``tool_use`` for chats with tools if that template exists,
            and ``default`` otherwise.

    Raises:
        TemplateError: The template does not exist, or its syntax is invalid. The message contains the line number.
    """

    source: ChatSource
    name: str | None = None
    _chats: tuple[ChatJinja, ChatJinja] = field(init=False, repr=False, compare=False)
    _tokens: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        templates = self.source.templates
        names = (self.name or "default", self.name or ("tool_use" if "tool_use" in templates else "default"))
        known = (
            f"available templates: {', '.join(map(repr, templates))}; set name= to choose one"
            if templates
            else "the model has no template"
        )
        for name in names:
            if name not in templates:
                raise TemplateError(f"no chat template {name!r}{did_you_mean(name, templates)}; {known}")
        plain, with_tools = (ChatJinja(templates[name], self.source.special_tokens) for name in names)
        object.__setattr__(self, "_chats", (plain, with_tools))
        object.__setattr__(self, "_tokens", self.source.control_tokens)

    @classmethod
    def load(cls, source: str | Path, *, name: str | None = None, **special_tokens: str) -> Self:
        """Load a chat template.

        Args:
            source: A ``.jinja`` file, a GGUF file, a tokenizer's directory (with ``tokenizer_config.json`` or
                ``chat_template.jinja``), a file in such a directory, or the source text of a template. Text
                that contains ``{{`` or ``{%`` is treated as source text.
            name: The name of the template, if the model has several templates.
            special_tokens: Special tokens, keyed by their names in templates, such as ``bos_token="<s>"``.
                ``special_tokens`` take precedence over the special tokens in the tokenizer's files.

        Returns:
            The chat template.

        Raises:
            TemplateError: The template does not exist, or its syntax is invalid.
            TokenizerError: The path does not exist, or a file cannot be read.
            MissingExtraError: The file is a GGUF file, and the ``gguf`` package is not installed.
        """
        found = read_source(source)
        if special_tokens:
            found = replace(found, special_tokens={**found.special_tokens, **special_tokens})
        return cls(found, name)

    @property
    def text(self) -> str:
        """The source text of the template for chats without tools."""
        return self._chats[0].text

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The special tokens, keyed by their names in templates."""
        return self._chats[0].special_tokens

    @property
    def chat_template(self) -> Mapping[str, str]:
        """The source text of each template, by name, as in transformers' tokenizers."""
        return self.source.templates

    @property
    def response_template(self) -> Mapping[str, object] | None:
        """The response template for :class:`~lazyprompt.ResponseParser`; None if the tokenizer has no such template."""
        return self.source.response_template

    def render(
        self,
        messages: HistoryLike,
        tools: Sequence[ToolLike] | None = None,
        add_generation_prompt: bool = True,  # noqa: FBT001, FBT002 - as in transformers
        continue_final_message: bool | str = False,  # noqa: FBT001, FBT002 - as in transformers
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        now: datetime | None = None,
        safety: str = "neutralize",
        **variables: object,
    ) -> Rendered:
        """Render messages with the model's own template.

        Args:
            messages: Messages in any format that a history accepts. Message keys that only the template uses are kept.
            tools: The tools as OpenAI dicts or Python functions.
            add_generation_prompt: True to end the text with the generation prompt.
            continue_final_message: True to leave the last message open for the model to continue, or the name of the
                field to continue, such as ``reasoning_content``. If set, no generation prompt is added.
            documents: The documents, for templates that render documents.
            now: The time that ``strftime_now`` formats; None for the current time.
            safety: The policy for control sequences in untrusted text, which includes all contents, tools and
                documents. The policy is ``neutralize``, ``raise`` or ``off``.
            variables: Additional template variables, such as ``enable_thinking=False``. Variables are trusted.

        Returns:
            The rendered chat, divided into segments. The slot of a segment is a message's role, ``tools``,
            ``documents``, or ``markers`` for the template's own text.

        Raises:
            TemplateError: The template rejects the messages, fails, or exceeds a resource limit.
            FormatError: A tool, document or variable is not plain data, or the template cannot represent a message.
            HistoryError: A message has an unsupported format; for example, the message has no role.
            ToolsError: A tool has no valid schema.
            SafetyError: Untrusted text contains a control sequence and ``safety`` is ``raise``, or the policy is
                unknown.
        """
        policy = policy_of(safety)
        jinja = self.jinja(tools=bool(tools), now=now)
        chat = template_dicts(parse_messages(messages, "messages"), jinja)
        own = plain_tools(tool_dicts(tools))
        asked = {"documents": documents, "add_generation_prompt": add_generation_prompt, **variables}
        given: dict[str, object] = {name: plain_data(value, name) for name, value in asked.items()}
        given["tools"] = own.data
        if continue_final_message:
            field = continue_final_message if isinstance(continue_final_message, str) else "content"
            given["add_generation_prompt"] = False
            return _cut_at_tag(
                Rendering(jinja, given, self.controls(jinja), policy).traced(tag_last_message(chat, field))
            )
        texts = [*texts_of(chat), *own.texts, *texts_in(given["documents"])]
        return self.laid_out(jinja, chat, given, policy, texts)

    @property
    def markers(self) -> Markers:
        """The template's generation prompt, end-of-turn text and default system text, as :class:`Markers`."""
        end = self.answer_end
        return Markers(
            soa=_generation_prompt(self._chats[0]),
            eoa=end,
            stop=(end,) if end else (),
            system=_own_system(self._chats[0]),
            exact=True,
            family="chat template",
        )

    @property
    def answer_end(self) -> str:
        """The marker that ends a response and stops an engine's generation, without surrounding white space."""
        return answer_end(self._chats[0], self.controls(self._chats[0]))

    def bridge(
        self,
        previous_ids: Iterable[int],
        completion_ids: Iterable[int],
        new_messages: HistoryLike,
        tokenizer: TokenizerLike,
        tools: Sequence[ToolLike] | None = None,
        *,
        messages: HistoryLike | None = None,
        safety: str = "neutralize",
        **variables: object,
    ) -> list[int] | None:
        """Return the token ids of the next prompt without rendering the history again.

        Args:
            previous_ids: The token ids of the previous prompt, ending with the generation prompt.
            completion_ids: The ids that the model sampled, with or without the token that ended the response.
            new_messages: The messages after the response, such as tool results and user messages.
            tokenizer: The tokenizer that produced the ids.
            tools: The tools in the previous prompt.
            messages: The messages of the previous prompt. If you pass ``messages``, the method checks the template by
                rendering this chat instead of sample chats. The returned ids then keep reasoning that the template
                removes from earlier turns.
            safety: The policy for control sequences in the new messages.
            variables: Additional template variables of the previous prompt.

        Returns:
            The ids of the previous prompt and of the sampled response, followed by the ids of the new messages. If the
            template may change earlier prompts or responses, the result is None, and you must render the whole chat.
            :meth:`bridge_or_reason` returns the reason.

        Raises:
            TokenizerError: The tokenizer is not supported.
            LazyPromptError: Any error that :meth:`render` can raise.
        """
        return self.bridge_or_reason(
            previous_ids, completion_ids, new_messages, tokenizer, tools, messages=messages, safety=safety, **variables
        ).ids

    def bridge_or_reason(
        self,
        previous_ids: Iterable[int],
        completion_ids: Iterable[int],
        new_messages: HistoryLike,
        tokenizer: TokenizerLike,
        tools: Sequence[ToolLike] | None = None,
        *,
        messages: HistoryLike | None = None,
        safety: str = "neutralize",
        **variables: object,
    ) -> Bridge:
        """Return the same ids as :meth:`bridge`, or the reason why the bridge can't build them.

        Args:
            previous_ids: The token ids of the previous prompt, ending with the generation prompt.
            completion_ids: The ids that the model sampled.
            new_messages: The messages after the response.
            tokenizer: The tokenizer that produced the ids.
            tools: The tools in the previous prompt.
            messages: The messages of the previous prompt.
            safety: The policy for control sequences in the new messages.
            variables: Additional template variables of the previous prompt.

        Returns:
            The ids, or the reason why the bridge can't build them.

        Raises:
            LazyPromptError: Any error that :meth:`bridge` can raise.
        """
        jinja = self.jinja(tools=bool(tools))
        new = template_dicts(parse_messages(new_messages, "new_messages"), jinja)
        chat = None if messages is None else template_dicts(parse_messages(messages, "messages"), jinja)
        given = {name: plain_data(value, name) for name, value in variables.items()}
        given["tools"] = plain_tools(tool_dicts(tools)).data
        rendering = Rendering(jinja, given, self.controls(jinja), policy_of(safety))
        return build_bridge(rendering, previous_ids, completion_ids, new, tokenizer, chat)

    def training_sample(
        self,
        messages: HistoryLike,
        tools: Sequence[ToolLike] | None = None,
        *,
        train: Train = "last",
        mask: Mask = (),
        now: datetime | None = None,
        safety: str = "neutralize",
        **variables: object,
    ) -> TrainingSample:
        """Render a conversation as a sample for fine-tuning.

        The loss covers the assistant's text, the template's markers for tool calls and reasoning, and the marker that
        ends the turn. If the template contains ``{% generation %}`` blocks, the loss covers their content instead.

        Args:
            messages: The whole conversation, ending with the assistant's response.
            tools: The tools that the model may call.
            train: The responses to train on: ``last``, ``all``, or a function ``train(index, message)`` that returns
                True for each response to include.
            mask: The text within the responses to exclude from the loss, as for :meth:`TrainingSample.with_mask`.
            now: The time that ``strftime_now`` formats; None for the current time.
            safety: The policy for control sequences in untrusted text.
            variables: Additional template variables.

        Returns:
            The training sample.

        Raises:
            TemplateError: The template rejects the messages, or the origins of the rendered text can't be traced.
            HistoryError: The last message is not an assistant message.
            LazyPromptError: Any error that :meth:`render` can raise.
        """
        jinja = self.jinja(tools=bool(tools), now=now)
        parsed = parse_messages(messages, "messages")
        dicts = openai_dicts(parsed, _SAMPLE_FORM)
        if not dicts or dicts[-1]["role"] != "assistant":
            raise HistoryError("the last message of a training sample must be an assistant message")
        own = plain_tools(tool_dicts(tools)).data
        given = {name: plain_data(value, name) for name, value in {"documents": None, **variables}.items()}
        given["tools"] = own
        trained = trained_messages(dicts, train)
        wanted = {at for at, is_trained in enumerate(trained) if is_trained}
        rendering = Rendering(jinja, given, self.controls(jinja), policy_of(safety))
        found = trained_parts(rendering, template_dicts(parsed, jinja), wanted)
        tools_given = tuple(own or ())
        sample = TrainingSample(
            found.parts, found.slots, found.trained, tuple(dicts), trained, tools_given, part_messages=found.messages
        )
        return sample.with_mask(mask) if mask else sample

    def check(self, tokenizer: tokenizers.Tokenizer | None = None, *, tools: bool = False) -> TemplateReport:
        """Test the template's capabilities by rendering sample chats.

        Args:
            tokenizer: The model's tokenizer, which shows whether a beginning-of-text token is added to each text.
            tools: True to test the template for chats with tools, if the model has several templates.

        Returns:
            The test results by capability name. ``str()`` of the report contains one line for each capability.
        """
        jinja = self.jinja(tools=tools)
        # The token ids of an empty string are the ids that the tokenizer adds to every text.
        adds = None if tokenizer is None else bool(tokenizer.encode("").ids)
        return check_template(jinja, self.controls(jinja), adds_bos=adds)

    def jinja(self, *, tools: bool = False, now: datetime | None = None) -> ChatJinja:
        """Return the compiled template.

        Args:
            tools: True to return the template for chats with tools.
            now: The time that ``strftime_now`` formats; None for the current time.
        """
        chat = self._chats[tools]
        return chat if now is None else replace(chat, now=now)

    def laid_out(
        self,
        jinja: ChatJinja,
        chat: Chat,
        given: Mapping[str, object],
        safety: Policy,
        texts: Sequence[str] | None,
        traced: Callable[[], Chat] | None = None,
    ) -> Rendered:
        """Render plain data.

        Args:
            jinja: The compiled template.
            chat: The messages.
            given: The variables of the template.
            safety: The policy for control sequences in untrusted text.
            texts: All untrusted texts. If None, the origins of the rendered text are always traced.
            traced: A function that returns the messages in ``chat`` as traced text, which records the origin of each
                character.

        Returns:
            The rendered chat; its segments are computed on first access.
        """
        rendering = Rendering(jinja, given, self.controls(jinja), safety)
        with_origins = traced or (lambda: chat)
        own = None if traced is not None else texts_in([each for name, each in given.items() if name not in _UNTRUSTED])
        if safety.looks and (texts is None or not is_clean(jinja, rendering.controls, texts, own)):
            return Rendered(*_compose(rendering, with_origins))
        text = jinja.run(chat, given)
        return Rendered.later(text, partial(_compose, rendering._replace(safety=OFF), with_origins))

    def controls(self, jinja: ChatJinja | None = None) -> Controls:
        """Return the control sequences of the tokenizer and a compiled template, by default the one for tools."""
        return controls_of(self.jinja(tools=True) if jinja is None else jinja, self._tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"


@lru_cache(maxsize=128)
def _generation_prompt(template: ChatJinja) -> str:
    """Return the text that ``add_generation_prompt`` adds."""
    chat = [{"role": "user", "content": template.content("?")}]
    bare, prompted = (template.try_render(chat, add_generation_prompt=on) or "" for on in (False, True))
    return prompted.removeprefix(bare) if prompted.startswith(bare) else ""


@lru_cache(maxsize=128)
def _own_system(template: ChatJinja) -> str | None:
    """Return the system text that a template adds to a chat without a system message.

    Returns:
        The system text that the template adds, or None if it adds none. The returned system text is empty if the
        template rejects system messages or doesn't render them as a separate turn.
    """
    system, user, answer = (
        {"role": role, "content": template.content(f"lazyprompt {role}")} for role in ("system", "user", "assistant")
    )
    turns = own_texts(template, [[user, answer, user]], add_generation_prompt=True)
    with_system = own_texts(template, [[system, user, answer, user]], add_generation_prompt=True)
    ended = own_texts(template, [[user, answer]])
    if (len(turns), len(with_system), len(ended)) != (4, 5, 3):
        return ""
    head, answered, (opening, closing) = turns[0], turns[2], with_system[:2]
    user_header = answered.removeprefix(common_start(answered, ended[2]))
    if not user_header or not closing.endswith(user_header):
        return ""
    has_both = head.startswith(opening) and head.endswith(closing)
    return head.removeprefix(opening).removesuffix(closing) or None if has_both else None


def _compose(rendering: Rendering, chat: Callable[[], Chat]) -> Composition:
    """Render a chat to parts with their slots."""
    given = chat()
    traces = rendering.traced(given)
    return Composition(tuple(traces.parts), tuple(origin.slot for origin in traces.origins), _note(given, traces))


def _note(chat: Chat, traces: Traces) -> str:
    """Describe why the origins of a rendered chat are lost, or which roles the template does not render."""
    if traces.note:
        return traces.note
    shown = {origin.message for origin in traces.origins}
    said = [
        (message["role"], at) for at, message in enumerate(chat) if any(map(str.strip, texts_in(message["content"])))
    ]
    roles = {role for role, at in said if at in shown}
    # Don't report an assistant message that the template omits, because a template may drop a message that contains
    # only reasoning.
    hidden = dict.fromkeys(str(role) for role, _ in said if role not in {*roles, "assistant"})
    return "; ".join(f"the template renders no message with the role {role!r}" for role in hidden)


def _cut_at_tag(traces: Traces) -> Rendered:
    """Truncate the rendered text at the end of the message that the model continues."""
    places = zip(accumulate(map(len, traces.parts), initial=0), traces.parts, traces.origins, strict=False)
    # Ignore a continuation tag in untrusted text, because a message may contain a forged tag.
    tags = [at + tag.start() for at, part, origin in places if origin.trusted for tag in _TAG.finditer(part)]
    if not tags:
        raise TemplateError("no text to continue: the template omits or changes the end of the last message's text")
    if len(tags) > 1:
        raise TemplateError("the last message can't be continued: the template writes its text more than once")
    # If the template removed the trailing space of the continuation tag, also strip the white space before the tag, as
    # transformers does.
    text = traces.text
    left = tags[0] if text.startswith(TAG, tags[0]) else len(text[: tags[0]].rstrip())
    kept: list[str] = []
    for part in traces.parts:
        kept.append(part[:left])
        left -= len(kept[-1])
    return Rendered(kept, (origin.slot for origin in traces.origins))
