"""Runs the Python functions that a model calls."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeGuard, cast, get_args

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import is_sequence
from lazyprompt.errors import HistoryError, ToolsError
from lazyprompt.messages.msg import Block, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.tools import ToolSet, ToolsLike, function_schema, list_tools

_BLOCKS = get_args(Block)
_LOG = logging.getLogger("lazyprompt")


@dataclass(frozen=True)
class ToolRunner:
    """The tools of a conversation, and the Python functions that implement them.

    Args:
        tools: The tools that are described to the model, or None.
        functions: The functions, keyed by tool name.
    """

    tools: ToolSet | None
    functions: Mapping[str, Callable[..., object]]

    @classmethod
    def of(cls, tools: ToolsLike) -> ToolRunner:
        """Create a runner from tool dicts and Python functions.

        Raises:
            ToolsError: The schema of a tool can't be generated.
        """
        if tools is None or isinstance(tools, ToolSet):
            return cls(tools, {})
        given = list_tools(tools)
        offered = ToolSet.of(cast("list[Callable[..., object]]", given))
        functions = [each for each in given if callable(each) and not isinstance(each, Mapping)]
        return cls(offered, {_name_of(each): each for each in functions})

    def can_run(self, calls: Sequence[ToolUseBlock]) -> bool:
        """Return True if every call is to a Python function or an unknown tool."""
        offered = self.tools.names if self.tools else ()
        return not any(call.name in offered and call.name not in self.functions for call in calls)

    def run(self, calls: Sequence[ToolUseBlock]) -> list[ToolResultBlock]:
        """Run tool calls. Several calls run in parallel threads.

        Returns:
            The results, in the order of the calls. The result of a failed call is its error message.

        Raises:
            ToolsError: A function is async.
            HistoryError: A function's output is neither text, a list of blocks nor a JSON value.
        """
        if len(calls) < 2:  # noqa: PLR2004 - one call needs no thread
            return [self._run(call) for call in calls]
        with ThreadPoolExecutor(len(calls)) as threads:
            waiting = [threads.submit(copy_context().run, self._run, call) for call in calls]
            return [each.result() for each in waiting]

    async def arun(self, calls: Sequence[ToolUseBlock]) -> list[ToolResultBlock]:
        """Async version of :meth:`run`. Async functions are awaited, and other functions run in threads."""
        return [*await asyncio.gather(*map(self._arun, calls))]

    def _run(self, call: ToolUseBlock) -> ToolResultBlock:
        function = self.functions.get(call.name)
        if function is None:
            return self._unknown(call)
        try:
            output = function(**call.input)
        except Exception as error:  # noqa: BLE001 - every error is sent to the model
            return _error_result(call, error)
        if inspect.iscoroutine(output):
            output.close()
            raise ToolsError(f"the tool {call.name!r} is async; use arun or asteps")
        return _result(call, output)

    async def _arun(self, call: ToolUseBlock) -> ToolResultBlock:
        function = self.functions.get(call.name)
        if function is None:
            return self._unknown(call)
        try:
            if inspect.iscoroutinefunction(function):
                output: object = await function(**call.input)
            else:
                output = await asyncio.to_thread(function, **call.input)
        except Exception as error:  # noqa: BLE001 - every error is sent to the model
            return _error_result(call, error)
        return _result(call, output)

    def _unknown(self, call: ToolUseBlock) -> ToolResultBlock:
        """Log a call to a tool that doesn't exist, and return the error for the model."""
        text = f"unknown tool {call.name!r}; available tools: {', '.join(self.functions) or 'none'}"
        _LOG.warning("the model called an %s; this error is sent to the model", text)
        return ToolResultBlock(call.id, call.name, text, is_error=True)


def output_of(output: object, name: str) -> str | list[Block]:
    """Convert a tool's output to the content of a tool result.

    Raises:
        HistoryError: The output is neither text, a list of blocks nor a JSON value.
    """
    if isinstance(output, str):
        return output
    if is_sequence(output) and output:
        blocks = [each for each in output if _is_block(each)]
        if len(blocks) == len(output):
            return blocks
    try:
        return json.dumps(output, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"the output of tool {name!r} must be text, blocks or a JSON value: {error}") from error


def _is_block(value: object) -> TypeGuard[Block]:
    return isinstance(value, _BLOCKS)


def _name_of(function: Callable[..., object]) -> str:
    described = function_schema(function)["function"]
    return str(fields_of(described)["name"])


def _result(call: ToolUseBlock, output: object) -> ToolResultBlock:
    return ToolResultBlock(call.id, call.name, output_of(output, call.name))


def _error_result(call: ToolUseBlock, error: Exception) -> ToolResultBlock:
    _LOG.warning("the tool %r failed; its error is sent to the model", call.name, exc_info=error)
    text = str(error) if type(error) is LookupError else f"{type(error).__name__}: {error}"
    return ToolResultBlock(call.id, call.name, text, is_error=True)
