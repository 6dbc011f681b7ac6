"""A token counter with AgentScope's name and signature, over the vocabulary that the package ``dashscope`` carries.

What AgentScope loads for ``Qwen/Qwen2.5-VL-3B-Instruct`` comes from a model hub. That model has Qwen's one vocabulary,
and its chat template writes the messages as ``text_of`` does, so the tokens are the same without any download.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dashscope


def text_of(content: object) -> str:
    """The text of a content as the model's chat template writes it, which has a null text as ``None``."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if "text" in part)
    return str(content)


class HuggingFaceTokenCounter:
    """Counts the tokens of messages as Qwen's models see them.

    Args:
        pretrained_model_name_or_path: A model of Qwen's; all have one vocabulary.
        use_mirror: Whether to ask a mirror of the hub; nothing is asked here.
    """

    def __init__(self, pretrained_model_name_or_path: str, *, use_mirror: bool = False) -> None:
        if "qwen" not in pretrained_model_name_or_path.lower():
            message = f"{pretrained_model_name_or_path!r} is no model of Qwen's, whose vocabulary is the only one here"
            raise ValueError(message)
        self.use_mirror = use_mirror
        self._tokenizer = dashscope.get_tokenizer("qwen-turbo")

    async def count(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The number of tokens of the messages as ChatML."""
        turns = (f"<|im_start|>{each['role']}\n{text_of(each['content'])}<|im_end|>\n" for each in messages)
        return len(self._tokenizer.encode("".join(turns)))
