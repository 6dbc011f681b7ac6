"""The job of a run that asks a model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lazyprompt.batch.rates import Rates
from lazyprompt.errors import BatchError
from lazyprompt.modules.online import OnlineChatModule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.run import BatchJob
    from lazyprompt.modules.trainable import TrainableModule


@dataclass(frozen=True, slots=True)
class CallJob:
    """What is asked of a model.

    Args:
        job: Which rows, how they become prompts, and where the answers go; its plan's form is of no interest. With a
            file of rejects, rows that are refused go there; without it the first of them ends the run. Its counter
            counts the tokens of prompts before they are sent, where those of a minute are limited.
        module: The model. The plan's prompter is attached to it.
        rates: How much is asked at once, and in a minute.
        params: Further parameters of each call.
    """

    job: BatchJob
    module: OnlineChatModule | TrainableModule
    rates: Rates = field(default_factory=Rates)
    params: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    def asked(self) -> JsonObject:
        """What the answers depend on, by the names that messages use.

        How fast rows are asked is not among it, nor what counts tokens for that: these may change between runs.

        Raises:
            BatchError: The rows cannot be read; or a parameter is no JSON.
        """
        try:
            params: JsonObject = json.loads(json.dumps(dict(self.params), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BatchError(f"the parameters of calls are not JSON: {error}") from error
        asked = {name: value for name, value in self.job.asked().items() if name != "--tokens"}
        return {**asked, "the model": _named(self.module), "the parameters of calls": params}


def _named(module: OnlineChatModule | TrainableModule) -> str:
    """A model, in any process the same; where a local one listens is another place each time."""
    if isinstance(module, OnlineChatModule):
        return f"{module.source.name} {module.model}"
    return module.base_model
