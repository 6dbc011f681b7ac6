"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# Roles for instructions from the application's developer.
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
# Role names that LangChain accepts in (role, content) tuples.
LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
