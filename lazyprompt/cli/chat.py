"""The command ``lazyprompt chat``: a conversation with a model, on a terminal or line by line through pipes."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.cli.models import ModelOptions, opened_model, remark
from lazyprompt.cli.prompts import NO_WORDS, asked_prompter, read_values
from lazyprompt.cli.streams import Stdin, WrongUseError, json_list
from lazyprompt.cli.terminal import Screen, warn
from lazyprompt.errors import LazyPromptError, did_you_mean
from lazyprompt.messages import ToolUseBlock
from lazyprompt.prompters import AlpacaPrompter
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.cli.inputs import Inputs
    from lazyprompt.cli.prompts import Asked
    from lazyprompt.messages import Msg
    from lazyprompt.modules.chat import Chat
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule
    from lazyprompt.prompt_maker import ToolsLike

_NOTE, _FAULT, _CALL = "dim", "red", "cyan"
_STYLES = {"text": "", "thinking": "dim italic"}


class ChatOptions(ModelOptions):
    """What the options of the command give."""

    prompt_file: str | None
    params: tuple[str, ...]
    roots: tuple[str, ...]
    system: str | None
    values: tuple[str, ...]
    tools: str | None


class _Words(NamedTuple):
    """What is said in each turn, but for what the user says.

    Attributes:
        values: The values of slots, or of inputs of a file.
        slot: The one that what the user says goes to; ``input`` for the user's turn as such.
        inputs: How the prompt takes them.
        tools: What the model may call.
    """

    values: Mapping[str, object]
    slot: str
    inputs: Inputs
    tools: ToolsLike

    def turn(self, text: str) -> dict[str, object]:
        """The input of a turn."""
        return self.inputs.joined(self.values, self.slot, self.inputs.value(self.slot, text))

    def again(self, text: str) -> dict[str, object] | None:
        """The input where the model goes on in a turn: what the template needs; what the user said is said."""
        return (self.turn(text) if self.slot in self.inputs.names else dict(self.values)) or None


def talked(options: ChatOptions) -> None:
    """Hold a conversation, until the input ends or the user ends it.

    Args:
        options: The options.

    Raises:
        WrongUseError: An option is wrong; or, where no person sits at a terminal, something in the input.
        NoAnswerError: The engine does not start; or, where no person sits there, the model does not answer.
    """
    asked, words = _asked(options)
    screen = Screen()
    with opened_model(options, asked.file) as module:
        talk = _Talk(module.prompt(asked.prompter).chat(tools=words.tools), words, screen)
        if screen.interactive:
            screen.line(f"{_name(module)}; /help lists the commands, Ctrl-D ends the chat", _NOTE)
        talk.go_on()


def _asked(options: ChatOptions) -> tuple[Asked, _Words]:
    """The prompter, and what is said with it."""
    asked = asked_prompter(
        {
            **NO_WORDS,
            "prompt_file": options["prompt_file"],
            "params": options["params"],
            "roots": options["roots"],
            # Without a word about it, the model is told nothing.
            "system": "" if options["prompt_file"] is None and options["system"] is None else options["system"],
            "values": options["values"],
            "tools": options["tools"],
        }
    )
    if isinstance(asked.prompter, AlpacaPrompter):
        raise WrongUseError("--prompt", "the Alpaca form has no turns; give a prompt file of the type chat")
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    values = read_values(options["values"], asked.inputs, Stdin())
    with asked.blaming():
        words = _Words(values, asked.inputs.open(values), asked.inputs, tools)
        asked.inputs.check(words.turn(""), history=True)
        asked.prompter.fill(words.turn(""), (), tools)
    return asked, words


def _name(module: OnlineChatModule | TrainableModule) -> str:
    """How a model is called."""
    from lazyprompt.modules.online import OnlineChatModule  # noqa: PLC0415 - slow, and only a terminal needs it

    if isinstance(module, OnlineChatModule):
        return f"{module.model} at {module.source.name}"
    return f"{module.base_model} on {module.engine.name}"


class _Talk:
    """A conversation: what the user writes, and what becomes of it."""

    def __init__(self, chat: Chat, words: _Words, screen: Screen) -> None:
        self._chat, self._words, self._screen = chat, words, screen
        self._said = ""
        self._over = False

    def go_on(self) -> None:
        """Read and answer until the end."""
        while not self._over:
            try:
                said = self._screen.read(self._prompt())
                if said is None:
                    return
                self._take(said)
            except KeyboardInterrupt:
                self._screen.end_line()
                if not self._screen.interactive:
                    raise
                self._note("/quit or Ctrl-D ends the chat")
            except (LazyPromptError, WrongUseError) as error:
                self._screen.end_line()
                if not self._screen.interactive:
                    raise
                self._screen.line(f"{_where(error)}{error}", _FAULT)

    def _prompt(self) -> str:
        """What the user is asked with: for the result of a call, the name of the tool."""
        calls = _open_calls(self._chat.history)
        return f"result of {' '.join(calls[0].name.split())}> " if calls else "> "

    def _take(self, said: str) -> None:
        """Do what the user wants: a command, the result of a call, or a turn."""
        text = said.removeprefix("/") if said.startswith("//") else said
        if text is said and said.startswith("/"):
            name, *argument = said.split(maxsplit=1)
            self._obey(name, "".join(argument).strip())
            return
        calls = _open_calls(self._chat.history)
        if calls:
            self._chat.add_result(calls[0], text)
            if len(calls) == 1:
                self._answer(self._words.again(self._said))
        elif text.strip():
            self._said = text
            self._answer(self._words.turn(text))

    def _answer(self, given: Mapping[str, object] | None) -> None:
        """Show what the model says as it says it."""
        kind = "text"
        with self._chat.stream(given) as stream:
            try:
                for delta in stream.deltas():
                    if delta.kind == "tool_call" or (delta.kind == "thinking" and not self._screen.terminal):
                        continue
                    if delta.kind != kind:
                        self._screen.end_line()
                    kind = delta.kind
                    self._screen.write(delta.text, _STYLES[kind])
            except KeyboardInterrupt:
                if not self._screen.interactive:
                    raise
                self._note("stopped; the conversation is as it was before")
                return
        self._screen.end_line()
        for call in stream.reply.tool_calls:
            self._screen.line(f"{call.name}({json.dumps(call.input, ensure_ascii=False)})", _CALL)
        if remark(stream.reply):
            self._note(remark(stream.reply)) if self._screen.interactive else warn(remark(stream.reply))

    def _obey(self, name: str, argument: str) -> None:
        command = _COMMANDS.get(name)
        if command is None:
            known = did_you_mean(name, _COMMANDS)
            raise WrongUseError(name, f"there is no such command{known}; /help lists them, and // begins text with /")
        if command.argument and not argument:
            raise WrongUseError(name, f"give it {command.argument}, as in {name} {command.argument}")
        if argument and not command.argument:
            raise WrongUseError(name, "it stands alone")
        command.do(self, argument)

    def _note(self, text: str) -> None:
        """Tell the person that a command has done something; pipes get what was asked for, and no more."""
        if self._screen.interactive:
            self._screen.line(f"({text})", _NOTE)

    def help(self, _: str) -> None:
        """List the commands."""
        rows = [(f"{name} {command.argument}".rstrip(), command.says) for name, command in _COMMANDS.items()]
        width = max(len(usage) for usage, _ in rows)
        for usage, says in rows:
            self._screen.line(f"{usage:{width}}  {says}")
        self._screen.line(
            "A line that ends with \\ goes on in the next; // begins text with /. Ctrl-C stops an answer."
        )

    def tokens(self, _: str) -> None:
        """Tell what the conversation costs."""
        history = self._chat.history
        answers = [message.usage for message in history if message.role == "assistant"]
        told = [usage for usage in answers if usage]
        if answers:
            last = answers[-1]
            self._screen.line(f"last answer: {_sum([last]) if last else 'the model did not tell its tokens'}")
        if told:
            self._screen.line(f"{_of(len(told), 'answer')}: {_sum(told)}")
        counted = ApproximateTokenCounter().count(history) if history else 0
        self._screen.line(f"history: about {counted:,} tokens in {_of(len(history), 'message')}")

    def save(self, path: str) -> None:
        """Write the conversation to a file."""
        try:
            self._chat.save(Path(path).expanduser())
        except OSError as error:
            raise WrongUseError("/save", f"{path}: {error.strerror}") from error
        self._note(f"{_of(len(self._chat.history), 'message')} saved to {path}")

    def load(self, path: str) -> None:
        """Go on with the conversation of a file."""
        try:
            self._chat.load(Path(path).expanduser())
        except OSError as error:
            raise WrongUseError("/load", f"{path}: {error.strerror}") from error
        except LazyPromptError as error:
            raise WrongUseError("/load", str(error)) from error
        self._note(f"{_of(len(self._chat.history), 'message')} loaded from {path}")

    def system(self, text: str) -> None:
        """Give the model another system text."""
        module = self._chat.module
        module.prompt(module.prompter.with_system(text))
        self._chat = module.chat(self._chat.history, self._words.tools)
        self._note("the model has another system text from now on")

    def tools(self, _: str) -> None:
        """List what the model may call."""
        names = self._chat.module.prompter.fill(self._words.turn(""), None, self._words.tools).tools.names
        self._screen.line("\n".join(names) if names else "there are no tools")

    def reset(self, _: str) -> None:
        """Begin another conversation."""
        self._chat = self._chat.module.chat(tools=self._words.tools)
        self._note("the conversation begins anew")

    def quit(self, _: str) -> None:
        """End it."""
        self._over = True


class _Command(NamedTuple):
    """A command of the user's.

    Attributes:
        argument: What it needs; empty where it stands alone.
        says: What it does.
        do: Does it, given what stands behind its name.
    """

    argument: str
    says: str
    do: Callable[[_Talk, str], None]


_COMMANDS = {
    "/tokens": _Command("", "what the last answer and all of them took, and what the history is", _Talk.tokens),
    "/save": _Command("FILE", "write the conversation to a file", _Talk.save),
    "/load": _Command("FILE", "go on with the conversation of a file", _Talk.load),
    "/system": _Command("TEXT", "give the model another system text", _Talk.system),
    "/tools": _Command("", "list what the model may call; you are asked for what its calls give back", _Talk.tools),
    "/reset": _Command("", "forget the conversation", _Talk.reset),
    "/help": _Command("", "list the commands", _Talk.help),
    "/quit": _Command("", "end the chat, as Ctrl-D does", _Talk.quit),
}


def _open_calls(history: Sequence[Msg]) -> list[ToolUseBlock]:
    """The calls at the end of a conversation that have no result yet."""
    results = list(takewhile(lambda message: message.role == "tool", reversed(history)))
    asking = history[: len(history) - len(results)][-1:]
    calls = [block for message in asking for block in message.blocks if isinstance(block, ToolUseBlock)]
    return calls[len(results) :]  # they are answered in order


def _where(error: LazyPromptError | WrongUseError) -> str:
    return f"{error.where}: " if isinstance(error, WrongUseError) else ""


def _sum(usages: Sequence[Mapping[str, int]]) -> str:
    """The tokens of answers."""
    sent, said = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    return f"{_of(sent, 'token')} sent, {said:,} answered"


def _of(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
