"""A model's own chat template: loading, rendering, bridging, and testing its abilities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

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


# The message format of a training sample, which includes thoughts because the text contains them.
_SAMPLE_FORM = OpenAIWriter(
    text_lists=True, named_results=True, thinking="reasoning_content", parts={"video": UrlPart("video_url")}
)
_TAG = TAG.rstrip()
# The template variables that hold untrusted text.
_UNTRUSTED = frozenset(("tools", "documents"))


@read_only
@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A model's own chat template.

    Args:
        source: The template or templates, with the special tokens.
        name: The name of the template to use; None for ``tool_use`` if there are tools and it exists, else ``default``.

    Raises:
        TemplateError: The template does not exist, or its syntax is invalid; the message names the line.
    """

    source: ChatSource
    name: str | None = None
    _chats: tuple[ChatJinja, ChatJinja] = field(init=False, repr=False, compare=False)
    _tokens: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        templates = self.source.templates
        names = (self.name or "default", self.name or ("tool_use" if "tool_use" in templates else "default"))
        known = f"there are {', '.join(map(repr, templates))}: give name=" if templates else "the model has none"
        for name in names:
            if name not in templates:
                raise TemplateError(f"there is no chat template {name!r}{did_you_mean(name, templates)}; {known}")
        plain, with_tools = (ChatJinja(templates[name], self.source.special_tokens) for name in names)
        object.__setattr__(self, "_chats", (plain, with_tools))
        object.__setattr__(self, "_tokens", self.source.control_tokens)

    @classmethod
    def load(cls, source: str | Path, *, name: str | None = None, **special_tokens: str) -> Self:
        """Load a chat template.

        Args:
            source: A ``.jinja`` file, a tokenizer's directory (with ``tokenizer_config.json`` or
                ``chat_template.jinja``) or a file in it, a GGUF file, or the template itself: text that contains ``{{``
                or ``{%``.
            name: The name of the template, if there are several.
            special_tokens: Special tokens by the templates' names for them, such as ``bos_token="<s>"``. They override
                those of the files.

        Returns:
            The template.

        Raises:
            TemplateError: There is no template, or its syntax is invalid.
            TokenizerError: The path does not exist, or a file cannot be read.
            MissingExtraError: The file is a GGUF file, and the package gguf is not installed.
        """
        found = read_source(source)
        if special_tokens:
            found = replace(found, special_tokens={**found.special_tokens, **special_tokens})
        return cls(found, name)

    @property
    def text(self) -> str:
        """The text of the template for chats without tools."""
        return self._chats[0].text

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The special tokens by the templates' names for them."""
        return self._chats[0].special_tokens

    @property
    def response_template(self) -> Mapping[str, object] | None:
        """The form of the model's answers, for :class:`~lazyprompt.ResponseParser`; None if the tokenizer has none."""
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
            messages: Messages in any form accepted for a history. Keys that only the template uses stay.
            tools: The tools: OpenAI dicts or Python functions.
            add_generation_prompt: True to end the text with the generation prompt.
            continue_final_message: True to leave the last message open for the model to continue, or the name of its
                field to continue, such as ``reasoning_content``. Then no generation prompt is added.
            documents: The documents, for templates that render them.
            now: The time that ``strftime_now`` formats; None for the current time.
            safety: The policy for control sequences in untrusted text (all contents, tools and documents):
                ``neutralize``, ``raise`` or ``off``.
            variables: Further variables of the template, such as ``enable_thinking=False``; they are trusted.

        Returns:
            The text with its segments. Their slots are the roles of the messages, ``tools``, ``documents``, and
            ``markers`` for the template's own text.

        Raises:
            TemplateError: The template refuses the messages, fails, or exceeds a bound.
            FormatError: A tool, document or variable is not plain data, or a template cannot represent a message.
            HistoryError: A message has no accepted form; for example, it has no role.
            ToolsError: A tool has no valid schema.
            SafetyError: Untrusted text contains a control sequence and ``safety`` is ``raise``, or is unknown.
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
        """The template's generation prompt, answer end and default system text, as markers."""
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
        """The marker that the template writes after an answer and at which an engine stops, without white space."""
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
        """Return the ids of the next prompt without rendering the history again.

        Args:
            previous_ids: The ids of the previous prompt, ending with the generation prompt.
            completion_ids: The ids that the model sampled, with or without the token that ended the answer.
            new_messages: The messages after the answer: tool results, user messages.
            tokenizer: The tokenizer of all ids.
            tools: The tools of the previous prompt.
            messages: The messages of the previous prompt. With them the bridge is proven by rendering the chat itself,
                and the ids keep thoughts that the template removes from earlier turns.
            safety: The policy for control sequences in the new messages.
            variables: Further variables of the previous prompt.

        Returns:
            The previous and sampled ids, followed by new ones. None if it is not proven that the template keeps its
            prompts and answers unchanged; then render the whole chat. :meth:`bridge_or_reason` returns the reason.

        Raises:
            TokenizerError: The tokenizer is not supported.
            LazyPromptError: The errors of :meth:`render`.
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
        """Return the ids like :meth:`bridge`, or the reason why there are none.

        Args:
            previous_ids: The ids of the previous prompt.
            completion_ids: The ids that the model sampled.
            new_messages: The messages after the answer.
            tokenizer: The tokenizer of all ids.
            tools: The tools of the previous prompt.
            messages: The messages of the previous prompt.
            safety: The policy for control sequences in the new messages.
            variables: Further variables of the previous prompt.

        Returns:
            The ids, or the reason why there are none.

        Raises:
            LazyPromptError: The errors of :meth:`bridge`.
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

        The assistant's text is trained, with the template's markers for calls and thoughts and the marker that ends the
        turn. If the template contains ``{% generation %}``, the content of those blocks is trained instead.

        Args:
            messages: The whole conversation, ending with the answer.
            tools: The tools that the model may call.
            train: The answers to train: ``last``, ``all``, or those for which ``train(index, message)`` returns True.
            mask: Text inside the answers that is not trained, as for :meth:`TrainingSample.with_mask`.
            now: The time that ``strftime_now`` formats; None for the current time.
            safety: The policy for control sequences in untrusted text.
            variables: Further variables of the template.

        Returns:
            The sample.

        Raises:
            TemplateError: The template refuses the messages, or loses the origins of its text.
            HistoryError: The last message is not the assistant's.
            LazyPromptError: The errors of :meth:`render`.
        """
        jinja = self.jinja(tools=bool(tools), now=now)
        parsed = parse_messages(messages, "messages")
        dicts = openai_dicts(parsed, _SAMPLE_FORM)
        if not dicts or dicts[-1]["role"] != "assistant":
            raise HistoryError("the last message of a training sample must be the assistant's answer")
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
        """Test the abilities of the template by rendering chats.

        Args:
            tokenizer: The model's tokenizer, to find out if it adds a beginning-of-text token.
            tools: True to test the template for chats with tools, if there are several.

        Returns:
            The tested abilities by name. Its ``str()`` has one line for each.
        """
        jinja = self.jinja(tools=tools)
        # The ids of an empty text are those that the tokenizer adds to each text.
        adds = None if tokenizer is None else bool(tokenizer.encode("").ids)
        return check_template(jinja, self.controls(jinja), adds_bos=adds)

    def jinja(self, *, tools: bool = False, now: datetime | None = None) -> ChatJinja:
        """Return the compiled template.

        Args:
            tools: True for the template for chats with tools.
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
            jinja: The template.
            chat: The messages.
            given: The variables of the template.
            safety: The policy.
            texts: All untrusted texts; None to trace the origins in any case.
            traced: Returns the same messages with their origins.

        Returns:
                The text; its segments are computed on first access.
        """
        rendering = Rendering(jinja, given, self.controls(jinja), safety)
        with_origins = traced or (lambda: chat)
        own = None if traced is not None else texts_in([each for name, each in given.items() if name not in _UNTRUSTED])
        if safety.looks and (texts is None or not is_clean(jinja, rendering.controls, texts, own)):
            return Rendered(*_compose(rendering, with_origins))
        text = jinja.run(chat, given)
        return Rendered.later(text, partial(_compose, rendering._replace(safety=OFF), with_origins))

    def controls(self, jinja: ChatJinja) -> Controls:
        """Return the control sequences of a compiled template and of its tokenizer."""
        return controls_of(jinja, self._tokens)

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
    """Return the system text that a template adds to a chat without one.

    None if it adds none; ``""`` if it refuses system messages or renders them outside a turn of their own.
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
    """Render a chat with its origins."""
    given = chat()
    traces = rendering.traced(given)
    return Composition(tuple(traces.parts), tuple(origin.slot for origin in traces.origins), _note(given, traces))


