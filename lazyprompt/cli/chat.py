"""The ``lazyprompt run --chat`` command: a chat with a model, on a terminal or line by line through pipes."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.cli.models import length_warning, open_model
from lazyprompt.cli.prompts import PromptRequest, open_prompter, read_history, read_tools
from lazyprompt.cli.streams import Screen, Stdin, WrongUseError, blaming, note, table
from lazyprompt.errors import LazyPromptError, did_you_mean
from lazyprompt.messages.msg import Msg, ToolUseBlock
from lazyprompt.prompters.kinds import AlpacaPrompter
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.cli.options import Options
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules.chat import Chat
    from lazyprompt.modules.online import OnlineChatModule
    from lazyprompt.modules.trainable import TrainableModule


_NOTE, _FAULT, _CALL = "dim", "red", "cyan"
_STYLES = {"text": "", "thinking": "dim italic"}


class _Turns(NamedTuple):
    """The settings that all turns in a chat share.

    Attributes:
        request: The prompter and its prompt file.
        values: The values for slots or inputs.
        slot: The slot or input that receives the user's text; ``input`` if the text is the whole user turn.
        history: The messages before the first turn.
        tools: The tools for the model.
    """

    request: PromptRequest
    values: Mapping[str, object]
    slot: str
    history: HistoryLike
    tools: ToolsLike

    def input(self, text: str) -> dict[str, object]:
        """Return the prompt's input for a new user turn: the given text and the other values."""
        return self.request.with_value(self.values, self.slot, self.request.value(self.slot, text))

    def input_after_tools(self, text: str) -> dict[str, object] | None:
        """Return the input for a model call that follows tool results and adds no user message."""
        return (self.input(text) if self.slot in self.request.names else dict(self.values)) or None


def talk(options: Options) -> None:
    """Run a chat with a model.

    Args:
        options: The options of ``lazyprompt run``.

    Raises:
        WrongUseError: An option is invalid, or does not apply to chats.
        NoAnswerError: The model failed to respond to a piped line.
    """
    turns = _open(options)
    screen = Screen()
    with open_model(options, turns.request.file) as module:
        chat = module.prompt(turns.request.prompter).chat(turns.history, turns.tools)
        if screen.interactive:
            screen.line(f"{_name(module)}; /help lists the commands, Ctrl-D ends the chat", _NOTE)
        _Talk(chat, turns, screen).go_on()


def _open(options: Options) -> _Turns:
    """Open the prompter, and read the values that all turns share."""
    request = open_prompter(options)
    if isinstance(request.prompter, AlpacaPrompter):
        where = "--type" if options["prompt_file"] is None else "PROMPT_FILE"
        raise WrongUseError(where, "the Alpaca format doesn't support chats; set the type to chat")
    if all(options[name] is None for name in ("prompt_file", "instruction", "user_instruction", "system")):
        # If no prompt is given, omit the default system text.
        request = request.with_system("")
    history, tools = read_history(options) or [], read_tools(options)
    values = request.read_values(options["values"], Stdin())
    with request.blaming():
        turns = _Turns(request, values, request.prompter.name_of_text(values), history, tools)
        request.check(turns.input(""), history=True)
        request.prompter.fill(turns.input(""), history, tools)
    return turns


def _name(module: OnlineChatModule | TrainableModule) -> str:
    """Return a description of the model for the user."""
    from lazyprompt.modules.online import OnlineChatModule

    if isinstance(module, OnlineChatModule):
        return f"{module.model} at {module.source.name}"
    return f"{module.base_model} on {module.engine.name}"


