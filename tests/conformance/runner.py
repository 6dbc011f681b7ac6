"""Runs Prompty's conformance vectors: each result is reduced to the expected keys and compared as JSON."""

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


def project(result: Any, expected: Any) -> Any:
    """The part of a result that is expected; an absent key counts as null."""
    if isinstance(expected, dict) and isinstance(result, dict):
        fields, wanted = cast("Data", result), cast("Data", expected)
        return {key: project(fields.get(key), value) for key, value in wanted.items()}
    if isinstance(expected, list) and isinstance(result, list) and len(result) == len(expected):
        return [project(mine, value) for mine, value in zip(result, expected, strict=True)]
    return cast("object", result)


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
    """The result of a load vector."""
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
    """The result of any other vector."""
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


def fault(result: Data, expected: Data, *, strict: bool = False) -> str:
    """Describe how a result differs from the expected one, if it does; if strict, additional keys are a difference."""
    if "nonce_pattern" in expected:
        fits = re.search(expected["nonce_pattern"], result["rendered"], re.DOTALL) is not None
        return "" if fits else f"{result['rendered']!r} is not {expected['nonce_pattern']}"
    if "error" in expected:
        error = str(result.get("error"))
        missing = [word for word in (expected["error"], expected.get("error_field", "")) if word not in error]
        return f"{missing} not in {error!r}" if missing else ""
    if "error" in result and "error" not in expected:
        return str(result["error"])
    mine = result if strict else project(result, expected)
    return "" if canonical(mine) == canonical(expected) else f"result {canonical(mine)}, expected {canonical(expected)}"


def check_vector(
    operation: str, vector: dict[str, Any], fixtures: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with a vector; a request is compared completely, so that additional keys are a difference."""
    given = vector["input"]
    result = load(given, fixtures, folder, monkeypatch) if operation == "load" else run_operation(operation, given)
    assert not fault(result, vector["expected"], strict=operation == "toRequest")
