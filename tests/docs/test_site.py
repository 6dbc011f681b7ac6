"""The manual as a site: its pages, its API pages, and the build steps that mkdocs does not have.

``mkdocs build --strict`` itself is a step of ``.ci/run``: it checks links, anchors and docstrings, that a page has the
same parts as its Markdown in the repository, and that it fetches nothing from other servers.
"""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import lazyprompt
from support.paths import ROOT

DOCS = ROOT / "docs"
API_NAME = re.compile(r"^::: lazyprompt\.(\w+)$", re.MULTILINE)


def step(name: str) -> dict[str, Any]:
    """The names of a module in docs/_site, which may import its neighbours."""
    folder = DOCS / "_site"
    sys.path.insert(0, str(folder))
    try:
        return runpy.run_path(str(folder / f"{name}.py"))
    finally:
        sys.path.remove(str(folder))


class SettingsLoader(yaml.SafeLoader):
    """Reads mkdocs.yml, without the Python objects that it names."""


def _left_out(*_: object) -> None:
    return None


SettingsLoader.add_multi_constructor("tag:yaml.org,2002:python/", _left_out)  # pyright: ignore[reportUnknownMemberType] - half typed


def settings() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), SettingsLoader)  # noqa: S506 - a safe one
    return loaded


def in_nav(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from in_nav(list(cast("dict[str, object]", nav).values()))
    elif isinstance(nav, list):
        for entry in cast("list[object]", nav):
            yield from in_nav(entry)


def test_each_public_name_is_on_exactly_one_api_page() -> None:
    found = [
        name for page in DOCS.glob("reference/api/*.md") for name in API_NAME.findall(page.read_text(encoding="utf-8"))
    ]
    assert sorted(found) == sorted(lazyprompt.__all__)


def api_classes() -> Iterator[tuple[type, bool]]:
    """The public classes, and whether their pages show what they inherit."""
    for page in DOCS.glob("reference/api/*.md"):
        text = page.read_text(encoding="utf-8")
        for name, options in re.findall(r"^::: lazyprompt\.(\w+)\n((?:    .*\n)*)", text, re.MULTILINE):
            found = getattr(lazyprompt, name)
            if isinstance(found, type):
                yield found, "inherited_members: true" in options


def test_api_pages_show_members_inherited_from_private_classes() -> None:
    # The pages of modules lacked the methods that both modules share: calls, streams, conversations.
    classes = dict(api_classes())
    whole = [each for each, inherits in classes.items() if inherits]
    unseen = {
        f"{each.__name__}.{name} of {base.__qualname__}"
        for each in classes
        for base in each.__mro__
        if base.__module__.startswith("lazyprompt") and base not in classes
        if not any(shown in each.__mro__ and base in shown.__mro__ for shown in whole)
        for name in vars(base)
        if not name.startswith("_") or name == "__call__"
    }
    assert unseen == set()


def test_navigation_lists_each_page_once_and_nothing_else() -> None:
    entries = list(in_nav(settings()["nav"]))
    made = step("repository_pages")
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(entries) == sorted(set(entries))
    assert written - set(entries) == set()
    missing = [entry for entry in set(entries) - written if not (ROOT / made["path_of"](entry)).is_file()]
    assert missing == []


def test_site_settings_fetch_no_fonts_and_no_repository_data() -> None:
    assert settings()["theme"]["font"] is False
    assert "repo_url" not in settings()


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        '<link rel="preconnect" href="https://fonts.example" crossorigin>',
        '<img src="a.png" srcset="a.png 1x, https://cdn.example/a.png 2x">',
        '<img src="HTTP://cdn.example/a.png">',
        "<svg><image href='https://cdn.example/a.png'/></svg>",
        '<p style="background: url(https://cdn.example/a.png)">',
        "<style>@font-face { src: url('//cdn.example/a.woff') }</style>",
        '<style>@import "https://cdn.example/a.css";</style>',
    ],
)
def test_external_resource_in_html_is_detected(html: str) -> None:
    assert len(step("outside")["in_page"](html)) == 1


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://example.org">a link is clicked, not fetched</a>',
        '<img src="../img/a.svg"><script src="assets/a.js"></script>',
        '<img src="data:image/png;base64,AA//BB">',
        "<p>url(https://example.org) in a text</p>",
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    ],
)
def test_html_without_external_resources_passes(html: str) -> None:
    assert step("outside")["in_page"](html) == []


