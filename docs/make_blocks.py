"""Write docs/reference/blocks.md from the providers' profiles.

python docs/make_blocks.py
"""

from __future__ import annotations

from pathlib import Path

from lazyprompt.formatters.providers import HEADERS, profile_of, rows

ROOT = Path(__file__).parents[1]
HEAD = """# Provider support

These tables list the content that each provider accepts, and the provider's message rules. `lazyprompt list providers`
prints the tables. Unsupported content is omitted and listed in the payload's
[report](providers.md#repairs-and-the-report).

- *image* to *file*: `url` means that media are sent by URL, and `data` as base64. With *also in results*, tool results
  can contain media; with *after results*, media from tool results are sent in a user turn after all results.
  `media=MediaResolver(...)` loads URLs and files as data.
- *thinking*: the thinking blocks sent back: signed blocks, blocks with an id, or all blocks as text.
- *system*: where system text is allowed: anywhere, first, or separate from the messages.
- *cache*: the positions of explicit cache breakpoints.
"""


def page() -> str:
    """Return the page."""
    found = rows()
    blocks, rules = HEADERS[1:9], HEADERS[9:]
    parts = [HEAD]
    for title, columns in (("Content", blocks), ("Rules", rules)):
        lines = [f"\n## {title}\n", f"| provider | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
        lines += [f"| {row.provider} | {' | '.join(row.cells[column] for column in columns)} |" for row in found]
        parts.append("\n".join(lines) + "\n")
    parts.append("\n## Sources\n\n")
    parts += [f"- {row.provider}: <{profile_of(row.provider).source}>\n" for row in found]
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "reference" / "blocks.md").write_text(page(), encoding="utf-8")
