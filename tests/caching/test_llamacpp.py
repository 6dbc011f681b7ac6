"""The tokens that llama.cpp's server tells it has read from its cache, beside ours."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from lazyprompt import CallRecord, ChatPrompter, TrainableModule
from lazyprompt.caching import simulate
from support.engines import QUICK, tiny_model, tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow  # engines

# Answers of a few letters, which end now and then.
LETTERS: dict[str, Any] = {"grammar": 'root ::= "a" [ab]*', "logit_bias": {"258": 1}}


class ModelsOwn:
    """A counter with the model's own tokens."""

    additive: ClassVar[bool] = True

    def __init__(self) -> None:
        self._tokenizer = tokenizer()

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        raise NotImplementedError  # prompts are flat

    def count_text(self, text: str) -> int:
        return len(self._tokenizer.encode(text).ids)


def test_tokens_read_are_those_of_llama_cpp_on_50_growing_chats(tmp_path: Path) -> None:
    records: list[CallRecord] = []
    rng = Random(29)  # noqa: S311 - chats keep no secret
    model = str(tiny_model(tmp_path))
    options: dict[str, Any] = {**QUICK, "parallel": 1}
    with TrainableModule(model, hooks=[records.append]).start(**options) as module:
        module.prompt(ChatPrompter("You help, 東京.", system=""))
        for chat in range(50):
            history: list[list[str]] = []
            for turn in range(rng.randint(2, 4)):
                question = f"{chat:02} {turn} {'why ' * rng.randint(1, 5)}?"
                reply = module(
                    question, history, max_tokens=rng.randint(1, 9), extra_body=LETTERS, seed=rng.randrange(99)
                )
                history.append([question, str(reply)])
    report = simulate(records, "llama.cpp", ModelsOwn())
    timings = [record.reply.raw["timings"] for record in records if record.reply is not None]
    assert [call.total for call in report.calls] == [each["cache_n"] + each["prompt_n"] for each in timings]
    assert [call.read for call in report.calls] == [each["cache_n"] for each in timings]
    assert len({record.reply.finish for record in records if record.reply is not None}) == 2
    assert report.breaks == ()
