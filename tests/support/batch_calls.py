"""Batch rows that call a fake server, which records its requests with their times."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lazyprompt import ChatPrompter, OnlineChatModule
from lazyprompt._base.json import Json
from lazyprompt.batch.calls import CallJob
from lazyprompt.batch.rates import Rates
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob
from support.client_scenes import KEY, TIMEOUT
from support.model_server.server import Answer, Misbehaviour, ModelServer, Seen


def asked_text(seen: Seen) -> str:
    """What the user said in a request, in the form of OpenAI, Anthropic or Ollama."""
    content = seen.body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def echo(seen: Seen) -> Answer:
    """An answer that differs for each row."""
    return Answer(f"re: {asked_text(seen)}", prompt_tokens=20, completion_tokens=5)


class Clocked(ModelServer):
    """Records the time of each request."""

    def __init__(self, misbehaves: Callable[[str], Misbehaviour | None] = lambda _: None) -> None:
        super().__init__(echo, judges=False)
        self.came: list[tuple[float, str]] = []
        self.misbehaves: Callable[[str], Misbehaviour | None] = misbehaves
        self.faults = self._note

    def _note(self, seen: Seen) -> Misbehaviour | None:
        said = asked_text(seen)
        self.came.append((time.monotonic(), said))
        return self.misbehaves(said)

    @property
    def times(self) -> list[float]:
        return sorted(at for at, _ in self.came)

    @property
    def said(self) -> list[str]:
        return [said for _, said in self.came]


def rows(directory: Path, count: int) -> Path:
    """A file of rows with the inputs ``1``, ``2`` and so on."""
    path = directory / "data.jsonl"
    path.write_text("".join(f'{{"language":"Dutch","input":"{number}"}}\n' for number in range(1, count + 1)))
    return path


def calls_of(
    path: Path,
    url: str,
    source: str = "openai",
    *,
    skip: bool = False,
    rates: Rates | None = None,
    params: dict[str, Json] | None = None,
    prompter: ChatPrompter | None = None,
    **settings: Any,
) -> CallJob:
    """The calls to the server for a file of rows, without retries."""
    given: dict[str, Any] = {"model": "m", "api_key": KEY, "timeout": TIMEOUT, "retries": 0, **settings}
    plan = RowPlan.of(prompter or ChatPrompter("Answer in {language}."))
    rejects = path.with_name("bad.jsonl") if skip else None
    job = BatchJob(row_file(path), plan, path.with_name("out.jsonl"), rejects)
    return CallJob(job, OnlineChatModule(source, base_url=url, **given), rates or Rates(), params or {})


def lines(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def all_answered(path: Path, count: int) -> bool:
    """Whether an output has the answer of each row, in the order of rows."""
    said = [(line["row"], line["custom_id"], line["text"]) for line in lines(path)]
    return said == [(number, f"row-{number}", f"re: {number}") for number in range(1, count + 1)]
