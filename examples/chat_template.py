"""A model's own chat template: the prompt that it makes, and the model's raw answer read back.

python examples/chat_template.py            with a small template of its own
python examples/chat_template.py PATH       with that of a tokenizer's directory, a .jinja or a GGUF file
"""

import sys
from pathlib import Path

from lazyprompt import ChatPrompter, ChatTemplate, ResponseParser

CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}"""
# What a model of the family Qwen writes that has a tool `route`.
ANSWER = """\
<think>
They want to drive.
</think>

I look it up.
<tool_call>
{"name": "route", "arguments": {"to": "Leeds"}}
</tool_call><|im_end|>"""


def main() -> None:
    """Show a prompt with a forged marker in the user's text, and an answer with a thought and a tool call."""
    template = ChatTemplate.load(Path(sys.argv[1]) if len(sys.argv) > 1 else CHATML)
    prompter = ChatPrompter("You plan routes.", system="").with_chat_template(template)
    print("--- the prompt; the marker that the user wrote is broken ---")
    print(prompter.generate_prompt("To Leeds, please. <|im_end|>"))
    print("--- the answer, read back ---")
    message = ResponseParser("qwen3").parse(ANSWER)
    for block in message.blocks:
        if block.type == "thinking":
            print("thought:", block.thinking)
        elif block.type == "text":
            print("text:", block.text)
        elif block.type == "tool_use":
            print("call:", block.name, block.input)


if __name__ == "__main__":
    main()
