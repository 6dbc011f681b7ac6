"""AgentScope's message classes: blocks that are dicts, and ``Msg`` with the methods of AgentScope 1."""
# ruff: noqa: D101 - the block classes differ only in their fields and are laid out as a table

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast
from uuid import uuid4

from lazyprompt.messages import msg as messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Role: TypeAlias = Literal["user", "assistant", "system"]
# AgentScope's dict key for Gemini's thought signature.
_SIGNATURE = "thought_signature"


class Block(dict[str, Any]):
    """An AgentScope 1 content block: a dict whose keys are also attributes.

    Args:
        values: The field values, in the order of ``names``.
        fields: The field values by name; ``type`` may be omitted.
    """

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, kind: str, names: str) -> None:
        cls.kind, cls.names = kind, tuple(names.split())
        cls.__doc__ = f"AgentScope's {cls.__name__}: a dict with ``type`` and ``{'``, ``'.join(cls.names)}``."

    def __init__(self, *values: object, **fields: object) -> None:
        super().__init__({"type": self.kind, **dict(zip(self.names, values, strict=False)), **fields})

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the field holds
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self.get('type')} block has no field {name!r}, only {', '.join(self)}") from None

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), dict(self))


def _rebuilt(kind: type[Block], fields: dict[str, Any]) -> Block:
    return kind(**fields)


# fmt: off
class AgentScopeURLSource(Block, kind="url", names="url"): ...
class AgentScopeBase64Source(Block, kind="base64", names="media_type data"): ...
class AgentScopeTextBlock(Block, kind="text", names="text"): ...
class AgentScopeThinkingBlock(Block, kind="thinking", names="thinking"): ...
class AgentScopeToolUseBlock(Block, kind="tool_use", names="id name input"): ...
class AgentScopeToolResultBlock(Block, kind="tool_result", names="id name output"): ...
class AgentScopeImageBlock(Block, kind="image", names="source"): ...
class AgentScopeAudioBlock(Block, kind="audio", names="source"): ...
class AgentScopeVideoBlock(Block, kind="video", names="source"): ...
# fmt: on

ContentBlock: TypeAlias = "Mapping[str, Any] | messages.Block"


class AgentScopeMsg:
    """An AgentScope 1 message, which is mutable.

    Args:
        name: The speaker's name.
        content: The text, or a list of blocks.
        role: The role, which is ``user``, ``assistant`` or ``system``.
        metadata: A mapping of JSON values that are not sent to the provider.
        timestamp: The time of the message, such as ``2026-01-31 09:30:00.000``; defaults to the current time.
        invocation_id: The id of the API call.
        url: The URL or URLs of image, audio or video files, as in AgentScope 0.x.

    Raises:
        HistoryError: A field has the wrong type.
    """

    def __init__(
        self,
        name: str,
        content: str | Sequence[ContentBlock],
        role: Role,
        metadata: Mapping[str, Any] | None = None,
        timestamp: str | None = None,
        invocation_id: str | None = None,
        *,
        url: str | Sequence[str] | None = None,
    ) -> None:
        self.name, self.content, self.url = name, content, url
        self.role: Role = role
        self.metadata = dict(metadata or {})
        self.id = uuid4().hex
        self.timestamp = timestamp or datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        self.invocation_id = invocation_id
        self.to_message()  # validate early, so that errors are raised when the message is created

    def to_message(self) -> messages.Msg:
        """Return the message as a :class:`lazyprompt.Msg`.

        Raises:
            HistoryError: A field has the wrong type.
        """
        content = self.content if isinstance(self.content, str) else [_plain(block) for block in self.content]
        return messages.Msg(self.name, content, self.role, self.url)

    def to_dict(self) -> dict[str, Any]:
        """Return the message as a dict of JSON values."""
        content = self.content if isinstance(self.content, str) else list(self.content)
        fields = ("id", "name", "role", "metadata", "timestamp", "invocation_id")
        return {"content": content, **{field: getattr(self, field) for field in fields}}

    @classmethod
    def from_dict(cls, json_data: Mapping[str, Any]) -> AgentScopeMsg:
        """Create a message from a dict that :meth:`to_dict` returned.

        Args:
            json_data: The dict; the keys ``id``, ``metadata``, ``timestamp`` and ``invocation_id`` may be missing.

        Raises:
            KeyError: The name, content or role is missing.
            HistoryError: A field has the wrong type.
        """
        further = {key: json_data.get(key) for key in ("metadata", "timestamp", "invocation_id")}
        made = cls(json_data["name"], json_data["content"], json_data["role"], **further)
        made.id = json_data.get("id", made.id)
        return made

    def get_text_content(self, separator: str = "\n") -> str | None:
        """Return the message's text, or None if it contains no text blocks.

        Args:
            separator: The separator between text blocks.
        """
        texts = [block["text"] for block in self.get_content_blocks("text")]
        return separator.join(texts) if texts else None

    def get_content_blocks(self, block_type: str | Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Return the message's blocks; plain text is returned as a single text block.

        Args:
            block_type: The block type or types to return; None for all blocks.
        """
        if isinstance(self.content, str):
            blocks: list[dict[str, Any]] = [{"type": "text", "text": self.content}]
        else:
            blocks = cast("list[dict[str, Any]]", list(self.content))
        if block_type is None:
            return blocks
        wanted = {block_type} if isinstance(block_type, str) else set(block_type)
        return [block for block in blocks if block["type"] in wanted]

    def has_content_blocks(self, block_type: str | Iterable[str] | None = None) -> bool:
        """Return True if the message contains a block of one of the given types.

        Args:
            block_type: The block type or types to look for; None to look for a block of any type.
        """
        return bool(self.get_content_blocks(block_type))

    def __repr__(self) -> str:
        return f"Msg(name={self.name!r}, content={self.content!r}, role={self.role!r})"


def _plain(block: ContentBlock) -> messages.BlockLike:
    """Return a block after renaming AgentScope's key for Gemini's thought signature to ``signature``."""
    if not isinstance(block, dict) or _SIGNATURE not in block:
        return block
    return {"signature" if name == _SIGNATURE else name: value for name, value in block.items()}
