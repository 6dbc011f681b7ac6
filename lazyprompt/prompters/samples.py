"""Creation of training samples from a prompt, its response, and the turns to train on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lazyprompt.errors import FormatError
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.prompt import MARKERS, Prompt
from lazyprompt.rendering.turns import answers_in
from lazyprompt.training.samples import Train, TrainingSample, trained_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.payload_target import PayloadTarget
    from lazyprompt.prompters.targets import TextTarget
    from lazyprompt.rendering.layout import SampleParts


def sample_of(prompt: Prompt, answer: Msg, train: Train, target: TextTarget, openai: PayloadTarget) -> TrainingSample:
    """Create a training sample from a prompt and its response.

    Args:
        prompt: The prompt, without the response.
        answer: The response.
        train: The responses to train on; see :meth:`Prompter.training_sample`.
        target: The renderer for the sample's text.
        openai: The renderer for the sample's messages.

    Raises:
        FormatError: Rendering would change a turn to train on.
    """
    messages = openai_dicts([*openai.messages(prompt), answer])
    trained = trained_messages(messages, train)
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    for index, turn in zip(answers, (*answers_in(prompt.history), answer), strict=True):
        if trained[index] and not target.shows_thoughts and any(block.type == "thinking" for block in turn.blocks):
            raise FormatError(
                f"messages[{index}] is included in the loss and contains thinking blocks, which flat text omits; write "
                "the thinking as message text in the model's own format, or remove the thinking blocks"
            )
    out = target.sample(prompt, answer, [trained[index] for index in answers])
    return TrainingSample(
        out.parts,
        out.slots,
        out.trained,
        tuple(messages),
        trained,
        tuple(prompt.tools.copy()),
        part_messages=tuple(_messages_of(out, prompt, messages)),
    )


def _messages_of(out: SampleParts, prompt: Prompt, messages: Sequence[JsonObject]) -> Iterator[int | None]:
    """Yield the message index of each text part; None for markers and tools."""
    last, has_user_turn = len(messages) - 1, prompt.said is not None
    before_history = last - has_user_turn - len(openai_dicts(prompt.history.messages))
    first = 1 if before_history and messages[0]["role"] == "system" else 0
    # A slot may occur in both the system part and the user part of an instruction. The occurrences in the system part
    # are rendered first.
    system, user = Counter(prompt.instruction.slots), {*prompt.user.slots, "input"}
    for slot, at in zip(out.slots, out.messages, strict=True):
        if at is not None:
            yield first + at
        elif slot == MARKERS:
            yield None
        elif slot == "label":
            yield last
        elif slot == "system" or system[slot]:
            system[slot] -= 1
            yield 0 if first else None
        else:
            yield last - 1 if has_user_turn and slot in user else None
