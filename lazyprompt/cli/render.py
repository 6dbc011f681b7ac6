"""The ``lazyprompt render`` command, which renders a prompt as text or as a provider's payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from lazyprompt.cli.options import Options, color_option, env_option, json_option, output_option, prompt_options
from lazyprompt.cli.prompts import read_prompt
from lazyprompt.cli.streams import (
    WrongUseError,
    goes_to_terminal,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from lazyprompt.inspect.terminal import Color


@click.command("render")
@prompt_options
@env_option
@json_option
@color_option
@output_option
def command(*, output: str | None, as_json: bool, color: Color, **options: Unpack[Options]) -> None:
    r"""Render a prompt from a prompt file or from options.

    PROMPT_FILE is a .prompty or YAML prompt file. A .prompty file declares the type of each input. Pass text and URLs
    unchanged, and values of all other types as JSON. For an image, an audio clip or another file, use @FILE.

    In --set and --input, @FILE is the text of a file, @- is standard input, and @@x is @x. Without these options, piped
    text is the input: a JSON object contains slot values, and any other text is treated as --input.

    With --json, flat text is written with its segments.

    \b
    Examples:
      lazyprompt render order.prompty --set urgent=true --input 'Where is it?'
      lazyprompt render --instruction 'Answer in {language}.' \
          --set language=French --input 'Who are you?' --model qwen2.5
      lazyprompt render qa.yaml --set document=@report.txt --set question='Who?'
      cat report.txt | lazyprompt render summary.yaml --format openai
    """
    if color == "always" and (as_json or options["form"] != "flat"):
        raise WrongUseError("--color", "only flat text has colour; remove --json and --format")
    request = read_prompt(options, "render")
    with request.blaming():
        if request.form != "flat":
            payload = request.prompter.generate_prompt(*request.call, format=request.form, model=request.model)
            return write_json(payload, output, indent=None if as_json else 2)
        rendered = request.prompter.render(*request.call)
    if as_json:
        segments = [segment._asdict() for segment in rendered.segments]
        return write_json({"text": rendered.text, "segments": segments}, output)
    terminal = goes_to_terminal(output)
    if not terminal and color != "always":
        return write_text(rendered.text, output)
    from lazyprompt.inspect.terminal import rendered_text

    return write_text(rendered_text(rendered, color, terminal=terminal), output)
