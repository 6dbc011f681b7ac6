"""The command ``lazyprompt doctor``: what of lazyprompt is installed and set on this machine, and what is wrong.

It asks nobody: no network, and no key is read further than whether there is one.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import click

from lazyprompt._version import __version__
from lazyprompt.cli.streams import Output, goes_to_terminal, json_text
from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.cli.extras import Extra, Need
    from lazyprompt.modules.sources import Source
    from lazyprompt.tokens.vocabulary import Sought

_FAULTS: Final = 1
# Of an extra that needs more than these, a line of the table has only how many there are.
_FEW: Final = 4
_SHORT: Final[Mapping[str, str]] = {"here": "here", "missing": "not here", "damaged": "damaged", "unknown": "unknown"}

KeyState: TypeAlias = Literal["set", "empty", "not set", "not needed"]
_Rows: TypeAlias = "list[tuple[str, ...]]"


class Key(NamedTuple):
    """Whether a source has its key.

    Attributes:
        source: The source.
        variables: The variables of the environment in which it may be; those that are set, where one is.
        state: ``set``; ``empty`` where there is nothing but white space; ``not set``; ``not needed``.
    """

    source: str
    variables: tuple[str, ...]
    state: KeyState


class Health(NamedTuple):
    """What was found.

    Attributes:
        system: Versions and the like, by their names.
        extras: lazyprompt itself, and its extras.
        folder: Where vocabularies are looked for.
        vocabularies: The vocabularies of tiktoken.
        keys: The keys of the sources.
        faults: What is wrong, a line each.
    """

    system: dict[str, str]
    extras: list[Extra]
    folder: str
    vocabularies: list[Sought]
    keys: list[Key]
    faults: list[str]


@click.command("doctor")
@click.option(
    "--import", "tried", is_flag=True, help="Import each package too, in a process of its own; takes seconds."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.pass_context
def doctor(context: click.Context, *, tried: bool, as_json: bool) -> None:
    """Say what is installed and set, and what is wrong.

    The versions; of each extra, what it needs and has; which vocabularies of tiktoken are on this machine; and of each
    source, whether its key is in the environment. Keys are never shown, and nothing is sent anywhere.

    The exit status is 1 where something that is installed is broken, else 0. What is merely not installed is no fault,
    and neither is a key that is not set.

    \b
    Examples:
      lazyprompt doctor
      lazyprompt doctor --import
      lazyprompt doctor --json
    """  # noqa: D301 - \b is how click is told not to wrap
    found = examined(tried=tried)
    # Names of folders and messages of others may hold what a terminal obeys.
    text = visible(_as_text(found, tried=tried))
    Output(json_text(_as_json(found), terminal=goes_to_terminal(None)) if as_json else text).write()
    if found.faults:
        context.exit(_FAULTS)


def examined(*, tried: bool) -> Health:
    """All that the command shows.

    Args:
        tried: Whether packages are imported.

    Returns:
        What was found.
    """
    from lazyprompt.cli.extras import extras  # noqa: PLC0415 - no other command needs installed packages
    from lazyprompt.modules.sources import SOURCES  # noqa: PLC0415 - as above

    keys = [_key(source) for source in SOURCES.values()]
    secret = {name for source in SOURCES.values() for name in source.keys}
    listed, faults = extras(tried=tried, without=secret)
    folder, vocabularies = _vocabularies(faults)
    faults += [f"{each.name}: {each.why}" for each in vocabularies if each.state == "damaged"]
    return Health(_system(), listed, folder, vocabularies, keys, faults)


def _system() -> dict[str, str]:
    colors = "NO_COLOR is set" if os.environ.get("NO_COLOR") else f"TERM is {os.environ.get('TERM') or 'not set'}"
    return {
        "lazyprompt": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})",
        "platform": platform.platform(),
        "output": f"{'a terminal' if goes_to_terminal(None) else 'no terminal'}; {colors}",
    }


def _vocabularies(faults: list[str]) -> tuple[str, list[Sought]]:
    """Where vocabularies are looked for, and what is there."""
    from lazyprompt.tokens.vocabulary import cache_folder, sought_vocabularies  # noqa: PLC0415 - as above

    folder, variable = cache_folder()
    by = f" ({variable})" if variable else ""
    where = f"no folder: {variable} is empty, which turns tiktoken's cache off" if folder is None else f"{folder}{by}"
    try:
        return where, sought_vocabularies()
    except ImportError as error:  # a core package that is broken is a fault to be told, not the end
        faults.append(f"tiktoken: {error}")
        return where, []


def _key(source: Source) -> Key:
    set_ones = tuple(name for name in source.keys if os.environ.get(name, "").strip())
    if set_ones:
        return Key(source.name, set_ones, "set")
    empty = tuple(name for name in source.keys if name in os.environ)
    if empty:
        return Key(source.name, empty, "empty")
    return Key(source.name, source.keys, "not set" if source.needs_key else "not needed")


def _as_json(found: Health) -> dict[str, Any]:
    return {
        **found.system,
        "extras": {
            extra.name: {"state": extra.state, "needs": [need._asdict() for need in extra.needs]}
            for extra in found.extras
        },
        "vocabularies": {"folder": found.folder, "encodings": {each.name: each.state for each in found.vocabularies}},
        "keys": [key._asdict() for key in found.keys],
        "faults": found.faults,
    }


def _as_text(found: Health, *, tried: bool) -> str:
    extras: _Rows = [("EXTRA", "STATE", "NEEDS"), *((each.name, each.state, _needs(each)) for each in found.extras)]
    vocabularies: _Rows = [("VOCABULARY", "STATE"), *((each.name, _SHORT[each.state]) for each in found.vocabularies)]
    keys: _Rows = [("SOURCE", "KEY", "VARIABLE"), *((key.source, key.state, _names(key)) for key in found.keys)]
    looked = [] if tried else ["Packages were looked for, not imported: lazyprompt doctor --import does"]
    download = [] if _has_any(found) else ["To have one: lazyprompt tokens --download o200k_base"]
    blocks = [
        _table([*found.system.items()]),
        [*_table(extras), *looked],
        [*_table(vocabularies), f"They are looked for in {found.folder}", *download],
        _table(keys),
        [f"wrong: {fault}" for fault in found.faults] or ["Nothing is wrong."],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _has_any(found: Health) -> bool:
    return any(each.state == "here" for each in found.vocabularies)


def _needs(extra: Extra) -> str:
    """What an extra needs, in a cell."""
    if len(extra.needs) > _FEW and extra.state != "broken":
        there = sum(need.version is not None for need in extra.needs)
        return f"{there} of {len(extra.needs)} packages"
    told = (
        [need for need in extra.needs if need.fault or need.version is None] if len(extra.needs) > _FEW else extra.needs
    )
    return ", ".join(map(_need, told))


def _need(need: Need) -> str:
    if need.version is None:
        return f"{need.name}{need.bound} is not installed"
    return f"{need.name} {need.version}" + (f" is not {need.bound}" if need.others else "")


def _names(key: Key) -> str:
    return " or ".join(key.variables) or "-"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
