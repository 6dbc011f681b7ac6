"""``lazyprompt providers``: the providers, and the content that each takes."""

from __future__ import annotations

import click

from lazyprompt.cli.options import json_option
from lazyprompt.cli.output import Output, json_output
from lazyprompt.cli.tables import table
from lazyprompt.formatters.matrix import HEADERS, rows


@click.command("providers")
@json_option
def command(*, as_json: bool) -> Output:
    """List the providers that --format knows.

    For each provider the blocks that it takes: media by address (url), as base64 (data), within results of tools or
    in a turn behind them; the thoughts that it wants back; and its rules of order.
    """
    found = rows()
    if as_json:
        return json_output([{"provider": row.provider, **row.cells} for row in found])
    return Output(
        "".join(f"{line}\n" for line in table([HEADERS, *((row.provider, *row.cells.values()) for row in found)]))
    )
