"""``lazyprompt doctor``: the parts of lazyprompt that are installed and set on this machine, and what is wrong.

It uses no network, and reads of a key only whether it is there.
"""

from __future__ import annotations

import operator
import os
import platform
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import click

from lazyprompt._base.signs import visible
from lazyprompt._version import __version__
from lazyprompt.cli.options import json_option
from lazyprompt.cli.streams import goes_to_terminal, table, write_json, write_lines
from lazyprompt.modules.sources import SOURCES, Source
from lazyprompt.tokens.vocabulary import Sought, cache_folder, sought_vocabularies

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


_FAULTS: Final = 1
# The most packages of an extra that the table names; of more, it has the number.
_FEW: Final = 4

CORE: Final = "(core)"
_SECONDS: Final = 60
_LONG: Final = 300
# Folders of wheels that are no package.
_BESIDE: Final = frozenset({"tests", "test", "docs", "examples", "benchmarks", "scripts"})
_PACKAGE: Final = re.compile(r"^((?:[A-Za-z]\w*/)*[A-Za-z]\w*)/__init__\.py,", re.MULTILINE)
_MODULE: Final = re.compile(r"^([A-Za-z]\w*)\.(?:py|[\w.-]*so|[\w.-]*pyd),", re.MULTILINE)
# A line ``Requires-Dist``: name, extras, bounds, and the extra that it is for. Our own lines have no other marker.
_REQUIREMENT: Final = re.compile(
    r"""([\w.-]+)\s*(?:\[([^]]*)])?\s*\(?([^;)]*)\)?(?:.*\bextra\s*==\s*["']([\w.-]+)["'])?"""
)
_VERSION: Final = re.compile(r"(\d+(?:\.\d+)*)(?:\.?(a|b|c|rc|dev))?")
_BOUND: Final = re.compile(r"([<>=!]=?)\s*([\w.]+)")
_HOLDS: Final = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq, "!=": operator.ne
}  # fmt: skip
# Packages print while they are imported, and run code at exit: only the last line and the status count.
_TRIAL: Final = """\
import importlib, os, sys
try:
    for name in sys.argv[1:]:
        importlib.import_module(name)
except BaseException as error:
    fault = " ".join(f"{type(error).__name__}: {error}".split())
    os.write(2, f"\\n{fault}".encode(errors="backslashreplace"))
    os._exit(1)
os._exit(0)
"""


class _Key(NamedTuple):
    """The key of a source.

    Attributes:
        source: The source.
        variables: The environment variables that are set; if none is, those that could be.
        state: ``set``, ``empty`` if there is nothing but white space, ``not set`` or ``not needed``.
    """

    source: str
    variables: tuple[str, ...]
    state: str


class _Requirement(NamedTuple):
    name: str
    extras: tuple[str, ...]
    bound: str
    extra: str


class Need(NamedTuple):
    """A package that an extra needs.

    Attributes:
        name: Its name, with the extras of it that are needed.
        bound: The versions that suit, as ``>=2.0``; ``""`` for any.
        version: The version that is installed; None where none is.
        fault: The fault of the installed package, in one line; ``""`` for none.
        others: True if the version does not suit, and another package than lazyprompt needs it: then it was installed
            for that one, and the extra was not asked for.
    """

    name: str
    bound: str
    version: str | None
    fault: str = ""
    others: bool = False


class Extra(NamedTuple):
    """An extra of lazyprompt; lazyprompt without extras is ``(core)``.

    Attributes:
        state: ``ready``; ``in part`` if some of its packages are missing or there for others: then it was not asked
            for; ``not installed``; ``broken`` if it has all packages, and one of them has a fault.
        needs: Its packages.
    """

    state: str
    needs: list[Need]


