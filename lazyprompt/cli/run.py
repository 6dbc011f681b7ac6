"""The command ``lazyprompt run``: one answer of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.cli.models import ModelOptions, opened_model, remark
from lazyprompt.cli.prompts import WordsOptions, asked_words
from lazyprompt.cli.streams import Output, WrongUseError, json_text
from lazyprompt.cli.terminal import Screen, warn

if TYPE_CHECKING:
    from lazyprompt.cli.prompts import Asked
    from lazyprompt.modules._base import ChatModule
    from lazyprompt.modules.reply import Reply


class RunOptions(WordsOptions, ModelOptions):
    """What the options of the command give."""

    stream: bool | None
    as_json: bool


def answered(options: RunOptions) -> None:
    """Ask a model, and write its answer.

    Args:
        options: The options.

    Raises:
        WrongUseError: An option is wrong, or the prompt cannot be made.
        NoAnswerError: There is no answer.
    """
    if options["as_json"] and options["stream"]:
        raise WrongUseError("--stream", "JSON is written when the answer is whole; leave out --json")
    asked = asked_words(options, "run")
    with asked.blaming():
        asked.prompter.fill(*asked.call[:3])
    screen = Screen()
    streamed = screen.terminal and not options["as_json"] if options["stream"] is None else options["stream"]
    with opened_model(options, asked.file) as module:
        module.prompt(asked.prompter)
        if options["as_json"]:
            Output(json_text(_as_dict(module(*asked.call[:3])), terminal=screen.terminal)).write()
            return
        reply = _said(module, asked, screen, streamed=streamed)
    if reply.tool_calls:
        warn(f"the model calls {', '.join(call.name for call in reply.tool_calls)}; --json gives the arguments")
    if remark(reply):
        warn(remark(reply))


def _said(module: ChatModule, asked: Asked, screen: Screen, *, streamed: bool) -> Reply:
    """The answer, written to the byte; on a terminal it ends its line."""
    try:
        if not streamed:
            reply = module(*asked.call[:3])
            screen.write(reply)
            return reply
        with module.stream(*asked.call[:3]) as stream:
            for piece in stream:
                screen.write(piece)
            return stream.reply
    finally:
        if screen.terminal:
            screen.end_line()


def _as_dict(reply: Reply) -> dict[str, object]:
    """A reply as JSON values."""
    return {
        "text": str(reply),
        "thinking": reply.thinking,
        "tool_calls": [{"id": call.id, "name": call.name, "input": call.input} for call in reply.tool_calls],
        "usage": None if reply.usage is None else dict(reply.usage),
        "finish": reply.finish,
        "model": reply.model,
    }
