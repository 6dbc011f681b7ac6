"""The rule that merges messages from several speakers into one user turn.

Each message begins on a new line with its speaker's name. Message text can neither forge the start of another message
nor close the tags around the history. If any line after the first looks like the start of a message, all lines after
the first are indented. In message text, tags such as ``<history>`` are escaped with a backslash.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt.formatters._repair import join_contents
from lazyprompt.messages.msg import Block, TextBlock, ThinkingBlock
from lazyprompt.messages.turns import blocks_of, calls_tools
from lazyprompt.safety.folding import SEEN, as_read, origins
from lazyprompt.safety.speakers import COLONS, FRAME_WORDS, LINE_ENDS, letters_of, written_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.roles import Role
    from lazyprompt.formatters._job import Job
    from lazyprompt.formatters.profile import HistoryLayout, HistoryStyle
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.turns import Content, Turn

    Names: TypeAlias = dict[tuple[str, str], str]

TAGS_HEADING = (
    "# Conversation History\nThe content between <history></history> tags contains your conversation history\n"
)


class _Frame(NamedTuple):
    """The heading and the tags that surround a merged history.

    Attributes:
        heading: The heading before the opening tag.
        opening: The opening tag and a newline; empty for a style without tags.
        closing: A newline and the closing tag; empty for a style without tags.
        repeats: True to write the heading before every merged history; False to write the heading only before the first
            one.
    """

    heading: str
    opening: str
    closing: str
    repeats: bool


_FRAMES: dict[HistoryStyle, _Frame] = {
    "tags": _Frame(TAGS_HEADING, "<history>\n", "\n</history>", repeats=False),
    "conversation": _Frame("## Conversation History\n", "", "", repeats=True),
    "dialogue": _Frame("## Dialogue History\n", "", "", repeats=True),
}
STYLES = tuple(_FRAMES)

_TAG = re.compile(r"<\s*+/?\s*+history", re.IGNORECASE)
# A fast check: text that doesn't match contains no tag and only one line, so it can't forge a turn.
_MAY_FORGE = re.compile(f"[<\u226e\ufe64\uff1c{LINE_ENDS}]")
_LINE_END = re.compile(f"(\r\n|[{LINE_ENDS}])")
_COLON = re.compile(f"[{COLONS}]")
_STAYING = frozenset(("tool", "system", "developer"))
# The maximum length of text that could look like a speaker's name or a heading.
_LONGEST_NAME = 300


def merge_speakers(turns: list[Turn], job: Job) -> list[Turn]:
    """Merge each run of messages into one user turn; system text, tool calls and tool results stay separate turns.

    Earlier rules have already moved system text to the front and tool results directly after their calls.
    """
    merging, notes = job.merging, job.notes
    if merging is None or not (merging.single or sum(turn[0] != "system" for turn in turns) > 1):
        return turns
    layout, frame = merging.layout, _FRAMES[merging.style]
    if merging.heading is not None:
        frame = frame._replace(heading=merging.heading)
    names = written_names(turn[:2] for turn in turns)
    new: list[Turn] = []
    for stays, group in groupby(turns, lambda turn: turn[0] in _STAYING or calls_tools(turn[2])):
        run = [*group]
        if stays:
            new += run
        else:
            new.append(("user", "", _history(run, names, frame, layout, notes), run[0][3]))
            frame = frame if frame.repeats else frame._replace(heading="")
    return _with_system(new, layout)


def _with_system(turns: list[Turn], layout: HistoryLayout) -> list[Turn]:
    """Join the system text and the first user turn of a merged conversation into one turn if the layout requires it."""
    if layout.system == "own" or not turns:
        return turns
    has_system = turns[0][0] != "user"
    head = turns[: 2 if has_system else 1]
    if head[-1][0] != "user":
        # If a tool call or tool result follows the system text, keep the system text as a separate turn.
        return turns
    content = _one_text(head[0][2], head[1][2], layout.join) if has_system else head[0][2]
    role: Role = "system" if layout.system == "host" else "user"
    return [(role, "", content, head[-1][3]), *turns[len(head) :]]


def _one_text(first: Content, second: Content, between: str) -> Content:
    """Join two contents, merging the two text blocks that meet at the boundary."""
    if not (first and second) or (isinstance(first, str) and isinstance(second, str)):
        return join_contents(first, second, between)
    before, behind = blocks_of(first), blocks_of(second)
    if isinstance(before[-1], TextBlock) and isinstance(behind[0], TextBlock):
        return (*before[:-1], TextBlock(before[-1].text + between + behind[0].text), *behind[1:])
    return (*before, *behind)


def _history(run: list[Turn], names: Names, frame: _Frame, layout: HistoryLayout, notes: Notes) -> Content:
    """Render a run of messages as a history: as a string if it contains no media, or as blocks otherwise."""
    before, after = frame.heading + frame.opening, frame.closing
    blocks: list[Block] = []
    media: list[Block] = []
    lines: list[str] = []
    for piece in _pieces(run, names, notes):
        if isinstance(piece, str):
            lines.append(piece)
        elif layout.media_last:
            media.append(piece)
        else:
            blocks += [TextBlock(before + "\n".join(lines)), piece] if lines else [piece]
            before, lines = "", []
    if not blocks:
        text = before + "\n".join(lines) + after
        return (TextBlock(text), *media) if media else text
    end = "\n".join(lines) + after
    return (*blocks, TextBlock(end.lstrip("\n") if not lines else end)) if end else tuple(blocks)


def _pieces(run: list[Turn], names: Names, notes: Notes) -> Iterator[str | Block]:
    """Convert messages to text lines and media blocks; each message begins with a line that names its speaker."""
    for role, name, content, at in run:
        speaker = names[role, name]
        if name and speaker != name:
            notes.add(f"messages[{at}].name", "name", "changed", f"{name!r} is written {speaker!r}", name)
        if isinstance(content, str):
            yield f"{speaker}: {_inert(content, at, notes)}"
            continue
        spoke = False
        for block in content:
            if isinstance(block, TextBlock):
                yield f"{speaker}: {_inert(block.text, at, notes)}"
            elif isinstance(block, ThinkingBlock):
                why = "a merged history contains no reasoning"
                notes.add(f"messages[{at}]", "thinking", "left out", why, block.thinking)
                continue
            else:
                if not spoke:
                    yield f"{speaker}:"
                yield block
            spoke = True


def inert_text(text: str) -> str:
    """Escape message text so that it can neither forge the start of a message nor close the history.

    Args:
        text: The text of a message.

    Returns:
        The message text, in which history tags and lines that look like the start of a message are escaped. Tags and
        lines that are disguised with Unicode lookalikes are escaped too.
    """
    if not _MAY_FORGE.search(text):
        return text
    safe = _with_broken_tags(text)
    return _LINE_END.sub(r"\1  ", safe) if any(map(_opens, text.splitlines()[1:])) else safe


def _with_broken_tags(text: str) -> str:
    """Insert a backslash after the ``<`` of each history tag."""
    tags = (tag.start() for tag in _TAG.finditer(text.translate(SEEN)))
    pieces: list[str] = []
    done = 0
    for tag in origins(text, tags, SEEN):
        pieces += text[done : tag + 1], "\\"
        done = tag + 1
    return "".join(pieces) + text[done:]


def _opens(line: str) -> bool:
    """Return True if a line is not indented and could be mistaken for the start of a message or for a heading."""
    if not line or line[0] in f" \t{COLONS}":
        return False
    seen = " ".join(as_read(_COLON.sub(":", line)).split())
    return (
        seen.startswith("#")
        or 0 <= seen.find(":") <= _LONGEST_NAME
        or (len(seen) <= _LONGEST_NAME and letters_of(seen) in FRAME_WORDS)
    )


def _inert(text: str, at: int, notes: Notes) -> str:
    safe = inert_text(text)
    if safe != text:
        notes.add(f"messages[{at}].content", "text", "changed", "it could be read as a separate message", text)
    return safe