@click.command("doctor")
@click.option(
    "--import", "tried", is_flag=True, help="Import each package too, in a process of its own; takes seconds."
)
@json_option
@click.pass_context
def command(context: click.Context, *, tried: bool, as_json: bool) -> None:
    r"""Show what is installed and set, and what is wrong.

    The versions; of each extra, what it needs and has; which vocabularies of tiktoken are on this machine; and of each
    source, whether its key is in the environment. Keys are never shown, and nothing is sent anywhere.

    The exit status is 1 where something that is installed is broken, else 0. What is merely not installed is no fault,
    and neither is a key that is not set.

    \b
    Examples:
      lazyprompt doctor
      lazyprompt doctor --import
      lazyprompt doctor --json
    """
    keys = [_key(source) for source in SOURCES.values()]
    secret = {name for source in SOURCES.values() for name in source.keys}
    extras, faults = find_extras(tried=tried, without=secret)
    folder, vocabularies = _vocabularies(faults)
    faults += [f"{each.name}: {each.why}" for each in vocabularies if each.state == "damaged"]
    if as_json:
        found = {
            **_system(),
            "extras": {
                name: {"state": extra.state, "needs": [need._asdict() for need in extra.needs]}
                for name, extra in extras.items()
            },
            "vocabularies": {"folder": folder, "encodings": {each.name: each.state for each in vocabularies}},
            "keys": [key._asdict() for key in keys],
            "faults": faults,
        }
        write_json(found)
    else:
        looked = [] if tried else ["Packages were looked for, not imported: lazyprompt doctor --import does"]
        has_any = any(each.state == "here" for each in vocabularies)
        download = [] if has_any else ["To have one: lazyprompt tokens --download o200k_base"]
        states = [(each.name, "not here" if each.state == "missing" else each.state) for each in vocabularies]
        needs = [(name, extra.state, _describe_needs(extra)) for name, extra in extras.items()]
        variables = [(key.source, key.state, " or ".join(key.variables) or "-") for key in keys]
        blocks = [
            table([*_system().items()]),
            [*table([("EXTRA", "STATE", "NEEDS"), *needs]), *looked],
            [*table([("VOCABULARY", "STATE"), *states]), f"They are looked for in {folder}", *download],
            table([("SOURCE", "KEY", "VARIABLE"), *variables]),
            [f"wrong: {fault}" for fault in faults] or ["Nothing is wrong."],
        ]
        # Names of folders and messages of others may hold control characters.
        write_lines([visible("\n\n".join("\n".join(lines) for lines in blocks))])
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
    empty = tuple(name for name in source.keys if name in os.environ)
    state = "set" if given else "empty" if empty else "not set" if source.needs_key else "not needed"
    return _Key(source.name, given or empty or source.keys, state)


def _describe_needs(extra: Extra) -> str:
    """Describe the packages of an extra in a cell."""
    needs = extra.needs
    if len(needs) > _FEW:
        if extra.state != "broken":
            return f"{sum(need.version is not None for need in needs)} of {len(needs)} packages"
        needs = [need for need in needs if need.fault or need.version is None]
    return ", ".join(
        f"{need.name}{need.bound} is not installed"
        if need.version is None
        else f"{need.name} {need.version}{f' is not {need.bound}' if need.others else ''}"
        for need in needs
    )


def find_extras(*, tried: bool, without: Collection[str] = ()) -> tuple[dict[str, Extra], list[str]]:
    """Find the extras of the installed lazyprompt.

    Args:
        tried: True to import the installed packages too, each in a process of its own.
        without: The environment variables that these processes do not see.

    Returns:
        The core and all extras; and the faults, a line each.
    """
    try:
        own = distribution("lazyprompt")
    except PackageNotFoundError:
        return {}, ["lazyprompt is not installed, only found as files: extras are not known; pip install it"]
    names = ["", *(own.metadata.get_all("Provides-Extra") or [])]
    needed = {name or CORE: [*dict.fromkeys(_needed(own, name))] for name in names}
    each = {one for found in needed.values() for one in found}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looked = dict(zip(each, pool.map(partial(_look_for, tried=tried, without=without), each), strict=True))
    extras = {name: _extra(name, [looked[one] for one in found]) for name, found in needed.items()}
    broken = [need for extra in extras.values() if extra.state == "broken" for need in extra.needs]
    faults = [
        f"{need.name}: {need.fault}" if need.fault else f"{need.name}{need.bound} is needed, and is not installed"
        for need in broken
        if need.fault or need.version is None
    ]
    return extras, [*dict.fromkeys(faults)]


