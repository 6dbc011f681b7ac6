"""``lazyprompt run --chat``: a conversation with a model, on a terminal or line by line through pipes."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.cli.models import length_warning, opened_model
from lazyprompt.cli.prompts import PromptRequest, open_prompter
from lazyprompt.cli.streams import Screen, Stdin, WrongUseError, blaming, json_list, note, table
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
    """The parts of every turn but the user's text.

    Attributes:
        request: The prompter.
        values: The values of slots, or of inputs of a file.
        slot: The slot or input for the user's text; ``input`` for the user's turn as such.
        history: The messages before the first turn.
        tools: The tools that the model may call.
    """

    request: PromptRequest
    values: Mapping[str, object]
    slot: str
    history: HistoryLike
    tools: ToolsLike

    def input(self, text: str) -> dict[str, object]:
        """Return the input of a turn."""
        return self.request.with_value(self.values, self.slot, self.request.value(self.slot, text))

    def input_after_tools(self, text: str) -> dict[str, object] | None:
        """Return the input of a turn that goes on after tool results: only the template's values."""
        return (self.input(text) if self.slot in self.request.names else dict(self.values)) or None


def talk(options: Options) -> None:
    """Hold a conversation with a model.

    Args:
        options: The options of ``lazyprompt run``.

    Raises:
        WrongUseError: An option is wrong, or has no effect on a conversation.
        NoAnswerError: The model gives no answer to a line that was piped in.
    """
    turns = _open(options)
    screen = Screen()
    with opened_model(options, turns.request.file) as module:
        chat = module.prompt(turns.request.prompter).chat(turns.history, turns.tools)
        if screen.interactive:
            screen.line(f"{_name(module)}; /help lists the commands, Ctrl-D ends the chat", _NOTE)
        _Talk(chat, turns, screen).go_on()


def _open(options: Options) -> _Turns:
    """Open the prompter, and read the values of each turn."""
    request = open_prompter(options)
    if isinstance(request.prompter, AlpacaPrompter):
        where = "--type" if options["prompt_file"] is None else "PROMPT_FILE"
        raise WrongUseError(where, "the Alpaca form has no turns; give a prompt of the type chat")
    if all(options[name] is None for name in ("prompt_file", "instruction", "user_instruction", "system")):
        # Without any text of the developer's, the model gets no system text.
        request = request.with_system("")
    history = cast("HistoryLike", json_list("--history", options["history"]) or [])
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    values = request.read_values(options["values"], Stdin())
    with request.blaming():
        turns = _Turns(request, values, request.prompter.name_of_text(values), history, tools)
        request.check(turns.input(""), history=True)
        request.prompter.fill(turns.input(""), history, tools)
    return turns


def _name(module: OnlineChatModule | TrainableModule) -> str:
    """Return the name of a model for people."""
    from lazyprompt.modules.online import OnlineChatModule

    if isinstance(module, OnlineChatModule):
        return f"{module.model} at {module.source.name}"
    return f"{module.base_model} on {module.engine.name}"


