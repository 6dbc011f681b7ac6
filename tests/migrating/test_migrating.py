"""The pages about migrating from other libraries: each pair of programs prints what the page shows.

A Python block has the name of its library as its title, and runs by itself. A program of another
library comes before ours for the same thing. One ``text`` block after both is what each of them prints; where they
differ on purpose, each has its own, and the line before them begins with **Differs:**. A block whose title ends like a
file's is that file, and the commands of a ``console`` block run beside it.

Lazyprompt's programs always run. The others need their libraries in exactly the versions of ``requirements.txt`` and
``requirements-earlier.txt``, an environment each; without them they are skipped. With ``LAZYPROMPT_PEERS`` set to the
name of one of the two, whatever is missing of it is a failure, and nothing is skipped.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from support.model_server.server import Answer, ModelServer
from support.paths import ROOT, Block, blocks

HERE = Path(__file__).parent
OURS = "lazyprompt"
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
DIFFERS = ("**Differs:**", "**不同：**")


class Library(NamedTuple):
    page: str
    distribution: str
    module: str
    requirements: str


LIBRARIES = {
    "LazyLLM": Library("lazyllm", "lazyllm", "lazyllm", "requirements.txt"),
    "AgentScope 1": Library("agentscope", "agentscope", "agentscope", "requirements-earlier.txt"),
    "AgentScope 2": Library("agentscope", "agentscope", "agentscope", "requirements.txt"),
    "Prompty": Library("prompty", "prompty", "prompty", "requirements.txt"),
    "Prompty 0": Library("prompty", "prompty", "prompty", "requirements-earlier.txt"),
    "LangChain": Library("langchain", "langchain-core", "langchain_core", "requirements.txt"),
    "Pydantic AI": Library("pydantic-ai", "pydantic-ai-slim", "pydantic_ai", "requirements.txt"),
}
# The answers of the model to the last message, for pages that call one.
ANSWERS = {"When do you open?": "At nine.", "And on Sunday?": "Never."}
# A Chinese page has the programs of its library too.
CHINESE = ".zh"
PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "migrating").glob("*.md"))}
PEERS = os.environ.get("LAZYPROMPT_PEERS")
# The versions of the two files cannot be in one environment.
TESTED = [name for name, library in LIBRARIES.items() if PEERS in {None, library.requirements}]


class Step(NamedTuple):
    """A block and its expected output."""

    block: Block
    output: str


def steps(page: Path) -> list[Step]:
    """The blocks to run; a program of another library without its own output prints the same as lazyprompt's."""
    found: list[Step] = []
    waiting: int | None = None  # the program of another library that lazyprompt's has not followed yet
    for block in blocks(page):
        if block.language == "text" and not block.is_file:
            found[-1] = found[-1]._replace(output=block.code)
            if waiting is not None and found[-1].block.title == OURS:
                found[waiting] = found[waiting]._replace(output=found[waiting].output or block.code)
                waiting = None
            continue
        if block.title in LIBRARIES:
            waiting = len(found)
        found.append(Step(block, ""))
    return found


def pages_of(library: Library) -> list[str]:
    return [name for name in PAGES if name.removesuffix(CHINESE) == library.page]


def pinned_version(requirements: str, distribution: str) -> str:
    lines = (HERE / requirements).read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix(f"{distribution}==") for line in lines if line.startswith(f"{distribution}=="))


def installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def run_block(page: Path, block: Block) -> str:
    out = io.StringIO()
    # As if the page were beside its files: Prompty 0.1 reads from the directory of the program.
    code = compile("\n" * block.line + block.code, str(Path.cwd() / page.name), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": "docs"})  # noqa: S102 - the pages' own programs
    return out.getvalue()


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that OpenAI's client finds by the environment."""
    with ModelServer() as server:
        server.answer = lambda seen: Answer(ANSWERS[seen.body["messages"][-1]["content"]])
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-a-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url("openai"))
        yield


