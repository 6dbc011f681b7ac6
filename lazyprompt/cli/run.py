"""The ``lazyprompt run`` command, which requests one response from a model or starts a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from lazyprompt.cli.chat import talk
from lazyprompt.cli.models import length_warning, open_model, sources_help
from lazyprompt.cli.options import (
    Options,
    env_option,
    json_option,
    model_options,
    words_options,
)
from lazyprompt.cli.prompts import PromptRequest, read_words
from lazyprompt.cli.streams import Screen, WrongUseError, note, write_json

if TYPE_CHECKING:
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.chat import ChatModule


@click.command("run", epilog=sources_help())
@words_options
@env_option
@model_options
@click.option("--chat", "is_chat", is_flag=True, help="Chat: each line is a turn.")
@click.option("--stream/--no-stream", default=None, help="Stream the response.  [default: on a terminal]")
@json_option
def command(*, is_chat: bool, stream: bool | None, as_json: bool, **options: Unpack[Options]) -> None:
    r"""Call a model, or chat with it.

    Specify the prompt as in lazyprompt render. Command-line options override the model, provider and options in a
    .prompty file. API keys are read from the environment, never from options, which other users could see. If the model
    fails to respond, one line on standard error states the reason, and the exit status is 1.

    With --json, the output contains text, thinking, tool_calls (id, name, input), usage, finish and model.

    With --chat, each line that you type is a turn, and its text is the prompt's input; /help lists the commands. A line
    that ends with a backslash continues on the next line. Ctrl-C stops a response, and Ctrl-D ends the chat. If the
    model calls a tool, you enter its result. Each piped line is a turn; the chat ends at the first turn without a
    response.

    \b
    Examples:
      lazyprompt run --source anthropic --input 'Who are you?'
      lazyprompt run qa.yaml --set document=@report.txt --set question='Who?' \
          --source openai --model gpt-5-mini --json
      cat report.txt | lazyprompt run summary.yaml --model models/qwen3.gguf
      lazyprompt run --chat --source openai
      lazyprompt run qa.yaml --chat --model models/qwen3.gguf < questions.txt
    """
    if is_chat:
        for option, value in (("--input", options["text"]), ("--json", as_json or None), ("--stream", stream)):
            if value is not None:
                raise WrongUseError(option, "this option does not apply to a chat; remove --chat")
        talk(options)
        return
    if as_json and stream:
        raise WrongUseError("--stream", "JSON cannot be streamed; remove --json")
    request = read_words(options, "run")
    with request.blaming():
        request.prompter.fill(*request.call[:3])
    screen = Screen()
    streamed = screen.terminal and not as_json if stream is None else stream
    with open_model(options, request.file) as module:
        module.prompt(request.prompter)
        if as_json:
            write_json(_reply_json(module(*request.call[:3])))
            return
        reply = _write_answer(module, request, screen, streamed=streamed)
    if reply.tool_calls:
        note(f"the model calls {', '.join(call.name for call in reply.tool_calls)}; --json prints the arguments")
    if warning := length_warning(reply):
        note(warning)


def _write_answer(module: ChatModule, request: PromptRequest, screen: Screen, *, streamed: bool) -> Reply:
    """Call the model and write its response; on a terminal, end the output with a newline."""
    try:
        if not streamed:
            reply = module(*request.call[:3])
            screen.write(reply)
            return reply
        with module.stream(*request.call[:3]) as stream:
            for piece in stream:
                screen.write(piece)
            return stream.reply
    finally:
        if screen.terminal:
            screen.end_line()


def _reply_json(reply: Reply) -> dict[str, object]:
    """Return a reply as a JSON-serializable dict."""
    return {
        "text": str(reply),
        "thinking": reply.thinking,
        "tool_calls": [{"id": call.id, "name": call.name, "input": call.input} for call in reply.tool_calls],
        "usage": None if reply.usage is None else dict(reply.usage),
        "finish": reply.finish,
        "model": reply.model,
    }