class _Talk:
    """A conversation on a screen."""

    def __init__(self, chat: Chat, turns: _Turns, screen: Screen) -> None:
        self._chat, self._turns, self._screen = chat, turns, screen
        self._text = ""
        self._over = False

    def go_on(self) -> None:
        """Read and answer until the end."""
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
        """Return the text before the cursor; if a tool result is missing, it names the tool."""
        calls = _open_calls(self._chat.history)
        return f"result of {' '.join(calls[0].name.split())}> " if calls else "> "

    def _take(self, line: str) -> None:
        """Take a line of the user: a command, the result of a call, or a turn."""
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
        """Ask the model, and write its answer as it comes."""
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
        if warning := length_warning(stream.reply):
            self._note(warning) if self._screen.interactive else note(warning)

    def _obey(self, name: str, argument: str) -> None:
        if name not in _COMMANDS:
            known = did_you_mean(name, _COMMANDS)
            raise WrongUseError(name, f"there is no such command{known}; /help lists them, and // begins text with /")
        needed, _, do = _COMMANDS[name]
        if needed and not argument:
            raise WrongUseError(name, f"give it {needed}, as in {name} {needed}")
        if argument and not needed:
            raise WrongUseError(name, "it stands alone")
        do(self, argument)

    def _note(self, text: str) -> None:
        """Confirm a command to a person; pipes get only the answers."""
        if self._screen.interactive:
            self._screen.line(f"({text})", _NOTE)

    def help(self, _: str) -> None:
        """List the commands."""
        for line in table([(f"{name} {needed}".rstrip(), does) for name, (needed, does, _) in _COMMANDS.items()]):
            self._screen.line(line)
        self._screen.line(
            "A line that ends with \\ goes on in the next; // begins text with /. Ctrl-C stops an answer."
        )

    def tokens(self, _: str) -> None:
        """Write the tokens of the conversation."""
        history = self._chat.history
        answers = [message.usage for message in history if message.role == "assistant"]
        known = [usage for usage in answers if usage]
        if answers:
            last = answers[-1]
            self._screen.line(f"last answer: {_sum([last]) if last else 'the model did not tell its tokens'}")
        if known:
            self._screen.line(f"{_count(len(known), 'answer')}: {_sum(known)}")
        counted = ApproximateTokenCounter().count(history) if history else 0
        self._screen.line(f"history: about {counted:,} tokens in {_count(len(history), 'message')}")

    def save(self, path: str) -> None:
        """Write the conversation to a file."""
        with blaming("/save", path):
            self._chat.save(Path(path).expanduser())
        self._note(f"{_count(len(self._chat.history), 'message')} saved to {path}")

    def load(self, path: str) -> None:
        """Go on with the conversation of a file."""
        with blaming("/load", path):
            self._chat.load(Path(path).expanduser())
        self._note(f"{_count(len(self._chat.history), 'message')} loaded from {path}")

    def system(self, text: str) -> None:
        """Give the model another system text."""
        module = self._chat.module
        module.prompt(module.prompter.with_system(text))
        self._chat = module.chat(self._chat.history, self._turns.tools)
        self._note("the model has another system text from now on")

    def tools(self, _: str) -> None:
        """List what the model may call."""
        names = self._chat.module.prompter.fill(self._turns.input(""), None, self._turns.tools).tools.names
        self._screen.line("\n".join(names) if names else "there are no tools")

    def reset(self, _: str) -> None:
        """Begin another conversation."""
        self._chat = self._chat.module.chat(tools=self._turns.tools)
        self._note("the conversation begins anew")

    def quit(self, _: str) -> None:
        """End it."""
        self._over = True


# For each command, the argument that it needs (empty for none), the line of /help, and what runs it.
_COMMANDS: Mapping[str, tuple[str, str, Callable[[_Talk, str], None]]] = {
    "/tokens": ("", "what the last answer and all of them took, and what the history is", _Talk.tokens),
    "/save": ("FILE", "write the conversation to a file", _Talk.save),
    "/load": ("FILE", "go on with the conversation of a file", _Talk.load),
    "/system": ("TEXT", "give the model another system text", _Talk.system),
    "/tools": ("", "list what the model may call; you are asked for what its calls give back", _Talk.tools),
    "/reset": ("", "forget the conversation", _Talk.reset),
    "/help": ("", "list the commands", _Talk.help),
    "/quit": ("", "end the chat, as Ctrl-D does", _Talk.quit),
}


def _open_calls(history: Sequence[Msg]) -> list[ToolUseBlock]:
    """Find the tool calls at the end of a conversation that have no result yet."""
    results = list(takewhile(lambda message: message.role == "tool", reversed(history)))
    asking = history[: len(history) - len(results)][-1:]
    calls = [block for message in asking for block in message.blocks if isinstance(block, ToolUseBlock)]
    return calls[len(results) :]  # they are answered in order


def _sum(usages: Sequence[Mapping[str, int]]) -> str:
    """Describe the tokens of answers."""
    sent, answered = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    return f"{_count(sent, 'token')} sent, {answered:,} answered"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
