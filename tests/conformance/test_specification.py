"""The documents' printed examples as the specification beside the repository has them.

Where it is not at hand, conftest.py leaves this module out: the others of this folder hold equal cases of our own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import lazyprompt
from conformance.documented import ENCODED, PNG, check_prompt_file, formatted, same
from conformance.runner import check_vector
from lazyprompt.media.resolver import MediaResolver
from support.front_matter import VALIDATOR, fields_of
from support.paths import SPECIFICATIONS

if TYPE_CHECKING:
    from pathlib import Path

PROMPTERS, FORMATS, PROMPT_FILES, VECTORS = (
    json.loads((SPECIFICATIONS / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("lazyllm_documented", "agentscope_documented", "prompty_documented", "prompty_vectors_sample")
)


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_every_case_is_there() -> None:
    assert [len(PROMPTERS), len(FORMATS), len(PROMPT_FILES), len(VECTORS["vectors"])] == [15, 22, 13, 65]


@named(PROMPTERS)
def test_prompters(case: dict[str, Any]) -> None:
    prompter = getattr(lazyprompt, case["prompter"])(**case["ctor"])
    if case["expected"] is None:
        with pytest.raises(getattr(lazyprompt, case["raises"])):
            prompter.generate_prompt(**case["call"])
    else:
        assert prompter.generate_prompt(**case["call"]) == case["expected"]


@named(FORMATS)
def test_formats(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "test.png").write_bytes(PNG)
    (tmp_path / "test.mp3").write_bytes(b"ID3\x03")
    text = json.dumps(case).replace("<DIR>", str(tmp_path)).replace("<BASE64 of test.png>", ENCODED)
    case = json.loads(text)
    assert same(formatted(case, MediaResolver(roots=[tmp_path])), case["expected"])


@named(PROMPT_FILES)
def test_prompt_files(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_prompt_file(case, tmp_path, monkeypatch)


@named([{**each, "name": f"{each['operation']}-{each['vector']['name']}"} for each in VECTORS["vectors"]])
def test_vectors(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(case["operation"], case["vector"], VECTORS["fixtures"], tmp_path, monkeypatch)


def test_front_matters_are_valid_by_the_schema() -> None:
    fixtures = VECTORS["fixtures"].items()
    texts = [case["text"] for case in PROMPT_FILES] + [text for name, text in fixtures if name.endswith(".prompty")]
    for text in texts:
        VALIDATOR.validate(fields_of(text))