def test_html_css_and_svg_files_are_checked_for_external_resources(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<img src="https://cdn.example/a.png">', encoding="utf-8")
    (tmp_path / "b.css").write_text("b { src: url(https://cdn.example/a.woff) }", encoding="utf-8")
    (tmp_path / "c.svg").write_text("<svg><image href='https://cdn.example/a.png'/></svg>", encoding="utf-8")
    assert [line.partition(":")[0] for line in step("outside")["in_site"](tmp_path)] == ["a.html", "b.css", "c.svg"]


def test_docs_contain_no_external_resources() -> None:
    assert list(step("outside")["in_site"](DOCS)) == []


def test_markdown_list_that_the_site_shows_as_text_is_detected() -> None:
    differences = step("same_parts")["differences"]
    assert differences("Some:\n\n- a\n- b\n", "<p>Some:</p><ul><li>a</li><li>b</li></ul>") == []
    # Python-Markdown shows a list without an empty line before it as plain text.
    assert differences("Some:\n- a\n", "<p>Some: - a</p>") == [
        "1 <li> in its Markdown, 0 in the page",
        "1 <ul> in its Markdown, 0 in the page",
    ]


def test_escaped_bar_in_table_code_is_shown_without_backslash() -> None:
    # The page of families showed the ends of turns as <\\|im_end\\|>: Python-Markdown does not need it.
    made = step("same_parts")
    table = "| `<\\|a\\|>` |\n|---|\n"
    assert made["with_bars"](table) == "| `<|a|>` |\n|---|\n"
    assert made["with_bars"](f"```text\n{table}```\n") == f"```text\n{table}```\n"
    shown = "<table><tr><th><code>&lt;{}a{}&gt;</code></th></tr></table>"
    assert made["differences"](table, shown.format("|", "|")) == []
    assert len(made["differences"](table, shown.format("\\|", "\\|"))) == 2


ROWS = """[log](../CHANGELOG.md#new) ![how](rows.svg)

```text
[log](../CHANGELOG.md)
```

[to]: ../tool.py
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for path, text in {
        "README.md": "[rows](docs/rows.md#in) [all](examples) [site](https://example.org/docs/rows.md)\n",
        **dict.fromkeys(("README.zh.md", "CHANGELOG.md", "CONTRIBUTING.md", ".github/SECURITY.md"), ""),
        "docs/rows.md": ROWS,
        "docs/rows.svg": "",
        "docs/make_rows.py": "",
        "examples/README.md": "[one](one.py) [none](none.py)\n",
        "examples/one.py": "print('```')\n",
        "tool.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def test_repository_files_linked_from_docs_become_pages(repository: Path) -> None:
    made = step("repository_pages")["pages"](repository, ["rows.md"])
    assert set(made) == {
        *(f"repository/{name}.md" for name in ("README", "README.zh", "CHANGELOG", "CONTRIBUTING", "github/SECURITY")),
        *("repository/examples/README.md", "repository/examples/one.py.md", "repository/tool.py.md"),
    }
    assert made["repository/examples/one.py.md"].endswith("# examples/one.py\n\n````python\nprint('```')\n````\n")


def test_links_to_repository_files_lead_to_their_pages(repository: Path) -> None:
    linked = step("repository_pages")["linked"]
    rows = linked(repository, "rows.md", (repository / "docs" / "rows.md").read_text(encoding="utf-8"))
    assert "[log](repository/CHANGELOG.md#new) ![how](rows.svg)" in rows
    assert "```text\n[log](../CHANGELOG.md)\n```" in rows, "links in code are not rewritten"
    assert "[to]: repository/tool.py.md" in rows
    readme = linked(repository, "repository/README.md", (repository / "README.md").read_text(encoding="utf-8"))
    assert readme == "[rows](../rows.md#in) [all](examples/README.md) [site](https://example.org/docs/rows.md)\n"
    # A broken link stays as it is, and mkdocs warns about it.
    assert linked(repository, "repository/examples/README.md", "[none](none.py)") == "[none](none.py)"
