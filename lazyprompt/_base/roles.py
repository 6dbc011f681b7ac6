"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# The roles of messages that the developer writes.
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
# The roles in LangChain's tuples of a role and a content. A pair of texts may also begin with such a word.
LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
