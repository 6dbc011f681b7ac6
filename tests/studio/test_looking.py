"""The responses of the studio: the text equals that of generate_prompt, with counts, inputs, diffs and attacks."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import Markers, Prompty, __version__
from lazyprompt.files.check.check import check
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.studio.looking import Looking
from lazyprompt.studio.reading import ATTACKS, CheckRequest, DiffRequest, LookRequest, WrongRequestError, parse_request
from lazyprompt.studio.workspace import Workspace
from studio.library_looks import cases, expected_text, shown_text, text_of
from support.paths import LIBRARY, library_inputs

SHARE = 160
FILE = """---
name: refund
inputs:
  order: {kind: string, required: true}
  tone: {kind: string, default: kind}
  items: {kind: array, example: [lamp]}
  count: {kind: integer, required: true}
---
system:
## Rules
Be {{tone}} about {{order}}.

user:
{% for item in items %}{{item}} {% endfor %}{{count}} {{extra}}
"""


def make_looking(path: Path, text: str = FILE, name: str = "refund.prompty", **more: Any) -> Looking:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(text, encoding="utf-8")
    return Looking(Workspace.of(path), **more)


def look(looking: Looking, text: str = FILE, path: str = "refund.prompty", **more: Any) -> dict[str, Any]:
    body = {"path": path, "text": text, **more}
    return looking.look(parse_request(LookRequest, json.dumps(body).encode()))


VALUES = {"order": "#1", "tone": "stern", "items": ["lamp"], "count": 2, "extra": "now"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lazyprompt.ToolFormWarning")
def test_looks_of_library_prompts_equal_the_text_of_generate_prompt() -> None:
    share = [case for case in cases() if case.is_of_share(SHARE)]
    assert len(share) > 80
    assert [case for case in share if shown_text(case) != expected_text(case)] == []


def test_inputs_of_a_yaml_prompt_file_are_its_slots_and_the_user_text(tmp_path: Path) -> None:
    looking = make_looking(tmp_path, "instruction: Speak {language}.\n", "talk.yaml")
    begun: Any = looking.file("talk.yaml")
    assert [each["name"] for each in begun["inputs"]] == ["language", "input"]
    seen = look(looking, "instruction: Speak {tongue}.\n", "talk.yaml", inputs={"tongue": "Thai", "language": "gone"})
    assert "Speak Thai." in seen["look"]["text"]


@pytest.mark.parametrize(
    ("text", "newline"),
    [("a\nb\n", "\n"), ("a\r\nb", "\r\n"), ("a\rb", "\r"), ("a\r\nb\n", "mixed"), ("a\r\r\n", "mixed"), ("a", "\n")],
)
def test_the_newline_style_of_a_file_is_reported_and_its_text_kept(tmp_path: Path, text: str, newline: str) -> None:
    looking = make_looking(tmp_path)
    (tmp_path / "refund.prompty").write_bytes(text.encode())
    found = {"path": "refund.prompty", "text": text, "hash": sha256(text.encode()).hexdigest(), "newline": newline}
    nothing: dict[str, object] = {"inputs": [], "values": {}, "form": None, "model": None, "error": None}
    assert looking.file("refund.prompty") == found | nothing


def test_an_invalid_prompt_file_can_be_opened_and_corrected(tmp_path: Path) -> None:
    looking = make_looking(tmp_path, "---\nname: [\n---\nHi\n")
    error = {
        "kind": "PromptFileError",
        "message": "invalid frontmatter: while parsing a flow node, did not find expected node content\n---\n^",
        "line": 3,  # the line where the unclosed bracket meets another token
        "column": 1,
    }
    assert looking.file("refund.prompty")["error"] == error
    assert look(looking, "---\nname: [\n---\nHi\n")["error"] == error
    assert "inputs" not in look(looking, "---\nname: [\n---\nHi\n")
    assert look(looking, inputs=VALUES)["look"]["text"]


def test_fields_of_the_inputs_are_sent_even_if_a_value_is_invalid(tmp_path: Path) -> None:
    seen = look(make_looking(tmp_path), FILE.replace("{{extra}}", "{{other}}"), inputs=VALUES | {"count": "two"})
    assert seen["error"].pop("message").startswith("count is 'two', but must be of kind integer")
    assert seen["error"] == {"kind": "SlotError", "line": None, "column": None}
    assert [each["name"] for each in seen["inputs"]] == ["order", "tone", "items", "count", "other"]


def test_a_look_uses_the_edited_text_and_not_the_file(tmp_path: Path) -> None:
    looking = make_looking(tmp_path)
    text = FILE.replace("about", "concerning")
    seen = look(looking, text, inputs=VALUES, model="qwen2.5")
    assert seen["look"]["text"] == Prompty.loads(text).generate_prompt(VALUES, model="qwen2.5")
    assert "".join(each["text"] for each in seen["look"]["segments"]) == seen["look"]["text"]


def test_a_payload_is_shown_as_indented_json(tmp_path: Path) -> None:
    seen = look(make_looking(tmp_path), inputs=VALUES, form="anthropic", model="claude-sonnet-4-5")
    payload = Prompty.loads(FILE).generate_prompt(VALUES, format="anthropic", model="claude-sonnet-4-5")
    assert seen["look"]["payload"] is True
    assert seen["look"]["text"] == json.dumps(payload, ensure_ascii=False, indent=2)
    assert seen["look"]["window"] == 200_000
    assert look(make_looking(tmp_path), inputs=VALUES, form="anthropic", window=10)["look"]["window"] == 10


@pytest.mark.parametrize("form", ["anthropic", "openai-responses", "ollama-generate"])
def test_token_counts_of_slots_are_not_negative_and_add_up_to_the_total(form: str) -> None:
    # Tools are counted in OpenAI's form, and ollama-generate sends none: the framing had -121 tokens.
    path = "agent/account-info.prompty"
    seen = look(Looking(Workspace.of(LIBRARY)), text_of(path), path, inputs=library_inputs()[path], form=form)["look"]
    counts = [slot["tokens"] for slot in seen["slots"]]
    assert min(counts) >= 0
    assert sum(counts) == seen["total"]


def test_a_history_is_trimmed_to_max_tokens(tmp_path: Path) -> None:
    history = [
        ["What " * 50, "That " * 50],
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "No."},
    ]
    seen = look(make_looking(tmp_path), inputs=VALUES, history=history, form="openai", max_tokens=5, counter="chars")
    assert "5" in seen["error"]["message"]
    seen = look(make_looking(tmp_path), inputs=VALUES, history=history, form="openai", max_tokens=120)
    assert seen["look"]["trim"]["after"] <= 120 < seen["look"]["trim"]["before"]
    assert "dropped" in {each["fate"] for each in seen["look"]["trim"]["messages"]}


def test_included_files_are_read_only_from_inside_the_workspace(tmp_path: Path) -> None:
    root = tmp_path / "prompts"
    looking = make_looking(root, "---\nname: x\n---\nsystem:\n{% include 'shared/tone.md' %}\n", "a/x.prompty")
    (root / "shared").mkdir()
    (root / "shared" / "tone.md").write_text("Be kind.")
    (tmp_path / "secret.md").write_text("secret")
    text = (root / "a" / "x.prompty").read_text()
    assert "Be kind." in look(looking, text, "a/x.prompty")["look"]["text"]
    for path in ("../../secret.md", str(tmp_path / "secret.md")):
        error = look(looking, text.replace("shared/tone.md", path), "a/x.prompty")["error"]
        assert "is outside allowed roots" in error["message"]
        assert error["line"] == 5
        error = look(looking, f"---\nname: x\nmetadata: {{a: '${{file:{path}}}'}}\n---\nHi\n", "a/x.prompty")["error"]
        assert "is outside allowed roots" in error["message"]


def test_an_included_file_that_changed_is_read_again(tmp_path: Path) -> None:
    looking = make_looking(tmp_path, "{% include '_tone.md' %}\n")
    tone, text = tmp_path / "_tone.md", "system:\n{% include '_tone.md' %}\n"
    for said in ("kind", "stern", "brief now"):
        tone.write_text(said)
        for _ in range(2):
            assert said in look(looking, text)["look"]["text"]


def test_params_are_substituted_in_prompt_files(tmp_path: Path) -> None:
    text = "---\nname: x\ninputs:\n  who: {kind: string, default: '${params:who}'}\n---\nsystem:\n{{who}}\n"
    assert "nobody" in look(make_looking(tmp_path, text, params={"who": "nobody"}), text)["look"]["text"]


def test_environment_variables_are_shown_as_references_without_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUDIO_KEY", "sk-hidden")
    text = "---\nname: x\ninputs:\n  key: {kind: string, default: '${env:STUDIO_KEY}'}\n---\nsystem:\n{{key}}\n"
    begun: Any = make_looking(tmp_path, text).file("refund.prompty")
    assert begun["inputs"][0]["default"] == "${env:STUDIO_KEY}"
    assert begun["values"] == {}
    assert "sk-hidden" not in json.dumps(begun)


def test_versions_of_a_file_are_those_with_the_same_key(tmp_path: Path) -> None:
    looking = make_looking(tmp_path)
    for name in ("refund@1.0.0.prompty", "refund.zh@1.0.0.prompty", "other.prompty"):
        (tmp_path / name).write_text(FILE)
    assert looking.versions("refund.prompty") == {
        "versions": [
            {"path": "refund.zh@1.0.0.prompty", "version": "1.0.0", "lang": "zh"},
            {"path": "refund@1.0.0.prompty", "version": "1.0.0", "lang": ""},
        ]
    }


def diff(looking: Looking, text: str, **more: Any) -> dict[str, Any]:
    body = {"path": "refund.prompty", "text": text, "other": "refund@1.0.0.prompty", **more}
    return looking.diff(parse_request(DiffRequest, json.dumps(body).encode()))


def test_a_diff_compares_the_other_version_with_the_edited_text(tmp_path: Path) -> None:
    (tmp_path / "refund@1.0.0.prompty").write_text(FILE)
    text = FILE.replace("Be {{tone}}", "Stay {{tone}}").replace("default: kind", "default: fair")
    found = diff(make_looking(tmp_path), text, inputs=VALUES, form="openai")
    tone = ["@@ -1,2 +1,2 @@", ' kind: "string"', '-default: "kind"', '+default: "fair"']
    system = ["@@ -1,2 +1,2 @@", " ## Rules", "-Be {{tone}} about {{order}}.", "+Stay {{tone}} about {{order}}."]
    filled = [line.replace("{{tone}}", "").replace("{{order}}", "") for line in system]
    counts = {"tone": 1, "order": 2, "item": 1, "user": 2, "count": 1, "extra": 1, "framing": 8}
    same = ({"name": name, "state": "same", "before": n, "after": n, "lines": []} for name, n in counts.items())
    assert found == {
        "changes": [
            {"kind": "inputs", "name": "tone", "what": "changed", "lines": tone},
            {"kind": "sections", "name": "system", "what": "changed", "lines": system},
        ],
        "slots": [{"name": "instruction", "state": "changed", "before": 8, "after": 8, "lines": filled}, *same],
        "shared": {"tokens": 3, "total": 24, "slot": "instruction", "line": 2},
        "prefix": "message 0, system: the caller changed the system text",
    }
    assert diff(make_looking(tmp_path), text, inputs=VALUES)["prefix"] is None


def test_a_diff_of_a_prompt_without_values_or_with_invalid_syntax_is_returned(tmp_path: Path) -> None:
    (tmp_path / "refund@1.0.0.prompty").write_text(FILE)
    found = diff(make_looking(tmp_path), FILE.replace("## Rules", "## Laws"))
    assert found["slots"] is None
    assert [each["name"] for each in found["changes"]] == ["system"]
    assert diff(make_looking(tmp_path), "---\nname: [\n---\n")["error"]["line"] == 3


def test_a_diff_of_yaml_prompt_files_uses_the_edited_text(tmp_path: Path) -> None:
    looking = make_looking(tmp_path, "instruction: Speak {language}.\n", "talk.yaml")
    (tmp_path / "talk@1.0.0.yaml").write_text("instruction: Speak {language}.\n")
    given = {"path": "talk.yaml", "other": "talk@1.0.0.yaml", "inputs": {"language": "Thai"}}
    found = diff(looking, "instruction: Say it in {language}.\n", **given)
    assert [(each["kind"], each["name"]) for each in found["changes"]] == [("sections", "instruction")]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_an_attack_is_inserted_and_adds_no_control_sequence(tmp_path: Path, attack: Any) -> None:
    looking = make_looking(tmp_path)
    plain = look(looking, inputs=VALUES, model="qwen2.5")["look"]
    for slot, kind in (("order", "string"), ("items", "array")):
        seen = look(looking, inputs=VALUES, model="qwen2.5", attack={"id": attack.id, "slot": slot})
        assert seen["attacked"] == attack.make(Markers.for_model("qwen2.5"), FILE)
        assert seen["look"]["text"] != plain["text"], kind
        assert seen["look"]["text"].count("<|im_end|>") == plain["text"].count("<|im_end|>")
        assert seen["look"]["text"].count("<|im_start|>") == plain["text"].count("<|im_start|>")


SEEN = {
    **dict.fromkeys(("turn", "answer", "special", "call", "thought", "section", "tools"), "neutralised"),
    **dict.fromkeys(("unseen", "terminal"), "hidden"),
    "role": "neutralised",  # one of its lines is a special token; the others are text where they stand
}


@pytest.mark.parametrize("attack", sorted(SEEN))
@pytest.mark.parametrize("family", ["qwen2.5", "llama-3", "gemma-3", "deepseek-v3", None])
def test_cautions_report_how_an_attack_was_neutralized(tmp_path: Path, attack: str, family: str | None) -> None:
    # Each attack uses the family's own markers, because others would be plain text to it.
    seen = look(make_looking(tmp_path), inputs=VALUES, model=family, attack={"id": attack, "slot": "order"})
    assert SEEN[attack] in {each["kind"] for each in seen["look"]["cautions"] if each["values"]["slot"] == "order"}


def test_an_attack_on_an_unsuitable_slot_or_of_an_unknown_name_is_rejected(tmp_path: Path) -> None:
    seen = look(make_looking(tmp_path), inputs=VALUES, attack={"id": "turn", "slot": "count"})
    assert "must be of kind integer" in seen["error"]["message"]
    gone = look(make_looking(tmp_path), inputs=VALUES, attack={"id": "turn", "slot": "gone"})
    assert gone["attacked"] is None
    with pytest.raises(WrongRequestError, match=r"unknown attack 'tunr' \(did you mean 'turn'\?\)"):
        look(make_looking(tmp_path), inputs=VALUES, attack={"id": "tunr", "slot": "order"})


def test_an_unknown_counter_form_or_model_is_reported(tmp_path: Path) -> None:
    looking = make_looking(tmp_path)
    assert "unknown counter" in look(looking, inputs=VALUES, counter="aproximate")["error"]["message"]
    assert "flast" in look(looking, inputs=VALUES, form="flast")["error"]["message"]
    assert "nobody-knows" in look(looking, inputs=VALUES, model="nobody-knows")["error"]["message"]


def test_about_lists_files_families_providers_attacks_and_counters(tmp_path: Path) -> None:
    about: Any = make_looking(tmp_path / "prompts").about()
    counters = about.pop("counters")
    assert counters == ["approximate", "chars", *(name for name in counters if name.startswith("tiktoken:"))]
    assert about == {
        "root": "prompts",
        "files": [{"path": "refund.prompty", "key": "refund", "lang": "", "version": None}],
        "families": [*Markers.families()],
        "providers": [*PROVIDERS],
        "attacks": [{"id": each.id, "name": each.name} for each in ATTACKS],
        "version": __version__,
        "adds": True,
    }
    assert Looking(Workspace.of(tmp_path / "prompts" / "refund.prompty")).about()["adds"] is False


def test_findings_of_the_studio_equal_those_of_check(tmp_path: Path) -> None:
    looking = make_looking(tmp_path)
    asked = parse_request(CheckRequest, json.dumps({"path": "refund.prompty", "text": FILE}).encode())
    keys = ("code", "severity", "message", "advice", "line", "column")
    found = [{key: getattr(each, key) for key in keys} for each in check(FILE, name="refund.prompty")]
    assert looking.check(asked) == {"findings": found}
    assert found != []


def test_every_library_file_has_example_inputs() -> None:
    assert set(library_inputs()) == {each.path for each in Workspace.of(LIBRARY).files()}
