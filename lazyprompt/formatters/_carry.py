"""Rules that keep, change or drop content blocks according to what the provider accepts, and report each change.

The first pass only collects the URLs of media to load. After the media are loaded, a second pass replaces the collected
URLs with the loaded data.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING

from lazyprompt.errors import MediaError
from lazyprompt.media.fetch import check_url
from lazyprompt.media.resolver import MediaResolver, checked_source, is_local, media_type_of, usual_type
from lazyprompt.messages.msg import (
    Base64Source,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    block_of_media,
)
from lazyprompt.messages.openai_form import source_of
from lazyprompt.messages.turns import blocks_of, calls_tools

if TYPE_CHECKING:
    from lazyprompt._base.roles import Role
    from lazyprompt.formatters._job import Job
    from lazyprompt.formatters.profile import Media
    from lazyprompt.messages.msg import Block, Source
    from lazyprompt.messages.turns import Content, Turn


def add_urls(turns: list[Turn], job: Job) -> list[Turn]:
    """Append the media in each message's ``url`` field to the content of the message's turn.

    A URL without a known suffix is treated as an image.
    """
    if not any(message.url is not None for message in job.messages):
        return turns
    return [turn if job.messages[turn[3]].url is None else _with_urls(turn, job) for turn in turns]


def _with_urls(turn: Turn, job: Job) -> Turn:
    role, name, content, at = turn
    blocks: list[Block] = []
    for index, url in enumerate(job.messages[at].urls):
        block = block_of_media(source_of(url), media_type_of(url) or "image/*")
        if block.kind in job.profile.url_media:
            blocks.append(block)
        else:
            why = f"{job.profile.name} does not accept {block.kind} as the url"
            job.notes.add(f"messages[{at}].url[{index}]", block.kind, "left out", why, url)
    return (role, name, (*blocks_of(content), *blocks), at) if blocks else turn


def _fits(rule: Media, role: Role) -> bool:
    return {"assistant": rule.assistant, "system": rule.system, "developer": rule.system}.get(role, True)


def _loads_itself(source: Source, rule: Media, resolver: MediaResolver | None, where: str) -> bool:
    """Return True if the provider loads a media source itself, so that its URL is sent."""
    if isinstance(source, Base64Source):
        return False
    url = source.url
    if not url:
        raise MediaError(f"{where} has neither a URL nor base64 data; add one of them")
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme in ("http", "https"):
        if rule.url:
            check_url(url, where) if resolver is None else resolver.check(url, where)
        return rule.url
    if scheme in rule.schemes or (rule.opaque and not scheme and not is_local(url)):
        return True
    if not is_local(url):
        # Omit the URL's query string, which may contain a secret.
        address = url.partition("?")[0]
        raise MediaError(f"{where} has the unsupported URL {address!r}; expected http(s), a local path or base64 data")
    if resolver is None:
        raise MediaError(
            f"{where} is the local file {url!r}, but local files are not allowed; allow its directory with "
            f"media=MediaResolver(roots=[...]), or read it yourself, for example with ImageBlock.from_file({url!r})"
        )
    return False


def carry(turns: list[Turn], job: Job) -> list[Turn]:
    """Drop or change blocks that the provider does not support, and drop turns without content.

    Raises:
        MediaError: A media file's content doesn't match its type, or its source is not allowed.
    """
    carrier = _Carrier(job)
    kept: list[Turn] = []
    for turn in turns:
        new = turn if carrier.takes(turn[2]) else carrier.turn(turn)
        if new is None:
            job.notes.add(f"messages[{turn[3]}]", "message", "left out", "it has no content left")
        else:
            kept.append(new)
    return kept


class _Carrier:
    """A helper that applies a provider's rules to the blocks in a conversation."""

    def __init__(self, job: Job) -> None:
        self.job, self.profile, self.notes = job, job.profile, job.notes

    def takes(self, content: Content) -> bool:
        """Return True if content consists only of text, tool calls and text results that can be sent unchanged."""
        if isinstance(content, str):
            return bool(content) and not content.isspace()
        return bool(content) and self.profile.calls_tools and all(map(_is_plain, content))

    def turn(self, turn: Turn) -> Turn | None:
        """Return a turn with only supported content, or None if no content is left."""
        profile, (role, name, content, at) = self.profile, turn
        # Native content is sent unchanged, except for media in user and tool messages.
        is_native = self.job.native(turn) is not None
        if is_native and (role == "assistant" or not any(isinstance(each, MediaBlock) for each in blocks_of(content))):
            return turn
        if isinstance(content, str):
            text = self.text(content, f"messages[{at}].content")
            return (role, name, text, at) if text or (profile.empty_text and not content) else None
        # Merging turns an assistant message into user text, so its media must follow the rules for user media.
        merges = self.job.merging is not None and role == "assistant" and not calls_tools(content)
        blocks = [
            block
            for index, given in enumerate(content)
            for block in self.block(given, role, "user" if merges else role, f"messages[{at}].content[{index}]")
        ]
        # Providers with signed reasoning reject a turn that ends with a thinking block.
        needs_end = profile.thinking != "text" or not profile.empty_text
        if is_native and len(blocks) == len(content) and all(map(is_, blocks, content)):
            return turn
        while blocks and isinstance(last := blocks[-1], ThinkingBlock) and needs_end:
            self.notes.add(f"messages[{at}]", "thinking", "left out", "nothing follows the reasoning", last.thinking)
            blocks.pop()
        # If the provider accepts empty text, keep turns that contain only empty text blocks.
        empty = profile.empty_text and content and all(isinstance(block, TextBlock) for block in content)
        return (role, name, tuple(blocks) or "", at) if blocks or empty else None

    def text(self, text: str, where: str) -> str:
        """Return the text of a message or block, or ``""`` if the text is blank and the provider rejects blank text."""
        if self.profile.empty_text or not text or not text.isspace():
            return text
        self.notes.add(where, "text", "changed", f"{self.profile.name} does not accept blank text", text)
        return ""

    def block(self, block: Block, role: Role, whose: Role, where: str) -> tuple[Block, ...]:
        """Adapt a block to the provider and return it in a tuple, which is empty if the provider rejects the block."""
        kept: Block | None = block
        match block:
            case TextBlock(text, signature=signature):
                if signature and not self._signed(where):
                    kept = block = TextBlock(text)
                kept = block if self.text(text, where) or block.signature else None
            case ThinkingBlock():
                kept = block if self._thinks(block, role, where) else None
            case ToolUseBlock() | ToolResultBlock() if not self.profile.calls_tools:
                why = f"{self.profile.name} does not support tools"
                self.notes.add(where, block.kind, "left out", why, _text_in(block))
                kept = None
            case ToolUseBlock():
                kept = self._call(block, where)
            case ToolResultBlock(is_error=True) if not self.profile.error_results:
                why = f"{self.profile.name} does not support error results"
                self.notes.add(where, "tool_result", "changed", why)
                return self.block(replace(block, is_error=False), role, whose, where)
            case ToolResultBlock(output=tuple(output)):
                inner = [new for at, each in enumerate(output) for new in self._inner(each, f"{where}.output[{at}]")]
                kept = replace(block, output=tuple(inner))
            case ToolResultBlock():
                pass
            case _:
                return self.medium(block, whose, where)
        return () if kept is None else (kept,)

    def _inner(self, block: Block, where: str) -> tuple[Block, ...]:
        if isinstance(block, TextBlock):
            return (block,) if block.text else ()
        if isinstance(block, MediaBlock):
            return self.medium(block, "user", where)
        self.notes.add(where, block.kind, "left out", "a result can only contain text and media", _text_in(block))
        return ()

    def _signed(self, where: str) -> bool:
        if not self.profile.signs_parts:
            self.notes.add(where, "signature", "left out", f"{self.profile.name} does not sign texts and calls")
        return self.profile.signs_parts

    def _call(self, call: ToolUseBlock, where: str) -> ToolUseBlock:
        if call.raw_input is not None:
            why = "the arguments are not a JSON object, so they are sent under raw_input"
            self.notes.add(where, "tool_use", "changed", why)
        return replace(call, signature=None) if call.signature and not self._signed(where) else call

    def _thinks(self, block: ThinkingBlock, role: Role, where: str) -> bool:
        """Return True if a thinking block can be sent to the provider."""
        wanted, mine = self.profile.thinking, block.provider in (None, self.profile.name)
        empty = not (block.thinking or block.signature or block.redacted or block.id)
        reason = {
            "none": f"{self.profile.name} does not accept reasoning",
            "text": "" if block.thinking or empty else "it has no text",
            "own": ""
            if block.thinking and block.provider == self.profile.name
            else f"{self.profile.name} did not send it",
            "signed": "" if mine and (block.signature or block.redacted) else f"{self.profile.name} did not sign it",
            "items": "" if mine and block.id else f"it has no id from {self.profile.name}",
        }[wanted]
        if role != "assistant":
            reason = f"a message with the role {role} cannot contain reasoning"
        if reason and not empty:
            self.notes.add(where, "thinking", "left out", reason, block.thinking)
        return not reason

    def medium(self, block: MediaBlock, role: Role, where: str) -> tuple[Block, ...]:
        """Return a one-item tuple of the block with a source that the provider accepts, or ``()`` to omit the block."""
        name, kind = self.profile.name, block.kind
        rule = self.profile.media.get(block.type)
        address = block.source.url if isinstance(block.source, URLSource) else ""
        if rule is None or not _fits(rule, role):
            whose = "" if rule is None else f" from the {role}"
            self.notes.add(where, kind, "left out", f"{name} does not accept {kind}{whose}", address)
            return ()
        if _loads_itself(block.source, rule, self.job.resolver, where):
            return (block,)
        if not rule.data or (address and self.job.resolver is None):
            way = (
                f"{name} does not accept {kind} by URL; pass media=MediaResolver(hosts=[...]) to load it"
                if address and rule.data
                else f"{name} does not accept {kind} {'by URL' if address else 'as data'}"
            )
            self.notes.add(where, kind, "left out", way, address)
            return ()
        if isinstance(block.source, URLSource) and self.job.wanted is not None:
            self.job.wanted.setdefault(block.source, where)
            return ()
        given = self.job.loaded[block.source] if isinstance(block.source, URLSource) else block.source
        source = checked_source(given, kind, where)
        if given.media_type in rule.types and usual_type(given.media_type) == source.media_type:
            # If the provider accepts an alias of the MIME type, keep the alias.
            source = source if source.media_type == given.media_type else replace(source, media_type=given.media_type)
        if source.media_type != given.media_type:
            self.notes.add(where, kind, "changed", f"its MIME type is {source.media_type}, not {given.media_type}")
        if not rule.takes(source.media_type):
            takes = ", ".join(rule.types)
            self.notes.add(where, kind, "left out", f"{name} accepts {takes}, not {source.media_type}", address)
            return ()
        return (block if source is block.source else replace(block, source=source),)


def _is_plain(block: Block) -> bool:
    match block:
        case TextBlock(text, signature=None):
            return bool(text) and not text.isspace()
        case ToolUseBlock(raw_input=None, signature=None):
            return True
        case ToolResultBlock(output=str(), is_error=False):
            return True
        case _:
            return False


def _text_in(block: ThinkingBlock | ToolUseBlock | ToolResultBlock) -> str:
    match block:
        case ThinkingBlock(thinking):
            return thinking
        case ToolResultBlock():
            return block.text
        case ToolUseBlock():
            return str(block.arguments)
