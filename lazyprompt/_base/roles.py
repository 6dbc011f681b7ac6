"""The roles of messages."""

from typing import Literal, TypeAlias, get_args

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
# The developer writes what these roles say.
SYSTEM_ROLES: tuple[Role, ...] = ("system", "developer")
