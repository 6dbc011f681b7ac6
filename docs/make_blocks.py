"""Write docs/reference/blocks.md from the profiles of the providers.

python docs/make_blocks.py
"""

from __future__ import annotations

from pathlib import Path

from lazyprompt.formatters.providers import HEADERS, profile_of, rows

ROOT = Path(__file__).parents[1]
HEAD = """# Which provider takes images, audio, tools, thinking and names

`lazyprompt list providers` prints this table. Content that a provider does not take is left out and named
in the payload's [report](providers.md).

- Media: `url` by address, `data` as base64. *also in results*: inside a tool result; *after results*: in a user turn
  after all results. `media=MediaResolver(...)` loads addresses and files as data.
- `thinking`: thoughts that are sent back: signed ones, those with an id, or all as text.
- `system`: where system text may be: anywhere, first, or apart from the messages.
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
