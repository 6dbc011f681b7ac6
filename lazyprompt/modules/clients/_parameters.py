"""Parameters of a call, checked before anything is sent.

The official clients answer an unknown parameter with a ``TypeError``, or pass it on to a server that ignores it.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING

from lazyprompt.errors import ModuleError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The parameters that modules know by themselves: every client takes them, or says why it does not.
COMMON = frozenset(("temperature", "top_p", "max_tokens", "stop", "seed"))
# Advice for clients that pass fields of the server's own on.
EXTRA_BODY = ", or give what only the server knows in extra_body={{{name!r}: ...}}"
# Similarity from which a name counts as a misspelling where any other name is allowed ("top_k" and "top_p" have 0.8).
_MISSPELT = 0.85
_LIKELY = 0.6


def check_parameters(given: Iterable[str], method: Callable[..., object], name: str, *, advice: str = "") -> None:
    """Refuse a parameter that a method of a client does not take.

    A method that takes any keyword refuses only what looks like a misspelling of one of its own.

    Args:
        given: The names of the parameters.
        method: The method of the official client.
        name: The method's name, for the message.
        advice: The way to send what only the server knows, for the message; ``{name}`` is the parameter.

    Raises:
        ModuleError: The method takes no such parameter.
    """
    parameters = signature(method).parameters.values()
    known = {each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD} - {"self"}
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    for unknown in given:
        if unknown in known:
            continue
        near = None if unknown in COMMON else nearest(unknown, known | COMMON, _MISSPELT if takes_any else _LIKELY)
        if near is not None or not takes_any:
            meant = f" (did you mean {near!r}?)" if near else ""
            raise ModuleError(f"{name} takes no {unknown!r}{meant}; leave it out{advice.format(name=unknown)}")
