"""A model's own chat template: loaded, rendered, asked what it can do."""

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
from lazyprompt.chat_templates.conversation import TAG, dicts_of, tagged, template_dicts, texts_of
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


# The form of the messages of a sample; thoughts stay, for they are in its text.
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
        name: Which of several templates is used; None takes ``tool_use`` for tools, where there is one, else
            ``default``.

    Raises:
        TemplateError: There is no such template, or its syntax is wrong; the message names the line.
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
                ``chat_template.jinja``) or a file in it, a GGUF file, or the template itself: text with ``{{`` or
                ``{%`` in it.
            name: Which of several templates.
            special_tokens: Special tokens by the names that templates have for them, as ``bos_token="<s>"``; they go
                before those of the files.

        Returns:
            The template.

        Raises:
            TemplateError: There is no template, or its syntax is wrong.
            TokenizerError: There is nothing at the path, or a file cannot be read.
            MissingExtraError: It is a GGUF file, and the package gguf is not installed.
        """
        found = read_source(source)
        if special_tokens:
            found = replace(found, special_tokens={**found.special_tokens, **special_tokens})
        return cls(found, name)

    @property
    def text(self) -> str:
        """The template itself, as it is used without tools."""
        return self._chats[0].text

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The special tokens by the names that templates have for them."""
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
        """Render messages as the model's own template does.

        Args:
            messages: Messages in any form that a history may have; keys that only the template knows stay.
            tools: The tools: OpenAI dicts or Python functions.
            add_generation_prompt: Whether the text ends with what invites the assistant to speak.
            continue_final_message: Whether the last message is to be gone on with, so that nothing ends it; or the
                name of its field that is, as ``reasoning_content``. No generation prompt is added then.
            documents: The documents, for the templates that have a place for them.
            now: The time that ``strftime_now`` tells; None is the clock's.
            safety: What becomes of control sequences in what nobody trusts (all contents, tools, documents):
                ``neutralize``, ``raise`` or ``off``.
            variables: What else the template looks up, as ``enable_thinking=False``. The developer's own: trusted.

        Returns:
            The text with its segments: their slots are the roles of the messages, ``tools``, ``documents``, and
            ``markers`` for the template's own text.

        Raises:
            TemplateError: The template refuses the messages, fails, or asks for more than the bounds give.
            FormatError: A tool, document or variable is no plain data, or no template can be given a message.
            HistoryError: A message has no accepted form, as one without a role.
            ToolsError: A tool cannot be described.
            SafetyError: There is a control sequence, and ``safety`` is ``raise``; or there is no such policy.
        """
        policy = policy_of(safety)
        jinja = self.jinja(tools=bool(tools), now=now)
        chat = template_dicts(parse_messages(messages, "messages"), jinja)
        own = plain_tools(dicts_of(tools))
        asked = {"documents": documents, "add_generation_prompt": add_generation_prompt, **variables}
        given: dict[str, object] = {name: plain_data(value, name) for name, value in asked.items()}
        given["tools"] = own.data
        if continue_final_message:
            field = continue_final_message if isinstance(continue_final_message, str) else "content"
            given["add_generation_prompt"] = False
            return _continued(Rendering(jinja, given, self.controls(jinja), policy).traced(tagged(chat, field)))
        texts = [*texts_of(chat), *own.texts, *texts_in(given["documents"])]
        return self.laid_out(jinja, chat, given, policy, texts)

    @property
    def markers(self) -> Markers:
        """The generation prompt, the end of an answer and the template's own system text, as markers."""
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
        """Text that the template writes behind an answer, without white space: the marker at which an engine stops."""
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
        """Return the next prompt's ids without rendering the history again; they begin with the engine's own.

        Args:
            previous_ids: The prompt that the engine was given, with the generation prompt at its end.
            completion_ids: The ids that the model sampled, with the token that ended it or without.
            new_messages: What comes behind it: results of calls, what the user says.
            tokenizer: The tokenizer of both.
            tools: The tools that the prompt was rendered with.
            messages: The chat that the prompt was rendered of. With it the bridge is proven by rendering that chat, in
                the place of trials; and the ids keep the thoughts that the template takes out of earlier turns.
            safety: What becomes of control sequences in the new messages.
            variables: What else the prompt was rendered with.

        Returns:
            The ids; None where it is not proven that the template goes on with its prompts and answers. The whole chat
            is to be rendered then; :meth:`bridge_or_reason` says why.

        Raises:
            TokenizerError: The tokenizer is of no known kind.
            LazyPromptError: As in :meth:`render`.
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
        """Return the bridge as :meth:`bridge` does, or the reason why there is none.

        Args:
            previous_ids: As in :meth:`bridge`.
            completion_ids: As in :meth:`bridge`.
            new_messages: As in :meth:`bridge`.
            tokenizer: As in :meth:`bridge`.
            tools: As in :meth:`bridge`.
            messages: As in :meth:`bridge`.
            safety: As in :meth:`bridge`.
            variables: As in :meth:`bridge`.

        Returns:
            The ids, or why there are none.

        Raises:
            LazyPromptError: As in :meth:`bridge`.
        """
        jinja = self.jinja(tools=bool(tools))
        new = template_dicts(parse_messages(new_messages, "new_messages"), jinja)
        chat = None if messages is None else template_dicts(parse_messages(messages, "messages"), jinja)
        given = {name: plain_data(value, name) for name, value in variables.items()}
        given["tools"] = plain_tools(dicts_of(tools)).data
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
        """A conversation to fine-tune a model with.

        The assistant's text is trained, with the markers of calls and thoughts that the template writes for it, and
        the marker that ends its turn. A template that says itself what is generated (``{% generation %}``) decides.

        Args:
            messages: The whole conversation; the last message is the answer.
            tools: The tools the model may call.
            train: Which answers are trained: the ``last``, ``all``, or those for which ``train(index, message)`` is.
            mask: Text inside the answers that is not trained, as of :meth:`TrainingSample.with_mask`.
            now: As in :meth:`render` (so with safety and variables).
            safety: What becomes of control sequences.
            variables: What else the template looks up.

        Returns:
            The sample.

        Raises:
            TemplateError: The template refuses the messages, or loses where its text came from.
            HistoryError: The last message is not the assistant's.
            LazyPromptError: As in :meth:`render`.
        """
        jinja = self.jinja(tools=bool(tools), now=now)
        parsed = parse_messages(messages, "messages")
        dicts = openai_dicts(parsed, _SAMPLE_FORM)
        if not dicts or dicts[-1]["role"] != "assistant":
            raise HistoryError("a training sample ends with the answer: its last message is the assistant's")
        own = plain_tools(dicts_of(tools)).data
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
        """Find out what the template can and cannot do, by trying it out.

        Args:
            tokenizer: The model's tokenizer, where it is to be known whether it adds a beginning of text of its own.
            tools: Whether to look at the template that is used with tools, where there are several.

        Returns:
            The answers, by their names; as text, a line each.
        """
        jinja = self.jinja(tools=tools)
        # What a tokenizer makes of no text is what it adds to each.
        adds = None if tokenizer is None else bool(tokenizer.encode("").ids)
        return check_template(jinja, self.controls(jinja), adds_bos=adds)

    def jinja(self, *, tools: bool = False, now: datetime | None = None) -> ChatJinja:
        """The template that is used.

        Args:
            tools: Whether there are tools.
            now: The time it tells.

        Returns:
            The template.
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
        """Render what is plain data already.

        Args:
            jinja: The template.
            chat: The messages.
            given: The variables of the template.
            safety: The policy.
            texts: All texts that nobody trusts; None where they are to be looked at with all care in any case.
            traced: Returns the same messages with origins of their own.

        Returns:
            The text; its segments are found out when they are asked for.
        """
        rendering = Rendering(jinja, given, self.controls(jinja), safety)
        with_origins = traced or (lambda: chat)
        own = None if traced is not None else texts_in([each for name, each in given.items() if name not in _UNTRUSTED])
        if safety.looks and (texts is None or not is_clean(jinja, rendering.controls, texts, own)):
            return Rendered(*_composition(rendering, with_origins))
        text = jinja.run(chat, given)
        return Rendered.later(text, partial(_composition, rendering._replace(safety=OFF), with_origins))

    def controls(self, jinja: ChatJinja) -> Controls:
        """The control sequences of the template and of its tokenizer.

        Args:
            jinja: The template that is used.
        """
        return controls_of(jinja, self._tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"


@lru_cache(maxsize=128)
def _generation_prompt(template: ChatJinja) -> str:
    """Return the text that ``add_generation_prompt`` adds."""
    chat = [{"role": "user", "content": template.content("?")}]
    bare, prompted = (template.writes(chat, add_generation_prompt=on) or "" for on in (False, True))
    return prompted.removeprefix(bare) if prompted.startswith(bare) else ""


@lru_cache(maxsize=128)
def _own_system(template: ChatJinja) -> str | None:
    """Return the system text that a template adds where a chat has none.

    None if it adds none; ``""`` if it refuses system messages or has no turn of their own for them.
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


def _composition(rendering: Rendering, chat: Callable[[], Chat]) -> Composition:
    """Return the composition of a text."""
    given = chat()
    traces = rendering.traced(given)
    return Composition(tuple(traces.parts), tuple(origin.slot for origin in traces.origins), _note(given, traces))


def _note(chat: Chat, traces: Traces) -> str:
    """Return the note of a rendering: the reason why origins are lost, or the roles that the template does not show."""
    if traces.note:
        return traces.note
    shown = {origin.message for origin in traces.origins}
    said = [
        (message["role"], at) for at, message in enumerate(chat) if any(map(str.strip, texts_in(message["content"])))
    ]
    roles = {role for role, at in said if at in shown}
    # An answer may be a thought alone, which a template leaves out.
    hidden = dict.fromkeys(str(role) for role, _ in said if role not in {*roles, "assistant"})
    return "; ".join(f"the template shows no message of the role {role!r}" for role in hidden)


def _continued(traces: Traces) -> Rendered:
    """Return the text up to the end of the message to continue."""
    places = zip(accumulate(map(len, traces.parts), initial=0), traces.parts, traces.origins, strict=False)
    # The tag is ours, or the own text of a template that knows it.
    tags = [at + part.rfind(_TAG) for at, part, origin in places if origin.trusted and _TAG in part]
    if not tags:
        raise TemplateError("there is nothing to go on with: the template does not show the end of the last message")
    # A template that trims has trimmed the tag; what stands before it is then trimmed as well, as in transformers.
    text = traces.text
    left = tags[-1] if text.startswith(TAG, tags[-1]) else len(text[: tags[-1]].rstrip())
    kept: list[str] = []
    for part in traces.parts:
        kept.append(part[:left])
        left -= len(kept[-1])
    return Rendered(kept, (origin.slot for origin in traces.origins))
