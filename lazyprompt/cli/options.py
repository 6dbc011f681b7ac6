"""Command-line options that several commands share, the parsers of their values, and token counters."""

from __future__ import annotations

from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

import click
from click.core import ParameterSource

from lazyprompt._base.json import well_formed
from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.streams import WrongUseError, blaming
from lazyprompt.errors import LazyPromptError
from lazyprompt.inspect.counting import counter_named
from lazyprompt.prompters.target_choice import FORMATS
from lazyprompt.safety.policy import SAFETIES, Safety

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.messages.encoding import TokenizerLike
    from lazyprompt.tokens.counter import TokenCounter

_Command = TypeVar("_Command", bound="Callable[..., Any]")
_OptionText: TypeAlias = "str | tuple[str, ...] | None"


class Options(TypedDict):
    """The options for prompts and models; each command receives only the options that it declares."""

    prompt_file: str | None
    params: dict[str, str]
    roots: tuple[str, ...]
    env: tuple[str, ...] | None
    kind: Literal["chat", "alpaca"] | None
    instruction: str | None
    user_instruction: str | None
    system: str | None
    extra_keys: tuple[str, ...]
    values: dict[str, str]
    undefined: Literal["error", "empty"] | None
    text: str | None
    history: str | None
    tools: str | None
    label: str | None
    form: str
    safety: Safety | None
    source: str | None
    model: str | None
    base_url: str | None
    url: str | None
    engine: str | None
    max_tokens: int | None
    temperature: float | None