def run_command(command: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(  # noqa: S602 - the pages' own commands
        command, shell=True, check=False, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def walk_page(name: str, of: str) -> list[str]:
    """Write the files, run the commands and the programs of one library; return the differences from the page."""
    page = PAGES[name]
    wrong: list[str] = []
    for block, output in steps(page):
        if block.is_file:
            Path(str(block.title)).write_text(block.code, encoding="utf-8")
        elif block.language == "console":
            for command, expected in COMMAND.findall(block.code):
                made = run_command(command)
                if made.rstrip("\n") != expected.rstrip("\n"):
                    wrong.append(f"{page.name}:{block.line}: {command}\n{made}")
        elif block.title == of:
            made = run_block(page, block)
            if made != output:
                wrong.append(f"{page.name}:{block.line} prints\n{made}\nand not\n{output}")
    return wrong


@pytest.mark.parametrize("name", PAGES)
def test_lazyprompt_programs_print_the_shown_output(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = walk_page(name, OURS)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("title", TESTED)
def test_other_libraries_print_the_shown_output(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = LIBRARIES[title]
    wanted, found = pinned_version(library.requirements, library.distribution), installed_version(library.distribution)
    if found != wanted:
        reason = f"{library.distribution} {wanted} is needed, not {found}: .ci/run release has {library.requirements}"
        if PEERS:
            pytest.fail(reason)
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(record=True):  # warnings of other libraries do not matter here
        warnings.simplefilter("always")
        wrong = [line for name in pages_of(library) for line in walk_page(name, title)]
    assert not wrong, "\n".join(wrong)


def test_each_migration_page_names_its_library_and_version() -> None:
    assert set(PAGES) == {name for library in LIBRARIES.values() for name in pages_of(library)}
    for library in LIBRARIES.values():
        for name in pages_of(library):
            text = PAGES[name].read_text(encoding="utf-8")
            assert f"`{library.distribution}` {pinned_version(library.requirements, library.distribution)}" in text
    assert PEERS is None or TESTED, f"LAZYPROMPT_PEERS is {PEERS!r}, and must be requirements.txt or another such file"


@pytest.mark.parametrize("name", PAGES)
def test_each_program_of_another_library_is_followed_by_one_of_lazyprompt(name: str) -> None:
    programs = [block for block in blocks(PAGES[name]) if block.language == "python"]
    theirs = {title for title, library in LIBRARIES.items() if name in pages_of(library)}
    assert {block.title for block in programs} == {*theirs, OURS}
    for first, second in zip(programs[::2], programs[1::2], strict=True):
        assert first.title in theirs, f"line {first.line}"
        assert second.title == OURS, f"line {second.line}"
        # Readers who do not see titles recognize the library by its import.
        module = LIBRARIES[str(first.title)].module
        assert re.search(rf"^(from|import) {module}\b", first.code, re.MULTILINE), f"line {first.line}"
        assert re.search(rf"^(from|import) {OURS}\b", second.code, re.MULTILINE), f"line {second.line}"


@pytest.mark.parametrize("name", PAGES)
def test_only_differing_outputs_are_announced_as_differences(name: str) -> None:
    programs = [step for step in steps(PAGES[name]) if step.block.language == "python"]
    for first, second in zip(programs[::2], programs[1::2], strict=True):
        line = f"{name}.md:{first.block.line}"
        assert first.output, f"{line} prints nothing that the page shows"
        assert second.output, f"{line}: ours prints nothing that the page shows"
        assert (first.output != second.output) == any(word in first.block.before for word in DIFFERS), line


@pytest.mark.parametrize("name", ["langchain", "lazyllm", "lazyllm.zh", "pydantic-ai"])
def test_lazyprompt_quick_start_is_not_longer_than_the_other_one(name: str) -> None:
    theirs, ours = [block.code for block in blocks(PAGES[name]) if block.language == "python"][:2]
    for size in (len(ours.splitlines()), len(theirs.splitlines())), (len(ours.split()), len(theirs.split())):
        assert size[0] <= size[1]


@pytest.mark.parametrize("name", PAGES)
def test_code_blocks_have_a_tested_language_and_title(name: str) -> None:
    for block in blocks(PAGES[name]):
        assert block.language in {"python", "text", "console"}, f"line {block.line}"
        assert block.title in {None, OURS, *LIBRARIES} or block.is_file, f"line {block.line}"
        assert block.title or block.language != "python", f"line {block.line}"
