"""``lazyprompt families``: the model families as a table."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lazyprompt.cli.options import json_option
from lazyprompt.cli.output import Output, json_output
from lazyprompt.cli.tables import table
from lazyprompt.rendering.markers import Markers


@click.command("families")
@json_option
def command(*, as_json: bool) -> Output:
    """List the model families that --model knows.

    The columns: the name, whether the family brings a system text of its own, and the texts at which to stop. With
    --json, all markers of each family.
    """
    found = {name: Markers.for_model(name) for name in Markers.families()}
    if as_json:
        return json_output([{"name": name, **asdict(markers)} for name, markers in found.items()])
    rows = [("NAME", "SYSTEM", "STOP")]
    for name, markers in found.items():
        stop = " ".join(json.dumps(text, ensure_ascii=False) for text in markers.stop)
        rows.append((name, "yes" if markers.system else "no", stop))
    return Output("".join(f"{line}\n" for line in table(rows)))
