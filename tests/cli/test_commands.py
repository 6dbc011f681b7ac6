from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cli_helpers import Ran

from lazyprompt import Markers, __version__
from lazyprompt.formatters.providers import PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Callable


def test_version(run: Callable[..., Ran]) -> None:
    assert run("--version") == Ran(0, f"lazyprompt {__version__}\n".encode(), "")


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help(run: Callable[..., Ran], argv: tuple[str, ...]) -> None:
    ran = run(*argv)
    assert (ran.status, ran.err) == (0, "")
    assert b"render" in ran.out
    assert b"families" in ran.out


def test_help_of_render_has_examples_as_they_are_typed(run: Callable[..., Ran]) -> None:
    out = run("render", "-h").out.decode()
    assert "\n    cat report.txt | lazyprompt render summary.yaml --format openai\n" in out
    assert "\b" not in out
    assert max(map(len, out.splitlines())) <= 80


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


def test_providers(run: Callable[..., Ran]) -> None:
    header, *rows = run("providers").out.decode().splitlines()
    assert header.split()[:2] == ["provider", "text"]
    assert [row.split()[0] for row in rows] == list(PROVIDERS)


def test_providers_as_json(run: Callable[..., Ran]) -> None:
    found = {row["provider"]: row for row in json.loads(run("providers", "--json").out)}
    assert found["anthropic"]["thinking"] == "signed"


def test_a_payload_of_a_provider(run: Callable[..., Ran]) -> None:
    argv = ("--instruction", "Greet.", "--system", "", "--input", "Hi", "--format", "gemini", "--model", "gemini-3-pro")
    assert json.loads(run("render", *argv, "--json").out) == {
        "system_instruction": "Greet.\n\n",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }
