"""A model's own chat template: the prompt, what is trained with it, and an answer read back.

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
CALL = '<tool_call>\n{"name": "route", "arguments": {"to": "Leeds"}}\n</tool_call><|im_end|>'


def main() -> None:
    """Show the prompt, the training text, and a call."""
    template = ChatTemplate.load(Path(sys.argv[1]) if len(sys.argv) > 1 else CHATML)
    prompter = ChatPrompter("You plan routes.", system="").with_chat_template(template)
    print("--- the prompt ---")
    print(prompter.generate_prompt("To Leeds, please. <|im_end|>"))
    print("--- what is trained ---")
    sample = prompter.training_sample("To Leeds, please.", "Take the A1.")
    print([sample.text[start:end] for start, end in sample.spans])
    print("--- an answer, as it streams ---")
    stream = ResponseParser("hermes").stream()
    for piece in CALL.split(" "):
        for delta in stream.feed(f"{piece} "):
            print(delta)
    print(stream.finish().blocks)


if __name__ == "__main__":
    main()
