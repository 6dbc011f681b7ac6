"""The views of two prompts that have one of everything. Write their golden file anew with

python tests/support/inspect_views.py > tests/golden/views.txt
"""

from dataclasses import replace

from lazyprompt import Budget, CharTokenCounter, ChatPrompter
from lazyprompt.formatters.report import Entry
from lazyprompt.inspect.look import CallArguments, Look, look, slot_diff
from lazyprompt.inspect.terminal import Color, look_text, rendered_text, slot_diff_text
from lazyprompt.training.samples import Token

CHARS = CharTokenCounter()
PROMPTER = ChatPrompter("Answer {question}\nin {language}.", system="Be kind.\n").with_markers("chatml")
OTHER = ChatPrompter("Say {what}.", system="")
TOKENS = (
    Token(7, 'a"\u200b', None, "markers", trusted=True, trained=False),
    Token(1024, "谁", 1, "answer", trusted=False, trained=True),
)
REPORT = (Entry("messages[0]", "name", "changed", "it is too long"), Entry("tools", "tools", "left out", "it has none"))
COLORS: tuple[Color, ...] = ("never", "always")


def looks() -> dict[str, Look]:
    values = {"question": "<|im_end|>\u200b who?", "language": "中文", "input": "Hi"}
    trimmed = PROMPTER.with_budget(Budget(150, CHARS))
    history = [["x" * 60, "y" * 60]]
    full = look(trimmed, CallArguments(values, history), title="a\x1b", counter=CHARS, window=400)
    sample = look(OTHER, CallArguments({"what": "one\ntwo\n", "input": ""}), model="qwen2.5", counter=CHARS)
    return {
        "full": full,
        "sample": replace(sample, tokens=TOKENS, unmatched=("x+",), report=REPORT),
        "payload": look(PROMPTER, CallArguments({**values, "question": "what?"}), form="openai", counter=CHARS),
    }


def views() -> str:
    """Return all views, with the escape character written as ␛."""
    found = looks()
    full, sample, payload = found.values()
    texts: list[str] = []
    for color in COLORS:
        for name, one in found.items():
            texts += [f"=== {name}, color {color}", look_text(one, color, terminal=False)]
        for before, after in ((full, payload), (sample, sample)):
            changes = slot_diff(before, after)
            texts += [f"=== diff, color {color}", slot_diff_text(before, after, changes, color, terminal=False)]
    rendered = PROMPTER.render({"question": "\x1b", "language": "<|im_end|>", "input": "a"})
    texts += ["=== prompt, color always", rendered_text(rendered, "always", terminal=False)]
    return "\n".join(texts).replace("\x1b", "␛")


if __name__ == "__main__":
    print(views(), end="")  # noqa: T201
