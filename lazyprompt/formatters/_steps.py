"""The steps from turns as they were read to turns that keep a provider's rules: a table, in the order they are done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lazyprompt.formatters._carry import add_urls, carry
from lazyprompt.formatters._exchanges import order_exchanges
from lazyprompt.formatters._merge import merge_speakers
from lazyprompt.formatters._repair import (
    add_user_turns,
    answer_results,
    fit_names,
    ids_fit,
    join_neighbours,
    move_media,
    put_system_first,
    strip_last_space,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.formatters._job import Job
    from lazyprompt.formatters._turns import Turn


@dataclass(frozen=True, slots=True)
class Step:
    """A rule from turns to turns.

    Attributes:
        run: Puts right what breaks the rule, and reports it; all other turns stay as they are.
        needed: Tells from the reading and the profile if anything can break the rule.
    """

    run: Callable[[list[Turn], Job], list[Turn]]
    needed: Callable[[Job], object]


STEPS = (
    Step(add_urls, lambda job: job.reading.urls),
    Step(carry, lambda job: job.reading.unusual or not job.profile.calls_tools),
    Step(order_exchanges, lambda job: job.reading.unordered or job.reading.media_in_results),
    Step(put_system_first, lambda job: job.reading.has_late_system),
    Step(merge_speakers, lambda job: job.merging),
    Step(fit_names, lambda job: job.profile.names or job.reading.unordered or not ids_fit(job.reading.ids, job)),
    Step(move_media, lambda job: job.reading.media_in_results),
    Step(answer_results, lambda job: job.profile.answers_results),
    Step(join_neighbours, lambda job: job.profile.alternate),
    Step(add_user_turns, lambda _: True),
    Step(strip_last_space, lambda job: not job.profile.trailing_space),
)


def keep_rules(job: Job) -> list[Turn]:
    """Return the turns of a conversation as the provider takes them."""
    turns = job.reading.turns
    for step in STEPS:
        if step.needed(job):
            turns = step.run(turns, job)
    return turns
