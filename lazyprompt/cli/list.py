"""The ``lazyprompt list`` commands, which print tables of known model families and providers."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lazyprompt.cli.choices import CommandGroup
from lazyprompt.cli.options import json_option
from lazyprompt.cli.streams import table, write_json, write_lines
from lazyprompt.formatters.providers import HEADERS, rows
from lazyprompt.rendering.markers import Markers


@click.group("list", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the known model families or providers."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command()
@json_option
def families(*, as_json: bool) -> None:
    """List the model families that --model accepts.

    The columns are the name, whether the family has a default system text, and the stop sequences. --json prints all
    markers of each family.
    """
    found = {name: Markers.for_model(name) for name in Markers.families()}
    if as_json:
        return write_json([{"name": name, **asdict(markers)} for name, markers in found.items()])
    lines = [("NAME", "SYSTEM", "STOP")]
    for name, markers in found.items():
        stop = " ".join(json.dumps(text, ensure_ascii=False) for text in markers.stop)
        lines.append((name, "yes" if markers.system else "no", stop))
    return write_lines(table(lines))


@command.command()
@json_option
def providers(*, as_json: bool) -> None:
    """List the providers that --format accepts.

    The media columns state whether a provider accepts media by URL (url) or as base64 (data), and inside tool results
    or only in a turn after them. The thinking column states which reasoning the provider expects back in later
    requests. The turns column states the rules for message order.
    """
    found = rows()
    if as_json:
        return write_json([{"provider": row.provider, **row.cells} for row in found])
    return write_lines(table([HEADERS, *((row.provider, *row.cells.values()) for row in found)]))
