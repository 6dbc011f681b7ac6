"""What mkdocs does beside its own work when it builds the manual; each step is in a module of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import outside
import repository_pages
import same_parts
from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, InclusionLevel
from mkdocs.utils.meta import get_data

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_LOG = get_plugin_logger("manual")
# The tests read a second word behind a block's language; mkdocs takes one.
_SECOND_WORD = re.compile(r"^(```\w+) [\w ]+$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made of files of the repository."""
    written = [each.src_uri for each in files.documentation_pages()]
    for place, text in repository_pages.pages(_root(config), written).items():
        files.append(File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs gives all
    """Let links out of docs lead to the pages made of what they mean, and rows be read as in the repository."""
    linked = repository_pages.linked(_root(config), page.file.src_uri, _SECOND_WORD.sub(r"\1", markdown))
    return same_parts.with_bars(linked)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:  # noqa: ARG001 - mkdocs gives all
    """Warn where a page is another than where the repository is read; a warning ends the build."""
    written, _ = get_data(page.file.content_string)
    if "\n::: " not in written:
        for line in same_parts.differences(written, html):
            _LOG.warning("%s: %s", page.file.src_uri, line)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - mkdocs gives all
    """Say the language of a Chinese page, for who reads it aloud and who draws its signs."""
    if page.file.src_uri.endswith(".zh.md"):
        return output.replace('<html lang="en"', '<html lang="zh-Hans"', 1)
    return output


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a manual that fetches anything from outside.

    Raises:
        PluginError: It does; each reference is named.
    """
    found = list(outside.in_site(Path(config.site_dir)))
    if found:
        raise PluginError("the manual must work without a network, and fetches from outside:\n" + "\n".join(found))


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent
