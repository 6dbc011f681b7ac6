"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# The developer writes what these roles say.
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
# The first items of LangChain's tuples of a role and a content, which may be pairs of question and answer as well.
LANGCHAIN_WORDS = frozenset(
    {"human", "user", "ai", "assistant", "system", "developer", "tool", "function", "placeholder"}
)
