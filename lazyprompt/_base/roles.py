"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# Roles reserved for messages written by the developer.
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
# Roles that LangChain accepts in (role, content) tuples; ordinary pairs of texts can also start with these words.
LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
