"""Write docs/reference/blocks.md from the profiles of the providers.

python docs/make_blocks.py
"""

from __future__ import annotations

from pathlib import Path

from lazyprompt.formatters.providers import HEADERS, profile_of, rows

ROOT = Path(__file__).parents[1]
HEAD = """# What each provider takes

Read out of the [profiles](providers.md); a test proves each cell. `lazyprompt list providers` prints the same table.

- Media: `url` by address, `data` as base64. *also in results*: a tool's result may hold it; *after results*: it follows
  in a user's turn behind all results of the exchange. Whatever a provider takes as data only can be loaded from an
  address or a file with `media=MediaResolver(...)`.
- `thinking`: the thoughts that go back to the provider: those it signed, those it gave an id, or all as text.
- `system`: where system text may stand: in any turn, first and only first, or apart from the messages.
- What is not taken is left out and named in the payload's report.
"""


def page() -> str:
    """The whole page."""
    found = rows()
    blocks, rules = HEADERS[1:9], HEADERS[9:]
    parts = [HEAD]
    for title, columns in (("Blocks", blocks), ("Rules", rules)):
        lines = [f"\n## {title}\n", f"| provider | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
        lines += [f"| {row.provider} | {' | '.join(row.cells[column] for column in columns)} |" for row in found]
        parts.append("\n".join(lines) + "\n")
    parts.append("\n## Sources\n\n")
    parts += [f"- {row.provider}: <{profile_of(row.provider).source}>\n" for row in found]
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "reference" / "blocks.md").write_text(page(), encoding="utf-8")