def _extra(name: str, needs: list[Need]) -> Extra:
    there = [need for need in needs if need.version is not None]
    whole = len(there) == len(needs) and not any(need.others for need in needs)
    if whole or name == CORE:
        is_broken = len(there) < len(needs) or any(need.fault for need in needs)
        return Extra("broken" if is_broken else "ready", needs)
    return Extra("in part" if there else "not installed", needs)


def _requirements(own: Distribution) -> Iterator[_Requirement]:
    for line in own.requires or ():
        if match := _REQUIREMENT.match(line):
            name, extras, bound, extra = match.groups(default="")
            yield _Requirement(name, tuple(re.findall(r"[\w.-]+", extras)), bound.strip(), extra)


def _needed(own: Distribution, extra: str, seen: frozenset[str] = frozenset()) -> Iterator[_Requirement]:
    """List the packages of an extra; extras that it names are replaced by their packages."""
    for needed in _requirements(own):
        if needed.extra == extra and _plain(needed.name) == "lazyprompt":
            for named in sorted({*needed.extras} - seen):
                yield from _needed(own, named, seen | {*needed.extras})
        elif needed.extra == extra:
            yield needed._replace(extra="")


def _look_for(needed: _Requirement, *, tried: bool, without: Collection[str]) -> Need:
    """Look for a package that is needed."""
    name, bound = f"{needed.name}[{','.join(needed.extras)}]" if needed.extras else needed.name, needed.bound
    try:
        found = distribution(needed.name)
    except PackageNotFoundError:
        return Need(name, bound, None)
    version = cast("str | None", found.version)  # broken metadata have none
    if not _suits(version or "", bound):
        others = (one for each in distributions() if each.name != "lazyprompt" for one in _requirements(each))
        is_others = any(not one.extra and _plain(one.name) == _plain(needed.name) for one in others)
        return Need(name, bound, version, f"{version} is installed, and it must be {bound}", is_others)
    modules = _modules(found)
    missing = next((module for module in modules if not _is_there(module)), None)
    fault = "" if missing is None else f"its module {missing} is not there; install it again"
    if tried and modules and not fault:
        fault = _import_fault(modules, without)
    return Need(name, bound, version, fault)


def _suits(version: str, bound: str) -> bool:
    return all(_HOLDS[sign](_order(version), _order(limit)) for sign, limit in _BOUND.findall(bound))


def _order(version: str) -> tuple[list[int], bool]:
    """Return the numbers of a version, without zeros at their end, and True if it is released."""
    match = _VERSION.match(version)
    if match is None:
        return [], False
    return [int(part) for part in re.sub(r"(\.0+)+$", "", match[1]).split(".")], match[2] is None


def _modules(found: Distribution) -> list[str]:
    """List the modules of a distribution to import: those that have its name, or else all of them."""
    record = found.read_text("RECORD") or ""
    names = {match[1].replace("/", ".") for match in _PACKAGE.finditer(record)}
    outer = {name for name in names if not any(name.startswith(f"{other}.") for other in names)}
    outer |= {match[1] for match in _MODULE.finditer(record)}
    named = _plain(found.metadata["Name"] or "")
    return sorted(name for name in outer if _plain(name) == named) or sorted(outer - _BESIDE)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the package around it is missing or broken
        return False


def _import_fault(modules: Iterable[str], without: Collection[str]) -> str:
    """Import modules in a process of its own, which some of them end; return the fault in one line, or nothing."""
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and names of installed modules
            [sys.executable, "-P", "-W", "ignore", "-c", _TRIAL, *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=_SECONDS,
            env={name: value for name, value in os.environ.items() if name not in without},
        )
    except subprocess.TimeoutExpired:
        return f"its import has not ended after {_SECONDS} s"
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"its import ended the process ({signal.Signals(-done.returncode).name})"
    message = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"it cannot be imported: {message[:_LONG]}"
