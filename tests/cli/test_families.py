from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lazyprompt import Markers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.helpers import Ran


def test_families(run: Callable[..., Ran]) -> None:
    header, *rows = run("families").out.decode().splitlines()
    assert header.split() == ["NAME", "SYSTEM", "STOP"]
    assert [row.split()[0] for row in rows] == list(Markers.families())
    (row,) = [row for row in rows if row.startswith("qwen2.5 ")]
    assert row.split() == ["qwen2.5", "yes", '"<|im_end|>"']
    assert {row.index(row.split()[1], len(row.split()[0])) for row in rows} == {header.index("SYSTEM")}


def test_families_as_json(run: Callable[..., Ran]) -> None:
    ran = run("families", "--json")
    listed = json.loads(ran.out)
    assert ran.out.count(b"\n") == 1
    (row,) = [row for row in listed if row["name"] == "qwen2.5"]
    markers = Markers.for_model("qwen2.5")
    assert row["soh"] == markers.soh
    assert row["stop"] == list(markers.stop)
    assert set(row) == {"name", *Markers.__dataclass_fields__}
