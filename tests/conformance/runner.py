"""Runs vectors of Prompty's form: what was seen is projected to what is expected, and compared as JSON."""

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from conformance import adapter
from lazyprompt.errors import LazyPromptError
from lazyprompt.files.targets import read_answer

Data = dict[str, Any]


def project(seen: Any, expected: Any) -> Any:
    """What was seen, as far as something is expected: null is also what is absent."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        fields, wanted = cast("Data", seen), cast("Data", expected)
        return {key: project(fields.get(key), value) for key, value in wanted.items()}
    if isinstance(expected, list) and isinstance(seen, list) and len(seen) == len(expected):
        return [project(mine, value) for mine, value in zip(seen, expected, strict=True)]
    return cast("object", seen)


def canonical(value: object) -> str:
    """A value as JSON with its keys in order."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def write_files(given: Data, fixtures: dict[str, str], directory: Path) -> Path:
    """Write the files of a load vector, and return the prompt file."""
    home = directory / str(given.get("agent_subdir", "agent"))
    home.mkdir(parents=True, exist_ok=True)
    for name, text in (fixtures | given.get("files", {})).items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    if "fixture" in given:
        return home / str(given["fixture"])
    path = home / "vector.prompty"
    if "frontmatter_raw" in given:
        path.write_text(given["frontmatter_raw"], encoding="utf-8")
        return path
    fields = dict(given["frontmatter"])
    body = fields.pop("instructions", "")
    path.write_text(f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)}---\n{body}", encoding="utf-8")
    return path


def load(given: Data, fixtures: dict[str, str], directory: Path, patch: pytest.MonkeyPatch) -> Data:
    """What a load vector sees."""
    for name in ("NONEXISTENT", "MISSING_VAR"):
        patch.delenv(name, raising=False)
    for name, value in given.get("env", {}).items():
        patch.setenv(name, value)
    path = write_files(given, fixtures, directory)
    try:
        if "inputs" in given:
            return {"validated_inputs": adapter.validate(path, given["inputs"])}
        loaded = adapter.load(path)
    except (LazyPromptError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {**loaded, "instructions": loaded["instructions"].rstrip("\n")}


def run_operation(operation: str, given: Data) -> Data:
    """What any other vector sees."""
    match operation:
        case "render":
            threads = [name for name, value in given["inputs"].items() if _is_thread(value)]
            return {"rendered": adapter.render(given["template"], given["engine"], given["inputs"], threads)}
        case "renderSegments":
            return adapter.segments(given["template"], given["engine"], given["inputs"], given.get("strict_props"))
        case "parse":
            return {"messages": adapter.parse(given["rendered"], given.get("thread_inputs"))}
        case "toRequest":
            return {"request_body": adapter.to_request(given)}
        case "process":
            api, response = given["apiType"], given["response"]
            return {"result": read_answer(response, given["provider"], api, structured=given["has_outputs"])}
        case "processStream":
            return adapter.process_stream(given["provider"], given["events"])
        case _:
            raise ValueError(operation)


def _is_thread(value: object) -> bool:
    return isinstance(value, dict) and cast("Data", value).get("_kind") == "thread"


def fault(seen: Data, expected: Data, *, strict: bool = False) -> str:
    """Say what is wrong with what was seen, if anything; where strict, nothing may be in it but what is expected."""
    if "nonce_pattern" in expected:
        fits = re.search(expected["nonce_pattern"], seen["rendered"], re.DOTALL) is not None
        return "" if fits else f"{seen['rendered']!r} is not {expected['nonce_pattern']}"
    if "error" in expected:
        told = str(seen.get("error"))
        missing = [word for word in (expected["error"], expected.get("error_field", "")) if word not in told]
        return f"{missing} not in {told!r}" if missing else ""
    if "error" in seen and "error" not in expected:
        return str(seen["error"])
    mine = seen if strict else project(seen, expected)
    return "" if canonical(mine) == canonical(expected) else f"seen {canonical(mine)}, expected {canonical(expected)}"


def check_vector(
    operation: str, vector: dict[str, Any], fixtures: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with a vector; a request is compared whole: what is too much in one is refused as well."""
    given = vector["input"]
    seen = load(given, fixtures, folder, monkeypatch) if operation == "load" else run_operation(operation, given)
    assert not fault(seen, vector["expected"], strict=operation == "toRequest")