def _note(chat: Chat, traces: Traces) -> str:
    """Return the note of a rendering: the reason why origins are lost, or the roles that the template drops."""
    if traces.note:
        return traces.note
    shown = {origin.message for origin in traces.origins}
    said = [
        (message["role"], at) for at, message in enumerate(chat) if any(map(str.strip, texts_in(message["content"])))
    ]
    roles = {role for role, at in said if at in shown}
    # An answer may consist of a thought, which a template may drop.
    hidden = dict.fromkeys(str(role) for role, _ in said if role not in {*roles, "assistant"})
    return "; ".join(f"the template renders no message with the role {role!r}" for role in hidden)


def _cut_at_tag(traces: Traces) -> Rendered:
    """Cut the text at the end of the message to continue."""
    places = zip(accumulate(map(len, traces.parts), initial=0), traces.parts, traces.origins, strict=False)
    # The tag is the appended one, or the own text of a template that contains it.
    tags = [at + part.rfind(_TAG) for at, part, origin in places if origin.trusted and _TAG in part]
    if not tags:
        raise TemplateError("no text to continue: the template does not render the end of the last message")
        # If the template has trimmed the tag, the text before it is trimmed as well, as in transformers.
    text = traces.text
    left = tags[-1] if text.startswith(TAG, tags[-1]) else len(text[: tags[-1]].rstrip())
    kept: list[str] = []
    for part in traces.parts:
        kept.append(part[:left])
        left -= len(kept[-1])
    return Rendered(kept, (origin.slot for origin in traces.origins))
