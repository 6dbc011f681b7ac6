"""``lazyprompt list``: the tables of model families and providers."""

import json

from cli.helpers import Run
from lazyprompt import Markers
from lazyprompt.formatters.providers import PROVIDERS


def test_table_of_families_shows_system_support_and_stop_strings(run: Run) -> None:
    header, *rows = run("list", "families").out.decode().splitlines()
    assert header.split() == ["NAME", "SYSTEM", "STOP"]
    assert [row.split()[0] for row in rows] == list(Markers.families())
    (row,) = [row for row in rows if row.startswith("qwen2.5 ")]
    assert row.split() == ["qwen2.5", "yes", '"<|im_end|>"']
    assert {row.index(row.split()[1], len(row.split()[0])) for row in rows} == {header.index("SYSTEM")}


def test_json_of_families_has_all_marker_fields(run: Run) -> None:
    ran = run("list", "families", "--json")
    listed = json.loads(ran.out)
    assert ran.out.count(b"\n") == 1
    (row,) = [row for row in listed if row["name"] == "qwen2.5"]
    markers = Markers.for_model("qwen2.5")
    assert row["soh"] == markers.soh
    assert row["stop"] == list(markers.stop)
    assert set(row) == {"name", *Markers.__dataclass_fields__}


def test_table_and_json_of_providers_list_every_provider(run: Run) -> None:
    header, *rows = run("list", "providers").out.decode().splitlines()
    assert header.split()[:2] == ["provider", "text"]
    assert [row.split()[0] for row in rows] == list(PROVIDERS)
    found = {row["provider"]: row for row in json.loads(run("list", "providers", "--json").out)}
    assert found["anthropic"]["thinking"] == "signed"
