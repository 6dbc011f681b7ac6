"""``lazyprompt doctor``: the parts of lazyprompt that are installed and set on this machine, and what is wrong.

It uses no network, and reads of a key only whether it is there.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import click

from lazyprompt._base.signs import visible
from lazyprompt._version import __version__
from lazyprompt.cli.extras import find_extras
from lazyprompt.cli.options import json_option
from lazyprompt.cli.output import Output, goes_to_terminal, json_output
from lazyprompt.cli.tables import table
from lazyprompt.modules.sources import SOURCES
from lazyprompt.tokens.vocabulary import cache_folder, sought_vocabularies

if TYPE_CHECKING:
    from lazyprompt.cli.extras import Extra, Need
    from lazyprompt.modules.sources import Source
    from lazyprompt.tokens.vocabulary import Sought

_FAULTS: Final = 1
# The most packages of an extra that the table names; of more, it has the number.
_FEW: Final = 4

_KeyState: TypeAlias = Literal["set", "empty", "not set", "not needed"]


class _Key(NamedTuple):
    """The key of a source.

    Attributes:
        source: The source.
        variables: The environment variables that are set; if none is, those that could be.
        state: ``empty`` if there is nothing but white space.
    """

    source: str
    variables: tuple[str, ...]
    state: _KeyState


@click.command("doctor")
@click.option(
    "--import", "tried", is_flag=True, help="Import each package too, in a process of its own; takes seconds."
)
@json_option
@click.pass_context
def command(context: click.Context, *, tried: bool, as_json: bool) -> None:
    """Show what is installed and set, and what is wrong.

    The versions; of each extra, what it needs and has; which vocabularies of tiktoken are on this machine; and of each
    source, whether its key is in the environment. Keys are never shown, and nothing is sent anywhere.

    The exit status is 1 where something that is installed is broken, else 0. What is merely not installed is no fault,
    and neither is a key that is not set.

    \b
    Examples:
      lazyprompt doctor
      lazyprompt doctor --import
      lazyprompt doctor --json
    """  # noqa: D301 - \b tells click not to wrap
    keys = [_key(source) for source in SOURCES.values()]
    secret = {name for source in SOURCES.values() for name in source.keys}
    extras, faults = find_extras(tried=tried, without=secret)
    folder, vocabularies = _vocabularies(faults)
    faults += [f"{each.name}: {each.why}" for each in vocabularies if each.state == "damaged"]
    if as_json:
        found = {
            **_system(),
            "extras": {
                extra.name: {"state": extra.state, "needs": [need._asdict() for need in extra.needs]}
                for extra in extras
            },
            "vocabularies": {"folder": folder, "encodings": {each.name: each.state for each in vocabularies}},
            "keys": [key._asdict() for key in keys],
            "faults": faults,
        }
        json_output(found).write()
    else:
        looked = [] if tried else ["Packages were looked for, not imported: lazyprompt doctor --import does"]
        has_any = any(each.state == "here" for each in vocabularies)
        download = [] if has_any else ["To have one: lazyprompt tokens --download o200k_base"]
        states = [(each.name, "not here" if each.state == "missing" else each.state) for each in vocabularies]
        blocks = [
            table([*_system().items()]),
            [
                *table([("EXTRA", "STATE", "NEEDS"), *((each.name, each.state, _needs(each)) for each in extras)]),
                *looked,
            ],
            [*table([("VOCABULARY", "STATE"), *states]), f"They are looked for in {folder}", *download],
            table(
                [
                    ("SOURCE", "KEY", "VARIABLE"),
                    *((key.source, key.state, " or ".join(key.variables) or "-") for key in keys),
                ]
            ),
            [f"wrong: {fault}" for fault in faults] or ["Nothing is wrong."],
        ]
        # Names of folders and messages of others may hold control characters.
        Output(visible("\n\n".join("\n".join(lines) for lines in blocks) + "\n")).write()
    if faults:
        context.exit(_FAULTS)


def _system() -> dict[str, str]:
    colors = "NO_COLOR is set" if os.environ.get("NO_COLOR") else f"TERM is {os.environ.get('TERM') or 'not set'}"
    return {
        "lazyprompt": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        "platform": platform.platform(),
        "output": f"{'a terminal' if goes_to_terminal() else 'no terminal'}; {colors}",
    }


def _vocabularies(faults: list[str]) -> tuple[str, list[Sought]]:
    """Describe the folder of vocabularies, and find those in it; a broken tiktoken is a fault."""
    folder, variable = cache_folder()
    by = f" ({variable})" if variable else ""
    where = f"no folder: {variable} is empty, which turns tiktoken's cache off" if folder is None else f"{folder}{by}"
    try:
        return where, sought_vocabularies()
    except ImportError as error:
        faults.append(f"tiktoken: {error}")
        return where, []


def _key(source: Source) -> _Key:
    given = tuple(name for name in source.keys if os.environ.get(name, "").strip())
    if given:
        return _Key(source.name, given, "set")
    empty = tuple(name for name in source.keys if name in os.environ)
    if empty:
        return _Key(source.name, empty, "empty")
    return _Key(source.name, source.keys, "not set" if source.needs_key else "not needed")


def _needs(extra: Extra) -> str:
    """Describe the packages of an extra in a cell."""
    needs = extra.needs
    if len(needs) > _FEW:
        if extra.state != "broken":
            return f"{sum(need.version is not None for need in needs)} of {len(needs)} packages"
        needs = tuple(need for need in needs if need.fault or need.version is None)
    return ", ".join(map(_need, needs))


def _need(need: Need) -> str:
    if need.version is None:
        return f"{need.name}{need.bound} is not installed"
    return f"{need.name} {need.version}" + (f" is not {need.bound}" if need.others else "")
