"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
