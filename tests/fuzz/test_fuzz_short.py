"""Each target of ``python -m fuzz``, run briefly on its kept inputs and on inputs that hypothesis draws."""

import json
from pathlib import Path
from typing import Any

import pytest

from fuzz.__main__ import main
from fuzz.chance import Bytes, Chance, written
from fuzz.engines import by_hypothesis, findings
from fuzz.judge import BrokenError, chatml_turns
from fuzz.keep import corpus_of
from fuzz.table import TARGETS
from fuzz.target import Target
from fuzz.watch import peak, watched
from lazyprompt.errors import SlotError
from support.paths import ROOT

pytestmark = pytest.mark.slow  # random input

FOUND: list[dict[str, Any]] = json.loads((ROOT / "fuzz" / "found.json").read_text(encoding="utf-8"))
# The numbers of kept inputs of a target, spread over all of them, and of drawn inputs.
KEPT, DRAWN = 20, 40


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_cause_no_finding(name: str) -> None:
    inputs = corpus_of(TARGETS[name])
    assert inputs
    for path in inputs[:: max(1, len(inputs) // KEPT)]:
        assert watched(TARGETS[name], Bytes(path.read_bytes())) is None, path


@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs_cause_no_finding(name: str) -> None:
    by_hypothesis(TARGETS[name], DRAWN, chosen=8)


@pytest.mark.parametrize("case", [pytest.param(each, id=each["story"][:60]) for each in FOUND])
def test_former_findings_stay_fixed(case: dict[str, Any]) -> None:
    target = TARGETS[case["target"]]
    assert watched(target, Bytes(written(case["texts"], case["numbers"]))) is None, case["story"]


def raising_target(error: Exception) -> Target:
    def run(chance: Chance) -> None:
        if "x" in chance.text():
            raise error

    return Target("raising", run, ("x",))


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError("a"), "ValueError"), (BrokenError("a at 3"), "broken"), (SlotError("a"), None)]
)
def test_only_errors_of_the_package_are_expected(error: Exception, kind: str | None) -> None:
    finding = watched(raising_target(error), Bytes(b"ax"))
    assert (finding and finding.kind) == kind
    assert watched(raising_target(error), Bytes(b"a")) is None


def test_slow_target_is_a_finding() -> None:
    def run(_: Chance) -> None:
        sum(range(100_000))

    finding = watched(Target("slow", run, (), seconds=0), Bytes(b""))
    assert finding is not None
    assert finding.kind == "slow"


def test_target_that_takes_much_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.watch.MAX_MEMORY", 10 * 1024)
    kept: list[bytes] = []

    def run(_: Chance) -> None:
        # The peak of this process may be far above what it holds now.
        high = peak()
        while peak() < high + 20 * 1024:
            kept.append(b"\1" * 10_000_000)

    finding = watched(Target("large", run, ()), Bytes(b""))
    assert finding is not None
    assert finding.kind == "large"


@pytest.mark.parametrize(
    "text",
    ["a", "<|im_start|>user\na", "<|im_start|>user\n<|im_start|>a<|im_end|>", "<|im_start|>x\n<|im_end|>"],
)
def test_malformed_chatml_is_refused(text: str) -> None:
    assert chatml_turns("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n") == [("user", "a")]
    with pytest.raises(BrokenError):
        chatml_turns(text)


def test_fuzz_command_runs_without_atheris(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--engine", "hypothesis", "--seconds", "0", "--target", "slots"]) == 0
    assert capsys.readouterr().out == "== slots: nothing found in 0 runs\n"
    monkeypatch.setattr("fuzz.__main__.find_spec", dict[str, None]().get)
    assert main(["--target", "slots"]) == 2
    assert "pip install 'atheris>=3'" in capsys.readouterr().err


def test_fuzz_command_prints_its_findings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fuzz.__main__.TARGETS", {"raising": raising_target(ValueError("a"))})
    assert main(["--engine", "hypothesis", "--seconds", "1"]) == 1
    assert "== raising: found\nValueError in test_fuzz_short.py" in capsys.readouterr().out
    (tmp_path / "input").write_bytes(b"ax\xfe\x01")
    assert main(["--target", "raising", "--input", str(tmp_path / "input")]) == 1
    assert "texts ['ax']\n  numbers [1]" in capsys.readouterr().out
    (tmp_path / "input").write_bytes(b"a")
    assert main(["--target", "raising", "--input", str(tmp_path / "input")]) == 0


def test_findings_of_atheris_are_reduced(tmp_path: Path) -> None:
    target = raising_target(ValueError("a"))
    for name, data in (("raising-ValueError-1", b"abcx"), ("raising-slow-2", b"a")):
        (tmp_path / name).write_bytes(data)
    ((path, finding, data),) = findings(target, tmp_path)
    assert (path.name, finding.kind, data, path.read_bytes()) == ("raising-ValueError-1", "ValueError", b"x", b"x")
    assert not (tmp_path / "raising-slow-2").exists()
