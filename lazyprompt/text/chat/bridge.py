"""The next turn without rendering the history again: ids that begin with exactly what the engine saw and said.

An engine keeps what it has computed for ids that it has seen. Rendered and encoded again, a model's own words seldom
become the ids that it said: ``false`` comes back as ``False``, a space moves. So what was seen and said stays as it is,
and only what a template writes behind it is added: the end of the turn, the new messages, the generation prompt.

That is right only where a template, given one more message, goes on with what it wrote before. Many do not: they take
the thoughts out of earlier turns, or move the tools. Each is tried out on small chats, with thoughts and without, with
calls and without, once for every kind of new messages; what the trials do not prove is refused, with the reason.

Source of the idea: PrimeIntellect's renderers (``bridge``), which has it by hand for some twenty models.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from operator import index
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.encoding import encode
from lazyprompt.errors import TemplateError
from lazyprompt.text.chat.jinja import TOOL
from lazyprompt.text.chat.traced import Origin, parts_of, trace
from lazyprompt.text.chat.untrusted import rendered_with_origins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tiktoken
    import tokenizers

    from lazyprompt.encoding import TokenizerLike
    from lazyprompt.text.chat.jinja import ChatJinja
    from lazyprompt.text.safety import Controls, Safety