class _Talk:
    """A chat with the user."""

    def __init__(self, chat: Chat, turns: _Turns, screen: Screen) -> None:
        self._chat, self._turns, self._screen = chat, turns, screen
        self._text = ""
        self._over = False

    def go_on(self) -> None:
        """Read lines and respond to them until the chat ends."""
        while not self._over:
            try:
                line = self._screen.read(self._prompt())
                if line is None:
                    return
                self._take(line)
            except KeyboardInterrupt:
                self._screen.end_line()
                if not self._screen.interactive:
                    raise
                self._note("/quit or Ctrl-D ends the chat")
            except (LazyPromptError, WrongUseError) as error:
                self._screen.end_line()
                if not self._screen.interactive:
                    raise
                where = f"{error.where}: " if isinstance(error, WrongUseError) else ""
                self._screen.line(f"{where}{error}", _FAULT)

    def _prompt(self) -> str:
        """Return the input prompt; if a tool call has no result yet, the prompt names the tool."""
        calls = _open_calls(self._chat.history)
        return f"result of {' '.join(calls[0].name.split())}> " if calls else "> "

    def _take(self, line: str) -> None:
        """Process a line, which is a command, a tool result or a user turn."""
        text = line.removeprefix("/") if line.startswith("//") else line
        if text is line and line.startswith("/"):
            name, *argument = line.split(maxsplit=1)
            self._obey(name, "".join(argument).strip())
            return
        calls = _open_calls(self._chat.history)
        if calls:
            self._chat.add_result(calls[0], text)
            if len(calls) == 1:
                self._answer(self._turns.input_after_tools(self._text))
        elif text.strip():
            self._text = text
            self._answer(self._turns.input(text))

    def _answer(self, given: Mapping[str, object] | None) -> None:
        """Call the model and stream its response."""
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
                self._note("stopped; the chat is unchanged")
                return
        self._screen.end_line()
        for call in stream.reply.tool_calls:
            self._screen.line(f"{call.name}({json.dumps(call.input, ensure_ascii=False)})", _CALL)
        if warning := length_warning(stream.reply):
            self._note(warning) if self._screen.interactive else note(warning)

    def _obey(self, name: str, argument: str) -> None:
        if name not in _COMMANDS:
            known = did_you_mean(name, _COMMANDS)
            raise WrongUseError(
                name, f"unknown command{known}; use /help to list the commands, or // to start text with /"
            )
        needed, _, do = _COMMANDS[name]
        if needed and not argument:
            raise WrongUseError(name, f"missing {needed}; use {name} {needed}")
        if argument and not needed:
            raise WrongUseError(name, "this command takes no argument")
        do(self, argument)

    def _note(self, text: str) -> None:
        """Show a note on a terminal; piped output contains only the responses."""
        if self._screen.interactive:
            self._screen.line(f"({text})", _NOTE)

    def help(self, _: str) -> None:
        """List the commands."""
        for line in table([(f"{name} {needed}".rstrip(), does) for name, (needed, does, _) in _COMMANDS.items()]):
            self._screen.line(line)
        self._screen.line(
            "A line that ends with \\ continues on the next line; // starts text with /. Ctrl-C stops a response."
        )

    def tokens(self, _: str) -> None:
        """Print the token counts for the chat."""
        history = self._chat.history
        answers = [message.usage for message in history if message.role == "assistant"]
        known = [usage for usage in answers if usage]
        if answers:
            last = answers[-1]
            self._screen.line(f"last response: {_sum([last]) if last else 'the model reported no token counts'}")
        if known:
            self._screen.line(f"{_count(len(known), 'response')}: {_sum(known)}")
        counted = ApproximateTokenCounter().count(history) if history else 0
        self._screen.line(f"history: about {counted:,} tokens in {_count(len(history), 'message')}")

    def save(self, path: str) -> None:
        """Save the chat to a file."""
        with blaming("/save", path):
            self._chat.save(Path(path).expanduser())
        self._note(f"{_count(len(self._chat.history), 'message')} saved to {path}")

    def load(self, path: str) -> None:
        """Continue a chat that was saved to a file."""
        with blaming("/load", path):
            self._chat.load(Path(path).expanduser())
        self._note(f"{_count(len(self._chat.history), 'message')} loaded from {path}")

    def system(self, text: str) -> None:
        """Replace the system text."""
        module = self._chat.module
        module.prompt(module.prompter.with_system(text))
        self._chat = module.chat(self._chat.history, self._turns.tools)
        self._note("system text changed")

    def tools(self, _: str) -> None:
        """List the tools."""
        names = self._chat.module.prompter.fill(self._turns.input(""), None, self._turns.tools).tools.names
        self._screen.line("\n".join(names) if names else "no tools are defined")

    def reset(self, _: str) -> None:
        """Start a new chat."""
        self._chat = self._chat.module.chat(tools=self._turns.tools)
        self._note("new chat")

    def quit(self, _: str) -> None:
        """End the chat."""
        self._over = True


# Maps each chat command to its argument name (empty if none), its description in /help, and its method.
_COMMANDS: Mapping[str, tuple[str, str, Callable[[_Talk, str], None]]] = {
    "/tokens": ("", "show the token counts of the last response, all responses and the history", _Talk.tokens),
    "/save": ("FILE", "save the chat to a file", _Talk.save),
    "/load": ("FILE", "continue a saved chat", _Talk.load),
    "/system": ("TEXT", "replace the system text", _Talk.system),
    "/tools": ("", "list the tools; you enter the results of their calls", _Talk.tools),
    "/reset": ("", "start a new chat", _Talk.reset),
    "/help": ("", "list the commands", _Talk.help),
    "/quit": ("", "end the chat, like Ctrl-D", _Talk.quit),
}


def _open_calls(history: Sequence[Msg]) -> list[ToolUseBlock]:
    """Return the tool calls at the end of a chat that have no result yet."""
    results = list(takewhile(lambda message: message.role == "tool", reversed(history)))
    asking = history[: len(history) - len(results)][-1:]
    calls = [block for message in asking for block in message.blocks if isinstance(block, ToolUseBlock)]
    return calls[len(results) :]  # tool results are added in call order


def _sum(usages: Sequence[Mapping[str, int]]) -> str:
    """Describe the total token counts of several responses."""
    sent, answered = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    return f"{_count(sent, 'token')} sent, {answered:,} received"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
