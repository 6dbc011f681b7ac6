from pathlib import Path

from cli.helpers import Ran, Run, fault, write
from support.missing import needs

needs("ruamel.yaml")

OLD = "---\nname: x # c\nsample: {q: '${env:LP_NONE:hi}'}\n---\nsystem:\n{{q}}\n"


def test_convert_keeps_comments_and_references_and_notes_changes(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "old.prompty", OLD)
    ran = run("convert", path, "--to", "v2")
    assert ran.status == 0
    assert b"name: x # c\n" in ran.out
    assert b"${env:LP_NONE:hi}" in ran.out
    # A change of form is reported on standard error.
    (note,) = ran.err.splitlines()
    assert note.startswith(f"lazyprompt: note: {path}: 3:1: sample becomes the inputs' defaults")


def test_output_option_writes_an_unchanged_file_byte_for_byte(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.prompty", "\ufeffsystem:\r\nhi \u009b")
    assert run("convert", path, "--to", "v2", "-o", "b.prompty") == Ran(0, b"", "")
    assert (tmp_path / "b.prompty").read_bytes() == (tmp_path / "a.prompty").read_bytes()


def test_yaml_prompt_file_is_converted(run: Run, tmp_path: Path) -> None:
    # The whole file was read as a template.
    path = write(tmp_path / "a.yaml", "type: chat\nmodel: qwen2.5\nsystem: ''\ninstruction: Say {x}.\n")
    ran = run("convert", path, "--to", "v2")
    assert ran.err == ""
    assert ran.out.decode() == (
        "---\nname: a\nmodel: qwen2.5\ninputs:\n  - name: x\n    kind: union\n    required: true\n"
        "  - name: input\n    kind: string\n    description: What the user says.\n---\n"
        '{% set newline = "\\n" %}\nsystem:\nSay {{ x }}.\n{{ newline }}\n\nuser:\n{{ input }}\n'
    )


def test_param_and_root_options_resolve_references(run: Run, tmp_path: Path) -> None:
    # A file with ${params:...} could not be converted at all.
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "a.txt", "A")
    path = write(tmp_path / "a.prompty", "---\nname: ${params:x}\ndescription: ${file:more/a.txt}\nx: 1\n---\nhi")
    ran = run("convert", path, "--to", "agentschema", "--param", "x=1", "--root", str(tmp_path / "more"))
    assert (ran.status, ran.out, ran.err) == (0, (tmp_path / "a.prompty").read_bytes(), "")
    assert fault(run("convert", path, "--to", "v2")).startswith("FILE: ")


def test_file_that_cannot_be_converted_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.prompty", "system:\nhi\ntool[id=1]:\nx")
    assert fault(run("convert", path, "--to", "v2")).startswith(
        f"FILE: {path}:3:1: 'tool[id=1]:': Prompty v2 doesn't support"
    )
    assert fault(run("convert", path, "--to", "v3")).startswith("--to: unknown value 'v3' (did you mean 'v2'?)")
    assert fault(run("convert", "none.prompty", "--to", "v2")) == "FILE: none.prompty:1:1: file not found"
