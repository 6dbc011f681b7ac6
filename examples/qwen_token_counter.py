"""A token counter with AgentScope's name and signature, over the vocabulary that the package ``dashscope`` carries.

AgentScope loads the tokenizer of ``Qwen/Qwen2.5-VL-3B-Instruct`` from a model hub. That model has the vocabulary of all
Qwen models, and its chat template writes the messages as ``text_of`` does, so the counts are equal without a download.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stand_in import exit_if_missing

with exit_if_missing("dashscope"):
    import dashscope


def text_of(content: object) -> str:
    """Return the text of a content as the model's chat template writes it, which has a null text as ``None``."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if "text" in part)
    return str(content)


class HuggingFaceTokenCounter:
    """A counter of the tokens of messages as Qwen's models see them.

    Args:
        pretrained_model_name_or_path: A model of Qwen's; all have one vocabulary.
        use_mirror: Has no effect: no hub is asked.
    """

    def __init__(self, pretrained_model_name_or_path: str, *, use_mirror: bool = False) -> None:
        if "qwen" not in pretrained_model_name_or_path.lower():
            message = f"{pretrained_model_name_or_path!r} is no model of Qwen's, whose vocabulary is the only one here"
            raise ValueError(message)
        self.use_mirror = use_mirror
        self._tokenizer = dashscope.get_tokenizer("qwen-turbo")

    async def count(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the number of tokens of the messages as ChatML."""
        turns = (f"<|im_start|>{each['role']}\n{text_of(each['content'])}<|im_end|>\n" for each in messages)
        return len(self._tokenizer.encode("".join(turns)))