def with_options(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Combine options into one decorator; the help text lists them in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def find_other_option(*allowed: str) -> str | None:
    """Return the first option on the command line that is not allowed, or None if all are allowed."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in allowed:
            return max(parameter.opts, key=len)
    return None


def _check_utf8(_: click.Context, parameter: click.Parameter, value: _OptionText) -> _OptionText:
    """Raise an error if an option's value contains bytes that are not UTF-8."""
    for text in (value,) if isinstance(value, str) else value or ():
        try:
            well_formed(text, "the text", LazyPromptError)
        except LazyPromptError as error:
            raise WrongUseError(max(parameter.opts, key=len), "the text is not valid UTF-8") from error
    return value


def _parse_settings(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse the ``NAME=VALUE`` values of a repeatable option."""
    option = max(parameter.opts, key=len)
    _check_utf8(context, parameter, given)
    values: dict[str, str] = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise WrongUseError(option, f"expected NAME=VALUE, not {short(setting)}")
        if name in values:
            raise WrongUseError(option, f"{name!r} is set twice; set it once")
        values[name] = value
    return values


text_option = partial(click.option, callback=_check_utf8)
settings_option = partial(click.option, multiple=True, callback=_parse_settings)
count_option = partial(click.option, type=click.IntRange(min=1), metavar="N")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
color_option = click.option("--color", type=OneOf(["auto", "always", "never"]), default="auto", show_default=True)
output_option = click.option("-o", "--output", metavar="FILE", help="Write to a file, atomically.")
root_option = click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIRECTORY",
    help="An additional directory for ${file:...} and included files.",
)
_params_option = settings_option(
    "--param", "params", metavar="NAME=VALUE", help="The value of ${params:NAME} in a file."
)
env_option = click.option(
    "--env",
    multiple=True,
    metavar="NAME",
    help="An environment variable that the file may use outside of connection settings.",
)
reference_options = with_options(_params_option, root_option)

undefined_option = click.option(
    "--undefined",
    type=OneOf(["error", "empty"]),
    help="The result for a name without a value in a prompt file.  [default: error]",
)
system_option = text_option("--system", help="The system text, instead of the model's own.")
values_option = settings_option("--set", "values", metavar="NAME=VALUE", help="The value for a slot or an input.")
tools_option = click.option("--tools", metavar="FILE.json", help="Tools in OpenAI's format.")
words_options = with_options(
    click.argument("prompt_file", required=False, metavar="[PROMPT_FILE]"),
    click.option("--type", "kind", type=OneOf(["chat", "alpaca"]), help="The kind of prompt.  [default: chat]"),
    text_option("--instruction", help="The instruction, with slots: 'Answer from {context}.'"),
    text_option("--user-instruction", metavar="TEXT", help="An instruction in the user's turn."),
    system_option,
    text_option("--extra-key", "extra_keys", multiple=True, metavar="NAME", help="An additional slot."),
    values_option,
    text_option("--input", "text", help="The user's text, or the value of the only unfilled slot in the user's part."),
    click.option("--history", metavar="FILE.json", help="Pairs or OpenAI messages."),
    tools_option,
    undefined_option,
    reference_options,
)
prompt_options = with_options(
    words_options,
    text_option("--label", help="The expected response, for training data."),
    text_option("--model", metavar="NAME", help="The model to render for (see lazyprompt list families)."),
    click.option(
        "--format",
        "form",
        type=OneOf(FORMATS),
        metavar="FORM",
        default="flat",
        show_default=True,
        help="flat, or a provider (see lazyprompt list providers).",
    ),
    click.option(
        "--safety", type=OneOf(SAFETIES), help="The treatment of control sequences in values.  [default: neutralize]"
    ),
)

counter_option = text_option(
    "--counter",
    default="approximate",
    show_default=True,
    metavar="NAME[:ARGUMENT]",
    help="approximate, chars, tiktoken:MODEL or :ENCODING, huggingface:PATH; anthropic:MODEL and gemini:MODEL call "
    "the provider.",
)
budget_option = count_option("--max-tokens", help="Show the effect of a budget of N tokens.")

_source_option = text_option(
    "--source", metavar="NAME", help="The model's provider (see the end of lazyprompt run --help)."
)
base_url_option = text_option("--base-url", metavar="URL", help="Another base URL for the source.")
url_option = text_option("--url", metavar="URL", help="The URL of a running engine.")
address_options = with_options(_source_option, base_url_option, url_option)
model_options = with_options(
    _source_option,
    text_option(
        "--model",
        metavar="NAME",
        help="The model at the source. Without --source, a local model: a GGUF file, a directory, owner/name or "
        "name:tag; its engine runs as long as the command.",
    ),
    base_url_option,
    text_option("--engine", metavar="NAME", help="The engine for a local model.  [default: one that supports it]"),
    url_option,
    count_option("--max-tokens", help="The maximum number of tokens in a response."),
    click.option("--temperature", type=click.FloatRange(min=0), metavar="T", help="The sampling temperature."),
)


def token_counter(spec: str, bpe_file: str | None = None) -> TokenCounter:
    """Create the token counter that an option selects as ``NAME[:ARGUMENT]``.

    Args:
        spec: The option's value.
        bpe_file: A vocabulary file for tiktoken.

    Raises:
        WrongUseError: The counter is unknown or cannot be created.
    """
    if bpe_file is not None and spec.partition(":")[0] != "tiktoken":
        raise WrongUseError(
            "--bpe-file", "only the tiktoken counter reads a vocabulary file; add --counter tiktoken:MODEL_OR_ENCODING"
        )
    with blaming("--counter" if bpe_file is None else "--bpe-file"):
        return counter_named(spec, bpe_file)


def load_counter_tokenizer(spec: str) -> TokenizerLike:
    """Load the tokenizer for a counter that an option selects as ``NAME:ARGUMENT``.

    Args:
        spec: The option's value.

    Raises:
        WrongUseError: The counter has no tokenizer, or its tokenizer cannot be loaded.
    """
    name, _, argument = spec.partition(":")
    if name not in ("tiktoken", "huggingface") or not argument:
        raise WrongUseError(
            "--tokens", "a tokenizer is required; use --counter huggingface:PATH or tiktoken:MODEL_OR_ENCODING"
        )
    from lazyprompt.chat_templates.token_counter import load_tokenizer
    from lazyprompt.tokens.vocabulary import encoding_for

    with blaming("--counter"):
        return encoding_for(argument) if name == "tiktoken" else load_tokenizer(argument)[0]
